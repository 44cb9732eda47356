"""How figures of papers are made: their data, their picture, their size. Each paper's drawings are looked up by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keyspan.views.pictures import save_panels, svg_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MODULES = {
    "adler": "keyspan.views.adler_draw",
    "harma": "keyspan.views.harma_draw",
    "mahdavi": "keyspan.views.mahdavi",
    "modern": "keyspan.views.modern",
}  # each has DRAWINGS, by the name of the figure


class Data:
    """What the data of a figure share; `rows` and `alt_text` each has of its own."""

    def facts(self) -> dict[str, Any]:
        """What the figure comes to, in a few numbers."""
        return {}

    def printed(self) -> tuple[str, list[str], list[list[Any]]] | None:
        """A table for the terminal: title, columns, rows. None: the words of `alt_text` do."""
        return None


@dataclass(frozen=True)
class Drawing:
    """How a figure is made: its data, its picture, and how large it is, in inches, given the data."""

    info: Callable[[Any], Any]
    draw: Callable[[Any, list[Axes]], None]
    size: Callable[[Any], tuple[float, float]] = lambda info: (6.8, 3.4)
    panels: Callable[[Any], int] = lambda info: 1


def drawing_of(paper: str, figure: str) -> Drawing:
    """The drawing of a paper's figure."""
    drawings: dict[str, Drawing] = import_module(MODULES[paper]).DRAWINGS
    return drawings[figure]


def draw_figure(info: Any, figure: str, folder: Path, paper: str, width: str = "page") -> list[Path]:
    """Draw one figure to FOLDER/PAPER-NAME.svg, .png, .csv and .pdf. returns: the paths"""
    drawing = drawing_of(paper, figure)
    stem = folder / f"{paper}-{figure}"
    return save_panels(info, drawing.draw, stem, size=drawing.size(info), panels=drawing.panels(info), width=width)


def svg_of(info: Any, figure: str, paper: str) -> str:
    """One figure as an `<svg>` element for a page, its ids the figure's own."""
    drawing = drawing_of(paper, figure)
    parts: dict[str, Any] = {"size": drawing.size(info), "panels": drawing.panels(info)}
    return svg_text(info, drawing.draw, prefix=f"{paper}-{figure}-", **parts)
