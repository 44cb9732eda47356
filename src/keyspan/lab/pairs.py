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
    """accuracy: the share of pairs whose largest logit is that of the token that follows    loss: mean cross-entropy
    accuracy_seen: the share of the samples of training, where a pair counts as often as it was drawn"""
    weights = {name: np.asarray(w, dtype=np.float64) for name, w in answers.items()}
    right, loss = np.zeros(instance.load, dtype=bool), 0.0
    for start in range(0, instance.load, TILE):
        pairs = np.arange(start, min(start + TILE, instance.load))
        outputs, follows = pair_outputs(weights, pairs), instance.follows[pairs]
        outputs = outputs - outputs.max(axis=1, keepdims=True)
        right[pairs] = outputs.argmax(axis=1) == follows
        loss += float((np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(len(pairs)), follows]).sum())
    if not np.isfinite(loss):
        return Verdict(status=Status.DIVERGED)
    seen = float(right[instance.samples].mean())
    scores = {"accuracy": float(right.mean()), "accuracy_seen": seen, "loss": loss / instance.load}
    return Verdict(status=Status.MEASURED, exact=bool(right.all()), scores=scores, witness={"right": int(right.sum())})
