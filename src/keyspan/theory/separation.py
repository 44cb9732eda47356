"""Does a channel separate edges from non-edges? A cheap look, by tiles; the judge decides what is reported."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]
ROWS = 512  # sources looked at together


class Gap(NamedTuple):
    """min_edge: smallest score of an edge    max_nonedge: largest of the others looked at (-inf where there are none)"""

    min_edge: float
    max_nonedge: float

    @property
    def separates(self) -> bool:
        """Whether some threshold lies between."""
        return self.min_edge > self.max_nonedge

    @property
    def threshold(self) -> float:
        """Halfway between; where there is no non-edge, halfway from the edges to the same below zero."""
        top = self.max_nonedge if np.isfinite(self.max_nonedge) else -abs(self.min_edge) - 1.0
        return (self.min_edge + top) / 2


def gap(rows: Float, edges: Int, w_query: Float, w_key: Float, *, hasty: bool = True) -> Gap:
    """Smallest edge score and largest non-edge score of `S = max_k S^k`, without all pairs in memory.

    hasty: stop at the first tile with a non-edge as high as the lowest edge (then `max_nonedge` is of what was seen)
    rows: (items, d_model)    edges: (m', 2), sorted    w_query, w_key: (heads, d_model, d_key)
    """
    query, key = rows @ w_query, (rows @ w_key).transpose(0, 2, 1)
    source, target = edges.T
    lowest = np.full(len(edges), -np.inf)
    for q, k in zip(query, key, strict=True):
        np.maximum(lowest, np.einsum("ed,ed->e", q[source], k.T[target]), out=lowest)
    low, top = float(lowest.min()), -np.inf
    for start in range(0, len(rows), ROWS):
        tile = slice(start, start + ROWS)
        best = query[0, tile] @ key[0]
        for q, k in zip(query[1:], key[1:], strict=True):
            np.maximum(best, q[tile] @ k, out=best)
        first, last = np.searchsorted(source, [start, start + ROWS])
        best[source[first:last] - start, target[first:last]] = -np.inf
        top = max(top, float(best.max()))
        if hasty and top >= low:
            break
    return Gap(low, top)
