"""What `design` answers: the cells that were measured, the fields of the surface, the order of its bounds, refusals."""

import json
import math
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.files.refusals import refused

from keyspan.advice.choosing import Limits
from keyspan.advice.design import Design, design
from keyspan.advice.rows import rows_of
from keyspan.problems import graphs
from keyspan.seeds import Stream

SURFACE = {"key_budget", "heads", "d_key", "parameters", "bits_per_parameter", "basis", "alternatives"}


@pytest.mark.parametrize("items, d_model, trained", [(512, 64, 66), (256, 32, 72), (128, 128, 4), (128, 16, 72)])
def test_the_measured_cells(items: int, d_model: int, trained: int) -> None:
    """D_K* of channels trained on an H200 (benchmarks/results), the larger ones far outside the cells of the fit."""
    answer = design(items=items, d_model=d_model)
    assert answer.key_budget.low <= trained <= answer.key_budget.high
    assert answer.key_budget.construction == answer.edges == items
    assert answer.parameters == answer.cost.parameters == 2 * d_model * answer.heads * answer.d_key
    assert answer.bits_per_parameter == pytest.approx(math.lgamma(items + 1) / math.log(2) / answer.parameters)


def test_a_measured_size_is_said() -> None:
    answer = design(items=128, d_model=32)
    assert answer.basis == "measured" and answer.measured is not None
    assert answer.measured.key_budget == 16 and answer.measured.seeds == 3 and answer.measured.graph == "permutation"
    assert answer.law.out_of_range == () and answer.notes == ()
    far = design(items=4096, d_model=128)
    assert far.basis == "law" and "items" in far.law.out_of_range and far.measured is None
    assert "extrapolated" in far.interval_basis and any("extrapolated" in note for note in far.notes)


def test_heads_grow_with_the_load() -> None:
    assert [design(items=m, d_model=32).heads for m in (32, 64)] == [1, 1]
    loads = [design(items=m, d_model=32).heads for m in (64, 256, 512)]
    assert loads == sorted(loads) and loads[-1] >= 8


def test_a_hub_asks_for_heads() -> None:
    """Measured at 128 items in 64 dimensions: the hub of a power law of 256 edges wants two heads, a regular graph one."""
    rows = np.array([[0, j] for j in range(47)] + [[i, i] for i in range(1, 128)])
    assert (design(items=128, d_model=32, edge_list=rows).heads, design(items=128, d_model=32, edges=len(rows)).heads) == (4, 2)
    assert design(items=128, d_model=64, graph=graphs.regular(2)).heads == 1


def test_what_fixes_a_design() -> None:
    free = design(items=1024, d_model=64)
    tied = design(items=1024, d_model=64, limits=Limits(heads_multiple_of=6, d_key_multiple_of=16))
    assert tied.heads % 6 == 0 and tied.d_key % 16 == 0 and tied.cost.key_budget >= tied.key_budget.estimate
    assert tied.key_budget == replace(free.key_budget, lower_bound=tied.key_budget.lower_bound)
    chosen = design(items=1024, d_model=64, limits=Limits(d_keys=(32, 64)))
    assert chosen.d_key in (32, 64) and {a.d_key for a in chosen.alternatives} <= {32, 64}
    refused(lambda: design(items=1024, d_model=64, limits=Limits(parameters=100)), "--max-parameters", "100")
    refused(lambda: design(items=1024, d_model=64, limits=Limits(cache_bytes=7)), "--cache-bytes", "7")
    refused(lambda: design(items=512, d_model=16, limits=Limits(d_keys=(1,))), "--d-keys", "[1]")
    wrong: list[dict[str, Any]] = [{"gqa_group": 0}, {"key_bytes": -1}, {"d_keys": (0,)}, {"parameters": 1.5}]
    for limit in wrong:
        refused(partial(Limits, **limit), "whole number")


def test_shared_keys() -> None:
    plain, shared = (design(items=1024, d_model=64, limits=Limits(gqa_group=g)) for g in (1, 4))
    assert shared.heads == 4 * shared.kv_heads and plain.kv_heads == plain.heads
    assert shared.cost.cache_bytes == 2 * shared.kv_heads * shared.d_key
    assert shared.cost.parameters == 64 * shared.d_key * (shared.heads + shared.kv_heads)
    assert shared.key_budget.estimate == pytest.approx(1.6 * plain.key_budget.estimate, rel=0.1)
    assert shared.key_budget.low <= plain.key_budget.estimate and any("conjectured" in note for note in shared.notes)


def test_item_vectors_count() -> None:
    draw = Stream("design", "rows").normal((512, 64))
    even, thin = rows_of(draw), rows_of(draw @ np.diag(np.arange(64) < 32))
    leaning = rows_of(draw @ np.diag(np.arange(1, 65) ** -0.5))
    plain = design(items=512, d_model=64)
    assert (even.rank, thin.rank, leaning.rank) == (64, 32, 64) and even.dimension > 60 > leaning.dimension
    assert design(items=512, d_model=64, rows=even).key_budget == pytest.approx(plain.key_budget) or even.factor.value < 1.02
    cut = design(items=512, d_model=64, rows=thin).key_budget
    assert cut.estimate == pytest.approx(design(items=512, d_model=32).key_budget.estimate, rel=0.05)
    more = design(items=512, d_model=64, rows=leaning)
    assert more.key_budget.estimate > plain.key_budget.estimate and any("spread like" in note for note in more.notes)
    for bad in (np.zeros((4, 3)), np.full((4, 3), np.nan), np.ones(5)):
        refused(partial(rows_of, bad), "embeddings")
    refused(lambda: rows_of(np.ones((4, 3)), 5), "--d-model", "3")


def test_another_target_moves_the_budget() -> None:
    budgets = [design(items=128, d_model=32, target=t).key_budget for t in (0.5, 0.9, 0.99, 1.0)]
    estimates = [b.estimate for b in budgets]
    assert estimates == sorted(estimates) and estimates[0] < estimates[-1]
    assert budgets[1].low < budgets[2].low and design(items=64, d_model=32, target=0.1).target == 0.1


def test_json() -> None:
    data = design(items=512, d_model=32).to_dict()
    assert set(data) >= SURFACE
    assert list(data)[:2] == ["schema", "keyspan"]
    assert set(data["key_budget"]) == {"estimate", "low", "high", "lower_bound", "construction"}
    assert data["basis"] in ("law", "measured") and "90% interval" in data["interval_basis"]
    assert set(data["law"]) >= {"fit_id", "cells", "sizes", "error", "covered", "source", "out_of_range"}
    assert set(data["cost"]) >= {"parameters", "flops_per_item", "flops_per_pair", "cache_bytes"}
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
    assert regular.notes[-1] == "the graph's entropy is an asymptotic count, and so is the lower bound"
    assert regular.key_budget.lower_bound < some.key_budget.lower_bound
    assert design(items=64, d_model=32, graph=graphs.permutation()) == design(items=64, d_model=32)
    assert design(items=64, d_model=32, graph=graphs.erdos_renyi(192)).key_budget == some.key_budget


def test_the_edges_of_a_file() -> None:
    rows = np.array([[0, j] for j in range(1, 20)] + [[j, 0] for j in range(1, 6)])
    file = graphs.Graph(name="file", edges=24, content="0" * 64)
    answer = design(items=20, d_model=7, edge_list=rows)
    assert answer == design(items=20, d_model=7, edge_list=rows, graph=file)
    assert answer.bits == graphs.log2_choose(400, 24)
    assert any("19 edges" in note for note in answer.notes)
    spread = np.stack([np.arange(20), (np.arange(20) + 1) % 20], axis=1)
    assert not any("hubs" in note for note in design(items=20, d_model=7, edge_list=spread).notes)


def test_one_head_per_edge_where_that_is_cheapest() -> None:
    answer = design(items=1000, d_model=4)
    assert (answer.heads, answer.d_key, answer.key_budget.estimate) == (1000, 1, 1000)
    assert any("one head per edge" in note for note in answer.notes)
    assert design(items=64, d_model=16, edges=1).key_budget.estimate == 1


def test_more_heads_than_are_tried_is_said() -> None:
    answer = design(items=128, d_model=8)  # 20 heads are needed (conjectured), 16 are tried
    assert (answer.heads, answer.d_key) == (128, 1) and answer.key_budget.high == 128
    assert any("items/8" in note for note in answer.notes)


@st.composite
def designs(draw: st.DrawFn) -> Design:
    items = draw(st.integers(2, 5000))
    edges = draw(st.one_of(st.none(), st.integers(1, min(items**2 - 1, 20 * items)), st.integers(1, items**2 - 1)))
    return design(items=items, d_model=draw(st.integers(1, 1200)), edges=edges)


@given(designs())
def test_bounds_are_in_order(answer: Design) -> None:
    budget = answer.key_budget
    assert 0 <= budget.lower_bound <= budget.low <= budget.estimate <= budget.high <= budget.construction
    assert budget.estimate <= answer.heads * answer.d_key == answer.cost.key_budget <= 2 * budget.estimate
    assert answer.parameters == 2 * answer.d_model * answer.cost.key_budget
    json.dumps(answer.to_dict(), allow_nan=False)


@given(designs())
def test_heads_are_sensible(answer: Design) -> None:
    one_each = answer.heads == answer.edges and answer.d_key == 1
    assert one_each or answer.heads.bit_count() == 1
    assert one_each or answer.heads == 1 or answer.heads <= answer.items / 8
    kinds = [(a.heads, a.d_key) for a in answer.alternatives]
    assert len(kinds) == len(set(kinds)) and (answer.heads, answer.d_key) not in kinds
    for other in answer.alternatives:
        assert other.key_budget == other.heads * other.d_key and other.parameters == 2 * answer.d_model * other.key_budget
        assert not other.feasible or (other.solver_capacity or math.inf) <= other.key_budget
        if other.needed is not None and other.low is not None and other.high is not None:
            assert other.low <= other.needed <= other.high


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
