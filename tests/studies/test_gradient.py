"""The study of gradient training: trials are data, and the answers come from the store."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.asked import ROOT, Oracle, knows

from keyspan.errors import BadInput
from keyspan.lab import recipes
from keyspan.runners import lab
from keyspan.runners.lab import Lab
from keyspan.specs import Run
from keyspan.studies import gradient
from keyspan.studies.gradient import CELLS, STEPS, TRIALS, Cell, Trial
from keyspan.theory.bounds import law
from keyspan.verdict import Status, Verdict

SMALL = (Cell(32, 16, 2), Cell(48, 16, 4))


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> Oracle:
    runner = Oracle()
    monkeypatch.setattr(lab, "LocalRunner", runner)
    return runner


def test_no_two_trials_are_the_same_and_most_take_the_same_steps() -> None:
    names, asked = [t.name for t in TRIALS], [replace(t.recipe, name="", revision=0) for t in TRIALS]
    assert len(set(names)) == len(names) == len(set(asked))
    assert all(t.recipe.steps == STEPS or "steps" in t.name for t in TRIALS)
    plain = next(t for t in TRIALS if t.name.startswith("gradient: "))
    assert plain.recipe == recipes.gradient()


def test_the_recipe_hinge_is_among_the_trials() -> None:
    asked = recipes.hinge()
    found = [t for t in TRIALS if (t.recipe.loss, t.recipe.phases, t.recipe.draw) == (asked.loss, asked.phases, 0)]
    assert [t.name for t in found] == ["hinge, 6000 steps"]


def test_a_question_is_of_exactness_in_all_seeds_at_one_number_of_heads() -> None:
    for cell in CELLS:
        q = gradient.question(TRIALS[0], cell)
        assert (q.criterion, q.target, q.score, q.replicates) == ("all", 1.0, "f1", (0, 1, 2))
        assert [arm.heads for arm in q.arms] == [cell.heads] and q.recipe == TRIALS[0].recipe


def test_rows_come_from_the_store_the_second_time(oracle: Oracle, own_store: str) -> None:
    trials = TRIALS[:2]
    rows = gradient.carry_out(Lab(own_store), trials, SMALL)
    asked = len(oracle.asked)
    assert asked > 0 and gradient.carry_out(Lab(own_store), trials, SMALL) == rows and len(oracle.asked) == asked
    assert [(r["trial"], r["items"]) for r in rows] == [(t.name, c.items) for t in trials for c in SMALL]
    for r in rows:
        need = 1.2 * law(int(r["items"] or 0), 16)
        heads = int(r["heads"] or 1)
        assert need <= int(r["key_budget"] or 0) < need + heads and r["steps_taken"] == 7
    table = gradient.markdown(rows).splitlines()
    assert table[0] == "| what | trial | (32, 16), 2 heads | (48, 16), 4 heads |" and len(table) == 2 + len(trials)
    assert table[2].endswith(f"| {rows[0]['key_budget']} (7) | {rows[1]['key_budget']} (7) |")


def test_what_is_not_found_is_a_dash(oracle: Oracle, own_store: str) -> None:
    def never(run: Run) -> Verdict:
        return replace(knows(run), exact=False, scores={"f1": 0.5})

    oracle.verdict = never
    (row,) = gradient.carry_out(Lab(own_store), TRIALS[:1], SMALL[:1])
    assert row["key_budget"] is None and row["steps_taken"] is None
    assert gradient.markdown([row]).endswith("| - |")


def test_a_lost_member_is_no_success(oracle: Oracle, own_store: str) -> None:
    oracle.verdict = lambda run: Verdict(status=Status.DIVERGED) if run.replicate == 1 else knows(run)
    (row,) = gradient.carry_out(Lab(own_store), TRIALS[:1], SMALL[:1])
    assert row["key_budget"] is None


def test_the_command_writes_the_table(
    oracle: Oracle, own_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gradient, "CELLS", SMALL)
    assert gradient.main(["--store", own_store, "--groups", "loss,optimiser", "--out", str(tmp_path / "s.csv")]) == 0
    rows = list(csv.DictReader((tmp_path / "s.csv").read_text().splitlines()))
    wanted = [t for t in TRIALS if t.group in ("loss", "optimiser")]
    assert tuple(rows[0]) == gradient.COLUMNS and len(rows) == 2 * len(wanted)
    assert capsys.readouterr().out.count("\n") == 2 + len(wanted)
    assert gradient.main(["--store", own_store, "--groups", "luck"]) == 2
    assert "luck" in capsys.readouterr().err


def test_the_table_of_the_documents_is_the_one_that_was_measured() -> None:
    """docs/gradient-training.md shows benchmarks/records/gradient-training.csv, which holds every trial on every cell."""
    text = (ROOT / "benchmarks" / "records" / "gradient-training.csv").read_text("utf-8")
    rows: list[gradient.Row] = []
    for read in csv.DictReader(text.splitlines()):
        names = {"group": read.pop("group"), "trial": read.pop("trial")}
        rows.append(names | {k: int(v) if v else None for k, v in read.items()})
    assert [(r["group"], r["trial"]) for r in rows] == [(t.group, t.name) for t in TRIALS for _ in CELLS]
    assert [Cell(*(int(r[k] or 0) for k in ("items", "d_model", "heads"))) for r in rows] == list(CELLS) * len(TRIALS)
    assert all(r["seeds"] == 3 and r["steps"] == t.recipe.steps for r, t in zip(rows[:: len(CELLS)], TRIALS, strict=True))
    assert gradient.markdown(rows) in (ROOT / "docs" / "gradient-training.md").read_text("utf-8")


def test_groups_are_chosen_by_name() -> None:
    assert gradient.chosen(None) == list(TRIALS)
    chosen: list[Trial] = gradient.chosen("start")
    assert chosen and {t.group for t in chosen} == {"start"}
    with pytest.raises(BadInput, match="plain"):
        gradient.chosen("plain,other")
