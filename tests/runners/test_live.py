"""What runs now: said in a small file, gone when it ends, and believed only while the process is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.asked import Oracle, knows

from keyspan.evidence.record import make_record
from keyspan.evidence.store import open_store
from keyspan.problems.relations import Relations
from keyspan.runners import driver, live
from keyspan.runners.driver import Watcher
from keyspan.runners.lab import Lab
from keyspan.runners.questions import relations_question

QUESTION = relations_question(Relations(items=16, d_model=8), heads=[2], key_budgets=[4, 8], seeds=2)
RUNS = [run for arm in QUESTION.arms for level in arm.levels for run in QUESTION.runs(arm, level)]


def test_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY", 0.0)
    with live.watching(tmp_path, None) as watcher:
        assert watcher is not None and live.running(tmp_path) == []  # nothing is trained yet
        watcher.round(1, RUNS, 0)
        (told,) = live.running(tmp_path)
        assert (told["pid"], told["members"], told["finished"], told["share"]) == (os.getpid(), 4, 0, 0.0)
        watcher.progress([RUNS[0].run_id], 1000, 2000)
        assert live.running(tmp_path)[0]["share"] == pytest.approx(0.5 * 1 / 4, rel=0.5)
        for run in RUNS:
            watcher.finished(make_record(run, knows(run)))
        (told,) = live.running(tmp_path)
        assert (told["finished"], told["share"]) == (4, 1.0) and told["command"]
    assert live.running(tmp_path) == [] and list(tmp_path.iterdir()) == []


def test_another_watcher_hears_the_same(tmp_path: Path) -> None:
    heard: list[str] = []

    class Ear(Watcher):
        def round(self, number: int, runs: object, measured: int) -> None:
            heard.append(f"round {number}")

        def finished(self, record: object) -> None:
            heard.append("finished")

    with open_store(f"sqlite:///{tmp_path / 's.db'}") as store, live.watching(tmp_path, Ear()) as watcher:
        driver.answer([QUESTION], store, Oracle(), watcher)
    assert heard == ["round 1", *["finished"] * 4]
    with live.watching(None, None) as watcher:
        assert watcher is None


def test_a_laboratory_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyspan.runners.lab.LocalRunner", Oracle())
    lab = Lab(store=f"sqlite:///{tmp_path / 'lab.db'}")
    lab.answer([QUESTION])
    assert not (tmp_path / "live").exists()


def test_the_dead_are_not_believed(tmp_path: Path) -> None:
    with live.watching(tmp_path, None) as watcher:
        assert watcher is not None
        watcher.round(1, RUNS, 0)
        (path,) = (tmp_path / "live").iterdir()
        told = json.loads(path.read_text())
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    folder = tmp_path / "live"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps(told | {"pid": gone.pid}))
    (folder / "b.json").write_text(json.dumps(told | {"pid": 2**40}))
    (folder / "c.json").write_text("{")
    (folder / "d.json").write_text(json.dumps(told | {"share": "all"}))
    (folder / "e.json").write_text("[" * 40_000)
    (folder / "f.json").write_text(" " * 2**17)
    assert live.running(tmp_path) == []
    (folder / "g.json").write_text(json.dumps(told | {"host": "elsewhere"}))
    assert [t["host"] for t in live.running(tmp_path)] == ["elsewhere"]
    os.utime(folder / "g.json", (0, 0))
    assert live.running(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_no_reason_to_stop(tmp_path: Path) -> None:
    (tmp_path / "live").write_text("a file in the way")
    with live.watching(tmp_path, None) as watcher:
        assert watcher is not None
        watcher.round(1, RUNS, 0)
    assert live.running(tmp_path) == [] and (tmp_path / "live").read_text() == "a file in the way"
