"""The Ray runner: a cluster of two on this machine gives what local workers give, and survives what kills its own."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runners.test_local import member

from keyspan.errors import BadInput, MissingExtra, RunnerError
from keyspan.evidence.record import Record
from keyspan.files.contents import Contents
from keyspan.lab import recipes
from keyspan.problems import graphs
from keyspan.problems.relations import Relations
from keyspan.runners import ray as runner_module
from keyspan.runners.lab import Lab
from keyspan.runners.local import LocalRunner
from keyspan.runners.ray import RayRunner, Trainer, hashes_in
from keyspan.specs import Run

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray leaves files and sockets to its processes' ends
SOURCES = Path(__file__).resolve().parents[2] / "src"
FACTS = ("instance", "weights", "load", "bits", "best_possible", "steps", "kernel", "torch", "device", "keyspan", "python")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two CPUs of this machine, one cluster for all tests of the module."""
    ray = pytest.importorskip("ray", reason="ray is not installed")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(SOURCES)  # the workers import this package
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    own = {"include_dashboard": False, "object_store_memory": runner_module.STORE_BYTES}
    ray.init(address="local", num_cpus=2, logging_level="ERROR", log_to_driver=False, **own)
    yield ray
    ray.shutdown()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def told(record: Record) -> tuple[Any, ...]:
    """Everything that a record says but how long it took and when."""
    return record.content, record.run_id, record.problem_id, *(record.provenance.get(name) for name in FACTS)


def test_one_and_two_workers_and_a_cluster_give_identical_records(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "g.csv").write_text("0,1\n")
    edges = np.array([[0, 1], [2, 3], [5, 7]])
    graph = graphs.Graph(name="file", content=Contents(tmp_path / "ray" / "files").put(edges, tmp_path / "g.csv"), edges=3)
    runs = [member(i) for i in range(4)] + [member(0, items=17), member(2, steps=60)]
    runs.append(replace(member(1), problem=Relations(items=9, d_model=11, graph=graph)))
    found: list[list[tuple[Any, ...]]] = []
    for jobs in (1, 2):
        Contents(tmp_path / str(jobs) / "files").put(edges, tmp_path / "g.csv")
        local = LocalRunner("cpu", jobs, tmp_path / str(jobs))
        found.append(sorted(map(told, local.run(runs))))
        local.close()
    runner = RayRunner(None, "cpu", 2, tmp_path / "ray")
    records = list(runner.run(runs))
    again = list(runner.run([member(9)]))  # a second round, by the same actors
    assert runner.close() == []
    found.append(sorted(map(told, records)))
    assert found[0] == found[1] == found[2] and len(records) == len(runs)
    (from_file,) = [r for r in records if r.run["problem"]["items"] == 9]
    assert from_file.provenance["graph_file"] == str(tmp_path / "g.csv")
    assert len(again) == 1


def test_a_killed_actor_gives_its_members_back_and_a_deadly_one_is_recorded(cluster: Any, tmp_path: Path) -> None:
    long, deadly = member(0, steps=6000, items=61, retire=False), member(1, steps=10**6, items=61, retire=False)
    runner = RayRunner(None, "cpu", 2, tmp_path, on_error="continue")
    deaths: list[str] = []

    def kill(ids: list[str], step: int, steps: int) -> None:
        for worker in runner._workers:
            once = long.run_id in ids and long.run_id in worker.holding and long.run_id not in deaths
            if once or (deadly.run_id in ids and deadly.run_id in worker.holding):
                deaths.extend(ids)
                os.kill(cluster.get(worker.handle.process.remote()), signal.SIGKILL)

    records = {r.run_id: r for r in runner.run([long, deadly], kill)}
    runner.close()
    assert deaths.count(long.run_id) == 1 and deaths.count(deadly.run_id) == 3
    assert str(records[deadly.run_id].verdict.status) == "crashed"
    assert "ended" in records[deadly.run_id].provenance["error"]
    local = LocalRunner("cpu", 1, tmp_path / "local")
    (calm,) = local.run([long])
    local.close()
    assert told(records[long.run_id]) == told(calm)


def test_what_is_wrong_is_said_and_what_is_interrupted_is_kept(cluster: Any, tmp_path: Path) -> None:
    bad = replace(member(0), recipe=replace(recipes.gradient(), loss="hinge"))  # a loss that channels do not know
    runner = RayRunner(None, "cpu", 1, tmp_path)
    with pytest.raises(BadInput, match="loss"):
        list(runner.run([bad]))
    long = member(1, steps=10**6, items=61, retire=False)

    def interrupt(ids: list[str], step: int, steps: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(runner.run([long], interrupt))
    assert runner.close() == []
    assert (tmp_path / "checkpoints" / f"{long.run_id}.safetensors").exists()


def test_a_gpu_that_the_cluster_has_not_is_missed(cluster: Any) -> None:
    with pytest.raises(BadInput, match="must find a GPU in the cluster"):
        RayRunner(None, "cuda", 1)
    runner = RayRunner(None, "auto", 1)
    runner.refuse([member(0)])
    with pytest.raises(BadInput, match=r"--arithmetic bf16.*a cluster of CPUs"):
        runner.refuse([member(0), replace(member(1), arithmetic="bf16")])
    runner.close()


# ------------------------------------------------------------------------------------------------------ without a cluster


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'keyspan\[ray\]'"):
        RayRunner()


def test_a_cluster_that_cannot_be_joined_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        @staticmethod
        def is_initialized() -> bool:
            return False

        @staticmethod
        def init(**_: Any) -> None:
            raise ConnectionError("nobody\nthere")

    monkeypatch.setattr(runner_module, "import_ray", Refusing)
    with pytest.raises(RunnerError, match=r"ray://head:1 gave 'nobody there'. Check `--address`"):
        RayRunner("ray://head:1")


def test_a_lab_takes_the_words_of_the_command_line(tmp_path: Path) -> None:
    for words, says in (
        ({"runner": "slurm"}, r"`--runner` must be local\|ray"),
        ({"address": "auto"}, "must go with `--runner ray`"),
        ({"runner": "ray", "direct": True}, "must go with a store in PostgreSQL"),
        ({"runner": "ray", "address": 3}, "`address` of a Lab"),
    ):
        with pytest.raises(BadInput, match=says):
            Lab(store=f"sqlite:///{tmp_path}/s.db", **words)
    assert Lab(store="postgresql://me@host/lab", runner="ray", address="auto", direct=True).direct


def test_the_files_that_a_run_needs_are_found() -> None:
    sha = "0123456789abcdef" * 4
    run = replace(member(0), problem=Relations(items=9, d_model=3, graph=graphs.Graph(name="file", content=sha, edges=3)))
    assert list(hashes_in(run.to_json())) == [sha]
    assert list(hashes_in(member(0).to_json())) == []
    assert list(hashes_in([{"content": "short"}, {"a": {"content": sha}}])) == [sha]


def test_a_trainer_says_what_it_does(tmp_path: Path) -> None:
    """The actor's class, without a cluster around it."""
    import json

    trainer = Trainer("cpu", str(tmp_path), None, f"sqlite:///{tmp_path}/direct.db")
    said: list[dict[str, Any]] = []
    trainer.give(json.dumps({"runs": [member(0).to_json()]}), {})
    while not any("idle" in m for m in said):
        said += json.loads(trainer.take())
    assert said[0] == {"ready": "cpu"}
    (message,) = [m for m in said if "record" in m]
    assert message["stored"] is True, "it had a store to write into"
    trainer.give("nonsense", {})
    while not any("error" in m for m in said):
        said += json.loads(trainer.take())
    trainer.stop()
    while "over" not in said[-1]:
        said += json.loads(trainer.take())
    assert isinstance(trainer.process(), int) and Run.from_json(message["record"]["run"]) == member(0)
