"""What softmax, values and the block came to: every score of every point, and the curves that claims are tested on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keyspan.papers import adler_intervals, adler_statistics
from keyspan.papers.figures import AsPlanned, Figure, Interval, Statistic
from keyspan.papers.measured import Curves, Point
from keyspan.papers.stages import Panel, Stage
from keyspan.runners.driver import Outcome
from keyspan.seeds import Stream
from keyspan.specs import Question

Scores = Mapping[str, tuple[float, ...]]
DRAWS = 400


@dataclass(frozen=True)
class StagePoint:
    """One number of heads at one key budget. scores: by name, of every seed that has them"""

    heads: int
    key_budget: int
    scores: Scores

    def mean(self, name: str) -> float | None:
        """Mean over seeds; None where no member has the score."""
        values = self.scores.get(name, ())
        return sum(values) / len(values) if values else None


@dataclass(frozen=True)
class PanelFound:
    """A panel, measured. failed: members without a number"""

    panel: Panel
    points: tuple[StagePoint, ...]
    failed: int

    def at(self, heads: int, key_budget: int) -> StagePoint | None:
        """One of its points."""
        return next((p for p in self.points if (p.heads, p.key_budget) == (heads, key_budget)), None)

    @property
    def curves(self) -> Curves:
        """F1 against D_K."""
        points = tuple(Point(p.heads, p.key_budget, p.scores.get("f1", ())) for p in self.points)
        return Curves(*self.panel.size, 0.99, points)


@dataclass(frozen=True)
class StageFound(AsPlanned):
    """A figure at a tier, measured (a `papers.figures.Found`). curves: of the panels that decide its claims"""

    figure: Figure
    tier: str
    panels: tuple[PanelFound, ...]
    curves: tuple[Curves, ...]
    run_ids: frozenset[str]
    trained: frozenset[str]

    @property
    def seeds(self) -> int:
        """Instances a point, at least."""
        return min(found.panel.seeds for found in self.panels)

    @property
    def cells_asked(self) -> tuple[Any, ...]:
        """(m, d) and what is different about it."""
        return tuple((*found.panel.size, found.panel.label) for found in self.panels)

    @property
    def failed_cells(self) -> frozenset[Any]:
        """Panels with a member that has no number."""
        return frozenset(cell for cell, found in zip(self.cells_asked, self.panels, strict=True) if found.failed)


def measured(figure: Figure, tier: str, asked: Sequence[Question], outcomes: Sequence[Outcome]) -> StageFound:
    """Read a figure's data off the outcomes of its questions, which come in the order of its panels."""
    stage: Stage = figure.tiers[tier]
    panels = tuple(_panel(panel, outcome) for panel, outcome in zip(stage.panels, outcomes, strict=True))
    return StageFound(
        figure=figure,
        tier=tier,
        panels=panels,
        curves=tuple(found.curves for found in panels if found.panel.decides),
        run_ids=frozenset(p.run.run_id for o in outcomes for p in o.answer.probes),
        trained=frozenset(run_id for o in outcomes for run_id in o.trained),
    )


def _panel(panel: Panel, outcome: Outcome) -> PanelFound:
    points: dict[tuple[int, int], dict[str, list[float]]] = {}
    for probe in outcome.answer.probes:
        here = points.setdefault((probe.heads or 1, probe.level), {})
        for name, value in probe.verdict.scores.items():
            here.setdefault(name, []).append(value)
    made = tuple(StagePoint(h, b, {n: tuple(v) for n, v in s.items()}) for (h, b), s in sorted(points.items()))
    return PanelFound(panel, made, outcome.answer.failed)


# ------------------------------------------------------------------------------------------------------ statistics


def _sinks(found: StageFound) -> tuple[Sequence[float], Sequence[float]] | None:
    """F1 of every seed with sinks and without, for the most heads tried without, at the largest key budget of both."""
    bare = next((p for p in found.panels if not p.panel.layer.sink), None)
    if bare is None or not bare.points:
        return None
    heads = max(p.heads for p in bare.points)
    budget = max(p.key_budget for p in bare.points if p.heads == heads)
    here = next((p for p in found.panels if p.panel.decides and p.panel.size == bare.panel.size), None)
    with_sink, without = (None if p is None else p.at(heads, budget) for p in (here, bare))
    if with_sink is None or without is None:
        return None
    scores = with_sink.scores.get("f1", ()), without.scores.get("f1", ())
    return scores if all(scores) else None


def sink_gain(found: StageFound) -> float | None:
    """The mean F1 with sinks less that without."""
    scores = _sinks(found)
    return None if scores is None else sum(scores[0]) / len(scores[0]) - sum(scores[1]) / len(scores[1])


def sink_gain_interval(found: StageFound) -> tuple[float, float] | None:
    """Over draws of seeds, the same with sinks and without: a seed is one instance."""
    scores = _sinks(found)
    if scores is None or (seeds := min(map(len, scores))) < 2:
        return None
    gains = np.subtract(scores[0][:seeds], scores[1][:seeds])
    picks = Stream(f"{found.figure.name} {found.tier}", "claims").integers(seeds, DRAWS * seeds).reshape(DRAWS, seeds)
    drawn = np.sort(gains[picks].mean(axis=1))
    return float(drawn[int(0.025 * DRAWS)]), float(drawn[math.ceil(0.975 * DRAWS) - 1])


STATISTICS: Mapping[str, Statistic] = {
    # F1 of several heads less that of one, at the smallest D_K where several reach 0.99; the least over cells with m > d
    **dict.fromkeys(("softmax_deficit", "values_deficit", "block_deficit"), adler_statistics.one_head_deficit),
    "sink_gain": sink_gain,
}
INTERVALS: Mapping[str, Interval] = {
    **dict.fromkeys(("softmax_deficit", "values_deficit", "block_deficit"), adler_intervals.INTERVALS["one_head_deficit"]),
    "sink_gain": sink_gain_interval,
}
