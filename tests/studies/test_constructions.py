"""The study of sizes: its trials, a row measured again, and that it goes on where it stopped."""

import csv
from pathlib import Path

import pytest

import keyspan
from keyspan.studies import constructions
from keyspan.studies.constructions import Trial

KEPT = Path(__file__).resolve().parents[2] / "benchmarks" / "constructions.csv"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_kept_rows_are_of_the_trials_and_exact() -> None:
    asked = [(t.group, t.name, str(s), m) for t in constructions.trials() for s in constructions.SEEDS for m in t.methods]
    kept = rows(KEPT)
    assert sorted((r["group"], r["name"], r["seed"], r["method"]) for r in kept) == sorted(asked)
    for row in kept:
        assert row["exact"] == ("True" if row["key_budget"] else "")
        assert not row["key_budget"] or int(row["key_budget"]) == int(row["heads"]) * int(row["d_key"])


def test_a_kept_row_is_measured_again() -> None:
    trial = next(t for t in constructions.trials() if t.name == "256, 64")
    kept = next(r for r in rows(KEPT) if (r["name"], r["seed"], r["method"]) == (trial.name, "0", "pinv+code"))
    again = constructions.carry_out_trial(trial, 0, "pinv+code")
    for column in ("heads", "d_key", "key_budget", "tried"):
        assert int(kept[column]) == again[column]


def test_it_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = keyspan.Relations(items=23, d_model=11)
    trial = Trial("method", "small", cell, ("trivial", "pinv+code"))
    monkeypatch.setattr(constructions, "trials", lambda: iter([trial]))
    path = tmp_path / "c.csv"
    assert constructions.main(["--out", str(path)]) == 0
    assert "| trivial | 23 (23), 23 (23) |" in capsys.readouterr().out
    whole = path.read_text()
    assert len(rows(path)) == 4
    path.write_text("".join(whole.splitlines(keepends=True)[:3]))
    monkeypatch.setattr(constructions, "carry_out_trial", lambda t, seed, method: {"method": method, "seed": seed, "group": ""})
    assert constructions.main(["--out", str(path)]) == 0
    assert [(r["seed"], r["method"], r["group"]) for r in rows(path)[2:]] == [("1", "trivial", ""), ("1", "pinv+code", "")]


def test_the_tables_of_the_document_are_the_kept_rows() -> None:
    text = (KEPT.parents[1] / "docs" / "constructions.md").read_text("utf-8")
    tables = constructions.markdown(rows(KEPT)).split("\n\n")
    assert len(tables) == 3
    for table in tables:
        assert table in text
