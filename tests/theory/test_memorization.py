"""Bounds on the number of labelled examples, and how they lie to each other."""

from __future__ import annotations

import itertools

import pytest
from tests.files.refusals import refused

from keyspan.theory.memorization import dana_accuracy, examples_bounds, feature_cap, general_position, theorem


def test_the_theorem_in_numbers() -> None:
    assert theorem(20, 32, 64) == 20 * 31 + 1 == feature_cap(20, 32, 64)
    assert theorem(20, 32, 10) == 20 * 9 + 1
    assert theorem(5, 1, 7) == theorem(5, 7, 1) == 1
    assert general_position(20, 64) == 20 * 63 + 1


@pytest.mark.parametrize("contexts", ["fixed", "random", "perm"])
def test_the_theorem_never_exceeds_the_cap(contexts: str) -> None:
    for heads, n, d in itertools.product((1, 3, 20), (1, 2, 7, 32), (8, 33, 64)):
        if n < d:
            for d_key in (1, 4, 64):
                assert theorem(heads, n, d_key) <= feature_cap(heads, n, d, contexts)
    assert feature_cap(3, 8, 8) == 3 * 7 + 1 and feature_cap(3, 100, 8) == 24
    assert feature_cap(3, 8, 8, contexts="random") == 24


def test_danas_bound_at_their_sizes() -> None:
    accuracies = [dana_accuracy(50, heads, 10, 10) for heads in (1, 6, 11, 16, 21, 26, 31)]
    assert accuracies[0] == pytest.approx(0.02784) and accuracies[-1] == pytest.approx(0.14544)
    assert all(a < b for a, b in itertools.pairwise(accuracies))
    assert dana_accuracy(2, 100, 10, 10) == 1.0


def test_the_list_says_what_each_is() -> None:
    listed = {b.name: b for b in examples_bounds(heads=4, context=8, d_model=24, d_key=8, contexts="fixed")}
    assert {n: b.value for n, b in listed.items()} == {"theorem": 29.0, "cap of features": 29.0, "general position": 93.0}
    assert {b.about for b in listed.values()} == {"examples"}
    assert [b.status for b in listed.values()] == ["proven", "proven", "conjectured"]
    refused(lambda: examples_bounds(heads=4, context=8, d_model=24, d_key=8, contexts="shared"), "random|fixed|perm")
    refused(lambda: theorem(0, 8, 8), "heads")
