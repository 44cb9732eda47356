"""Grids of cells out of a TOML file: products, lists, ranges, points and conditions. What a cell is, its family says.

name = "law"                        # what the sweep is called; default: the file's name
[defaults]                          # for every grid
seeds = 3
[[grid]]
family = "relations"                # the default
heads = [1, 2, 4]                   # any field of the family: the same in every cell
each.items = [64, 128]              # a cell for each of them, in every combination with the others
each.d_model = { from = 16, to = 64, times = 2 }        # a range: 16, 32, 64; or `step = 16`
points = [{ graph = "regular", degree = 2 }, {}]        # fields that go together
where = ["d_model <= items / 2"]    # what a cell must fulfil, or it is skipped
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from keyspan.errors import BadInput, require, shown
from keyspan.runners.conditions import Condition

MOST = 200_000  # combinations of one file: more is a mistake in a range
WORDS = ("family", "each", "points", "where")


@dataclass(frozen=True)
class Point:
    """A combination of fields. where: which grid it is of, in the words of an error"""

    family: str
    fields: Mapping[str, Any]
    where: str


@dataclass(frozen=True)
class Grids:
    """What a file asks for. skipped: combinations that a condition leaves out"""

    name: str | None
    points: tuple[Point, ...]
    skipped: int


@cache
def _models() -> Any:
    """The form of a file, for pydantic, which is only imported where a file is read."""
    from pydantic import BaseModel, ConfigDict, Field

    strict = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True)

    class Grid(BaseModel):
        model_config = ConfigDict(extra="allow", strict=True)
        family: str = "relations"
        each: dict[str, list[Any] | dict[str, Any]] = Field(default_factory=dict)
        points: list[dict[str, Any]] | None = None
        where: str | list[str] = Field(default_factory=list)

    class File(BaseModel):
        model_config = strict
        name: str | None = Field(default=None, min_length=1, max_length=100)
        defaults: dict[str, Any] = Field(default_factory=dict)
        grid: list[Grid] = Field(min_length=1)

    class Range(BaseModel):
        model_config = strict
        from_: float = Field(alias="from", allow_inf_nan=False)
        to: float = Field(allow_inf_nan=False)
        step: float | None = Field(default=None, gt=0, allow_inf_nan=False)
        times: float | None = Field(default=None, gt=1, allow_inf_nan=False)

    return File, Range


def parsed(model: Any, data: Any, name: str) -> Any:
    """Data in the form of a pydantic model, or `BadInput` with the first thing that is wrong."""
    from pydantic import ValidationError

    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]]
        field = "".join(parts).lstrip(".") or "the document"
        rule = first["msg"][:1].lower() + first["msg"][1:]
        got = shown(first["input"])
        raise BadInput(f"`{field}` of {name} must fit a sweep, but got {got}: {rule}. Correct it there.") from None


def read_grids(document: Mapping[str, Any], name: str) -> Grids:
    """The points of a document. name: what the file is called in an error"""
    file = parsed(_models()[0], document, name)
    total = 0
    points: list[Point] = []
    skipped = 0
    for number, grid in enumerate(file.grid):
        where = f"grid[{number}] of {name}"
        axes = {axis: _values(values, f"{where}, each.{axis}") for axis, values in grid.each.items()}
        total += math.prod(count for count, _ in axes.values()) * (1 if grid.points is None else len(grid.points))
        require(total <= MOST, f"at most {MOST} combinations in {name}", total, "Shorten a range, or write several files.")
        conditions = [Condition(text) for text in ([grid.where] if isinstance(grid.where, str) else grid.where)]
        fixed = {**file.defaults, **(grid.model_extra or {})}
        for fields in _combinations(fixed, {axis: list(values) for axis, (_, values) in axes.items()}, grid.points, where):
            if all(condition.holds(fields) for condition in conditions):
                points.append(Point(grid.family, fields, where))
            else:
                skipped += 1
    require(bool(points), f"{name} has a cell", f"none, {skipped} left out by conditions", "Loosen a condition.")
    return Grids(file.name, tuple(points), skipped)


def _combinations(
    fixed: Mapping[str, Any], axes: Mapping[str, list[Any]], points: list[dict[str, Any]] | None, where: str
) -> Iterator[dict[str, Any]]:
    for point in [{}] if points is None else points:
        twice = point.keys() & axes.keys()
        require(not twice, f"every field once in {where}", f"{', '.join(sorted(twice))} twice", "Leave one of them out.")
        for values in itertools.product(*axes.values()):
            yield {**fixed, **point, **dict(zip(axes, values, strict=True))}


def _values(values: Any, where: str) -> tuple[int, Iterator[Any]]:
    """How many values an axis has, and the values, made one by one: a range may be longer than any memory."""
    if isinstance(values, list):
        require(bool(values), f"a value in {where}", "an empty list", "Give one.")
        return len(values), iter(values)
    found = parsed(_models()[1], values, where)
    low, high, step, times = found.from_, found.to, found.step, found.times
    require((step is None) != (times is None), f"`step` or `times` in {where}", values, "Give one of the two.")
    require(low <= high, f"`from <= to` in {where}", f"from={low}, to={high}", "Turn them round.")
    if step is not None:
        count = math.floor(min((high - low) / step * (1 + 1e-12), MOST)) + 1
        return count, (_whole(low + i * step) for i in range(count))
    require(low > 0, f"`from > 0` with `times` in {where}", low, "Begin at 1.")
    count = math.floor(math.log(high / low) / math.log(times) + 1e-9) + 1
    return count, (_whole(low * times**i) for i in range(count))


def _whole(value: float) -> int | float:
    """128.0 as 128: a field that counts takes no fraction."""
    return int(value) if value.is_integer() else value
