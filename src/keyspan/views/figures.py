"""Figures in two steps: `*_info` computes a small tuple of data that a test can check, `draw_*` only draws it.

Conventions: theory is dashed, what was trained is solid with markers, intervals always; colours are Okabe and Ito's,
which colour-blind readers tell apart, and every line has its own marker.
"""

from __future__ import annotations

import csv
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from keyspan.errors import BadInput
from keyspan.files.paths import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
WIDTHS = {"column": 3.3, "page": 6.8}


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

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        lines = ", ".join(str(h) for h in sorted({p.heads for p in self.points}))
        found = f"The smallest budget that meets {self.target} is {self.capacity}." if self.capacity else "None does."
        return f"F1 against total key dimension for {lines} heads; {self.title}. The law is at {self.law:.1f}. {found}"

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
    """Mean and its 95% Student interval, kept within [0, 1]; no interval for a single value."""
    from scipy.special import stdtrit

    n = len(values)
    mean = sum(values) / n
    if n < 2:
        return mean, None, None
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)
    half = float(stdtrit(n - 1, 0.975)) * deviation
    return mean, max(0.0, mean - half), min(1.0, mean + half)


def threshold_curves_info(result: Mapping[str, Any]) -> ThresholdCurves:
    """From the JSON of `measure relations` to the data of the figure."""
    score = "f1" if result["threshold"] == "own" else "f1_best"
    cells: dict[tuple[int, int], list[float]] = {}
    for probe in result["probes"]:
        if probe[score] is not None:
            cells.setdefault((probe["heads"], probe["key_budget"]), []).append(probe[score])
    points = tuple(CurvePoint(h, b, *mean_interval(v), len(v)) for (h, b), v in sorted(cells.items()))
    problem = result["problem"]
    title = f"{problem['graph']['name']} on {problem['items']} items, d_model {problem['d_model']}"
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
    axes.axvline(info.law, color="black", linestyle="--", linewidth=1, label=r"law $m'\ln m'/d$")
    axes.axhline(info.target, color="grey", linestyle=":", linewidth=0.8)
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


class Info(Protocol):
    """The data of a figure: rows for the CSV beside it, and the figure in words."""

    @property
    def alt_text(self) -> str: ...
    def rows(self) -> list[dict[str, Any]]: ...


Drawn = TypeVar("Drawn", bound=Info)


def save(info: Drawn, draw: Callable[[Drawn, Axes], None], path: Path, width: str = "page") -> list[Path]:
    """Write PATH.svg, PATH.png and PATH.csv, with the same bytes for the same data. returns: the paths"""
    size = WIDTHS[width]
    return save_panels(info, lambda data, axes: draw(data, axes[0]), path, size=(size, size * 0.5))


def save_panels(
    info: Drawn,
    draw: Callable[[Drawn, list[Axes]], None],
    path: Path,
    *,
    size: tuple[float, float],
    panels: int = 1,
) -> list[Path]:
    """`save`, with so many panels in a row and a size in inches. draw: is given the axes of all panels"""
    with _without_advice():
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    stem = path.with_suffix("") if path.suffix in (".svg", ".png", ".csv", ".pdf") else path
    if stem.is_dir():
        raise BadInput(f"`--figure` must be a file name, but got the folder {stem}. Name a file in it.")
    stem.parent.mkdir(parents=True, exist_ok=True)
    style: Any = {"svg.hashsalt": "keyspan", "svg.fonttype": "none", "font.size": 8}
    style |= {"axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(style)
        figure: Figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        draw(info, [figure.add_subplot(1, panels, k + 1) for k in range(panels)])
        written = [_with_suffix(stem, ".svg"), _with_suffix(stem, ".png"), _with_suffix(stem, ".csv")]
        with replacing(written[0]) as handle:
            figure.savefig(handle, format="svg", metadata={"Date": None, "Description": info.alt_text})
        with replacing(written[1]) as handle:
            figure.savefig(handle, format="png", dpi=200, metadata={"Software": None, "Description": info.alt_text})
    _write_csv(written[2], info.rows())
    return written


@contextmanager
def _without_advice() -> Iterator[None]:
    """Matplotlib advises at length where its cache cannot be kept, as in a home that is read-only. It draws all the same."""
    log = logging.getLogger("matplotlib")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _with_suffix(stem: Path, suffix: str) -> Path:
    return stem.with_name(stem.name + suffix)


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    temporary = path.with_name(path.name + ".part")
    with open(temporary, "w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, list(rows[0]) if rows else ["heads"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(temporary, path)
