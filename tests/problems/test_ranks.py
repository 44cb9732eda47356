"""Ranks, Kruskal ranks and general position, against sets counted one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyspan.problems.ranks import (
    Float,
    context_ranks,
    default_tolerance,
    hypotheses,
    independent_fraction,
    kruskal_rank,
    numerical_rank,
)
from keyspan.seeds import Stream


def gaussian(count: int, d: int, seed: int = 0) -> Float:
    return Stream(f"ranks-{seed}", "vectors").normal((count, d))


def counted(vectors: Float, tolerance: float = 1e-9) -> int:
    """The definition: the largest r of which every r vectors, scaled to unit length, are independent."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for size in range(1, min(vectors.shape) + 1):
        for some in itertools.combinations(range(len(vectors)), size):
            if np.linalg.svd(unit[list(some)], compute_uv=False)[-1] <= tolerance:
                return size - 1
    return int(min(vectors.shape))


# Integer vectors of few values are often dependent, in every possible way.
small = st.integers(2, 5).flatmap(
    lambda d: st.lists(st.lists(st.integers(-1, 1), min_size=d, max_size=d).filter(any), min_size=1, max_size=8)
)


@given(small)
def test_few_vectors_are_counted_exactly(rows: list[list[int]]) -> None:
    vectors = np.array(rows, dtype=np.float64)
    found = kruskal_rank(vectors)
    assert found.exact and found.low == found.sampled == counted(vectors)


@given(small)
def test_the_bracket_holds_the_truth_where_sets_are_not_counted(rows: list[list[int]]) -> None:
    vectors = np.array(rows, dtype=np.float64)
    found = kruskal_rank(vectors, sets=0, samples=8)
    truth = counted(vectors)
    assert found.low <= truth <= found.high and found.low <= found.sampled <= found.high


def test_general_vectors_have_full_kruskal_rank() -> None:
    assert kruskal_rank(gaussian(12, 5)).low == 5 and kruskal_rank(gaussian(4, 9)).low == 4
    many = kruskal_rank(gaussian(300, 20))
    assert many.low < many.high == many.sampled == 20 and many.high_by == "rank of all vectors"


def test_special_cases_and_their_reasons() -> None:
    x = gaussian(200, 6)
    assert kruskal_rank(np.vstack([x, np.zeros((1, 6))])).high == 0
    twice = kruskal_rank(np.vstack([x, -2.0 * x[3:4]]))
    assert twice.exact and twice.low == 1 and twice.high_by == "2 dependent vectors found"
    flat = x.copy()
    flat[:, 5] = flat[:, 0] - flat[:, 1]
    assert kruskal_rank(flat).high == 5
    three = np.vstack([gaussian(400, 10), gaussian(2, 10, 1).sum(axis=0, keepdims=True), gaussian(2, 10, 1)])
    assert kruskal_rank(three, samples=4).high >= 2  # three dependent ones among 403 are not met by chance


def test_coherence_proves_what_it_says() -> None:
    orthogonal = np.vstack([np.eye(16), np.ones((1, 16)) / 4.0])  # |x . y| = 1/4: any 4 are independent; in truth, any 16
    found = kruskal_rank(orthogonal, sets=0)
    assert (found.low_by, found.high) == ("coherence", 16) and 4 <= found.low <= 16
    stretched = orthogonal @ np.diag(np.linspace(1.0, 1e3, 16))  # whitening undoes the stretch
    assert kruskal_rank(stretched, sets=0).low >= 4


def test_a_scale_of_vectors_is_nothing() -> None:
    x = gaussian(17, 6)
    scaled = x * np.exp(gaussian(17, 1, 3) * 5)
    assert kruskal_rank(x) == kruskal_rank(scaled)


def test_the_tolerance_is_that_of_the_numbers() -> None:
    x = gaussian(9, 4)
    x[:, 3] = x[:, 0] + 2e-7 * x[:, 3]
    assert kruskal_rank(x, tolerance=1e-12).low == 4 and kruskal_rank(x.astype(np.float32)).high == 3
    assert default_tolerance(x) < default_tolerance(x.astype(np.float32))
    assert kruskal_rank(x, tolerance=1e-3).high == 3


def test_ranks_of_contexts() -> None:
    contexts = gaussian(30, 7, 2).reshape(6, 5, 7)
    contexts[2, 4] = contexts[2, 0] - contexts[2, 1]
    assert context_ranks(contexts).tolist() == [5, 5, 4, 5, 5, 5]
    assert numerical_rank(contexts[2]) == 4 and numerical_rank(contexts[1]) == 5
    assert numerical_rank(contexts[1], tolerance=2.0) == 0


def test_the_hypotheses_of_the_theorem() -> None:
    contexts, queries = gaussian(30, 7, 2).reshape(6, 5, 7), gaussian(12, 7, 5)
    good = hypotheses(queries, contexts)
    assert good.holds is True and good.general_position is True and good.full == 6
    contexts[2, 4] = contexts[2, 0]
    assert hypotheses(queries, contexts).holds is False
    thin = queries.copy()
    thin[:, 5:] = 0.0
    assert hypotheses(thin, contexts[:2]).holds is True and hypotheses(thin, contexts[:2]).general_position is False
    thin[:, 4:] = 0.0
    assert hypotheses(thin, contexts[:2]).holds is False
    open_ended = hypotheses(gaussian(500, 40), gaussian(60, 40, 1).reshape(2, 30, 40))
    assert open_ended.holds is None and open_ended.general_position is None  # the bracket does not say


@pytest.mark.parametrize("size, expected", [(1, 1.0), (4, 1.0), (5, 0.0), (7, 0.0), (8, 0.0)])
def test_the_fraction_of_independent_sets(size: int, expected: float) -> None:
    x = gaussian(60, 7)
    x[:, 4:] = x[:, :3]
    assert independent_fraction(x, size, Stream("f", "sets"), samples=20) == expected


def test_the_fraction_is_one_of_precision() -> None:
    x = gaussian(60, 4)
    x[:, 3] = x[:, 2] + 1e-9 * x[:, 3]
    assert independent_fraction(x, 4, Stream("f", "sets"), samples=20) == 0.0
    assert independent_fraction(x, 4, Stream("f", "sets"), samples=20, unit=2.0**-52) == 1.0
