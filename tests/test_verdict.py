"""Verdicts: a failure is never a number."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyspan.errors import BadInput
from keyspan.verdict import Status, Verdict

FAILURES = [status for status in Status if status is not Status.MEASURED]
GOOD: dict[str, Any] = {"exact": True, "scores": {"f1": 1.0, "margin": 0.125}, "witness": {"min_edge": [0.5, 2, 3]}}


def test_the_statuses_are_those_of_the_documents() -> None:
    assert [str(status) for status in Status] == [
        "measured",
        "unconverged",
        "diverged",
        "out_of_memory",
        "timed_out",
        "crashed",
    ]
    assert len(FAILURES) == 5


def test_a_measured_verdict_has_its_scores() -> None:
    verdict = Verdict(status=Status.MEASURED, **GOOD)
    assert verdict.measured
    assert verdict.score("f1") == 1.0
    assert verdict.score("margin") == 0.125
    assert verdict.score("exact") == 1.0
    assert Verdict(status=Status.MEASURED, **GOOD | {"exact": False}).score("exact") == 0.0
    with pytest.raises(FrozenInstanceError):
        verdict.exact = False  # type: ignore[misc]


@pytest.mark.parametrize("status", FAILURES)
def test_a_failure_carries_no_number(status: Status) -> None:
    verdict = Verdict(status=status)
    assert not verdict.measured
    assert verdict.to_json() == {"status": str(status)}
    for name in ("exact", "f1", "nothing"):
        with pytest.raises(BadInput, match=f"must come from a measured verdict, but this one is `{status}`"):
            verdict.score(name)
    numbers: list[dict[str, Any]] = [{"scores": {"f1": 0.0}}, {"exact": False}, {"exact": True}, GOOD]
    for number in numbers:
        with pytest.raises(BadInput, match=f"with status `{status}` must carry no number"):
            Verdict(status=status, **number)


@pytest.mark.parametrize(
    "missing", [{}, {"exact": True}, {"exact": False}, {"scores": {"f1": 1.0}}, {"exact": True, "scores": {}}]
)
def test_a_measured_verdict_without_numbers_is_refused(missing: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="must have scores and say whether it is exact"):
        Verdict(status=Status.MEASURED, **missing)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_score_without_a_value_is_refused_by_name(number: float) -> None:
    with pytest.raises(BadInput, match=r"^The score `margin` must be a finite number, but got (nan|inf|-inf)\."):
        Verdict(status=Status.MEASURED, exact=False, scores={"f1": 0.5, "margin": number})


@pytest.mark.parametrize("number", [10**400, -(10**400), 10**5000], ids=["large", "low", "unprintable"])
def test_a_score_that_no_float_can_hold_is_refused(number: int) -> None:
    with pytest.raises(BadInput, match="`f1` must be a finite number") as refused:
        Verdict(status=Status.MEASURED, exact=False, scores={"f1": number})
    assert len(str(refused.value)) < 200


def test_a_status_is_taken_by_name_and_no_other_is() -> None:
    assert Verdict(status="timed_out").status is Status.TIMED_OUT  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="fine"):
        Verdict(status="fine")  # type: ignore[arg-type]


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(
    exact=st.booleans(),
    scores=st.dictionaries(st.text(), finite, min_size=1),
    witness=st.dictionaries(st.text(), finite | st.integers() | st.text() | st.none() | st.lists(finite)),
)
def test_a_measured_verdict_is_read_back(exact: bool, scores: dict[str, float], witness: dict[str, Any]) -> None:
    verdict = Verdict(status=Status.MEASURED, exact=exact, scores=scores, witness=witness)
    line = json.dumps(verdict.to_json(), allow_nan=False)
    back = Verdict.from_json(json.loads(line))
    assert back == verdict
    assert json.dumps(back.to_json()) == line


@pytest.mark.parametrize("status", FAILURES)
def test_a_failure_is_read_back(status: Status) -> None:
    assert Verdict.from_json(json.loads(json.dumps(Verdict(status=status).to_json()))) == Verdict(status=status)


@pytest.mark.parametrize(
    "data",
    [
        {"status": "diverged", "exact": False},
        {"status": "diverged", "scores": {"f1": 0.0}},
        {"status": "measured"},
        {"status": "measured", "exact": True, "scores": {}},
        {"status": "measured", "exact": True, "scores": {"f1": float("nan")}},
    ],
)
def test_json_that_breaks_the_rules_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        Verdict.from_json(data)
