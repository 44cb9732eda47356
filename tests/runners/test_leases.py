"""Drivers on one store: hearts beat, the dead are told from the living, and nobody does another's work."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keyspan.errors import RunnerError
from keyspan.evidence.leases import Holder, Leases
from keyspan.evidence.record import Record, make_record
from keyspan.evidence.store import Store, open_store
from keyspan.lab.pack import seconds
from keyspan.problems.relations import Relations
from keyspan.runners import driver, leases
from keyspan.runners.driver import More, Progress
from keyspan.runners.leases import STILL, Desk, Heart, is_gone, myself
from keyspan.runners.questions import relations_question
from keyspan.specs import Channel, Question, Run
from keyspan.verdict import Status, Verdict

ELSEWHERE = Holder(holder="far", host="far", place="", pid=1, started="")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        yield store


def asked(*items: int) -> list[Question]:
    return [relations_question(Relations(items=m, d_model=8), heads=[1, 2], key_budgets=[4, 8], seeds=2) for m in items]


def runs_of(question: Question) -> list[Run]:
    return [run for arm in question.arms for level in arm.levels for run in question.runs(arm, level)]


def judged(run: Run) -> Record:
    good = isinstance(run.instrument, Channel) and run.instrument.key_budget >= 8
    return make_record(run, Verdict(status=Status.MEASURED, exact=good, scores={"f1": float(good)}), steps=7)


class Counted:
    """A runner that answers at once, counts, and can be slow."""

    appetite = 0.05  # a few members at a time

    def __init__(self, ran: list[str], pause: float = 0.0) -> None:
        self.ran, self.pause = ran, pause

    def run(self, runs: Sequence[Run], progress: Progress = lambda i, a, b: None, more: More = lambda: ()) -> Iterator[Record]:
        waiting = list(runs)
        while waiting:
            run = waiting.pop(0)
            time.sleep(self.pause)
            self.ran.append(run.run_id)
            yield judged(run)
            waiting += more()

    def close(self) -> list[Record]:
        return []


# ------------------------------------------------------------------------------------------------------------ who is dead


def test_this_process_is_not_gone_and_another_may_be() -> None:
    me = myself()
    assert me.pid == os.getpid() and me.holder != myself().holder
    assert not is_gone(me)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    there = replace(me, pid=child.pid, started=leases._started(child.pid) or "")
    assert not is_gone(there)
    assert is_gone(replace(there, started="1")), "the number was given to another process"
    child.kill()
    while leases._started(child.pid) is not None:  # it is dead before anybody waits for it
        time.sleep(0.01)
    assert is_gone(there)
    child.communicate()
    assert is_gone(there)
    assert not is_gone(replace(there, place="another machine")), "nothing is known of its processes"
    assert not is_gone(ELSEWHERE)


def test_a_dead_driver_of_this_machine_is_freed_at_once(store: Store) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    dead = Leases(store, replace(myself(), holder="dead", pid=child.pid, started=leases._started(child.pid) or ""))
    assert dead.take(["r1"])
    heart = Heart(Leases(store, myself()))
    heart.once()
    assert dead.held(["r1"]) == {"r1"}
    child.kill()
    child.communicate()
    heart.once()
    assert dead.held(["r1"]) == set()


def test_another_machines_driver_is_freed_when_its_heart_stands_still(store: Store) -> None:
    far, heart = Leases(store, ELSEWHERE), Heart(Leases(store, myself()))
    far.take(["r1"])
    for _ in range(STILL):
        far.beat()
        heart.once()
    for _ in range(STILL - 1):
        heart.once()
        assert far.held(["r1"])
    far.beat()  # just in time
    for _ in range(STILL):
        heart.once()
        assert far.held(["r1"])
    heart.once()
    assert far.held(["r1"]) == set()


def test_no_clock_makes_anybody_look_dead(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time jumps by years, either way, between any two heartbeats; nobody reads it."""
    jumps = iter([0.0, 1e9, -1e9, 5.0, 3e9] * 20)
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    monkeypatch.setattr(time, "monotonic", lambda: next(jumps))
    far, heart = Leases(store, ELSEWHERE), Heart(Leases(store, myself()))
    far.take(["r1"])
    for _ in range(3 * STILL):
        heart.once()
        far.beat()
    assert far.held(["r1"]) == {"r1"}


def test_a_heart_beats_by_itself_and_stops(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "BEAT", 0.01)
    heart, other = Heart(Leases(store, myself())), Leases(store, ELSEWHERE)
    heart.stop()  # one that never beat has nothing to say
    assert other.beat() == []
    heart = Heart(Leases(store, myself()))
    heart.start()
    first = other.beat()[0].beat
    for _ in range(1000):
        if other.beat()[0].beat > first + 2:
            break
        time.sleep(0.01)
    else:
        pytest.fail("the heart does not beat")
    heart.stop()
    assert other.beat() == []


# --------------------------------------------------------------------------------------------------------------- the desk


def test_a_desk_hands_out_what_is_free_as_far_as_it_is_wanted(store: Store) -> None:
    (question,) = asked(16)
    runs = runs_of(question)
    cost = seconds(runs[0])
    wanted = [runs]
    desk = Desk(store, lambda: wanted.pop() if wanted else [], lambda record: None)
    desk.appetite = 2.5 * cost
    other = Leases(store, ELSEWHERE)
    other.take([runs[1].run_id])
    first = desk.next()
    assert runs[0] in first and runs[1] not in first and 2 <= len(first) < len(runs)
    assert desk.next() == []
    for run in first:
        store.put(judged(run))
        desk.done(run.run_id)
    assert desk.next() and desk.waiting
    desk.close()
    assert other.held([run.run_id for run in runs]) == {runs[1].run_id}


def test_a_desk_hears_of_others_and_takes_over_from_the_dead(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LOOK", 0.0)
    monkeypatch.setattr(leases, "SHARE", 1e9)
    (question,) = asked(16)
    runs = runs_of(question)[:3]
    wanted, heard = [runs], list[Record]()
    desk = Desk(store, lambda: wanted.pop() if wanted else [], heard.append)
    other = Leases(store, ELSEWHERE)
    other.take([run.run_id for run in runs[:2]])
    assert desk.next() == runs[2:]
    assert desk.waiting and desk.next() == []
    store.put(judged(runs[0]))
    assert desk.next() == [] and [record.run_id for record in heard] == [runs[0].run_id]
    other.leave()
    assert desk.next() == [runs[1]] and not desk.waiting
    desk.close()


# ---------------------------------------------------------------------------------------------------------------- drivers


@pytest.mark.parametrize("drivers", [2, 4])
def test_drivers_share_the_work_and_give_one_answer(drivers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "PAUSE", 0.01)
    monkeypatch.setattr(leases, "LOOK", 0.01)
    url, questions = f"sqlite:///{tmp_path}/s.db", asked(*range(9, 25))
    ran: list[list[str]] = [[] for _ in range(drivers)]
    found: list[object] = [None] * drivers
    barrier = threading.Barrier(drivers)

    def drive(number: int) -> None:
        with open_store(url) as mine:
            barrier.wait(60)
            outcomes = driver.answer(questions, mine, lambda: Counted(ran[number], 0.002))
            found[number] = [o.answer for o in outcomes], sorted(i for o in outcomes for i in o.trained)

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(drivers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    every = [run_id for one in ran for run_id in one]
    assert len(every) == len(set(every)) == sum(len(runs_of(q)) for q in questions), "no member twice, none left out"
    assert sum(bool(one) for one in ran) > 1, "nobody had everything"  # SQLite's lock is not fair: one may be unlucky
    assert all(f[0] == found[0][0] for f in found)  # type: ignore[index]
    assert sorted(i for f in found for i in f[1]) == sorted(every)  # type: ignore[index]
    with open_store(url, read_only=True) as store:
        assert store.count(copies=True) == len(every)


def test_a_driver_that_only_reads_takes_no_lease(store: Store) -> None:
    questions = asked(16)
    driver.answer(questions, store, lambda: Counted([]))
    seen = Leases(store, ELSEWHERE)
    assert seen.beat() == []
    driver.answer(questions, store, lambda: pytest.fail("nothing is to be trained"))
    assert seen.beat() == []


def test_what_another_stored_first_is_what_answers(store: Store) -> None:
    """Two records of a run may differ between machines; every driver answers from the one that the store answers with."""
    (question,) = asked(16)
    runs = runs_of(question)

    class Late(Counted):
        def run(self, runs: Sequence[Run], *args: Any) -> Iterator[Record]:
            for run in runs:
                verdict = Verdict(status=Status.MEASURED, exact=False, scores={"f1": 0.25})
                store.put(make_record(run, verdict, steps=1))
            yield from super().run(runs)

    (outcome,) = driver.answer([question], store, lambda: Late([]))
    assert {p.verdict.scores["f1"] for p in outcome.answer.probes} == {0.25}
    assert outcome.trained == () and len(runs) == len(outcome.answer.probes)


def test_answers_come_as_they_are_found(store: Store) -> None:
    seen: list[tuple[int, int]] = []
    ran: list[str] = []
    for number, outcome in driver.answers(asked(9, 10, 11), store, lambda: Counted(ran)):
        seen.append((number, len(ran)))
        assert outcome.answer.failed == 0
    assert [number for number, _ in seen] == [0, 1, 2]
    assert seen[0][1] < len(ran)


def test_a_failure_can_stop_it_all(store: Store) -> None:
    class Failing(Counted):
        def run(self, runs: Sequence[Run], *args: Any) -> Iterator[Record]:
            for run in runs:
                yield make_record(run, Verdict(status=Status.DIVERGED))

    with pytest.raises(RunnerError, match="is diverged"):
        list(driver.answers(asked(9), store, lambda: Failing([]), stop_on_failure=True))
    assert store.count() == 1
    assert Leases(store, ELSEWHERE).beat() == [], "nothing is left in hand"
