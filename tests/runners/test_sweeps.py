"""Sweeps: cells out of a file, measured, told, gone on with, tried again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.asked import Oracle, knows

from keyspan.errors import BadInput, RunnerError
from keyspan.evidence.store import open_store
from keyspan.evidence.sweeps import Begun, Journal, State
from keyspan.files.contents import Contents
from keyspan.files.graphs import read_graph
from keyspan.problems.relations import Relations
from keyspan.runners import inputs, lab, live
from keyspan.runners.families import FAMILIES, Context, Family, questions_of
from keyspan.runners.grids import Point
from keyspan.runners.lab import Lab
from keyspan.runners.questions import calibration_questions, relations_question
from keyspan.runners.sweeps import Sweep, carry_out, forget_failed, read_sweep
from keyspan.specs import Question, Run
from keyspan.verdict import Status, Verdict

TEXT = """
name = "mine"
[defaults]
seeds = 2
[[grid]]
heads = [1, 2]
key_budgets = [4, 8]
each.items = [16, 24]
each.d_model = [8, 16, 32]
where = "d_model <= items"
[[grid]]
family = "dichotomies"
dimension = 3
seeds = 10
"""


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> Oracle:
    runner = Oracle()
    monkeypatch.setattr(lab, "LocalRunner", runner)
    return runner


def sweep(text: str = TEXT, folder: Path = Path("nowhere"), seed: int = 0) -> Sweep:
    return read_sweep(text.encode(), "x.toml", folder, seed, Contents(None))


def here(tmp_path: Path) -> Lab:
    return Lab(store=f"sqlite:///{tmp_path}/s.db")


# ---------------------------------------------------------------------------------------------------------------- cells


def test_a_cell_asks_what_the_commands_ask() -> None:
    found = sweep()
    assert [p.family for p in found.points] == ["relations"] * 4 + ["dichotomies"]
    expected = relations_question(Relations(items=24, d_model=16), heads=[1, 2], key_budgets=[4, 8], seeds=2)
    assert found.questions[3] == (expected,)
    assert list(found.questions[4]) == calibration_questions(3, seeds=10)
    assert (found.begun.name, found.begun.cells, found.begun.skipped) == ("mine", 5, 2)


def test_the_id_is_of_what_is_asked(tmp_path: Path) -> None:
    ids = {sweep().begun.sweep_id, sweep(seed=1).begun.sweep_id, sweep(TEXT.replace("24", "32")).begun.sweep_id}
    assert len(ids) == 3
    assert sweep("# a comment\n" + TEXT, tmp_path).begun.sweep_id == sweep().begun.sweep_id
    text = '[[grid]]\nitems = 4\nd_model = 3\ngraph = "g.csv"\n'
    (tmp_path / "g.csv").write_text("0,1\n1,2\n")
    one = sweep(text, tmp_path)
    (tmp_path / "g.csv").write_text("0,1\n1,3\n")
    assert sweep(text, tmp_path).begun.sweep_id != one.begun.sweep_id, "a file is known by what is in it"


def test_files_lie_beside_the_sweep_and_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "g.csv").write_text("0,1\n1,2\n")
    np.save(tmp_path / "rows.npy", np.eye(4, 3) + 0.1)
    reads: list[str] = []

    def read(path: str) -> Any:
        reads.append(path)
        return read_graph(path)

    monkeypatch.setattr(inputs, "read_graph", read)
    text = '[[grid]]\nitems = 4\nd_model = 3\ngraph = "data/g.csv"\nembeddings = "rows.npy"\neach.seeds = [1, 2, 3]\n'
    found = sweep(text, tmp_path)
    assert len(reads) == 1
    problem = found.questions[0][0].problem
    assert isinstance(problem, Relations) and problem.graph.name == problem.embeddings.name == "file"
    with pytest.raises(BadInput, match="a file that exists"):
        sweep(text, tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[grid]]\nitems = 4", r"`d_model` of grid\[0\] of x.toml"),
        ("[[grid]]\nitems = '4'\nd_model = 3", "`items` of"),
        ("[[grid]]\nitems = 4.0\nd_model = 3", "`items` of"),
        ("[[grid]]\nitems = true\nd_model = 3", "`items` of"),
        ("[[grid]]\nitems = 4\nd_model = 3\nhead = 2", "`head` of"),
        ("[[grid]]\nitems = 4\nd_model = 3\nheads = ['1']", "`heads.*` of"),
        ("[[grid]]\nitems = 4\nd_model = 3\ntarget = nan", "`target` of"),
        ("[[grid]]\nitems = 4\nd_model = 2026-01-01", "`d_model` of"),
        ("[[grid]]\nitems = 1\nd_model = 3", r"grid\[0\] of x.toml, at .*'items': 1.*`--items >= 2`"),
        ("[[grid]]\nitems = 4\nd_model = 3\nheads = 3\nkey_budgets = 4", "must divide"),
        ("[[grid]]\nitems = 4\nd_model = 3\ngraph = 'ring'", "graph"),
        ("[[grid]]\nfamily = 'labels!'", "must be one of relations"),
        ("[[grid]]\nfamily = 'dichotomies'\nitems = 3", "`dimension` of"),
    ],
)
def test_a_bad_cell_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        sweep(text)
    assert "\n" not in str(caught.value) and ", but got" in str(caught.value)


def test_a_family_is_added_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(context: Context, *, size: int, seeds: int = 2) -> list[Question]:
        return [relations_question(Relations(items=size, d_model=4), heads=1, key_budgets=[2], seeds=seeds, seed=context.seed)]

    monkeypatch.setitem(FAMILIES, "test-family", Family(build, lambda questions, answers: {"answers": len(answers)}))
    found = sweep('[[grid]]\nfamily = "test-family"\neach.size = [8, 9]\nwhere = "size > 8"', seed=3)
    assert [q.replicates for q in found.asked] == [(3_000_000, 3_000_001)]
    assert found.begun.skipped == 1


def test_every_family_says_its_fields_and_builds() -> None:
    cells: dict[str, dict[str, Any]] = {"relations": {"items": 16, "d_model": 8}, "dichotomies": {"dimension": 3}}
    for name in FAMILIES.keys() & cells.keys():
        assert questions_of(Point(name, cells[name], "grid[0]"), Context(Contents(None), Path()))


# ------------------------------------------------------------------------------------------------------------ carried out


def test_every_cell_is_answered_and_told(tmp_path: Path, oracle: Oracle) -> None:
    chosen, told = sweep(), []
    swept = carry_out(chosen, here(tmp_path), heard=lambda s: told.append(len(s.rows)))
    data = swept.to_dict()
    assert told == [1, 2, 3, 4, 5]
    assert (data["cells"], data["done"], data["failed"], data["skipped"], data["open"]) == (5, 5, 0, 2, 0)
    assert [row["cell"] for row in data["results"]] == [0, 1, 2, 3, 4]
    assert data["results"][3]["items"] == 24 and data["results"][3]["members"] == 8
    assert {"key_budget", "low", "high", "law", "ratio"} <= data["results"][0].keys()
    assert {"examples", "gradient"} <= data["results"][4].keys()
    assert data["trained_now"] == len(data["run_ids"]) == len(set(oracle.asked)) == len(oracle.asked)
    again = carry_out(chosen, here(tmp_path)).to_dict()
    assert again == data | {"trained_now": 0}
    with open_store(here(tmp_path).url, read_only=True) as store:
        journal = Journal(store)
        assert journal.states() == [State(chosen.begun, 5, 0)]
        assert list(journal.rows(chosen.begun.sweep_id)) == data["results"]


def test_a_sweep_is_seen_while_it_runs(tmp_path: Path, oracle: Oracle) -> None:
    """What `keyspan ui` shows of it, and nothing once it is over."""
    seen: list[dict[str, Any]] = []
    carry_out(sweep(), here(tmp_path), heard=lambda _: seen.extend(live.running(tmp_path)))
    assert len(seen) == 5 and all(one["members"] >= 8 and one["pid"] == os.getpid() for one in seen)
    assert live.running(tmp_path) == []


def failing(run: Run) -> Verdict:
    return Verdict(status=Status.DIVERGED) if run.replicate == 1 and getattr(run.problem, "items", 0) == 24 else knows(run)


def test_failed_members_are_counted_and_can_be_tried_again(tmp_path: Path, oracle: Oracle) -> None:
    oracle.verdict = failing
    chosen = sweep()
    swept = carry_out(chosen, here(tmp_path))
    assert swept.failed == 2 and [row["failed"] for row in swept.results] == [0, 0, 4, 4, 0]
    with open_store(here(tmp_path).url) as store:
        assert Journal(store).find(None).failed == 2
        gone = forget_failed(chosen, store)
        assert len(gone) == 8
        assert Journal(store).find("mine") == State(chosen.begun, 0, 0), "states are worked out again"
        assert forget_failed(chosen, store) == []
    oracle.verdict, oracle.asked = knows, []
    swept = carry_out(chosen, here(tmp_path))
    assert swept.failed == 0 and sorted(oracle.asked) == sorted(gone)


def test_it_can_stop_at_the_first_failure_and_go_on_behind_it(tmp_path: Path, oracle: Oracle) -> None:
    oracle.verdict = failing
    chosen = sweep()
    with pytest.raises(RunnerError, match="--on-error stop"):
        carry_out(chosen, here(tmp_path), stop_on_failure=True)
    with open_store(here(tmp_path).url, read_only=True) as store:
        state = Journal(store).find(None)
        assert state.open > 0 and len(list(store.records(status="diverged"))) == 1
    swept = carry_out(chosen, here(tmp_path))
    assert swept.to_dict()["open"] == 0 and swept.failed == 2


def test_an_interrupted_sweep_says_how_far_it_is(tmp_path: Path, oracle: Oracle) -> None:
    oracle.stop_after = 20
    chosen = sweep()
    with pytest.raises(KeyboardInterrupt):
        carry_out(chosen, here(tmp_path))
    with open_store(here(tmp_path).url, read_only=True) as store:
        state = Journal(store).find(None)
        assert 0 < state.done < 5 and state.open == 5 - state.done
        assert store.count() == 20
    oracle.stop_after, oracle.asked = None, []
    data = carry_out(chosen, here(tmp_path)).to_dict()
    assert data["open"] == 0 and data["trained_now"] == len(data["run_ids"]) - 20 == len(oracle.asked)


# ------------------------------------------------------------------------------------------------------------- the journal


def begun(name: str, number: int = 0) -> Begun:
    return Begun(sweep_id=f"s{number:024x}", name=name, text="", folder="/", seed=0, cells=9, skipped=0)


def test_the_journal_knows_the_latest_of_a_name(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        journal = Journal(store)
        with pytest.raises(BadInput, match=r"one of the store's \(none\)"):
            journal.find(None)
        one, two, other = begun("a", 1), begun("a", 2), begun("b", 3)
        for sweep_ in (one, two, other, one):
            journal.begin(sweep_)
        assert [s.sweep for s in journal.states()] == [one, other, two]
        assert journal.find("a").sweep == one and journal.find(None).sweep == one
        assert journal.find(two.sweep_id).sweep == two and journal.find("s" + "0" * 23 + "3").sweep == other
        for unknown in ("c", "", "a%", "s9"):
            with pytest.raises(BadInput, match=r"one of the store's \(a, b\)"):
                journal.find(unknown)


def test_the_journal_counts_and_overwrites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyspan.evidence.sweeps.BATCH", 2)
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        journal, sweep_ = Journal(store), begun("a")
        journal.begin(sweep_)
        journal.tell(sweep_.sweep_id, [])
        journal.tell(sweep_.sweep_id, [(i, int(i == 2), {"cell": i}) for i in (4, 2, 0, 1, 3)])
        assert journal.find("a") == State(sweep_, 4, 1) and journal.find("a").open == 4
        journal.tell(sweep_.sweep_id, [(2, 0, {"cell": 2, "again": True})])
        assert journal.find("a") == State(sweep_, 5, 0)
        rows = list(journal.rows(sweep_.sweep_id))
        assert [row["cell"] for row in rows] == [0, 1, 2, 3, 4] and rows[2]["again"]
