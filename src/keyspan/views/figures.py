"""Figures in two steps: `*_info` computes a small tuple of data that a test can check, `draw_*` only draws it.

Conventions: theory is dashed, explicit constructions are dotted, what was trained is solid with markers, intervals always;
colours are Okabe and Ito's, which colour-blind readers tell apart, and every line has its own marker. Writing files is in
`pictures`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keyspan.evidence.intervals import student
from keyspan.problems.relations import Relations
from keyspan.theory.bounds import trivial_budget
from keyspan.views.pictures import WIDTHS, Drawn, save_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "COLOURS", "CONSTRUCTION", "MARKERS", "THEORY", "WIDTHS", "CurvePoint", "ThresholdCurves", "draw_threshold_curves",
    "mean_interval", "save", "save_panels", "threshold_curves_info",
]  # fmt: skip

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
THEORY: Mapping[str, Any] = {"linestyle": "--", "linewidth": 1}
FARTHEST = 1.6  # times what was measured: what lies beyond is said in words, not drawn
CONSTRUCTION: Mapping[str, Any] = {"linestyle": ":", "linewidth": 1.2}


@dataclass(frozen=True)
class CurvePoint:
    """Scores at one number of heads and one key budget. low, high: 95% interval of the mean, None with one seed"""

    heads: int
    key_budget: int
    mean: float
    low: float | None
    high: float | None
    seeds: int


@dataclass(frozen=True)
class ThresholdCurves:
    """F1 against D_K, a line per number of heads (Adler's figure 1), with the law and the measured D_K*."""

    points: tuple[CurvePoint, ...]
    target: float
    law: float
    lower_bound: float
    capacity: int | None
    low: int | None
    high: int | None
    title: str
    threshold: str
    construction: int | None = None  # D_K of the explicit weights that are certain: one head per edge

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        lines = ", ".join(str(h) for h in sorted({p.heads for p in self.points}))
        found = f"The smallest budget that meets {self.target} is {self.capacity}." if self.capacity else "None does."
        certain = f" Explicit weights are certain at {self.construction}." if self.construction else ""
        return (
            f"F1 against total key dimension for {lines} heads; {self.title}. The law is at {self.law:.1f}, the proven lower "
            f"bound at {self.lower_bound:.1f}.{certain} {found}"
        )

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it."""
        return [
            {
                "heads": p.heads,
                "key_budget": p.key_budget,
                "f1": p.mean,
                "low": p.low,
                "high": p.high,
                "seeds": p.seeds,
                "law": self.law,
                "lower_bound": self.lower_bound,
            }
            for p in self.points
        ]


def mean_interval(values: list[float]) -> tuple[float, float | None, float | None]:
    """Mean of fractions and its 95% Student interval, kept within [0, 1]; no interval for a single value."""
    mean, low, high = student(values)
    return mean, None if low is None else max(0.0, low), None if high is None else min(1.0, high)


def threshold_curves_info(result: Mapping[str, Any]) -> ThresholdCurves:
    """From the JSON of `measure relations` to the data of the figure."""
    score = "f1" if result["threshold"] == "own" else "f1_best"
    cells: dict[tuple[int, int], list[float]] = {}
    for probe in result["probes"]:
        if probe[score] is not None:
            cells.setdefault((probe["heads"], probe["key_budget"]), []).append(probe[score])
    points = tuple(CurvePoint(h, b, *mean_interval(v), len(v)) for (h, b), v in sorted(cells.items()))
    problem = Relations.from_json(result["problem"])
    title = f"{problem.graph.name} on {problem.items} items, d_model {problem.d_model}"
    key_budget = result["key_budget"]
    return ThresholdCurves(
        points=points,
        target=result["target"],
        law=result["law"],
        lower_bound=result["lower_bound"],
        capacity=key_budget["estimate"],
        low=key_budget["low"],
        high=key_budget["high"],
        title=title,
        threshold=result["threshold"],
        construction=trivial_budget(problem.edges),
    )


def draw_threshold_curves(info: ThresholdCurves, axes: Axes) -> None:
    """Draw the lines, their intervals, the law, the target and D_K*."""
    for i, heads in enumerate(sorted({p.heads for p in info.points})):
        line = [p for p in info.points if p.heads == heads]
        x, y = [p.key_budget for p in line], [p.mean for p in line]
        below = [p.mean - (p.mean if p.low is None else p.low) for p in line]
        above = [(p.mean if p.high is None else p.high) - p.mean for p in line]
        axes.errorbar(
            x,
            y,
            yerr=[below, above],
            color=COLOURS[i % len(COLOURS)],
            marker=MARKERS[i % len(MARKERS)],
            markersize=4,
            linewidth=1.2,
            capsize=2,
            elinewidth=0.8,
            label=f"{heads} head{'s' if heads > 1 else ''}",
        )
    axes.axvline(info.law, color="black", **THEORY, label="law m′ ln m′ / d")
    axes.axvline(info.lower_bound, color="grey", **THEORY, label="lower bound, proven")
    widest = max((p.key_budget for p in info.points), default=0)
    if info.construction is not None and info.construction <= FARTHEST * max(widest, info.law):
        axes.axvline(info.construction, color="black", **CONSTRUCTION, label="explicit weights, certain")
    axes.axhline(info.target, color="grey", linewidth=0.5)
    if info.capacity is not None:
        high = axes.get_xlim()[1] if info.high is None else info.high  # without an end: to the edge of the picture
        axes.axvspan(info.low or 0, high, color="grey", alpha=0.15, linewidth=0)
        axes.axvline(info.capacity, color="grey", linewidth=1, label=f"$D_K^*$ = {info.capacity}")
    axes.set_xlabel(r"total key dimension $D_K = h\,d_k$")
    axes.set_ylabel("F1" if info.threshold == "own" else "F1 at the best threshold")
    axes.set_ylim(-0.03, 1.04)
    axes.set_xlim(left=0)
    axes.set_title(info.title, fontsize=9)
    axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))


def save(info: Drawn, draw: Callable[[Drawn, Axes], None], path: Path, width: str = "page") -> list[Path]:
    """Write one panel as PATH.svg, .png, .csv and .pdf, half as high as a page is wide. returns: the paths"""
    size = (WIDTHS["page"], WIDTHS["page"] / 2)
    return save_panels(info, lambda data, axes: draw(data, axes[0]), path, size=size, width=width)
