"""Labelled contexts: what is drawn, what is shared, what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.files.refusals import refused

from keyspan.errors import BadInput
from keyspan.files.contents import Contents
from keyspan.problems import Instance, NoContents
from keyspan.problems.contexts import BAG, CLASSES, TOLERANCE, LabelInstance, Labels, Tokens, epochs_at_once
from keyspan.specs import Spec, decode

CELL = Labels(context=5, d_model=7, examples=23)


def made(spec: Labels, seed: int = 0, contents: Contents | None = None) -> LabelInstance:
    return spec.instance(f"p{seed}", contents or NoContents())


# ------------------------------------------------------------------------------------------------------- the spec


def test_what_does_not_apply_is_none_and_what_applies_is_filled_in() -> None:
    assert (CELL.classes, CELL.tolerance, CELL.bag) == (CLASSES, None, None)
    values = Labels(context=5, d_model=7, task="values", contexts="perm")
    assert (values.classes, values.tolerance, values.bag, values.outputs) == (None, TOLERANCE, BAG, 1)
    assert Labels(context=5, d_model=7, classes=CLASSES) == Labels(context=5, d_model=7)
    assert decode(values.to_json()) == values and isinstance(values, Spec)


@pytest.mark.parametrize(
    "wrong, mentions",
    [
        ({"context": 0}, "--context"),
        ({"d_model": 0}, "--d-model"),
        ({"examples": 0}, "--examples"),
        ({"contexts": "shared"}, "random|fixed|perm"),
        ({"task": "regression"}, "classes|values"),
        ({"classes": 1}, "--classes"),
        ({"tolerance": 0.1}, "values only"),
        ({"task": "values", "classes": 10}, "classes only"),
        ({"task": "values", "tolerance": 0.5}, "tolerance"),
        ({"bag": 10}, "perm"),
        ({"contexts": "perm", "bag": 4}, "bag=4"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object], mentions: str) -> None:
    with pytest.raises(BadInput, match=mentions.replace("|", r"\|")):
        Labels(**({"context": 5, "d_model": 7} | wrong))  # type: ignore[arg-type]


def test_tokens_are_a_family_or_a_file() -> None:
    refused(lambda: Tokens(name="one-hot"), "uniform|gaussian")
    refused(lambda: Tokens(name="file"), "content")
    refused(lambda: Tokens(content="abc"), "content")


def test_without_a_number_of_examples_there_is_no_instance() -> None:
    refused(lambda: made(Labels(context=5, d_model=7)), "with_load")
    assert made(Labels(context=5, d_model=7).with_load(3)).load == 3


def test_members_with_other_numbers_of_examples_may_share_a_crew() -> None:
    assert CELL.shape == CELL.with_load(1000).shape == replace(CELL, context=8).shape
    others = [replace(CELL, context=9), replace(CELL, contexts="fixed"), Labels(context=5, d_model=7, task="values")]
    assert len({CELL.shape, *(o.shape for o in others)}) == 4


# ------------------------------------------------------------------------------------------------------ instances


@pytest.mark.parametrize("contexts", ["random", "fixed", "perm"])
@pytest.mark.parametrize("tokens", ["uniform", "gaussian"])
def test_sizes_and_kinds(contexts: str, tokens: str) -> None:
    i = made(replace(CELL, contexts=contexts, tokens=Tokens(name=tokens), bag=11 if contexts == "perm" else None))
    assert isinstance(i, Instance)
    assert i.queries.shape == (23, 7) and i.queries.dtype == np.float32
    assert i.context(slice(0, 4)).shape == ((1 if contexts == "fixed" else 4), 5, 7)
    assert i.shared == (contexts == "fixed")
    assert i.labels.min() >= 0 and i.labels.max() < CLASSES and i.labels.dtype == np.int64
    assert i.load == 23 and i.bits == pytest.approx(23 * math.log2(CLASSES)) and i.best == 1.0
    if tokens == "uniform":
        everything = np.concatenate([i.queries.ravel(), i.context(np.arange(23)).ravel()])
        assert everything.min() >= 0 and everything.max() < 1 and abs(everything.mean() - 0.5) < 0.05


def test_contexts_of_a_bag_are_different_rows_in_any_order() -> None:
    i = made(replace(CELL, contexts="perm", bag=6, examples=400))
    assert i.bag is not None and i.index is not None and i.bag.shape == (6, 7)
    assert all(len(set(row)) == 5 for row in i.index.tolist())
    assert (np.diff(i.index, axis=1) < 0).any() and (np.diff(i.index, axis=1) > 0).any()
    counts = np.bincount(i.index[:, 0], minlength=6)  # each row comes first as often as any other
    assert ((counts - 400 / 6) ** 2 / (400 / 6)).sum() < 20
    assert (i.context(np.array([3]))[0] == i.bag[i.index[3]]).all()


def test_an_instance_is_a_function_of_its_id() -> None:
    assert made(CELL).digest == made(CELL).digest
    assert len({made(CELL, seed).digest for seed in range(5)}) == 5
    first, more = made(CELL), made(Labels(context=5, d_model=7, examples=23, task="values"))
    assert (first.queries == more.queries).all()  # the id is what counts, and here it is the same


def test_tokens_and_values_are_what_a_float32_holds() -> None:
    i = made(Labels(context=3, d_model=4, examples=50, task="values", tokens=Tokens(name="gaussian")))
    for array in (i.queries, i.context(slice(0, 50)), i.labels):
        assert (array.astype(np.float32).astype(np.float64) == array.astype(np.float64)).all()
    assert i.bits == pytest.approx(50 * math.log2(0.5 / TOLERANCE)) and i.labels.min() >= 0 and i.labels.max() < 1


def test_orders_are_permutations_and_groups_do_not_matter() -> None:
    i = made(replace(CELL, examples=3000))
    assert epochs_at_once(3000) == 10
    many = i.order(7, 9)
    assert many.shape == (9, 3000) and (np.sort(many, axis=1) == np.arange(3000)).all()
    assert all((i.order(7 + k, 1)[0] == many[k]).all() for k in range(9))
    assert len({row.tobytes() for row in many}) == 9


def test_a_batch_names_every_instance_once() -> None:
    one, two = made(CELL, 1), made(CELL, 2)
    batch = CELL.batch(0, [one, two, one])
    assert batch["given"].tolist() == [one, two] and batch["which"].tolist() == [0, 1, 0]


# --------------------------------------------------------------------------------------------------- what is possible


def test_the_best_accuracy_where_inputs_repeat() -> None:
    i = made(replace(CELL, contexts="fixed", examples=6))
    queries, labels = i.queries.copy(), np.array([1, 1, 2, 3, 3, 4])
    queries[:3] = queries[0]  # labels 1, 1, 2: two of them can be held
    assert LabelInstance("p", queries, labels, i.contexts, None, None, CLASSES, None).best == 5 / 6
    queries[:] = queries[0]
    assert LabelInstance("p", queries, labels, i.contexts, None, None, CLASSES, None).best == 2 / 6
    values = np.array([0.1, 0.104, 0.109, 0.5, 0.9, 0.112])
    assert LabelInstance("p", queries, values, i.contexts, None, None, None, 0.005).best == 3 / 6


def test_equal_queries_in_other_contexts_are_no_repetition() -> None:
    i = made(replace(CELL, examples=6))
    queries = np.repeat(i.queries[:1], 6, axis=0)
    assert LabelInstance("p", queries, np.arange(6), i.contexts, None, None, CLASSES, None).best == 1.0


# ------------------------------------------------------------------------------------------------------------ files


def from_file(tmp_path: Path, contexts: str, examples: int, rows: int = 12) -> LabelInstance:
    contents = Contents(tmp_path / "files")
    table = np.linspace(-3, 3, rows * 7).reshape(rows, 7) ** 3
    spec = Labels(
        context=5,
        d_model=7,
        examples=examples,
        contexts=contexts,
        tokens=Tokens(name="file", content=contents.put(table)),
    )
    return made(spec, contents=contents)


def test_tokens_of_a_file(tmp_path: Path) -> None:
    given = from_file(tmp_path, "random", 40)
    rows = {row.tobytes() for row in (np.linspace(-3, 3, 84).reshape(12, 7) ** 3).astype(np.float32)}
    assert {row.tobytes() for row in given.queries} <= rows
    assert {row.tobytes() for row in given.context(np.arange(40)).reshape(-1, 7)} <= rows
    fixed = from_file(tmp_path, "fixed", 7)
    seen = [*fixed.queries, *fixed.context(slice(0, 7))[0]]
    assert len({row.tobytes() for row in seen}) == 12  # every row once: no query repeats, none stands in the context
    refused(lambda: from_file(tmp_path, "fixed", 8), "(12)", "8")
    refused(lambda: from_file(tmp_path, "perm", 3, rows=4), "(4)")


def test_a_file_of_another_width_is_refused(tmp_path: Path) -> None:
    contents = Contents(tmp_path / "files")
    spec = Labels(context=2, d_model=3, examples=2, tokens=Tokens(name="file", content=contents.put(np.ones((9, 4)))))
    refused(lambda: made(spec, contents=contents), "--d-model", "4")
