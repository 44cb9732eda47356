"""Pictures: two widths, four files, the same bytes; legends fold away where there is no room; ids that can share a page."""

from __future__ import annotations

import re
import struct
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from tests.files.refusals import refused
from tests.views.test_adler import DRAWINGS as ADLER
from tests.views.test_adler import measured
from tests.views.test_beyond import measured as measured_beyond
from tests.views.test_figures import result

from keyspan.views import pictures
from keyspan.views.adler_draw import DRAWINGS
from keyspan.views.beyond_draw import DRAWINGS as BEYOND
from keyspan.views.drawings import draw_figure, svg_of
from keyspan.views.figures import draw_threshold_curves, save, threshold_curves_info


@dataclass(frozen=True)
class Lines:
    """A figure of a few labelled lines."""

    count: int = 3
    alt_text: str = 'Lines of "every" kind & more.'

    def rows(self) -> list[dict[str, Any]]:
        return [{"line": k} for k in range(self.count)]


def draw(info: Lines, axes: list[Axes]) -> None:
    for ax in axes:
        for k in range(info.count):
            ax.errorbar([0, 1], [k, k + 1], yerr=[0.1, 0.1], marker="o", label=f"line {k}")
        ax.set_title("A title that is much longer than a column of a paper is wide, $D_K^*$ and all")
        ax.set_ylabel("a label of the ordinate that is longer than the axis is high, by far")
        ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def inches(svg: Path) -> tuple[float, float]:
    root = ElementTree.fromstring(svg.read_text())
    return float(str(root.get("width")).removesuffix("pt")) / 72, float(str(root.get("height")).removesuffix("pt")) / 72


@pytest.mark.parametrize("width, wide", [("page", 6.8), ("column", 3.3)])
@pytest.mark.parametrize("panels", [1, 2, 3])
def test_there_are_two_widths(width: str, wide: float, panels: int, tmp_path: Path) -> None:
    files = pictures.save_panels(Lines(), draw, tmp_path / "lines", size=(9.0, 3.0), panels=panels, width=width)
    stem = "lines" if width == "page" else "lines-column"
    assert [f.name for f in files] == [f"{stem}{s}" for s in (".svg", ".png", ".csv", ".pdf")]
    assert inches(files[0])[0] == pytest.approx(wide)
    columns = struct.unpack(">I", files[1].read_bytes()[16:20])[0]
    assert columns == pytest.approx(200 * wide, abs=1)
    (box,) = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) [\d.]+ \]", files[3].read_bytes())
    assert float(box) == pytest.approx(72 * wide)
    assert inches(files[0])[1] > inches(files[0])[0] * (0.3 if width == "page" else 0.6 * panels)


@pytest.mark.parametrize("name", [*ADLER, *BEYOND])
def test_every_figure_has_a_column(name: str, tmp_path: Path) -> None:
    found = measured(name) if name in ADLER else measured_beyond(name)
    files = draw_figure(DRAWINGS[name].info(found), name, tmp_path, "adler", "column")
    assert files[0].name == f"adler-{name}-column.svg" and inches(files[0])[0] == pytest.approx(3.3)


def figure(size: tuple[float, float], panels: int, width: str) -> Any:
    with pictures._drawn(Lines(), draw, size, panels, width) as made:
        return made


def test_a_legend_stays_where_there_is_room() -> None:
    made = figure((6.8, 3.0), 1, "page")
    assert not made.legends and made.axes[0].get_legend() is not None


def test_one_legend_goes_below_the_figure_with_its_markers() -> None:
    made = figure((6.8, 3.0), 1, "column")
    (legend,) = made.legends
    assert [t.get_text() for t in legend.get_texts()] == ["line 0", "line 1", "line 2"]
    assert made.axes[0].get_legend() is None
    assert len(legend.legend_handles) == 3


def test_several_legends_stay_with_their_axes() -> None:
    made = figure((9.0, 3.0), 2, "page")
    assert not made.legends and all(axes.get_legend() is not None for axes in made.axes)
    made.canvas.draw()
    for axes in made.axes:
        below = axes.get_legend().get_window_extent()
        assert below.y1 <= axes.xaxis.get_tightbbox(made.canvas.get_renderer()).y0 + 1  # nothing is covered


def test_long_titles_are_broken() -> None:
    made = figure((6.8, 3.0), 1, "column")
    assert "\n" in made.axes[0].get_title() and "\n" in made.axes[0].get_ylabel() and "$D_K^*$" in made.axes[0].get_title()


def test_an_element_for_a_page() -> None:
    one, two = (pictures.svg_text(Lines(), draw, size=(6.8, 3.0), prefix=p) for p in ("a-", "b-"))
    assert one.startswith("<svg") and one.rstrip().endswith("</svg>") and "<?xml" not in one and "metadata" not in one
    root = ElementTree.fromstring(one)
    assert root.get("role") == "img" and root.get("aria-label") == Lines().alt_text
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (one, two)]
    assert ids[0] and not ids[0] & ids[1] and all(name.startswith("a-") for name in ids[0])
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', one))
    assert used and used <= ids[0]
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]+"', "", one)


def test_a_papers_figure_for_a_page() -> None:
    text = svg_of(DRAWINGS["fig3"].info(measured("fig3")), "fig3", "adler")
    assert text.startswith("<svg") and 'id="adler-fig3-' in text


def test_another_width_is_refused(tmp_path: Path) -> None:
    refused(lambda: save(threshold_curves_info(result()), draw_threshold_curves, tmp_path / "a", width="wall"), "page")
