"""Parquet: the columns of the CSV with their types, nothing where there is no fact, the extra named where it is missing."""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from tests.evidence.test_transfer import RECORDS

from keyspan.errors import BadInput, MissingExtra
from keyspan.evidence.transfer import COLUMNS, export


def test_rows_are_those_of_the_csv(tmp_path: Path) -> None:
    path = tmp_path / "out [1]*.parquet"
    assert export(iter(RECORDS), path) == 3
    export(RECORDS, tmp_path / "out.csv")
    with duckdb.connect() as connection:
        found = connection.read_parquet(str(tmp_path / "out ?1?*.parquet"))
        assert tuple(found.columns) == COLUMNS
        kinds = dict(zip(found.columns, map(str, found.types), strict=True))
        rows = found.fetchall()
    assert {kinds[name] for name in ("run_id", "graph", "recipe", "created")} == {"VARCHAR"}
    assert {kinds[name] for name in ("heads", "items", "steps")} == {"BIGINT"}
    assert (kinds["f1"], kinds["seconds"], kinds["exact"]) == ("DOUBLE", "DOUBLE", "BOOLEAN")
    with (tmp_path / "out.csv").open(newline="") as file:
        for made, line in zip(rows, csv.DictReader(file), strict=True):
            again = {name: value for name, value in zip(COLUMNS, made, strict=True) if value is not None}
            assert {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in again.items()} == {
                k: v for k, v in line.items() if v
            }
            assert set(again) == {k for k, v in line.items() if v}  # a failure is never a number
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out [1]*.parquet", "out.csv"]


def test_a_cell_of_another_type_is_left_empty(tmp_path: Path) -> None:
    """As another keyspan may have written it."""
    odd = replace(RECORDS[0], provenance=dict(RECORDS[0].provenance) | {"steps": 'some, "more"\nthan one', "device": "a,\n'b'"})
    export([odd], tmp_path / "out.parquet")
    with duckdb.connect() as connection:
        (found,) = connection.read_parquet(str(tmp_path / "out.parquet")).project("steps, device, f1").fetchall()
    assert found == (None, "a,\n'b'", odd.verdict.scores["f1"])


def test_no_records_make_an_empty_table(tmp_path: Path) -> None:
    assert export([], tmp_path / "out.parquet") == 0
    with duckdb.connect() as connection:
        found = connection.read_parquet(str(tmp_path / "out.parquet"))
        assert tuple(found.columns) == COLUMNS and found.fetchall() == []


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="must be writable"):
        export(RECORDS, tmp_path / "missing" / "out.parquet")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtra, match=r"pip install 'keyspan\[data\]'"):
        export(RECORDS, tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []
