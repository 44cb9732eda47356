"""Every problem on one axis: bits stored per parameter, against parameters, beside what is proven possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keyspan.evidence.bits import BitsRow
from keyspan.theory.bits import MARKS, Mark
from keyspan.views.figures import COLOURS, MARKERS
from keyspan.views.pictures import save_panels, svg_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (6.8, 3.6)
ORDER = ("relations", "labels", "sequences", "dichotomies")  # each problem keeps its colour and marker
NAMES = {"dichotomies": "random labels, linear unit"}


@dataclass(frozen=True)
class BitsFigure:
    """Cells of all problems, each at its best level, and marks that are known from elsewhere."""

    rows_: tuple[BitsRow, ...]
    marks: tuple[Mark, ...]

    @property
    def problems(self) -> list[str]:
        """The families there are, in an order that never changes."""
        found = {row.problem for row in self.rows_}
        return [p for p in ORDER if p in found] + sorted(found - set(ORDER))

    def of(self, problem: str) -> list[BitsRow]:
        """The cells of a problem, by parameters."""
        return sorted((r for r in self.rows_ if r.problem == problem), key=lambda r: (r.parameters, r.per_parameter))

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        best = [(p, max(self.of(p), key=lambda r: r.per_parameter)) for p in self.problems]
        said = "; ".join(f"{p}: at most {row.per_parameter:.2f} ({row.cell}, bound {row.bound:.1f})" for p, row in best)
        marks = ", ".join(f"{m.value:.2g} ({m.name})" for m in self.marks)
        return (
            f"Bits stored per parameter in {len(self.rows_)} cells. {said or 'Nothing is measured'}. Known elsewhere: {marks}."
        )

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it."""
        return [row.to_dict() for row in self.rows_]


def bits_info(rows: Sequence[BitsRow]) -> BitsFigure:
    """The cells of a store, and the marks of theory and of others."""
    return BitsFigure(tuple(rows), MARKS)


def draw_bits(info: BitsFigure, axes: list[Axes]) -> None:
    """Cells with intervals, a dash above each for what is proven possible there; what others found, thin lines."""
    (ax,) = axes
    for problem in info.problems:
        k = ORDER.index(problem) if problem in ORDER else len(ORDER) + sorted(set(info.problems) - set(ORDER)).index(problem)
        colour, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
        cells = info.of(problem)
        below = [r.per_parameter - (r.per_parameter if r.low is None else r.low) for r in cells]
        above = [(r.per_parameter if r.high is None else r.high) - r.per_parameter for r in cells]
        name = NAMES.get(problem, problem)
        x, y = [r.parameters for r in cells], [r.per_parameter for r in cells]
        style: Any = {"color": colour, "marker": marker, "markersize": 4, "linestyle": "none", "capsize": 2, "elinewidth": 0.8}
        ax.errorbar(x, y, yerr=[below, above], label=f"{name}, measured", **style)
        ax.plot(
            x, [r.bound for r in cells], color=colour, marker="_", markersize=8, linestyle="none", label=f"{name}, proven bound"
        )
    for mark in info.marks:
        ax.axhline(mark.value, color="grey", linewidth=0.6, zorder=0)
        ax.annotate(
            f"{mark.value:.2g} {mark.name}", (1, mark.value), xycoords=("axes fraction", "data"), xytext=(-2, 1),
            textcoords="offset points", ha="right", fontsize=6, color="#444444",
        )  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,g}")
    ax.set_xlabel("parameters trained")
    ax.set_ylabel("bits stored per parameter")
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        ax.legend(handles, labels, fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))


def save_bits(rows: Sequence[BitsRow], path: Path, width: str = "page") -> list[Path]:
    """Write the figure and its data. returns: the paths"""
    return save_panels(bits_info(rows), draw_bits, path, size=SIZE, width=width)


def bits_svg(rows: Sequence[BitsRow]) -> str:
    """The figure as an element of a page."""
    return svg_text(bits_info(rows), draw_bits, size=SIZE, prefix="bits-")
