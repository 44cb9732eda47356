"""The interval: isotonic fits, weighted quantiles, and coverage of a crossing that is known."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keyspan.lab.crossing import Table, cross, isotonic_decreasing
from keyspan.lab.search import meets
from keyspan.problems.dichotomies import separable_fraction
from keyspan.runners.questions import calibration_questions
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


def test_a_crossing_outside_the_levels_is_no_number() -> None:
    question, _ = calibration_questions(5, seeds=10)
    for score in (0.0, 1.0):
        table = Table(levels=(8, 9), probed={8: (score,) * 10, 9: (score,) * 10})
        crossing, _, best = cross(question, [table], meets)
        assert crossing.estimate is None
        assert best is None
