"""What `routed` means: NumPy, float64, one line per equation. A part of `reference`, about softmax, values and a whole block.

`x` (..., L, d_model) are the rows of a context's items, of many contexts where there are axes before. Weights of a member:

    w_query, w_key (heads, d_model, d_key)      sink (heads,)                                    with a sink
    w_value (heads, d_model, d_value)           w_out (heads, d_value, d_model)    bias ()       with values
    w_up (d_model, hidden)    b_up (hidden,)    w_down (hidden, d_model)    b_down (d_model,)    of a block
    norm_in, norm_mid, norm_out (d_model,)      the gains of its three norms                     of a block

Everything is analytic, so that a derivative can be taken along the imaginary axis, to the last bit
(`f'(w) v = Im f(w + i t v) / t`, Squire and Trapp 1998): gradients are held to that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.attention.shapes import Routed

Array = NDArray[Any]  # of floats, or of complex numbers where a derivative is taken
Int = NDArray[np.int64]
Weights = Mapping[str, Array]

NORM_EPS = 1e-6
TINY = 1e-7  # added to what a head gives to others, over all it gives: logits of attention stay below about 16


def logits(layer: Routed, x: Array, w: Weights) -> Array:
    """`S^k_ij / T`. returns: (..., heads, L, L)"""
    rows = x[..., None, :, :]
    return np.asarray(layer.scale * ((rows @ w["w_query"]) @ (rows @ w["w_key"]).swapaxes(-1, -2)))


def attention(layer: Routed, x: Array, w: Weights, there: Array | None = None) -> Array:
    """`a^k_ij = exp(l_ij) / (exp(s_k) + sum_l exp(l_il))`, the softmax of a context with a sink.

    there: (..., L), whether there is an item at a place; default: at all    returns: (..., heads, L, L)
    """
    each = logits(layer, x, w)
    if there is not None:
        each = np.where(there[..., None, None, :], each, -np.inf)
    sink = w["sink"][:, None, None] if layer.sink else np.full((1, 1, 1), -np.inf)
    top = np.maximum(each.real.max(axis=-1, keepdims=True), sink.real)
    powers, others = np.exp(each - top), np.exp(sink - top)
    return np.asarray(powers / (others + powers.sum(axis=-1, keepdims=True)))


def leaning(layer: Routed, x: Array, w: Weights) -> Array:
    """`z_ij = max_k ln( a^k_ij / (1 - a^k_ij) )`: positive where some head gives j more than half. returns: (..., L, L)

    (1 - a is kept above TINY; see there.)
    """
    a = attention(layer, x, w)
    z = np.log(a + 1e-300) - np.log(1.0 - a + TINY)
    best = z.real.argmax(axis=-3, keepdims=True)
    return np.asarray(np.take_along_axis(z, best, axis=-3)[..., 0, :, :])


def output(x: Array, a: Array, w: Weights) -> Array:
    """`o_i = sum_k sum_j a^k_ij x_j W_V^k W_O^k`. a: (..., heads, L, L)    returns: (..., L, d_model)"""
    return np.asarray((a @ (x[..., None, :, :] @ w["w_value"]) @ w["w_out"]).sum(axis=-3))


def normalised(v: Array, gain: Array) -> Array:
    """`v gain / sqrt(mean v^2 + eps)`. v: (..., width)"""
    return np.asarray(v * gain / np.sqrt((v * v).mean(axis=-1, keepdims=True) + NORM_EPS))


def gelu(v: Array) -> Array:
    """`v/2 (1 + tanh( sqrt(2/pi) (v + 0.044715 v^3) ))` (Hendrycks and Gimpel 2016, by tanh)"""
    return np.asarray(v / 2 * (1.0 + np.tanh(np.sqrt(2 / np.pi) * (v + 0.044715 * v**3))))


def attends(layer: Routed, x: Array, w: Weights) -> Array:
    """What attention looks at: the rows, or in a block the normalised ones. returns: as x"""
    return normalised(x, w["norm_in"]) if layer.hidden else x


def stream(layer: Routed, x: Array, w: Weights, a: Array) -> Array:
    """What is read out for every item: the heads' output, or a whole block's. a: attention    returns: (..., L, d_model)"""
    o = output(attends(layer, x, w), a, w)
    if not layer.hidden:
        return o
    u = x + o
    y = u + gelu(normalised(u, w["norm_mid"]) @ w["w_up"] + w["b_up"]) @ w["w_down"] + w["b_down"]
    return normalised(y, w["norm_out"])


# --------------------------------------------------------------------------------------------------------- the loss


def loss(layer: Routed, contexts: list[tuple[Array, Int, Int]], w: Weights, embeddings: Array, edges: int) -> Array:
    """What is minimised over the contexts of a step. edges: m', of the graph

    contexts: of each the rows (L, d_model), the places (L,) of targets in it, and which items (L,) they are; -1: none
    Without values: binary cross-entropy of every pair, with `leaning` for a logit, over m'. With values: cross-entropy of every
    item's target among all items and "none", whose logit is -bias; the mean over items.
    """
    if layer.d_value:
        read = [(stream(layer, x, w, attention(layer, attends(layer, x, w), w)), target) for x, _, target in contexts]
        each = [_items_loss(o @ embeddings.T, w["bias"], target) for o, target in read]
        return np.asarray(np.concatenate(each).mean())
    total: Any = 0.0
    for x, place, _ in contexts:
        z = leaning(layer, x, w)
        i = np.flatnonzero(place >= 0)
        total = total + softplus(z).sum() - z[i, place[i]].sum()
    return np.asarray(total / edges)


def _items_loss(scores: Array, bias: Array, target: Int) -> Array:
    """`ln sum exp - that of the target`, with "none" behind the items. returns: (L,)"""
    each = np.concatenate([scores, np.zeros((len(scores), 1)) - bias], axis=1)
    top = each.real.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(each - top).sum(axis=1)) + top[:, 0] - each[np.arange(len(each)), target])


def softplus(z: Array) -> Array:
    """`ln(1 + e^z)`, without overflow."""
    return np.asarray(np.where(z.real > 0, z, 0.0) + np.log1p(np.exp(np.where(z.real > 0, -z, z))))
