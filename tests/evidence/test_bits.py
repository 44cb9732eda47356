"""Cells in bits: grouped by level, three seeds or more, the best level with its interval; what is unknown is passed over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from keyspan.decoders import Decoder, parameters
from keyspan.evidence.bits import bits_table
from keyspan.evidence.record import Record, make_record
from keyspan.lab import recipes
from keyspan.problems import graphs
from keyspan.problems.contexts import Labels
from keyspan.problems.dichotomies import Dichotomies
from keyspan.problems.relations import Relations
from keyspan.problems.sequences import Sequences
from keyspan.specs import Channel, Layer, LinearUnit, Run
from keyspan.theory import bits
from keyspan.verdict import Status, Verdict

ENTROPY = graphs.entropy(graphs.permutation(), 32).value


def relation(seed: int, heads: int, d_key: int, precision: float = 1.0, recall: float = 1.0, **more: Any) -> Record:
    given: dict[str, Any] = {"recipe": recipes.gradient(), "arithmetic": "fp32"} | more
    run = Run(
        problem=Relations(items=32, d_model=8),
        replicate=seed,
        instrument=Channel(heads=heads, d_key=d_key),
        stopping=recipes.DEFAULT_STOPPING,
        **given,
    )
    scores = {"f1": 0.5, "f1_best": 0.5, "precision": precision, "recall": recall, "threshold": 0.0, "margin": 0.0}
    exact = precision == recall == 1
    return make_record(run, Verdict(status=Status.MEASURED, exact=exact, scores=scores), steps=1)


def test_the_best_level_with_its_interval() -> None:
    records = [relation(s, 2, 8) for s in range(3)] + [relation(s, 2, 6, 1.0, 1.0 - s / 32) for s in range(3)]
    (row,) = bits_table(records)
    values = [bits.relation_bits(ENTROPY, 32, 1024, 1, 1 - s / 32) for s in range(3)]
    assert (row.problem, row.recipe, row.arithmetic, row.level, row.seeds) == (
        "relations",
        "gradient",
        "fp32",
        "2 x d_key 6",
        3,
    )
    assert row.parameters == 2 * 8 * 12 and row.bits == pytest.approx(sum(values) / 3)
    assert row.low is not None and row.high is not None and row.low < row.per_parameter == row.bits / 192 < row.high
    assert row.bound == bits.graph_bound(192, 32, 2) and "Warren" in row.bound_source


def test_two_seeds_are_too_few() -> None:
    assert bits_table([relation(s, 2, 8) for s in range(2)]) == []
    copies = [relation(0, 2, 8)] * 3  # one member thrice is one seed
    assert bits_table(copies) == []


def test_recipes_and_arithmetics_are_never_mixed() -> None:
    records = [relation(s, 2, 8) for s in range(3)]
    records += [relation(s, 2, 8, recipe=recipes.gradient(steps=300)) for s in range(3)]
    records += [relation(s, 2, 8, arithmetic="bf16") for s in range(3)]
    assert len(bits_table(records)) == 3


def test_labels_of_a_linear_unit() -> None:
    def record(seed: int, examples: int, fitted: float) -> Record:
        run = Run(
            problem=Dichotomies(dimension=8, examples=examples),
            replicate=seed,
            instrument=LinearUnit(),
            recipe=recipes.separator(),
            stopping=recipes.SEPARATOR_STOPPING,
            arithmetic="fp64",
        )
        scores = {"fitted": fitted, "accuracy": 1.0, "margin": 0.0}
        return make_record(run, Verdict(status=Status.MEASURED, exact=bool(fitted), scores=scores))

    records = [record(s, 12, 1.0) for s in range(4)] + [record(s, 16, s % 2) for s in range(4)]
    (row,) = bits_table(records)
    assert (row.level, row.per_parameter) == ("12 examples", 1.5) and row.bound == bits.label_bound(12, 8)


def test_what_is_unknown_or_failed_is_passed_over() -> None:
    good = [relation(s, 2, 8) for s in range(3)]
    failed = replace(good[0], verdict=Verdict(status=Status.DIVERGED))
    other = replace(good[1], run=dict(good[1].run) | {"problem": {"family": "riddles", "version": 1}})
    shared = replace(good[2], run=dict(good[2].run) | {"instrument": dict(good[2].run["instrument"]) | {"shared": 2}})
    short = replace(good[2], run=dict(good[2].run) | {"problem": {"family": "relations"}})
    assert bits_table([failed, other, shared, short]) == []
    assert len(bits_table([*good, failed, other, shared, short])) == 1


def test_what_stores_nothing_is_no_row() -> None:
    assert bits_table([relation(s, 2, 8, 0.01, 0.1) for s in range(3)]) == []


def test_labels_of_a_layer() -> None:
    """All numbers of the layer are counted; values, and layers that are computed, are passed over."""

    def labels(seed: int, accuracy: float, task: str = "classes", embed: bool = True) -> Record:
        run = Run(
            problem=Labels(context=4, d_model=8, examples=50, task=task),
            replicate=seed,
            instrument=Layer(heads=2, d_key=3, embed=embed),
            recipe=recipes.fast(task),
            stopping=recipes.FAST_STOPPING,
        )
        verdict = Verdict(status=Status.MEASURED, exact=accuracy == 1, scores={"accuracy": accuracy, "loss": 0.1})
        return make_record(run, verdict, steps=1)

    (row,) = bits_table([labels(s, 0.9) for s in range(3)])
    assert row.parameters == 8 * 9 + 2 * 2 * 8 * 4 + 9 * 100 and row.bits == pytest.approx(bits.label_bits(50, 100, 0.9))
    assert row.bound == 32 and "labels" in row.cell
    assert bits_table([labels(s, 1.0, "values") for s in range(3)]) == []
    assert bits_table([labels(s, 1.0, embed=False) for s in range(3)]) == []


def test_sequences_of_a_decoder() -> None:
    """What is stored is what the judge says (entropy less negative log-likelihood), over all that is trained."""
    decoder = Decoder(heads=2, d_model=8)

    def recital(seed: int, stored: float, library: int = 20) -> Record:
        problem = Sequences(length=6, vocabulary=16, library=library)
        rule = recipes.DEFAULT_STOPPING
        run = Run(problem=problem, instrument=decoder, recipe=recipes.gradient(), stopping=rule, replicate=seed)
        scores = dict.fromkeys(Sequences.scores, 0.0) | {"stored_bits": stored}
        return make_record(run, Verdict(status=Status.MEASURED, exact=False, scores=scores))

    (row,) = bits_table([recital(s, 200.0 + s) for s in range(3)] + [recital(s, 50.0, 30) for s in range(3)])
    assert (row.problem, row.level, row.seeds) == ("sequences", "20 sequences", 3)
    assert row.parameters == parameters(decoder, 16, 6) and row.per_parameter == pytest.approx(201 / row.parameters)
    assert row.bound == 32 and "2 heads, d_model 8, 1 layer" in row.cell
    assert bits_table([recital(s, -5.0) for s in range(3)]) == []
