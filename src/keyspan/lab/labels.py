"""A layer judged on all its labelled examples: accuracy, loss, and how saturated its heads are.

Answers are right when the largest output is the label's own (classes), or within the problem's tolerance (values). A head is
saturated on an example when its largest attention weight exceeds 0.99 (Mahdavi et al. 2024, figure 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.attention import reference
from keyspan.problems.contexts import LabelInstance
from keyspan.specs import Layer
from keyspan.verdict import Status, Verdict

Float = NDArray[np.float64]
SATURATED = 0.99
BINS = 20  # of the histogram of largest weights, over [0, 1]
SHOWN = 20  # examples whose heads are shown one by one
TILE_BYTES = 1 << 26


@dataclass
class _Tally:
    """right: (T,)    loss: summed    peak: (T, H), the largest weight of every head"""

    right: NDArray[np.bool_]
    loss: float
    peak: Float


@np.errstate(over="ignore", invalid="ignore")  # what overflows has diverged
def judge_layer(instance: LabelInstance, answers: dict[str, Any], layer: Layer) -> Verdict:
    """Judge a layer, in tiles of examples."""
    weights = {name: np.asarray(w, dtype=np.float64) for name, w in answers.items()}
    count = instance.load
    tally = _Tally(np.zeros(count, dtype=bool), 0.0, np.zeros((count, layer.heads)))
    width = weights["w_query"].shape[1]
    row = 8 * width * (3 * (len(weights["w_query"]) + (0 if instance.shared else instance_tokens(instance))))
    size = max(1, TILE_BYTES // row)
    for start in range(0, count, size):
        _look(instance, weights, layer, slice(start, min(start + size, count)), tally)
    if not np.isfinite(tally.loss):
        return Verdict(status=Status.DIVERGED)
    saturated = tally.peak > SATURATED
    scores = {
        "accuracy": float(tally.right.mean()),
        "loss": tally.loss / count,
        "saturated": float(saturated.mean()),
        "unsaturated_examples": float((~saturated).any(axis=1).mean()),
    }
    witness = {"right": int(tally.right.sum()), "saturation": _saturation(tally.peak, saturated)}
    return Verdict(status=Status.MEASURED, exact=bool(tally.right.all()), scores=scores, witness=witness)


def instance_tokens(instance: LabelInstance) -> int:
    """n"""
    return int(instance.context(slice(0, 1)).shape[1])


def _look(instance: LabelInstance, weights: dict[str, Float], layer: Layer, some: slice, tally: _Tally) -> None:
    """The examples of one tile."""
    queries, contexts = instance.queries[some].astype(np.float64), instance.context(some).astype(np.float64)
    if layer.embed:
        x = reference.embedded(contexts, weights, 1)
        a = reference.labels_attention(weights, queries, contexts)
    else:
        x = contexts
        a = reference.attention(queries, contexts, weights["w_query"], weights["w_key"], 1.0)
    outputs = np.einsum("thv,hvo->to", reference.head_outputs(a, x, weights["w_value"]), weights["w_out"])
    if layer.embed:
        outputs = outputs @ weights["w_label"] + weights["b_label"]
    labels = instance.labels[some]
    tally.peak[some] = a.max(axis=2)
    if instance.classes is not None:
        tally.loss += reference.cross_entropy(outputs, labels) * len(labels)
        tally.right[some] = outputs.argmax(axis=1) == labels
    else:
        values = labels.astype(np.float64)
        tally.loss += reference.squared_error(outputs, values) * len(labels)
        tally.right[some] = np.abs(outputs[:, 0] - values) <= (instance.tolerance or 0.0)


def _saturation(peak: Float, saturated: NDArray[np.bool_]) -> dict[str, Any]:
    """heads: the share of examples that saturate each head    examples: how many examples saturate 0, 1 .. H heads
    largest: histogram of all largest weights over [0, 1]    first: largest weights of the first examples"""
    return {
        "threshold": SATURATED,
        "heads": [round(float(share), 6) for share in saturated.mean(axis=0)],
        "examples": np.bincount(saturated.sum(axis=1), minlength=peak.shape[1] + 1).tolist(),
        "largest": np.histogram(peak, bins=BINS, range=(0.0, 1.0))[0].tolist(),
        "first": [[round(float(weight), 4) for weight in row] for row in peak[:SHOWN]],
    }
