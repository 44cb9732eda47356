"""Grids: products, lists, ranges, points and conditions, and what is refused."""

from __future__ import annotations

import time
from typing import Any

import pytest

from keyspan.errors import BadInput
from keyspan.files.documents import parse_toml
from keyspan.runners.grids import Grids, read_grids


def grids(text: str) -> Grids:
    return read_grids(parse_toml(text.encode(), "x.toml"), "x.toml")


def fields(text: str) -> list[dict[str, Any]]:
    return [dict(point.fields) for point in grids(text).points]


def test_a_product_of_lists_and_ranges() -> None:
    found = fields(
        """
        [[grid]]
        heads = [1, 2]
        each.items = [64, 128]
        each.d_model = { from = 16, to = 100, times = 2 }
        each.seeds = { from = 1, to = 7, step = 3 }
        """
    )
    assert len(found) == 2 * 3 * 3
    assert found[0] == {"heads": [1, 2], "items": 64, "d_model": 16, "seeds": 1}
    assert found[-1] == {"heads": [1, 2], "items": 128, "d_model": 64, "seeds": 7}
    assert all(type(f["d_model"]) is int for f in found)


@pytest.mark.parametrize(
    ("range_", "values"),
    [
        ("{ from = 3, to = 3, step = 1 }", [3]),
        ("{ from = 1, to = 1000, times = 10 }", [1, 10, 100, 1000]),
        ("{ from = 0.1, to = 0.5, step = 0.1 }", [0.1, 0.2, 0.30000000000000004, 0.4, 0.5]),
        ("{ from = -2, to = 2, step = 2 }", [-2, 0, 2]),
        ("{ from = 1, to = 3.4, times = 1.5 }", [1, 1.5, 2.25, 3.375]),
        ("[[1, 2], [4]]", [[1, 2], [4]]),
    ],
)
def test_ranges(range_: str, values: list[Any]) -> None:
    assert [f["x"] for f in fields(f"[[grid]]\neach.x = {range_}")] == values


def test_defaults_points_names_and_conditions() -> None:
    found = grids(
        """
        name = "mine"
        [defaults]
        seeds = 5
        recipe = "hinge"
        [[grid]]
        recipe = "gradient"
        points = [{ items = 8, d_model = 4 }, { items = 16, d_model = 8 }, {}]
        each.graph = ["permutation", "regular"]
        where = ["recipe == 'gradient'", "graph != 'regular'"]
        [[grid]]
        family = "dichotomies"
        dimension = 4
        """
    )
    assert found.name == "mine" and found.skipped == 3
    assert [p.fields for p in found.points] == [
        {"seeds": 5, "recipe": "gradient", "items": 8, "d_model": 4, "graph": "permutation"},
        {"seeds": 5, "recipe": "gradient", "items": 16, "d_model": 8, "graph": "permutation"},
        {"seeds": 5, "recipe": "gradient", "graph": "permutation"},
        {"seeds": 5, "recipe": "hinge", "dimension": 4},
    ]
    assert [p.family for p in found.points] == ["relations"] * 3 + ["dichotomies"]
    assert found.points[3].where == "grid[1] of x.toml"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "`grid` of x.toml must fit a sweep"),
        ("grid = []", "`grid` of x.toml"),
        ("grid = 3", "`grid` of x.toml"),
        ("[grid]\nitems = 3", "`grid` of x.toml"),
        ("title = 3\n[[grid]]", "`title` of x.toml"),
        ("name = 3\n[[grid]]", "`name` of x.toml"),
        ("[[grid]]\neach = 3", r"`grid\[0\].each` of x.toml"),
        ("[[grid]]\neach.items = 3", r"`grid\[0\].each.items"),
        ("[[grid]]\neach.items = []", r"a value in grid\[0\] of x.toml, each.items must hold"),
        ("[[grid]]\neach.items = {}", r"`from` of grid\[0\] of x.toml, each.items"),
        ("[[grid]]\neach.items = { from = 1, to = 3 }", "`step` or `times`"),
        ("[[grid]]\neach.items = { from = 1, to = 3, step = 1, times = 2 }", "`step` or `times`"),
        ("[[grid]]\neach.items = { from = 3, to = 1, step = 1 }", "`from <= to`"),
        ("[[grid]]\neach.items = { from = 0, to = 1, times = 2 }", "`from > 0`"),
        ("[[grid]]\neach.items = { from = 1, to = 3, step = 0 }", "`step` of"),
        ("[[grid]]\neach.items = { from = 1, to = 3, times = 1 }", "`times` of"),
        ("[[grid]]\neach.items = { from = 1, to = inf, step = 1 }", "`to` of"),
        ("[[grid]]\neach.items = { from = nan, to = 3, step = 1 }", "`from` of"),
        ('[[grid]]\neach.items = { from = "1", to = 3, step = 1 }', "`from` of"),
        ("[[grid]]\neach.items = { from = 1, to = 3, step = 1, by = 2 }", "`by` of"),
        ("[[grid]]\npoints = [{items = 3}]\neach.items = [3]", "every field once"),
        ("[[grid]]\nwhere = 3", "where"),
        ("[[grid]]\nx = 3\nwhere = 'x > 3'", "has a cell must hold, but got none, 1 left out"),
        ("[[grid]]\nwhere = 'y > 3'", "must name fields"),
        ("[[grid]]\nfamily = 3", "family"),
        ("[[grid]]\neach.x = { from = 0, to = 1e300, step = 1e-300 }", "at most 200000 combinations|must fit"),
        ("[[grid]]\neach.x = { from = 1, to = 1000000000, step = 1 }", "at most 200000 combinations"),
        ("[[grid]]\n" + "".join(f"each.x{i} = [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" for i in range(20)), "at most 200000"),
        ("[[grid]]\neach.x = [1, 2]\n" * 100 + "each.y = { from = 1, to = 190000, step = 1 }", "at most 200000"),
    ],
)
def test_what_is_no_sweep_is_refused_at_once(text: str, says: str) -> None:
    began = time.process_time()
    with pytest.raises(BadInput, match=says) as caught:
        grids(text)
    assert "\n" not in str(caught.value) and ", but got" in str(caught.value)
    assert time.process_time() - began < 3
