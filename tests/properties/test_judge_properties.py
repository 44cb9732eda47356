"""The judge on any graph, any ties and any tile: equal to every threshold tried, and blind to what must not matter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.lab.test_judge import Dense, assert_best_is_reached, bare

from keyspan.lab.judge import judge_channel
from keyspan.problems.relations import RelationInstance
from keyspan.verdict import Status, Verdict

Float = NDArray[np.float64]


@dataclass
class Case:
    """Whole numbers all over, so that every score is exact and ties are many."""

    instance: RelationInstance
    w_query: Float
    w_key: Float
    bias: float
    tile: int

    def judged(self, tile: int | None = None) -> Verdict:
        return judge_channel(self.instance, self.w_query, self.w_key, self.bias, tile or self.tile)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    items, d_model = draw(st.integers(2, 11)), draw(st.integers(1, 4))
    heads, d_key = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    size = draw(st.sampled_from([1, 2, 5]))  # how many different numbers: few make many ties

    def numbers(*shape: int) -> Float:
        count = int(np.prod(shape))
        drawn = draw(st.lists(st.integers(-size, size), min_size=count, max_size=count))
        return np.array(drawn, dtype=np.float64).reshape(shape)

    pairs = st.integers(0, items * items - 1)
    code = np.array(sorted(draw(st.sets(pairs, min_size=1, max_size=items * items))), dtype=np.int64)
    edges = np.stack([code // items, code % items], axis=1)
    bias = draw(st.integers(-20, 20)) / 2
    tile = draw(st.sampled_from([1, 2, 3, 7, 1024]))
    return Case(
        bare(edges, numbers(items, d_model)), numbers(heads, d_model, d_key), numbers(heads, d_model, d_key), bias, tile
    )


@given(cases())
def test_the_judge_agrees_with_every_threshold(case: Case) -> None:
    verdict = case.judged()
    Dense.of(case.instance, case.w_query, case.w_key, case.bias).assert_agrees(verdict)
    assert_best_is_reached(case.instance, case.w_query, case.w_key, verdict, case.tile)


@given(cases())
def test_the_numbers_of_a_verdict_fit_together(case: Case) -> None:
    verdict = case.judged()
    s = verdict.scores
    assert 0 <= s["f1"] <= s["f1_best"] <= case.instance.best <= 1
    assert verdict.exact is (s["f1"] == 1.0)
    if "margin" in s:
        assert (s["margin"] > 0) == (s["f1_best"] == 1.0)
        if verdict.exact:
            top = verdict.witness["max_nonedge"]["score"]
            assert top <= s["threshold"] < verdict.witness["min_edge"]["score"]
    else:
        assert len(case.instance.edges) == case.instance.items**2
    assert Verdict.from_json(verdict.to_json()) == verdict


@given(cases(), st.sampled_from([1, 2, 5, 1024]))
def test_tiles_do_not_matter(case: Case, tile: int) -> None:
    one, other = case.judged(), case.judged(tile)
    assert one.scores == other.scores and one.exact == other.exact
    for name in ("true_positives", "false_positives", "false_negatives", "threshold_best"):
        assert one.witness[name] == other.witness[name]


@given(cases(), st.data())
def test_the_order_of_heads_does_not_matter(case: Case, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(case.w_query))))
    assert case.judged() == judge_channel(case.instance, case.w_query[order], case.w_key[order], case.bias, case.tile)


@given(cases(), st.integers(-3, 3))
def test_only_ratios_matter(case: Case, power: int) -> None:
    """Queries scaled by 2^p and keys by 2^q scale every score; with the bias scaled alike no decision changes."""
    two = 2.0**power
    scaled = judge_channel(case.instance, case.w_query * two, case.w_key * 4.0, case.bias * two * 4.0, case.tile)
    plain = case.judged()
    for name in ("f1", "f1_best", "precision", "recall"):
        assert scaled.scores[name] == plain.scores[name]
    if "margin" in plain.scores:
        assert scaled.scores["margin"] == plain.scores["margin"] * two * 4.0


@given(cases())
def test_a_head_that_repeats_another_changes_nothing(case: Case) -> None:
    twice = [*range(len(case.w_query)), 0]
    assert case.judged() == judge_channel(case.instance, case.w_query[twice], case.w_key[twice], case.bias, case.tile)


@given(cases(), st.data())
def test_items_may_be_numbered_in_any_way(case: Case, data: st.DataObject) -> None:
    order = np.array(data.draw(st.permutations(range(case.instance.items))))
    name = np.argsort(order)  # item i of before is item name[i] of now
    edges = name[case.instance.edges]
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    renamed = bare(edges, case.instance.embeddings[order])
    verdict = judge_channel(renamed, case.w_query, case.w_key, case.bias, case.tile)
    assert verdict.scores == case.judged().scores


@given(cases(), st.sampled_from(["w_query", "w_key", "bias"]), st.sampled_from([np.nan, np.inf, -np.inf]))
@settings(max_examples=30)
def test_what_is_no_number_never_becomes_one(case: Case, where: str, bad: float) -> None:
    query, key, bias = case.w_query.copy(), case.w_key.copy(), case.bias
    if where == "bias":
        bias = bad
    else:
        (query if where == "w_query" else key).flat[0] = bad
    verdict = judge_channel(case.instance, query, key, bias, case.tile)
    assert verdict.status is Status.DIVERGED and not verdict.scores and verdict.exact is None
