"""Sweeps: the cells of every tier are what they say, and their questions are the ones that capacities are measured by."""

from __future__ import annotations

import pytest
from tests.files.refusals import refused

from keyspan.evidence.store import open_store
from keyspan.papers import adler
from keyspan.papers.figures import TIERS, choose
from keyspan.papers.reproduce import plan
from keyspan.papers.sweeps import Sweep, beyond_reach, grid, heads_near, questions
from keyspan.problems.relations import Relations
from keyspan.runners.estimate import estimate
from keyspan.runners.questions import default_heads, relations_question
from keyspan.specs import canonical
from keyspan.theory.bounds import heads_needed, law

FIGURES = {name: figure for name, figure in adler.figures().items() if not figure.group}


def test_the_figures_there_are() -> None:
    assert list(FIGURES) == ["fig1", "fig2", "fig3", "fig4", "fig5", "map", "targets"]
    for figure in FIGURES.values():
        assert set(figure.tiers) == set(TIERS)
        for tier, sweep in figure.tiers.items():
            assert sweep.seeds == adler.SEEDS[tier] and sweep.cells
            assert len(set(sweep.cells)) == len(sweep.cells)


@pytest.mark.parametrize("tier", ["short", "paper"])
def test_the_grid_and_what_it_leaves_out(tier: str) -> None:
    """Every (m, m/r) is either measured or left out with a reason."""
    sweep = FIGURES["fig3"].tiers[tier]
    gone = dict(sweep.left_out)
    every = {(m, m // r) for m in adler.ITEMS[tier] for r in adler.RATIOS[tier]}
    assert set(sweep.cells) | set(gone) == every and not set(sweep.cells) & set(gone)
    for (m, d), reason in gone.items():
        needed = heads_needed(m, m, d)
        assert ("takes too long" in reason) == ((m, d) in adler.TOO_LONG and tier == "short")
        assert "takes too long" in reason or needed is None or needed > m // 8
    assert FIGURES["fig2"].tiers[tier] == FIGURES["fig5"].tiers[tier] == FIGURES["map"].tiers[tier] == sweep


@pytest.mark.parametrize("tier", TIERS)
def test_the_diagonal_is_of_the_grid(tier: str) -> None:
    sweep = FIGURES["fig4"].tiers[tier]
    assert all(m == 8 * d for m, d in sweep.cells) and len(sweep.cells) >= 2
    assert set(sweep.cells) <= set(FIGURES["fig3"].tiers[tier].cells)


def test_what_is_beyond_reach() -> None:
    assert grid([128], [4, 8]) == ((128, 32), (128, 16))
    ((size, reason),) = beyond_reach([128], [8, 16])
    assert size == (128, 8) and reason.startswith("needs 20 heads") and "16 are tried" in reason


def test_the_heads_near_what_is_needed() -> None:
    assert heads_near(512, 64) == (1, 2, 4, 8)  # one is needed
    assert heads_near(512, 32) == (1, 2, 4, 8, 16, 32, 64)  # five are
    assert heads_near(64, 64) == (1, 2, 4, 8) == default_heads(64)
    assert all(set(heads_near(m, d)) <= set(default_heads(m)) for m, d in FIGURES["fig3"].tiers["paper"].cells)


def test_a_search_is_the_standard_question() -> None:
    """So that `measure relations` and `fit law` know what a figure has measured."""
    (asked,) = questions(Sweep(cells=((64, 16),), seeds=5), seed=3)
    assert asked == relations_question(Relations(items=64, d_model=16), seeds=5, seed=3)


def test_every_target_is_a_question() -> None:
    asked = questions(Sweep(cells=((64, 16), (64, 32)), seeds=2, targets=adler.TARGETS))
    assert [(q.problem.d_model, q.target) for q in asked] == [  # type: ignore[attr-defined]
        (d, t) for d in (16, 32) for t in (0.9, 0.95, 0.99, 1.0)
    ]


def test_curves_are_asked_at_multiples_of_the_law() -> None:
    multiples = (0.5, 1.0, 2.0)
    (asked,) = questions(Sweep(cells=((64, 16),), seeds=2, curves=multiples))
    arms = {arm.heads: arm.levels for arm in asked.arms}
    assert not asked.search and list(arms) == [1, 2, 4, 8]
    for heads, levels in arms.items():
        assert heads and all(level % heads == 0 and level // heads <= 16 for level in levels)
    for factor in multiples:
        assert any(abs(level - factor * law(64, 16)) <= 4 for level in arms[8])
    assert set(arms[1]) >= {level for h in (2, 4, 8) for level in arms[h] if level <= 16}  # to compare at equal D_K


# --- names ---------------------------------------------------------------------------------------------------------


def test_one_figure_or_all() -> None:
    assert [f.name for f in choose("adler", FIGURES, "adler:fig3", "smoke")] == ["fig3"]
    assert [f.name for f in choose("adler", FIGURES, "adler", "smoke")] == list(FIGURES)


@pytest.mark.parametrize("name", ["adler:fig9", "adler:", "mahdavy", "fig3", "", "adler:fig1:fig2"])
def test_an_unknown_figure_is_refused_with_the_list(name: str) -> None:
    refused(lambda: plan(name, "smoke"), "adler:fig1", "adler:map")


def test_an_unknown_tier_is_refused() -> None:
    refused(lambda: plan("adler", "long"), "smoke|short|paper")


def test_questions_are_asked_once() -> None:
    every = plan("adler", "smoke")
    ids = [canonical(q.to_json()) for q in every.questions]
    assert len(ids) == len(set(ids)) < sum(len(asked) for _, asked in every.figures)
    assert plan("adler:fig3", "smoke", seed=1).questions != plan("adler:fig3", "smoke").questions


@pytest.mark.parametrize("tier, seconds", [("smoke", 120), ("short", 3600)])
def test_a_tier_keeps_to_its_time(tier: str, seconds: float) -> None:
    """On two cores, as `--dry-run` says."""
    with open_store("sqlite:///nowhere/none.db", read_only=True, missing_ok=True) as store:
        expected = estimate(plan("adler", tier).questions, store, jobs=2)
    assert 0 < expected.seconds < seconds
