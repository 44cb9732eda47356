"""Mahdavi, Liao and Thrampoulidis 2024, the memorisation capacity of multi-head attention: the sweep behind every figure.

A line is a sweep over heads H, tokens of a context n, or the heads' width d_h, everything else the same. Where a line lists
numbers of examples T, those are measured, as the official code does it; where it lists none, T is searched.

smoke: does everything work? two seeds of small layers    short: d = 24, T searched by the recipe `fast`, within an hour of two
cores    paper: the grid of the official code, 342 runs of its recipe with one seed, for a GPU (`--seed N` for the next one)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from keyspan.papers import mahdavi_measured, mahdavi_pairs, mahdavi_ranks, mahdavi_statistics
from keyspan.papers.figures import TIERS, Figure, Found, Paper
from keyspan.papers.mahdavi_checks import CHECKS
from keyspan.problems.contexts import Labels
from keyspan.runners.driver import Outcome
from keyspan.runners.labels import labels_question
from keyspan.specs import Question

PAPER = "mahdavi"
SEEDS = {"smoke": 2, "short": 3, "paper": 1}
SIZES = (1, 5, 10, 20, 30, 40, 50, 60)  # of H and of n in the official code
WIDTHS = (*range(10, 61, 5), 64)
UNHURRIED = 300_000  # steps of the official code where d_h is varied, and where saturation is looked at
PARITY = 1001  # steps of a run of the official code whose numbers are known
SHORT_D, SMOKE_D, PAPER_D = 24, 8, 64


@dataclass(frozen=True, kw_only=True)
class Line:
    """One sweep. axis: heads, context or width    values: of it    examples: T measured; None: searched

    d_head: None for as wide as the tokens    steps: None for those of the recipe
    """

    axis: str
    values: tuple[int, ...]
    contexts: str
    task: str
    heads: int
    context: int
    d_model: int
    d_head: int | None = None
    examples: tuple[int, ...] | None = None
    recipe: str = "fast"
    steps: int | None = None

    def sizes(self, value: int) -> tuple[int, int, int]:
        """H, n and d_h at a value of the axis."""
        found = {"heads": self.heads, "context": self.context, "width": self.d_head or self.d_model} | {self.axis: value}
        return found["heads"], found["context"], found["width"]

    def question(self, value: int, seeds: int, seed: int) -> Question:
        """What is asked at a value of the axis."""
        heads, context, width = self.sizes(value)
        problem = Labels(context=context, d_model=self.d_model, contexts=self.contexts, task=self.task)
        asked: dict[str, Any] = {"examples": self.examples, "seeds": seeds, "seed": seed, "steps": self.steps}
        return labels_question(problem, heads=heads, d_head=width, recipe=self.recipe, **asked)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The lines of a figure."""

    lines: tuple[Line, ...]
    seeds: int


@dataclass(frozen=True, kw_only=True)
class Case:
    """A layer whose heads are looked at. steps: of the paper's recipe, all of which are taken"""

    heads: int
    examples: int
    context: int
    d_model: int
    contexts: str
    steps: int


@dataclass(frozen=True, kw_only=True)
class Cases:
    """The layers of a figure. whole: no member leaves early"""

    cases: tuple[Case, ...]
    seeds: int
    whole: bool


def _line(tier: str, axis: str, contexts: str, task: str) -> Line:
    """A line of a tier. Values of T at the tier `paper` are the official code's."""
    if tier == "paper":
        return _official(axis, contexts, task)
    small = tier == "smoke"
    values = {
        "heads": (1, 2) if small else (1, 2, 4, 8),
        "context": (2, 4) if small else (2, 4, 8, 16),
        "width": (1, 4) if small else (2, 4, 8, 16, 24),
    }[axis]
    return Line(
        axis=axis,
        values=values,
        contexts=contexts,
        task=task,
        heads=2 if small else 4,
        context=4 if small else 8,
        d_model=SMOKE_D if small else SHORT_D,
        examples=(8, 32) if small else None,
        steps=300 if small else None,
    )


def _official(axis: str, contexts: str, task: str) -> Line:
    counts = {
        ("heads", "random", "classes"): range(30_000, 130_001, 20_000),
        ("heads", "fixed", "classes"): range(10_000, 40_001, 10_000),
        ("heads", "random", "values"): range(10_000, 90_001, 20_000),
        ("heads", "fixed", "values"): range(10_000, 30_001, 5_000),
        ("context", "random", "classes"): range(20_000, 60_001, 10_000),
        ("context", "fixed", "classes"): range(6_000, 18_001, 4_000),
        ("context", "random", "values"): range(10_000, 90_001, 20_000),
        ("context", "fixed", "values"): range(10_000, 25_001, 5_000),
        ("width", "fixed", "classes"): range(10_000, 20_001, 5_000),
    }[axis, contexts, task]
    return Line(
        axis=axis,
        values=WIDTHS if axis == "width" else SIZES,
        contexts=contexts,
        task=task,
        heads=30 if axis == "width" else 20,
        context=32,
        d_model=PAPER_D,
        examples=tuple(counts),
        recipe="paper",
        steps=UNHURRIED if axis == "width" else None,
    )


FIG2 = (("heads", "fixed", "classes"), ("context", "fixed", "classes"), ("width", "fixed", "classes"))
FIG4 = (("heads", "random", "classes"), ("context", "random", "classes"))
FIG5 = tuple((axis, contexts, "values") for axis in ("heads", "context") for contexts in ("fixed", "random"))


def _lines(tier: str, kinds: Sequence[tuple[str, str, str]]) -> Sweep:
    return Sweep(lines=tuple(_line(tier, *kind) for kind in kinds), seeds=SEEDS[tier])


def _saturation(tier: str) -> Cases:
    """The official cases: H = 4 with T = 550, H = 8 with T = 1300, one context of 32 tokens."""
    steps = {"smoke": 300, "short": 20_000, "paper": UNHURRIED}[tier]
    sizes = ((2, 12),) if tier == "smoke" else ((4, 550), (8, 1300))
    context, width = (4, SMOKE_D) if tier == "smoke" else (32, PAPER_D)
    cases = (Case(heads=h, examples=t, context=context, d_model=width, contexts="fixed", steps=steps) for h, t in sizes)
    return Cases(cases=tuple(cases), seeds=SEEDS[tier], whole=True)


def _parity(tier: str) -> Cases:
    """The official code's H = 4, n = 8, T = 500, random contexts, 1001 steps, in 20 seeds."""
    case = Case(heads=4, examples=500, context=8, d_model=PAPER_D, contexts="random", steps=PARITY)
    if tier == "smoke":
        case = replace(case, d_model=SMOKE_D, examples=40, steps=300)
    return Cases(cases=(case,), seeds=2 if tier == "smoke" else 20, whole=False)


def figures() -> dict[str, Figure]:
    """Every figure by name, in the order of the paper. Beside it: `parity` is ours, `pairs` a neighbour's."""
    out = {
        "fig1": Figure("fig1", "Ranks of real queries and contexts", {tier: mahdavi_ranks.plan(tier) for tier in TIERS}),
        "fig2": Figure("fig2", "Examples memorised, one context for all", {t: _lines(t, FIG2) for t in TIERS}),
        "fig3": Figure("fig3", "How saturated heads are", {t: _saturation(t) for t in TIERS}),
        "fig4": Figure("fig4", "Examples memorised in general position", {t: _lines(t, FIG4) for t in TIERS}),
        "fig5": Figure("fig5", "Values memorised", {t: _lines(t, FIG5) for t in TIERS}),
    }
    parity = Figure("parity", "Beside a run of the official code", {t: _parity(t) for t in TIERS}, group="beside")
    pairs = Figure("pairs", "What one layer knows of all pairs of tokens", mahdavi_pairs.PLANS, group="beside")
    return out | {"parity": parity, "pairs": pairs}


def _asked(figure: Figure, tier: str, seed: int) -> list[Question]:
    sweep = figure.tiers[tier]
    if isinstance(sweep, Sweep):
        return [line.question(value, sweep.seeds, seed) for line in sweep.lines for value in line.values]
    if isinstance(sweep, mahdavi_pairs.Plan):
        return mahdavi_pairs.questions(sweep, seed)
    if not isinstance(sweep, Cases):
        return []
    return [_of_case(case, sweep, seed) for case in sweep.cases]


def _of_case(case: Case, cases: Cases, seed: int) -> Question:
    problem = Labels(context=case.context, d_model=case.d_model, contexts=case.contexts)
    asked: dict[str, Any] = {"examples": case.examples, "recipe": "paper", "steps": case.steps}
    question = labels_question(problem, heads=case.heads, d_head=case.d_model, seeds=cases.seeds, seed=seed, **asked)
    return replace(question, stopping=replace(question.stopping, retire_exact=not cases.whole))


def _read(figure: Figure, tier: str, asked: Sequence[Question], outcomes: Sequence[Outcome]) -> Found:
    sweep = figure.tiers[tier]
    if isinstance(sweep, Sweep):
        return mahdavi_measured.lines(figure, tier, asked, outcomes)
    if isinstance(sweep, Cases):
        return mahdavi_measured.cases(figure, tier, asked, outcomes)
    if isinstance(sweep, mahdavi_pairs.Plan):
        return mahdavi_pairs.measured(figure, tier, asked, outcomes)
    return mahdavi_ranks.measured(figure, tier)


def paper() -> Paper:
    """The paper as the laboratory knows it."""
    statistics = {**mahdavi_statistics.STATISTICS, **mahdavi_pairs.STATISTICS}
    intervals = {**mahdavi_statistics.INTERVALS, **mahdavi_pairs.INTERVALS}
    return Paper(PAPER, figures(), _asked, _read, statistics, intervals, CHECKS)
