"""The relation problem: its instances, their ceiling and what a member is shown."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from keyspan.attention import reference
from keyspan.errors import BadInput
from keyspan.files.contents import Contents
from keyspan.problems import Instance, NoContents, embeddings, graphs
from keyspan.problems.embeddings import Embeddings
from keyspan.problems.graphs import Graph
from keyspan.problems.relations import RelationInstance, Relations
from keyspan.seeds import Stream
from keyspan.specs import decode


def bare(edges: NDArray[np.int64], rows: NDArray[np.float64]) -> RelationInstance:
    return RelationInstance(spec=None, edges=edges, embeddings=rows)


PROBLEM = Relations(items=13, d_model=5, graph=graphs.erdos_renyi(29))


def test_an_instance_has_the_rows_and_edges_that_its_problem_says() -> None:
    instance = PROBLEM.instance("p1", NoContents())
    assert isinstance(instance, Instance)
    assert instance.embeddings.shape == (13, 5) and instance.edges.shape == (29, 2)
    assert PROBLEM.shape == (13, 5, 29) and PROBLEM.edges == 29
    assert instance.items == 13 and instance.load == 29 and instance.best == 1.0
    assert instance.bits == pytest.approx(math.log2(math.comb(169, 29)))


def test_rows_and_edges_are_drawn_apart() -> None:
    """The same items in another graph, the same graph on other rows: each draws from its own stream."""
    one = PROBLEM.instance("p1", NoContents())
    other_graph = Relations(items=13, d_model=5, graph=graphs.functional()).instance("p1", NoContents())
    other_rows = Relations(items=13, d_model=7, graph=PROBLEM.graph).instance("p1", NoContents())
    assert np.array_equal(one.embeddings, other_graph.embeddings)
    assert np.array_equal(one.edges, other_rows.edges)


def test_the_digest_is_of_the_edges_and_the_rows_and_nothing_else() -> None:
    one = PROBLEM.instance("p1", NoContents())
    assert one.digest == PROBLEM.instance("p1", NoContents()).digest
    assert one.digest == bare(one.edges.copy(), np.asfortranarray(one.embeddings)).digest
    assert one.digest != PROBLEM.instance("p2", NoContents()).digest
    moved = one.edges.copy()
    moved[3, 1] = (moved[3, 1] + 1) % 13
    nudged = one.embeddings.copy()
    nudged[7, 2] = np.nextafter(nudged[7, 2], 2)
    assert len({one.digest, bare(moved, one.embeddings).digest, bare(one.edges, nudged).digest}) == 3


def test_the_batch_stacks_members_and_is_the_same_at_every_step() -> None:
    instances = [PROBLEM.instance(f"p{i}", NoContents()) for i in range(3)]
    batch = PROBLEM.batch(0, instances)
    assert batch["embeddings"].shape == (3, 13, 5) and batch["edges"].shape == (3, 29, 2)
    assert np.array_equal(batch["edges"][2], instances[2].edges)
    later = PROBLEM.batch(71, instances)
    assert PROBLEM.static and all(np.array_equal(batch[k], later[k]) for k in batch)


def test_a_problem_comes_back_from_its_json() -> None:
    for embedding in (embeddings.gaussian(), embeddings.sparse(2)):
        problem = Relations(items=7, d_model=5, graph=graphs.power_law(11, exponent=1.5), embeddings=embedding)
        assert decode(json.loads(json.dumps(problem.to_json()))) == problem


def test_a_bare_graph_is_one_among_all_with_as_many_edges() -> None:
    instance = bare(np.array([[0, 1], [1, 2]]), np.eye(3))
    assert instance.bits == pytest.approx(math.log2(math.comb(9, 2)))


def test_rows_and_edges_from_files_meet() -> None:
    contents = Contents()
    rows = np.eye(5, 7)
    edges = np.array([[4, 0], [1, 3]])
    problem = Relations(
        items=5,
        d_model=7,
        graph=Graph(name="file", edges=2, content=contents.put(edges)),
        embeddings=Embeddings(name="file", content=contents.put(rows)),
    )
    instance = problem.instance("p", contents)
    assert instance.edges.tolist() == [[1, 3], [4, 0]] and np.array_equal(instance.embeddings, rows)


# ------------------------------------------------------------------------------------------- the F1 ceiling


def twins(group: list[int]) -> NDArray[np.float64]:
    """Item vectors of which those with one number are equal."""
    return Stream("twins", "rows").normal((max(group) + 1, 3))[group]


def best_by_force(group: list[int], edges: NDArray[np.int64]) -> float:
    """The highest F1 over every way to decide: items of one group cannot be told apart, so blocks decide as one."""
    g = np.array(group)
    kinds = sorted(set(group))
    blocks = list(itertools.product(kinds, kinds))
    held = [int(((g[edges[:, 0]] == a) & (g[edges[:, 1]] == b)).sum()) for a, b in blocks]
    area = [int((g == a).sum() * (g == b).sum()) for a, b in blocks]
    best = 0.0
    for chosen in itertools.product((0, 1), repeat=len(blocks)):
        tp, said = np.dot(chosen, held), np.dot(chosen, area)
        best = max(best, float(2 * tp / (said + len(edges))))
    return best


@pytest.mark.parametrize("group", [[0, 0, 1, 2, 2], [0, 1, 0, 1], [0, 0, 0, 1, 1], [0, 0, 0], [0, 1, 2, 2, 2, 0]])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 7])
def test_the_ceiling_is_the_best_that_any_decision_reaches(group: list[int], count: int) -> None:
    items = len(group)
    below_one = 0
    for seed in range(4):
        edges = graphs.make(graphs.resolve(graphs.erdos_renyi(count), items), items, f"p{seed}", NoContents())
        best = bare(edges, twins(group)).best
        assert best == pytest.approx(best_by_force(group, edges), abs=1e-12)
        below_one += best < 1
    assert below_one > 0


def test_the_ceiling_is_one_when_the_edges_respect_the_twins() -> None:
    edges = np.array([[0, 2], [0, 3], [1, 2], [1, 3]])
    assert bare(edges, twins([0, 0, 1, 1])).best == 1.0
    assert bare(edges[:3], twins([0, 0, 1, 1])).best == pytest.approx(6 / 7)


def test_no_threshold_of_any_channel_passes_the_ceiling() -> None:
    edges = graphs.make(graphs.permutation(), 7, "p1", NoContents())
    instance = bare(edges, twins([0, 1, 1, 2, 3, 3, 3]))
    reached = 0.0
    for seed in range(30):
        wq, wk = Stream(f"{seed}", "weights").normal((2, 2, 3, 3))
        s = reference.aggregate(reference.scores(instance.embeddings, wq, wk))
        for tau in np.unique(s):
            reached = max(reached, reference.f1(s >= tau, edges))
    assert 0.3 < reached <= instance.best < 1


def test_items_on_a_line_of_one_dimension_may_coincide() -> None:
    """Unit rows of one dimension are +1 or -1, and the ceiling says what that costs."""
    instance = Relations(items=7, d_model=1).instance("p1", NoContents())
    assert 0 < instance.best < 1


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "fields, mentions",
    [
        ({"items": 1, "d_model": 3}, ("--items >= 2", "1")),
        ({"items": -5, "d_model": 3}, ("--items >= 2", "-5")),
        ({"items": 2**24 + 1, "d_model": 3}, ("16777216", "16777217")),
        ({"items": 7, "d_model": 0}, ("--d-model >= 1", "0")),
        ({"items": 7.5, "d_model": 3}, ("relations.items", "7.5")),
        ({"items": 7, "d_model": 3, "graph": "permutation"}, ("relations.graph", "'permutation'")),
        ({"items": 7, "d_model": 3, "graph": graphs.regular(4)}, ("--degree <= 3", "4")),
        ({"items": 7, "d_model": 3, "embeddings": embeddings.one_hot()}, ("items <= d_model", "items=7, d_model=3")),
    ],
)
def test_problems_that_make_no_sense_are_refused(fields: dict[str, Any], mentions: tuple[str, ...]) -> None:
    with pytest.raises(BadInput) as refusal:
        Relations(**fields)
    assert all(m in str(refusal.value) for m in mentions), refusal.value
