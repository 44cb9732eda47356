"""The search walks a path that depends on the question and the verdicts on it, and on nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from keyspan.errors import BadInput
from keyspan.lab import recipes
from keyspan.lab.search import Answer, Wanted, meets, propose
from keyspan.problems.relations import Relations
from keyspan.runners.questions import calibration_questions, relations_question
from keyspan.specs import Arm, Channel, Question, Run, Stopping
from keyspan.verdict import Status, Verdict

Oracle = Callable[[Run], Verdict]


def held(score: float) -> Verdict:
    return Verdict(status=Status.MEASURED, exact=score == 1.0, scores={"f1": score, "f1_best": score, "fitted": score})


def channel(run: Run) -> Channel:
    assert isinstance(run.instrument, Channel)
    return run.instrument


def threshold(at: dict[int, int]) -> Oracle:
    """F1 is 1 from a budget on that depends on the heads, and 0.5 below."""
    return lambda run: held(1.0 if channel(run).key_budget >= at[channel(run).heads] else 0.5)


def walk(question: Question, oracle: Oracle, known: dict[str, Verdict] | None = None) -> tuple[Answer, list[list[Run]]]:
    """Answer a question with an oracle. returns: the answer and the members of every round"""
    verdicts = dict(known or {})
    rounds: list[list[Run]] = []
    for _ in range(200):
        step = propose(question, verdicts)
        if isinstance(step, Answer):
            return step, rounds
        assert step.runs
        assert not {run.run_id for run in step.runs} & set(verdicts), "a measured member is never wanted again"
        rounds.append(list(step.runs))
        verdicts |= {run.run_id: oracle(run) for run in step.runs}
    raise AssertionError("the search does not end")


def cell(items: int = 128, d_model: int = 16, **asked: object) -> Question:
    return relations_question(Relations(items=items, d_model=d_model), **asked)  # type: ignore[arg-type]


def test_it_finds_the_smallest_budget_over_heads() -> None:
    answer, rounds = walk(cell(), threshold({1: 999, 2: 999, 4: 60, 8: 56, 16: 64}))
    assert (answer.crossing.estimate, answer.crossing.low, answer.crossing.high) == (56, 56, 56)
    assert answer.best is not None
    assert answer.arms[answer.best].heads == 8
    assert answer.arms[0].crossing.estimate is None  # one head: not reached at any d_key up to d_model
    assert not answer.non_monotone
    assert answer.failed == 0
    assert len(rounds) <= 6


def test_a_round_holds_all_arms_and_all_seeds() -> None:
    _, rounds = walk(cell(seeds=3), threshold({1: 999, 2: 999, 4: 60, 8: 56, 16: 64}))
    first = {(channel(r).heads, channel(r).key_budget, r.replicate) for r in rounds[0]}
    assert {h for h, _, _ in first} == {1, 2, 4, 8, 16}
    assert all((h, b, s) in first for h, b, _ in first for s in range(3))


def test_one_head_is_never_wider_than_d_model() -> None:
    _, rounds = walk(cell(), threshold(dict.fromkeys((1, 2, 4, 8, 16), 999)))
    assert max(channel(r).d_key for runs in rounds for r in runs) == 16


@given(at=st.integers(1, 16 * 8))
def test_any_threshold_is_found_exactly(at: int) -> None:
    question = cell(heads=[8], seeds=1)
    answer, _ = walk(question, threshold({8: at}))
    assert answer.crossing.estimate == -(-at // 8) * 8


@given(at=st.integers(1, 200))
def test_the_bracket_moves_outwards_when_it_does_not_hold_the_crossing(at: int) -> None:
    arm = Arm(heads=1, levels=tuple(range(1, 201)), low=50, high=60)
    question = replace(cell(d_model=200, heads=[1], seeds=1), arms=(arm,))
    answer, _ = walk(question, threshold({1: at}))
    assert answer.crossing.estimate == at


@pytest.mark.parametrize(("at", "path"), [(900, (120, 240, 480, 960)), (1, (25, 12, 6, 3, 1))])
def test_the_bracket_moves_by_factors_of_two(at: int, path: tuple[int, ...]) -> None:
    arm = Arm(heads=1, levels=tuple(range(1, 1001)), low=50, high=60)
    _, rounds = walk(replace(cell(d_model=1000, heads=[1], seeds=1), arms=(arm,)), threshold({1: at}))
    assert {channel(run).key_budget for run in rounds[0]} == {50, 60}
    assert tuple(channel(run).key_budget for (run,) in rounds[1 : 1 + len(path)]) == path


@pytest.mark.parametrize("guard", [0, 1, 2])
@given(at=st.integers(1, 16))
def test_guard_levels_on_both_sides_of_the_crossing(guard: int, at: int) -> None:
    answer, _ = walk(replace(cell(heads=[8], seeds=1), guard=guard), threshold({8: 8 * at}))
    near = range(at - 1 - guard, at + 1 + guard)  # the crossing lies between the first and the last but one of these
    assert {8 * d_key for d_key in near if 1 <= d_key <= 16} <= set(answer.arms[0].levels)
    assert answer.crossing.estimate == 8 * at


def test_an_arm_that_cannot_win_is_left_alone() -> None:
    _, rounds = walk(cell(heads=[2, 16], d_model=64), threshold({2: 6, 16: 1000}))
    wide = {channel(r).key_budget for runs in rounds for r in runs if channel(r).heads == 16}
    assert max(wide) <= 32  # its bracket, and no further although it was never held there


def test_the_answer_does_not_depend_on_what_else_is_stored() -> None:
    question = cell(heads=[4, 8])
    oracle = threshold({4: 60, 8: 56})
    alone, _ = walk(question, oracle)
    everything = {run.run_id: oracle(run) for arm in question.arms for level in arm.levels for run in question.runs(arm, level)}
    among, rounds = walk(question, oracle, everything)
    assert rounds == []
    assert among == alone


@given(cut=st.integers(0, 30), seed=st.integers(0, 5))
def test_a_killed_search_gives_the_same_answer(cut: int, seed: int) -> None:
    question = cell(heads=[4, 8], seeds=2, seed=seed)
    oracle = threshold({4: 60, 8: 56})
    whole, rounds = walk(question, oracle)
    members = [run for runs in rounds for run in runs]
    kept = {run.run_id: oracle(run) for run in members[:cut]}
    again, missing = walk(question, oracle, kept)
    assert again == whole
    assert {r.run_id for runs in missing for r in runs} == {r.run_id for r in members[cut:]}


def test_more_seeds_want_only_their_own_members() -> None:
    def noisy(run: Run) -> Verdict:  # at the crossing the later seeds fail, so five seeds judge it otherwise than three
        budget = channel(run).key_budget
        return held(1.0 if budget > 56 or (budget == 56 and run.replicate < 3) else 0.9)

    three, rounds = walk(cell(heads=[8], seeds=3), noisy)
    known = {run.run_id: noisy(run) for runs in rounds for run in runs}
    five, more = walk(cell(heads=[8], seeds=5), noisy, known)
    assert {run.replicate for runs in more for run in runs} == {3, 4}
    assert three.crossing.estimate == 56
    assert five.crossing.estimate == 64  # the guard level above was measured, so the answer stays tight


def test_non_monotone_probes_are_reported() -> None:
    odd = {40: 1.0, 48: 0.5}
    answer, _ = walk(cell(heads=[8]), lambda run: held(odd.get(b := channel(run).key_budget, 1.0 if b >= 56 else 0.5)))
    assert (8, 40, 48) in answer.non_monotone
    assert answer.crossing.estimate == 56  # a level counts only when every probed one above it passes too


def test_a_failed_member_is_no_number_and_does_not_pass() -> None:
    def oracle(run: Run) -> Verdict:
        failing = channel(run).key_budget == 64 and run.replicate == 1
        return Verdict(status=Status.DIVERGED) if failing else threshold({8: 56})(run)

    answer, _ = walk(cell(heads=[8]), oracle)
    assert answer.failed == 1
    assert answer.crossing.estimate == 72
    means = dict(zip(answer.arms[0].levels, answer.arms[0].means, strict=True))
    assert means[64] == 1.0  # over those that were measured


@pytest.mark.parametrize(("criterion", "expected"), [("all", 64), ("mean", 64), ("any", 48)])
def test_criteria(criterion: str, expected: int) -> None:
    def oracle(run: Run) -> Verdict:
        return held(1.0 if channel(run).key_budget >= {0: 48, 1: 56, 2: 64}[run.replicate] else 0.9)

    answer, _ = walk(cell(heads=[8], criterion=criterion), oracle)
    assert answer.crossing.estimate == expected


@pytest.mark.parametrize(
    ("criterion", "scores", "met"),
    [
        ("mean", [1.0, 0.5], True),  # exactly the target is enough
        ("mean", [1.0, 0.25], False),
        ("mean", [1.0, None], False),
        ("all", [0.75, 1.0], True),
        ("all", [0.5, 1.0], False),
        ("any", [0.75, None], True),
        ("any", [0.5, 0.5], False),
        ("any", [None, None], False),
    ],
)
def test_the_target_itself_is_met(criterion: str, scores: list[float | None], met: bool) -> None:
    assert meets(cell(target=0.75, criterion=criterion), scores) is met


def test_the_interval_spans_what_the_seeds_say() -> None:
    def oracle(run: Run) -> Verdict:
        return held(1.0 if channel(run).key_budget >= {0: 48, 1: 56, 2: 64}[run.replicate] else 0.9)

    answer, _ = walk(cell(heads=[8]), oracle)
    assert answer.crossing.low is not None
    assert answer.crossing.low <= 56
    assert answer.crossing.high == 64


def test_points_are_measured_without_a_search() -> None:
    answer, rounds = walk(cell(heads=[4, 8], key_budgets=[32, 64]), threshold({4: 60, 8: 80}))
    assert len(rounds) == 1
    assert [arm.levels for arm in answer.arms] == [(32, 64), (32, 64)]
    assert answer.crossing.estimate == 64


def test_an_empty_answer_says_so() -> None:
    answer, _ = walk(cell(heads=[1]), threshold({1: 999}))
    assert answer.crossing.estimate is None
    assert answer.best is None


def test_a_record_without_the_score_is_named_with_what_to_do() -> None:
    question = cell(heads=[8], seeds=1)
    run = next(question.runs(question.arms[0], question.arms[0].low))
    strange = Verdict(status=Status.MEASURED, exact=False, scores={"foo": 1.0})
    with pytest.raises(BadInput, match=rf"one of exact, foo, but got 'f1' in .* `keyspan runs remove {run.run_id}`\."):
        walk(question, lambda r: strange if r.run_id == run.run_id else held(1.0))


def test_propose_is_pure() -> None:
    question = cell(heads=[8])
    first, second = propose(question, {}), propose(question, {})
    assert isinstance(first, Wanted)
    assert first == second


def test_a_load_passes_below_its_crossing() -> None:
    question, _ = calibration_questions(5, seeds=20)

    def oracle(run: Run) -> Verdict:
        examples = run.problem.examples  # type: ignore[attr-defined]
        return held(1.0 if examples < 11 or (examples == 11 and run.replicate % 2) else 0.0)

    answer, _ = walk(question, oracle)
    assert answer.crossing.estimate == 11
    assert answer.crossing.low is not None
    assert answer.crossing.high is not None
    assert 10 <= answer.crossing.low <= 11 <= answer.crossing.high <= 12


def test_questions_read_back_from_json() -> None:
    for question in (cell(), *calibration_questions(5, seeds=20)):
        assert Question.from_json(question.to_json()) == question


def test_stopping_and_recipe_enter_the_members() -> None:
    question = cell(heads=[8], steps=77)
    run = question.run(question.arms[0], 64, 0)
    assert run.recipe == recipes.gradient(steps=77)
    assert run.stopping == Stopping()


# ------------------------------------------------------------------------------------------- climbing over the heads


def climbing(first: int, guard: int = 0, **asked: object) -> Question:
    return replace(cell(items=256, d_model=64, seeds=2, **asked), climb=first, guard=guard)  # heads 1, 2, 4, 8, 16, 32


def heads_of(rounds: list[list[Run]]) -> list[set[int]]:
    return [{channel(r).heads for r in runs} for runs in rounds]


def test_a_climb_begins_with_one_arm_and_asks_its_neighbours_whether_they_hold_at_less() -> None:
    at = {1: 99, 2: 40, 4: 28, 8: 24, 16: 32, 32: 64}
    answer, rounds = walk(climbing(3), threshold(at))
    assert answer.crossing.estimate == 24 and answer.best is not None and answer.arms[answer.best].heads == 8
    assert all(heads == {8} for heads in heads_of(rounds)[:-1])
    assert {(channel(r).heads, channel(r).key_budget) for r in rounds[-1]} == {(4, 20), (16, 16)}
    assert [arm.heads for arm in answer.arms if arm.levels] == [4, 8, 16]
    alone = answer.arms[0]
    assert alone.crossing.estimate is alone.crossing.low is alone.crossing.high is None
    assert answer.crossing.low == 24  # an arm that was left alone does not widen it


@settings(max_examples=40)
@given(
    best=st.integers(0, 5),
    first=st.integers(0, 5),
    least=st.integers(1, 60),
    slopes=st.lists(st.integers(1, 70), min_size=6, max_size=6),
)
def test_a_climb_finds_the_bottom_of_any_valley(best: int, first: int, least: int, slopes: list[int]) -> None:
    heads = [1, 2, 4, 8, 16, 32]
    at = {h: least + sum(slopes[min(i, best) : max(i, best)]) for i, h in enumerate(heads)}
    answer, _ = walk(climbing(first), threshold(at))
    reached = [-(-a // h) * h if -(-a // h) <= 64 else 10**6 for h, a in at.items()]  # up to d_key = d_model
    low = reached.index(min(reached))
    downhill, uphill = reached[: low + 1], reached[low:]
    assume(downhill == sorted(set(downhill), reverse=True) and uphill == sorted(set(uphill)) and reached[low] < 10**6)
    assert answer.crossing.estimate == min(reached)


def test_a_climb_goes_on_where_its_first_arm_holds_nothing() -> None:
    answer, _ = walk(climbing(0), threshold({1: 999, 2: 999, 4: 30, 8: 24, 16: 32, 32: 64}))
    assert answer.crossing.estimate == 24
    answer, _ = walk(climbing(2), threshold(dict.fromkeys((1, 2, 4, 8, 16, 32), 99999)))
    assert answer.crossing.estimate is None and all(arm.levels for arm in answer.arms)


def test_a_climb_with_guards_measures_on_both_sides_of_its_crossing() -> None:
    answer, _ = walk(climbing(3, guard=1), threshold({1: 99, 2: 40, 4: 28, 8: 24, 16: 32, 32: 64}))
    assert {8, 16, 24, 32} <= set(answer.arms[3].levels)


# --------------------------------------------------------------------------------------------------- several starts


def draw(run: Run) -> int:
    recipe = run.recipe
    assert isinstance(recipe, recipes.Recipe)
    return recipe.draw


def lucky(at: int, needs: Callable[[Run], int], near: float = 0.9) -> Oracle:
    """Exact from a budget on, at the start that the instance needs; before that, near."""

    def oracle(run: Run) -> Verdict:
        if channel(run).key_budget < at:
            return held(0.3)
        return held(1.0 if draw(run) >= needs(run) else near)

    return oracle


def test_an_instance_tries_one_start_after_another_and_no_more_than_it_needs() -> None:
    question = replace(cell(heads=[8], key_budgets=[24], seeds=3), starts=4, target=1.0, criterion="all")
    answer, rounds = walk(question, lucky(0, lambda run: run.replicate))
    assert answer.crossing.estimate == 24
    tried = [[(r.replicate, draw(r)) for r in runs] for runs in rounds]
    assert tried == [[(0, 0), (1, 0), (2, 0)], [(1, 1), (2, 1)], [(2, 2)]]
    assert [(p.replicate, draw(p.run)) for p in answer.probes] == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    few, _ = walk(replace(question, starts=2), lucky(0, lambda run: run.replicate))
    assert few.crossing.estimate is None


def test_starts_count_from_the_recipes_own_draw() -> None:
    question = replace(cell(heads=[8], key_budgets=[24], seeds=1), starts=3, target=1.0)
    question = replace(question, recipe=replace(recipes.hinge(), draw=5))
    _, rounds = walk(question, lucky(0, lambda run: 7))
    assert [draw(r) for runs in rounds for r in runs] == [5, 6, 7]


def test_where_a_start_is_not_even_near_no_other_is_tried() -> None:
    question = replace(cell(heads=[8], seeds=2), starts=3, near=0.6, target=1.0, criterion="all")
    answer, rounds = walk(question, lucky(40, lambda run: 1))
    assert answer.crossing.estimate == 40
    assert {draw(r) for runs in rounds for r in runs if channel(r).key_budget < 40} == {0}
    assert {draw(r) for runs in rounds for r in runs if channel(r).key_budget >= 40} == {0, 1}


def test_where_all_must_hold_one_that_is_not_near_ends_the_others_attempts() -> None:
    scores = {0: [0.9, 0.9, 1.0], 1: [0.9, 0.5, 1.0], 2: [1.0]}
    question = replace(cell(heads=[8], key_budgets=[24], seeds=3), starts=3, near=0.6, target=1.0, criterion="all")
    answer, rounds = walk(question, lambda run: held(scores[run.replicate][draw(run)]))
    assert [[(r.replicate, draw(r)) for r in runs] for runs in rounds] == [[(0, 0), (1, 0), (2, 0)], [(0, 1), (1, 1)]]
    assert answer.crossing.estimate is None
    mean = replace(question, criterion="mean", target=0.95)
    answer, rounds = walk(mean, lambda run: held(scores[run.replicate][draw(run)]))
    assert [(r.replicate, draw(r)) for r in rounds[-1]] == [(0, 2)]
    assert list(answer.arms[0].means) == pytest.approx([2.9 / 3])


def test_a_start_that_was_lost_is_followed_by_another() -> None:
    question = replace(cell(heads=[8], key_budgets=[24], seeds=1), starts=2, near=0.6, target=1.0)
    lost = Verdict(status=Status.DIVERGED)
    answer, _ = walk(question, lambda run: held(1.0) if draw(run) else lost)
    assert answer.crossing.estimate == 24 and answer.failed == 1


def test_the_best_start_counts() -> None:
    question = replace(cell(heads=[8], key_budgets=[24], seeds=1), starts=3, target=0.99)
    scores = [0.7, 0.9, 0.8]
    answer, _ = walk(question, lambda run: held(scores[draw(run)]))
    assert answer.arms[0].means == (0.9,)


def test_solvers_climb_from_what_theory_puts_first_and_gradient_recipes_do_not() -> None:
    for name in ("gradient", "hinge"):
        asked = cell(items=1024, d_model=64, recipe=name)
        assert (asked.climb, asked.starts, asked.near, asked.guard, asked.arithmetic) == (None, 1, 0.0, 1, "fp32")
    solver, fixed = (cell(items=1024, d_model=64, recipe=name) for name in ("solver", "solver-fixed"))
    assert solver.climb is not None and solver.arms[solver.climb].heads == 8  # gardner_best of powers of two
    assert (solver.starts, solver.near, solver.guard, solver.arithmetic) == (4, 0.7, 0, "fp64")
    assert (fixed.starts, fixed.near, fixed.guard, fixed.arithmetic) == (1, 0.0, 0, "fp64")
    assert (solver.arms[3].low, solver.arms[3].high) == (56, 80)  # 0.75 and 1.0 of 76.9
    assert cell(items=1024, d_model=64, recipe="solver", heads=[8], key_budgets=[64]).climb is None
    hopeless = cell(items=1024, d_model=64, recipe="solver", heads=[1, 2])
    assert hopeless.climb == 1 and hopeless.arms[0].low < hopeless.arms[0].high == 64
