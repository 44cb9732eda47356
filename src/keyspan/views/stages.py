"""Softmax, values and the block: the data of their figures. They are drawn as fig1 is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from keyspan.evidence.intervals import student
from keyspan.papers.stages_measured import PanelFound, StageFound
from keyspan.theory.bounds import law
from keyspan.views.drawings import Data
from keyspan.views.figures import CurvePoint, ThresholdCurves, mean_interval

TARGET = 0.99
TOLD = ("f1", "f1_every", "routed", "routed_keys", "routed_values", "cosine", "routed_cosine", "error")
UNBOUNDED = ("cosine", "error")  # no fractions: their intervals are not kept within [0, 1]


@dataclass(frozen=True)
class StageCurves(Data):
    """F1 against D_K, a panel for every cell that decides (or for all, if none does); the rows and the table have all."""

    stage: str
    found: tuple[PanelFound, ...]
    panels: tuple[ThresholdCurves, ...]

    def first(self, panel: int) -> int | None:
        """The smallest budget of a panel that meets the target, over heads."""
        curves = drawn(self.found)[panel].curves
        return min((reach for h in curves.heads if (reach := curves.reach(h)) is not None), default=None)

    def facts(self) -> dict[str, Any]:
        """Where each number of heads gets to the target, in every cell."""
        return {
            "reached": [
                {"cell": _cell(p), "heads": h, "key_budget": p.curves.reach(h)} for p in self.found for h in p.curves.heads
            ]
        }

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        each = []
        for p in self.found:
            reached = [(h, p.curves.reach(h)) for h in p.curves.heads]
            said = [f"{h} head{'s' if h > 1 else ''} at {budget}" for h, budget in reached if budget is not None]
            each.append(f"{_cell(p)}: {', '.join(said) or 'none'}")
        return f"F1 against the key budget, {self.stage}. F1 of {TARGET:g} is reached by: {'; '.join(each)}."

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it: every score with its 95% interval over seeds."""
        names = [name for name in TOLD if any(name in point.scores for p in self.found for point in p.points)]
        return [_row(p, k, names) for p in self.found for k in range(len(p.points))]

    def printed(self) -> tuple[str, list[str], list[list[Any]]]:
        """F1 at every point: mean and 95% interval."""
        budgets = sorted({point.key_budget for p in self.found for point in p.points})
        lines = []
        for p in self.found:
            for h in p.curves.heads:
                at = {point.key_budget: point for point in p.points if point.heads == h}
                lines.append([_cell(p), h, *(_shown(at[b].scores.get("f1", ())) if b in at else "" for b in budgets)])
        return f"F1 by key budget, {self.stage}", ["cell", "heads", *map(str, budgets)], lines


def _cell(found: PanelFound) -> str:
    m, d = found.panel.size
    return f"m {m}, d {d}" + (f", {found.panel.label}" if found.panel.label else "")


def _row(found: PanelFound, k: int, names: Sequence[str]) -> dict[str, Any]:
    (items, d_model), point, layer = found.panel.size, found.points[k], found.panel.layer
    row: dict[str, Any] = {"items": items, "d_model": d_model, "label": found.panel.label}
    row |= {"length": found.panel.problem.length, "heads": point.heads, "key_budget": point.key_budget}
    row |= {"value_budget": layer.value_budget, "hidden": layer.hidden, "sink": layer.sink}
    row |= {"seeds": len(point.scores.get("f1", ()))}
    for name in names:
        of = mean_interval if name not in UNBOUNDED else student
        mean, low, high = of(list(point.scores[name])) if point.scores.get(name) else (None, None, None)
        row |= {name: mean, f"{name}_low": low, f"{name}_high": high}
    return row


def _shown(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean, low, high = mean_interval(list(values))
    return f"{mean:.3f}" if low is None or high is None else f"{mean:.3f} [{low:.2f}, {high:.2f}]"


def stage_info(found: StageFound) -> StageCurves:
    """Every panel's points, and the curves of those that decide."""
    return StageCurves(found.figure.name, found.panels, tuple(_curves(p) for p in drawn(found.panels)))


def drawn(found: Sequence[PanelFound]) -> list[PanelFound]:
    """The panels that decide, or all if none does."""
    return [p for p in found if p.panel.decides] or list(found)


def _curves(found: PanelFound) -> ThresholdCurves:
    (items, d_model), points = found.panel.size, []
    for point in found.points:
        if point.scores.get("f1"):
            mean = mean_interval(list(point.scores["f1"]))
            points.append(CurvePoint(point.heads, point.key_budget, *mean, len(point.scores["f1"])))
    return ThresholdCurves(
        points=tuple(points),
        target=TARGET,
        law=law(found.panel.problem.relations.edges, d_model),
        lower_bound=found.curves.lower_bound,
        capacity=None,
        low=None,
        high=None,
        title=f"m = {items}, d = {d_model}" + (f", {found.panel.label}" if found.panel.label else ""),
        threshold="own",
    )
