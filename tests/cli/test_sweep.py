"""`keyspan sweep`, as a user types it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from tests.cli.asked import Oracle, ask, told

from keyspan.specs import Run
from keyspan.verdict import Status, Verdict

TEXT = """
name = "mine"
[[grid]]
seeds = 2
heads = [1, 2]
key_budgets = [4, 8]
each.items = [16, 24]
each.d_model = [8, 16, 32]
where = "d_model <= items"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.toml").write_text(TEXT)
    return "grid.toml"


def test_a_sweep_is_measured_told_and_gone_on_with(file: str, oracle: Oracle) -> None:
    swept = told("sweep", file, "--out", "cells.csv")
    counts = {"cells": 4, "done": 4, "failed": 0, "skipped": 2, "open": 0}
    assert swept.items() >= counts.items() and swept["sweep"] == "mine"
    assert swept["trained_now"] == len(swept["run_ids"]) == 32
    with open("cells.csv", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["items"] for row in rows] == ["16", "16", "24", "24"]
    assert rows[0]["heads"] == "1 2" and {row["key_budget"] for row in rows} >= {"8"}
    Path(file).unlink()  # the store remembers it
    state = told("sweep", "status")
    assert state.items() >= counts.items() and state["results"] == swept["results"]
    assert [one["sweep"] for one in state["sweeps"]] == ["mine"]
    for words in (["resume"], ["resume", "mine"], ["resume", swept["sweep_id"]]):
        assert told("sweep", *words) == swept | {"trained_now": 0}


def test_status_of_a_file_is_of_what_the_file_says_now(file: str, oracle: Oracle) -> None:
    told("sweep", file)
    assert told("sweep", "status", file)["done"] == 4
    Path(file).write_text(TEXT.replace("16, 24", "16, 32"))
    ran = ask("sweep", "status", file)
    assert ran.code == 2 and "must be a TOML file or one of the store's (mine)" in ran.err


def failing(run: Run) -> Verdict:
    from tests.cli.asked import knows

    return Verdict(status=Status.OUT_OF_MEMORY) if getattr(run.problem, "items", 0) == 24 else knows(run)


def test_failures_are_counted_kept_and_tried_again(file: str, oracle: Oracle) -> None:
    oracle.verdict = failing
    ran = ask("sweep", file, "--json")
    assert ran.code == 3 and (ran.json["done"], ran.json["failed"]) == (2, 2)
    assert told("sweep", "status")["failed"] == 2
    assert ask("sweep", file, "--json").json["trained_now"] == 0, "a failure is kept, too"
    oracle.verdict = Oracle().verdict
    again = told("sweep", "retry", "--failed")
    assert (again["done"], again["failed"], again["trained_now"]) == (4, 0, 16)


def test_what_prints_on_the_way_does_not_get_into_the_answer(file: str, oracle: Oracle) -> None:
    """As Ray does when a node of its cluster dies."""

    def chatty(run: Run) -> Verdict:
        print("(raylet) a node died")
        return Oracle().verdict(run)

    oracle.verdict = chatty
    ran = ask("sweep", file, "--json")
    assert ran.json["done"] == 4 and "a node died" in ran.err


def test_on_error_stop(file: str, oracle: Oracle) -> None:
    oracle.verdict = failing
    ran = ask("sweep", file, "--on-error", "stop")
    assert ran.code == 1 and "must be measured with `--on-error stop`" in ran.err and ran.out == ""


def test_an_interrupt_is_said_and_gone_on_with(file: str, oracle: Oracle) -> None:
    oracle.stop_after = 9
    assert ask("sweep", file).code == 130
    oracle.stop_after = None
    assert told("sweep", file)["trained_now"] == 32 - 9


def test_a_dry_run_trains_nothing(file: str, oracle: Oracle) -> None:
    data = told("sweep", file, "--dry-run")
    assert data["members"] == 32 and oracle.asked == [] and data["seconds"] > 0
    assert told("sweep", file, "--hand-out", "box/members.jsonl")["path"] == "box/members.jsonl"
    assert len(Path("box/members.jsonl").read_text().splitlines()) == 4 and oracle.asked == []


def test_tables_for_people(file: str, oracle: Oracle) -> None:
    ran = ask("sweep", file)
    assert ran.code == 0 and "mine: 4 cells" in ran.out and "4 of 4 cells done" in ran.out and "seeds" not in ran.out
    assert "mine" in ask("sweep", "status").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "Missing argument"),
        (("none.toml",), "must be a file that exists"),
        (("nothing",), "must be a TOML file or one of the store's (none)"),
        (("status",), "must be a TOML file or one of the store's (none)"),
        (("resume", "x"), "one of the store's (none), but got 'x'"),
        (("retry",), "`--failed` must go with `sweep retry`"),
        (("grid.toml", "--failed"), "`--failed` must go with `sweep retry`"),
        (("grid.toml", "other.toml"), "must be one file or one name"),
        (("grid.toml", "--on-error", "pray"), "must be continue|stop"),
        (("grid.toml", "--out", "cells.txt"), "must be a `.csv` file"),
        (("grid.toml", "--jobs", "0"), "`--jobs >= 1`"),
        (("bad.toml",), "must be"),
    ],
)
def test_bad_input_is_one_line(file: str, oracle: Oracle, words: tuple[str, ...], says: str) -> None:
    Path("bad.toml").write_text("grid = [")
    ran = ask("sweep", *words)
    assert ran.code == 2 and says in ran.err and ran.err.count("\n") == 1 and ran.out == "", ran
    assert oracle.asked == []
