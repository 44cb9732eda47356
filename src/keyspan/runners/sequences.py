"""How many sequences a decoder recites: the questions of each measure and regime, and the answer (Haermae et al. 2024).

ladder: libraries of several sizes, each trained for itself; the top of the tent is the capacity (MAC), the largest library
recited whole is the MLS. ride: one training whose library grows. literal: one library far beyond capacity, as the paper's
words have it. saturated: as many steps as it takes, so that twice as many would hold no more; budgeted: one training budget
for all widths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from keyspan.decoders import Decoder, parameters
from keyspan.display import Displayed
from keyspan.errors import require
from keyspan.evidence.record import head
from keyspan.evidence.sequence_cells import SequenceCell, reading
from keyspan.files.paths import shown
from keyspan.lab import recipes
from keyspan.lab.recipes import Recipe
from keyspan.lab.search import Answer, Probe
from keyspan.problems import ContentSource, NoContents
from keyspan.problems.sequences import MOST, SequenceInstance, Sequences
from keyspan.problems.sources import FREE, available
from keyspan.runners.driver import Outcome
from keyspan.runners.lab import Lab, lab_or_default
from keyspan.runners.questions import replicates, whole
from keyspan.specs import ARITHMETICS, Arm, Question
from keyspan.theory import ecm

MEASURES = ("ride", "ladder", "literal")
REGIMES = ("saturated", "budgeted")
USUAL = {"saturated": "ride", "budgeted": "ladder"}  # a ride needs time to grow, which a small budget does not give
STEPS = {"saturated": 4000, "budgeted": 400}
FAR = 3.0  # libraries beyond capacity, as multiples of the scale
RUNG = 1.04  # between the sizes of neighbouring rungs
BRACKET = {"saturated": (0.5, 1.2), "budgeted": (0.35, 1.0)}  # of the expected peak's place, where a ladder begins
BUDGET_SCALE = 600.0  # sequences that some 13,000 shown ones are worth: where a budgeted ladder begins, no more
SAMPLE = 256  # sequences that the entropy of a source is read off


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One cell: what is recited by what, how it is measured, and the questions that this takes."""

    problem: Sequences
    decoder: Decoder
    measure: str
    regime: str
    steps: int
    bits: float
    questions: tuple[Question, ...]

    @property
    def scale(self) -> float:
        """About as many sequences as could be held."""
        return ecm.scale(self.decoder, self.problem.vocabulary, self.problem.length, self.bits)


def bits_per_sequence(problem: Sequences, contents: ContentSource) -> float:
    """Entropy of a sequence given its prompt, over a small library of the source."""
    if problem.source.name in FREE:
        return _own_bits(replace(problem, library=0))
    return _bits(problem, contents)


@lru_cache(maxsize=256)
def _own_bits(problem: Sequences) -> float:
    """Of a source that needs no file: asked for again and again, for every decoder of a grid."""
    return _bits(problem, NoContents())


def _bits(problem: Sequences, contents: ContentSource) -> float:
    most = available(problem.source, problem.vocabulary, problem.prompt, contents)
    some = problem.with_load(min(SAMPLE, most or SAMPLE))
    instance = some.instance("entropy", contents)
    return max(instance.bits / instance.load, 1e-6)


def ask_sequences(
    problem: Sequences,
    *,
    heads: int = 0,
    d_model: int = 0,
    decoder: Decoder | None = None,
    measure: str | None = None,
    regime: str = "saturated",
    seeds: int = 3,
    seed: int = 0,
    steps: int | None = None,
    batch: int | None = None,
    recipe: Recipe | None = None,
    twice: bool = True,
    arithmetic: str = "fp32",
    contents: ContentSource | None = None,
    **architecture: Any,
) -> Asked:
    """The questions of one cell.

    heads, d_model, architecture: the fields of a `Decoder`, unless one is given    measure: ride, ladder or literal
    (default: ride where saturated, ladder where budgeted)    steps: of the recipe; where saturated also twice as many, unless
    `twice` is false    batch: sequences a step    recipe: another one, with its own steps (studies)
    contents: of files
    """
    contents = contents or NoContents()
    if decoder is None:
        decoder = Decoder(
            heads=whole(heads, "--heads", "Try 2."), d_model=whole(d_model, "--d-model", "Try 16."), **architecture
        )
    _one_of(regime, REGIMES, "--regime")
    measure = USUAL[regime] if measure is None else measure
    _one_of(measure, MEASURES, "--measure")
    _one_of(arithmetic, ARITHMETICS, "--arithmetic")
    steps = STEPS[regime] if steps is None else whole(steps, "--steps", "Try 4000.")
    require(8 <= steps <= 10**7, "`8 <= --steps <= 10000000`", steps, "Try 4000.")
    if batch is not None:
        batch = whole(batch, "--batch", "Try 32.")
        require(1 <= batch <= 2**24, "`1 <= --batch <= 16777216`", batch, "Try 32.")
    bits = bits_per_sequence(problem, contents)
    plan = _Plan(problem, decoder, measure, regime, bits, batch, arithmetic, replicates(seeds, seed), contents)
    takes = (steps, 2 * steps) if regime == "saturated" and twice else (steps,)
    questions = tuple(plan.question(recipe or plan.recipe(n)) for n in takes)
    return Asked(problem=problem, decoder=decoder, measure=measure, regime=regime, steps=steps, bits=bits, questions=questions)


@dataclass(frozen=True)
class _Plan:
    """What the questions of a cell have in common."""

    problem: Sequences
    decoder: Decoder
    measure: str
    regime: str
    bits: float
    batch: int | None
    arithmetic: str
    seeds: tuple[int, ...]
    contents: ContentSource

    @property
    def scale(self) -> float:
        return max(4.0, ecm.scale(self.decoder, self.problem.vocabulary, self.problem.length, self.bits))

    @property
    def most(self) -> int:
        """The largest library there can be."""
        held = available(self.problem.source, self.problem.vocabulary, self.problem.prompt, self.contents)
        return min(MOST, held if held is not None else MOST, self.problem.library or MOST)

    def recipe(self, steps: int) -> Recipe:
        if self.regime == "budgeted" and self.measure != "ride":
            return recipes.budgeted(steps, batch=self.batch or 32)
        made = recipes.saturated(round(self.scale), steps, ride=self.measure == "ride", batch=self._batch())
        return made if self.regime == "saturated" else replace(made, name="budgeted")

    def _batch(self) -> int | None:
        return self.batch or (32 if self.regime == "budgeted" else None)

    def question(self, recipe: Recipe) -> Question:
        arm = self._ladder() if self.measure == "ladder" else self._single()
        return Question(
            problem=self.problem,
            instrument=self.decoder,
            recipe=recipe,
            stopping=recipes.recital_stopping(recipe.steps),
            arithmetic=self.arithmetic,
            knob="load",
            arms=(arm,),
            replicates=self.seeds,
            score="recited",
            target=1.0,
            search=self.measure == "ladder",
            goal="peak",
        )

    def _single(self) -> Arm:
        size = self.problem.library or min(self.most, max(64, round(FAR * self.scale)))
        return Arm(heads=None, levels=(size,), low=size, high=size)

    def _ladder(self) -> Arm:
        """Sizes in even ratios, and a bracket about where the peak is expected."""
        top = min(self.most, max(64, round(FAR * self.scale)))
        count = math.floor(math.log(top) / math.log(RUNG))
        levels = tuple(sorted({round(top / RUNG**n) for n in range(count + 1)} | {top}))
        place = self.scale if self.regime == "saturated" else self.scale / (1.0 + self.scale / BUDGET_SCALE)
        low, high = (min(levels, key=lambda n: abs(n - share * place)) for share in BRACKET[self.regime])
        return Arm(heads=None, levels=levels, low=low, high=max(low, high))


def _one_of(value: object, names: Sequence[str], flag: str) -> None:
    require(isinstance(value, str) and value in names, f"`{flag}` in {'|'.join(names)}", shown(value), "Choose one.")


# ---------------------------------------------------------------------------------------------------- the answer


def read_cell(questions: Sequence[Question], answers: Sequence[Answer]) -> SequenceCell:
    """A cell from its questions and answers alone, as a sweep has them."""
    problem = questions[0].problem
    assert isinstance(problem, Sequences)
    bits = bits_per_sequence(problem, NoContents()) if problem.source.name in FREE else math.nan
    measure = "ladder" if questions[0].search else "ride" if getattr(questions[0].recipe, "show", None) else "literal"
    return reading(questions, answers, bits, measure)


@dataclass(frozen=True)
class SequencesResult(Displayed):
    """The capacity of one cell, with everything it rests on. outcomes: of the questions, in order"""

    asked: Asked
    outcomes: tuple[Outcome, ...]
    instances: tuple[SequenceInstance, ...]

    @property
    def cell(self) -> SequenceCell:
        """The capacity, flat."""
        return reading(self.asked.questions, [o.answer for o in self.outcomes], self.asked.bits, self.asked.measure)

    @property
    def failed(self) -> int:
        """How many members ended without a number."""
        return sum(o.answer.failed for o in self.outcomes)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan measure sequences`."""
        asked, cell = self.asked, self.cell
        last = asked.questions[-1]
        ceilings = [i.ceiling for i in self.instances]
        ceiling = float(np.mean(ceilings))
        held = cell.capacity or 0.0
        whole = ceiling < cell.library or cell.library == last.arms[0].levels[-1]  # else a larger library was there to be tried
        limited = "data" if whole and held >= CONVERGED_SHARE * ceiling else None
        probes = [_probe(p, o) for o in self.outcomes for p in o.answer.probes]
        return head() | {
            "problem": asked.problem.to_json(),
            "instrument": asked.decoder.to_json(),
            "measure": asked.measure,
            "regime": asked.regime,
            "recipe": last.recipe.to_json(),
            "arithmetic": last.arithmetic,
            "seeds": len(last.replicates),
            "status": cell.status,
            "moved": cell.moved,
            "steps": cell.steps,
            "capacity": {"mac": cell.capacity, "mls": cell.mls, "low": cell.low, "high": cell.high},
            "nearly": cell.nearly,
            "library": cell.library,
            "interval_method": cell.interval_method,
            "data_ceiling": ceiling,
            "limited_by": limited,
            "entropy": {"bits_per_sequence": asked.bits, "kind": self.instances[0].kind},
            "parameters": parameters(asked.decoder, asked.problem.vocabulary, asked.problem.length),
            "bits_per_parameter": cell.stored_per_parameter,
            "recited_bits_per_parameter": cell.recited_per_parameter,
            "failed": self.failed,
            "probes": probes,
            "run_ids": sorted({p["run_id"] for p in probes}),
            "trained_now": sum(len(o.trained) for o in self.outcomes),
        }


CONVERGED_SHARE = 0.99  # of the data ceiling: from there on it is the data that ends, not the decoder


def _probe(probe: Probe, outcome: Outcome) -> dict[str, Any]:
    verdict, run_id = probe.verdict, probe.run.run_id
    scores = verdict.scores if verdict.measured else {}
    names = ("recited", "shown", "recited_shown", "stored_bits", "tokens")
    return {
        "library": probe.level,
        "seed": probe.replicate,
        **{name: scores.get(name) for name in names},
        "exact": verdict.exact,
        "data_ceiling": verdict.witness.get("ceiling") if verdict.measured else None,
        "steps": outcome.provenance.get(run_id, {}).get("steps"),
        "status": str(verdict.status),
        "run_id": run_id,
    }


def instances_of(asked: Asked, level: int, contents: ContentSource) -> tuple[SequenceInstance, ...]:
    """The libraries that a cell's seeds recite, at one size."""
    question = asked.questions[-1]
    runs = question.runs(question.arms[0], level)
    return tuple(run.problem.instance(run.problem_id, contents) for run in runs)  # type: ignore[attr-defined]


def measure_sequences(problem: Sequences, *, lab: Lab | None = None, doublings: int = 1, **asked: Any) -> SequencesResult:
    """The capacity of a decoder. asked: the keywords of `ask_sequences`    doublings: of the steps, at most, where saturated:
    one shows whether twice the steps hold more; another is tried where they do"""
    where = lab_or_default(lab)
    contents = where.contents
    first = ask_sequences(problem, contents=contents, **asked)
    return answered(first, where, doublings, asked)


def answered(first: Asked, lab: Lab, doublings: int, asked: dict[str, Any]) -> SequencesResult:
    """Answer a cell's questions, with twice the steps again while that moves the capacity."""
    questions, outcomes = list(first.questions), lab.answer(list(first.questions))
    cell = first
    for more in range(2, doublings + 1):
        done = reading(questions, [o.answer for o in outcomes], first.bits, first.measure)
        if first.regime != "saturated" or done.status != "unconverged":
            break
        further = ask_sequences(
            first.problem, contents=lab.contents, **asked | {"steps": first.steps * 2**more, "twice": False}
        )
        questions += further.questions
        outcomes += lab.answer(list(further.questions))
        cell = replace(first, questions=tuple(questions))
    level = reading(questions, [o.answer for o in outcomes], first.bits, first.measure).library
    return SequencesResult(cell, tuple(outcomes), instances_of(cell, level, lab.contents))
