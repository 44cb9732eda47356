"""What a channel kept of batches of rows that it learned one after another (continual learning), in float64.

With the weights at the end of every phase, `R[p, b]` is the F1 on the rows of batch b after phase p, at the threshold of
then. What was learned is on the diagonal, what is left in the last row:

    learned = mean_b R[b, b]        retained = mean_b R[B, b]        forgotten = mean_{b < B} (R[b, b] - R[B, b])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.lab.tiles import Tiles
from keyspan.problems.relations import RelationInstance
from keyspan.verdict import Verdict

Float = NDArray[np.float64]


def with_retention(verdict: Verdict, instance: RelationInstance, answers: Mapping[str, Any]) -> Verdict:
    """A verdict on the last weights, and on those at the end of every phase. batch: (items,), of every row"""
    batch = np.asarray(answers["batch"], dtype=np.int64)
    ends = zip(answers["after_w_query"], answers["after_w_key"], answers["after_bias"], strict=True)
    matrix = np.stack([f1_by_batch(instance, q, k, float(bias), batch) for q, k, bias in ends])
    learned, last = np.diagonal(matrix), matrix[-1]
    scores = {
        "learned": float(learned.mean()),
        "retained": float(last.mean()),
        "forgotten": float((learned - last)[:-1].mean()),
    }
    witness = {"after": matrix.tolist()}
    return replace(verdict, scores={**verdict.scores, **scores}, witness={**verdict.witness, **witness})


def f1_by_batch(instance: RelationInstance, w_query: Float, w_key: Float, bias: float, batch: NDArray[np.int64]) -> Float:
    """`2 TP / (TP + FP + m'_b)` of the rows of every batch; 1 where there is no edge and none is claimed. returns: (B,)"""
    tiles = Tiles(instance, w_query, w_key)
    tau, items = 0.0 - bias, instance.items
    hits, claims = np.zeros(items), np.zeros(items)
    for corner in tiles.corners():
        scores, on_edges, which = tiles.look(corner)
        claims[corner[0] : corner[0] + len(scores)] += (scores > tau).sum(axis=1)
        np.add.at(hits, instance.edges[which[on_edges > tau], 0], 1.0)
    count = int(batch.max()) + 1
    tp, fp = (np.bincount(batch, weights=part, minlength=count) for part in (hits, claims))
    edges = np.bincount(batch[instance.edges[:, 0]], minlength=count)
    whole = tp + fp + edges
    return np.asarray(np.divide(2.0 * tp, whole, out=np.ones(count), where=whole > 0))
