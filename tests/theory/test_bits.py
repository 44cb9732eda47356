"""Bits: exact where nothing is wrong, less by a code that a decoder could use, and never above what is proven possible."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.files.refusals import refused

from keyspan.problems import graphs
from keyspan.problems.graphs import log2_choose
from keyspan.theory import bits
from keyspan.theory.bounds import warren_budget


def test_an_exact_channel_stores_the_entropy() -> None:
    """The notes' table: a permutation of 256 items at D_K = 10 in 64 dimensions, 1.32 bits a parameter."""
    entropy = graphs.entropy(graphs.permutation(), 256).value
    assert entropy == pytest.approx(1684, abs=0.5)
    assert bits.relation_bits(entropy, 256, 256**2, 1, 1) == entropy
    assert entropy / (2 * 64 * 10) == pytest.approx(1.32, abs=0.005)


def test_errors_cost_a_list_of_corrections() -> None:
    """8 edges of 16 pairs; 6 are found, with 2 false ones: which 2 of 8 claims are false, which 2 of 8 others are missing."""
    stored = bits.relation_bits(20.0, 8, 16, precision=6 / 8, recall=6 / 8)
    assert stored == pytest.approx(20 - 2 * math.log2(28))
    assert bits.relation_bits(9.0, 8, 16, 6 / 8, 6 / 8) == 0  # the list is longer
    assert bits.relation_bits(20.0, 8, 16, 0.0, 0.0) == 0


@given(st.integers(2, 60), st.integers(0, 60), st.integers(0, 200))
def test_a_channel_never_stores_more_than_there_is(edges: int, hits: int, false: int) -> None:
    hits = min(hits, edges)
    pairs = 64 * 64
    precision = hits / (hits + false) if hits else 0.0
    entropy = log2_choose(pairs, edges)
    stored = bits.relation_bits(entropy, edges, pairs, precision, hits / edges)
    assert 0 <= stored <= entropy
    if hits and (false or hits < edges):
        fixes = log2_choose(hits + false, false) + log2_choose(pairs - hits - false, edges - hits)
        assert stored == pytest.approx(max(0.0, entropy - fixes), abs=1e-6)


def test_labels() -> None:
    assert bits.label_bits(500, 100, 1.0) == pytest.approx(500 * math.log2(100))
    one = 500 * math.log2(100) - math.log2(500) - math.log2(99)
    assert bits.label_bits(500, 100, 499 / 500) == pytest.approx(one, abs=1e-6)


@pytest.mark.parametrize("classes", [2, 5, 100])
def test_chance_stores_nothing(classes: int) -> None:
    """The list is within log2 T of the whole, so what is left is no more than that."""
    assert bits.label_bits(1000, classes, 1 / classes) <= math.log2(1000)


def test_sequences() -> None:
    """130 sequences of 14 tokens out of 64 after the prompt, in 5648 parameters: the notes' 1.93."""
    assert bits.recited_bits(130, 14, 6.0) / 5648 == pytest.approx(1.93, abs=0.01)


# --- bounds --------------------------------------------------------------------------------------------------------


def test_the_graph_bound_is_warrens() -> None:
    """As many bits as it allows need just this budget."""
    items, d_model, heads, budget = 512, 64, 2, 28
    parameters = 2 * d_model * budget
    most = bits.graph_bound(parameters, items, heads) * parameters
    assert warren_budget(most, items, d_model, heads) == pytest.approx(budget, rel=1e-9)
    assert bits.graph_bound(10**6, 100, 1) == 100**2 / 10**6  # more weights than signs


def test_the_label_bound_is_covers() -> None:
    assert bits.label_bound(10, 20) == 0.5
    assert bits.label_bound(40, 20) == pytest.approx(39 / 20)  # half of all 2^40 labelings
    assert bits.label_bound(4, 2) == pytest.approx(math.log2(2 * (1 + 3)) / 2)
    assert bits.label_bound(2000, 1000) == pytest.approx(1.999)


def test_weights_hold_their_own_bits() -> None:
    assert [bits.weight_bits(a) for a in ("fp64", "fp32", "bf16")] == [64, 32, 32]
    refused(lambda: bits.weight_bits("fp8"), "fp64|fp32")


def test_marks_say_where_they_are_from() -> None:
    assert [round(m.value, 2) for m in bits.MARKS] == [0.72, 2.0, 3.6] and all(m.source for m in bits.MARKS)


@pytest.mark.parametrize(
    "call",
    [
        lambda: bits.relation_bits(1, 1, 4, 1.5, 1),
        lambda: bits.label_bits(0, 2, 1),
        lambda: bits.label_bits(5, 2, 1.5),
        lambda: bits.recited_bits(-1, 2, 3),
        lambda: bits.graph_bound(0, 5, 1),
        lambda: bits.label_bound(0, 5),
    ],
)
def test_sizes_that_mean_nothing_are_refused(call: object) -> None:
    refused(call, "must hold")  # type: ignore[arg-type]
