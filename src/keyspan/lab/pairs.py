"""A layer on pairs of tokens judged on all of them, in float64, by `attention.reference_pairs` itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from keyspan.attention.reference_pairs import pair_outputs
from keyspan.problems.pairs import PairInstance
from keyspan.verdict import Status, Verdict

TILE = 4096  # pairs at once


@np.errstate(over="ignore", invalid="ignore")  # what overflows has diverged
def judge_pairs(instance: PairInstance, answers: dict[str, Any]) -> Verdict:
    """accuracy: the share of pairs whose largest logit is that of the token that follows    loss: mean cross-entropy"""
    weights = {name: np.asarray(w, dtype=np.float64) for name, w in answers.items()}
    right, loss = 0, 0.0
    for start in range(0, instance.load, TILE):
        pairs = np.arange(start, min(start + TILE, instance.load))
        outputs, follows = pair_outputs(weights, pairs), instance.follows[pairs]
        outputs = outputs - outputs.max(axis=1, keepdims=True)
        right += int((outputs.argmax(axis=1) == follows).sum())
        loss += float((np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(len(pairs)), follows]).sum())
    if not np.isfinite(loss):
        return Verdict(status=Status.DIVERGED)
    scores = {"accuracy": right / instance.load, "loss": loss / instance.load}
    return Verdict(status=Status.MEASURED, exact=right == instance.load, scores=scores, witness={"right": right})
