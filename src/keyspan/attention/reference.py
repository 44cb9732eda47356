"""What every other file in this room means: NumPy, float64, one line per equation, no options and no tricks.

Adler 2025, section 3: `S^(k)_ij = (x_i W_Q^(k)) . (x_j W_K^(k))`, `S_ij = max_k S^(k)_ij`, and i -> j exactly when
`S_ij > tau`. The code writes `tau = -bias`.

items: m    d_model: d    heads: h    d_key: d_k
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def scores(embeddings: Float, w_query: Float, w_key: Float) -> Float:
    """Key-query scores of every head for every ordered pair of items.

    `S[k, i, j] = (x_i W_Q[k]) . (x_j W_K[k])`        (Adler 2025, section 3: S^(k)_ij)

    embeddings: (items, d_model)    w_query, w_key: (heads, d_model, d_key)    returns: (heads, items, items)
    """
    return np.asarray((embeddings @ w_query) @ (embeddings @ w_key).transpose(0, 2, 1))


def aggregate(s: Float) -> Float:
    """`S_ij = max_k S^(k)_ij`. s: (heads, items, items)    returns: (items, items)"""
    return np.asarray(s.max(axis=0))


def softplus(z: Float) -> Float:
    """`ln(1 + e^z)`, without overflow."""
    return np.asarray(np.logaddexp(0.0, z))


def sigmoid(z: Float) -> Float:
    """`1 / (1 + e^-z)`, without overflow."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -z)))


def bce(embeddings: Float, edges: Int, w_query: Float, w_key: Float, bias: float) -> float:
    """The loss of the recipe `gradient`, with z = S + bias and m' edges:

    `L = (1/m') [ sum_edges softplus(-z) + sum_non-edges softplus(z) ]`

    embeddings: (items, d_model)    edges: (m', 2)    w_query, w_key: (heads, d_model, d_key)
    """
    z = aggregate(scores(embeddings, w_query, w_key)) + bias
    i, j = edges.T
    return float((softplus(z).sum() - softplus(z[i, j]).sum() + softplus(-z[i, j]).sum()) / len(edges))


def bce_grad(embeddings: Float, edges: Int, w_query: Float, w_key: Float, bias: float) -> tuple[Float, Float, float]:
    """Gradient of `bce` with respect to (w_query, w_key, bias).

    The maximum passes a pair's gradient to the head that attains it (to every one of them at a tie).

    returns: (heads, d_model, d_key), (heads, d_model, d_key), scalar
    """
    s = scores(embeddings, w_query, w_key)
    z = aggregate(s) + bias
    g = sigmoid(z)  # dL/dz of a non-edge, times m'
    g[edges[:, 0], edges[:, 1]] -= 1.0  # and of an edge
    g /= len(edges)
    routed = np.where(s == aggregate(s), g, 0.0)  # dL/dS^(k)
    d_query = embeddings.T @ (routed @ (embeddings @ w_key))
    d_key = embeddings.T @ (routed.transpose(0, 2, 1) @ (embeddings @ w_query))
    return d_query, d_key, float(g.sum())


def channel_hinge(embeddings: Float, edges: Int, w_query: Float, w_key: Float, bias: float) -> float:
    """Squared hinge of margin 1, with z = S + bias and m' edges:

    `L = (1/m') [ sum_edges max(0, 1 - z)^2 + sum_non-edges max(0, 1 + z)^2 ]`

    embeddings: (items, d_model)    edges: (m', 2)    w_query, w_key: (heads, d_model, d_key)
    """
    z = aggregate(scores(embeddings, w_query, w_key)) + bias
    short = np.maximum(0.0, 1.0 + z)  # by how much a non-edge misses the margin
    i, j = edges.T
    short[i, j] = np.maximum(0.0, 1.0 - z[i, j])  # and an edge
    return float((short**2).sum() / len(edges))


def channel_hinge_grad(embeddings: Float, edges: Int, w_query: Float, w_key: Float, bias: float) -> tuple[Float, Float, float]:
    """Gradient of `channel_hinge` with respect to (w_query, w_key, bias), routed through the maximum as in `bce_grad`.

    returns: (heads, d_model, d_key), (heads, d_model, d_key), scalar
    """
    s = scores(embeddings, w_query, w_key)
    z = aggregate(s) + bias
    i, j = edges.T
    g = 2.0 * np.maximum(0.0, 1.0 + z)  # dL/dz of a non-edge, times m'
    g[i, j] = -2.0 * np.maximum(0.0, 1.0 - z[i, j])  # and of an edge
    g /= len(edges)
    routed = np.where(s == aggregate(s), g, 0.0)  # dL/dS^(k)
    d_query = embeddings.T @ (routed @ (embeddings @ w_key))
    d_key = embeddings.T @ (routed.transpose(0, 2, 1) @ (embeddings @ w_query))
    return d_query, d_key, float(g.sum())


def owned_hinge(embeddings: Float, edges: Int, owners: Int, w_query: Float, w_key: Float, bias: float) -> float:
    """Squared hinge where every edge has an owner, with z^k = S^k + bias and m' edges:

    `L = (1/m') [ sum_edges max(0, 1 - z^own)^2 + sum_k sum_non-edges max(0, 1 + z^k)^2 ]`

    owners: (m',), the head of every edge; what the other heads score on it counts for nothing
    """
    z = scores(embeddings, w_query, w_key) + bias
    short = np.maximum(0.0, 1.0 + z)
    i, j = edges.T
    short[:, i, j] = 0.0
    short[owners, i, j] = np.maximum(0.0, 1.0 - z[owners, i, j])
    return float((short**2).sum() / len(edges))


def owned_hinge_grad(
    embeddings: Float, edges: Int, owners: Int, w_query: Float, w_key: Float, bias: float
) -> tuple[Float, Float, float]:
    """Gradient of `owned_hinge` with respect to (w_query, w_key, bias).

    returns: (heads, d_model, d_key), (heads, d_model, d_key), scalar
    """
    z = scores(embeddings, w_query, w_key) + bias
    i, j = edges.T
    g = 2.0 * np.maximum(0.0, 1.0 + z)  # dL/dz^k of a non-edge, times m'
    g[:, i, j] = 0.0
    g[owners, i, j] = -2.0 * np.maximum(0.0, 1.0 - z[owners, i, j])  # and of an edge, in its own head
    g /= len(edges)
    d_query = embeddings.T @ (g @ (embeddings @ w_key))
    d_key = embeddings.T @ (g.transpose(0, 2, 1) @ (embeddings @ w_query))
    return d_query, d_key, float(g.sum())


def decisions(embeddings: Float, w_query: Float, w_key: Float, bias: float) -> NDArray[np.bool_]:
    """Which ordered pairs the channel calls an edge: `S_ij > tau`. returns: (items, items)"""
    return np.asarray(aggregate(scores(embeddings, w_query, w_key)) > -bias)


def f1(decided: NDArray[np.bool_], edges: Int) -> float:
    """`F1 = 2 TP / (TP + FP + m')` over all ordered pairs. decided: (items, items)    edges: (m', 2)"""
    true_positives = int(decided[edges[:, 0], edges[:, 1]].sum())
    return 2.0 * true_positives / (int(decided.sum()) + len(edges))


def squared_hinge(signed: Float, weights: Float) -> float:
    """Loss of a linear unit on points already times their labels: `L = sum_t max(0, 1 - y_t x_t . w)^2`.

    signed: (examples, dimension), rows y_t x_t    weights: (dimension,)
    """
    return float((np.maximum(0.0, 1.0 - signed @ weights) ** 2).sum())


def squared_hinge_grad(signed: Float, weights: Float) -> Float:
    """`dL/dw = -2 sum_t max(0, 1 - y_t x_t . w) y_t x_t`. returns: (dimension,)"""
    return np.asarray(-2.0 * np.maximum(0.0, 1.0 - signed @ weights) @ signed)


def logistic(signed: Float, weights: Float) -> float:
    """`L = (1/T) sum_t softplus(-y_t x_t . w)`. signed: (examples, dimension)    weights: (dimension,)"""
    return float(softplus(-(signed @ weights)).mean())


def logistic_grad(signed: Float, weights: Float) -> Float:
    """`dL/dw = -(1/T) sum_t sigmoid(-y_t x_t . w) y_t x_t`. returns: (dimension,)"""
    return np.asarray(-(sigmoid(-(signed @ weights)) @ signed) / len(signed))
