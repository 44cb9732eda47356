"""Claims about labels that need no training: ranks of explicit and of random layers, in float64, on small instances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from keyspan.papers.figures import Check
from keyspan.papers.mahdavi_ranks import after_attention, image_tokens, usual_rank
from keyspan.seeds import Stream
from keyspan.theory.memorization import feature_cap, general_position, theorem
from keyspan.theory.memorizing import Attention, explicit_attention, memorize, random_attention

Float = NDArray[np.float64]
SIZES = ((16, 4, 3, 4), (24, 6, 4, 3), (32, 8, 4, 8), (24, 12, 2, 12))  # d, n, H, d_h
EXACT = 1e-6  # of a label: a larger error is none that was memorised
SPREAD = 3.0


def drawn(name: str, count: int, context: int, d_model: int, shared: bool) -> tuple[Stream, Float, Float, Float]:
    """Gaussian queries and contexts, and labels. returns: a stream, (T, d), (T or 1, n, d), (T, 1)"""
    stream = Stream(f"{name} {count} {context} {d_model} {shared}", "checks")
    queries = stream.normal((count, d_model))
    return stream, queries, stream.normal((1 if shared else count, context, d_model)), stream.normal((count, 1))


def theorem_rank() -> float:
    """Least rank of the explicit layer's features over T = H (r - 1) + 1, and 0 where labels are missed by 1e-6."""
    return min(_explicit(*sizes, shared) for sizes in SIZES for shared in (True, False))


def _explicit(d_model: int, context: int, heads: int, d_head: int, shared: bool) -> float:
    count = theorem(heads, context, d_head)
    stream, queries, contexts, labels = drawn("theorem", count, context, d_model, shared)
    made = memorize(explicit_attention(stream, queries, contexts, heads, d_head), queries, contexts, labels)
    return made.rank / count if made.error <= EXACT else 0.0


def _random(shared: bool, more: int, kind: str) -> Iterator[tuple[tuple[int, int, int, int], Attention, Float, Float, Float]]:
    """Random layers with so many examples more than the cap of their rank."""
    for d_model, context, heads, d_head in SIZES:
        count = feature_cap(heads, context, d_model, kind) + more
        stream, queries, contexts, labels = drawn("random", count, context, d_model, shared)
        attention = random_attention(stream, queries, contexts, heads, max(4, d_head), SPREAD)
        yield (d_model, context, heads, d_head), attention, queries, contexts, labels


def shared_rank() -> float:
    """Largest rank of random features over H (n - 1) + 1, with one context for all."""
    ratios = []
    for (d_model, context, heads, _), attention, queries, contexts, labels in _random(True, 4, "fixed"):
        rank = memorize(attention, queries, contexts, labels, tolerance=1e-12).rank
        ratios.append(rank / feature_cap(heads, context, d_model))
    return max(ratios)


def values_beyond_cap() -> float:
    """Least error, with one context for all, of a solve for one real label more than the cap."""
    return min(memorize(a, q, c, y, tolerance=1e-12).error for _, a, q, c, y in _random(True, 1, "fixed"))


def general_rank() -> float:
    """Rank of random features over H (d - 1) + 1, where contexts differ: the one that is farthest from 1."""
    ratios = []
    for (d_model, _, heads, _), attention, queries, contexts, labels in _random(False, 4, "random"):
        rank = memorize(attention, queries, contexts, labels, tolerance=1e-12).rank
        ratios.append(rank / general_position(heads, d_model))
    return max(ratios, key=lambda ratio: abs(np.log(ratio)))


def kruskal_over_n() -> float:
    """The Kruskal rank of queries of images over n, as figure 1 counts it, the mean of two random layers."""
    ratios = []
    for layer in range(2):
        tokens = image_tokens(Stream("checks", "tokens", layer), 160)
        queries = after_attention(Stream("checks", "layer", layer), tokens).astype(np.float32)
        ratios.append(usual_rank(queries, Stream("checks", "sets", layer)) / tokens.shape[1])
    return float(np.mean(ratios))


CHECKS: Mapping[str, Check] = {
    "kruskal_over_n": kruskal_over_n,
    "theorem_rank": theorem_rank,
    "shared_rank": shared_rank,
    "values_beyond_cap": values_beyond_cap,
    "general_rank": general_rank,
}
