"""Scores of a channel with proven errors, on the CPU: float32 first, float64 where that is not enough (`lab.proof.Scores`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keyspan.lab.proof import Corner, Peak
from keyspan.lab.rounding import SMALLEST, TINY, UNIT, Spans, forming_error, gamma, largest, product_error
from keyspan.lab.tiles import STRIP, Projected, Tiles, top_of

Float = NDArray[np.float64]
Single = NDArray[np.float32]
HOLD_LOW = 1 << 28  # bytes of float32 keys that are held


@dataclass(frozen=True)
class Rounded:
    """One side of a tile in float32, times a power of two. rows: (heads, rows, d_key) or transposed    spans: of them"""

    rows: Single
    spans: Spans


class Scorer:
    """A channel's scores by tiles. low: try float32 first"""

    @np.errstate(over="ignore", invalid="ignore")  # a bound that overflows is none
    def __init__(self, tiles: Tiles, *, low: bool = True) -> None:
        self.tiles, self.edges, self.pairs = tiles, tiles.edges, tiles.pairs
        self.levels: tuple[str, ...] = ("fp32", "fp64") if low else ("fp64",)
        sides = (tiles.q, tiles.k)
        self._errors = {side: self._forming(side) for side in sides}
        self._spans = {side: {start: self._span(side, start) for start in side.starts()} for side in sides}
        self._powers = {side: _power(self._spans[side]) for side in sides}
        self._low: dict[tuple[Projected, int], Rounded] = {}
        self._one_key = 4 * tiles.items * tiles.heads * tiles.d_key > HOLD_LOW

    def _forming(self, side: Projected) -> Float:
        x_norm = math.sqrt(float(np.einsum("ia,ia->i", side.x, side.x).max()))
        return forming_error(x_norm, np.sqrt((side.w**2).sum((1, 2))), side.x.shape[1])

    def _span(self, side: Projected, start: int) -> Spans:
        norms = np.sqrt((side.rows(start) ** 2).sum(2).max(1))
        return Spans.of(norms, self._errors[side])

    def corners(self) -> list[Corner]:
        """First row and first column of every tile."""
        return self.tiles.corners()

    def ceiling(self, corner: Corner) -> float:
        """No score of the tile is larger."""
        return float(self._ceilings(corner).max())

    def _ceilings(self, corner: Corner) -> Float:
        return largest(*self._sides(corner))

    def _sides(self, corner: Corner) -> tuple[Spans, Spans]:
        return self._spans[self.tiles.q][corner[0]], self._spans[self.tiles.k][corner[1]]

    def error(self, corner: Corner) -> float:
        """How far a float64 score of the tile can lie from the truth."""
        q, k = self._sides(corner)
        return product_error(q, k, self.tiles.d_key, gamma(self.tiles.d_key, UNIT["fp64"]), SMALLEST["fp64"])

    def peak(self, corner: Corner, level: str, above: float = -math.inf) -> Peak:
        """The largest non-edge of the tile, computed in float32 or float64."""
        if level == "fp64":
            score, (row, column) = top_of(self.tiles.look(corner)[0])
            error = self.error(corner)
        else:
            score, error, (row, column) = self._low_peak(corner)
        return Peak(score, error, corner[0] + row, corner[1] + column)

    def on_edges(self) -> tuple[Float, Float]:
        """Every edge's score in float64, and how far it can lie from the truth. returns: (m',), (m',)"""
        count, d_key = len(self.tiles.edges), self.tiles.d_key
        scores, errors = np.empty(count), np.empty(count)
        share = gamma(d_key, UNIT["fp64"])
        for here, ends in self.tiles.pieces():
            scores[here] = np.max([np.einsum("ed,ed->e", q, k) for q, k in ends], axis=0)
            norms = [[float(np.sqrt((rows**2).sum(1).max())) for rows in end] for end in ends]
            q, k = (Spans.of(np.array(norms)[:, n], self._errors[side]) for n, side in enumerate((self.tiles.q, self.tiles.k)))
            errors[here] = product_error(q, k, d_key, share, SMALLEST["fp64"])
        return scores, errors

    # ------------------------------------------------------------------------------------------- float32

    def _low_peak(self, corner: Corner) -> tuple[float, float, tuple[int, int]]:
        """The tile in float32, scaled by powers of two so that nothing overflows; what may underflow is in the error."""
        t = self.tiles
        q, k = self._rounded(t.q, corner[0]), self._rounded(t.k, corner[1])
        best = self._product(q.rows, k.rows)[: t.sources - corner[0], : t.items - corner[1]]
        _, at = t.inside(*corner)
        best[at] = -np.inf
        score, place = top_of(best)
        error = product_error(q.spans, k.spans, t.d_key, gamma(t.d_key, UNIT["fp32"]), SMALLEST["fp32"])
        power = -self._powers[t.q] - self._powers[t.k]
        return _times(score, power), _times(error, power) + TINY, place

    def _product(self, q: Single, k: Single) -> Single:
        """max_k q_k k_k. q: (heads, rows, d_key)    k: (heads, d_key, columns)    returns: (rows, columns)"""
        if len(q) == 1:
            return np.asarray(q[0] @ k[0])
        best = np.empty((q.shape[1], k.shape[2]), dtype=np.float32)
        other = np.empty((STRIP, k.shape[2]), dtype=np.float32)
        for first in range(0, len(best), STRIP):
            strip = best[first : first + STRIP]
            np.matmul(q[0, first : first + STRIP], k[0], out=strip)
            for head in range(1, len(q)):
                np.matmul(q[head, first : first + STRIP], k[head], out=other[: len(strip)])
                np.maximum(strip, other[: len(strip)], out=strip)
        return best

    def _rounded(self, side: Projected, start: int) -> Rounded:
        """A tile of queries (the last one is kept) or of keys (all are kept, if there is room)."""
        if (side, start) not in self._low:
            if side is self.tiles.q or self._one_key:
                self._low = {key: value for key, value in self._low.items() if key[0] is not side}
            rows = np.ldexp(side.rows(start), self._powers[side])
            low = rows.astype(np.float32)
            moved = np.sqrt(((low - rows) ** 2).sum(2).max(1))
            kept = low if side is self.tiles.q else np.ascontiguousarray(low.transpose(0, 2, 1))
            self._low[side, start] = Rounded(kept, self._spans[side][start].scaled(self._powers[side]).rounded(moved))
        return self._low[side, start]


def _power(spans: dict[int, Spans]) -> int:
    """p with 2^p times every norm at most 1, where norms are finite."""
    top = max(float(np.max(s.norm)) for s in spans.values())
    return -math.frexp(top)[1] if math.isfinite(top) else 0


def _times(value: float, power: int) -> float:
    """value 2^power; infinite where that overflows."""
    try:
        return math.ldexp(value, power)
    except OverflowError:
        return math.copysign(math.inf, value)
