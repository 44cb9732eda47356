"""Adler's figures: their data are exact; every one can be drawn, whatever was or was not measured."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tests.papers.made import cell, curves, found

from keyspan.evidence.cells import read_cells
from keyspan.papers import stages
from keyspan.papers.measured import Measured
from keyspan.theory.bounds import gardner_load, heads_needed, law
from keyspan.views import adler, drawings
from keyspan.views.adler_draw import DRAWINGS as EVERY
from keyspan.views.beyond_draw import DRAWINGS as BEYOND

DRAWINGS = {name: drawing for name, drawing in EVERY.items() if name not in {*BEYOND, *stages.figures()}}
LINES = {1: {8: 0.1, 16: 0.3}, 2: {8: 0.2, 16: 0.6, 32: 1.0}, 4: {16: 0.5, 32: 0.9, 64: 1.0}}
CELLS = [
    cell(64, 64, 4),
    cell(64, 16, 20, 2, low=16, high=24, heads_high=4),
    cell(128, 128, 5),
    cell(128, 64, 9),
    cell(128, 32, 21, heads_high=2),
    cell(128, 16, 64, 8, one_head=None, one_head_low=None, high=None),
    cell(64, 8, None),
]
BUDGETS: dict[tuple[int, int], tuple[int | None, ...]] = {(64, 16): (12, 14, 16, 20), (64, 8): (30, 40, None, None)}
TARGETS = [
    cell(*size, budget, target=target)
    for size, budgets in BUDGETS.items()
    for target, budget in zip((0.9, 0.95, 0.99, 1.0), budgets, strict=True)
]
LEFT_OUT = (((128, 8), "needs 20 heads"),)


def measured(name: str) -> Measured:
    """Every figure, with what it would be given."""
    if name == "fig1":
        return found(name, lines=[curves(64, 16, LINES), curves(128, 16, {1: {8: 0.1}, 2: {8: 0.2}})])
    if name == "fig4":
        return found(name, [cell(64, 8, None), cell(128, 16, 64, 8, high=72), cell(256, 32, 90, 4)])
    return found(name, TARGETS if name == "targets" else CELLS, left_out=LEFT_OUT)


# --- the data ------------------------------------------------------------------------------------------------------


def test_curves_with_their_intervals() -> None:
    points = {2: {16: 0.6}}
    spread = found("fig1", lines=[curves(64, 16, points)])
    one = adler.curve_panels_info(spread).panels[0].points[0]
    assert (one.heads, one.key_budget, one.mean, one.low, one.high, one.seeds) == (2, 16, 0.6, 0.6, 0.6, 5)
    info = adler.curve_panels_info(measured("fig1"))
    assert info.sizes == ((64, 16), (128, 16)) and (info.first(0), info.first(1)) == (32, None)
    assert dict(info.reached[0]) == {1: None, 2: 32, 4: 64}
    assert info.panels[0].law == law(64, 16) and info.panels[0].capacity is None
    assert info.alt_text.endswith("m 64, d 16: 2 heads at 32, 4 heads at 64; m 128, d 16: none.")
    assert {(row["items"], row["heads"], row["key_budget"], row["f1"]) for row in info.rows()} >= {(64, 4, 32, 0.9)}
    assert {"items": 64, "d_model": 16, "heads": 2, "key_budget": 32} in info.facts()["reached"]


def test_heads_with_their_range() -> None:
    info = adler.head_counts_info(measured("fig2"))
    assert [(c.items, c.d_model) for c in info.censored] == [(64, 8)] and len(info.cells) == 6
    row = next(row for row in info.rows() if (row["items"], row["d_model"]) == (64, 16))
    assert (row["heads"], row["heads_low"], row["heads_high"]) == (2, 2, 4)
    assert "6 cells" in info.alt_text and "the most is 8" in info.alt_text


def test_the_law_with_its_fit() -> None:
    info = adler.law_scatter_info(measured("fig3"))
    assert len(info.cells) == 6 and info.fit is not None
    c = info.fit.fit.parameters["c"]
    mean = sum(math.log((x.key_budget or 0) / x.law) for x in info.cells) / 6
    assert c.estimate == pytest.approx(math.exp(mean))
    assert info.summary[0].startswith(f"slope {c.estimate:.2f} [") and info.summary[1].startswith("R²")
    for row in info.rows():
        assert row["fitted"] == pytest.approx(c.estimate * row["law"])
    assert info.facts()["fit_id"] == info.fit.fit_id and "cells" not in info.facts()


def test_too_few_cells_have_no_fit() -> None:
    info = adler.law_scatter_info(found("fig3", CELLS[:3]))
    assert info.fit is None and info.facts() == {} and info.summary == ("too few cells for a fit",)
    assert all(row["fitted"] is None for row in info.rows())


def test_the_diagonal_by_items() -> None:
    info = adler.diagonal_info(measured("fig4"))
    assert [c.items for c in info.cells] == [64, 128, 256]
    assert "m 64: not reached; m 128: D_K 64 with 8 heads" in info.alt_text


def test_the_table() -> None:
    info = adler.cell_table_info(measured("fig5"))
    assert info.items == (64, 128) and info.widths == (8, 16, 32, 64, 128)
    assert info.text(64, 16) == ("20", "[16, 24]", "h = 2") and info.text(64, 8) == ("not", "reached")
    assert info.text(128, 16) == ("64", "[64, ?]", "h = 8")
    assert info.text(128, 8) == ("·",) and info.text(64, 128) == ("",)
    cut = adler.cell_table_info(found("fig5", [cell(128, 16, 64, 8, most_heads=8)]))
    assert cut.text(128, 16)[2] == "h ≥ 8"  # 16 were not tried


def test_the_map_counts() -> None:
    info = adler.head_map_info(measured("map"))
    above = [c for c in CELLS if c.heads and (heads_needed(c.items, c.items, c.d_model) or 99) > 1]
    assert [c.d_model for c in above] == [16, 16]  # (64, 16) and (128, 16)
    assert info.counts == {
        "cells": 6,
        "several_beat_one": 2,
        "beyond_intervals": 2,
        "agree_with_m_above_d": 4,
        "agree_with_gardner_line": 6,
    }
    for m, d in info.line:
        assert gardner_load(int(m), int(m), 1) == pytest.approx(d**2)
    assert info.line[0][0] < 64 and info.line[-1][0] > 128 and info.facts() == info.counts
    by_size = {(row["items"], row["d_model"]): row for row in info.rows()}
    assert by_size[64, 16]["several_beat_one"] is True and by_size[64, 8]["several_beat_one"] is None


def test_what_less_than_exact_saves() -> None:
    info = adler.target_costs_info(measured("targets"))
    assert info.sizes == ((64, 16), (64, 8)) and info.targets == (0.9, 0.95, 0.99, 1.0)
    assert info.ratio((64, 16), 0.9) == pytest.approx(0.6) and info.ratio((64, 8), 0.9) is None  # never exact
    assert info.median_ratio(0.99) == pytest.approx(0.8)
    assert info.facts()["over_exact"][0] == {"target": 0.9, "median": pytest.approx(0.6)}
    assert "F1 0.9: 0.60" in info.alt_text and len(info.rows()) == 8


# --- the files -----------------------------------------------------------------------------------------------------


def draw_figure(found: Measured, folder: Path, paper: str) -> list[Path]:
    return drawings.draw_figure(DRAWINGS[found.figure.name].info(found), found.figure.name, folder, paper)


@pytest.mark.parametrize("name", DRAWINGS)
def test_every_figure_is_drawn(name: str, tmp_path: Path) -> None:
    files = draw_figure(measured(name), tmp_path / "new", "adler")
    assert [path.name for path in files] == [f"adler-{name}.{kind}" for kind in ("svg", "png", "csv", "pdf")]
    info = DRAWINGS[name].info(measured(name))
    assert info.alt_text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") in files[0].read_text()
    with open(files[2], newline="") as handle:
        assert len(list(csv.DictReader(handle))) == len(info.rows()) > 0


@pytest.mark.parametrize("name", [name for name in DRAWINGS if name != "fig1"])
def test_nothing_reached_is_drawn_too(name: str, tmp_path: Path) -> None:
    nothing = found(name, [cell(64, 8, None, target=t) for t in ((0.99, 1.0) if name == "targets" else (0.99,))])
    assert len(draw_figure(nothing, tmp_path, "adler")) == 4


def test_a_failed_curve_is_drawn_too(tmp_path: Path) -> None:
    empty = found("fig1", lines=[curves(64, 16, LINES, seeds=0)])
    assert adler.curve_panels_info(empty).first(0) is None
    assert len(draw_figure(empty, tmp_path, "adler")) == 4


def test_the_table_can_be_fitted(tmp_path: Path) -> None:
    files = draw_figure(measured("fig5"), tmp_path, "adler")
    read = read_cells(files[2])
    assert {(c.items, c.d_model, c.key_budget, c.evidence) for c in read} == {
        (c.items, c.d_model, c.key_budget, c.evidence) for c in CELLS
    }


# --- the picture ---------------------------------------------------------------------------------------------------


def drawn(name: str) -> tuple[Any, Sequence[Axes]]:
    info = DRAWINGS[name].info(measured(name))
    figure = Figure()
    axes = [figure.add_subplot(1, DRAWINGS[name].panels(info), k + 1) for k in range(DRAWINGS[name].panels(info))]
    DRAWINGS[name].draw(info, axes)
    return info, figure.axes


def labels(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    return [text.get_text() for text in legend.get_texts()] if legend else []


def test_fig1_has_one_legend_and_a_panel_a_cell() -> None:
    info, axes = drawn("fig1")
    assert len(axes) == len(info.panels) == 2 and not labels(axes[0])
    assert {"1 head", "2 heads", "4 heads"} <= set(labels(axes[1]))


def test_fig4_has_bars_and_a_line() -> None:
    info, (left, right) = drawn("fig4")
    assert [patch.get_height() for patch in right.patches] == [8, 4]  # type: ignore[attr-defined]
    (line,) = (bars[0] for bars in left.containers)
    assert line.get_ydata().tolist() == [64, 90]
    assert any(text.get_text() == "not reached" for text in left.texts)
    assert len(info.cells) == 3 and {"heads", r"$D_K^*$"} <= set(labels(left))


def test_fig5_writes_every_cell() -> None:
    info, (axes,) = drawn("fig5")
    texts = {text.get_text() for text in axes.texts}
    assert {"\n".join(info.text(c.items, c.d_model)) for c in CELLS} <= texts


def test_the_map_shows_the_predicted_line() -> None:
    info, (axes,) = drawn("map")
    (line,) = (x for x in axes.get_lines() if "predicted" in str(x.get_label()))
    assert list(zip(line.get_xdata(), line.get_ydata(), strict=True)) == list(info.line)  # type: ignore[arg-type]
    assert line.get_linestyle() == "--" and "not reached" in labels(axes)
