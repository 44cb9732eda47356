"""What `design` answers: the cells that were measured, the fields of the surface, the order of its bounds, refusals."""

import json
import math
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.files.refusals import refused

from keyspan.advice.design import Design, design
from keyspan.problems import graphs

SURFACE = {"key_budget", "heads", "d_key", "parameters", "bits_per_parameter", "basis", "alternatives"}


@pytest.mark.parametrize(
    "items, d_model, heads, d_key, estimate, trained",
    [
        # trained: D_K* of the gradient recipe in the five cells that set `low` and `high`
        (512, 64, 2, 25, 50, 48),
        (512, 32, 16, 7, 112, 160),
        (1024, 128, 2, 28, 56, 48),
        (1024, 64, 8, 14, 112, 160),
        (256, 256, 1, 6, 6, 6),
    ],
)
def test_the_measured_cells(items: int, d_model: int, heads: int, d_key: int, estimate: int, trained: int) -> None:
    answer = design(items=items, d_model=d_model)
    assert (answer.heads, answer.d_key, answer.key_budget.estimate) == (heads, d_key, estimate)
    assert answer.key_budget.low <= trained <= answer.key_budget.high
    assert answer.key_budget.construction == answer.edges == items
    assert answer.parameters == 2 * d_model * estimate
    assert answer.bits_per_parameter == pytest.approx(math.lgamma(items + 1) / math.log(2) / answer.parameters)
    assert answer.notes == ()


def test_a_small_narrow_cell() -> None:
    answer = design(items=128, d_model=16)  # trained channels: best with 8 to 16 heads at 48 to 64
    assert (answer.heads, answer.d_key) == (8, 5)
    assert [a.heads for a in answer.alternatives] == [2, 4, 16]  # up to items/8
    assert [a.feasible for a in answer.alternatives] == [False, True, True]
    assert [a.solver_capacity is None for a in answer.alternatives] == [True, False, False]
    assert [(a.d_key, a.key_budget) for a in answer.alternatives] == [(16, 32), (10, 40), (3, 48)]


def test_one_head_where_rows_can_be_orthogonal() -> None:
    assert [design(items=m, d_model=128).heads for m in (64, 128, 129)] == [1, 1, 2]


def test_json() -> None:
    data = design(items=512, d_model=32).to_dict()
    assert set(data) >= SURFACE
    assert list(data)[:2] == ["schema", "keyspan"]
    assert set(data["key_budget"]) == {"estimate", "low", "high", "lower_bound", "construction"}
    assert data["basis"] == "law"
    assert "not a confidence interval" in data["interval_basis"]
    assert data["key_budget"]["lower_bound"] == pytest.approx(3.21, abs=0.01)
    assert {b["status"] for b in data["bounds"]} == {"proven", "measured", "conjectured"}
    for other in data["alternatives"]:
        assert SURFACE - {"basis", "alternatives"} <= set(other)
        assert {"solver_capacity", "feasible"} <= set(other)
    assert json.loads(json.dumps(data, allow_nan=False)) == data


def test_edges_and_graphs() -> None:
    some = design(items=64, d_model=32, edges=192)
    assert (some.edges, some.bits) == (192, graphs.log2_choose(64**2, 192))
    regular = design(items=64, d_model=32, graph=graphs.regular(3))
    assert regular.edges == 192 and regular.bits < some.bits
    assert regular.notes == ("the graph's entropy is an asymptotic count, and so is the lower bound",)
    assert regular.key_budget.lower_bound < some.key_budget.lower_bound
    assert design(items=64, d_model=32, graph=graphs.permutation()) == design(items=64, d_model=32)
    assert design(items=64, d_model=32, graph=graphs.erdos_renyi(192)) == some


def test_the_edges_of_a_file() -> None:
    rows = np.array([[0, j] for j in range(1, 20)] + [[j, 0] for j in range(1, 6)])
    file = graphs.Graph(name="file", edges=24, content="0" * 64)
    answer = design(items=20, d_model=7, edge_list=rows)
    assert answer == design(items=20, d_model=7, edge_list=rows, graph=file)
    assert answer.bits == graphs.log2_choose(400, 24)
    assert any("19 edges" in note for note in answer.notes)
    spread = np.stack([np.arange(20), (np.arange(20) + 1) % 20], axis=1)
    assert design(items=20, d_model=7, edge_list=spread).notes == ()


def test_another_target_is_said_to_change_nothing() -> None:
    usual, other = design(items=64, d_model=8), design(items=64, d_model=8, target=0.9)
    assert other.target == 0.9 and other.key_budget == usual.key_budget
    assert [n for n in other.notes if n not in usual.notes] == [
        "the law carries no dependence on the target yet: this is the answer for 0.99"
    ]


def test_one_head_per_edge_where_that_is_cheapest() -> None:
    answer = design(items=1000, d_model=4)  # the law asks for 1727
    assert (answer.heads, answer.d_key, answer.key_budget.estimate) == (1000, 1, 1000)
    assert any("one head per edge" in note for note in answer.notes)
    assert design(items=64, d_model=16, edges=1).key_budget.estimate == 1


def test_more_heads_than_are_tried_is_said() -> None:
    answer = design(items=128, d_model=8)
    assert answer.heads == 16  # items/8
    assert any("at least 20 heads" in note for note in answer.notes)


@st.composite
def designs(draw: st.DrawFn) -> Design:
    items = draw(st.integers(2, 5000))
    edges = draw(st.one_of(st.none(), st.integers(1, min(items**2 - 1, 20 * items)), st.integers(1, items**2 - 1)))
    return design(items=items, d_model=draw(st.integers(1, 1200)), edges=edges)


@given(designs())
def test_bounds_are_in_order(answer: Design) -> None:
    budget = answer.key_budget
    assert 0 <= budget.lower_bound <= budget.low <= budget.estimate <= budget.high <= budget.construction
    assert budget.estimate == answer.heads * answer.d_key
    assert budget.estimate >= min(answer.edges, answer.edges * math.log(answer.edges) / answer.d_model)
    assert answer.parameters == 2 * answer.d_model * budget.estimate
    json.dumps(answer.to_dict(), allow_nan=False)


@given(designs())
def test_heads_are_sensible(answer: Design) -> None:
    assert 1 <= answer.d_key <= answer.d_model
    one_each = answer.heads == answer.edges and answer.d_key == 1
    assert one_each or answer.heads.bit_count() == 1
    assert one_each or answer.heads == 1 or answer.heads <= answer.items / 8 or answer.d_key > answer.d_model / 4
    heads = [a.heads for a in answer.alternatives]
    assert heads == sorted(set(heads)) and answer.heads not in heads
    for other in answer.alternatives:
        assert other.heads.bit_count() == 1 and answer.heads / 4 <= other.heads <= 4 * answer.heads
        assert other.d_key <= answer.d_model and other.key_budget == other.heads * other.d_key
        assert other.parameters == 2 * answer.d_model * other.key_budget
        assert not other.feasible or (other.solver_capacity or math.inf) <= other.key_budget


@pytest.mark.parametrize(
    "given, mentions",
    [
        ({"items": 1}, ("--items >= 2", "1")),
        ({"items": -5}, ("--items", "-5")),
        ({"items": 2.5}, ("--items", "whole number", "2.5")),
        ({"items": True}, ("--items", "True")),
        ({"items": "many"}, ("--items", "many")),
        ({"items": 2**24 + 1}, ("--items <= 16777216",)),
        ({"d_model": 0}, ("--d-model >= 1", "0")),
        ({"d_model": None}, ("--d-model", "None")),
        ({"d_model": 10**400}, ("--d-model <= 16777216",)),
        ({"edges": 0}, ("--edges >= 1", "0")),
        ({"edges": 169}, ("--edges < 169", "169")),
        ({"edges": 3.0}, ("--edges", "3.0")),
        ({"edges": 5, "graph": graphs.permutation()}, ("--edges", "--graph")),
        ({"edges": 1, "edge_list": [[0, 1]]}, ("--edges", "--graph")),
        ({"graph": "permutation"}, ("graph", "permutation")),
        ({"graph": graphs.regular(12)}, ("--degree <= 6", "12")),
        ({"graph": graphs.erdos_renyi(169)}, ("--edges < 169", "169")),
        ({"edge_list": [[0, 13]]}, ("--items", "13")),
        ({"edge_list": [[0, -1]]}, ("-1",)),
        ({"edge_list": [[0, 1], [0, 1]]}, ("(0, 1)", "twice")),
        ({"edge_list": [[0, 0]], "graph": graphs.erdos_renyi(1, loops=False)}, ("0,0",)),
        ({"edge_list": [[0, 1]], "graph": graphs.Graph(name="file", edges=2, content="0")}, ("2 and 1",)),
        ({"edge_list": np.argwhere(np.ones((13, 13)))}, ("< 169", "169")),
        ({"target": 0}, ("--target", "0")),
        ({"target": 1.01}, ("--target", "1.01")),
        ({"target": math.nan}, ("--target", "nan")),
        ({"target": "0.99"}, ("--target", "'0.99'")),
        ({"target": True}, ("--target", "True")),
    ],
    ids=str,
)
def test_refusals(given: Mapping[str, Any], mentions: tuple[str, ...]) -> None:
    refused(lambda: design(**{"items": 13, "d_model": 7, **given}), *mentions)


@pytest.mark.parametrize("items, d_model", [(512, 64), (2**24, 2**12)])
def test_the_answer_is_instant(items: int, d_model: int) -> None:
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        design(items=items, d_model=d_model).to_dict()
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.05


def test_the_answer_needs_no_torch_and_no_scipy() -> None:
    code = (
        "import sys; from keyspan.advice.design import design; design(items=512, d_model=32).to_dict();"
        "assert not {'torch', 'scipy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
