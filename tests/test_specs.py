"""Specs: what they take, what they refuse, and what they say then."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from keyspan import specs
from keyspan.errors import BadInput
from keyspan.specs import (
    ARITHMETICS,
    Arm,
    Channel,
    LinearUnit,
    Question,
    Run,
    Spec,
    Stopping,
    canonical,
    decode,
    digest,
)


@dataclass(frozen=True, kw_only=True)
class Inner(Spec, family="test-specs-inner", version=2):
    """A part of a spec."""

    size: int = 3


@dataclass(frozen=True, kw_only=True)
class Sample(Spec, family="test-specs-sample", version=1):
    """A spec with a field of every kind."""

    count: int = 5
    ratio: float = 0.5
    name: str = "gaussian"
    flag: bool = False
    maybe: float | None = None
    shape: tuple[int, ...] = (2, 3)
    inner: Inner = Inner()
    parts: tuple[Inner, ...] = ()

    def with_load(self, level: int) -> Sample:
        """The problem with this load."""
        return replace(self, count=level)


@dataclass(frozen=True, kw_only=True)
class Later(Spec, family="test-specs-later", version=1):
    """A spec to which fields were added, one of each kind."""

    count: int
    noise: float = field(default=0.0, metadata={"absent": 0.0})
    label: str | None = field(default=None, metadata={"absent": None})
    inner: Inner = field(default=Inner(), metadata={"absent": Inner()})
    shape: tuple[int, ...] = field(default=(), metadata={"absent": ()})
    ratio: float = field(default=0.25, metadata={"absent": 1.0})  # the default changed with the field


def a_run(**changes: Any) -> Run:
    chosen: dict[str, Any] = {
        "problem": Sample(),
        "replicate": 0,
        "instrument": Channel(heads=2, d_key=7),
        "recipe": Inner(),
        "stopping": Stopping(),
    }
    return Run(**(chosen | changes))


# -------------------------------------------------------------------------------------------------------------- fields


@pytest.mark.parametrize(
    "given, same",
    [
        ({"count": 3.0}, {"count": 3}),
        ({"ratio": 2}, {"ratio": 2.0}),
        ({"ratio": -0.0}, {"ratio": 0.0}),
        ({"maybe": 1}, {"maybe": 1.0}),
        ({"shape": [2, 3.0]}, {"shape": (2, 3)}),
        ({"parts": [Inner(size=1)]}, {"parts": (Inner(size=1),)}),
    ],
)
def test_one_value_has_one_spelling(given: dict[str, Any], same: dict[str, Any]) -> None:
    left, right = Sample(**given), Sample(**same)
    assert left == right
    assert canonical(left.to_json()) == canonical(right.to_json())
    for name in given:
        assert repr(getattr(left, name)) == repr(getattr(right, name))


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"count": 1.5}, "`test-specs-sample.count` must be int, but got 1.5."),
        ({"count": True}, "`test-specs-sample.count` must be int, but got True."),
        ({"count": "3"}, "`test-specs-sample.count` must be int, but got '3'."),
        ({"count": None}, "`test-specs-sample.count` must be int, but got None."),
        ({"count": float("inf")}, "`test-specs-sample.count` must be finite, but got inf."),
        ({"ratio": float("nan")}, "`test-specs-sample.ratio` must be finite, but got nan."),
        ({"ratio": float("inf")}, "`test-specs-sample.ratio` must be finite, but got inf."),
        ({"ratio": float("-inf")}, "`test-specs-sample.ratio` must be finite, but got -inf."),
        ({"ratio": True}, "`test-specs-sample.ratio` must be a number, but got True."),
        ({"ratio": "0.5"}, "`test-specs-sample.ratio` must be a number, but got '0.5'."),
        ({"ratio": None}, "`test-specs-sample.ratio` must be a number, but got None."),
        ({"ratio": 1j}, "`test-specs-sample.ratio` must be a number, but got 1j."),
        ({"name": 3}, "`test-specs-sample.name` must be str, but got 3."),
        ({"flag": 1}, "`test-specs-sample.flag` must be bool, but got 1."),
        ({"maybe": float("nan")}, "`test-specs-sample.maybe` must be finite, but got nan."),
        ({"maybe": "no"}, "`test-specs-sample.maybe` must be a number, but got 'no'."),
        ({"shape": "23"}, "`test-specs-sample.shape` must be a list, but got '23'."),
        ({"shape": 2}, "`test-specs-sample.shape` must be a list, but got 2."),
        ({"shape": (2, False)}, "`test-specs-sample.shape` must be int, but got False."),
        ({"inner": {"size": 3}}, "`test-specs-sample.inner` must be Inner, but got {'size': 3}."),
        ({"inner": Stopping()}, "`test-specs-sample.inner` must be Inner, but got Stopping("),
        ({"parts": (Inner(), 3)}, "`test-specs-sample.parts` must be Inner, but got 3."),
    ],
)
def test_a_wrong_value_is_refused_by_name(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput) as caught:
        Sample(**wrong)
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "spec",
    [
        Sample(),
        Inner(),
        Later(count=1),
        Channel(heads=2, d_key=3),
        LinearUnit(),
        Stopping(),
        Arm(heads=1, levels=(2, 3), low=2, high=3),
        a_run(),
    ],
)
def test_specs_are_frozen_values(spec: Spec) -> None:
    same = decode(json.loads(canonical(spec.to_json())))
    assert same == spec
    assert hash(same) == hash(spec)
    for f in fields(spec):  # type: ignore[arg-type]
        with pytest.raises(FrozenInstanceError):
            setattr(spec, f.name, getattr(spec, f.name))
    if type(spec) is not LinearUnit:
        assert len(fields(spec)) > 0  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------------- JSON


def test_json_names_the_family_and_the_version_and_resolves_defaults() -> None:
    assert Sample(count=11).to_json() == {
        "family": "test-specs-sample",
        "version": 1,
        "count": 11,
        "ratio": 0.5,
        "name": "gaussian",
        "flag": False,
        "maybe": None,
        "shape": [2, 3],
        "inner": {"family": "test-specs-inner", "version": 2, "size": 3},
        "parts": [],
    }


def test_a_field_added_later_is_left_out_at_its_old_value_only() -> None:
    assert Later(count=3, ratio=1).to_json() == {"family": "test-specs-later", "version": 1, "count": 3}
    assert Later(count=3).to_json() == {"family": "test-specs-later", "version": 1, "count": 3, "ratio": 0.25}
    for changed in (
        Later(count=3, ratio=1.0, noise=0.125),
        Later(count=3, ratio=1.0, label=""),
        Later(count=3, ratio=1.0, inner=Inner(size=4)),
        Later(count=3, ratio=1.0, shape=(0,)),
    ):
        assert len(changed.to_json()) == 4


def test_a_field_that_is_left_out_is_read_at_its_old_value() -> None:
    old = Later(count=3, ratio=1.0)
    assert decode(old.to_json()) == old


@pytest.mark.parametrize(
    "data, says",
    [
        (None, "A spec must be an object with a `family`, but got None."),
        ([1], "A spec must be an object with a `family`, but got [1]."),
        ({}, "A spec must be an object with a `family`, but got {}."),
        ({"family": "nothing"}, "The family of a spec must be one of ["),
        ({"family": None}, "The family of a spec must be one of ["),
        ({"family": "channel", "version": 2, "heads": 1, "d_key": 1}, "`channel` must have version 1, but got 2."),
        ({"family": "channel", "version": "1", "heads": 1, "d_key": 1}, "`channel` must have version 1, but got 1."),
        (
            {"family": "channel", "heads": 1, "d_key": 1, "width": 1},
            "`channel` must have known fields only, but got ['w",
        ),
        ({"family": "channel", "heads": 1}, "`channel` must have all its fields, but "),
        ({"family": "channel", "heads": 0, "d_key": 1}, "`heads >= 1` must hold, but got 0."),
        (
            {"family": "test-specs-sample", "inner": {"family": "test-specs-inner", "version": 1}},
            "`test-specs-inner` must",
        ),
        ({"family": "test-specs-sample", "inner": {}}, "A spec must be an object with a `family`"),
        ({"family": "test-specs-sample", "inner": {"family": "stopping"}}, "`test-specs-sample.inner` must be Inner"),
    ],
)
def test_json_that_is_no_spec_is_refused(data: Any, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        decode(data)
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_json_of_another_spec_is_refused() -> None:
    assert Channel.from_json({"family": "channel", "heads": 2, "d_key": 3}) == Channel(heads=2, d_key=3)
    with pytest.raises(BadInput, match="The spec must be a Channel, but got family='linear-unit'"):
        Channel.from_json(LinearUnit().to_json())


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_canonical_json_holds_finite_numbers_only(number: float) -> None:
    for data in (number, [number], {"a": {"b": [1.0, number]}}):
        with pytest.raises(BadInput, match="finite numbers only"):
            canonical(data)
        with pytest.raises(BadInput, match="finite numbers only"):
            digest(data, "p")


def test_canonical_json_is_one_spelling() -> None:
    assert canonical({"b": 1.0, "a": [True, None, "é\n"], "B": 1e-7}) == ('{"B":1e-07,"a":[true,null,"\\u00e9\\n"],"b":1.0}')
    assert canonical({"b": 1, "a": 2}) == canonical({"a": 2, "b": 1})


def test_a_digest_is_a_prefix_and_96_bits() -> None:
    assert digest({}, "p") == "p44136fa355b3678a1146ad16"  # the SHA-256 of "{}" begins so
    assert digest({}, "r")[1:] == digest({}, "p")[1:]


# ------------------------------------------------------------------------------------------------ instruments, stopping


def test_a_channel_has_a_key_budget() -> None:
    assert Channel(heads=3, d_key=7).key_budget == 21
    assert Channel(heads=3, d_key=7).with_budget(5, 35) == Channel(heads=5, d_key=7)


@pytest.mark.parametrize(
    "heads, budget, nearest",
    [(3, 7, "6 or 9"), (8, 63, "56 or 64"), (8, 65, "64 or 72"), (8, 3, "8"), (5, 6, "5 or 10")],
)
def test_heads_that_do_not_divide_the_budget_are_refused_with_the_nearest(heads: int, budget: int, nearest: str) -> None:
    with pytest.raises(BadInput) as caught:
        Channel(heads=1, d_key=1).with_budget(heads, budget)
    assert str(caught.value) == (
        f"`--heads` must divide `--key-budget`, but got heads={heads}, key-budget={budget}. Nearest budgets: {nearest}."
    )
    for good in nearest.split(" or "):
        assert Channel(heads=1, d_key=1).with_budget(heads, int(good)).key_budget == int(good)


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: Channel(heads=0, d_key=1), "`heads >= 1` must hold, but got 0."),
        (lambda: Channel(heads=1, d_key=-2), "`d_key >= 1` must hold, but got -2."),
        (lambda: Channel(heads=1, d_key=1).with_budget(3, 0), "`--key-budget >= 1` must hold, but got 0."),
        (lambda: Stopping(check_every=0), "`check_every >= 1` must hold, but got 0."),
        (lambda: Stopping(slack=-1e-9), "`slack >= 0` must hold, but got -1e-09."),
        (lambda: a_run(replicate=-1), "`seed >= 0` must hold, but got -1."),
        (lambda: a_run(arithmetic="fp8"), "`arithmetic` in fp64|fp32|tf32|bf16 must hold, but got 'fp8'."),
        (lambda: a_run(stopping=Inner()), "`run.stopping` must be Stopping, but got Inner("),
    ],
)
def test_fields_must_make_sense_together(make: Any, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        make()
    assert str(caught.value).startswith(says)


# ---------------------------------------------------------------------------------------------------------- identities


def test_what_each_identity_depends_on() -> None:
    base = a_run()
    changes = {
        "problem": a_run(problem=Sample(count=6)),
        "replicate": a_run(replicate=1),
        "instrument": a_run(instrument=Channel(heads=7, d_key=2)),
        "recipe": a_run(recipe=Inner(size=4)),
        "stopping": a_run(stopping=Stopping(slack=0.5)),
        "arithmetic": a_run(arithmetic="bf16"),
    }
    assert set(changes) == {f.name for f in fields(Run)}
    assert {n for n, run in changes.items() if run.problem_id != base.problem_id} == {"problem", "replicate"}
    assert {n for n, run in changes.items() if run.weights_id != base.weights_id} == {
        "problem",
        "replicate",
        "instrument",
    }
    assert {n for n, run in changes.items() if run.run_id != base.run_id} == set(changes)
    assert len({base.run_id, *(run.run_id for run in changes.values())}) == 7
    assert [i[0] for i in (base.problem_id, base.weights_id, base.run_id)] == ["p", "w", "r"]


def test_a_run_knows_the_ids_of_its_json() -> None:
    """They are made from the text of its parts, which runs of one question share, and not from its own."""
    for run in (a_run(), a_run(replicate=10**9, arithmetic="bf16"), a_run(problem=Sample(name='\N{SNOWMAN} "\\'))):
        assert (run.problem_id, run.run_id) == specs.ids_of(run.to_json())
        assert run.text == specs.canonical(run.to_json())


def test_every_arithmetic_is_another_run() -> None:
    assert len({a_run(arithmetic=name).run_id for name in ARITHMETICS}) == len(ARITHMETICS) == 4


def test_the_versions_of_the_components_and_of_the_judge_are_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run()
    problem_id, weights_id, run_id = run.problem_id, run.weights_id, run.run_id
    seen = {run_id}
    for part in (Sample, Channel, Inner, Stopping):
        with monkeypatch.context() as patch:
            patch.setattr(part, "version", 99)
            run = a_run()  # anew: a run remembers its ids
            seen.add(run.run_id)
            assert (run.problem_id != problem_id) == (part in (Sample, Inner))  # Inner is in the problem, too
            assert (run.weights_id != weights_id) == (part in (Sample, Inner, Channel))
    with monkeypatch.context() as patch:
        patch.setattr(specs, "JUDGE_VERSION", 99)
        run = a_run()
        seen.add(run.run_id)
        assert (run.problem_id, run.weights_id) == (problem_id, weights_id)
    assert len(seen) == 6
    run = a_run()
    assert (run.problem_id, run.weights_id, run.run_id) == (problem_id, weights_id, run_id)


# ----------------------------------------------------------------------------------------------------------- questions


def a_question(**changes: Any) -> Question:
    chosen: dict[str, Any] = {
        "problem": Sample(),
        "instrument": Channel(heads=1, d_key=1),
        "recipe": Inner(),
        "stopping": Stopping(),
        "arithmetic": "fp64",
        "knob": "budget",
        "arms": (Arm(heads=3, levels=(6, 9, 12), low=6, high=12),),
        "replicates": (0, 2, 5),
        "score": "f1",
        "target": 0.99,
    }
    return Question(**(chosen | changes))


def test_a_question_about_a_budget_asks_for_instruments() -> None:
    question = a_question()
    (arm,) = question.arms
    runs = list(question.runs(arm, 9))
    assert [run.replicate for run in runs] == [0, 2, 5]
    assert {run.instrument for run in runs} == {Channel(heads=3, d_key=3)}
    assert {run.problem for run in runs} == {Sample()}
    assert {run.arithmetic for run in runs} == {"fp64"}
    assert runs[1] == a_run(instrument=Channel(heads=3, d_key=3), replicate=2, arithmetic="fp64")


def test_a_question_about_a_load_asks_for_problems() -> None:
    arm = Arm(heads=None, levels=(7, 11), low=7, high=11)
    question = a_question(knob="load", arms=[arm], instrument=LinearUnit())
    assert [run.problem for run in question.runs(arm, 11)] == [Sample(count=11)] * 3
    assert question.run(arm, 7, 4).instrument == LinearUnit()


def test_more_replicates_ask_for_the_same_runs_and_new_ones() -> None:
    few, more = a_question(replicates=(0, 1, 2)), a_question(replicates=(0, 1, 2, 3, 4), target=0.5, criterion="any")
    (arm,) = few.arms
    ids = [[run.run_id for run in question.runs(arm, 12)] for question in (few, more)]
    assert ids[1][:3] == ids[0]
    assert len(set(ids[1])) == 5


def test_a_question_is_read_back() -> None:
    question = a_question()
    assert Question.from_json(json.loads(canonical(question.to_json()))) == question


@pytest.mark.parametrize(
    "make, rule",
    [
        (lambda: a_question(knob="heads"), "`knob` in budget|load"),
        (lambda: a_question(criterion="most"), "`criterion` in mean|all|any"),
        (lambda: a_question(target=0), "`0 < target <= 1`"),
        (lambda: a_question(target=1.5), "`0 < target <= 1`"),
        (lambda: a_question(replicates=()), "`seeds >= 1`"),
        (lambda: a_question(pilot=0), "`pilot >= 1`"),
        (lambda: a_question(arms=()), "a question has an arm"),
        (lambda: Arm(heads=1, levels=(), low=1, high=1), "an arm has levels"),
        (lambda: Arm(heads=1, levels=(3, 2), low=2, high=3), "levels ascend"),
        (lambda: Arm(heads=1, levels=(2, 2), low=2, high=2), "levels ascend"),
        (lambda: Arm(heads=1, levels=(2, 3), low=1, high=3), "`low <= high`, both levels"),
        (lambda: Arm(heads=1, levels=(2, 3), low=3, high=2), "`low <= high`, both levels"),
    ],
)
def test_a_question_without_sense_is_refused(make: Any, rule: str) -> None:
    with pytest.raises(BadInput) as caught:
        make()
    assert str(caught.value).startswith(f"{rule} must hold, but got ")
