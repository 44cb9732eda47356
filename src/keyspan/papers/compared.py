"""Cells that are compared with each other: what differs between them has a label, and a size keeps them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from keyspan.evidence.cells import Cell, cell_of
from keyspan.papers.figures import AsPlanned, Figure
from keyspan.papers.sweeps import Size
from keyspan.problems.typed import AnyRelations
from keyspan.runners.driver import Outcome
from keyspan.runners.questions import relations_question
from keyspan.specs import Question


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One cell as it is asked. label: what is different about it    asked: more keywords of `relations_question`"""

    label: str
    problem: AnyRelations
    asked: tuple[tuple[str, Any], ...] = ()

    @property
    def size(self) -> Size:
        """(m, d)"""
        return self.problem.items, self.problem.d_model


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What a figure compares at a tier. base: the label that the others are measured by, at the same size

    seeds: instances a point    arithmetic: of training
    """

    variants: tuple[Variant, ...]
    seeds: int
    base: str
    arithmetic: str = "fp32"


@dataclass(frozen=True)
class Line:
    """A variant whose D_K* was looked for. bits: to name one of its graphs"""

    variant: Variant
    cell: Cell
    bits: float

    @property
    def label(self) -> str:
        """What is different about it."""
        return self.variant.label

    @property
    def size(self) -> Size:
        """(m, d)"""
        return self.variant.size


@dataclass(frozen=True)
class Curve:
    """A variant that was measured at budgets of its own. scores: by (heads, key budget) and name, one for every seed"""

    variant: Variant
    scores: Mapping[tuple[int, int], Mapping[str, tuple[float, ...]]]

    @property
    def label(self) -> str:
        """What is different about it."""
        return self.variant.label

    @property
    def size(self) -> Size:
        """(m, d)"""
        return self.variant.size

    @property
    def budgets(self) -> list[int]:
        """The key budgets measured."""
        return sorted({budget for _, budget in self.scores})

    def at(self, budget: int, name: str) -> tuple[float, ...]:
        """A score of every seed at a budget, of the heads whose mean F1 is the largest there; or nothing."""
        known = [found for (_, b), found in self.scores.items() if b == budget and found.get("f1")]
        best = max(known, key=lambda found: sum(found["f1"]) / len(found["f1"]), default={})
        return best.get(name, ())

    def mean(self, budget: int, name: str) -> float | None:
        """The mean of that over seeds."""
        values = self.at(budget, name)
        return sum(values) / len(values) if values else None


@dataclass(frozen=True)
class Compared(AsPlanned):
    """A figure at a tier, measured (a `papers.figures.Found`).

    lines: one for every variant whose D_K* was looked for    curves: one for every other; both in their order
    """

    figure: Figure
    tier: str
    comparison: Comparison
    lines: tuple[Line, ...]
    curves: tuple[Curve, ...]
    failed_cells: frozenset[Any]
    run_ids: frozenset[str]
    trained: frozenset[str]

    @property
    def seeds(self) -> int:
        """Instances a point."""
        return self.comparison.seeds

    @property
    def cells_asked(self) -> tuple[tuple[str, Size], ...]:
        """The label and the size of every variant."""
        return tuple(dict.fromkeys((v.label, v.size) for v in self.comparison.variants))

    @property
    def sizes(self) -> list[Size]:
        """The (m, d) compared, in their order."""
        return list(dict.fromkeys(v.size for v in self.comparison.variants))

    @property
    def labels(self) -> list[str]:
        """What is compared, in its order."""
        return list(dict.fromkeys(line.label for line in self.lines))

    def at(self, label: str, size: Size) -> Line | None:
        """The line of a label at a size."""
        return next((line for line in self.lines if (line.label, line.size) == (label, size)), None)

    def ratio(self, line: Line) -> float | None:
        """D_K* over that of the base at the same size; None where one of them was not reached."""
        base = self.at(self.comparison.base, line.size)
        if base is None or not base.cell.key_budget or line.cell.key_budget is None:
            return None
        return line.cell.key_budget / base.cell.key_budget

    def ratios(self, label: str) -> list[float | None]:
        """The ratios of a label, over sizes."""
        return [self.ratio(line) for line in self.lines if line.label == label]

    def median_ratio(self, label: str) -> float | None:
        """Their median, over the sizes where there is one."""
        known = [r for r in self.ratios(label) if r is not None]
        return median(known) if known else None


def questions(comparison: Comparison, seed: int = 0) -> list[Question]:
    """One question for every variant."""
    return [
        relations_question(
            v.problem, seeds=comparison.seeds, seed=seed, arithmetic=comparison.arithmetic, **dict(v.asked)
        )
        for v in comparison.variants
    ]  # fmt: skip


def compared(figure: Figure, tier: str, asked: Sequence[Question], outcomes: Sequence[Outcome]) -> Compared:
    """Read a figure's data off the outcomes of its questions."""
    comparison: Comparison = figure.tiers[tier]
    answered = list(zip(comparison.variants, asked, outcomes, strict=True))
    return Compared(
        figure=figure,
        tier=tier,
        comparison=comparison,
        lines=tuple(Line(v, cell_of(q, o.answer), v.problem.bits) for v, q, o in answered if q.search),
        curves=tuple(_curve(v, o) for v, q, o in answered if not q.search),
        failed_cells=frozenset((v.label, v.size) for v, _, o in answered if o.answer.failed),
        run_ids=frozenset(p.run.run_id for o in outcomes for p in o.answer.probes),
        trained=frozenset(run_id for o in outcomes for run_id in o.trained),
    )


def _curve(variant: Variant, outcome: Outcome) -> Curve:
    scores: dict[tuple[int, int], dict[str, tuple[float, ...]]] = {}
    for probe in outcome.answer.probes:
        found = scores.setdefault((probe.heads or 1, probe.level), {})
        for name, value in (probe.verdict.scores if probe.verdict.measured else {}).items():
            found[name] = (*found.get(name, ()), value)
    return Curve(variant, scores)
