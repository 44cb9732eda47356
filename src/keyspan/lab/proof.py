"""What is true of a channel's scores in exact arithmetic, not only in floating point.

Let L <= every edge's score and U >= every non-edge's, in real numbers, with weights, threshold and rows taken as the exact
binary numbers that they are. `L > tau >= U` proves the channel right on every pair, and so in every context (Adler 2025,
lemma 4.1). One pair whose score is on the wrong side by more than its error proves it wrong.

Tiles go from cheap to dear: a tile is settled once an upper bound on its non-edges shows that it cannot matter, by norms
(Cauchy and Schwarz) without any product, by a product in low precision plus the bound on its error (`lab.rounding`), and only
what is left is computed in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Corner = tuple[int, int]
PATIENCE = 8  # tiles on which a level may fail before it is asked whether it helps


class Peak(NamedTuple):
    """The largest non-edge score of a tile as computed, how far any of them can lie from the truth, and its place."""

    score: float
    error: float
    source: int
    target: int


class Scores(Protocol):
    """Where scores come from: a device, its precisions. levels: cheap ones first, the last one float64

    edges: (m', 2), sorted    pairs: how many ordered pairs there are
    peak: the highest non-edge of a tile at a level; its place need not be known unless it is higher than `above`
    ceiling: what no score of a tile exceeds    on_edges: every edge in float64, and how far that can lie from the truth
    """

    levels: tuple[str, ...]
    edges: Int
    pairs: int

    def corners(self) -> Iterable[Corner]: ...

    def ceiling(self, corner: Corner) -> float: ...

    def peak(self, corner: Corner, level: str, above: float) -> Peak: ...

    def on_edges(self) -> tuple[Float, Float]: ...


@dataclass(frozen=True, kw_only=True)
class Bracket:
    """A score between two proven bounds, and the pair that has it. score: as computed"""

    score: float
    at_least: float
    at_most: float
    source: int
    target: int

    def to_json(self) -> dict[str, Any]:
        """The bounds; null where there is none."""
        bounds = {"at_least": self.at_least, "at_most": self.at_most}
        return {name: value if math.isfinite(value) else None for name, value in bounds.items()}


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What is proven. max_nonedge: None where every pair is an edge    tiles: how many were settled how

    exact: right on every pair at its own threshold; None where rounding leaves it open    separated: some threshold is
    clear: no edge is so near the threshold that rounding leaves open on which side    on_edges: computed scores, (m',)
    """

    threshold: float
    min_edge: Bracket
    max_nonedge: Bracket | None
    exact: bool | None
    separated: bool | None
    on_edges: Float = field(repr=False, compare=False)
    clear: bool
    tiles: Mapping[str, int]

    @property
    def gap(self) -> float:
        """At least so much lies between the lowest edge and the highest non-edge; positive when separated."""
        return math.inf if self.max_nonedge is None else down(self.min_edge.at_least - self.max_nonedge.at_most)

    def to_json(self) -> dict[str, Any]:
        """What is proven, as JSON data."""
        return {
            "exact": self.exact,
            "separated": self.separated,
            "min_edge": self.min_edge.to_json(),
            "max_nonedge": self.max_nonedge.to_json() if self.max_nonedge else None,
            "gap": self.gap if math.isfinite(self.gap) else None,
            "tiles": dict(self.tiles),
        }

    @property
    def half_gap(self) -> float:
        """At least so much lies between the threshold and any score."""
        above = down(self.min_edge.at_least - self.threshold)
        return above if self.max_nonedge is None else min(above, down(self.threshold - self.max_nonedge.at_most))


def down(value: float) -> float:
    """A difference, rounded downwards."""
    return math.nextafter(value, -math.inf)


@np.errstate(over="ignore", invalid="ignore")  # a bound that overflows is none
def prove(scores: Scores, tau: float, *, locate: bool = True, give_up: bool = False) -> Proof:
    """Bounds on edges and non-edges, tile by tile.

    locate: find the largest non-edge; otherwise a tile is settled as soon as all of it is below tau and below the edges
    give_up: stop at the first non-edge that is proven to be as high as an edge
    """
    found, errors = scores.on_edges()
    low, high = np.nextafter(found - errors, -np.inf), np.nextafter(found + errors, np.inf)
    low[np.isnan(low)], high[np.isnan(high)] = -np.inf, np.inf  # a bound that overflowed proves nothing
    at = int(found.argmin())
    source, target = (int(i) for i in scores.edges[at])
    lowest, below = float(low.min()), float(high.min())
    edge = Bracket(score=float(found[at]), at_least=lowest, at_most=below, source=source, target=target)
    if len(scores.edges) == scores.pairs:
        nonedge, tiles = None, dict.fromkeys(scores.levels, 0)
    else:
        harmless = -math.inf if locate else min(tau, math.nextafter(lowest, -math.inf))
        lost = below if give_up else math.inf
        nonedge, tiles = _highest(scores, harmless, lost)
    top_low, top_high = (nonedge.at_least, nonedge.at_most) if nonedge else (-math.inf, -math.inf)
    right, wrong = lowest > tau >= top_high, below <= tau or top_low > tau
    apart, mixed = lowest > top_high, below <= top_low
    return Proof(
        threshold=tau,
        min_edge=edge,
        max_nonedge=nonedge,
        exact=True if right else False if wrong else None,
        separated=True if apart else False if mixed else None,
        on_edges=found,
        clear=bool(((low > tau) | (high <= tau)).all()),
        tiles=tiles,
    )


def _highest(scores: Scores, harmless: float, lost: float) -> tuple[Bracket, dict[str, int]]:
    """The largest non-edge: the highest pair seen, no less than any tile's lower bound, no more than any tile's upper one."""
    tiles = {"norms": 0, **dict.fromkeys(scores.levels, 0)}
    tried = dict(tiles)
    seen = Peak(-math.inf, 0.0, -1, -1)
    at_least, at_most = -math.inf, -math.inf
    for corner in scores.corners():
        settled, bound = "norms", scores.ceiling(corner)
        floor = max(harmless, at_least)
        if not bound <= floor:
            for settled in scores.levels:
                if settled != scores.levels[-1] and _vain(tried[settled], tiles[settled]):
                    continue
                tried[settled] += 1
                peak = scores.peak(corner, settled, seen.score)
                bound = _or_infinite(math.nextafter(peak.score + peak.error, math.inf))
                if bound <= floor:
                    break
            if peak.score > seen.score:
                seen = peak
            at_least = max(at_least, _or_infinite(down(peak.score - peak.error), -math.inf))
        tiles[settled] += 1
        at_most = max(at_most, bound)
        if at_least > lost:
            at_most = math.inf  # the rest was not looked at
            break
    return (
        Bracket(score=seen.score, at_least=at_least, at_most=at_most, source=seen.source, target=seen.target),
        tiles,
    )


def _vain(tried: int, settled: int) -> bool:
    """Whether a level costs more than it saves: it fails on more than half of the tiles."""
    return tried >= PATIENCE and 2 * settled < tried


def _or_infinite(bound: float, instead: float = math.inf) -> float:
    """A bound that overflowed to no number is none at all."""
    return instead if math.isnan(bound) else bound
