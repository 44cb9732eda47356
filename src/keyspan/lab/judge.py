"""The judge: weights + problem -> Verdict, in float64, by tiles. One judge for trained and constructed members alike.

A channel is judged on all ordered pairs, against its own threshold tau = -bias. With edge scores e_1 .. e_m' and
non-edge scores n:

    TP = #{e > tau}, FP = #{n > tau}, F1 = 2 TP / (TP + FP + m')
    margin = min_edge - max_nonedge           (positive: one threshold separates, in every context; Adler 2025, lemma 4.1)

The best threshold lies just below an edge score, for raising it from there to the next edge score only removes false
positives. So F1_best needs, per edge score, how many non-edges reach it. One pass over the tiles counts non-edges in
coarse bins; the bins bound every candidate's F1 from both sides, and a second pass counts exactly, but only the scores
and the tiles that a candidate still in the running needs. A channel that separates needs no second pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput, require
from keyspan.problems.dichotomies import DichotomyInstance
from keyspan.problems.relations import RelationInstance
from keyspan.verdict import Status, Verdict

Float = NDArray[np.float64]
TILE = 1024
CERTIFIED = 1e-7  # a residual below this proves that no unit vector separates with a larger margin


@singledispatch
def judge(instance: Any, answers: dict[str, Any], *, certify: bool = False) -> Verdict:
    """What these weights hold of this problem. certify: a failure to fit must be proven, else it is `unconverged`"""
    raise BadInput(f"The judge must know the problem, but got {type(instance).__name__}.")


# ------------------------------------------------------------------------------------------------- relations


@judge.register
def _(instance: RelationInstance, answers: dict[str, Any], *, certify: bool = False) -> Verdict:
    return judge_channel(instance, answers["w_query"], answers["w_key"], float(answers["bias"]))


BLOCK = 64
EDGES = 4096  # edges whose queries and keys are looked up at once
BINS = 2048


@dataclass
class _Tiles:
    """Scores of a channel, a tile at a time. q: (heads, padded items, d_key)    k: (heads, d_key, padded items)

    Items are padded to whole blocks of a matrix product. What is left over at its rim is summed in another order, and
    two items with one vector would get two scores.
    """

    q: Float
    k: Float
    edges: NDArray[np.int64]
    items: int
    size: int

    def corners(self) -> list[tuple[int, int]]:
        """First row and first column of every tile."""
        starts = range(0, self.items, self.size)
        return [(top, left) for top in starts for left in starts]

    def look(self, corner: tuple[int, int]) -> tuple[Float, Float, NDArray[np.int64]]:
        """One tile. returns: its scores with -inf at the edges, the edges' scores, which edges they are

        Edges and non-edges come out of one product, so that a score has one value: a product summed in another order
        differs in its last bit, and a non-edge that ties an edge would be misjudged.
        """
        top, left = corner
        rows, columns = slice(top, top + self.size), slice(left, left + self.size)
        best = np.asarray(self.q[0, rows] @ self.k[0, :, columns])
        for head in range(1, len(self.q)):
            np.maximum(best, self.q[head, rows] @ self.k[head, :, columns], out=best)
        best = best[: self.items - top, : self.items - left]
        lo, hi = np.searchsorted(self.edges[:, 0], [top, top + self.size])
        target = self.edges[lo:hi, 1]
        which = lo + np.flatnonzero((target >= left) & (target < left + self.size))
        at = (self.edges[which, 0] - top, self.edges[which, 1] - left)
        found = best[at]
        best[at] = -np.inf
        return best, found, which


@dataclass
class _Tally:
    """What the first pass finds. on_edges: (m',)    bins: non-edges by bin of score    highest: best non-edge per tile"""

    on_edges: Float
    bins: NDArray[np.int64]
    highest: list[float]
    false_positives: int = 0
    top: float = -np.inf
    where: tuple[int, int] = (-1, -1)


@np.errstate(over="ignore", invalid="ignore")  # what overflows is diverged, or lies beyond the last bin
def judge_channel(instance: RelationInstance, w_query: Float, w_key: Float, bias: float, tile: int = TILE) -> Verdict:
    """Judge a key-query channel. w_query, w_key: (heads, d_model, d_key). Memory: a few tiles of tile x tile."""
    x, edges = instance.embeddings, instance.edges
    rule = "w_query and w_key are (heads, d_model, d_key) alike"
    ok = w_query.ndim == 3 and w_query.shape == w_key.shape and w_query.shape[1] == x.shape[1] and w_query.size > 0
    require(ok, rule, f"{w_query.shape} and {w_key.shape} for d_model={x.shape[1]}", "Check the weights.")
    rows = np.zeros((-(-len(x) // BLOCK) * BLOCK, x.shape[1]))
    rows[: len(x)] = x
    q = np.ascontiguousarray(rows @ np.asarray(w_query, dtype=np.float64))
    k = np.ascontiguousarray((rows @ np.asarray(w_key, dtype=np.float64)).transpose(0, 2, 1))
    largest = float(np.abs(q).max() * np.abs(k).max()) * q.shape[2]
    if not (np.isfinite(2.0 * largest) and np.isfinite(bias)):  # twice: the margin is a difference of two scores
        return Verdict(status=Status.DIVERGED)
    tiles = _Tiles(q, k, edges, len(x), -(-tile // BLOCK) * BLOCK)
    bins = _Bins.spanning(tiles)
    tally = _first_pass(tiles, bins, 0.0 - bias)
    ranked = np.sort(tally.on_edges)
    low, high = _in_the_running(ranked, tally, bins)
    return _relations_verdict(edges, tally, ranked, _second_pass(tiles, tally, ranked, low, high), (low, high), 0.0 - bias)


@dataclass
class _Bins:
    """A monotone map of scores to 0 .. BINS + 1, fine over the range of the edge scores, open at both ends."""

    start: float
    per_unit: float

    @classmethod
    def spanning(cls, tiles: _Tiles) -> _Bins:
        low, high = np.inf, -np.inf
        for start in range(0, len(tiles.edges), EDGES):  # the queries and keys of all edges might not fit any memory
            source, target = tiles.edges[start : start + EDGES].T
            near = np.full(len(source), -np.inf)
            for q, k in zip(tiles.q, tiles.k, strict=True):
                np.maximum(near, np.einsum("ed,de->e", q[source], k[:, target]), out=near)
            low, high = min(low, float(near.min())), max(high, float(near.max()))
        low -= 1e-9 * max(abs(low), abs(high))  # these products may differ from the tiles' in their last bits
        return cls(low, BINS / max(high - low, 1e-9 * max(abs(low), abs(high)), 1e-100))

    def __call__(self, scores: Float) -> NDArray[np.intp]:
        place = (scores - self.start) * self.per_unit
        return np.asarray(np.clip(place, -1, BINS, out=place).astype(np.intp) + 1)


def _first_pass(tiles: _Tiles, bins: _Bins, tau: float) -> _Tally:
    """Every pair once: edge scores, non-edges above the threshold, the best non-edge, non-edges by bin."""
    tally = _Tally(np.empty(len(tiles.edges)), np.zeros(BINS + 2, dtype=np.int64), [])
    for top, left in tiles.corners():
        s, found, which = tiles.look((top, left))
        tally.on_edges[which] = found
        at = int(s.argmax())
        best = float(s.flat[at])
        tally.highest.append(best)
        if best > tally.top:
            tally.top, tally.where = best, (top + at // s.shape[1], left + at % s.shape[1])
        if best > tau:
            tally.false_positives += int((s > tau).sum())
        if best >= bins.start:
            tally.bins += np.bincount(bins(s).reshape(-1), minlength=BINS + 2)
    return tally


def _in_the_running(ranked: Float, tally: _Tally, bins: _Bins) -> tuple[float, float]:
    """Lowest and highest edge score that may be the best threshold.

    With F non-edges in higher bins than an edge score's own, F <= FP, so 2 TP / (TP + F + m') bounds its F1 from above;
    a whole bin is a threshold itself, whose F1 the best one cannot be below.
    """
    count = len(ranked)
    own = bins(ranked.copy())
    beyond = np.concatenate([tally.bins[::-1].cumsum()[::-1][1:], [0]])  # non-edges in higher bins
    kept = count - np.searchsorted(ranked, ranked, side="left")
    most = 2.0 * kept / (kept + beyond[own] + count)
    first = np.searchsorted(own, own, side="left")  # the edges of an edge's own bin and of all higher ones
    least = 2.0 * (count - first) / ((count - first) + beyond[own] + tally.bins[own] + count)
    alive = ranked[most >= least.max()]
    return float(alive[0]), float(alive[-1])


def _second_pass(tiles: _Tiles, tally: _Tally, ranked: Float, low: float, high: float) -> NDArray[np.int64]:
    """reach[r]: non-edges, from `low` on, above exactly r edge scores or level with the last of them."""
    reach = np.zeros(len(ranked) + 1, dtype=np.int64)
    for corner, best in zip(tiles.corners(), tally.highest, strict=True):
        if best < low:
            continue
        s, _, _ = tiles.look(corner)
        above = int((s > high).sum())
        reach[-1] += above
        if above < s.size:
            near = s[(s >= low) & (s <= high)]
            reach += np.bincount(np.searchsorted(ranked, near, side="right"), minlength=len(reach))
    return reach


def _relations_verdict(
    edges: NDArray[np.int64],
    tally: _Tally,
    ranked: Float,
    reach: NDArray[np.int64],
    running: tuple[float, float],
    tau: float,
) -> Verdict:
    count = len(edges)
    hits, false = int((tally.on_edges > tau).sum()), tally.false_positives
    # Just below ranked[r]: the edges that score as much or more, and the non-edges that reach more than `first[r]` of them.
    first = np.searchsorted(ranked, ranked, side="left")  # equal edge scores stand or fall together
    kept = count - first
    each = 2.0 * kept / (kept + reach[::-1].cumsum()[::-1][first + 1] + count)
    each[(ranked < running[0]) | (ranked > running[1])] = 0.0  # out of the running, and not counted exactly
    r = int(each.argmax())
    scores = {
        "f1": 2.0 * hits / (hits + false + count),
        "f1_best": float(each[r]),
        "threshold": tau,
        "precision": hits / (hits + false) if hits + false else 0.0,
        "recall": hits / count,
    }
    worst = int(tally.on_edges.argmin())
    witness: dict[str, Any] = {
        "true_positives": hits,
        "false_positives": false,
        "false_negatives": count - hits,
        "threshold_best": _just_below(ranked, int(first[r]), tally.top),
        "min_edge": {"score": float(ranked[0]), "source": int(edges[worst, 0]), "target": int(edges[worst, 1])},
        "max_nonedge": None,
    }
    if np.isfinite(tally.top):
        scores["margin"] = float(ranked[0]) - tally.top
        witness["max_nonedge"] = {"score": tally.top, "source": tally.where[0], "target": tally.where[1]}
    return Verdict(status=Status.MEASURED, exact=hits == count and not false, scores=scores, witness=witness)


def _just_below(ranked: Float, rank: int, top: float) -> float:
    """A threshold that keeps the edges from this rank on and no other pair; midway to the non-edges if it separates."""
    here = float(ranked[rank])
    middle = (here + top) / 2
    return middle if rank == 0 and top < middle < here else float(np.nextafter(here, -np.inf))


# ------------------------------------------------------------------------------------------------ dichotomies


@judge.register
def _(instance: DichotomyInstance, answers: dict[str, Any], *, certify: bool = False) -> Verdict:
    """Fitted when every y_t x_t . w > 0. If not, Gordan's alternative is tried as a proof that no w is.

    With a_t = max(0, 1 - y_t x_t . w) >= 0 and r = |sum a_t y_t x_t| / sum a_t, any unit u has
    min_t y_t x_t . u <= u . (sum a_t y_t x_t) / sum a_t <= r: no margin above r exists.
    """
    signed = instance.labels[:, None] * instance.points
    w = np.asarray(answers["w"], dtype=np.float64)
    require(w.shape == signed.shape[1:], "w is (dimension,)", f"{w.shape}, dimension={signed.shape[1]}", "Check the weights.")
    largest = float(np.abs(w).max())
    if not largest < 1e100:  # its squares would overflow; no label needs such weights
        return Verdict(status=Status.DIVERGED)
    norm = float(np.linalg.norm(w))
    margins = signed @ w
    short = np.maximum(0.0, 1.0 - margins)
    residual = float(np.linalg.norm(short @ signed) / short.sum()) if short.any() else np.inf
    fitted = bool((margins > 0).all())
    if certify and not fitted and residual > CERTIFIED:
        return Verdict(status=Status.UNCONVERGED)
    scores = {"fitted": float(fitted), "accuracy": float((margins > 0).mean())}
    if norm > 0:
        scores["margin"] = float(margins.min()) / norm
    witness = {} if fitted else {"largest_possible_margin": residual}
    return Verdict(status=Status.MEASURED, exact=fitted, scores=scores, witness=witness)
