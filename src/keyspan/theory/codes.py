"""Codes: one vector for every item or edge of a head, such that vectors that must not match are told apart.

A head whose query and key of the a-th edge are both the codeword s_a scores `s_a . s_b` between edges a and b of its own:
1 on the edge where the words have norm 1, and at most the code's coherence elsewhere (docs/constructions.md).

count: how many words    d_key: d_k
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.seeds import Stream

Float = NDArray[np.float64]
STEPS = 150  # of the optimised codes; more changed no budget by more than one dimension per head
RATE, MOMENTUM, COLD, HOT = 0.3, 0.8, 2.0, 12.0


def random_signs(stream: Stream, count: int, d_key: int) -> Float:
    """Random signs over sqrt(d_k). returns: (count, d_key), unit rows"""
    return stream.signs((count, d_key)) / math.sqrt(d_key)


def binary_code(count: int, d_key: int) -> Float:
    """The first `count` binary numbers as signs over sqrt(d_k): distinct where `count <= 2^d_k`, coherence 1 - 2/d_k at most.

    returns: (count, d_key), unit rows
    """
    require(count <= 2 ** min(d_key, 62), f"d_key >= ceil(log2 {count})", d_key, f"Use {max(count - 1, 1).bit_length()}.")
    bits = (np.arange(count)[:, None] >> np.arange(d_key)[None, :].clip(max=62)) & 1
    return np.asarray(np.where(bits == 1, 1.0, -1.0) / math.sqrt(d_key))


def circle_code(count: int) -> Float:
    """Points at equal angles on a circle: coherence cos(2 pi / count). returns: (count, 2), unit rows"""
    angle = 2.0 * math.pi * np.arange(count) / count
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def quiet_code(stream: Stream, leak: Float, d_key: int, weight: float, steps: int = STEPS) -> Float:
    """Unit words that differ from each other and that leak little: one code for each of n heads, together.

    Minimised over the words s_a, by projected steps with momentum while beta rises from 2 to 12:

        (count / beta) ln sum over a != b of exp(beta s_a . s_b)  +  weight sum over a, b of leak_ab (s_a . s_b)

    With weight 0 it is a spherical code alone. With `leak` the inverse Gram matrix of a block's rows, the second term is
    |W|^2: what weights that give exactly these words let through from items outside the block (blocks.py). That term is
    quadratic, and a step in it is taken implicitly, so that no leak is too large for the step.

    leak: (n, count, count), symmetric    returns: (n, count, d_key), unit rows
    """
    heads, count, _ = leak.shape
    words = _unit(stream.normal((heads, count, d_key)))
    damp = np.linalg.inv(np.eye(count) + RATE * weight * leak)
    own = np.arange(count)
    speed = np.zeros_like(words)
    for step in range(steps if count > 1 else 0):
        beta = COLD + (HOT - COLD) * step / steps
        near = words @ words.transpose(0, 2, 1)
        near[:, own, own] = -np.inf
        pull = np.exp(beta * (near - near.max(axis=(1, 2), keepdims=True)))
        pull *= count / pull.sum(axis=(1, 2), keepdims=True)
        moved = _unit(damp @ (words - RATE * (pull @ words) + MOMENTUM * speed))
        words, speed = moved, moved - words
    return words


def _unit(words: Float) -> Float:
    return np.asarray(words / np.maximum(np.linalg.norm(words, axis=-1, keepdims=True), 1e-300))


# ------------------------------------------------------------------------------------- how long random words must be


def distinct_probability(count: int, d_key: int) -> float:
    """P(all `count` random sign words differ) = prod over t < count of (1 - t 2^-d_k): the birthday problem (proven)."""
    room = 2.0**d_key
    if count > room:
        return 0.0
    return math.exp(math.fsum(math.log1p(-t / room) for t in range(count)))


def distinct_width(count: int, failure: float) -> int:
    """The d_k from which random sign words all differ with probability 1 - failure: `d_k >= log2(m(m-1) / (2 failure))`."""
    require(0 < failure < 1, "0 < failure < 1", failure, "Try 0.05.")
    return max(1, math.ceil(math.log2(max(count * (count - 1) / (2 * failure), 1.0))))


def coherent_width(count: int, coherence: float, failure: float) -> int:
    """The d_k from which random sign words have s_a . s_b < coherence for all a != b, with probability 1 - failure.

    `d_k >= (2 / coherence^2) ln(m(m-1) / (2 failure))` (Hoeffding, and a sum over pairs; proven, loose near coherence 1).
    """
    require(0 < coherence <= 1, "0 < coherence <= 1", coherence, "Inner products of unit words lie below 1.")
    require(0 < failure < 1, "0 < failure < 1", failure, "Try 0.05.")
    return max(1, math.ceil(2 / coherence**2 * math.log(max(count * (count - 1) / (2 * failure), 1.0))))


def welch_coherence(count: int, d_key: int) -> float:
    """No `count` unit words in d_k dimensions have all |s_a . s_b| below sqrt((count - d_k) / (d_k (count - 1))) (Welch)."""
    return math.sqrt(max(count - d_key, 0) / (d_key * (count - 1))) if count > 1 else 0.0
