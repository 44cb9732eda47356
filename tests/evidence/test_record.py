"""Records: whole on a line, read back as they were, refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import keyspan
from keyspan.errors import BadInput
from keyspan.evidence.record import RECORD_SCHEMA, Record, make_record
from keyspan.specs import Channel, Run, Spec, Stopping
from keyspan.verdict import Status, Verdict


@dataclass(frozen=True, kw_only=True)
class Task(Spec, family="test-record-task", version=3):
    """A problem of this module."""

    items: int = 7
    scale: float = 0.1


MEASURED = Verdict(status=Status.MEASURED, exact=True, scores={"f1": 1.0, "margin": 1 / 3}, witness={"edge": [2, 5]})


def a_run(**changes: Any) -> Run:
    chosen: dict[str, Any] = {
        "problem": Task(),
        "replicate": 2,
        "instrument": Channel(heads=3, d_key=5),
        "recipe": Task(items=11),
        "stopping": Stopping(),
    }
    return Run(**(chosen | changes))


def test_a_record_says_what_was_asked_judged_and_how_it_came_about() -> None:
    run = a_run()
    record = make_record(run, MEASURED, steps=400, seconds=0.5)
    assert (record.run_id, record.problem_id) == (run.run_id, run.problem_id)
    assert record.kind == "test-record-task"
    assert record.schema == RECORD_SCHEMA
    assert Run.from_json(record.run) == run
    assert record.verdict is MEASURED
    assert set(record.provenance) == {"keyspan", "python", "machine", "created", "steps", "seconds"}
    assert record.provenance["keyspan"] == keyspan.__version__
    assert datetime.fromisoformat(record.provenance["created"]).tzinfo is not None
    with pytest.raises(FrozenInstanceError):
        record.run_id = "r0"  # type: ignore[misc]


def test_provenance_given_wins_over_the_facts_of_this_machine() -> None:
    assert make_record(a_run(), MEASURED, machine="elsewhere").provenance["machine"] == "elsewhere"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(), json_values, max_size=4)
finite = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def records(draw: st.DrawFn) -> Record:
    status = draw(st.sampled_from(Status))
    numbers: dict[str, Any] = {}
    if status is Status.MEASURED:
        scores = draw(st.dictionaries(st.text(), finite, min_size=1, max_size=4))
        numbers = {"exact": draw(st.booleans()), "scores": scores, "witness": draw(objects)}
    verdict = Verdict(status=status, **numbers)
    run = draw(objects)
    return Record(run_id=draw(st.text()), problem_id="p", run=run, verdict=verdict, provenance=draw(objects))


@given(records())
def test_a_line_read_back_is_the_same_line_and_the_same_record(record: Record) -> None:
    line = record.to_line()
    assert "\n" not in line
    assert line.isascii()
    back = Record.from_line(line)
    assert back.to_line() == line
    assert back.content == record.content
    assert back == record
    assert json.loads(line) == record.to_json()


def test_the_content_is_all_but_the_provenance() -> None:
    record = make_record(a_run(), MEASURED, host="a")
    assert record.content == replace(record, provenance={"host": "b"}).content
    others = [
        make_record(a_run(replicate=3), MEASURED, host="a"),
        make_record(a_run(), replace(MEASURED, exact=False), host="a"),
        make_record(a_run(), replace(MEASURED, scores={"f1": 1.0, "margin": 0.25}), host="a"),
        make_record(a_run(), replace(MEASURED, witness={}), host="a"),
        make_record(a_run(), Verdict(status=Status.DIVERGED), host="a"),
    ]
    assert len({record.content, *(other.content for other in others)}) == 6


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_without_a_value_is_refused_anywhere(number: float) -> None:
    with pytest.raises(BadInput, match="finite"):
        make_record(a_run(), MEASURED, seconds=number).to_line()
    with pytest.raises(BadInput, match="finite"):
        make_record(a_run(), replace(MEASURED, witness={"bound": [number]})).to_line()


def broken() -> Iterator[tuple[str, Any, str]]:
    """Every way to break a record that we know: name, JSON data, what the message says."""
    good = make_record(a_run(), MEASURED).to_json()
    yield "not an object", [1, 2], "must be a JSON object"
    yield "null", None, "must be a JSON object"
    yield "text", "r12", "must be a JSON object"
    yield "no schema", {k: v for k, v in good.items() if k != "schema"}, "must have schema 1, but got None"
    yield "a newer schema", good | {"schema": 2}, "must have schema 1, but got 2"
    for name in ("run_id", "problem_id", "run", "verdict"):
        yield f"no {name}", {k: v for k, v in good.items() if k != name}, name
    yield "a run that is a list", good | {"run": [1]}, "must have run_id"
    yield "a verdict that is text", good | {"verdict": "fine"}, "must have run_id"
    yield "no status", good | {"verdict": {}}, "status"
    yield "an unknown status", good | {"verdict": {"status": "fine"}}, "fine"
    yield "a failure with a number", good | {"verdict": {"status": "diverged", "scores": {"f1": 0.0}}}, "no number"
    yield "a measurement without", good | {"verdict": {"status": "measured"}}, "must have scores"
    yield "a score that is text", good | {"verdict": good["verdict"] | {"scores": {"f1": "1"}}}, "must have run_id"
    yield "provenance that is a number", good | {"provenance": 3}, "must have run_id"


@pytest.mark.parametrize("data, reason", [pytest.param(d, r, id=name) for name, d, r in broken()])
def test_what_is_no_record_is_refused_with_the_reason(data: Any, reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as caught:
        Record.from_json(data)
    assert "\n" not in str(caught.value)
    with pytest.raises(BadInput, match=reason):
        Record.from_line(json.dumps(data))


@pytest.mark.parametrize("line", ["", "{", "nonsense", '{"a": 1} {"b": 2}', "[" * 100_000, None, 3])
def test_a_line_that_is_no_json_is_refused(line: Any) -> None:
    with pytest.raises(BadInput, match="must be JSON"):
        Record.from_line(line)


def test_provenance_may_be_absent() -> None:
    data = make_record(a_run(), MEASURED).to_json()
    del data["provenance"]
    assert Record.from_json(data).provenance == {}
