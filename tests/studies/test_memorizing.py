"""Computed layers: the tables in benchmarks/, of which some rows are computed again, and what rounding is."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from keyspan.studies import memorizing
from keyspan.studies.memorizing import COLUMNS, INSTANCES, extend, instance_row, main, rounded, rows_of, summary

KEPT = Path(__file__).resolve().parents[2] / "benchmarks" / "labels"


def kept(name: str) -> list[dict[str, str]]:
    with (KEPT / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_two_hundred_explicit_layers_are_exact() -> None:
    rows = kept("instances")
    assert len(rows) == INSTANCES and len({tuple(row.values())[1:6] for row in rows}) > 190
    assert all(int(row["rank"]) == int(row["examples"]) and float(row["error"]) <= 1e-6 for row in rows)
    shared = [row for row in rows if row["contexts"] == "fixed"]
    assert len(shared) > 80
    assert all(int(row["random_rank"]) == int(row["cap"]) and float(row["random_error"]) <= 1e-6 for row in shared)
    assert all(float(row["one_more"]) > 1e-6 for row in shared), "one more than the cap cannot be solved for"
    assert summary(rows).startswith("200 of 200 explicit layers have rank T")


@pytest.mark.parametrize("number", [0, 7, 198])
def test_instances_are_computed_again(number: int) -> None:
    row, again = kept("instances")[number], instance_row(number)
    for name in ("d_model", "context", "heads", "d_head", "contexts", "examples", "rank"):
        assert row[name] == str(again[name])
    assert again["error"] < 1e-9


@pytest.mark.parametrize("number", [0, 35, 76])
def test_precisions_are_computed_again(number: int) -> None:
    """Up to one example: the last digits of a solve are the library's."""
    row, again = kept("precision")[number], list(rows_of("precision"))[number]()
    assert [row[name] for name in COLUMNS["precision"][:3]] == [str(again[name]) for name in COLUMNS["precision"][:3]]
    assert float(row["held"]) == pytest.approx(again["held"], abs=1.01)


def test_what_the_table_says() -> None:
    """In float64 what theory says; in bf16 the explicit layer holds more than the random one of any spread."""
    rows = [row for row in kept("precision") if row["contexts"] == "fixed" and row["context"] == row["d_head"] == "16"]
    best = {(row["layer"], row["precision"]): 0.0 for row in rows}
    for row in rows:
        key = row["layer"], row["precision"]
        best[key] = max(best[key], float(row["held"]))
    assert best["explicit", "fp64"] == 121 and best["random", "fp64"] >= 121 and best["explicit", "fp32"] == 121
    assert best["explicit", "bf16"] > best["random", "bf16"] + 10


def test_rounding_to_bf16_is_to_nearest_even() -> None:
    x = np.array([1.0, 1 + 2**-8, 1 + 2**-7, 1 + 3 * 2**-8, -(1 + 2**-8 + 2**-12), 0.0])
    assert rounded(x, "bf16").tolist() == [1.0, 1.0, 1 + 2**-7, 1 + 2**-6, -(1 + 2**-7), 0.0]
    assert (rounded(x, "fp64") == x).all() and rounded(np.array([0.1]), "fp32")[0] == np.float32(0.1)


def test_a_study_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memorizing, "INSTANCES", 2)
    extend(tmp_path / "instances.csv", "instances")
    first = (tmp_path / "instances.csv").read_text("utf-8")
    monkeypatch.setattr(memorizing, "INSTANCES", 3)
    assert main(["--out", str(tmp_path), "--only", "instances"]) == 0
    assert (tmp_path / "instances.csv").read_text("utf-8").startswith(first)
    assert len((tmp_path / "instances.csv").read_text("utf-8").splitlines()) == 4
