"""The judge: weights + problem -> Verdict, in float64, by tiles. One judge for trained and constructed members alike.

Channels are judged in `lab.channels`, and what is said of them is proved in `lab.proof`; heads of today in `lab.heads`, and
in `lab.placed` where their items move; layers on labels in `lab.labels`; decoders in `lab.sequences`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np

from keyspan.attention.shapes import Heads, Routed
from keyspan.decoders import Decoder
from keyspan.errors import BadInput, require
from keyspan.lab import one_head
from keyspan.lab.channels import judge_channel as judge_channel
from keyspan.lab.heads import judge_heads
from keyspan.lab.labels import judge_layer
from keyspan.lab.pairs import judge_pairs
from keyspan.lab.placed import judge_placed
from keyspan.lab.retention import with_retention
from keyspan.lab.routed import judge_routed
from keyspan.lab.sequences import judge_decoder as judge_decoder
from keyspan.lab.typed import judge_typed
from keyspan.problems.contexts import LabelInstance
from keyspan.problems.dichotomies import DichotomyInstance
from keyspan.problems.in_context import InContextInstance
from keyspan.problems.pairs import PairInstance
from keyspan.problems.placed import PlacedInstance
from keyspan.problems.relations import RelationInstance
from keyspan.problems.sequences import SequenceInstance
from keyspan.problems.typed import TypedChannel, TypedInstance
from keyspan.specs import Layer, Spec
from keyspan.verdict import Status, Verdict

CERTIFIED = 1e-7  # a residual below this proves that no unit vector separates with a larger margin


@singledispatch
def judge(instance: Any, answers: dict[str, Any], *, certify: bool = False, instrument: Spec | None = None) -> Verdict:
    """What these weights hold of this problem.

    certify: a failure to fit must be proven, else it is `unconverged`; of a channel, what is proven is in the witness
    instrument: what the weights are weights of,
    where they alone do not say it
    """
    raise BadInput(f"The judge must know the problem, but got {type(instance).__name__}.")


@judge.register
def _(instance: RelationInstance, answers: dict[str, Any], *, certify: bool = False, instrument: Spec | None = None) -> Verdict:
    """With `certify`, a single head that fails is told from one that could not succeed, where that can be proven."""
    if isinstance(instrument, Heads):
        return judge_heads(instance, instrument, answers)
    verdict = judge_channel(instance, answers["w_query"], answers["w_key"], float(answers["bias"]))
    if certify and verdict.exact is False and len(answers["w_query"]) == 1 and one_head.applies(instance):
        found = one_head.one_head(instance)
        if found.impossible:
            witness = {**verdict.witness, "one_head": {"gap_at_most": found.at_most, "pairs": found.pairs}}
            verdict = replace(verdict, witness=witness)
    return with_retention(verdict, instance, answers) if verdict.measured and "batch" in answers else verdict


@judge.register
def _(instance: TypedInstance, answers: dict[str, Any], *, certify: bool = False, instrument: Spec | None = None) -> Verdict:
    if not isinstance(instrument, TypedChannel):
        raise BadInput("The judge of typed relations must know which heads are whose, but got no typed channel. Pass it.")
    return judge_typed(instance, instrument, answers["w_query"], answers["w_key"], answers["gates"])


@judge.register
def _(instance: PlacedInstance, answers: dict[str, Any], *, certify: bool = False, instrument: Spec | None = None) -> Verdict:
    if not isinstance(instrument, Heads):
        raise BadInput(f"Placed relations must be held by heads, but got {instrument and instrument.family}. Say which.")
    return judge_placed(instance, instrument, answers)


@judge.register
def _(
    instance: InContextInstance, answers: dict[str, Any], *, certify: bool = False, instrument: Spec | None = None
) -> Verdict:
    if not isinstance(instrument, Routed):
        raise BadInput(f"Relations in contexts must be routed, but got {instrument and instrument.family}. Say how.")
    return judge_routed(instance, instrument, answers)


@judge.register
def _(
    instance: DichotomyInstance, answers: dict[str, Any], *, certify: bool = False, instrument: Spec | None = None
) -> Verdict:
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


@judge.register
def _(instance: SequenceInstance, answers: dict[str, Any], *, certify: bool = False, instrument: Spec | None = None) -> Verdict:
    if not isinstance(instrument, Decoder):
        raise BadInput(f"Sequences must be recited by a decoder, but got {getattr(instrument, 'family', None)}. Name it.")
    return judge_decoder(instance, answers, instrument)


@judge.register
def _(instance: LabelInstance, answers: dict[str, Any], *, certify: bool = False, instrument: Spec | None = None) -> Verdict:
    if not isinstance(instrument, Layer):
        raise BadInput(f"The judge of labels must be told the layer, but got {instrument!r:.60}. Pass `instrument`.")
    return judge_layer(instance, answers, instrument)


@judge.register
def _(instance: PairInstance, answers: dict[str, Any], *, certify: bool = False, instrument: Spec | None = None) -> Verdict:
    return judge_pairs(instance, answers)
