"""The design law: a planted one is found again, its interval misses as often as it says, and what is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.files.refusals import refused

from keyspan.evidence.cells import Cell
from keyspan.evidence.design_law import DesignLaw, Size, fit_design, heads_tried, score, usable, whole
from keyspan.seeds import Stream
from keyspan.theory.gardner import gardner_budget

THETA = (0.5, -0.3, 0.9)
SIZES = [(m, d) for m in (48, 64, 96, 128, 192, 256) for d in (24, 32, 48, 64)]


@cache
def planted(noise: float, draw: int = 0, edges: tuple[int, ...] = (1, 2, 3)) -> tuple[Cell, ...]:
    """Cells whose D_K* obeys a law, but for noise in its logarithm."""
    stream, cells = Stream("planted", "noise", draw).normal((len(SIZES), len(edges))), []
    for (items, d), errors in zip(SIZES, stream, strict=True):
        for k, error in zip(edges, errors, strict=True):
            size = Size(items, d, k * items)
            known = {h: g for h in heads_tried(items) if (g := gardner_budget(k * items, items, d, h)) is not None}
            off = math.exp(noise * float(error))
            at = {h: off * g * math.exp(float(np.dot(size.features(g), THETA))) for h, g in known.items()}
            if at:
                budget, heads = min((whole(h, x), h) for h, x in at.items())
                cells.append(Cell(items=items, d_model=d, edges=k * items, key_budget=budget, heads=heads, evidence=f"{size}"))
    return tuple(cells)


def test_a_planted_law_is_found() -> None:
    law = fit_design(planted(0.0), "here")
    assert law.cells == len(planted(0.0)) and law.sizes == len(SIZES) and law.error < 0.05
    found = law.expected(Size(128, 32, 128))
    assert found is not None and found.out_of_range == () and found.low <= found.estimate <= found.high
    one = next(c for c in planted(0.0) if (c.items, c.d_model, c.edges) == (128, 32, 128))
    assert found.estimate == pytest.approx(one.key_budget, rel=0.1)
    np.testing.assert_allclose(law.theta, THETA, atol=0.12)


def test_its_interval_misses_as_often_as_it_says() -> None:
    law, inside, wide = fit_design(planted(0.15), "here"), [], []
    for draw in (1, 2, 3):
        for cell in planted(0.15, draw):
            found = law.expected(Size(cell.items, cell.d_model, cell.edges))
            assert found is not None and cell.key_budget is not None
            inside.append(found.low <= cell.key_budget <= found.high)
            wide.append(found.high / found.low)
    assert 0.85 <= np.mean(inside) <= 0.97 and np.median(wide) < 2
    assert 0.8 <= law.covered <= 1 and 0.03 < law.error < 0.2


def test_it_is_less_sure_far_away() -> None:
    law = fit_design(planted(0.15), "here")
    near, far = (law.spread(size) for size in (Size(96, 32, 192), Size(2**20, 4096, 2**20)))
    assert far[0] < near[0] < 1 < near[1] < far[1]
    assert law.outside(Size(96, 32, 192)) == () and set(law.outside(Size(2**20, 4096, 2**20))) >= {"items", "d_model"}
    slack = law.spread(Size(96, 32, 192), slack=0.5)
    assert slack[0] < near[0] and slack[1] > near[1]


@given(budget=st.integers(1, 200), size=st.sampled_from(SIZES), k=st.integers(1, 3), s=st.floats(-1, 1))
def test_scores_say_when_a_cell_is_reached(budget: int, size: tuple[int, int], k: int, s: float) -> None:
    items, d = size
    law = fit_design(planted(0.15), "here")
    cell = Cell(items=items, d_model=d, edges=k * items, key_budget=budget, heads=1)
    at = {h: x for h in heads_tried(items) if (x := law.need(Size(items, d, k * items), h)) is not None}
    if not at:
        return
    found, u = score(cell, np.array(law.theta), np.array(law.gram)), math.log(law.spread(Size(items, d, k * items))[1]) / law.up
    down = min(whole(h, x * math.exp(-s)) for h, x in at.items())
    up = min(whole(h, x * math.exp(s)) for h, x in at.items())
    if abs(s - found.down * u) > 1e-6:
        assert (down <= budget) == (s >= found.down * u)
    if abs(s - found.up * u) > 1e-6:
        assert (up >= budget) == (s >= found.up * u)


def test_a_law_survives_a_file() -> None:
    law = fit_design(planted(0.15), "here")
    data = json.loads(json.dumps(law.to_dict(), allow_nan=False))
    assert DesignLaw.from_json(data, "x") == law
    wrong: list[dict[str, Any]] = [{"version": 0}, {"theta": [1]}, {"gram": [[0] * 3] * 3}, {"up": "a"}, {"ranges": {}}]
    for broken in wrong:
        refused(partial(DesignLaw.from_json, data | broken, "x.json"), "x.json", "keyspan fit design")


def test_which_cells_count() -> None:
    cells = planted(0.15)
    (one, *_) = cells
    others = [
        replace(one, key_budget=None, heads=None),
        replace(one, embeddings="sign"),
        replace(one, heads=1, most_heads=1),
        replace(one, heads=64, key_budget=64, items=4096, edges=4096, d_model=8),
    ]
    assert usable(one) is None and all(usable(c) is not None for c in others)
    assert fit_design([*cells, *others], "here").cells == len(cells)
    refused(lambda: fit_design(cells[:5], "here"), "12", "5")
    refused(lambda: fit_design([replace(c, items=64, d_model=32) for c in cells if c.edges == 64] * 12, "here"), "sizes")
    refused(lambda: fit_design([*cells, replace(one, recipe="hinge")], "here"), "one recipe")


def test_a_power_laws_hub_is_known_by_its_name() -> None:
    hub = Size(128, 32, 256, degree=47)
    law = fit_design(planted(0.15), "here")
    assert law.need(hub, 1) is None and law.need(hub, 2) is None and law.need(hub, 4) is not None
    assert law.need(Size(128, 32, 256), 2) is not None
