"""Claims: the file is sound, every statistic is as defined, and what cannot be said is not said."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from tests.files.refusals import refused
from tests.papers.made import cell, curves, found

from keyspan.papers import adler_statistics as stats
from keyspan.papers import claims
from keyspan.papers.adler import figures, paper
from keyspan.papers.adler_checks import CHECKS
from keyspan.papers.adler_intervals import INTERVALS
from keyspan.papers.measured import Measured
from keyspan.theory.bounds import law

GOOD = """
[[claims]]
id = "a"
paper = "adler"
source = "claim 1"
figures = ["fig3"]
claim = "so it is"
statistic = "law_r2"
test = ">="
threshold = 0.5
interval = "over cells"
power = "enough"
expected = "holds"
"""


def judged(measured: Measured) -> dict[str, claims.Judged]:
    return {j.claim.id: j for j in claims.judge(measured, paper())}


# --- the file ------------------------------------------------------------------------------------------------------


def test_the_claims_of_adler() -> None:
    loaded = claims.load(paper())
    assert len(loaded) >= 10 and claims.load(replace(paper(), name="nobody")) == ()
    names = set(figures())
    for claim in loaded:
        assert set(claim.figures) <= names
    assert {name for claim in loaded for name in claim.figures} >= {"fig1", "fig2", "fig3", "fig4", "fig5"}
    used = {claim.statistic for claim in loaded if claim.figures}
    assert used == set(paper().statistics) == set(paper().intervals)  # none is idle
    assert set(stats.STATISTICS) == set(INTERVALS)
    assert {claim.statistic for claim in loaded if claim.theory} == set(CHECKS)


@pytest.mark.parametrize(
    "old, new, mentions",
    [
        ('"law_r2"', '"magic"', "magic"),
        ('">="', '"=="', "=="),
        ('">="', '"between"', "between"),
        ("0.5", "[0.5, 1.0]", ">="),
        ("expected", "surprise", "surprise"),
        ("[[claims]]", "[[claims", "tables"),
        ('id = "a"\n', "", "id"),
        ('power = "enough"\n', "", "power"),
        ('figures = ["fig3"]\n', "", "none"),
        ('figures = ["fig3"]\n', 'figures = ["fig3"]\ntheory = true\n', "figures and theory"),
    ],
)
def test_a_bad_file_is_refused(old: str, new: str, mentions: str) -> None:
    assert [claim.id for claim in claims.read(GOOD)] == ["a"]
    refused(lambda: claims.check_statistics(claims.read(GOOD.replace(old, new)), stats.STATISTICS), mentions)


def test_ids_are_unique() -> None:
    refused(lambda: claims.read(GOOD + GOOD), "unique")


# --- F1 against D_K ------------------------------------------------------------------------------------------------

RISING = {1: {8: 0.1, 16: 0.2, 32: 0.3}, 2: {8: 0.2, 16: 0.4, 32: 0.995, 64: 1.0}, 4: {16: 0.45, 32: 0.9, 64: 1.0}}


def test_the_threshold() -> None:
    one = found("fig1", lines=[curves(128, 32, RISING)])
    assert stats.threshold_width(one) == 2  # two heads: 0.4 at 16, 0.995 at 32
    where = 16 + 16 * (0.99 - 0.4) / (0.995 - 0.4)  # on the line between them
    assert stats.threshold_place(one) == pytest.approx(where / law(128, 32))
    assert stats.one_head_deficit(one) == pytest.approx(0.995 - 0.3)
    verdicts = judged(one)
    assert verdicts["adler-threshold-sharp"].holds is verdicts["adler-threshold-place"].holds is True
    assert verdicts["adler-one-head-below"].holds is True and len(verdicts) == 3


def test_the_worst_cell_counts() -> None:
    wide = {1: {8: 0.1, 16: 0.99, 32: 1.0}, 2: {4: 0.1, 8: 0.6, 32: 0.991, 64: 1.0}}
    both = found("fig1", lines=[curves(128, 32, RISING), curves(128, 8, wide)])
    assert stats.threshold_width(both) == 2 and stats.one_head_deficit(both) == pytest.approx(0.991 - 1.0)
    assert stats.threshold_place(both) == pytest.approx(law(128, 8) / 16)  # one head crosses at 16 exactly
    assert judged(both)["adler-one-head-below"].holds is False


def test_a_dip_above_is_below_the_threshold() -> None:
    line = curves(128, 32, {1: {8: 0.1, 16: 0.2}, 2: {8: 0.4, 16: 1.0, 32: 0.9, 64: 1.0}})
    assert line.reach(2) == 64 and line.reach(1) is line.crossing(1) is None
    assert line.crossing(2) == pytest.approx(32 + 32 * 0.9)
    assert curves(128, 32, {1: {8: 1.0, 16: 1.0}}).crossing(1) == 8  # nothing was measured below


def test_what_never_rises_cannot_be_said() -> None:
    never = found("fig1", lines=[curves(128, 32, RISING), curves(256, 16, {1: {8: 0.1}, 2: {8: 0.2}})])
    for verdict in judged(never).values():
        assert (verdict.measured, verdict.holds) == (None, None) and "too few cells" in str(verdict.reason)


def test_one_head_is_compared_where_items_exceed_the_width() -> None:
    assert stats.one_head_deficit(found("fig1", lines=[curves(32, 32, RISING)])) is None


# --- heads ---------------------------------------------------------------------------------------------------------


def test_the_line_against_the_diagonal() -> None:
    """(64, 32) and (128, 64) lie between the lines: m > d, and yet P(m, 1) <= d^2."""
    cells = [cell(64, 32, 9), cell(128, 64, 9), cell(128, 16, 64, 8), cell(64, 64, 4)]
    assert [stats.above_line(c) for c in cells] == [False, False, True, False]
    some = found("map", cells)
    assert stats.line_gain(some) == pytest.approx(0.5) and judged(some)["adler-gardner-line"].holds is True
    assert stats.line_gain(found("map", [replace(c, heads=2) for c in cells[:2]])) == -1
    assert stats.line_gain(found("map", cells[:1])) is None


def test_shares_of_cells() -> None:
    cells = [cell(64, 64, 4), cell(128, 128, 5), cell(128, 64, 9), cell(128, 16, 64, 8), cell(64, 16, 20, 2), cell(64, 4, None)]
    some = found("map", cells)
    assert stats.several_share_compressed(some) == pytest.approx(2 / 3) and stats.one_share_uncompressed(some) == 1
    verdicts = judged(some)
    assert (verdicts["adler-several-beat-one"].holds, verdicts["adler-one-head-enough"].holds) == (False, True)
    assert stats.one_share_uncompressed(found("map", cells[1:])) is None  # one cell is no share


def test_heads_along_rows_and_columns() -> None:
    cells = [cell(64, 64, 4, 1), cell(64, 16, 20, 2), cell(128, 64, 9, 1), cell(128, 16, 64, 8)]
    assert stats.heads_rise_with_items(found("fig2", cells)) == 1
    assert stats.heads_rise_with_less_width(found("fig2", cells)) == 1
    other = [cell(64, 64, 4, 4), cell(64, 16, 20, 2), cell(128, 64, 9, 4), cell(128, 16, 64, 8)]
    assert stats.heads_rise_with_items(found("fig2", other)) == 1
    assert stats.heads_rise_with_less_width(found("fig2", other)) == 0.5
    flat = [replace(c, heads=2) for c in cells]
    assert stats.heads_rise_with_items(found("fig2", flat)) == 0  # it never has more
    assert stats.heads_rise_with_items(found("fig2", cells[:3])) is None  # one pair


def test_the_diagonal() -> None:
    sizes = [(128, 16), (256, 32), (512, 64)]
    along = [cell(m, d, round(100 * law(m, d))) for m, d in sizes]
    assert stats.diagonal_growth(found("fig4", along)) == pytest.approx(1, abs=1e-3)
    assert judged(found("fig4", along))["adler-diagonal-growth"].holds is True
    falling = [cell(m, d, b) for (m, d), b in zip(sizes, (70, 60, 50), strict=True)]
    assert judged(found("fig4", falling))["adler-diagonal-growth"].holds is False
    assert stats.diagonal_growth(found("fig4", falling[:2])) is None


# --- the law -------------------------------------------------------------------------------------------------------

GRID = [(m, m // r) for m in (128, 256, 512) for r in (1, 4, 16)]


def grid(budget: Any) -> Measured:
    return found("fig3", [cell(m, d, round(budget(m, d))) for m, d in GRID])


def test_the_law_holds_where_it_is_the_truth() -> None:
    exact = grid(lambda m, d: 1000 * law(m, d))
    assert stats.law_r2(exact) == pytest.approx(1) and stats.law_exponent(exact) == pytest.approx(1, abs=1e-3)
    verdicts = judged(exact)
    assert {v.holds for v in verdicts.values()} == {True} and len(verdicts) == 3
    assert stats.ratio_spread(exact) == pytest.approx(1, abs=1e-3)


def test_it_fails_where_it_is_not() -> None:
    steep = judged(grid(lambda m, d: 1000 * law(m, d) ** 1.5))
    assert steep["adler-law-proportional"].measured == pytest.approx(1.5, abs=1e-2)
    assert steep["adler-law-proportional"].holds is False
    without = judged(grid(lambda m, d: 1000 * m / d))
    assert without["adler-law-logarithm"].holds is False
    assert stats.ratio_spread(grid(lambda m, d: 1000 * law(m, d) ** 1.5)) == pytest.approx(
        math.sqrt(law(512, 32) / law(128, 128)), rel=1e-2
    )


def test_few_cells_are_no_grid() -> None:
    few = found("fig3", [cell(m, d, round(10 * law(m, d))) for m, d in GRID[:5]])
    assert {v.holds for v in judged(few).values()} == {None} and stats.ratio_spread(few) is None


# --- what cannot be said -------------------------------------------------------------------------------------------


def test_two_seeds_decide_nothing_but_are_shown() -> None:
    exact = grid(lambda m, d: 1000 * law(m, d))
    two = replace(exact, sweep=replace(exact.sweep, seeds=2))
    verdict = judged(two)["adler-law-explains"]
    assert verdict.holds is None and verdict.measured == pytest.approx(1) and "2 seeds" in str(verdict.reason)


def test_a_failed_member_decides_nothing() -> None:
    exact = grid(lambda m, d: 1000 * law(m, d))
    verdict = judged(replace(exact, failed_cells=frozenset({(128, 128)})))["adler-law-explains"]
    assert (verdict.measured, verdict.holds) == (None, None) and "without a number" in str(verdict.reason)


def test_the_json() -> None:
    data = judged(grid(lambda m, d: 1000 * law(m, d)))["adler-law-proportional"].to_dict()
    assert {"id", "paper", "claim", "test", "threshold", "expected", "measured", "holds", "figure", "tier", "reason"} <= set(
        data
    )
    assert data["threshold"] == [0.85, 1.15] and data["holds"] is True
