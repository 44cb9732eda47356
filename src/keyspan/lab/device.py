"""Scores of a channel with proven errors, on a device of torch's: bf16 or tf32 first, then float32, float64 for the rest.

The same tiles, bounds and proofs as on the CPU (`lab.proof.Scores`). What a level rounds away is measured; what its sums may
lose is bounded. Tensor cores do not promise IEEE rounding of every sum: for bf16 and tf32 a sum of n terms is taken to lose
no more than `TENSOR` n units of float32 per unit of |q| |k|. Terms that are aligned to the largest and cut to 24 bits, four or
more at a time, lose less than half of that (Blanchard and others 2020; Fasi and others 2021), but it is an assumption on the
hardware, which the tests try. float32 and float64 rest on IEEE arithmetic alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from keyspan.attention import kernels
from keyspan.errors import require
from keyspan.lab.proof import Corner, Peak
from keyspan.lab.rounding import SMALLEST, TINY, UNIT, Spans, forming_error, gamma, largest, product_error

Float = NDArray[np.float64]
Int = NDArray[np.int64]
TENSOR = 8
SCRATCH = 1 << 28  # scores that a product without Triton makes at once
SOME = 1 << 26  # numbers gathered edge by edge at once
LEVELS = ("bf16", "tf32", "fp32", "fp64")


@dataclass(frozen=True)
class Low:
    """One side of a tile at a level, times a power of two. rows: (heads, rows, d_key)    spans: of them"""

    rows: torch.Tensor
    spans: Spans


@contextmanager
def exact_products() -> Iterator[None]:
    """No product of float32 is rounded to tf32 behind our back: where tf32 is meant, its inputs are rounded already."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class DeviceScores:
    """A channel on a device. x: (items, d_model)    w_query, w_key: (heads, d_model, d_key)    edges: (m', 2), sorted

    Any floating type: the numbers are taken as they are. levels: which, cheap ones first    tile: items along a tile's side
    fused: use the Triton program for the first level (default: where it can run)    asks: the rows that edges start from,
    if they are not x itself
    """

    def __init__(
        self,
        x: torch.Tensor,
        w_query: torch.Tensor,
        w_key: torch.Tensor,
        edges: Int,
        *,
        levels: tuple[str, ...] = ("bf16", "fp32", "fp64"),
        tile: int = 8192,
        fused: bool | None = None,
        asks: torch.Tensor | None = None,
    ) -> None:
        require(bool(levels) and levels[-1] == "fp64", "levels end with fp64", levels, "It decides what others leave open.")
        require(set(levels) <= set(LEVELS), f"levels in {'|'.join(LEVELS)}", levels, "Choose among them.")
        self.x, self.edges, self.levels, self.size = (x if asks is None else asks, x), edges, levels, tile
        self.heads, self.d_model, self.d_key = w_query.shape
        self.sources, self.device, self.pairs = len(self.x[0]), x.device, len(self.x[0]) * len(x)
        if fused is None:
            fused = kernels.available(self.device, "tf32")
        degrees = np.bincount(edges[:, 0], minlength=self.sources)
        self.fused = fused and levels[0] in ("bf16", "tf32") and _few(int(degrees.max()))
        self._targets = self._table(degrees) if self.fused else None
        self._flat = [w.double().transpose(0, 1).reshape(self.d_model, -1) for w in (w_query, w_key)]
        self._prepare([torch.linalg.vector_norm(w.double(), dim=(1, 2)).cpu().numpy() for w in (w_query, w_key)])

    # ------------------------------------------------------------------------------------------- sides

    @np.errstate(over="ignore", invalid="ignore")  # a bound that overflows is none
    def _prepare(self, frobenius: list[Float]) -> None:
        """Norms of everything, and all keys at the first level. frobenius: norms of W_Q^k and of W_K^k, (heads,) each"""
        norms = [self._longest(side) for side in (0, 1)]
        self._forming = [forming_error(norm, w, self.d_model) for norm, w in zip(norms, frobenius, strict=True)]
        bounds = [norm * float(w.max()) for norm, w in zip(norms, frobenius, strict=True)]
        self._powers = [-math.frexp(b)[1] if 0 < b < math.inf else 0 for b in bounds]
        self._spans: tuple[dict[int, Spans], dict[int, Spans]] = ({}, {})
        self._keys: dict[int, Low] = {}
        self._band: tuple[int, Low | None] = (-1, None)
        for side in (0, 1):
            for start in self._starts(side):
                rows = self._rows(side, start)
                most = torch.linalg.vector_norm(rows, dim=2).amax(1).cpu().numpy()
                self._spans[side][start] = Spans.of(most, self._forming[side])
                if side == 1 and len(self.levels) > 1:
                    self._keys[start] = self._lower(rows, side, start, self.levels[0])

    def _starts(self, side: int) -> range:
        return range(0, len(self.x[side]), self.size)

    def _longest(self, side: int) -> float:
        """The largest norm of a row."""
        tops = [torch.linalg.vector_norm(self._items(side, start), dim=1).max() for start in self._starts(side)]
        return float(torch.stack(tops).max())

    def _items(self, side: int, start: int) -> torch.Tensor:
        return self.x[side][start : start + self.size].double()

    def _rows(self, side: int, start: int) -> torch.Tensor:
        """Queries or keys of a tile in float64. returns: (heads, rows, d_key)"""
        return self._project(self._items(side, start), side)

    def _project(self, x: torch.Tensor, side: int) -> torch.Tensor:
        """x: (n, d_model)    returns: (heads, n, d_key)"""
        return (x @ self._flat[side]).view(len(x), self.heads, self.d_key).transpose(0, 1)

    def _lower(self, rows: torch.Tensor, side: int, start: int, level: str) -> Low:
        """Rounded to a level, with what that moved."""
        scaled = rows * _times(1.0, self._powers[side])
        low = _rounded(scaled, level)
        moved = torch.linalg.vector_norm(low.double() - scaled, dim=2).amax(1).cpu().numpy()
        spans = self._spans[side][start].scaled(self._powers[side]).rounded(moved)
        if level == "bf16" and self.device.type == "cuda":
            low = low.bfloat16()
        return Low(low.contiguous(), spans)

    def _table(self, degrees: Int) -> torch.Tensor:
        """Targets of every item, -1 where it has no more. returns: (sources, largest degree)"""
        table = np.full((self.sources, int(degrees.max())), -1, dtype=np.int32)
        place = np.arange(len(self.edges)) - np.repeat(np.cumsum(degrees) - degrees, degrees)
        table[self.edges[:, 0], place] = self.edges[:, 1]
        return torch.from_numpy(table).to(self.device)

    # ------------------------------------------------------------------------------------------- scores

    def corners(self) -> Iterator[Corner]:
        """First row and first column of every tile."""
        return ((top, left) for top in self._starts(0) for left in self._starts(1))

    def ceiling(self, corner: Corner) -> float:
        """No score of the tile is larger."""
        return float(largest(self._spans[0][corner[0]], self._spans[1][corner[1]]).max())

    def peak(self, corner: Corner, level: str, above: float = -math.inf) -> Peak:
        """The largest non-edge of the tile at a level. Its place may be -1 where it is no higher than `above`."""
        with exact_products():
            if level == "fp64":
                spans = (self._spans[0][corner[0]], self._spans[1][corner[1]])
                score, place = self._unfused(self._rows(0, corner[0]), self._rows(1, corner[1]), corner)
                power = 0
            else:
                q, k = self._query(corner[0], level), self._key(corner[1], level)
                spans, power = (q.spans, k.spans), -self._powers[0] - self._powers[1]
                if self.fused and level == self.levels[0]:
                    score, place = self._peak_of_blocks(q.rows, k.rows, corner, _times(above, -power))
                else:
                    score, place = self._unfused(q.rows, k.rows, corner)
        error = product_error(*spans, self.d_key, _share(level, self.d_key), SMALLEST["fp64" if level == "fp64" else "fp32"])
        return Peak(_times(score, power), _times(error, power) + TINY, *place)

    def on_edges(self) -> tuple[Float, Float]:
        """Every edge's score in float64, and how far it can lie from the truth. returns: (m',), (m',)"""
        count = len(self.edges)
        scores, errors = np.empty(count), np.empty(count)
        share = gamma(self.d_key, UNIT["fp64"])
        step = max(1, SOME // max(self.heads * self.d_key, self.d_model))
        for first in range(0, count, step):
            ends = [torch.from_numpy(np.ascontiguousarray(e)).to(self.device) for e in self.edges[first : first + step].T]
            q, k = (self._project(self.x[side][end].double(), side) for side, end in enumerate(ends))
            scores[first : first + step] = (q * k).sum(2).amax(0).cpu().numpy()
            norms = [torch.linalg.vector_norm(rows, dim=2).amax(1).cpu().numpy() for rows in (q, k)]
            spans = [Spans.of(norm, error) for norm, error in zip(norms, self._forming, strict=True)]
            errors[first : first + step] = product_error(spans[0], spans[1], self.d_key, share, SMALLEST["fp64"])
        return scores, errors

    def _query(self, top: int, level: str) -> Low:
        if level != self.levels[0]:
            return self._lower(self._rows(0, top), 0, top, level)
        if self._band[0] != top or self._band[1] is None:
            self._band = (top, self._lower(self._rows(0, top), 0, top, level))
        low = self._band[1]
        assert low is not None
        return low

    def _key(self, left: int, level: str) -> Low:
        return self._keys[left] if level == self.levels[0] else self._lower(self._rows(1, left), 1, left, level)

    def _unfused(self, q: torch.Tensor, k: torch.Tensor, corner: Corner) -> tuple[float, tuple[int, int]]:
        """Head by head, a strip of rows at a time. q: (heads, rows, d_key)    k: (heads, columns, d_key)"""
        if q.dtype == torch.bfloat16:
            q, k = q.float(), k.float()
        top, left = corner
        strip = max(1, SCRATCH // k.shape[1])
        found, place = -math.inf, (-1, -1)
        for first in range(0, q.shape[1], strip):
            best = q[0, first : first + strip] @ k[0].T
            for head in range(1, self.heads):
                torch.maximum(best, q[head, first : first + strip] @ k[head].T, out=best)
            lo, hi = np.searchsorted(self.edges[:, 0], [top + first, top + first + len(best)])
            source, target = self.edges[lo:hi].T
            inside = (target >= left) & (target < left + k.shape[1])
            at = [torch.from_numpy(a[inside]).to(self.device) for a in (source - top - first, target - left)]
            best[at[0], at[1]] = -math.inf
            row, column = divmod(int(best.argmax()), best.shape[1])
            score = float(best[row, column])
            if score > found or math.isnan(score):
                found, place = score, (top + first + row, left + column)
        return found, place

    def _peak_of_blocks(self, q: torch.Tensor, k: torch.Tensor, corner: Corner, above: float) -> tuple[float, tuple[int, int]]:
        """Through the Triton program; the pair is looked for in the best block alone, and only if it is higher than `above`."""
        from keyspan.attention.kernels.peaks import BLOCK, block_peaks

        assert self._targets is not None
        blocks = block_peaks(q, k, self._targets, *corner)
        row, column = divmod(int(blocks.argmax()), blocks.shape[1])
        score = float(blocks[row, column])
        if score <= above:
            return score, (-1, -1)
        rows, columns = slice(row * BLOCK, (row + 1) * BLOCK), slice(column * BLOCK, (column + 1) * BLOCK)
        _, place = self._unfused(q[:, rows], k[:, columns], (corner[0] + rows.start, corner[1] + columns.start))
        return score, place


def _few(degree: int) -> bool:
    """Whether the fused program takes items of so many targets."""
    from keyspan.attention.kernels.peaks import MOST_TARGETS

    return degree <= MOST_TARGETS


def _share(level: str, d_key: int) -> float:
    """gamma of a score's product at a level."""
    if level == "fp64":
        return gamma(d_key, UNIT["fp64"])
    return gamma(d_key if level == "fp32" else TENSOR * d_key, UNIT["fp32"])


def _rounded(t: torch.Tensor, level: str) -> torch.Tensor:
    """float64 to the numbers of a level, in float32."""
    single = t.float()
    if level == "bf16":
        return single.bfloat16().float()
    if level == "tf32":  # ten bits behind the leading one
        return ((single.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
    return single


def _times(value: float, power: int) -> float:
    """value 2^power; infinite where that overflows."""
    try:
        return math.ldexp(value, power)
    except OverflowError:
        return math.copysign(math.inf, value)
