"""The judge: weights + problem -> Verdict, in float64, by tiles. One judge for trained and constructed members alike.

A channel is judged on all ordered pairs, against its own threshold tau = -bias. With edge scores e_1 .. e_m' and
non-edge scores n:

    TP = #{e > tau}, FP = #{n > tau}, F1 = 2 TP / (TP + FP + m')
    margin = min_edge - max_nonedge           (positive: one threshold separates, in every context; Adler 2025, lemma 4.1)

The best threshold lies just below an edge score, for raising it from there to the next edge score only removes false
positives. So F1_best needs the edge scores and, per edge score, how many non-edges reach it: a histogram of m' bins.
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


@dataclass
class _Tally:
    """What is carried from tile to tile."""

    above: int = 0  # pairs above the threshold, edges among them
    top: float = -np.inf  # best non-edge
    where: tuple[int, int] = (-1, -1)


def judge_channel(instance: RelationInstance, w_query: Float, w_key: Float, bias: float, tile: int = TILE) -> Verdict:
    """Judge a key-query channel. w_query, w_key: (heads, d_model, d_key). Memory: a few tiles of tile x tile."""
    x, edges = instance.embeddings, instance.edges
    rule = "w_query and w_key are (heads, d_model, d_key) alike"
    ok = w_query.ndim == 3 and w_query.shape == w_key.shape and w_query.shape[1] == x.shape[1]
    require(ok, rule, f"{w_query.shape} and {w_key.shape} for d_model={x.shape[1]}", "Check the weights.")
    if not (np.isfinite(w_query).all() and np.isfinite(w_key).all() and np.isfinite(bias)):
        return Verdict(status=Status.DIVERGED)
    q = np.ascontiguousarray(x @ np.asarray(w_query, dtype=np.float64))
    k = np.ascontiguousarray((x @ np.asarray(w_key, dtype=np.float64)).transpose(0, 2, 1))
    on_edges = _edge_scores(q, k, edges, tile)
    if not np.isfinite(on_edges).all():
        return Verdict(status=Status.DIVERGED)
    order = np.argsort(on_edges, kind="stable")
    ranked = on_edges[order]
    reach = np.zeros(len(edges) + 1, dtype=np.int64)  # reach[r]: non-edges whose rank among the edge scores is r
    tally, tau = _Tally(), -bias
    for top in range(0, len(x), tile):
        lo, hi = np.searchsorted(edges[:, 0], [top, top + tile])
        for left in range(0, len(x), tile):
            mine = edges[lo:hi]
            mine = mine[(mine[:, 1] >= left) & (mine[:, 1] < left + tile)]
            _tile(q, k, top, left, tile, mine, ranked, reach, tally, tau)
    return _relations_verdict(edges, on_edges, order, ranked, reach, tally, tau)


def _scores(q: Float, k: Float, top: int, left: int, tile: int) -> Float:
    """Maximum over heads of one tile of scores."""
    best = q[0, top : top + tile] @ k[0, :, left : left + tile]
    for head in range(1, len(q)):
        np.maximum(best, q[head, top : top + tile] @ k[head, :, left : left + tile], out=best)
    return np.asarray(best)


def _edge_scores(q: Float, k: Float, edges: NDArray[np.int64], tile: int) -> Float:
    """Scores of the edges, computed by the same tiles as everything else, so that a score has one value.

    A product summed in another order differs in its last bit, and a non-edge that ties an edge would be misjudged.
    """
    out = np.empty(len(edges))
    for top in range(0, q.shape[1], tile):
        lo, hi = np.searchsorted(edges[:, 0], [top, top + tile])
        for left in np.unique(edges[lo:hi, 1] // tile) * tile:
            at = lo + np.flatnonzero((edges[lo:hi, 1] >= left) & (edges[lo:hi, 1] < left + tile))
            s = _scores(q, k, top, int(left), tile)
            out[at] = s[edges[at, 0] - top, edges[at, 1] - left]
    return out


def _tile(
    q: Float,
    k: Float,
    top: int,
    left: int,
    tile: int,
    mine: NDArray[np.int64],
    ranked: Float,
    reach: NDArray[np.int64],
    tally: _Tally,
    tau: float,
) -> None:
    s = _scores(q, k, top, left, tile)
    tally.above += int((s > tau).sum())
    s[mine[:, 0] - top, mine[:, 1] - left] = -np.inf  # the rest are non-edges
    at = int(s.argmax())
    best = float(s.flat[at])
    if best > tally.top:
        tally.top, tally.where = best, (top + at // s.shape[1], left + at % s.shape[1])
    if best >= ranked[0]:
        high = s[s >= ranked[0]]
        reach += np.bincount(np.searchsorted(ranked, high, side="right"), minlength=len(reach))


def _relations_verdict(
    edges: NDArray[np.int64],
    on_edges: Float,
    order: NDArray[np.int64],
    ranked: Float,
    reach: NDArray[np.int64],
    tally: _Tally,
    tau: float,
) -> Verdict:
    count = len(edges)
    true_positives = int((on_edges > tau).sum())
    false_positives = tally.above - true_positives
    f1 = 2.0 * true_positives / (tally.above + count)
    # Threshold just below ranked[r]: the edges at rank >= r and the non-edges with at least r+1 edge scores below or at them.
    first = np.searchsorted(ranked, ranked, side="left")  # equal edge scores stand or fall together
    kept = count - first
    false = reach[::-1].cumsum()[::-1][first + 1]
    each = 2.0 * kept / (kept + false + count)
    r = int(each.argmax())
    scores = {
        "f1": f1,
        "f1_best": float(each[r]),
        "threshold": tau,
        "precision": true_positives / tally.above if tally.above else 0.0,
        "recall": true_positives / count,
    }
    worst = int(order[0])
    witness: dict[str, Any] = {
        "true_positives": true_positives,
        "false_positives": false_positives,
        "false_negatives": count - true_positives,
        "threshold_best": _just_below(ranked, int(first[r]), tally.top),
        "min_edge": {"score": float(ranked[0]), "source": int(edges[worst, 0]), "target": int(edges[worst, 1])},
        "max_nonedge": None,
    }
    if np.isfinite(tally.top):
        scores["margin"] = float(ranked[0]) - tally.top
        witness["max_nonedge"] = {"score": tally.top, "source": tally.where[0], "target": tally.where[1]}
    exact = true_positives == count and false_positives == 0
    return Verdict(status=Status.MEASURED, exact=exact, scores=scores, witness=witness)


def _just_below(ranked: Float, rank: int, top: float) -> float:
    """A threshold that keeps the edges from this rank on: midway to what lies below, where that is known."""
    here = float(ranked[rank])
    below = float(ranked[rank - 1]) if rank else top
    middle = (here + below) / 2
    return middle if below < middle < here else float(np.nextafter(here, -np.inf))


# ------------------------------------------------------------------------------------------------ dichotomies


@judge.register
def _(instance: DichotomyInstance, answers: dict[str, Any], *, certify: bool = False) -> Verdict:
    """Fitted when every y_t x_t . w > 0. If not, Gordan's alternative is tried as a proof that no w is.

    With a_t = max(0, 1 - y_t x_t . w) >= 0 and r = |sum a_t y_t x_t| / sum a_t, any unit u has
    min_t y_t x_t . u <= u . (sum a_t y_t x_t) / sum a_t <= r: no margin above r exists.
    """
    signed = instance.labels[:, None] * instance.points
    w = np.asarray(answers["w"], dtype=np.float64)
    norm = float(np.linalg.norm(w))
    if not np.isfinite(norm):
        return Verdict(status=Status.DIVERGED)
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
