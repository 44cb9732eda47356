"""What every other file in this room means: NumPy, float64, one line per equation, no options and no tricks.

Adler 2025, section 3: `S^(k)_ij = (x_i W_Q^(k)) . (x_j W_K^(k))`, `S_ij = max_k S^(k)_ij`, and i -> j exactly when
`S_ij > tau`. The code writes `tau = -bias`.

items: m    d_model: d    heads: h    d_key: d_k
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Pairwise = Callable[[Float], Float]
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


def typed(embeddings: Float, w_query: Float, w_key: Float, gates: Float) -> Float:
    """Several relations on the same items: `z[t, i, j] = max_k (S[k, i, j] + g[t, k])`, i -> j of type t when `z > 0`.

    gates: (types, heads), -inf where a head is not the type's    returns: (types, items, items)
    """
    return np.asarray((scores(embeddings, w_query, w_key) + gates[:, :, None, None]).max(axis=1))


def typed_loss(
    embeddings: Float, edges: Int, w_query: Float, w_key: Float, gates: Float, edge: Pairwise, other: Pairwise
) -> float:
    """The mean over types of a channel's loss: `L = (1/(T m')) sum_t [ sum_edges edge(z) + sum_non-edges other(z) ]`.

    edges: (types, m', 2)    edge, other: functions of z, as in `attention.losses`
    """
    z = typed(embeddings, w_query, w_key, gates)
    each = other(z)
    t, i, j = np.arange(len(edges))[:, None], edges[..., 0], edges[..., 1]
    each[t, i, j] = edge(z[t, i, j])
    return float(each.sum() / edges[..., 0].size)


def typed_grad(
    embeddings: Float, edges: Int, w_query: Float, w_key: Float, gates: Float, edge: Pairwise, other: Pairwise
) -> tuple[Float, Float, Float]:
    """Gradient of `typed_loss` with respect to (w_query, w_key, gates). edge, other: the slopes of those of the loss

    returns: (heads, d_model, d_key), (heads, d_model, d_key), (types, heads)
    """
    s = scores(embeddings, w_query, w_key)
    z = typed(embeddings, w_query, w_key, gates)
    g = other(z)
    t, i, j = np.arange(len(edges))[:, None], edges[..., 0], edges[..., 1]
    g[t, i, j] = edge(z[t, i, j])
    g /= edges[..., 0].size
    routed = np.where(s + gates[:, :, None, None] == z[:, None], g[:, None], 0.0)  # dL/d(S^(k) + g_tk)
    by_head = routed.sum(axis=0)
    d_query = embeddings.T @ (by_head @ (embeddings @ w_key))
    d_key = embeddings.T @ (by_head.transpose(0, 2, 1) @ (embeddings @ w_query))
    return d_query, d_key, np.asarray(routed.sum(axis=(2, 3)))


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


# ---------------------------------------------------------------------------------------- layers and labelled contexts
#
# Mahdavi et al. 2024: example t is a context E_t of n tokens and a query e_t. T: examples    n: context    H: heads
# d_h: d_head    d_v: d_value. Arrays `contexts` are (T, n, d), or (1, n, d) where all examples share one.


def positions(count: int, width: int) -> Float:
    """Sinusoids: `p[j, 2i] = sin(j / 10000^(2i/d))`, `p[j, 2i+1] = cos(j / 10000^(2i/d))`. returns: (count, width)"""
    column = np.arange(width)
    angle = np.arange(count)[:, None] / 10000.0 ** (2 * (column // 2) / width)
    return np.where(column % 2 == 0, np.sin(angle), np.cos(angle))


def attention(queries: Float, contexts: Float, w_query: Float, w_key: Float, scale: float) -> Float:
    """`a[t, h, j] = softmax_j of scale ((e_t W_Q[h]) W_K[h]^T) . E_t[j]`

    queries: (T, d)    w_query, w_key: (H, d, d_h)    returns: (T, H, n)
    """
    turned = (queries @ w_query) @ w_key.transpose(0, 2, 1)  # (H, T, d)
    logits = scale * (turned.transpose(1, 0, 2) @ contexts.transpose(0, 2, 1))
    weights = np.exp(logits - logits.max(axis=2, keepdims=True))
    return np.asarray(weights / weights.sum(axis=2, keepdims=True))


def head_outputs(weights: Float, contexts: Float, w_value: Float) -> Float:
    """`z[t, h] = sum_j a[t, h, j] E_t[j] W_V[h]`. weights: (T, H, n)    w_value: (H, d, d_v)    returns: (T, H, d_v)"""
    return np.asarray(np.einsum("thd,hdv->thv", weights @ contexts, w_value))


def layer(queries: Float, contexts: Float, w_query: Float, w_key: Float, w_value: Float, w_out: Float, scale: float) -> Float:
    """One layer of attention, no residual: `y_t = sum_h z[t, h] W_O[h]`. w_out: (H, d_v, out)    returns: (T, out)"""
    heads = head_outputs(attention(queries, contexts, w_query, w_key, scale), contexts, w_value)
    return np.asarray(np.einsum("thv,hvo->to", heads, w_out))


def embedded(tokens: Float, weights: dict[str, Float], first: int) -> Float:
    """`x_j = E_j W_in + b_in + p_(first + j)`. tokens: (..., n, d)"""
    place = positions(first + tokens.shape[-2], tokens.shape[-1])[first:]
    return np.asarray(tokens @ weights["w_in"] + weights["b_in"] + place)


def labels_attention(weights: dict[str, Float], queries: Float, contexts: Float) -> Float:
    """Attention weights of the layer between its two linear maps; the query is row 0, which is not attended to.

    returns: (T, H, n)
    """
    x_0, x = embedded(queries[:, None], weights, 0)[:, 0], embedded(contexts, weights, 1)
    return attention(x_0, x, weights["w_query"], weights["w_key"], 1.0 / np.sqrt(queries.shape[1]))


def labels_outputs(weights: dict[str, Float], queries: Float, contexts: Float) -> Float:
    """`y_t = (sum_h z[t, h] W_O[h]) W_label + b_label`, logits divided by sqrt(d) whatever d_h is.

    weights: w_in (d, d), b_in (d,), w_query, w_key (H, d, d_h), w_value (H, d, d_v), w_out (H, d_v, d),
    w_label (d, outputs), b_label (outputs,)    returns: (T, outputs)
    """
    heads = head_outputs(labels_attention(weights, queries, contexts), embedded(contexts, weights, 1), weights["w_value"])
    return np.asarray(np.einsum("thv,hvo->to", heads, weights["w_out"]) @ weights["w_label"] + weights["b_label"])


def cross_entropy(outputs: Float, labels: Int) -> float:
    """`L = mean_t (ln sum_c e^(y_tc) - y_t,label)`. outputs: (T, classes)    labels: (T,)"""
    return float((np.logaddexp.reduce(outputs, axis=1) - outputs[np.arange(len(labels)), labels]).mean())


def cross_entropy_slope(outputs: Float, labels: Int) -> Float:
    """`dL/dy = (softmax(y) - 1[label]) / T`. returns: (T, classes)"""
    slope = np.exp(outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True))
    slope[np.arange(len(labels)), labels] -= 1.0
    return np.asarray(slope / len(labels))


def squared_error(outputs: Float, labels: Float) -> float:
    """`L = mean_t (y_t - label_t)^2`. outputs: (T, 1)    labels: (T,)"""
    return float(((outputs[:, 0] - labels) ** 2).mean())


def squared_error_slope(outputs: Float, labels: Float) -> Float:
    """`dL/dy = 2 (y - label) / T`. returns: (T, 1)"""
    return np.asarray(2.0 * (outputs - labels[:, None]) / len(labels))


def labels_grad(weights: dict[str, Float], queries: Float, contexts: Float, slope: Float) -> dict[str, Float]:
    """Gradient of a loss by all weights, from its slope by the outputs. slope: (T, outputs)"""
    w = weights
    contexts = np.broadcast_to(contexts, (len(queries), *contexts.shape[1:]))
    scale = 1.0 / np.sqrt(queries.shape[1])
    x_0, x = embedded(queries[:, None], w, 0)[:, 0], embedded(contexts, w, 1)
    a = labels_attention(w, queries, contexts)
    heads = head_outputs(a, x, w["w_value"])
    mixed = np.einsum("thv,hvo->to", heads, w["w_out"])
    d_mixed = slope @ w["w_label"].T
    d_heads = np.einsum("to,hvo->thv", d_mixed, w["w_out"])
    values = np.einsum("tjd,hdv->thjv", x, w["w_value"])
    d_a = np.einsum("thjv,thv->thj", values, d_heads)
    d_logits = scale * a * (d_a - (a * d_a).sum(axis=2, keepdims=True))
    query, key = np.einsum("td,hdk->thk", x_0, w["w_query"]), np.einsum("tjd,hdk->thjk", x, w["w_key"])
    d_query, d_key = np.einsum("thj,thjk->thk", d_logits, key), np.einsum("thj,thk->thjk", d_logits, query)
    d_values = np.einsum("thj,thv->thjv", a, d_heads)
    d_x = np.einsum("thjk,hdk->tjd", d_key, w["w_key"]) + np.einsum("thjv,hdv->tjd", d_values, w["w_value"])
    d_x_0 = np.einsum("thk,hdk->td", d_query, w["w_query"])
    return {
        "w_in": queries.T @ d_x_0 + np.einsum("tje,tjd->ed", contexts, d_x),
        "b_in": d_x_0.sum(axis=0) + d_x.sum(axis=(0, 1)),
        "w_query": np.einsum("td,thk->hdk", x_0, d_query),
        "w_key": np.einsum("tjd,thjk->hdk", x, d_key),
        "w_value": np.einsum("tjd,thjv->hdv", x, d_values),
        "w_out": np.einsum("thv,to->hvo", heads, d_mixed),
        "w_label": mixed.T @ slope,
        "b_label": slope.sum(axis=0),
    }
