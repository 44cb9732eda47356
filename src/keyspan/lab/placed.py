"""Heads judged wherever items stand: every ordered pair at every offset, each with the probability that it comes with.

A score depends on positions through their offset alone, so with P positions there are 2P - 1 scores a pair, and all are
made, a tile of items at one offset at a time. With w_t the probability of offset t (an item is at offset 0 from itself):

    TP = sum_t w_t #{edges at t above tau}, FP alike, F1 = 2 TP / (TP + FP + m')

`exact` is: right at every pair and offset, so in every context, wherever its items stand. What lies beyond a window is not
seen, so an edge there is missed; `f1_seen` counts the offsets within the window alone, over their probability.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.attention import reference_heads
from keyspan.attention.shapes import Heads
from keyspan.lab.heads import HeadTiles, checked
from keyspan.lab.tiles import TILE
from keyspan.problems.placed import PlacedInstance
from keyspan.verdict import Status, Verdict

Float = NDArray[np.float64]


@dataclass(frozen=True)
class _Look:
    """One tile at one offset. corner: of the tile    others: scores of non-edges, -inf elsewhere    weight: of each of them

    own, items: scores of items with themselves, which weigh 1, and which items    edges, weights, which: scores of the edges,
    what each weighs, and which they are
    """

    offset: int
    corner: tuple[int, int]
    others: Float
    weight: float
    own: Float
    items: NDArray[np.int64]
    edges: Float
    weights: Float
    which: NDArray[np.int64]


@dataclass
class _Tally:
    """What one pass finds, in probabilities."""

    edges: list[Float] = field(default_factory=list)
    weights: list[Float] = field(default_factory=list)
    false_positives: float = 0.0
    any_false: bool = False
    low: tuple[float, int, int] = (np.inf, -1, 0)  # lowest edge: score, which, offset
    top: tuple[float, int, int, int] = (-np.inf, -1, -1, 0)  # highest non-edge: score, source, target, offset


@np.errstate(over="ignore", invalid="ignore")
def judge_placed(instance: PlacedInstance, heads: Heads, answers: Mapping[str, Any], tile: int = TILE) -> Verdict:
    """Judge heads on relations of items that stand anywhere among the instance's positions."""
    w = checked(instance.relations, heads, answers)
    tau = 0.0 - float(w["bias"])
    seen = _Seen(instance, heads, w, tile)
    if not (np.isfinite(2.0 * seen.tiles(0).largest()) and np.isfinite(tau)):
        return Verdict(status=Status.DIVERGED)
    tally = _tally(seen, tau)
    scores, weights = np.concatenate(tally.edges), np.concatenate(tally.weights)
    count, hits = float(instance.load), float(weights[scores > tau].sum())
    false, within = tally.false_positives, float(weights.sum())
    best, threshold = _best(seen, scores, weights, count)
    found = {
        "f1": 2.0 * hits / (hits + false + count),
        "f1_best": best,
        "f1_seen": 2.0 * hits / (hits + false + within) if within else 0.0,
        "threshold": tau,
        "precision": hits / (hits + false) if hits + false else 0.0,
        "recall": hits / count,
    }
    edges = instance.relations.edges
    low, which, offset = tally.low
    witness: dict[str, Any] = {
        "threshold_best": threshold,
        "min_edge": {"score": low, "source": int(edges[which, 0]), "target": int(edges[which, 1]), "offset": offset},
        "max_nonedge": None,
    }
    if np.isfinite(tally.top[0]):
        found["margin"] = low - tally.top[0]
        witness["max_nonedge"] = dict(zip(("score", "source", "target", "offset"), tally.top, strict=True))
    missed = seen.blind or bool((scores <= tau).any())
    return Verdict(status=Status.MEASURED, exact=not (missed or tally.any_false), scores=found, witness=witness)


class _Seen:
    """Tiles of scores at the offsets that can be seen. blind: some cannot"""

    def __init__(self, instance: PlacedInstance, heads: Heads, w: dict[str, Float], tile: int) -> None:
        self.instance, self.heads, self.w, self.tile = instance, heads, w, tile
        self.here = np.zeros(instance.relations.items, dtype=np.int64)
        self.keys = reference_heads.keys(heads, instance.relations.embeddings, w, self.here)
        window = heads.window or instance.positions
        self.blind = window < instance.positions
        self.offsets = [(t, weight) for t, weight in instance.offsets() if abs(t) < window]
        if heads.turned == 0:  # no score depends on an offset: all that are seen at once
            self.offsets = [(0, sum(weight for _, weight in self.offsets))]

    def tiles(self, offset: int) -> HeadTiles:
        """Scores of pairs whose asking item stands `offset` places after the other."""
        x, where = self.instance.relations.embeddings, self.here + offset
        queries = reference_heads.queries(self.heads, x, self.w, where)
        return HeadTiles(self.instance.relations, queries, self.keys, self.heads.cap, self.tile)

    def looks(self) -> Iterator[_Look]:
        """Every pair at every offset once."""
        for offset, weight in self.offsets:
            tiles = self.tiles(offset)
            for corner in tiles.corners():
                s, edges, which = tiles.look(corner)
                loops = tiles.edges[which, 0] == tiles.edges[which, 1]
                weights = np.where(loops, float(offset == 0), weight)
                near = np.arange(max(corner), min(corner[0] + s.shape[0], corner[1] + s.shape[1]))
                at = (near - corner[0], near - corner[1])
                own = s[at]
                s[at] = -np.inf
                real = (own > -np.inf) & (offset == 0)
                yield _Look(offset, corner, s, weight, own[real], near[real], edges, weights, which)


def _tally(seen: _Seen, tau: float) -> _Tally:
    """Edges' scores, what is above the threshold and should not be, the worst pairs."""
    tally = _Tally()
    for look in seen.looks():
        real = look.weights > 0
        tally.edges.append(look.edges[real])
        tally.weights.append(look.weights[real])
        if real.any():
            at = int(np.where(real, look.edges, np.inf).argmin())
            tally.low = min(tally.low, (float(look.edges[at]), int(look.which[at]), look.offset))
        above, own = int((look.others > tau).sum()), int((look.own > tau).sum())
        tally.false_positives += look.weight * above + own
        tally.any_false |= above + own > 0
        at, best = int(look.others.argmax()), float(look.others.max())
        source, target = look.corner[0] + at // look.others.shape[1], look.corner[1] + at % look.others.shape[1]
        tally.top = max(tally.top, (best, source, target, look.offset))
        if look.own.size:
            at = int(look.own.argmax())
            tally.top = max(tally.top, (float(look.own[at]), int(look.items[at]), int(look.items[at]), 0))
    return tally


def _best(seen: _Seen, scores: Float, weights: Float, count: float) -> tuple[float, float]:
    """The best F1 over all thresholds, and one that has it: just below an edge's score, as raising it further only helps."""
    order = np.argsort(scores, kind="stable")
    ranked, kept = scores[order], weights[order][::-1].cumsum()[::-1]
    reach = np.zeros(len(ranked) + 1)  # probability of non-edges that reach exactly so many edge scores
    for look in seen.looks():
        for values, weight in ((look.others[look.others >= ranked[0]], look.weight), (look.own[look.own >= ranked[0]], 1.0)):
            reach += weight * np.bincount(np.searchsorted(ranked, values, side="right"), minlength=len(reach))
    beyond = reach[::-1].cumsum()[::-1][1:]
    first = np.searchsorted(ranked, ranked, side="left")
    each = 2.0 * kept[first] / (kept[first] + beyond[first] + count)
    at = int(each.argmax())
    return float(each[at]), float(np.nextafter(ranked[at], -np.inf))
