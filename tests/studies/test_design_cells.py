"""Cells that designs rest on: the plan and its split, a row with its provenance, a small study carried out and read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from keyspan.evidence.shipped import read_shipped, shipped
from keyspan.problems import embeddings
from keyspan.problems.relations import Relations
from keyspan.runners.lab import Lab
from keyspan.runners.questions import relations_question
from keyspan.studies import design_cells as study
from keyspan.studies.design_cells import Planned, command, dimension, main, plan


def test_the_split_shares_nothing() -> None:
    fitted, held = ([p.problem for p in plan() if p.role == role] for role in ("fit", "held-out"))
    assert len(held) >= 60 and len(fitted) >= 60
    sizes = [[(p.items, p.d_model, p.graph.name) for p in some] for some in (fitted, held)]
    for part in range(3):
        assert not {size[part] for size in sizes[0]} & {size[part] for size in sizes[1]}
    assert len({(p.role, command(p.problem)) for p in plan()}) == len(plan())


def test_rows_have_their_dimension() -> None:
    plain, close = (
        Relations(items=64, d_model=32, embeddings=e) for e in (embeddings.gaussian(), embeddings.clustered(8, 0.9))
    )
    assert dimension(plain) == 32 and 4 < dimension(close) < 24
    assert "--embeddings clustered --clusters 8 --correlation 0.9" in command(close)


def test_a_small_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    one = Planned("fit", Relations(items=8, d_model=8))
    monkeypatch.setattr(study, "plan", lambda: (one,))
    store, out = f"sqlite:///{tmp_path}/s.db", tmp_path / "cells.csv"
    assert main(["--store", store, "--jobs", "1", "--out", str(out)]) == 0
    (row,) = read_shipped(out.read_text("utf-8"), "cells.csv")
    assert (row.role, row.cell.items, row.cell.seeds, row.dimension) == ("fit", 8, 3, 8.0)
    assert row.command == "keyspan measure relations --items 8 --d-model 8 --graph permutation --seeds 3"
    assert row.cell.key_budget is not None and 1 <= row.cell.key_budget <= 8
    before = out.read_text("utf-8")
    assert main(["--store", store, "--read", "--out", str(out)]) == 0 and out.read_text("utf-8") == before
    assert "1 of 1 cells" in capsys.readouterr().out
    assert main(["--store", store, "--roles", "none"]) == 2


def test_one_row_of_the_file_again(tmp_path: Path) -> None:
    """The cheapest cell that ships: with its heads, its D_K* reaches the target here too, and the budget below does not."""
    asked = Planned("fit", Relations(items=32, d_model=32))
    (row,) = [r for r in shipped() if r.command == command(asked.problem)]
    assert row.cell.key_budget is not None and row.cell.heads is not None
    budgets = [row.cell.key_budget - row.cell.heads, row.cell.key_budget]
    lab = Lab(f"sqlite:///{tmp_path}/s.db", jobs=1)
    (outcome,) = lab.answer([relations_question(asked.problem, heads=row.cell.heads, key_budgets=budgets, seeds=study.SEEDS)])
    below, at = outcome.answer.arms[0].means
    assert below is not None and at is not None and below < row.cell.target <= at
