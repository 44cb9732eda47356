"""The data of Adler's figures: `*_info` turns what was measured into a small frozen tuple that a test can check."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from keyspan.evidence.cells import Cell
from keyspan.evidence.fits import LawFit
from keyspan.papers.adler_statistics import above_line, law_of
from keyspan.papers.measured import Curves, Measured
from keyspan.papers.sweeps import Size
from keyspan.theory.bounds import gardner_load, trivial_budget
from keyspan.views.drawings import Data
from keyspan.views.figures import CurvePoint, ThresholdCurves, mean_interval

TARGET = 0.99


def _names(cells: Sequence[Cell]) -> str:
    return f"{len(cells)} cells" if len(cells) != 1 else "1 cell"


# ---------------------------------------------------------------------------------------------------------- fig1


@dataclass(frozen=True)
class CurvePanels(Data):
    """F1 against D_K, a panel for every cell (fig1). reached: by heads, the smallest budget measured that meets 0.99"""

    panels: tuple[ThresholdCurves, ...]
    sizes: tuple[Size, ...]
    reached: tuple[tuple[tuple[int, int | None], ...], ...]

    def first(self, panel: int) -> int | None:
        """The smallest budget of a panel, over heads."""
        return min((budget for _, budget in self.reached[panel] if budget is not None), default=None)

    def facts(self) -> dict[str, Any]:
        """Where each number of heads gets there."""
        rows = [
            {"items": m, "d_model": d, "heads": heads, "key_budget": budget}
            for (m, d), found in zip(self.sizes, self.reached, strict=True)
            for heads, budget in found
        ]
        return {"reached": rows}

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        each = []
        for (m, d), found in zip(self.sizes, self.reached, strict=True):
            said = [f"{heads} heads at {budget}" if heads > 1 else f"one at {budget}" for heads, budget in found if budget]
            each.append(f"m {m}, d {d}: {', '.join(said) or 'none'}")
        return f"F1 against the key budget by number of heads. F1 of {TARGET:g} is reached by: {'; '.join(each)}."

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it."""
        return [
            {"items": m, "d_model": d} | row
            for (m, d), panel in zip(self.sizes, self.panels, strict=True)
            for row in panel.rows()
        ]


def curve_panels_info(found: Measured) -> CurvePanels:
    """F1 with its 95% interval over seeds, for every number of heads, at the budgets asked."""
    return CurvePanels(
        panels=tuple(_panel(c) for c in found.curves),
        sizes=tuple((c.items, c.d_model) for c in found.curves),
        reached=tuple(tuple((h, c.reach(h)) for h in c.heads) for c in found.curves),
    )


def _panel(curves: Curves) -> ThresholdCurves:
    scored = [point for point in curves.points if point.scores]
    return ThresholdCurves(
        points=tuple(CurvePoint(p.heads, p.key_budget, *mean_interval(list(p.scores)), len(p.scores)) for p in scored),
        target=curves.target,
        law=curves.law,
        lower_bound=curves.lower_bound,
        capacity=None,  # these budgets are a fixed grid, so there is no D_K* with an interval
        low=None,
        high=None,
        title=f"m = {curves.items}, d = {curves.d_model}\n(m/d = {curves.items / curves.d_model:g})",
        threshold="own",
        construction=trivial_budget(curves.items),
    )


# ---------------------------------------------------------------------------------------------------- fig2, fig4


@dataclass(frozen=True)
class HeadCounts(Data):
    """The number of heads that attains D_K*, cell by cell (fig2); those that do within its interval as a range."""

    cells: tuple[Cell, ...]
    censored: tuple[Cell, ...]

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        most = max((c.heads or 0 for c in self.cells), default=0)
        return f"The best number of heads against m and against d, in {_names(self.cells)}; the most is {most}."

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it."""
        return [cell.to_row() for cell in (*self.cells, *self.censored)]


def head_counts_info(found: Measured) -> HeadCounts:
    """Cells that reached the target, and those that did not, by m and d."""
    cells = _sorted(found)
    return HeadCounts(tuple(c for c in cells if c.heads is not None), tuple(c for c in cells if c.heads is None))


@dataclass(frozen=True)
class Diagonal(Data):
    """D_K* and the heads that reach it along m = 8 d (fig4)."""

    cells: tuple[Cell, ...]

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        each = [
            f"m {c.items}: D_K {c.key_budget} with {c.heads} heads" if c.heads else f"m {c.items}: not reached"
            for c in self.cells
        ]
        return f"The key budget and the number of heads along m = 8 d. {'; '.join(each)}."

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it."""
        return [cell.to_row() for cell in self.cells]


def diagonal_info(found: Measured) -> Diagonal:
    """The cells of the diagonal by m."""
    return Diagonal(tuple(_sorted(found)))


# ---------------------------------------------------------------------------------------------------------- fig3


@dataclass(frozen=True)
class LawScatter(Data):
    """D_K* against m' ln m' / d, with the fitted slope (fig3). fit: None where there are too few cells for one"""

    cells: tuple[Cell, ...]
    fit: LawFit | None

    def facts(self) -> dict[str, Any]:
        """The fit, without its cells, which are the data."""
        return {} if self.fit is None else {k: v for k, v in self.fit.to_dict().items() if k not in ("cells", "run_ids")}

    @property
    def summary(self) -> tuple[str, ...]:
        """The fit in a few lines."""
        if self.fit is None:
            return ("too few cells for a fit",)
        c, best = self.fit.fit.parameters["c"], self.fit.fit
        no_log = next(rival for rival in self.fit.rivals if rival.model == "no-log")
        ends = "" if c.low is None or c.high is None else f" [{c.low:.2f}, {c.high:.2f}]"
        exponent = self.fit.exponent
        lines = [f"slope {c.estimate:.2f}{ends}", f"R² {best.r2:.3f} of ln D_K*" if best.r2 is not None else "R² unknown"]
        if exponent is not None and exponent.low is not None:
            lines.append(f"exponent {exponent.estimate:.2f} [{exponent.low:.2f}, {exponent.high:.2f}]")
        if best.mape_held_out is not None and no_log.mape_held_out is not None:
            lines.append(f"held-out error {best.mape_held_out:.0%}, without the log {no_log.mape_held_out:.0%}")
        return tuple(lines)

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        return f"Measured D_K* against m ln m / d in {_names(self.cells)}: {'; '.join(self.summary)}."

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it."""
        c = self.fit.fit.parameters["c"].estimate if self.fit else None
        return [cell.to_row() | {"fitted": None if c is None else c * cell.law} for cell in self.cells]


def law_scatter_info(found: Measured) -> LawScatter:
    """The cells that reached the target, and the law fitted to them."""
    return LawScatter(tuple(c for c in _sorted(found) if c.key_budget is not None), law_of(found))


# ---------------------------------------------------------------------------------------------------------- fig5


@dataclass(frozen=True)
class CellTable(Data):
    """D_K* over (m, d), each with its range (fig5). left_out: cells of the grid that were not measured, and why"""

    items: tuple[int, ...]
    widths: tuple[int, ...]
    cells: tuple[Cell, ...]
    left_out: tuple[tuple[Size, str], ...]

    def at(self, items: int, d_model: int) -> Cell | None:
        """The cell of a row and a column."""
        return next((c for c in self.cells if (c.items, c.d_model) == (items, d_model)), None)

    def text(self, items: int, d_model: int) -> tuple[str, ...]:
        """What stands in the table: D_K*, its range, the heads (at least so many where more were not tried)."""
        cell = self.at(items, d_model)
        if cell is None:
            return ("·",) if (items, d_model) in dict(self.left_out) else ("",)
        if cell.key_budget is None:
            return ("not", "reached")
        low, high = ("?" if end is None else str(end) for end in (cell.low, cell.high))
        return str(cell.key_budget), f"[{low}, {high}]", f"h {'≥' if cell.cut_short else '='} {cell.heads}"

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        each = [f"m {c.items}, d {c.d_model}: {' '.join(self.text(c.items, c.d_model)[:2])}" for c in self.cells]
        return f"Table of D_K* with its 95% range over m and d. {'; '.join(each)}."

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it: what `keyspan fit law --from` reads."""
        return [cell.to_row() for cell in self.cells]

    def printed(self) -> tuple[str, list[str], list[list[Any]]]:
        """The table itself."""
        rows = [[m, *[" ".join(self.text(m, d)) for d in self.widths]] for m in self.items]
        return "D_K* with its 95% range, over items (rows) and d_model (columns)", ["items", *map(str, self.widths)], rows


def cell_table_info(found: Measured) -> CellTable:
    """All cells by m and d."""
    cells = tuple(_sorted(found))
    gone = dict(found.sweep.left_out)
    items = tuple(sorted({c.items for c in cells}))
    widths = tuple(sorted({c.d_model for c in cells} | {d for m, d in gone if m in items}))
    return CellTable(items, widths, cells, tuple(gone.items()))


# ----------------------------------------------------------------------------------------------------------- map


@dataclass(frozen=True)
class HeadMap(Data):
    """Where several heads beat one, over (m, d). line: (m, d) with P(m, 1) = d^2, above which one head cannot do"""

    cells: tuple[Cell, ...]
    line: tuple[tuple[float, float], ...]

    def facts(self) -> dict[str, Any]:
        """`counts`."""
        return dict(self.counts)

    @property
    def counts(self) -> dict[str, int]:
        """How many cells, in how many several heads win, and how often two predictions are right about that."""
        known = [c for c in self.cells if c.several_beat_one is not None]
        return {
            "cells": len(known),
            "several_beat_one": sum(bool(c.several_beat_one) for c in known),
            "beyond_intervals": sum(bool(c.several_beat_one) and c.clear for c in known),
            "agree_with_m_above_d": sum(c.several_beat_one == (c.items > c.d_model) for c in known),
            "agree_with_gardner_line": sum(c.several_beat_one == above_line(c) for c in known),
        }

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        n = self.counts
        return (
            f"Several heads beat one in {n['several_beat_one']} of {n['cells']} cells, in {n['beyond_intervals']} beyond "
            f"the intervals. The line m = d predicts {n['agree_with_m_above_d']} of the {n['cells']} rightly, the line "
            f"P(m, 1) = d^2 {n['agree_with_gardner_line']}."
        )

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it."""
        return [
            cell.to_row()
            | {"several_beat_one": cell.several_beat_one, "clear": cell.clear, "above_gardner_line": above_line(cell)}
            for cell in self.cells
        ]


def head_map_info(found: Measured) -> HeadMap:
    """The cells, and the predicted line a little beyond them."""
    cells = _sorted(found)
    low, high = min(c.items for c in cells) / math.sqrt(2), max(c.items for c in cells) * math.sqrt(2)
    steps = 24
    marks = sorted({max(2, round(low * (high / low) ** (k / steps))) for k in range(steps + 1)})
    line = tuple((float(m), math.sqrt(gardner_load(m, m, 1))) for m in marks)
    return HeadMap(tuple(cells), line)


# ------------------------------------------------------------------------------------------------------- targets


@dataclass(frozen=True)
class TargetCosts(Data):
    """D_K at several targets, relative to exact recovery. cells: (m, d)    budgets: a Cell for every (cell, target)"""

    sizes: tuple[Size, ...]
    targets: tuple[float, ...]
    budgets: tuple[Cell, ...]

    def at(self, size: Size, target: float) -> Cell | None:
        """The cell at one target."""
        return next((c for c in self.budgets if (c.items, c.d_model) == size and c.target == target), None)

    def ratio(self, size: Size, target: float) -> float | None:
        """D_K at the target over D_K at the highest one."""
        here, exact = self.at(size, target), self.at(size, self.targets[-1])
        if here is None or exact is None or not here.key_budget or not exact.key_budget:
            return None
        return here.key_budget / exact.key_budget

    def facts(self) -> dict[str, Any]:
        """The median over cells of D_K at a target over D_K when exact."""
        return {"over_exact": [{"target": t, "median": self.median_ratio(t)} for t in self.targets]}

    def median_ratio(self, target: float) -> float | None:
        """Median of the ratio over cells."""
        known = [r for size in self.sizes if (r := self.ratio(size, target)) is not None]
        return median(known) if known else None

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        known = [(t, self.median_ratio(t)) for t in self.targets]
        said = ", ".join(f"F1 {t:g}: {r:.2f}" for t, r in known if r is not None)
        return f"The key budget for a target over the one for exact recovery, median over {len(self.sizes)} cells: {said}."

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it."""
        return [cell.to_row() | {"over_exact": self.ratio((cell.items, cell.d_model), cell.target)} for cell in self.budgets]


def target_costs_info(found: Measured) -> TargetCosts:
    """Cells by m and d, targets ascending."""
    budgets = sorted(found.cells, key=lambda c: (c.items, -c.d_model, c.target))
    sizes = tuple(dict.fromkeys((c.items, c.d_model) for c in budgets))
    return TargetCosts(sizes, tuple(sorted({c.target for c in budgets})), tuple(budgets))


def _sorted(found: Measured) -> list[Cell]:
    return sorted(found.at(TARGET), key=lambda c: (c.items, c.d_model))
