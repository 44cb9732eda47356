"""Intervals of statistics: they hold what they must, and are those of textbooks where there is one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.papers.made import cell, found

from keyspan.papers import adler_statistics as stats
from keyspan.papers.adler_intervals import INTERVALS
from keyspan.papers.measured import Curves, Measured, Point
from keyspan.runners.measure import wilson
from keyspan.theory.bounds import law

BUDGETS = (8, 12, 16, 24, 32, 48)


def noisy(shift: float = 0.0) -> Measured:
    """F1 that rises from 0.3 to 1 at 24, where five seeds differ; one head stays at 0.2 and less."""
    points = [Point(1, b, tuple(0.2 - 0.01 * s for s in range(5))) for b in BUDGETS]
    for b in BUDGETS:
        level = 0.3 if b < 16 else 0.985 if b < 24 else 0.995
        points.append(Point(2, b, tuple(min(1.0, level + 0.004 * (s - 2) + shift) for s in range(5))))
    return found("fig1", lines=[Curves(128, 32, 0.99, tuple(points))])


@pytest.mark.parametrize("name", ["threshold_width", "threshold_place", "one_head_deficit"])
def test_curves_are_drawn_over_seeds(name: str) -> None:
    some = noisy()
    value, ends = stats.STATISTICS[name](some), INTERVALS[name](some)
    assert value is not None and ends is not None and ends[0] <= value <= ends[1] and ends[0] < ends[1]
    assert INTERVALS[name](some) == ends  # the same draws again


def test_a_cell_with_more_seeds_is_drawn_from_all_of_them() -> None:
    """The deficit is the least over cells: that of the first, of which three seeds alone would say that it is 0."""
    one, two = ((1.0, 1.0, 1.0, 0.9, 0.9), (1.0,) * 5)
    first = Curves(128, 32, 0.99, (Point(1, 16, one), Point(2, 16, two)))
    second = Curves(512, 64, 0.99, (Point(1, 32, (0.5, 0.6, 0.7)), Point(2, 32, (1.0,) * 3)))
    some = found("fig1", lines=[first, second])
    ends = INTERVALS["one_head_deficit"](some)
    assert stats.one_head_deficit(some) == pytest.approx(0.04) and ends == pytest.approx((0.0, 0.08))


def test_one_seed_has_no_interval() -> None:
    lines = [Curves(128, 32, 0.99, tuple(Point(h, b, (1.0 if b > 16 else 0.2,)) for h in (1, 2) for b in BUDGETS))]
    assert INTERVALS["threshold_width"](found("fig1", lines=lines)) is None


def test_what_most_draws_do_not_define_has_no_interval() -> None:
    some = noisy(shift=-0.0059)  # the mean of the seeds is just at the target, so half of the draws never reach it
    assert stats.threshold_width(some) is None and INTERVALS["threshold_width"](some) is None


def test_shares_are_wilsons() -> None:
    cells = [cell(128, 16, 64, 8), cell(128, 32, 20, 2), cell(64, 32, 9), cell(64, 64, 4), cell(128, 128, 5)]
    some = found("fig2", cells)
    assert INTERVALS["several_share_compressed"](some) == pytest.approx(wilson(2, 3))
    assert INTERVALS["one_share_uncompressed"](some) == pytest.approx(wilson(2, 2))
    assert INTERVALS["heads_rise_with_items"](found("fig2", [*cells, cell(64, 16, 30, 4)])) == pytest.approx(wilson(2, 2))
    assert INTERVALS["one_share_uncompressed"](found("fig2", cells[:3])) is None


GRID = [(m, m // r) for m in (128, 256, 512) for r in (1, 4, 16)]


def grid(budget: Any, width: float = 0.0) -> Measured:
    made = [(m, d, round(budget(k, m, d))) for k, (m, d) in enumerate(GRID)]
    return found("fig3", [cell(m, d, b, low=round(b * (1 - width)), high=round(b * (1 + width))) for m, d, b in made])


def test_the_law_is_drawn_over_cells() -> None:
    some = grid(lambda k, m, d: 1000 * law(m, d) * (1.2 if k % 2 else 0.85))
    for name in ("law_r2", "law_exponent", "log_gain"):
        value, ends = stats.STATISTICS[name](some), INTERVALS[name](some)
        assert value is not None and ends is not None and ends[0] < value < ends[1], name
    assert INTERVALS["law_r2"](found("fig3", [])) is None is INTERVALS["log_gain"](found("fig3", []))
    exact = INTERVALS["law_r2"](grid(lambda k, m, d: 1000 * law(m, d)))
    assert exact is not None and exact == pytest.approx((1, 1), abs=1e-5)


def test_the_gain_without_noise_is_that_of_the_statistic() -> None:
    """Held-out errors in closed form are those that the fit leaves one cell out for."""
    some = grid(lambda k, m, d: 50 * law(m, d) ** 1.1)
    ends = INTERVALS["log_gain"](some)
    assert ends is not None and ends[0] <= (stats.log_gain(some) or 0) <= ends[1]


def test_ratios_take_the_ends_of_intervals() -> None:
    some = grid(lambda k, m, d: 1000 * law(m, d), width=0.1)
    low, high = INTERVALS["ratio_spread"](some) or (0, 0)
    assert low == 1 and high == pytest.approx(1.1 / 0.9, rel=1e-3)
    low, high = INTERVALS["diagonal_growth"](some) or (0, 0)
    assert (low, high) == pytest.approx((0.9 / 1.1, 1.1 / 0.9), rel=1e-3)
    assert INTERVALS["diagonal_growth"](found("fig4", [cell(64, 8, 20)])) is None is INTERVALS["ratio_spread"](found("fig5"))


def test_the_line_is_drawn_over_cells() -> None:
    cells = [cell(64, 32, 9), cell(128, 64, 9), cell(128, 16, 64, 8), cell(64, 64, 4)]
    ends = INTERVALS["line_gain"](found("map", cells))
    assert ends is not None and 0 <= ends[0] <= 0.5 <= ends[1] <= 1
    assert INTERVALS["line_gain"](found("map", cells[:1])) is None
