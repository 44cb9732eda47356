"""The search for the top of a tent, with verdicts made by a rule."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lab.test_search import walk

from keyspan.decoders import Decoder
from keyspan.lab import recipes
from keyspan.problems.sequences import Sequences
from keyspan.specs import Arm, Question, Run
from keyspan.verdict import Status, Verdict

LEVELS = tuple(sorted({round(1.04**n) for n in range(200)}))


def question(low: int = 50, high: int = 150, levels: tuple[int, ...] = LEVELS, seeds: int = 2) -> Question:
    nearest = [min(levels, key=lambda n: abs(n - end)) for end in (low, high)]
    return Question(
        problem=Sequences(length=8),
        instrument=Decoder(heads=1, d_model=8),
        recipe=recipes.budgeted(),
        stopping=recipes.recital_stopping(400),
        arithmetic="fp32",
        knob="load",
        arms=(Arm(heads=None, levels=levels, low=nearest[0], high=nearest[1]),),
        replicates=tuple(range(seeds)),
        score="recited",
        target=1.0,
        goal="peak",
    )


def load(run: Run) -> int:
    assert isinstance(run.problem, Sequences)
    return run.problem.library


def tent(whole: float, end: float):  # type: ignore[no-untyped-def]
    """All is recited up to `whole`, nothing from `end` on, a line between."""

    def verdict(run: Run) -> Verdict:
        size = load(run)
        held = size if size <= whole else max(0.0, size * (end - size) / (end - whole))
        return Verdict(status=Status.MEASURED, exact=held >= size, scores={"recited": held})

    return verdict


@given(st.floats(3, 700), st.floats(1.02, 3.0), st.integers(4, 400), st.integers(1, 8))
def test_it_finds_the_top_and_the_largest_level_held_whole(whole: float, steep: float, low: int, wide: int) -> None:
    oracle = tent(whole, whole * steep)
    asked = question(low, low * wide)
    answer, rounds = walk(asked, oracle)
    held = {n: oracle(asked.run(asked.arms[0], n, 0)).scores["recited"] for n in LEVELS}
    assert answer.crossing.estimate == max(held.values()) and len(rounds) < 40
    assert max(n for n in answer.arms[0].levels if held[n] == n) == max(n for n in LEVELS if held[n] == n)


def test_it_does_not_measure_much() -> None:
    answer, _ = walk(question(50, 150), tent(101.0, 130.0))
    assert len(answer.arms[0].levels) <= 13
    assert answer.method.startswith("the largest mean")


def test_where_nothing_is_held_it_says_zero() -> None:
    answer, rounds = walk(question(), lambda run: Verdict(status=Status.MEASURED, exact=False, scores={"recited": 0.0}))
    assert answer.crossing.estimate == 0.0 and len(rounds) < 20


def test_failed_members_count_as_nothing_and_are_counted() -> None:
    def oracle(run: Run) -> Verdict:
        return Verdict(status=Status.DIVERGED) if load(run) > 60 else tent(200.0, 300.0)(run)

    answer, _ = walk(question(), oracle)
    assert answer.failed > 0 and answer.crossing.estimate == max(n for n in LEVELS if n <= 60)


def test_the_interval_covers_the_seeds() -> None:
    def oracle(run: Run) -> Verdict:
        held = tent(100.0, 140.0)(run).scores["recited"] * (0.9 if run.replicate == 0 else 1.0)
        return Verdict(status=Status.MEASURED, exact=False, scores={"recited": held})

    crossing = walk(question(seeds=4), oracle)[0].crossing
    assert crossing.low is not None and crossing.high is not None and crossing.estimate is not None
    assert crossing.low < crossing.estimate <= crossing.high


def test_old_questions_keep_their_json() -> None:
    data = question().to_json()
    assert data["goal"] == "peak" and "goal" not in replace(question(), goal="crossing").to_json()
    with pytest.raises(Exception, match="`goal`"):
        replace(question(), goal="top")
