"""What `heads` and its parts mean: NumPy, float64, one line per equation. A part of `reference`, about attention in use today.

Weights of a member: `w_query` (heads, d_model, d_key), and either `w_key` (key heads, d_model, d_key) or, with a latent of r
dimensions, `w_down` (d_model, r), `w_up` (heads, r, d_key - R) and `w_turned` (d_model, R), R of the dimensions being turned;
`gain` (d_key,) with `norm`.

items: m    d_model: d    heads: h    d_key: d_k
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from keyspan.attention.reference import sigmoid, softplus
from keyspan.attention.shapes import Heads

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Weights = Mapping[str, Float]

NORM_EPS = 1e-6  # added to the mean square that a query or key is divided by the root of
SIGNIFICAND, LEAST, LARGEST = 4, -6, 448.0  # of fp8 e4m3: bits with the hidden one, smallest normal exponent, largest number


# ------------------------------------------------------------------------------------------------ parts


def normalised(v: Float, gain: Float) -> Float:
    """`v_t gain_t / sqrt(mean v^2 + eps)`: QK-norm. v: (..., d_key)    gain: (d_key,)"""
    return np.asarray(v * gain / np.sqrt((v**2).mean(axis=-1, keepdims=True) + NORM_EPS))


def normalised_grad(v: Float, gain: Float, g: Float) -> tuple[Float, Float]:
    """Gradient of `normalised` with respect to (v, gain), where g is that of its result."""
    root = np.sqrt((v**2).mean(axis=-1, keepdims=True) + NORM_EPS)
    u = g * gain
    dv = u / root - v * (u * v).mean(axis=-1, keepdims=True) / root**3
    return dv, (g * v / root).reshape(-1, v.shape[-1]).sum(axis=0)


def turned(v: Float, positions: Int, dimensions: int, base: float) -> Float:
    """Rotary positions: the pair (v_2t, v_2t+1) is turned by the angle `p base^(-2t/R)`, t < R/2; what is left stays.

    v: (..., items, d_key)    positions: (items,)    dimensions: R
    """
    angle = positions[:, None] * base ** (-np.arange(0, dimensions, 2) / max(dimensions, 1))  # (items, R/2)
    even, odd, out = v[..., 0:dimensions:2], v[..., 1:dimensions:2], v.copy()
    out[..., 0:dimensions:2] = even * np.cos(angle) - odd * np.sin(angle)
    out[..., 1:dimensions:2] = even * np.sin(angle) + odd * np.cos(angle)
    return np.asarray(out)


def rounded(v: Float, keys: str) -> Float:
    """What a cache holds of v: the nearest numbers of a format, ties to even. v: (..., items, channels)

    bf16: 8 significant bits    fp8: e4m3, every channel divided by the scale that brings its largest number to 448
    int8, int4: steps of 1/127 or 1/7 of the largest number of the channel
    """
    if keys == "fp32":
        return v
    if keys == "bf16":
        return significant(v, 8, -126)
    top = np.abs(v).max(axis=-2, keepdims=True)
    scale = np.where(top > 0, top, 1.0) / {"fp8": LARGEST, "int8": 127.0, "int4": 7.0}[keys]
    return np.asarray((significant(v / scale, SIGNIFICAND, LEAST) if keys == "fp8" else np.rint(v / scale)) * scale)


def significant(v: Float, bits: int, least: int) -> Float:
    """The nearest numbers with so many significant bits, subnormal below 2^least; v is not too large for the format."""
    place = np.maximum(np.frexp(v)[1] - bits, least - bits + 1)
    return np.asarray(np.ldexp(np.rint(np.ldexp(v, -place)), place))


def capped(s: Float, cap: float) -> Float:
    """`cap tanh(s / cap)`; cap 0: none"""
    return np.asarray(cap * np.tanh(s / cap)) if cap else s


# ---------------------------------------------------------------------------------------------- queries and keys


def queries(heads: Heads, embeddings: Float, w: Weights, positions: Int) -> Float:
    """`q_i^k = x_i W_Q^k`, normalised, turned. returns: (heads, items, d_key)"""
    q = embeddings @ w["w_query"]
    if heads.norm:
        q = normalised(q, w["gain"])
    return turned(q, positions, heads.turned, heads.base)


def cache(heads: Heads, embeddings: Float, w: Weights) -> list[Float]:
    """What is cached of every item, before it is rounded: its keys, or its latent and the key that is turned.

    returns: [(key heads, items, d_key)], or [(items, latent), (items, R)]
    """
    if heads.latent:
        return [embeddings @ w["w_down"], embeddings @ w["w_turned"]]
    k = embeddings @ w["w_key"]
    return [normalised(k, np.ones(heads.d_key)) if heads.norm else k]  # one gain is enough: only products count


def keys(heads: Heads, embeddings: Float, w: Weights, positions: Int, kept: str | None = None) -> Float:
    """`k_j^{g(k)}` as it is read from the cache, for every head. kept: the cache's format    returns: (heads, items, d_key)"""
    held = [rounded(part, heads.keys if kept is None else kept) for part in cache(heads, embeddings, w)]
    if heads.latent:
        turning = np.broadcast_to(turned(held[1], positions, heads.turned, heads.base), (heads.heads, *held[1].shape))
        return np.concatenate([turning, held[0] @ w["w_up"]], axis=-1)
    return np.repeat(turned(held[0], positions, heads.turned, heads.base), heads.heads // heads.key_heads, axis=0)


def scores(heads: Heads, embeddings: Float, w: Weights, positions: Int) -> Float:
    """`S_ij = max_k c(q_i^k . k_j^{g(k)})`. positions: (items,)    returns: (items, items)"""
    each = queries(heads, embeddings, w, positions) @ keys(heads, embeddings, w, positions).transpose(0, 2, 1)
    return capped(each.max(axis=0), heads.cap)


# ------------------------------------------------------------------------------------------- losses and gradients


def loss(heads: Heads, embeddings: Float, edges: Int, w: Weights, positions: Int, kind: str) -> float:
    """`reference.bce` or `reference.channel_hinge` of these scores. kind: bce or squared-hinge"""
    z, (i, j) = scores(heads, embeddings, w, positions) + w["bias"], edges.T
    if kind == "bce":
        return float((softplus(z).sum() - softplus(z[i, j]).sum() + softplus(-z[i, j]).sum()) / len(edges))
    short = np.maximum(0.0, 1.0 + z)
    short[i, j] = np.maximum(0.0, 1.0 - z[i, j])
    return float((short**2).sum() / len(edges))


def loss_grad(heads: Heads, embeddings: Float, edges: Int, w: Weights, positions: Int, kind: str) -> dict[str, Float]:
    """Gradient of `loss` with respect to every weight; through the maximum as in `reference.bce_grad`, and straight through
    rounding (Bengio and others 2013): as if its slope were 1 and its scales did not move.
    """
    x, back = embeddings, -positions  # turning is orthogonal: its transpose turns back
    q, k = queries(heads, x, w, positions), keys(heads, x, w, positions)
    each = q @ k.transpose(0, 2, 1)
    best = each.max(axis=0)
    z, (i, j) = capped(best, heads.cap) + w["bias"], edges.T
    g = sigmoid(z) if kind == "bce" else 2.0 * np.maximum(0.0, 1.0 + z)
    g[i, j] = g[i, j] - 1.0 if kind == "bce" else -2.0 * np.maximum(0.0, 1.0 - z[i, j])
    g /= len(edges)
    slope = g * (1.0 - np.tanh(best / heads.cap) ** 2) if heads.cap else g
    routed = np.where(each == best, slope, 0.0)
    dq, dk = turned(routed @ k, back, heads.turned, heads.base), routed.transpose(0, 2, 1) @ q
    out = {"bias": np.array(g.sum())}
    if heads.norm:
        dq, out["gain"] = normalised_grad(x @ w["w_query"], w["gain"], dq)
    out["w_query"] = x.T @ dq
    if heads.latent:
        held = rounded(x @ w["w_down"], heads.keys)
        out["w_turned"] = x.T @ turned(dk[..., : heads.turned].sum(axis=0), back, heads.turned, heads.base)
        out["w_up"] = held.T @ dk[..., heads.turned :]
        out["w_down"] = x.T @ (dk[..., heads.turned :] @ w["w_up"].transpose(0, 2, 1)).sum(axis=0)
        return out
    dk = dk.reshape(heads.key_heads, -1, *dk.shape[1:]).sum(axis=1)
    dk = turned(dk, back, heads.turned, heads.base)
    if heads.norm:
        dk, _ = normalised_grad(x @ w["w_key"], np.ones(heads.d_key), dk)
    out["w_key"] = x.T @ dk
    return out
