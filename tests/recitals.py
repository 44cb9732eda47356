"""Decoders whose capacity is known: verdicts by a rule, for tests of searches, figures and fits."""

from __future__ import annotations

from keyspan.decoders import Decoder, parameters
from keyspan.problems.sequences import Sequences
from keyspan.runners.sequences import BUDGET_SCALE
from keyspan.specs import Run
from keyspan.theory import ecm
from keyspan.verdict import Status, Verdict

RHO, H = 2.1, 0.25
RIDE, SHOWN = 0.9, 0.95  # of the capacity: recited, and active, at the end of a ride
END = 1.3  # of the capacity: nothing of a larger library is recited


def capacity(run: Run) -> float:
    """rho (1 - h / H) P / e; under a budget no more than grows with the heads; less with a frozen or absent feed-forward."""
    decoder, problem = run.instrument, run.problem
    assert isinstance(decoder, Decoder) and isinstance(problem, Sequences)
    size = parameters(decoder, problem.vocabulary, problem.length)
    held = RHO * (1 - H / decoder.heads) * size / ecm.sequence_bits(problem.vocabulary, problem.length, problem.prompt)
    if run.recipe.name == "budgeted":  # type: ignore[attr-defined]
        held = held / (1 + held / BUDGET_SCALE)
        held *= (run.recipe.batch / 32) ** 0.1  # type: ignore[attr-defined]
    return held


def knows(run: Run) -> Verdict:
    """A tent: all of a library up to the capacity, less beyond it, nothing from `END` times as many on."""
    assert isinstance(run.problem, Sequences)
    held, library = capacity(run) * (1 + 0.002 * run.replicate), run.problem.sequences
    recited = library if library <= held else held * max(0.0, (END * held - library) / ((END - 1) * held))
    shown = float(library)
    if getattr(run.recipe, "show", None) is not None:
        recited, shown = RIDE * held, SHOWN * held
    scores = {
        "recited": float(round(recited)),
        "share": round(recited) / library,
        "nearly": float(recited >= 0.99 * library),
        "shown": float(round(shown)),
        "recited_shown": float(round(min(recited, shown))),
        "stored_bits": 2.0 * min(held, shown) * 10.0,
        "tokens": 0.9,
    }
    return Verdict(status=Status.MEASURED, exact=recited >= library, scores=scores, witness={"ceiling": library})
