"""A pool: members of workers that fail go to others; what fails everywhere is given up; who fails always is retired."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from keyspan.errors import BadInput, RunnerError
from keyspan.evidence.record import Record, make_record
from keyspan.lab import recipes
from keyspan.problems.relations import Relations
from keyspan.runners.pool import RETIRE, TRIES, Fault, Message, Pool, Worker
from keyspan.specs import Channel, Run, Stopping
from keyspan.verdict import Status, Verdict


def member(replicate: int) -> Run:
    return Run(
        problem=Relations(items=13, d_model=11),
        replicate=replicate,
        instrument=Channel(heads=2, d_key=3),
        recipe=recipes.gradient(steps=10**6),  # dear, so that every member is a shard
        stopping=Stopping(),
    )


class Scripted(Pool[Worker]):
    """Workers that fail as they are told: `fails(slot, run)` says how. Their messages come in turns."""

    def __init__(
        self, fails: Callable[[int, Run], Fault | None], jobs: int = 2, on_error: str = "continue", gpu: bool = False
    ) -> None:
        super().__init__("cuda" if gpu else "cpu", jobs, on_error)
        self.fails, self.tried = fails, list[tuple[int, int]]()
        self.started, self.ended = list[int](), list[int]()
        self.said: deque[tuple[Worker, Message | Fault]] = deque()
        self.shards: list[int] = []

    def _start(self, slot: int) -> Worker:
        self.started.append(slot)
        return Worker(slot)

    def _send(self, worker: Worker, shard: list[Run]) -> None:
        self.shards.append(len(shard))
        for run in shard:
            self.tried.append((worker.slot, run.replicate))
            fault = self.fails(worker.slot, run)
            if fault is not None:
                self.said.append((worker, fault if fault.dead else {"error": fault.why}))
                return
            record = make_record(run, Verdict(status=Status.MEASURED, exact=True, scores={"f1": 1.0}))
            self.said.append((worker, {"record": record.to_json()}))
        self.said.append((worker, {"idle": True}))

    def _hear(self) -> tuple[Worker, Message | Fault]:
        while True:
            worker, message = self.said.popleft()
            if worker in self._workers:
                return worker, message

    def _dismiss(self, worker: Worker) -> None:
        self.ended.append(worker.slot)

    def close(self) -> list[Record]:
        return []


def statuses(pool: Scripted, runs: list[Run]) -> dict[int, str]:
    found = list(pool.run(runs))
    assert len(found) == len({record.run_id for record in found}) == len(runs), "each once"
    return {int(record.run["replicate"]): str(record.verdict.status) for record in found}


DEAD, ERROR = Fault("it died"), Fault("it said no", dead=False)


@pytest.mark.parametrize("fault", [DEAD, ERROR])
@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_a_member_that_fails_everywhere_is_given_up_and_the_rest_goes_on(fault: Fault, jobs: int) -> None:
    pool = Scripted(lambda slot, run: fault if run.replicate == 3 else None, jobs)
    found = statuses(pool, [member(i) for i in range(7)])
    assert found == {i: "crashed" if i == 3 else "measured" for i in range(7)}
    tries = [slot for slot, number in pool.tried if number == 3]
    assert len(tries) == TRIES and len(set(tries)) == min(jobs, TRIES), "by others, where there are others"


def test_the_reason_stands_in_the_record() -> None:
    (record,) = Scripted(lambda slot, run: DEAD).run([member(0)])
    assert record.provenance["error"] == "it died" and record.verdict.status is Status.CRASHED


def test_memory_is_said_whatever_is_to_happen_on_errors() -> None:
    for on_error in ("stop", "continue"):
        pool = Scripted(lambda slot, run: Fault("killed", memory=True) if run.replicate == 1 else None, on_error=on_error)
        assert statuses(pool, [member(i) for i in range(3)]) == {0: "measured", 1: "out_of_memory", 2: "measured"}


def test_stop_means_stop() -> None:
    pool = Scripted(lambda slot, run: DEAD if run.replicate == 1 else None, on_error="stop")
    with pytest.raises(RunnerError, match=r"3 failed in a row on r.*: it died"):
        list(pool.run([member(i) for i in range(3)]))
    pool = Scripted(lambda slot, run: ERROR, on_error="stop")
    with pytest.raises(BadInput, match="it said no"):
        list(pool.run([member(0)]))
    assert len(pool.tried) == 1, "what is wrong with the question is wrong at once"
    with pytest.raises(BadInput, match="`--on-error` must be"):
        Scripted(lambda slot, run: None, on_error="perhaps")


@pytest.mark.parametrize("fault", [DEAD, ERROR])
def test_a_worker_that_always_fails_is_retired_and_harms_nobody(fault: Fault) -> None:
    pool = Scripted(lambda slot, run: fault if slot == 1 else None, jobs=3)
    runs = [member(i) for i in range(40)]
    assert set(statuses(pool, runs).values()) == {"measured"}
    assert sum(slot == 1 for slot, _ in pool.tried) == RETIRE
    assert pool.jobs == 2 and [w.slot for w in pool._workers] == [0, 2]
    assert pool.ended.count(1) == (RETIRE if fault is DEAD else 1)
    assert set(statuses(pool, [member(i) for i in range(40, 60)]).values()) == {"measured"}
    assert sum(slot == 1 for slot, _ in pool.tried) == RETIRE, "nor is it asked again"


def test_where_everything_fails_everywhere_every_member_is_told_of() -> None:
    for jobs in (1, 3):
        pool = Scripted(lambda slot, run: DEAD, jobs)
        assert set(statuses(pool, [member(i) for i in range(9)]).values()) == {"crashed"}


def test_nobody_waits_for_a_worker_that_never_comes() -> None:
    """A cluster shrinks: one worker's place is lost for good, and a member that failed elsewhere must not wait for it."""

    class Shrunk(Scripted):
        def _start(self, slot: int) -> Worker:
            worker = super()._start(slot)
            worker.ready = self.started.count(slot) < 2 or slot == 0
            return worker

    failed: list[int] = []

    def once(slot: int, run: Run) -> Fault | None:
        first = slot == 1 or (slot == 0 and run.replicate == 0 and 0 not in failed)
        failed.append(run.replicate)
        return DEAD if first else None

    pool = Shrunk(once)
    assert statuses(pool, [member(i) for i in range(4)]) == dict.fromkeys(range(4), "measured")
    assert pool.started.count(1) == 2 and (0, 0) in pool.tried[1:], "who failed it once tried it again"


def test_a_failure_now_and_then_retires_nobody() -> None:
    bad = {3, 8, 13, 18, 23, 28, 33}
    pool = Scripted(lambda slot, run: DEAD if run.replicate in bad else None, jobs=2)
    found = statuses(pool, [member(i) for i in range(40)])
    assert {i for i, status in found.items() if status == "crashed"} == bad
    assert pool.jobs == 2


def test_a_worker_that_cannot_work_ends_it() -> None:
    pool = Scripted(lambda slot, run: Fault("A worker must start, but did not.", useless=True))
    with pytest.raises(RunnerError, match="must start"):
        list(pool.run([member(0)]))


def small(replicate: int) -> Run:
    from dataclasses import replace

    return replace(member(replicate), recipe=recipes.gradient(steps=100))


def test_the_only_gpu_takes_all_and_several_take_some_ahead() -> None:
    pool = Scripted(lambda slot, run: None, jobs=1, gpu=True)
    statuses(pool, [small(i) for i in range(100)])
    assert pool.shards == [100]
    pool = Scripted(lambda slot, run: None, jobs=2, gpu=True)
    runs = [member(i) for i in range(100)]
    assert set(statuses(pool, runs).values()) == {"measured"}
    assert {slot for slot, _ in pool.tried} == {0, 1}


def test_on_a_gpu_the_member_that_fails_is_found() -> None:
    pool = Scripted(lambda slot, run: DEAD if run.replicate == 17 else None, jobs=1, gpu=True)
    found = statuses(pool, [small(i) for i in range(30)])
    assert found == {i: "crashed" if i == 17 else "measured" for i in range(30)}


def test_more_members_join_and_what_a_worker_stored_is_known() -> None:
    class Storing(Scripted):
        def _send(self, worker: Worker, shard: list[Run]) -> None:
            super()._send(worker, shard)
            self.said = deque(
                (w, m if isinstance(m, Fault) or "record" not in m else {**m, "stored": True}) for w, m in self.said
            )

    later: list[list[Run]] = [[member(5)], [], [member(6), member(7)]]
    pool = Storing(lambda slot, run: None)
    found: list[Any] = list(pool.run([member(0)], more=lambda: later.pop() if later else []))
    assert sorted(r.run["replicate"] for r in found) == [0, 5, 6, 7]
    assert pool.stored == {r.run_id for r in found}
