"""Cover's random labelings, and his count against one made by linear programming."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from keyspan.errors import BadInput
from keyspan.problems import Instance, NoContents
from keyspan.problems.dichotomies import Dichotomies, DichotomyInstance, separable_fraction
from keyspan.specs import decode


def draw(dimension: int, examples: int, seed: int = 0) -> DichotomyInstance:
    return Dichotomies(dimension=dimension, examples=examples).instance(f"p{seed}", NoContents())


def separable(signed: NDArray[np.float64]) -> bool:
    """Is there a w with y_t x_t . w >= 1 for all t?"""
    found = linprog(np.zeros(signed.shape[1]), A_ub=-signed, b_ub=-np.ones(len(signed)), bounds=(None, None))
    assert found.status in (0, 2), found.message
    return bool(found.status == 0)


# -------------------------------------------------------------------------------------------- Cover's count


@pytest.mark.parametrize("dimension, examples", [(2, 3), (2, 5), (2, 6), (3, 4), (3, 6), (4, 6)])
def test_the_fraction_is_what_a_linear_program_counts(dimension: int, examples: int) -> None:
    """Every labeling of one set of points in general position; half of them, since w and -w go together."""
    points = draw(dimension, examples).points
    labelings = [(1.0, *rest) for rest in itertools.product((-1.0, 1.0), repeat=examples - 1)]
    found = sum(separable(np.array(labels)[:, None] * points) for labels in labelings)
    assert Fraction(found, len(labelings)) == Fraction(separable_fraction(examples, dimension))


def test_random_instances_are_separable_as_often_as_the_fraction_says() -> None:
    dimension, examples, draws = 5, 11, 250
    found = 0
    for seed in range(draws):
        i = draw(dimension, examples, seed)
        found += separable(i.labels[:, None] * i.points)
    p = separable_fraction(examples, dimension)
    assert abs(found / draws - p) < 4 * (p * (1 - p) / draws) ** 0.5


@cache
def dichotomies(examples: int, dimension: int) -> int:
    """Cover's recursion: C(T, d) = C(T-1, d) + C(T-1, d-1)."""
    if dimension == 0:
        return 0
    if examples == 1:
        return 2
    return dichotomies(examples - 1, dimension) + dichotomies(examples - 1, dimension - 1)


@pytest.mark.parametrize("dimension", [2, 3, 7, 16, 50])
def test_the_fraction_obeys_the_recursion(dimension: int) -> None:
    for examples in range(1, 4 * dimension):
        assert separable_fraction(examples, dimension) == float(Fraction(dichotomies(examples, dimension), 2**examples))


@pytest.mark.parametrize("dimension", [2, 3, 16, 50, 101, 1000])
def test_half_of_all_labelings_of_2d_points_are_separable(dimension: int) -> None:
    assert separable_fraction(2 * dimension, dimension) == 0.5
    assert separable_fraction(dimension, dimension) == 1.0
    assert separable_fraction(dimension + 1, dimension) == float(1 - Fraction(1, 2**dimension))


def test_more_examples_are_harder_and_more_dimensions_easier() -> None:
    by_examples = [separable_fraction(t, 16) for t in range(16, 100)]
    assert all(a > b for a, b in itertools.pairwise(by_examples))
    by_dimension = [separable_fraction(40, d) for d in range(2, 30)]
    assert all(a < b for a, b in itertools.pairwise(by_dimension))


# ---------------------------------------------------------------------------------------------- the instance


def test_points_are_directions_and_labels_signs() -> None:
    instance = draw(7, 23)
    assert isinstance(instance, Instance)
    assert instance.points.shape == (23, 7) and instance.labels.shape == (23,)
    assert np.abs(np.linalg.norm(instance.points, axis=1) - 1).max() < 1e-14
    assert set(instance.labels.tolist()) == {-1.0, 1.0}
    assert instance.load == 23 and instance.bits == 23.0 and instance.best == 1.0


def test_labels_are_fair_and_points_go_everywhere() -> None:
    many = [draw(3, 17, seed) for seed in range(200)]
    assert abs(np.mean([i.labels.mean() for i in many])) < 0.06
    second = np.mean([i.points.T @ i.points / 17 for i in many], axis=0)
    assert np.abs(second - np.eye(3) / 3).max() < 0.03


def test_an_instance_is_a_function_of_its_id() -> None:
    assert draw(5, 13, 1).digest == draw(5, 13, 1).digest
    assert len({draw(5, 13, 1).digest, draw(5, 13, 2).digest, draw(5, 11, 1).digest, draw(3, 13, 1).digest}) == 4
    one = draw(5, 13, 1)
    assert one.digest != DichotomyInstance(points=one.points, labels=-one.labels).digest


def test_the_batch_pads_with_rows_that_count_for_nothing() -> None:
    problem = Dichotomies(dimension=5, examples=19)
    instances = [draw(5, 19, 1), draw(5, 23, 2), draw(5, 31, 3)]
    batch = problem.batch(0, instances)
    signed, real = batch["signed"], batch["real"]
    assert signed.shape[0] == 3 and signed.shape[2] == 5 and real.shape == signed.shape[:2]
    assert real.sum(1).tolist() == [19, 23, 31]
    for k, i in enumerate(instances):
        assert np.array_equal(signed[k, : i.load], i.labels[:, None] * i.points)
        assert not signed[k, i.load :].any() and not real[k, i.load :].any()
    assert all(np.array_equal(batch[k], problem.batch(7, instances)[k]) for k in batch) and problem.static


def test_close_numbers_of_examples_share_a_shape() -> None:
    shapes = [Dichotomies(dimension=5, examples=t).shape for t in range(1, 200)]
    assert all(s[0] == 5 and s[1] >= t for t, s in zip(range(1, 200), shapes, strict=True))
    assert [s[1] for s in shapes] == sorted(s[1] for s in shapes) and len(set(shapes)) < 20
    padded = Dichotomies(dimension=5, examples=23)
    assert padded.batch(0, [draw(5, 23)])["signed"].shape[1] == padded.shape[1]


def test_the_load_is_a_knob() -> None:
    problem = Dichotomies(dimension=5, examples=19)
    assert problem.with_load(29) == Dichotomies(dimension=5, examples=29) and problem.examples == 19
    assert decode(problem.to_json()) == problem


@pytest.mark.parametrize(
    "dimension, examples, mentions",
    [(1, 5, ("--dimension", "1")), (1001, 5, ("1000", "1001")), (5, 0, ("`examples >= 1`", "0")), (-3, 5, ("-3",))],
)
def test_problems_that_make_no_sense_are_refused(dimension: int, examples: int, mentions: tuple[str, ...]) -> None:
    with pytest.raises(BadInput) as refusal:
        Dichotomies(dimension=dimension, examples=examples)
    assert all(m in str(refusal.value) for m in mentions), refusal.value
