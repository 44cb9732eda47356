"""Identity as docs/identity.md promises it, for any spec: equal specs have equal ids, and different ones different ids."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from keyspan.errors import BadInput
from keyspan.specs import ARITHMETICS, Channel, Run, Spec, Stopping, canonical, decode, digest


@dataclass(frozen=True, kw_only=True)
class Part(Spec, family="test-properties-part", version=1):
    """A spec inside a spec."""

    size: int
    weight: float


@dataclass(frozen=True, kw_only=True)
class Whole(Spec, family="test-properties-whole", version=4):
    """A spec with a field of every kind."""

    count: int
    ratio: float
    name: str
    flag: bool
    maybe: float | None
    shape: tuple[int, ...]
    rates: tuple[float, ...]
    part: Part
    parts: tuple[Part, ...]


@dataclass(frozen=True, kw_only=True)
class Before(Spec, family="test-properties-before", version=1):
    """A spec as it was."""

    count: int
    part: Part


@dataclass(frozen=True, kw_only=True)
class After(Spec, family="test-properties-after", version=1):
    """The same spec with fields added later. (In life it has the family of `Before`; the test gives it that.)"""

    noise: float = field(default=0.0, metadata={"absent": 0.0})
    count: int
    label: str | None = field(default=None, metadata={"absent": None})
    part: Part
    rates: tuple[float, ...] = field(default=(), metadata={"absent": ()})


integers = st.integers(-(2**60), 2**60)
floats = st.floats(allow_nan=False, allow_infinity=False)
parts = st.builds(Part, size=integers, weight=floats)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "count": integers,
    "ratio": floats,
    "name": st.text(),
    "flag": st.booleans(),
    "maybe": st.none() | floats,
    "shape": st.lists(integers, max_size=3).map(tuple),
    "rates": st.lists(floats, max_size=3).map(tuple),
    "part": parts,
    "parts": st.lists(parts, max_size=3).map(tuple),
}
wholes = st.builds(Whole, **FIELDS)
instruments = st.builds(Channel, heads=st.integers(1, 64), d_key=st.integers(1, 64))
stoppings = st.builds(
    Stopping, check_every=st.integers(1, 999), retire_exact=st.booleans(), slack=floats.filter(lambda x: x >= 0)
)
RUN: dict[str, st.SearchStrategy[Any]] = {
    "problem": wholes,
    "replicate": st.integers(0, 999),
    "instrument": instruments,
    "recipe": parts,
    "stopping": stoppings,
    "arithmetic": st.sampled_from(ARITHMETICS),
}
runs = st.builds(Run, **RUN)


def identity(spec: Spec) -> str:
    return digest(spec.to_json(), "x")


def ids(run: Run) -> tuple[str, str, str]:
    return run.problem_id, run.weights_id, run.run_id


@given(wholes)
def test_equal_specs_have_equal_ids(spec: Whole) -> None:
    again = Whole(**{f.name: getattr(spec, f.name) for f in fields(spec)})
    assert again is not spec
    assert again == spec
    assert identity(again) == identity(spec)


@given(wholes, wholes)
def test_ids_are_equal_exactly_when_specs_are(one: Whole, other: Whole) -> None:
    assert (one == other) == (identity(one) == identity(other))


@pytest.mark.parametrize("name", FIELDS)
@given(spec=wholes, data=st.data())
def test_any_field_changed_changes_the_id(name: str, spec: Whole, data: st.DataObject) -> None:
    value = data.draw(FIELDS[name])
    assume(value != getattr(spec, name))
    assert identity(replace(spec, **{name: value})) != identity(spec)


def test_no_field_is_left_out_above() -> None:
    assert set(FIELDS) == {f.name for f in fields(Whole)}
    assert set(RUN) == {f.name for f in fields(Run)}


@pytest.mark.parametrize("name", RUN)
@given(run=runs, data=st.data())
def test_any_part_of_a_run_changed_changes_its_run_id(name: str, run: Run, data: st.DataObject) -> None:
    value = data.draw(RUN[name])
    assume(value != getattr(run, name))
    changed = replace(run, **{name: value})
    assert changed.run_id != run.run_id
    assert (changed.problem_id == run.problem_id) == (name not in ("problem", "replicate"))
    assert (changed.weights_id == run.weights_id) == (name not in ("problem", "replicate", "instrument"))


@given(runs)
def test_runs_are_read_back_from_json(run: Run) -> None:
    line = canonical(run.to_json())
    back = Run.from_json(json.loads(line))
    assert back == run
    assert canonical(back.to_json()) == line
    assert ids(back) == ids(run)


def shuffled(data: Any, draw: Any) -> Any:
    """The same JSON data with the keys of every object in another order."""
    if isinstance(data, dict):
        return {key: shuffled(data[key], draw) for key in draw(st.permutations(list(data)))}
    if isinstance(data, list):
        return [shuffled(value, draw) for value in data]
    return data


@given(runs, st.data())
def test_the_order_of_keys_does_not_matter(run: Run, data: st.DataObject) -> None:
    other = shuffled(run.to_json(), data.draw)
    assert canonical(other) == canonical(run.to_json())
    assert ids(Run.from_json(other)) == ids(run)


def spellings(number: float) -> list[str]:
    """Ways to write a float in JSON that mean the same float."""
    found = [repr(number), f"{number:.17e}", f"{number:.25e}", f"{number:.17E}"]
    if number.is_integer():
        found += [str(int(number)), f"{int(number)}.0", f"{int(number)}e0", f"{10 * int(number)}e-1"]
    return found


@given(floats | integers.map(float), st.data())
def test_the_spelling_of_floats_does_not_matter(number: float, data: st.DataObject) -> None:
    written = data.draw(st.sampled_from(spellings(number)))
    line = f'{{"family": "test-properties-part", "size": 3, "weight": {written}}}'
    spec = decode(json.loads(line))
    assert spec == Part(size=3, weight=number)
    assert identity(spec) == identity(Part(size=3, weight=number))


@pytest.mark.parametrize("written", ["1", "1.0", "1e0", "10e-1", "0.1e1", "1.000E+0"])
def test_one_is_one_however_it_is_written(written: str) -> None:
    line = f'{{"weight": {written}, "size": {written}, "version": 1, "family": "test-properties-part"}}'
    assert canonical(decode(json.loads(line)).to_json()) == (
        '{"family":"test-properties-part","size":1,"version":1,"weight":1.0}'
    )


@given(integers, parts)
def test_a_field_added_later_changes_no_id_at_its_old_value(count: int, part: Part) -> None:
    before, after = Before(count=count, part=part).to_json(), After(count=count, part=part).to_json()
    assert after.pop("family") == "test-properties-after"
    assert canonical(after | {"family": before["family"]}) == canonical(before)


@given(integers, parts, floats, st.text(), st.lists(floats, min_size=1, max_size=3))
def test_a_field_added_later_changes_the_id_at_any_other_value(
    count: int, part: Part, noise: float, label: str, rates: list[float]
) -> None:
    old = After(count=count, part=part)
    changed = [replace(old, label=label), replace(old, rates=tuple(rates))]
    if noise != 0.0:
        changed.append(replace(old, noise=noise))
    for spec in changed:
        assert identity(spec) != identity(old)
        assert decode(json.loads(canonical(spec.to_json()))) == spec


@given(wholes, st.sampled_from([float("nan"), float("inf"), float("-inf")]), st.data())
def test_numbers_without_a_value_have_no_identity(spec: Whole, number: float, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["count", "ratio", "maybe", "shape", "rates"]))
    value: Any = (1, number) if name in ("shape", "rates") else number
    with pytest.raises(BadInput):
        replace(spec, **{name: value})
    with pytest.raises(BadInput):
        canonical(spec.to_json() | {name: value})


@given(runs, st.text(min_size=1))
def test_a_name_that_is_not_known_is_refused(run: Run, name: str) -> None:
    assume(name not in run.to_json() and not name.startswith("test-"))
    with pytest.raises(BadInput, match="known fields only"):
        decode(run.to_json() | {name: 1})
    assume(name not in ("arm", "question", "channel", "stopping", "linear-unit"))
    known = {"family": name} | {k: v for k, v in run.problem.to_json().items() if k != "family"}
    with pytest.raises(BadInput):
        decode(run.to_json() | {"problem": known})


@given(st.integers(1, 400), st.integers(1, 4000))
def test_a_budget_is_met_exactly_or_refused_with_ones_that_are(heads: int, budget: int) -> None:
    channel = Channel(heads=1, d_key=1)
    if budget % heads == 0:
        made = channel.with_budget(heads, budget)
        assert (made.heads, made.key_budget) == (heads, budget)
        return
    with pytest.raises(BadInput, match="Nearest budgets: ") as caught:
        channel.with_budget(heads, budget)
    nearest = [int(word) for word in str(caught.value).split("Nearest budgets: ")[1].rstrip(".").split(" or ")]
    assert all(channel.with_budget(heads, near).key_budget == near for near in nearest)
    assert all(abs(near - budget) < heads for near in nearest)
