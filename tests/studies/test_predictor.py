"""The study of the prediction: its grid, its numbers, and the CSV that the documents rest on."""

import csv
from pathlib import Path

import pytest

from keyspan.studies import predictor

KEPT = Path(__file__).resolve().parents[2] / "benchmarks" / "predictor.csv"


def rows() -> list[dict[str, str]]:
    with KEPT.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_kept_numbers_cover_the_grid_and_meet_the_bound() -> None:
    kept = rows()
    sizes = [tuple(int(row[c]) for c in ("items", "d_model", "heads", "d_key")) for row in kept]
    assert sizes == [(p.items, p.d_model, p.heads, p.d_key) for p in predictor.grid()]
    assert len(sizes) == 81
    rms, _, _ = predictor.summary([{"error": float(row["error"])} for row in kept])
    assert rms <= 0.05


@pytest.mark.parametrize("number", [0, 11, 40])
def test_a_kept_row_is_measured_again(number: int) -> None:
    kept, point = rows()[number], list(predictor.grid())[number]
    again = predictor.measure(point)
    assert {c: float(kept[c]) for c in ("f1", "predicted")} == {
        c: pytest.approx(float(again[c]), abs=2e-5) for c in ("f1", "predicted")
    }


def test_summary() -> None:
    assert predictor.summary([{"error": 0.3}, {"error": -0.4}]) == pytest.approx((0.125**0.5, -0.05, 0.4))


def test_main_writes_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    point = predictor.Point(64, 32, 8, 5)
    monkeypatch.setattr(predictor, "grid", lambda: iter([point]))
    assert predictor.main(["--out", str(tmp_path / "p.csv")]) == 0
    assert capsys.readouterr().out.startswith("1 points: rms error 0.")
    with (tmp_path / "p.csv").open(encoding="utf-8") as file:
        (row,) = list(csv.DictReader(file))
    assert row["key_budget"] == "40" and 0 < float(row["f1"]) <= 1
