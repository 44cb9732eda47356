"""The figures beyond Adler's: their data are exact, and they are drawn whatever was or was not measured."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from tests.papers.made import cell
from tests.papers.test_beyond import BASE, compared, curve, graph_lines, line

from keyspan.evidence.cells import read_cells
from keyspan.papers import beyond as sweeps
from keyspan.papers.compared import Compared
from keyspan.theory.bounds import law
from keyspan.views import beyond, drawings
from keyspan.views.beyond_draw import DRAWINGS

CURVES = [
    curve(sweeps.AT_ONCE, {(1, 4): {"f1": (0.5, 0.7)}, (1, 8): {"f1": (1.0, 1.0)}}),
    curve("4 batches", {(1, 4): {"f1": (0.2, 0.4), "learned": (0.9, 0.9), "retained": (0.3, 0.3), "forgotten": (0.8, 0.6)}}),
]
SEARCHES = [line(sweeps.AT_ONCE, cell(64, 32, 8)), line("4 batches, replay", cell(64, 32, None))]


def measured(name: str) -> Compared:
    """Every figure, with what it would be given."""
    if name == "graphs":
        return compared(name, graph_lines(lambda edges, d, kind: 20 * law(edges, d)))
    if name == "embeddings":
        return compared(name, [line("gaussian", cell(128, 32, 20)), line("sign", cell(128, 32, 22, low=20, high=24))])
    if name == "contexts":
        return compared(name, [line(sweeps.WHOLE, cell(128, 32, 20)), line("1/2", cell(128, 32, None))])
    if name == "typed":
        return compared(name, [line(sweeps.ONE_TYPE, cell(64, 32, 8)), line("2 types, partitioned", cell(64, 32, 18))])
    return compared(name, SEARCHES, CURVES)


def test_every_figure_has_a_drawing() -> None:
    assert set(DRAWINGS) == set(sweeps.figures())
    assert all(drawings.drawing_of("adler", name) is DRAWINGS[name] for name in DRAWINGS)


@pytest.mark.parametrize("name", DRAWINGS)
def test_figures_are_drawn_with_their_data(name: str, tmp_path: Path) -> None:
    info = DRAWINGS[name].info(measured(name))
    files = drawings.draw_figure(info, name, tmp_path, "adler")
    assert [path.name for path in files] == [f"adler-{name}.{kind}" for kind in ("svg", "png", "csv", "pdf")]
    assert all(path.stat().st_size > 100 for path in files)
    with files[2].open() as handle:
        assert len(list(csv.DictReader(handle))) == len(info.rows()) > 0
    title, columns, rows = info.printed()
    assert title and rows and all(len(row) == len(columns) for row in rows)
    assert info.alt_text.endswith(".") and isinstance(info.facts(), dict)


@pytest.mark.parametrize("name", DRAWINGS)
def test_nothing_reached_is_drawn_too(name: str, tmp_path: Path) -> None:
    base = BASE[name]
    curves = [curve(base, {(1, 4): {}})] if name == "continual" else []
    found = compared(name, [line(base, cell(64, 32, None))], curves)
    assert len(drawings.draw_figure(DRAWINGS[name].info(found), name, tmp_path, "adler")) == 4


def test_the_graphs_can_be_fitted(tmp_path: Path) -> None:
    """The CSV beside the figure is one that `fit law --from` reads."""
    info = beyond.graphs_info(measured("graphs"))
    files = drawings.draw_figure(info, "graphs", tmp_path, "adler")
    assert [c.key_budget for c in read_cells(files[2])] == [x.cell.key_budget for x in info.lines]
    assert info.facts()["fits"][0]["parameters"]["c"]["estimate"] == pytest.approx(20, rel=0.01)
    assert info.exponent == pytest.approx(1, abs=0.01) and "slope 19.99" in info.alt_text


def test_incoherence_stands_beside_the_ratio() -> None:
    info = beyond.embeddings_info(measured("embeddings"))
    assert info.scaled("sign", (128, 32)) == pytest.approx((1.1, 1.0, 1.2))
    sign = info.facts()["over_base"][1]
    assert sign["ratio"] == pytest.approx(1.1) and 0.9 < sign["leak_ratio"] < 1.1 and 0.4 < sign["coherence"] < 1
    assert info.rows()[1]["leak_ratio_whitened"] == sign["leak_ratio_whitened"]


def test_what_was_forgotten_with_its_spread() -> None:
    info = beyond.continual_info(measured("continual"))
    ((budget, mean, low, high),) = info.line(CURVES[1], "forgotten")
    assert (budget, low, high) == (4, 0.6, 0.8) and mean == pytest.approx(0.7)
    assert info.line(CURVES[0], "forgotten") == [] and [c.label for c in info.of((64, 32))] == [c.label for c in CURVES]
    assert "4 batches, m 64, d 32: 0.70 at D_K 4" in info.alt_text and "not reached" in info.alt_text
    searched = [row for row in info.rows() if row["searched"]]
    assert [row["key_budget"] for row in searched] == [8, None] and len(info.rows()) == 5
