"""Typed relations: as many graphs as types, drawn one by one, on rows that all of them share."""

from __future__ import annotations

import numpy as np
import pytest

from keyspan.errors import BadInput
from keyspan.problems import Instance, NoContents, graphs
from keyspan.problems.graphs import Graph
from keyspan.problems.relations import Relations
from keyspan.problems.typed import TypedInstance, TypedRelations

PROBLEM = TypedRelations(items=23, d_model=11, types=3, graph=graphs.erdos_renyi(31))


def made(problem: TypedRelations = PROBLEM, problem_id: str = "p") -> TypedInstance:
    return problem.instance(problem_id, NoContents())


def test_every_type_is_a_graph_of_the_family() -> None:
    instance = made()
    assert isinstance(instance, Instance) and instance.edges.shape == (3, 31, 2) and instance.embeddings.shape == (23, 11)
    assert PROBLEM.edges == instance.load == 93 and PROBLEM.shape == (23, 11, 93, 3)
    for t in range(3):
        one = instance.of(t)
        assert one.load == 31 and np.array_equal(one.edges, instance.edges[t]) and one.embeddings is instance.embeddings
        assert len(np.unique(one.edges, axis=0)) == 31
    assert len({instance.edges[t].tobytes() for t in range(3)}) == 3
    assert instance.bits == PROBLEM.bits == pytest.approx(3 * PROBLEM.each.bits) and instance.best == 1.0


def test_an_instance_is_a_function_of_the_id() -> None:
    assert made().digest == made().digest != made(problem_id="q").digest
    more = TypedRelations(items=23, d_model=11, types=4, graph=graphs.erdos_renyi(31))
    assert np.array_equal(made(more).edges[:3], made().edges)  # from the same id: one more type changes none of the others


def test_the_batch_is_all_triples() -> None:
    batch = PROBLEM.batch(7, [made(), made(problem_id="q")])
    assert batch["edges"].shape == (2, 3, 31, 2) and batch["embeddings"].shape == (2, 23, 11)


@pytest.mark.parametrize(
    "fields, mentions",
    [
        ({"types": 1}, ("--types >= 2", "got 1")),
        ({"types": 5000}, ("--types <= 4096", "5000")),
        ({"graph": Graph(name="file", edges=3, content="0" * 64)}, ("--types", "a file")),
        ({"items": 1}, ("--items >= 2", "got 1")),
        ({"graph": graphs.regular(12)}, ("--degree <= 11", "12")),
    ],
)
def test_bad_fields_are_refused(fields: dict[str, object], mentions: tuple[str, ...]) -> None:
    given: dict[str, object] = {"items": 23, "d_model": 11, "types": 2} | fields
    with pytest.raises(BadInput) as refusal:
        TypedRelations(**given)  # type: ignore[arg-type]
    assert all(m in str(refusal.value) for m in mentions), refusal.value


def test_the_defaults_are_those_of_relations() -> None:
    one = Relations(items=23, d_model=11)
    assert TypedRelations(items=23, d_model=11, types=2).each == one
    assert TypedRelations.from_json(PROBLEM.to_json()) == PROBLEM
