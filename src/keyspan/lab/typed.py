"""A typed channel judged type by type. Each type is a plain channel on rows with one more coordinate, which is 1:

    S^k_ij + g_tk = (x_i, 1) [W_Q^k 0; 0 g_tk] . (x_j, 1) [W_K^k 0; 0 1],   compared with 0

so what is said of it is said, and proven, by the same lines as of any other channel. F1, precision and recall are means over
types; the margin is the smallest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from keyspan.lab.channels import judge_channel
from keyspan.problems.relations import RelationInstance
from keyspan.problems.typed import TypedChannel, TypedInstance
from keyspan.verdict import Status, Verdict

Float = NDArray[np.float64]
MEANS = ("f1", "f1_best", "precision", "recall")


def plain(
    instance: TypedInstance, instrument: TypedChannel, w_query: Float, w_key: Float, gates: Float, which: int
) -> tuple[RelationInstance, Float, Float]:
    """One type as a plain channel with threshold 0. returns: its instance, w_query, w_key of one more dimension each"""
    own = instrument.heads_of(which, len(instance.edges))
    rows = np.concatenate([instance.embeddings, np.ones((instance.items, 1))], axis=1)
    wide = [np.pad(np.asarray(w[own], dtype=np.float64), ((0, 0), (0, 1), (0, 1))) for w in (w_query, w_key)]
    wide[0][:, -1, -1], wide[1][:, -1, -1] = gates[which, own], 1.0
    return RelationInstance(spec=None, edges=instance.edges[which], embeddings=rows), wide[0], wide[1]


def judge_typed(instance: TypedInstance, instrument: TypedChannel, w_query: Float, w_key: Float, gates: Float) -> Verdict:
    """Judge a typed channel. w_query, w_key: (heads, d_model, d_key)    gates: (types, heads)"""
    each = []
    for t in range(len(instance.edges)):
        alone, query, key = plain(instance, instrument, w_query, w_key, gates, t)
        each.append(judge_channel(alone, query, key, 0.0))
    if not all(v.measured for v in each):
        return Verdict(status=Status.DIVERGED)
    scores = {name: float(np.mean([v.scores[name] for v in each])) for name in MEANS}
    if all("margin" in v.scores for v in each):
        scores["margin"] = min(v.scores["margin"] for v in each)
    witness = {"types": [{"exact": bool(v.exact), "f1": v.scores["f1"], "f1_best": v.scores["f1_best"]} for v in each]}
    return Verdict(status=Status.MEASURED, exact=all(bool(v.exact) for v in each), scores=scores, witness=witness)
