"""Restricted self-incoherence: how much a block of item vectors leaks onto items outside it (Adler 2025).

For unit rows with Gram matrix G, a block V of B sources and the targets T that belong to them, and items i, j outside:

    leak    sum over a in V of G_ia^2           about B/d for gaussian rows
    cross   |sum over a of G_i,V(a) G_j,T(a)|   about sqrt(B)/d

Rows are (B, eps, mu)-incoherent if for (random) blocks leak <= (1 + eps) B/d and cross <= mu sqrt(B)/d, and no two rows
coincide. Both can be had exactly, or from samples: blocks at random, or random signs instead of the sum over all items.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.seeds import Stream

Float = NDArray[np.float64]
Int = NDArray[np.int64]
ROWS = 1024


@dataclass(frozen=True)
class SelfIncoherence:
    """Of some blocks of B edges. epsilon, mu: the smallest that these blocks allow    coherence: largest |G_ij|, i != j,
    between a block and all items    blocks: how many were looked at"""

    block: int
    blocks: int
    epsilon: float
    mu: float
    coherence: float


def leaks(rows: Float) -> Float:
    """leak_i = sum over a != i of G_ia^2 = x_i (X^T X) x_i^T - |x_i|^4, exactly, in O(m d^2). returns: (items,)"""
    norms = np.einsum("id,id->i", rows, rows)
    return np.asarray(np.einsum("id,de,ie->i", rows, rows.T @ rows, rows, optimize=True) - norms**2)


def sampled_leaks(rows: Float, stream: Stream, probes: int = 64) -> Float:
    """The same from random signs e: ((X X^T e)_i - |x_i|^2 e_i)^2 has mean leak_i; O(m d) a probe.

    Its variance is about twice the square of the leak, so the mean over items settles long before a single item does.
    """
    require(probes >= 1, "probes >= 1", probes, "Try 64.")
    norms = np.einsum("id,id->i", rows, rows)
    signs = stream.signs((len(rows), probes))
    return np.asarray(((rows @ (rows.T @ signs) - norms[:, None] * signs) ** 2).mean(axis=1))


def leak_ratio(rows: Float) -> float:
    """Mean leak over what gaussian rows of these norms would have, (m - 1)/d times the mean of |x|^2, squared."""
    square = float(np.einsum("id,id->", rows, rows)) / len(rows)
    expected = max(len(rows) - 1, 1) / rows.shape[1] * square**2
    return float(leaks(rows).mean()) / expected if expected else math.inf


def whitened(rows: Float) -> Float:
    """`X (X^T X)^{-1/2}`, scaled to unit rows: what is left of correlation when every direction weighs alike.

    A channel's weights act on `x` linearly, so what they can hold is the same for `X` and for `X A` with any invertible A.
    Directions that no row has (rank below d) stay out.
    """
    left, sizes, right = np.linalg.svd(rows, full_matrices=False)
    whole = (left[:, sizes > 1e-10 * sizes[0]]) @ right[sizes > 1e-10 * sizes[0]]
    return np.asarray(whole / np.linalg.norm(whole, axis=1, keepdims=True))


def restricted(rows: Float, sources: Int, targets: Int) -> SelfIncoherence:
    """The incoherence of given blocks, over all items outside them. sources, targets: (blocks, B)    rows: unit, (items, d)"""
    require(sources.shape == targets.shape, "sources and targets alike", (sources.shape, targets.shape), "Pair them.")
    size, d_model = sources.shape[1], rows.shape[1]
    leak = cross = coherence = 0.0
    for source, target in zip(sources, targets, strict=True):
        left, right = rows @ rows[source].T, rows @ rows[target].T
        for gram, block in ((left, source), (right, target)):
            gram[block, np.arange(size)] = 0.0
            coherence = max(coherence, float(np.abs(gram).max()))
            gram[block] = 0.0  # items inside have no place in the sums
            leak = max(leak, float(np.einsum("ia,ia->i", gram, gram).max()))
        for start in range(0, len(rows), ROWS):
            cross = max(cross, float(np.abs(left[start : start + ROWS] @ right.T).max()))
    return SelfIncoherence(size, len(sources), leak * d_model / size - 1, cross * d_model / math.sqrt(size), coherence)


def sampled(rows: Float, edges: Int, block: int, stream: Stream, draws: int = 16) -> SelfIncoherence:
    """The incoherence of random blocks of edges. edges: (m', 2)"""
    require(1 <= block <= len(edges), f"1 <= block <= {len(edges)}", block, "A block holds edges of the graph.")
    require(draws >= 1, "draws >= 1", draws, "Try 16.")
    chosen = np.stack([stream.permutation(len(edges))[:block] for _ in range(draws)])
    return restricted(rows, edges[chosen, 0], edges[chosen, 1])
