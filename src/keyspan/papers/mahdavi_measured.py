"""What questions about labels came to: points along a line, and layers whose heads were looked at."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.lab.crossing import Crossing, Table, load_draws
from keyspan.papers.figures import AsPlanned, Figure
from keyspan.problems import NoContents
from keyspan.problems.contexts import Labels
from keyspan.runners.driver import Outcome
from keyspan.runners.labels import Ends, LabelsResult, accuracies, saturation, yielded
from keyspan.seeds import Stream
from keyspan.specs import Question
from keyspan.theory.memorizing import explicit_attention

Float = NDArray[np.float64]
SATURATED = 0.99


@dataclass(frozen=True, eq=False)
class Point:
    """A layer along a line. value: of the axis    largest: None where no T measured is past it    drawn: bootstrap of largest

    accuracies: by T, of every seed    failed: members without a number
    """

    value: int
    heads: int
    context: int
    width: int
    theorem: int
    cap: int
    largest: Crossing
    yielded: Ends | None
    drawn: Float
    accuracies: Mapping[int, tuple[float, ...]]
    failed: int

    @property
    def memorised(self) -> float | None:
        """`largest`; with every T memorised, the largest T."""
        return self.largest.estimate if self.largest.estimate is not None else self.largest.low


@dataclass(frozen=True, eq=False)
class MeasuredLine:
    """A line with its points. line: as it was asked for (`papers.mahdavi.Line`)"""

    line: Any
    points: tuple[Point, ...]

    @property
    def criterion(self) -> str:
        """What its capacities are: `largest`, where every point has one that ends within what was measured, else `yield`."""
        return "largest" if all(p.largest.estimate is not None for p in self.points) else "yield"

    def capacities(self) -> list[float | None]:
        """By that criterion, point by point."""
        if self.criterion == "largest":
            return [p.largest.estimate for p in self.points]
        return [None if p.yielded is None else p.yielded[1] for p in self.points]

    def draws(self) -> list[Float]:
        """Bootstrap draws of the capacities, point by point. returns: arrays of one length"""
        if self.criterion == "largest":
            return [p.drawn for p in self.points]
        return [_draws_of_yield(p) for p in self.points]


def _draws_of_yield(point: Point) -> Float:
    stream = Stream(f"{point.heads} {point.context} {point.width}", "yield")
    rows = []
    for level, values in point.accuracies.items():
        picks = stream.integers(len(values), 1000 * len(values)).reshape(1000, -1)
        rows.append(level * np.array(values)[picks].mean(axis=1))
    return np.asarray(np.max(rows, axis=0)) if rows else np.full(1000, np.nan)


@dataclass(frozen=True, eq=False)
class Lines(AsPlanned):
    """A figure of lines at a tier, measured (a `papers.figures.Found`)."""

    figure: Figure
    tier: str
    lines: tuple[MeasuredLine, ...]
    run_ids: frozenset[str]
    trained: frozenset[str]

    @property
    def cells_asked(self) -> tuple[Hashable, ...]:
        """The layers, line by line."""
        return tuple(_cell(x.line, p) for x in self.lines for p in x.points)

    @property
    def failed_cells(self) -> frozenset[Any]:
        """Layers with a member that has no number."""
        return frozenset(_cell(x.line, p) for x in self.lines for p in x.points if p.failed)

    def line(self, axis: str, contexts: str | None = None) -> MeasuredLine | None:
        """The line over an axis."""
        return next((x for x in self.lines if x.line.axis == axis and contexts in (None, x.line.contexts)), None)


def _cell(line: Any, point: Point) -> Hashable:
    return line.contexts, line.task, point.heads, point.context, point.width


def lines(figure: Figure, tier: str, asked: Sequence[Question], outcomes: Sequence[Outcome]) -> Lines:
    """Read lines off the outcomes, which come in the order of the questions."""
    answers = iter(zip(asked, outcomes, strict=True))
    found = tuple(
        MeasuredLine(line, tuple(_point(value, *next(answers)) for value in line.values)) for line in figure.tiers[tier].lines
    )
    return Lines(figure, tier, found, *_ids(outcomes))


def _ids(outcomes: Sequence[Outcome]) -> tuple[frozenset[str], frozenset[str]]:
    run_ids = frozenset(p.run.run_id for o in outcomes for p in o.answer.probes)
    return run_ids, frozenset(run_id for o in outcomes for run_id in o.trained)


def _point(value: int, question: Question, outcome: Outcome) -> Point:
    result, probes = LabelsResult(question, outcome), outcome.answer.probes
    known = {level: tuple(values) for level, values in accuracies(probes).items()}
    table = Table(levels=question.arms[0].levels, probed=dict(known))
    return Point(
        value=value,
        heads=result.layer.heads,
        context=result.problem.context,
        width=result.layer.d_key,
        theorem=result.theorem,
        cap=result.cap,
        largest=result.crossing,
        yielded=yielded(question, probes),
        drawn=load_draws(question, table) if known else np.zeros(0),
        accuracies=known,
        failed=outcome.answer.failed,
    )


# ------------------------------------------------------------------------------------------------------ saturation


@dataclass(frozen=True, eq=False)
class Looked:
    """A trained layer whose heads were looked at, over seeds. shares, unsaturated, accuracies, losses: of every seed

    histogram: of largest weights    saturated: examples by how many heads they saturate    first: largest weights of the
    first examples of the first seed, (examples, H)
    """

    case: Any
    accuracies: tuple[float, ...]
    losses: tuple[float, ...]
    shares: tuple[float, ...]
    unsaturated: tuple[float, ...]
    histogram: tuple[int, ...]
    saturated: tuple[int, ...]
    first: tuple[tuple[float, ...], ...]
    failed: int


@dataclass(frozen=True, eq=False)
class Built:
    """The explicit layer of the same sizes, at its own T."""

    heads: int
    examples: int
    share: float
    unsaturated: float
    histogram: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Heads(AsPlanned):
    """A figure of layers whose heads were looked at (a `papers.figures.Found`)."""

    figure: Figure
    tier: str
    cases: tuple[Looked, ...]
    built: tuple[Built, ...]
    run_ids: frozenset[str]
    trained: frozenset[str]

    @property
    def cells_asked(self) -> tuple[Hashable, ...]:
        """The layers."""
        return tuple((x.case.heads, x.case.examples) for x in self.cases)

    @property
    def failed_cells(self) -> frozenset[Any]:
        """Those with a member that has no number."""
        return frozenset((x.case.heads, x.case.examples) for x in self.cases if x.failed)


def cases(figure: Figure, tier: str, asked: Sequence[Question], outcomes: Sequence[Outcome]) -> Heads:
    """Read layers off the outcomes; where all are to be looked at, the explicit ones stand beside them."""
    sweep = figure.tiers[tier]
    found = tuple(_looked(case, outcome) for case, outcome in zip(sweep.cases, outcomes, strict=True))
    built = tuple(_built(case) for case in sweep.cases) if sweep.whole else ()
    return Heads(figure, tier, found, built, *_ids(outcomes))


def _looked(case: Any, outcome: Outcome) -> Looked:
    known = [p for p in outcome.answer.probes if p.verdict.measured]
    told: dict[str, Any] = {"largest": [], "heads": [], "first": []}
    if known:
        told = saturation(known) | {"first": known[0].verdict.witness["saturation"]["first"]}
    names = ("accuracy", "loss", "saturated", "unsaturated_examples")
    accuracy, loss, shares, unsaturated = (tuple(p.verdict.score(name) for p in known) for name in names)
    return Looked(
        case=case,
        accuracies=accuracy,
        losses=loss,
        shares=shares,
        unsaturated=unsaturated,
        histogram=tuple(told["largest"]),
        saturated=tuple(told["heads"]),
        first=tuple(tuple(row) for row in told["first"]),
        failed=outcome.answer.failed,
    )


def _built(case: Any) -> Built:
    """The explicit layer for the same H, n, d and d_h."""
    rank = min(case.context, case.d_model)
    count = case.heads * (rank - 1) + 1
    problem = Labels(context=case.context, d_model=case.d_model, contexts=case.contexts, examples=count)
    name = f"built {case.heads} {case.context} {case.d_model} {case.contexts}"
    instance = problem.instance(name, NoContents())
    queries, contexts = instance.queries.astype(np.float64), instance.context(slice(None)).astype(np.float64)
    attention = explicit_attention(Stream(name, "weights"), queries, contexts, case.heads, case.d_model)
    peak = attention.weights(queries, contexts).max(axis=2)
    histogram = tuple(np.histogram(peak, bins=20, range=(0.0, 1.0))[0].tolist())
    some = (peak <= SATURATED).any(axis=1)
    return Built(case.heads, count, float((peak > SATURATED).mean()), float(some.mean()), histogram)
