"""The interval: isotonic fits, weighted quantiles, and coverage of a crossing that is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyspan.lab.crossing import Crossing, Table, _point, cross, isotonic_decreasing
from keyspan.lab.search import meets
from keyspan.problems.dichotomies import separable_fraction
from keyspan.problems.relations import Relations
from keyspan.runners.questions import calibration_questions, relations_question
from keyspan.seeds import Stream

values = st.lists(st.floats(0, 1), min_size=1, max_size=12)


@given(values)
def test_isotonic_fit_is_monotone_keeps_the_mean_and_leaves_monotone_data_alone(v: list[float]) -> None:
    data, weights = np.array(v), np.arange(1.0, len(v) + 1)
    fit = isotonic_decreasing(data, weights)
    assert (np.diff(fit) <= 1e-12).all()
    assert abs((fit - data) @ weights) < 1e-9
    ordered = np.sort(data)[::-1]
    np.testing.assert_allclose(isotonic_decreasing(ordered, weights), ordered, atol=1e-12)


def test_isotonic_fit_by_hand() -> None:
    fit = isotonic_decreasing(np.array([1.0, 0.4, 0.6, 0.1]), np.array([1.0, 1.0, 3.0, 1.0]))
    np.testing.assert_allclose(fit, [1.0, 0.55, 0.55, 0.1])


def test_the_interval_covers_a_known_crossing() -> None:
    """Draws from Cover's own probabilities: the 95% interval covers 2d at least 90 times in 100, and is not idle."""
    dimension, seeds, trials = 16, 100, 100
    question, _ = calibration_questions(dimension, seeds=seeds)
    levels = tuple(range(27, 38))
    stream, covered, widths = Stream("test", "coverage"), 0, []
    for _ in range(trials):
        probed: dict[int, tuple[float | None, ...]] = {}
        for level in levels:
            hits = stream.uniform(seeds) < separable_fraction(level, dimension)
            probed[level] = tuple(hits.astype(float).tolist())
        crossing, _, _ = cross(question, [Table(levels=levels, probed=probed)], meets)
        assert crossing.low is not None
        assert crossing.high is not None
        covered += crossing.low <= 2 * dimension <= crossing.high
        widths.append(crossing.high - crossing.low)
    assert covered >= 90
    assert float(np.median(widths)) < 0.1 * 2 * dimension


def test_levels_on_the_target_itself_give_their_middle() -> None:
    levels, weights = np.array([10.0, 11.0, 12.0, 14.0]), np.ones(4)
    assert _point(levels, np.array([0.8, 0.5, 0.5, 0.2]), weights, 0.5) == 11.5
    assert _point(levels, np.array([0.8, 0.5, 0.4, 0.2]), weights, 0.5) == 11.0
    assert _point(levels, np.array([0.8, 0.6, 0.6, 0.4]), weights, 0.5) == 13.0  # a line from 12 to 14
    assert _point(levels, np.array([0.4, 0.3, 0.2, 0.1]), weights, 0.5) == 0.0
    assert _point(levels, np.array([0.9, 0.8, 0.7, 0.6]), weights, 0.5) == np.inf


def test_a_crossing_outside_the_levels_is_no_number() -> None:
    question, _ = calibration_questions(5, seeds=10)
    for score in (0.0, 1.0):
        table = Table(levels=(8, 9), probed={8: (score,) * 10, 9: (score,) * 10})
        crossing, _, best = cross(question, [table], meets)
        assert crossing.estimate is None
        assert best is None


def budgets(criterion: str, seeds: int, probed: dict[int, list[float]], levels: tuple[int, ...]) -> Crossing:
    """The crossing of one arm with these scores."""
    cell = Relations(items=64, d_model=64)
    question = relations_question(cell, heads=[8], seeds=seeds, criterion=criterion)
    crossing, (same,), _ = cross(question, [Table(levels=levels, probed={k: tuple(v) for k, v in probed.items()})], meets)
    assert crossing == same
    return crossing


@pytest.mark.parametrize(("bad", "share", "low"), [(3, 0.044, 8), (5, 0.005, 16)])
def test_the_lower_end_cuts_off_two_and_a_half_percent(bad: int, share: float, low: int) -> None:
    """At 8 a few of 40 seeds fail; a draw that misses them all passes there. `all` must pass, so 16 is the estimate."""
    assert (1 - bad / 40) ** 40 == pytest.approx(share, abs=1e-3)  # above 2.5% and below 10%, or below 2.5%
    scores = {8: [0.5] * bad + [1.0] * (40 - bad), 16: [1.0] * 40}
    assert budgets("all", 40, scores, (8, 16, 24)) == Crossing(16, low, 16)


@pytest.mark.parametrize(("good", "share", "high"), [(3, 0.044, 24), (5, 0.005, 16)])
def test_the_upper_end_cuts_off_two_and_a_half_percent(good: int, share: float, high: int) -> None:
    """At 16 a few of 40 seeds pass, and `any` is enough; a draw that misses them all passes from 24 on."""
    assert (1 - good / 40) ** 40 == pytest.approx(share, abs=1e-3)
    scores = {8: [0.5] * 40, 16: [1.0] * good + [0.5] * (40 - good), 24: [1.0] * 40}
    assert budgets("any", 40, scores, (8, 16, 24)) == Crossing(16, 16, high)


def test_the_lower_end_reaches_down_to_the_last_level_that_failed() -> None:
    """Nobody looked at 16 and 24: the crossing may lie there, however much the seeds agree."""
    levels = (8, 16, 24, 32, 40)
    for seeds in (1, 3):
        assert budgets("mean", seeds, {8: [0.5] * seeds, 32: [1.0] * seeds}, levels) == Crossing(32, 16, 32)
        assert budgets("mean", seeds, {32: [1.0] * seeds, 40: [1.0] * seeds}, levels) == Crossing(32, 8, 32)
        assert budgets("mean", seeds, {24: [0.5] * seeds, 32: [1.0] * seeds}, levels) == Crossing(32, 32, 32)
