"""The local runner: worker processes, records as they finish, deaths survived."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from keyspan.errors import BadInput, RunnerError
from keyspan.lab import recipes
from keyspan.lab.fleet import sail
from keyspan.problems.relations import Relations
from keyspan.runners.local import LocalRunner
from keyspan.specs import Channel, Run, Stopping


def member(replicate: int = 0, steps: int = 100, items: int = 13, retire: bool = True) -> Run:
    return Run(
        problem=Relations(items=items, d_model=11),
        replicate=replicate,
        instrument=Channel(heads=2, d_key=3),
        recipe=recipes.gradient(steps=steps),
        stopping=Stopping(check_every=20, retire_exact=retire),
    )


def test_workers_give_the_bits_that_this_process_gives(tmp_path: Path) -> None:
    runs = [member(i) for i in range(5)]
    here = {f.run.run_id: f.facts["weights"] for f in sail(runs)}
    for jobs in (1, 2):
        runner = LocalRunner("cpu", jobs=jobs, folder=tmp_path)
        there = {r.run_id: r.provenance["weights"] for r in runner.run(runs)}
        assert runner.close() == []
        assert there == here


def test_rounds_reuse_the_workers(tmp_path: Path) -> None:
    runner = LocalRunner("cpu", jobs=1, folder=tmp_path)
    list(runner.run([member(0)]))
    first = [w.process.pid for w in runner._workers]
    list(runner.run([member(1)]))
    assert [w.process.pid for w in runner._workers] == first
    runner.close()


def test_a_killed_worker_gives_its_members_back(tmp_path: Path) -> None:
    runs = [member(i, steps=4000, items=61, retire=False) for i in range(2)]
    runner = LocalRunner("cpu", jobs=1, folder=tmp_path)
    killed: list[int] = []

    def once(ids: list[str], step: int, steps: int) -> None:
        if not killed:
            killed.append(step)
            runner._workers[0].process.send_signal(signal.SIGKILL)

    records = {r.run_id: r.provenance["weights"] for r in runner.run(runs, once)}
    runner.close()
    assert killed
    assert records == {f.run.run_id: f.facts["weights"] for f in sail(runs)}


def test_a_member_that_is_killed_three_times_is_out_of_memory(tmp_path: Path) -> None:
    run = member(steps=10**6, items=61, retire=False)
    runner = LocalRunner("cpu", jobs=1, folder=tmp_path)

    def always(ids: list[str], step: int, steps: int) -> None:
        runner._workers[0].process.send_signal(signal.SIGKILL)

    (record,) = runner.run([run], always)
    runner.close()
    assert str(record.verdict.status) == "out_of_memory"


def test_interrupted_workers_checkpoint(tmp_path: Path) -> None:
    run = member(steps=10**6, items=61, retire=False)
    runner = LocalRunner("cpu", jobs=1, folder=tmp_path)

    def interrupt(ids: list[str], step: int, steps: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(runner.run([run], interrupt))
    assert runner.close() == []
    assert (tmp_path / "checkpoints" / f"{run.run_id}.safetensors").exists()


def test_bad_input_in_a_worker_comes_back_as_bad_input(tmp_path: Path) -> None:
    run = Run(
        problem=Relations(items=13, d_model=11),
        replicate=0,
        instrument=Channel(heads=2, d_key=3),
        recipe=replace(recipes.gradient(), loss="hinge"),  # a loss that channels do not know
        stopping=Stopping(),
    )
    runner = LocalRunner("cpu", jobs=1, folder=tmp_path)
    with pytest.raises(BadInput, match="loss"):
        list(runner.run([run]))
    runner.close()


def test_a_worker_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    runner = LocalRunner("cpu", jobs=1, folder=tmp_path)
    with pytest.raises(RunnerError):
        list(runner.run([member()]))
    runner.close()


def test_the_device_is_checked_before_anything_starts() -> None:
    with pytest.raises(BadInput, match="--device"):
        LocalRunner("tpu")
