"""What theory alone decides: the numbers are those of the formulas, and a wrong theory would be found out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from keyspan.papers import adler_checks as checks
from keyspan.theory import softmax


def test_the_lower_bound_grows_like_the_law() -> None:
    """At a constant margin it is log2(m!) over 2 d b, so its ratio to the law is that of log2(m!) to m ln m."""
    over = [math.lgamma(m + 1) / (m * math.log(m)) for m in (2**6, 2**20)]
    assert checks.necessary_growth() == pytest.approx(over[1] / over[0])


def test_words_are_as_long_as_birthdays_ask() -> None:
    """Random words differ from about 2 log2 m places on; never from fewer than log2 m."""
    assert 1 <= checks.one_hot_width() <= 3
    assert checks._one_hot_width(2) >= 1


def test_no_block_is_counted_that_is_no_matching(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.block_overhead() == pytest.approx(1, abs=0.1)
    monkeypatch.setattr(checks, "equitable_matchings", lambda edges, items, heads: np.zeros(len(edges), dtype=np.int64))
    assert checks.block_overhead() == math.inf


def test_half_the_temperature_misses_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.softmax_shortfall() <= 1
    aggregate, routed = softmax.aggregate_beta, softmax.routed_beta
    monkeypatch.setattr(softmax, "aggregate_beta", lambda *given: aggregate(*given) / 2)
    assert checks.softmax_shortfall() > 10
    monkeypatch.setattr(softmax, "aggregate_beta", aggregate)
    monkeypatch.setattr(softmax, "routed_beta", lambda *given: routed(*given) / 2)
    assert checks.softmax_shortfall() > 3


def test_sparse_rows_leak_with_their_common_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.leak_spread() == pytest.approx(1.02, abs=0.03)
    monkeypatch.setattr(checks, "common_direction", lambda rows: None)
    assert checks.leak_spread() > 4


def test_blocks_grow_with_the_law_and_one_head_does_not_do() -> None:
    assert 0.5 < checks.sufficient_growth() < 1.1
    assert checks.one_block_f1() < 0.5


def test_contexts() -> None:
    assert checks.context_errors() == 0
