"""Relations recalled in contexts: every source is asked once a step, every item stands once in a context, targets are found."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.problems import NoContents, graphs
from keyspan.problems.in_context import BLOCK, JUDGED, Contexts, InContext
from keyspan.problems.relations import Relations
from keyspan.specs import decode


def problem(items: int = 23, length: int = 10, graph: graphs.Graph | None = None) -> InContext:
    return InContext(relations=Relations(items=items, d_model=7, graph=graph or graphs.permutation()), length=length)


def check(shown: Contexts, targets: NDArray[np.int64]) -> None:
    for items, there, places in zip(shown.items, shown.open, shown.places, strict=True):
        present = items[there].tolist()
        assert len(set(present)) == len(present)
        assert (places[~there] == -1).all()
        for item, place in zip(items[there], places[there], strict=True):
            if place >= 0:
                assert there[place] and items[place] == targets[item]
            else:
                assert targets[item] not in present


@pytest.mark.parametrize("graph", [graphs.permutation(), graphs.functional(), graphs.bipartite(9)])
@pytest.mark.parametrize("items, length", [(23, 10), (24, 12), (8, 8), (9, 2), (40, 6)])
def test_a_step_asks_every_source_once(graph: graphs.Graph, items: int, length: int) -> None:
    if graph.name == "bipartite" and items < 10:
        return
    made = problem(items, length, graph)
    try:
        instance = made.instance("p1", NoContents())
        targets = instance.targets
    except BadInput:
        assert graph.name == "bipartite"  # some items have two targets
        return
    shown = instance.contexts_at(5)
    assert shown.items.shape == (made.groups, length) == shown.places.shape
    check(shown, targets)
    sources = shown.items[:, : length // 2][shown.open[:, : length // 2]]
    assert set(sources.tolist()) == set(range(items))
    half = length // 2
    asked = (targets[shown.items] >= 0)[:, :half] & shown.open[:, :half]
    assert (shown.places[:, :half][asked] >= 0).all()  # every source's target is there


def test_contexts_follow_the_step_and_the_problem_alone() -> None:
    one, other = (problem().instance(name, NoContents()) for name in ("p1", "p2"))
    seen = [one.contexts_at(step).items for step in (0, 1, BLOCK, 5 * BLOCK + 3)]
    assert len({s.tobytes() for s in seen}) == 4 and not np.array_equal(seen[0], other.contexts_at(0).items)
    assert np.array_equal(seen[3], one.contexts_at(5 * BLOCK + 3).items)
    shown = problem().batch(BLOCK, [one, other])
    assert np.array_equal(shown["items"][0], seen[2]) and np.array_equal(shown["targets"][1], other.targets)
    judged = one.judged()
    assert len(judged.items) >= JUDGED and len(judged.items) % problem().groups == 0
    check(judged.of(slice(50)), one.targets)
    assert not np.array_equal(judged.items[: problem().groups], seen[0])


def test_what_it_is() -> None:
    made = problem()
    instance = made.instance("p1", NoContents())
    plain = made.relations.instance("p1", NoContents())
    assert (instance.load, instance.bits, instance.best, instance.digest) == (plain.load, plain.bits, 1.0, plain.digest)
    assert made.shape == (23, 7, 23, 10) and decode(made.to_json()) == made


@pytest.mark.parametrize("length", [0, 1, 7, 24])
def test_lengths_that_make_no_sense(length: int) -> None:
    with pytest.raises(BadInput, match="length"):
        problem(23, length)


def test_two_targets_are_refused() -> None:
    with pytest.raises(BadInput, match="one target"):
        _ = problem(graph=graphs.regular(2)).instance("p1", NoContents()).targets
