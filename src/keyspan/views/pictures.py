"""Figures written: SVG, PDF, PNG and CSV beside each other, at the width of a column (3.3 in) or of a page (6.8 in).

The same data give the same bytes, whatever the user's settings, the day or the machine's time zone. Every picture carries
its words: as a label for screen readers in the SVG, as a description in the others.
"""

from __future__ import annotations

import csv
import io
import logging
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from xml.sax.saxutils import quoteattr

from keyspan.errors import BadInput, require
from keyspan.files.paths import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTHS: Mapping[str, float] = {"column": 3.3, "page": 6.8}
SUFFIXES = (".svg", ".png", ".csv", ".pdf")
ROOMY = 2.0  # inches: a panel narrower than this has no room for a legend beside it
GLUE = "\ue000"  # stands for a space where no line may end
STYLE: Any = {
    "svg.hashsalt": "keyspan",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # outlines that publishers take
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


class Info(Protocol):
    """The data of a figure: rows for the CSV beside it, and the figure in words."""

    @property
    def alt_text(self) -> str: ...
    def rows(self) -> list[dict[str, Any]]: ...


Drawn = TypeVar("Drawn", bound=Info)
Draw = Callable[[Drawn, "list[Axes]"], None]


def save_panels(
    info: Drawn, draw: Draw[Drawn], path: Path, *, size: tuple[float, float], panels: int = 1, width: str = "page"
) -> list[Path]:
    """Write PATH.svg, .png, .csv and .pdf. At the width of a column the names end in `-column`. returns: the paths

    draw: is given the axes of all panels, in a row, or one below the other in a column    size: in inches, as drawn with
    nothing to heed; the width becomes the one that is asked for
    """
    require(width in WIDTHS, f"`width` in {'|'.join(WIDTHS)}", repr(width), "Choose one.")
    stem = path.with_suffix("") if path.suffix in SUFFIXES else path
    if stem.is_dir():
        raise BadInput(f"`--figure` must be a file name, but got the folder {stem}. Name a file in it.")
    stem.parent.mkdir(parents=True, exist_ok=True)
    if width == "column":
        stem = stem.with_name(f"{stem.name}-column")
    written = [stem.with_name(stem.name + suffix) for suffix in SUFFIXES]
    with _drawn(info, draw, size, panels, width) as figure:
        for place, kind in ((written[0], "svg"), (written[1], "png"), (written[3], "pdf")):
            with replacing(place) as handle:
                handle.write(_bytes(figure, kind, info.alt_text))
    _write_csv(written[2], info.rows())
    return written


def svg_text(
    info: Drawn, draw: Draw[Drawn], *, size: tuple[float, float], panels: int = 1, width: str = "page", prefix: str = ""
) -> str:
    """The picture as an `<svg>` element to be put into a page. prefix: of its ids, which must be a page's own"""
    with _drawn(info, draw, size, panels, width) as figure:
        text = _bytes(figure, "svg", info.alt_text).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}\1"', text)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", text)


@contextmanager
def _drawn(info: Any, draw: Any, size: tuple[float, float], panels: int, width: str) -> Iterator[Figure]:
    """The figure, in settings of our own that end with it."""
    with _without_advice():
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

    inches = WIDTHS[width]
    rows, columns = (panels, 1) if width == "column" else (1, panels)
    with _without_advice(), matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure: Figure = Figure(figsize=(inches, _height(size, panels, width)), layout="constrained")
        FigureCanvasAgg(figure)
        draw(info, [figure.add_subplot(rows, columns, k + 1) for k in range(panels)])
        if width == "column" or size[0] > 1.1 * inches or inches / columns < ROOMY:
            _fold(figure, columns)
        _wrap(figure)
        yield figure


def _height(size: tuple[float, float], panels: int, width: str) -> float:
    """Of a page as drawn; of a column, each panel as high as in the page, but no higher than it is wide."""
    if width == "page":
        return size[1]
    return panels * min(size[1], WIDTHS["column"]) + 0.4


def _fold(figure: Figure, columns: int) -> None:
    """Legends that stand beside their axes are put below: one below the figure, several each below its own axes."""
    known = {label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    legends = [(axes, legend) for axes in figure.axes if (legend := axes.get_legend()) is not None]
    for axes, legend in legends:
        labels = [text.get_text() for text in legend.get_texts()]
        legend.remove()
        wide = figure.get_figwidth() / (1 if len(legends) == 1 else columns)
        style: Any = {"ncols": max(1, min(4, round(wide / 1.4))), "fontsize": 6.5, "frameon": False}
        handles = [known[label] for label in labels]
        if len(legends) == 1:
            figure.legend(handles, labels, loc="outside lower center", **style)
        else:
            axes.legend(handles, labels, loc="upper center", **_below(axes), **style)


def _below(axes: Axes) -> dict[str, Any]:
    """Where a legend hangs below an axis with its numbers and its label, whose height does not depend on the layout."""
    from matplotlib.transforms import ScaledTranslation

    figure: Any = axes.figure
    box = axes.xaxis.get_tightbbox(figure.canvas.get_renderer())
    depth = 0.0 if box is None else (axes.get_window_extent().y0 - box.y0) / figure.dpi
    moved = axes.transAxes + ScaledTranslation(0, -depth - 0.05, figure.dpi_scale_trans)
    return {"bbox_to_anchor": (0.5, 0.0), "bbox_transform": moved, "borderaxespad": 0.0}


def _wrap(figure: Figure) -> None:
    """Titles and labels that are longer than their axes are broken into lines."""
    rows = max(1, len({round(axes.get_position().y0, 2) for axes in figure.axes}))
    columns = max(1, len({round(axes.get_position().x0, 2) for axes in figure.axes}))
    width, height = figure.get_figwidth() / columns, figure.get_figheight() / rows
    for axes in figure.axes:
        for text, room in (
            (axes.title, width - 0.4),
            (axes.xaxis.label, width - 0.4),
            (axes.yaxis.label, height - 0.6),
        ):
            letters = max(12, int(room * 125 / float(text.get_fontsize())))
            kept = re.sub(r"\$[^$]*\$", lambda math: math[0].replace(" ", GLUE), text.get_text())  # math is not broken
            lines = [part for line in kept.split("\n") for part in textwrap.wrap(line, letters, break_long_words=False)]
            text.set_text("\n".join(lines).replace(GLUE, " "))


def _bytes(figure: Figure, kind: str, words: str) -> bytes:
    """The figure as a file. No dates, no names of programs: the same data give the same bytes."""
    handle = io.BytesIO()
    if kind == "svg":
        figure.savefig(handle, format="svg", metadata={"Date": None, "Description": words})
        return _labelled(handle.getvalue().decode(), words).encode()
    if kind == "png":
        figure.savefig(handle, format="png", dpi=200, metadata={"Software": None, "Description": words})
    else:
        gone = dict.fromkeys(("CreationDate", "Creator", "Producer"))
        figure.savefig(handle, format="pdf", metadata={**gone, "Subject": words})
    return handle.getvalue()


def _labelled(svg: str, words: str) -> str:
    """The words where a screen reader looks for them."""
    return svg.replace("<svg ", f'<svg role="img" aria-label={quoteattr(words)} ', 1)


@contextmanager
def _without_advice() -> Iterator[None]:
    """Matplotlib advises at length where its cache cannot be kept, as in a home that is read-only, and its fonts are old to
    the package that puts them into a PDF. They draw all the same."""
    logs = [logging.getLogger(name) for name in ("matplotlib", "fontTools")]
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    temporary = path.with_name(path.name + ".part")
    with open(temporary, "w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, list(rows[0]) if rows else ["heads"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(temporary, path)
