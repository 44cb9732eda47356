"""What a user calls: ask a question of the laboratory and get a frozen answer whose `.to_dict()` is the JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, overload

from keyspan.display import Displayed
from keyspan.errors import BadInput
from keyspan.evidence.record import head
from keyspan.lab.crossing import Crossing
from keyspan.lab.search import Answer, ArmAnswer, Probe
from keyspan.problems.contexts import Labels
from keyspan.problems.dichotomies import separable_fraction
from keyspan.problems.relations import Relations
from keyspan.problems.sequences import Sequences
from keyspan.problems.shown import Batches, Contexts
from keyspan.problems.typed import AnyRelations, TypedChannel, TypedRelations
from keyspan.runners.driver import Outcome
from keyspan.runners.lab import Lab, lab_or_default
from keyspan.runners.labels import LabelsResult, measure_labels
from keyspan.runners.questions import calibration_questions, relations_question
from keyspan.runners.sequences import SequencesResult, measure_sequences
from keyspan.specs import Channel, Question, Spec
from keyspan.theory.bounds import law, warren_budget
from keyspan.verdict import Status, Verdict

RETENTION = ("learned", "retained", "forgotten")  # of members that were shown batches


def _interval(crossing: Crossing) -> dict[str, float | int | None]:
    return {"estimate": crossing.estimate, "low": crossing.low, "high": crossing.high}


def _whole(crossing: Crossing) -> dict[str, float | int | None]:
    return {k: None if v is None else int(v) for k, v in _interval(crossing).items()}


# ------------------------------------------------------------------------------------------------- relations


@dataclass(frozen=True)
class RelationsResult(Displayed):
    """D_K* of one cell: the smallest key budget whose F1 meets the target, with its interval and every probe."""

    question: Question
    outcome: Outcome

    @property
    def answer(self) -> Answer:
        """The search's answer."""
        return self.outcome.answer

    @property
    def problem(self) -> AnyRelations:
        """The cell."""
        assert isinstance(self.question.problem, Relations | TypedRelations)
        return self.question.problem

    @property
    def best(self) -> ArmAnswer | None:
        """The number of heads that attains D_K*."""
        return None if self.answer.best is None else self.answer.arms[self.answer.best]

    @property
    def law(self) -> float:
        """m' ln m' / d"""
        return law(self.problem.edges, self.problem.d_model)

    @property
    def lower_bound(self) -> float:
        """Warren's count with the most heads tried, which is the lowest: it holds for every number of heads tried."""
        heads = max(arm.heads or 1 for arm in self.answer.arms)
        return warren_budget(self.problem.bits, self.problem.items, self.problem.d_model, heads)

    @property
    def failed(self) -> int:
        """How many members ended without a number."""
        return self.answer.failed

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan measure relations`."""
        answer, best, question = self.answer, self.best, self.question
        estimate = answer.crossing.estimate
        return head() | {
            "problem": self.problem.to_json(),
            "recipe": question.recipe.name,  # type: ignore[attr-defined]
            "shown": _shown(question.recipe),
            "sharing": getattr(question.instrument, "sharing", None),
            "arithmetic": question.arithmetic,
            "criterion": question.criterion,
            "threshold": "own" if question.score == "f1" else "best",
            "target": question.target,
            "seeds": len(question.replicates),
            "starts": question.starts,
            "key_budget": _whole(answer.crossing),
            "interval_method": answer.method,
            "heads": best.heads if best else None,
            "d_key": int(estimate) // best.heads if best and best.heads and estimate else None,
            "law": self.law,
            "ratio": estimate / self.law if estimate and self.law else None,
            "lower_bound": self.lower_bound,
            "arms": [_arm_json(arm) for arm in answer.arms],
            "non_monotone": [{"heads": h, "passes": low, "fails": high} for h, low, high in answer.non_monotone],
            "failed": answer.failed,
            "probes": [_probe_json(p, self.outcome.provenance) for p in answer.probes],
            "run_ids": sorted(p.run.run_id for p in answer.probes),
            "trained_now": len(self.outcome.trained),
        }


def _shown(recipe: Spec) -> dict[str, Any] | None:
    """What training looked at, where it was not all pairs at every step."""
    show = getattr(recipe, "show", None)
    if isinstance(show, Contexts):
        return {"contexts": show.items}
    return {"batches": show.count, "replay": show.replay} if isinstance(show, Batches) else None


def _arm_json(arm: ArmAnswer) -> dict[str, Any]:
    means = [{"key_budget": level, "score": mean} for level, mean in zip(arm.levels, arm.means, strict=True)]
    return {"heads": arm.heads, "key_budget": _whole(arm.crossing), "scores": means}


def _probe_json(probe: Probe, provenance: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    channel, verdict, run_id = probe.run.instrument, probe.verdict, probe.run.run_id
    assert isinstance(channel, Channel | TypedChannel)
    scores = verdict.scores if verdict.measured else {}
    return {
        "heads": channel.heads,
        "d_key": channel.d_key,
        "key_budget": channel.key_budget,
        "seed": probe.replicate,
        "start": getattr(probe.run.recipe, "draw", 0),
        "f1": scores.get("f1"),
        "f1_best": scores.get("f1_best"),
        "exact": verdict.exact,
        "margin": scores.get("margin"),
        "gap_at_most": (verdict.witness.get("one_head") or {}).get("gap_at_most"),
        "steps": provenance.get(run_id, {}).get("steps"),
        "status": str(verdict.status),
        "run_id": run_id,
    } | {name: scores[name] for name in RETENTION if name in scores}


def measure_relations(problem: AnyRelations, *, lab: Lab | None = None, **asked: Any) -> RelationsResult:
    """The key-budget capacity D_K* of a cell. `asked`: the keywords of `relations_question`."""
    question = relations_question(problem, **asked)
    return RelationsResult(question, lab_or_default(lab).answer([question])[0])


# ----------------------------------------------------------------------------------------------- calibration


@dataclass(frozen=True)
class CalibrateResult(Displayed):
    """The laboratory's own capacity beside the one that is known: Cover's 2d."""

    dimension: int
    question: Question
    solver: Outcome
    gradient: Outcome

    @property
    def known(self) -> float:
        """2d"""
        return 2.0 * self.dimension

    @property
    def covered(self) -> bool:
        """Whether the interval covers what is known."""
        c = self.solver.answer.crossing
        return c.low is not None and c.high is not None and c.low <= self.known <= c.high

    @property
    def gradient_shortfall(self) -> float | None:
        """The fraction of the measured capacity that the recipe `gradient` does not reach."""
        full, part = self.solver.answer.crossing.estimate, self.gradient.answer.crossing.estimate
        return None if full is None or part is None else 1.0 - part / full

    @property
    def failed(self) -> int:
        """How many members ended without a number."""
        return self.solver.answer.failed + self.gradient.answer.failed

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan calibrate`."""
        crossing = self.solver.answer.crossing
        probes = [*self.solver.answer.probes, *self.gradient.answer.probes]
        return head() | {
            "dimension": self.dimension,
            "known": self.known,
            "measured": crossing.estimate,
            "low": crossing.low,
            "high": crossing.high,
            "covered": self.covered,
            "interval_method": self.solver.answer.method,
            "recipe": "separator",
            "gradient": _interval(self.gradient.answer.crossing),
            "gradient_shortfall": self.gradient_shortfall,
            "seeds": len(self.question.replicates),
            "probes": [
                *_fractions(self.solver.answer, self.dimension, "separator"),
                *_fractions(self.gradient.answer, self.dimension, "gradient"),
            ],
            "failed": self.failed,
            "run_ids": sorted(p.run.run_id for p in probes),
            "trained_now": len(self.solver.trained) + len(self.gradient.trained),
        }


def wilson(hits: int, of: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's 95% interval of a fraction."""
    centre = (hits + z * z / 2) / (of + z * z)
    half = z * math.sqrt(hits * (of - hits) / of + z * z / 4) / (of + z * z)
    return max(0.0, centre - half), min(1.0, centre + half)


def _fractions(answer: Answer, dimension: int, recipe: str) -> list[dict[str, Any]]:
    """The fraction fitted at every T, with its interval, beside Cover's formula."""
    out = []
    for level in answer.arms[0].levels:
        here = [p.verdict for p in answer.probes if p.level == level]
        known = [v.score("fitted") for v in here if v.measured]
        hits = int(sum(known))
        low, high = wilson(hits, len(known)) if known else (None, None)
        out.append(
            {
                "recipe": recipe,
                "examples": level,
                "fitted": hits,
                "of": len(known),
                "fraction": hits / len(known) if known else None,
                "low": low,
                "high": high,
                "exact": separable_fraction(level, dimension),
                "status": _status(here),
            }
        )
    return out


def _status(verdicts: list[Verdict]) -> str:
    """`measured` if all are, else the way in which most of the others ended."""
    failures = Counter(str(v.status) for v in verdicts if not v.measured)
    return failures.most_common(1)[0][0] if failures else str(Status.MEASURED)


def calibrate(dimension: int = 16, *, lab: Lab | None = None, seeds: int = 200, seed: int = 0) -> CalibrateResult:
    """Cover's capacity, by the fleet, search, judge, store and interval that every other capacity goes through."""
    questions = calibration_questions(dimension, seeds=seeds, seed=seed)
    solver, gradient = lab_or_default(lab).answer(questions)
    return CalibrateResult(int(dimension), questions[0], solver, gradient)


# ------------------------------------------------------------------------------------------------- any problem


@overload
def measure(problem: AnyRelations, *, lab: Lab | None = None, **asked: Any) -> RelationsResult: ...
@overload
def measure(problem: Labels, *, lab: Lab | None = None, **asked: Any) -> LabelsResult: ...
@overload
def measure(problem: Sequences, *, lab: Lab | None = None, **asked: Any) -> SequencesResult: ...
def measure(problem: AnyRelations | Labels | Sequences, *, lab: Lab | None = None, **asked: Any) -> Any:
    """Measure a problem's capacity: for `Relations` and `TypedRelations`, the smallest key budget that holds the graphs; for
    `Labels`, how many examples a layer of `heads` of width `d_head` memorises; for `Sequences`, how many a decoder recites.

    lab: where records lie and what trains (default: the store of KEYSPAN_STORE, all cores)    asked, as on the command line;
    of relations: heads, key_budgets, seeds, seed, target, recipe, criterion, threshold, steps, contexts, batches, replay,
    sharing, arithmetic, starts; of labels: heads, d_head, examples, seeds, seed, target, recipe, steps, arithmetic; of
    sequences: heads, d_model, measure, regime, seeds, seed, steps, doublings, batch, arithmetic and a decoder's fields
    """
    if isinstance(problem, Relations | TypedRelations):
        return measure_relations(problem, lab=lab, **asked)
    if isinstance(problem, Labels):
        return measure_labels(problem, lab=lab, **asked)
    if isinstance(problem, Sequences):
        return measure_sequences(problem, lab=lab, **asked)
    known, got = "a Relations, Labels or Sequences problem", type(problem).__name__
    raise BadInput(f"`measure` takes {known}, but got {got}. For dichotomies use calibrate.")
