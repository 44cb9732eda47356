"""What a decoder computes: NumPy, one line per equation, no tricks. It means what `decoder.py` computes faster.

Symbols of Haermae et al. 2024: H heads, N tokens, B = d_model; and V vocabulary. `x W + b` acts from the right. Every
function also takes complex weights, so that a derivative can be had to the last digit from an imaginary step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.decoders import TABLE_STD, Decoder

Array = NDArray[Any]  # float64, or complex128 for derivatives
Int = NDArray[np.int64]
Weights = Mapping[str, Array]
EPSILON = 1e-5  # of a norm
BASE = 10000.0  # of sinusoidal and rotary positions


def angles(length: int, width: int) -> Array:
    """`theta[n, i] = n / 10000^(2 i / width)` for every pair i of dimensions. returns: (length, width // 2)"""
    return np.outer(np.arange(length), BASE ** (-2.0 * np.arange(width // 2) / width))


def sinusoids(length: int, width: int) -> Array:
    """Sines, then cosines, of `angles`; scaled to the size that learned positions start at. returns: (length, width)"""
    theta = angles(length, width + width % 2)
    return TABLE_STD * math.sqrt(2) * np.concatenate([np.sin(theta), np.cos(theta)], axis=1)[:, :width]


def rotate(x: Array) -> Array:
    """Rotary positions: the pair (x_i, x_{i + d/2}) of token n is turned by `theta[n, i]`. x: (..., tokens, d_head)"""
    half = x.shape[-1] // 2
    theta = angles(x.shape[-2], 2 * half)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([a * np.cos(theta) - b * np.sin(theta), b * np.cos(theta) + a * np.sin(theta), rest], axis=-1)


def visible(decoder: Decoder, length: int) -> NDArray[np.bool_]:
    """Which token each token may look at: none after it; within the window; the window and every window-th one before.

    returns: (tokens that look, tokens looked at)
    """
    back = np.arange(length)[:, None] - np.arange(length)[None, :]
    seen = back >= 0
    if decoder.window is None:
        return seen
    strided = back % decoder.window == 0 if decoder.attention == "sparse" else np.zeros_like(seen)
    return seen & ((back < decoder.window) | strided)


def softmax(z: Array) -> Array:
    """`e^z_i / sum_j e^z_j` over the last axis, without overflow."""
    e = np.exp(z - z.real.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def norm(x: Array, gain: Array, bias: Array) -> Array:
    """`(x - mean) / sqrt(variance + 1e-5) * gain + bias` over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + EPSILON) * gain + bias)


def erf(x: Array) -> Array:
    """The error function, torch's since NumPy has none; of `x + i y` for the small y of derivatives."""
    import torch  # here alone, so that whoever judges other things does not wait for it

    real = torch.erf(torch.from_numpy(np.ascontiguousarray(x.real))).numpy()
    return real + 2.0j / math.sqrt(math.pi) * np.exp(-(x.real**2)) * x.imag if np.iscomplexobj(x) else real


def activate(name: str, x: Array) -> Array:
    """The feed-forward's activation. gelu: `x/2 (1 + erf(x / sqrt 2))`    silu: `x / (1 + e^-x)`"""
    if name == "gelu":
        return np.asarray(0.5 * x * (1.0 + erf(x / math.sqrt(2.0))))
    if name == "relu":
        return np.asarray(np.where(x.real > 0, x, 0.0))
    if name == "silu":
        return np.asarray(x * 0.5 * (1.0 + np.tanh(0.5 * x)))
    return np.tanh(x) if name == "tanh" else softmax(x)


def mixing(decoder: Decoder, q: Array, k: Array) -> Array:
    """How much every token takes from every other, rows that sum to 1.

    `softmax(q k^T / sqrt(d_head))` over what is visible; linear: `f(q) f(k)^T` over its row sum, with `f = elu + 1`

    q, k: (sequences, heads, tokens, d_head)    returns: (sequences, heads, tokens, tokens)
    """
    seen = visible(decoder, q.shape[-2])
    if decoder.attention == "linear":
        fq, fk = (np.where(z.real > 0, z + 1.0, np.exp(np.where(z.real > 0, 0.0, z))) for z in (q, k))
        weights = np.where(seen, fq @ fk.swapaxes(-1, -2), 0.0)
        return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
    return softmax(np.where(seen, q @ k.swapaxes(-1, -2) / math.sqrt(decoder.d_head), -np.inf))


def attend(decoder: Decoder, x: Array, w: Weights, layer: str) -> Array:
    """Multi-head attention. x, returns: (sequences, tokens, d_model)"""
    sequences, tokens, _ = x.shape
    qkv = (x @ w[f"{layer}qkv"] + w[f"{layer}qkv.bias"]).reshape(sequences, tokens, 3, decoder.heads, decoder.d_head)
    q, k, v = qkv.transpose(2, 0, 3, 1, 4)
    if decoder.positions == "rotary":
        q, k = rotate(q), rotate(k)
    mixed = (mixing(decoder, q, k) @ v).transpose(0, 2, 1, 3).reshape(sequences, tokens, decoder.width)
    return np.asarray(mixed @ w[f"{layer}mix"] + w[f"{layer}mix.bias"])


def feed_forward(decoder: Decoder, x: Array, w: Weights, layer: str) -> Array:
    """`activation(x W_up + b_up) W_down + b_down`"""
    hidden = activate(decoder.activation, x @ w[f"{layer}up"] + w[f"{layer}up.bias"])
    return np.asarray(hidden @ w[f"{layer}down"] + w[f"{layer}down.bias"])


def logits(decoder: Decoder, w: Weights, tokens: Int) -> Array:
    """Scores of every next token, for sequences that are read at once. tokens: (sequences, N)    returns: (..., N, V)"""
    x = w["tokens"][tokens]
    if decoder.positions != "rotary":
        x = x + (w["positions"] if decoder.positions == "learned" else sinusoids(*x.shape[1:]))[: x.shape[1]]
    parts = [("attention", attend)] + ([] if decoder.ff == "absent" else [("ff", feed_forward)])
    for layer in (f"{n}." for n in range(decoder.layers)):
        for name, part in parts:
            own = [w[f"{layer}{name}.norm.{p}"] for p in ("gain", "bias")] if decoder.norm != "none" else []
            if decoder.norm in ("pre", "final"):
                x = x + part(decoder, norm(x, *own), w, layer)
            else:
                x = x + part(decoder, x, w, layer)
                x = norm(x, *own) if decoder.norm == "post" else x
    if decoder.norm == "final":
        x = norm(x, w["norm.gain"], w["norm.bias"])
    return np.asarray(x @ (w["tokens"].T if decoder.tied else w["output"]) + w["output.bias"])


def surprises(scores: Array, tokens: Int) -> Array:
    """`-ln p(token n + 1 | tokens up to n)` in nats. scores: (sequences, N, V)    returns: (sequences, N - 1)"""
    z = scores[:, :-1]
    top = z.real.max(axis=-1)
    log_sum = np.log(np.exp(z - top[..., None]).sum(axis=-1)) + top
    return np.asarray(log_sum - np.take_along_axis(z, tokens[:, 1:, None], axis=-1)[..., 0])


def recital_loss(decoder: Decoder, w: Weights, tokens: Int, prompt: int) -> Any:
    """The loss of training: mean surprise, in nats, of the tokens after the prompt. tokens: (sequences, N)"""
    return surprises(logits(decoder, w, tokens), tokens)[:, prompt - 1 :].mean()


def greedy(decoder: Decoder, w: Weights, prompts: Int, length: int) -> Int:
    """The prompts, continued token by token with the highest score. prompts: (sequences, k)    returns: (sequences, N)"""
    tokens = prompts
    while tokens.shape[1] < length:
        following = logits(decoder, w, tokens)[:, -1].argmax(axis=-1)
        tokens = np.concatenate([tokens, following[:, None]], axis=1)
    return tokens
