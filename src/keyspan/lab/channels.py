"""A channel judged on all ordered pairs: F1 at the own and at the best threshold, margin, worst pairs.

Against its own threshold tau = -bias, with edge scores e_1 .. e_m' and non-edge scores n:

    TP = #{e > tau}, FP = #{n > tau}, F1 = 2 TP / (TP + FP + m')
    margin = min_edge - max_nonedge           (positive: one threshold separates, in every context; Adler 2025, lemma 4.1)

The best threshold lies just below an edge score, for raising it from there to the next edge score only removes false
positives. So F1_best needs, per edge score, how many non-edges reach it. One pass over the tiles counts non-edges in
coarse bins; the bins bound every candidate's F1 from both sides, and a second pass counts exactly, but only the scores
and the tiles that a candidate still in the running needs. A channel that separates needs no second pass.

Many items are tried in float32 first, with a bound on its error (`lab.proof`). Where that proves the channel right on
every pair, there is nothing left to count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.lab.proof import Proof, Scores, prove
from keyspan.lab.rounding import UNIT, gamma
from keyspan.lab.scorer import Scorer
from keyspan.lab.tiles import TILE, Tiles
from keyspan.problems.relations import RelationInstance
from keyspan.verdict import Status, Verdict

Float = NDArray[np.float64]
BINS = 2048
MANY = 4096  # items from which the proof goes first


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
    tiles = Tiles(instance, w_query, w_key, tile)
    if not (np.isfinite(2.0 * tiles.largest()) and np.isfinite(bias)):  # twice: the margin is a difference of two scores
        return Verdict(status=Status.DIVERGED)
    if instance.items >= MANY:
        proof = prove(Scorer(tiles), 0.0 - bias, give_up=True)
        if _says_all(proof):
            return _proven_verdict(proof)
    return counted_verdict(instance, tiles, bias)


@np.errstate(over="ignore", invalid="ignore")
def certify_channel(
    instance: RelationInstance, w_query: Float, w_key: Float, bias: float, tile: int = TILE, device: str = "cpu"
) -> tuple[Verdict, Proof | None]:
    """The verdict, and what is proven of it. The proof is None where scores are not finite.

    Where many items are not separated, the proof ends at a pair that shows it, and its upper bound on non-edges is infinite.
    device: cuda makes the proof's products there
    """
    tiles = Tiles(instance, w_query, w_key, tile)
    if not (np.isfinite(2.0 * tiles.largest()) and np.isfinite(bias)):
        return Verdict(status=Status.DIVERGED), None
    many = instance.items >= MANY
    scores: Scores = Scorer(tiles, low=many) if device == "cpu" else _on_device(instance, w_query, w_key, device)
    proof = prove(scores, 0.0 - bias, give_up=many)
    proven = many and _says_all(proof)
    return (_proven_verdict(proof) if proven else counted_verdict(instance, tiles, bias)), proof


def scale(instance: RelationInstance, w_query: Float, w_key: Float) -> float:
    """R^2 = max_k |W_Q^k W_K^k T|_op times the largest |x|^2: no score is larger, however the factors share their size."""
    left, right = (np.asarray(np.linalg.qr(w, mode="r")) for w in (w_query, w_key))  # |Q R (P S)^T| = |R S^T|
    operator = np.linalg.norm(left @ right.transpose(0, 2, 1), ord=2, axis=(1, 2)).max()
    x = instance.embeddings
    return float(operator * np.einsum("ia,ia->i", x, x).max())


def _on_device(instance: RelationInstance, w_query: Float, w_key: Float, device: str) -> Scores:
    import torch

    from keyspan.lab.device import DeviceScores

    x, wq, wk = (torch.from_numpy(np.array(a, dtype=np.float64)).to(device) for a in (instance.embeddings, w_query, w_key))
    return DeviceScores(x, wq, wk, instance.edges, levels=("tf32", "fp32", "fp64"))


def counted_verdict(instance: RelationInstance, tiles: Tiles, bias: float) -> Verdict:
    """Every pair in float64."""
    bins = _Bins.spanning(tiles)
    tally = _first_pass(tiles, bins, 0.0 - bias)
    ranked = np.sort(tally.on_edges)
    low, high = _in_the_running(ranked, tally, bins)
    reach = _second_pass(tiles, tally, ranked, low, high)
    return _relations_verdict(instance.edges, tally, ranked, reach, (low, high), 0.0 - bias)


@np.errstate(over="ignore", invalid="ignore")
def prove_channel(
    instance: RelationInstance, w_query: Float, w_key: Float, bias: float, tile: int = TILE, low: bool | None = None
) -> Proof:
    """What is proven of a channel's scores in exact arithmetic. low: try float32 first (default: where items are many)"""
    tiles = Tiles(instance, w_query, w_key, tile)
    scorer = Scorer(tiles, low=instance.items >= MANY if low is None else low)
    return prove(scorer, 0.0 - bias)


def _says_all(proof: Proof) -> bool:
    """Whether no pair needs counting: separated, no non-edge above the threshold, every edge clearly on one side of it."""
    top = proof.max_nonedge
    return proof.separated is True and proof.clear and (top is None or top.at_most <= proof.threshold)


def _proven_verdict(proof: Proof) -> Verdict:
    """The verdict where the proof has left nothing to count."""
    edge, top, tau = proof.min_edge, proof.max_nonedge, proof.threshold
    count = len(proof.on_edges)
    hits = int((proof.on_edges > tau).sum())
    scores = {
        "f1": 2.0 * hits / (hits + count),
        "f1_best": 1.0,
        "threshold": tau,
        "precision": 1.0 if hits else 0.0,
        "recall": hits / count,
    }
    witness: dict[str, Any] = {
        "true_positives": hits,
        "false_positives": 0,
        "false_negatives": count - hits,
        "threshold_best": _just_below(np.array([edge.score]), 0, top.score if top else -np.inf),
        "min_edge": {"score": edge.score, "source": edge.source, "target": edge.target},
        "max_nonedge": None,
    }
    if top is not None:
        scores["margin"] = edge.score - top.score
        witness["max_nonedge"] = {"score": top.score, "source": top.source, "target": top.target}
    return Verdict(status=Status.MEASURED, exact=hits == count, scores=scores, witness=witness)


@dataclass
class _Bins:
    """A monotone map of scores to 0 .. BINS + 1, fine over the range of the edge scores, open at both ends."""

    start: float
    per_unit: float

    @classmethod
    def spanning(cls, tiles: Tiles) -> _Bins:
        near = tiles.near()
        low, high = float(near.min()), float(near.max())
        low -= 1e-9 * max(abs(low), abs(high))  # these products may differ from the tiles' in their last bits,
        low -= 2.0 * gamma(tiles.d_key, UNIT["fp64"]) * tiles.largest()  # by no more than this
        return cls(low, BINS / max(high - low, 1e-9 * max(abs(low), abs(high)), 1e-100))

    def __call__(self, scores: Float) -> NDArray[np.intp]:
        place = (scores - self.start) * self.per_unit
        return np.asarray(np.clip(place, -1, BINS, out=place).astype(np.intp) + 1)


def _first_pass(tiles: Tiles, bins: _Bins, tau: float) -> _Tally:
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


def _second_pass(tiles: Tiles, tally: _Tally, ranked: Float, low: float, high: float) -> NDArray[np.int64]:
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
