"""The local runner: worker processes, records as they finish, deaths survived."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from keyspan.errors import BadInput, RunnerError
from keyspan.evidence.store import open_store
from keyspan.lab import recipes
from keyspan.lab.fleet import sail
from keyspan.problems.relations import Relations
from keyspan.runners import local
from keyspan.runners.estimate import estimate
from keyspan.runners.local import LocalRunner
from keyspan.runners.questions import relations_question
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


def speaking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *says: str) -> None:
    """Workers are a script that says these lines and then waits for its input to end."""
    lines = "".join(f"print({line!r}, flush=True)\n" for line in says)
    script = tmp_path / "worker"
    script.write_text(f"#!{sys.executable}\nimport sys\n{lines}sys.stdin.read()\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


@pytest.mark.parametrize("line", ["hello", "[1, 2]", "12", "[" * 100_000])
def test_a_worker_that_speaks_no_json_is_an_error_and_nobody_waits(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaking(tmp_path, monkeypatch, '{"ready": "cpu"}', line)
    runner = LocalRunner("cpu", jobs=1)
    with pytest.raises(RunnerError, match="must speak in lines of JSON, but said"):
        list(runner.run([member()]))
    assert runner.close() == []


@pytest.mark.parametrize(("device", "jobs"), [("cuda", 1), ("cpu", 3)])
def test_auto_starts_one_worker_for_a_gpu_and_one_a_core_else(
    device: str, jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system shows a GPU, the first worker says whether torch can use it."""
    speaking(tmp_path, monkeypatch, json.dumps({"ready": device}), '{"error": "enough"}')
    monkeypatch.setattr(local, "cores", lambda: 3)
    monkeypatch.setattr(local, "_may_have_gpu", lambda: True)
    runner = LocalRunner("auto")
    with pytest.raises(BadInput, match="enough"):
        list(runner.run([member(i, items=13 + i) for i in range(5)]))
    assert runner.jobs == len(runner._workers) == jobs
    runner.close()


def test_auto_hears_what_goes_wrong_with_its_first_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_may_have_gpu", lambda: True)
    speaking(tmp_path, monkeypatch, '{"error": "no such device"}')
    runner = LocalRunner("auto")
    with pytest.raises(BadInput, match="no such device"):
        list(runner.run([member()]))
    runner.close()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RunnerError):
        list(LocalRunner("auto").run([member()]))


def test_a_gpu_s_arithmetic_is_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a worker is asked; where there may be a GPU, a worker knows."""
    half = replace(member(), arithmetic="bf16")
    for there, device, refused in [(False, "auto", True), (True, "cpu", True), (True, "auto", False), (True, "cuda", False)]:
        monkeypatch.setattr(local, "_may_have_gpu", lambda there=there: there)
        if refused:
            with pytest.raises(BadInput, match="--arithmetic bf16"):
                LocalRunner(device, 1).refuse([half])
        else:
            LocalRunner(device, 1).refuse([half])
        LocalRunner(device, 1).refuse([member()])
    monkeypatch.setattr(local, "_may_have_gpu", lambda: False)
    with pytest.raises(BadInput, match="--device cuda"):
        LocalRunner("cuda", 1).refuse([member()])


def test_where_the_system_shows_no_gpu_nobody_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(local, "cores", lambda: 3)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(local, "GPU_NODES", (str(tmp_path / "gpu"),))
    assert [local.workers_on(device) for device in ("auto", "cpu", "cuda")] == [3, 3, 1]
    (tmp_path / "gpu").touch()
    assert [local.workers_on(device) for device in ("auto", "cpu", "cuda")] == [None, 3, 1]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert local.workers_on("auto") == 3
    assert LocalRunner("auto", jobs=2).jobs == 2


def test_a_dry_run_counts_the_same_workers(own_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    question = relations_question(Relations(items=13, d_model=11), heads=[1], key_budgets=[2, 3], steps=10**6)
    monkeypatch.setattr(local, "cores", lambda: 4)
    with open_store(own_store) as store:
        for there, counts in ((True, {"auto": 1, "cpu": 4, "cuda": 1}), (False, {"auto": 4, "cpu": 4, "cuda": 1})):
            monkeypatch.setattr(local, "_may_have_gpu", lambda there=there: there)
            assert {device: estimate([question], store, None, device).cores for device in counts} == counts
        assert estimate([question], store, 2, "cuda").cores == 2
