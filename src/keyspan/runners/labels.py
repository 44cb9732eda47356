"""How many labelled examples a layer memorises: the question, and its answer (Mahdavi et al. 2024).

Two named criteria, both read off the same members. T: examples    accuracy: the share of them answered rightly, in the mean
over seeds

    largest   where accuracy falls to the target (0.99); with a target of 1, where half of the seeds hold every example
    yield     the largest accuracy x T among the T measured: the search goes on beyond `largest`, to three times as many
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from keyspan.display import Displayed
from keyspan.errors import BadInput, require
from keyspan.evidence.record import head
from keyspan.files.paths import shown
from keyspan.lab import recipes
from keyspan.lab.crossing import Crossing
from keyspan.lab.search import Probe
from keyspan.problems.contexts import Labels
from keyspan.runners.driver import Outcome
from keyspan.runners.lab import Lab, lab_or_default
from keyspan.runners.questions import replicates, whole, wholes
from keyspan.seeds import Stream
from keyspan.specs import ARITHMETICS, WIDEST, Arm, Layer, Question, digest
from keyspan.theory.memorization import feature_cap, theorem

RECIPES = {"fast": (recipes.fast, recipes.FAST_STOPPING), "paper": (recipes.paper, recipes.PAPER_STOPPING)}
TARGET = 0.99
STEP = 1.1  # levels of T lie a tenth apart; `largest` is on the line between two of them
MOST = 2**24
BEYOND = (1.5, 2.0, 3.0)  # multiples of `largest` that are measured for `yield`
BOTTLENECK = 0.25  # examples per trained number of a layer, roughly: where a search begins
DRAWS = 1000
Ends = tuple[float, float, float]  # low, estimate, high


def guess(problem: Labels, heads: int, d_head: int) -> float:
    """About how many examples a trained layer holds: numbers that it has for them, times what such layers were seen to hold
    of each. It sets where a search begins, and what `--dry-run` expects; no answer depends on it."""
    width = min(d_head, problem.d_model)
    own = 2 * width * problem.d_model - width * width + 2 * problem.d_model
    return max(4.0, BOTTLENECK * heads * own * min(1.0, (problem.context - 0.5) / width))


def levels_of(problem: Labels, rows: int | None = None) -> tuple[int, ...]:
    """Numbers of examples that a search may try. rows: of a file that a fixed context's queries are taken from"""
    most = MOST if rows is None else rows - problem.context
    found, level = [1], 1.0
    while found[-1] < most:
        level *= STEP
        found.append(min(most, max(found[-1] + 1, round(level))))
    return tuple(found)


def labels_question(
    problem: Labels,
    *,
    heads: int,
    d_head: int,
    examples: Sequence[int] | int | None = None,
    seeds: int = 3,
    seed: int = 0,
    target: float = TARGET,
    recipe: str = "fast",
    steps: int | None = None,
    arithmetic: str = "fp32",
    rows: int | None = None,
) -> Question:
    """How many examples a layer of `heads` heads of width `d_head` memorises.

    examples: measure just these T, search nothing    target: accuracy that counts as memorised; 1: every example
    recipe: fast or paper (docs/labels.md, "Recipes")    rows: of the tokens' file, where a fixed context limits T
    """
    heads, d_head = whole(heads, "--heads", "Try 4."), whole(d_head, "--d-head", "Try 24.")
    for name, size in (("--heads", heads), ("--d-head", d_head)):
        require(1 <= size <= WIDEST, f"`1 <= {name} <= {WIDEST}`", size, "Try 8.")
    named = isinstance(recipe, str) and recipe in RECIPES
    require(named, f"`--recipe` in {'|'.join(RECIPES)}", shown(recipe), "Choose one.")
    number = isinstance(target, Real) and not isinstance(target, bool)
    require(number and 0 < target <= 1, "`0 < --target <= 1`", shown(target), "Accuracy is a fraction; try 0.99.")
    known = isinstance(arithmetic, str) and arithmetic in ARITHMETICS
    require(known, f"`--arithmetic` in {'|'.join(ARITHMETICS)}", shown(arithmetic), "Use fp32.")
    if steps is not None:
        steps = whole(steps, "--steps", "Try 5000.")
        require(1 <= steps <= 10**8, "`1 <= --steps <= 100000000`", steps, "Try 5000.")
    make, stopping = RECIPES[recipe]
    given = _given(problem, examples)
    return Question(
        problem=problem.with_load(given[0] if given else 1),
        instrument=Layer(heads=heads, d_key=d_head),
        recipe=make(problem.task, steps),
        stopping=stopping,
        arithmetic=arithmetic,
        knob="load",
        arms=(_arm(problem, heads, d_head, given, rows),),
        replicates=replicates(seeds, seed),
        score="exact" if target == 1 else "accuracy",
        target=0.5 if target == 1 else float(target),
        criterion="mean",
        guard=0,
        search=given is None,
        beyond=BEYOND if given is None else (),
    )


def _given(problem: Labels, examples: Sequence[int] | int | None) -> list[int] | None:
    """The numbers of examples that were asked for; those of the problem, if it has any."""
    if examples is None:
        return None if problem.examples is None else [problem.examples]
    if problem.examples is not None:
        got = f"{problem.examples} and --examples"
        raise BadInput(f"The number of examples must be said once, but got {got}. Leave it out of Labels.")
    found = wholes(examples, "--examples", "Try 500, or 500,1000.")
    for count in found:
        require(1 <= count <= MOST, f"`1 <= --examples <= {MOST}`", count, "Try 500.")
    return found


def _arm(problem: Labels, heads: int, d_head: int, given: list[int] | None, rows: int | None) -> Arm:
    """The numbers of examples, and where to begin: a factor of two around the guess."""
    if given is not None:
        return Arm(heads=None, levels=tuple(given), low=given[0], high=given[-1])
    levels, middle = levels_of(problem, rows), guess(problem, heads, d_head)
    low = max((level for level in levels if 1.5 * level <= middle), default=levels[0])
    high = min((level for level in levels if level >= 1.5 * middle), default=levels[-1])
    return Arm(heads=None, levels=levels, low=low, high=high)


# ---------------------------------------------------------------------------------------------------- the answer


def accuracies(probes: Sequence[Probe]) -> dict[int, list[float]]:
    """Accuracy by T, of every measured seed; T ascend."""
    out: dict[int, list[float]] = {}
    for probe in sorted(probes, key=lambda p: (p.level, p.replicate)):
        if probe.verdict.measured:
            out.setdefault(probe.level, []).append(probe.verdict.score("accuracy"))
    return out


def yielded(question: Question, probes: Sequence[Probe]) -> Ends | None:
    """The largest accuracy x T over T, with a 95% bootstrap over the seeds of every T. None: nothing was measured"""
    known = accuracies(probes)
    if not known:
        return None
    best = max(level * float(np.mean(values)) for level, values in known.items())
    stream = Stream(digest(question.to_json(), "q"), "yield")
    rows = []
    for level, values in known.items():
        drawn = stream.integers(len(values), DRAWS * len(values)).reshape(DRAWS, -1)
        rows.append(level * np.array(values)[drawn].mean(axis=1))
    tops = np.sort(np.max(rows, axis=0))
    return min(best, float(tops[int(0.025 * DRAWS)])), best, max(best, float(tops[int(np.ceil(0.975 * DRAWS)) - 1]))


@dataclass(frozen=True)
class LabelsResult(Displayed):
    """How many examples a layer memorises, by both criteria, with every probe."""

    question: Question
    outcome: Outcome

    @property
    def problem(self) -> Labels:
        """The problem, of some number of examples."""
        assert isinstance(self.question.problem, Labels)
        return self.question.problem

    @property
    def layer(self) -> Layer:
        """The layer."""
        assert isinstance(self.question.instrument, Layer)
        return self.question.instrument

    @property
    def crossing(self) -> Crossing:
        """Where memorising ends. Where every T measured is memorised, `low` is the largest of them; the explicit layer has
        ended at the T of the theorem, which it cannot be built beyond."""
        found, levels = self.outcome.answer.crossing, self.outcome.answer.arms[0].levels
        if found.estimate is not None or not levels or not self._memorised(levels[-1]):
            return found
        last = float(levels[-1])
        ended = self.recipe == "explicit" and levels[-1] == self.theorem
        return Crossing(last, last, last) if ended else Crossing(None, last, None)

    @property
    def recipe(self) -> str:
        """The name of the recipe."""
        return str(getattr(self.question.recipe, "name", ""))

    @property
    def theorem(self) -> int:
        """H (min(n, d_h) - 1) + 1, of a bare layer with d_v >= outputs."""
        return theorem(self.layer.heads, self.problem.context, self.layer.d_key)

    @property
    def cap(self) -> int:
        """The largest rank of features."""
        kind = self.problem.contexts
        return feature_cap(self.layer.heads, self.problem.context, self.problem.d_model, kind)

    @property
    def failed(self) -> int:
        """How many members ended without a number."""
        return self.outcome.answer.failed

    def _memorised(self, level: int) -> bool:
        scores = [p.verdict.score(self.question.score) for p in self.probes(level) if p.verdict.measured]
        return bool(scores) and len(scores) == len(self.probes(level)) and float(np.mean(scores)) >= self.question.target

    def probes(self, level: int) -> list[Probe]:
        """The members of one T."""
        return [p for p in self.outcome.answer.probes if p.level == level]

    @property
    def saturation(self) -> dict[str, Any] | None:
        """Of the members at the largest T that is memorised: shares over seeds, the histogram of largest weights over all."""
        levels = [level for level in self.outcome.answer.arms[0].levels if self._memorised(level)]
        if not levels:
            return None
        return {"examples": levels[-1]} | saturation([p for p in self.probes(levels[-1]) if p.verdict.measured])

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan measure labels`."""
        question, probes, crossing = self.question, self.outcome.answer.probes, self.crossing
        best = yielded(question, probes)
        capacity: dict[str, Any] = {
            "largest": _whole(crossing.estimate),
            "yield": None if best is None else _whole(best[1]),
            "low": _whole(crossing.low),
            "high": _whole(crossing.high),
            "yield_low": None if best is None else _whole(best[0]),
            "yield_high": None if best is None else _whole(best[2]),
        }
        exact = question.score == "exact"
        about = {k: v for k, v in self.problem.to_json().items() if k != "examples"}
        return head() | {
            "problem": about,
            "heads": self.layer.heads,
            "d_head": self.layer.d_key,
            "recipe": self.recipe,
            "arithmetic": question.arithmetic,
            "target": 1.0 if exact else question.target,
            "seeds": len(question.replicates),
            "capacity": capacity,
            "interval_method": self.outcome.answer.method,
            "theorem": self.theorem,
            "cap": self.cap,
            "scores": [_score(level, values) for level, values in accuracies(probes).items()],
            "saturation": self.saturation,
            "failed": self.failed,
            "probes": [_probe(p, self.outcome.provenance) for p in probes],
            "run_ids": sorted(p.run.run_id for p in probes),
            "trained_now": len(self.outcome.trained),
        }


def saturation(probes: Sequence[Probe]) -> dict[str, Any]:
    """saturated: share of (head, example) pairs whose largest weight exceeds 0.99    unsaturated_examples: share of examples
    with a head that is not saturated    heads: examples that saturate 0, 1 .. H heads    largest: histogram of the largest
    weights over [0, 1]; both summed over seeds"""
    said: list[Mapping[str, Any]] = [p.verdict.witness["saturation"] for p in probes]
    return {
        "threshold": said[0]["threshold"],
        "saturated": float(np.mean([p.verdict.score("saturated") for p in probes])),
        "unsaturated_examples": float(np.mean([p.verdict.score("unsaturated_examples") for p in probes])),
        "heads": np.sum([s["examples"] for s in said], axis=0).tolist(),
        "largest": np.sum([s["largest"] for s in said], axis=0).tolist(),
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _score(level: int, values: list[float]) -> dict[str, Any]:
    return {"examples": level, "accuracy": float(np.mean(values)), "held": level * float(np.mean(values))}


def _probe(probe: Probe, provenance: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    scores, run_id = probe.verdict.scores if probe.verdict.measured else {}, probe.run.run_id
    told = {name: scores.get(name) for name in ("accuracy", "loss", "saturated", "unsaturated_examples")}
    about = {"steps": provenance.get(run_id, {}).get("steps"), "seed": probe.replicate, "status": str(probe.verdict.status)}
    return {"examples": probe.level} | told | {"exact": probe.verdict.exact} | about | {"run_id": run_id}


def measure_labels(problem: Labels, *, lab: Lab | None = None, **asked: Any) -> LabelsResult:
    """How many examples a layer memorises. `asked`: the keywords of `labels_question`."""
    question = labels_question(problem, **asked)
    return LabelsResult(question, lab_or_default(lab).answer([question])[0])
