"""What of item vectors decides D_K*: the lines, the predictors, and a small study carried out."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from keyspan.problems import spectrum
from keyspan.studies import rows as study
from keyspan.studies.rows import PREDICTORS, given, made, main, spread


def test_the_lines() -> None:
    lines = {(line.name, line.treatment): line for line in made()}
    assert len(lines) == 9 and all(line.rows.shape == (128, 32) for line in lines.values())
    for (name, treatment), line in lines.items():
        assert float((line.rows**2).sum(axis=1).mean()) == pytest.approx(1.0)
        rank = int(name.split()[-1]) if "rank" in name else 32
        assert spectrum.rank(line.rows) == rank
        flat = name.startswith("flat") or treatment == "whitened"
        assert (spectrum.stable_rank(line.rows) == pytest.approx(rank)) == flat
    values = np.linalg.svd(lines["t^-1", "raw"].rows, compute_uv=False)
    assert values * np.arange(1, 33) == pytest.approx(np.full(32, values[0]))
    assert len({line.rows.tobytes() for line in lines.values()}) == len(lines)


def test_given_rows_in_every_treatment(tmp_path: Path) -> None:
    path = tmp_path / "tokens.npy"
    np.save(path, made(60, 8)[3].rows)
    lines = given(f"{path}", 40)
    assert [line.treatment for line in lines] == list(spectrum.TREATMENTS) and {line.name for line in lines} == {"tokens"}
    assert all(line.rows.shape == (40, 8) and line.most >= 32 for line in lines)


def test_what_predicts() -> None:
    def found(budget: int | None, rank: float, recipe: str = "gradient") -> dict[str, study.Value]:
        return {"recipe": recipe, "key_budget": budget, "rank": rank, "stable_rank": 1.0}

    rows = [found(10, 32.0), found(20, 16.0), found(None, 4.0), found(99, 1.0, "hinge")]
    assert spread(rows, "gradient", "rank") == 1.0 and spread(rows, "gradient", "stable_rank") == 2.0
    assert spread(rows, "hinge", "rank") is None


def test_a_small_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(study, "made", lambda *sizes: [line for line in made(24, 8) if line.name == "flat"])
    argv = ["--store", f"sqlite:///{tmp_path}/s.db", "--recipes", "hinge", "--seeds", "1", "--jobs", "1"]
    assert main([*argv, "--out", str(tmp_path / "rows.csv")]) == 0
    (row,) = csv.DictReader((tmp_path / "rows.csv").read_text("utf-8").splitlines())
    assert set(PREDICTORS) <= set(row) and 1 <= int(row["key_budget"]) <= int(row["most"]) == 64 and row["failed"] == "0"
    printed = capsys.readouterr().out
    assert f"| flat | raw | 8 | 8.0 | 8.0 | {row['key_budget']} [" in printed and "| hinge | - | - | - | - |" in printed
    assert main([*argv, "--embeddings", str(tmp_path / "none.npy")]) == 2
