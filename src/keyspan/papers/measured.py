"""What questions about relations came to: cells and curves, which claims are tested on and figures are drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keyspan.evidence.cells import Cell, cell_of
from keyspan.papers.figures import Figure
from keyspan.papers.sweeps import Size, Sweep
from keyspan.problems import graphs
from keyspan.problems.relations import Relations
from keyspan.runners.driver import Outcome
from keyspan.specs import Question
from keyspan.theory.bounds import law, warren_budget


@dataclass(frozen=True)
class Point:
    """Scores at one number of heads and one key budget, a score for every seed that has one."""

    heads: int
    key_budget: int
    scores: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        """Mean over seeds; None where every member failed."""
        return sum(self.scores) / len(self.scores) if self.scores else None


@dataclass(frozen=True)
class Curves:
    """F1 against D_K in one cell."""

    items: int
    d_model: int
    target: float
    points: tuple[Point, ...]

    @property
    def law(self) -> float:
        """m ln m / d, of a permutation."""
        return law(self.items, self.d_model)

    @property
    def lower_bound(self) -> float:
        """Warren's count for the most heads, which is its lowest value."""
        bits = graphs.entropy(graphs.permutation(), self.items).value
        return warren_budget(bits, self.items, self.d_model, max(p.heads for p in self.points))

    def of(self, heads: int) -> list[Point]:
        """The points of one number of heads that have a score, by budget."""
        return sorted((p for p in self.points if p.heads == heads and p.scores), key=lambda p: p.key_budget)

    @property
    def heads(self) -> list[int]:
        """The head counts measured."""
        return sorted({p.heads for p in self.points})

    def reach(self, heads: int) -> int | None:
        """The smallest budget measured from which every one up meets the target."""
        found = None
        for point in reversed(self.of(heads)):
            if (point.mean or 0.0) < self.target:
                break
            found = point.key_budget
        return found

    def crossing(self, heads: int) -> float | None:
        """Where F1 crosses the target, on the line between `reach` and the budget measured below it."""
        reach, line = self.reach(heads), self.of(heads)
        above = next((p for p in line if p.key_budget == reach), None)
        below = max((p for p in line if reach is not None and p.key_budget < reach), key=lambda p: p.key_budget, default=None)
        if above is None or below is None:
            return reach
        low, high = below.mean or 0.0, above.mean or 0.0
        share = (self.target - low) / (high - low)
        return below.key_budget + share * (above.key_budget - below.key_budget)


@dataclass(frozen=True)
class Measured:
    """A figure at a tier, measured (a `papers.figures.Found`). cells: one for every cell and target    curves: of fig1"""

    figure: Figure
    tier: str
    sweep: Sweep
    cells: tuple[Cell, ...]
    curves: tuple[Curves, ...]
    failed_cells: frozenset[Size]
    run_ids: frozenset[str]
    trained: frozenset[str]

    @property
    def seeds(self) -> int:
        """Instances a point."""
        return self.sweep.seeds

    @property
    def cells_asked(self) -> tuple[Size, ...]:
        """The (m, d) it measures."""
        return self.sweep.cells

    @property
    def left_out(self) -> tuple[Mapping[str, Any], ...]:
        """The (m, d) of the grid that it does not measure, and why."""
        return tuple({"items": m, "d_model": d, "reason": why} for (m, d), why in self.sweep.left_out)

    def at(self, target: float) -> list[Cell]:
        """The cells of one target."""
        return [cell for cell in self.cells if cell.target == target]


def measured(figure: Figure, tier: str, asked: Sequence[Question], outcomes: Sequence[Outcome]) -> Measured:
    """Read a figure's data off the outcomes of its questions."""
    cells = [cell_of(q, o.answer) for q, o in zip(asked, outcomes, strict=True) if q.search]
    curves = [_curves(q, o) for q, o in zip(asked, outcomes, strict=True) if not q.search]
    failed = {_size(q) for q, o in zip(asked, outcomes, strict=True) if o.answer.failed}
    return Measured(
        figure=figure,
        tier=tier,
        sweep=figure.tiers[tier],
        cells=tuple(cells),
        curves=tuple(curves),
        failed_cells=frozenset(failed),
        run_ids=frozenset(p.run.run_id for o in outcomes for p in o.answer.probes),
        trained=frozenset(run_id for o in outcomes for run_id in o.trained),
    )


def _size(question: Question) -> Size:
    assert isinstance(question.problem, Relations)
    return question.problem.items, question.problem.d_model


def _curves(question: Question, outcome: Outcome) -> Curves:
    scores: dict[tuple[int, int], list[float]] = {}
    for probe in outcome.answer.probes:
        found = scores.setdefault((probe.heads or 1, probe.level), [])
        if probe.verdict.measured:
            found.append(probe.verdict.score(question.score))
    points = tuple(Point(h, budget, tuple(values)) for (h, budget), values in sorted(scores.items()))
    return Curves(*_size(question), question.target, points)
