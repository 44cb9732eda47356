"""Context robustness, the theorem and a sample of it; contexts that grow and shrink against their whole matrix of scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.lab.test_judge import Dense, bare, graph, one_head_per_edge

from keyspan.attention import reference
from keyspan.errors import BadInput
from keyspan.lab.channels import judge_channel, prove_channel
from keyspan.lab.contexts import Context
from keyspan.problems import NoContents
from keyspan.problems.relations import RelationInstance, Relations
from keyspan.seeds import Stream

Float = NDArray[np.float64]


def wrong_in(instance: RelationInstance, wq: Float, wk: Float, bias: float, context: NDArray[np.int64]) -> int:
    """Pairs that a channel gets wrong when it sees these items and no others."""
    x = instance.embeddings[context]
    inside = np.isin(instance.edges, context).all(axis=1)
    place = np.empty(instance.items, dtype=np.int64)
    place[context] = np.arange(len(context))
    truth = np.zeros((len(context), len(context)), dtype=bool)
    truth[tuple(place[instance.edges[inside]].T)] = True
    return int((reference.decisions(x, wq, wk, bias) != truth).sum())


def sampled(items: int, count: int) -> list[NDArray[np.int64]]:
    """Random subsets of 2 to all items."""
    stream = Stream("contexts", "sample")
    return [stream.permutation(items)[: 2 + int(size)] for size in stream.integers(items - 1, count)]


@pytest.mark.parametrize("items, d_model", [(61, 11), (43, 7)])
def test_a_certified_threshold_recovers_a_hundred_random_contexts(items: int, d_model: int) -> None:
    instance = Relations(items=items, d_model=d_model).instance("p1", NoContents())
    wq, wk = one_head_per_edge(instance)
    bias = -judge_channel(instance, wq, wk, 0.0).witness["threshold_best"]
    assert prove_channel(instance, wq, wk, bias).exact is True
    assert all(wrong_in(instance, wq, wk, bias, context) == 0 for context in sampled(items, 100))


def test_a_context_fails_exactly_where_it_has_a_pair_that_is_wrong() -> None:
    instance = Relations(items=31, d_model=11).instance("p1", NoContents())
    wq, wk = one_head_per_edge(instance)
    top = judge_channel(instance, wq, wk, 0.0).witness["max_nonedge"]
    bias = -(top["score"] - 1e-9)
    assert prove_channel(instance, wq, wk, bias).exact is False
    assert wrong_in(instance, wq, wk, bias, np.unique([top["source"], top["target"]])) > 0
    dense = Dense.of(instance, wq, wk, bias)
    wrong = np.argwhere((dense.scores > -bias) != dense.is_edge)
    expected = [int(np.isin(wrong, context).all(axis=1).sum()) for context in sampled(31, 100)]
    assert [wrong_in(instance, wq, wk, bias, context) for context in sampled(31, 100)] == expected
    assert 0 < sum(count > 0 for count in expected) < 100


def compare(context: Context, dense: Dense) -> None:
    """What a context says, against the part of the matrix that belongs to it."""
    here = np.array(context.items, dtype=np.int64)
    s, is_edge = dense.scores[np.ix_(here, here)], dense.is_edge[np.ix_(here, here)]
    for found, values, pick in ((context.min_edge, s[is_edge], min), (context.max_nonedge, s[~is_edge], max)):
        assert (found is None) == (values.size == 0)
        if found is not None:
            assert found.score == pytest.approx(pick(values.tolist()), abs=1e-12)
            assert dense.scores[found.source, found.target] == pytest.approx(found.score, abs=1e-12)
            assert {found.source, found.target} <= set(context.items)
    if is_edge.any() and not is_edge.all():
        assert context.margin == pytest.approx(s[is_edge].min() - s[~is_edge].max(), abs=1e-12)
    else:
        assert context.margin == math.inf


@given(st.integers(0, 10**6), st.integers(1, 60))
def test_items_come_and_go(seed: int, moves: int) -> None:
    stream = Stream(f"{seed}", "moves")
    items = 11
    instance = bare(graph(items, 23, seed), stream.normal((items, 5)))
    wq, wk = stream.normal((2, 3, 5, 2))
    dense, context = Dense.of(instance, wq, wk, 0.0), Context(instance, wq, wk)
    for item in stream.integers(items, moves).tolist():
        before = context.margin
        if item in context.items:
            context.remove(item)
            assert context.margin >= before
        else:
            context.add(item)
            assert context.margin <= before
    compare(context, dense)


def test_all_items_give_the_margin_of_the_judge() -> None:
    instance = Relations(items=53, d_model=13).instance("p1", NoContents())
    wq, wk = one_head_per_edge(instance)
    verdict = judge_channel(instance, wq, wk, -0.9)
    context = Context(instance, wq, wk, Stream("order", "items").permutation(53).tolist())
    assert context.margin == pytest.approx(verdict.scores["margin"], abs=1e-12)
    assert context.recovered(0.9) is verdict.exact is True
    assert not context.recovered(1.5) and not context.recovered(verdict.witness["max_nonedge"]["score"] - 1e-9)


def test_an_empty_context_is_recovered_by_any_threshold() -> None:
    instance = Relations(items=7, d_model=5).instance("p1", NoContents())
    context = Context(instance, np.ones((1, 5, 2)), np.ones((1, 5, 2)))
    assert context.items == () and context.margin == math.inf and context.recovered(-1e9) and context.recovered(1e9)
    assert context.min_edge is None and context.max_nonedge is None


def test_who_cannot_come_or_go() -> None:
    instance = Relations(items=7, d_model=5).instance("p1", NoContents())
    one = np.ones((1, 5, 2))
    context = Context(instance, one, one, items=[3])
    for call, value in ((context.add, 7), (context.add, -1), (context.add, 3), (context.remove, 2)):
        with pytest.raises(BadInput, match=str(value)):
            call(value)
    with pytest.raises(BadInput, match="d_model"):
        Context(instance, np.ones((1, 4, 2)), np.ones((1, 4, 2)))
