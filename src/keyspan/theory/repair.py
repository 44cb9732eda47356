"""Repair: the pairs that a construction gets wrong are put right by the smallest change of its weights, in rounds.

The score of head k is linear in W_K while its queries stand: a change D of W_K moves the score of (i, j) by q_i . (x_j D).
So "these pairs shall move by r" is a linear system for D, and its solution of least norm is found by conjugate gradients:

    minimise  sum over pairs of (q_i . (x_j D) - r_ij)^2  +  rho |D|^2        (a few steps of them are enough)

In one round every head looks at its own edges, which shall score at least 1, and at the non-edges above HOLD, which
shall score at most CAP: those between are held where they are, or they would rise. An edge belongs to the head that
scores it highest at that moment. Rounds change W_K and W_Q in turns.
Nothing is proven about how many rounds it takes; what comes out is judged (docs/constructions.md has what was measured).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keyspan.theory.separation import ROWS, Gap

Float = NDArray[np.float64]
Int = NDArray[np.int64]
CAP, HOLD = 0.90, 0.88
RIDGE = 1e-2  # rho, in units of the rows' mean squared norm
ITERATIONS, TOLERANCE = 8, 1e-6  # of the conjugate gradients; |gradient|^2 relative to the first. More made it no better
RELAX = 1.4  # a correction is taken this much further, since the next round undoes a part of it
TREND = 10  # rounds over which the gap's trend is taken; where it cannot close the gap in time, it is given up
MOST_PAIRS = 16  # pairs a head looks at, in units of its d * d_k parameters: the worst ones


@np.errstate(over="ignore", invalid="ignore")  # weights that run away are left, not returned
def repaired(rows: Float, edges: Int, w_query: Float, w_key: Float, rounds: int) -> tuple[Float, Float, int]:
    """Weights with which every edge scores above every non-edge, or the best that were met on the way there.

    rows: (items, d)    edges: (m', 2), sorted    w_query, w_key: (heads, d, d_key)
    returns: w_query, w_key, and how many rounds were taken
    """
    best = -np.inf, w_query, w_key
    gaps: list[float] = []
    w_query, w_key = w_query.copy(), w_key.copy()
    for done in range(rounds + 1):
        query, key = rows @ w_query, rows @ w_key
        found, owner, above = _look(query, key, edges)
        gaps.append(found.min_edge - found.max_nonedge)
        if gaps[-1] > best[0]:
            best = gaps[-1], w_query.copy(), w_key.copy()
        if found.separates or done == rounds or not np.isfinite(gaps[-1]) or _hopeless(gaps, rounds - done):
            break
        for head, high in enumerate(above):
            own = edges[owner == head]
            wrong = _Pairs.of(own, high, query[head], key[head], MOST_PAIRS * w_query[head].size)
            if done % 2 == 0:
                w_key[head] += RELAX * wrong.correction(rows, wrong.source, wrong.target, query[head])
            else:
                w_query[head] += RELAX * wrong.correction(rows, wrong.target, wrong.source, key[head])
    return best[1], best[2], done


def _hopeless(gaps: list[float], left: int) -> bool:
    """Whether the gap, which closes more slowly the smaller it is, would not close even at its present rate."""
    if len(gaps) <= 2 * TREND:
        return False
    now, before = max(gaps[-TREND:]), max(gaps[-2 * TREND : -TREND])
    return now + (now - before) / TREND * left < 0


def _look(query: Float, key: Float, edges: Int) -> tuple[Gap, Int, list[Int]]:
    """One pass over all pairs. returns: the gap, every edge's highest head (m',), every head's non-edges above HOLD (n, 2)"""
    source, target = edges.T
    top = -np.inf
    on_edges = np.stack([np.einsum("ed,ed->e", q[source], k[target]) for q, k in zip(query, key, strict=True)])
    above = []
    for q, k in zip(query, key, strict=True):
        parts = []
        for start in range(0, len(q), ROWS):
            scores = q[start : start + ROWS] @ k.T
            first, last = np.searchsorted(source, [start, start + ROWS])
            scores[source[first:last] - start, target[first:last]] = -np.inf
            top = max(top, float(scores.max()))
            flat = np.flatnonzero(scores > HOLD)
            parts.append(np.stack([start + flat // len(k), flat % len(k)], axis=1))
        above.append(np.concatenate(parts))
    return Gap(float(on_edges.max(axis=0).min()), top), on_edges.argmax(axis=0), above


@dataclass(frozen=True)
class _Pairs:
    """What one head shall change. source, target: (pairs,)    change: by how much each score shall move, (pairs,)"""

    source: Int
    target: Int
    change: Float

    @classmethod
    def of(cls, own: Int, high: Int, query: Float, key: Float, most: int) -> _Pairs:
        """The head's own edges, and its highest non-edges, at most so many."""
        pairs = np.concatenate([own, high])
        now = np.einsum("ed,ed->e", query[pairs[:, 0]], key[pairs[:, 1]])
        edge = np.arange(len(pairs)) < len(own)
        change = np.where(edge, np.maximum(now, 1.0), np.minimum(now, CAP)) - now
        if len(high) > most:
            keep = np.sort(np.argpartition(np.where(edge, -np.inf, -now), len(own) + most)[: len(own) + most])
            pairs, change = pairs[keep], change[keep]
        return cls(pairs[:, 0], pairs[:, 1], change)

    @staticmethod
    def _by_item(item: Int) -> tuple[Int, Int, Int, Int]:
        """Pairs sorted by an item: the order, the items there are, where each begins, and which one a pair has."""
        order = np.argsort(item, kind="stable")
        found, start, place = np.unique(item[order], return_index=True, return_inverse=True)
        return order, found, start, place

    def correction(self, rows: Float, kept: Int, moved: Int, fixed: Float) -> Float:
        """D of least norm with `fixed[kept] . (rows[moved] D) = change`, nearly. fixed: (items, d_key)    D: (d, d_key)"""
        order, found, start, place = self._by_item(moved)
        x, vectors, left = rows[found], fixed[kept[order]], self.change[order].copy()
        rho = RIDGE * float(np.einsum("id,id->", rows, rows)) / len(rows)
        d = np.zeros((rows.shape[1], fixed.shape[1]))
        slope = x.T @ np.add.reduceat(left[:, None] * vectors, start, axis=0)
        step, size = slope.copy(), float((slope * slope).sum())
        first = size
        for _ in range(ITERATIONS):
            if size <= TOLERANCE * first or size == 0:
                break
            image = np.einsum("ed,ed->e", (x @ step)[place], vectors)
            length = size / float(image @ image + rho * (step * step).sum())
            d += length * step
            left -= length * image
            slope = x.T @ np.add.reduceat(left[:, None] * vectors, start, axis=0) - rho * d
            size, before = float((slope * slope).sum()), size
            step = slope + (size / before) * step
        return d
