"""Figures do not change by accident: their data to the last digit, their pictures to a tenth of a point.

`python -m tests.golden.test_figures` writes the files anew, to be looked at and committed when a change is meant.
"""

from __future__ import annotations

import csv
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.views.test_adler import measured
from tests.views.test_bits import ROWS
from tests.views.test_figures import result

from keyspan.views.adler_draw import DRAWINGS
from keyspan.views.bits import save_bits
from keyspan.views.drawings import draw_figure
from keyspan.views.figures import draw_threshold_curves, save, threshold_curves_info

GOLDEN = Path(__file__).parent / "figures"
FIGURES: dict[str, Callable[[Path], object]] = {
    "curves": lambda to: save(threshold_curves_info(result()), draw_threshold_curves, to / "curves"),
    "curves-column": lambda to: save(threshold_curves_info(result()), draw_threshold_curves, to / "curves", width="column"),
    "adler-fig3": lambda to: draw_figure(DRAWINGS["fig3"].info(measured("fig3")), "fig3", to, "adler"),
    "bits": lambda to: save_bits(ROWS, to / "bits"),
}


def picture(path: Path) -> list[str]:
    """What is in an SVG, element by element, with its numbers to a tenth of a point."""
    drop = ("{http://www.w3.org/2000/svg}metadata", "{http://www.w3.org/2000/svg}style")
    root = ElementTree.fromstring(path.read_text("utf-8"))
    for parent in list(root.iter()):
        for child in [c for c in parent if c.tag in drop]:
            parent.remove(child)
    words = (f"{e.tag} {sorted(e.attrib.items())} {(e.text or '').strip()}" for e in root.iter())
    return [re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}", line) for line in words]


@pytest.mark.parametrize("name", FIGURES)
def test_the_picture(name: str, tmp_path: Path) -> None:
    FIGURES[name](tmp_path)
    assert picture(tmp_path / f"{name}.svg") == picture(GOLDEN / f"{name}.svg")


@pytest.mark.parametrize("name", [name for name in FIGURES if "column" not in name])
def test_the_data(name: str, tmp_path: Path) -> None:
    FIGURES[name](tmp_path)
    new, old = ((folder / f"{name}.csv").read_text("utf-8") for folder in (tmp_path, GOLDEN))
    for row, known in zip(csv.reader(new.splitlines()), csv.reader(old.splitlines()), strict=True):
        for cell, was in zip(row, known, strict=True):
            assert cell == was or float(cell) == pytest.approx(float(was), rel=1e-12)


def test_a_change_would_be_seen(tmp_path: Path) -> None:
    moved = (GOLDEN / "curves.svg").read_text("utf-8").replace("F1", "F2", 1)
    (tmp_path / "moved.svg").write_text(moved, "utf-8")
    assert picture(tmp_path / "moved.svg") != picture(GOLDEN / "curves.svg")


if __name__ == "__main__":
    for make in FIGURES.values():
        make(GOLDEN)
    for path in GOLDEN.iterdir():
        if path.suffix not in (".svg", ".csv") or path.name == "curves-column.csv":
            path.unlink()
    sys.stdout.write(f"wrote {GOLDEN}\n")
