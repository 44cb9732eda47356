"""The driver: read the store, propose, run, store; again until the question is answered. Starting it again is the resume."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from time import sleep
from typing import Any, Protocol

from keyspan.errors import RunnerError
from keyspan.evidence.record import Record
from keyspan.evidence.store import Store
from keyspan.lab.agenda import Agenda
from keyspan.lab.search import Answer
from keyspan.runners.leases import Desk
from keyspan.specs import Question, Run
from keyspan.verdict import Verdict

Progress = Callable[[list[str], int, int], None]
More = Callable[[], Sequence[Run]]
PAUSE = 0.2  # seconds between two looks while others have all that is left
TOGETHER = 100  # records to store at once, where they arrive faster than one by one
ENOUGH = 1000  # members to propose at a time: ten thousand questions are not all asked before the first member begins


class Runner(Protocol):
    """Anything that turns members into records. more: asked after each record for members to take on as well

    A runner may have an `appetite`: how much it wants in hand, in seconds of one core; a `backlog`: how many messages wait to
    be heard; know which records are `stored` already; and `refuse`, which raises for members that it can be known to fail at.
    """

    def run(self, runs: Sequence[Run], progress: Progress = ..., more: More = ...) -> Iterator[Record]: ...
    def close(self) -> list[Record]: ...


class Watcher:
    """Told what happens; a silent one by default."""

    def round(self, number: int, runs: Sequence[Run], measured: int) -> None:
        """A round of the search begins: these members are to be trained, so many are there already."""

    def progress(self, run_ids: list[str], step: int, steps: int) -> None:
        """These members are at this step."""

    def finished(self, record: Record) -> None:
        """A member has finished and is stored, by this driver or by another."""


@dataclass(frozen=True)
class Outcome:
    """An answer, which members this call trained for it, and how every member on its path came about."""

    answer: Answer
    trained: tuple[str, ...]
    provenance: Mapping[str, Mapping[str, Any]]


def answer(
    questions: Sequence[Question], store: Store, make_runner: Callable[[], Runner], watcher: Watcher | None = None
) -> list[Outcome]:
    """Answer questions, training only what the store does not hold: `answers`, all of them, in order."""
    found = dict(answers(questions, store, make_runner, watcher))
    return [found[number] for number in sorted(found)]


def answers(
    questions: Sequence[Question],
    store: Store,
    make_runner: Callable[[], Runner],
    watcher: Watcher | None = None,
    *,
    stop_on_failure: bool = False,
) -> Generator[tuple[int, Outcome], None, None]:
    """Answer questions, training only what the store does not hold. yields: a question's number and its outcome, as it is
    answered. The runner is made only if something is trained.

    Every question goes on to its next round as soon as its own members are in, so that one's last member does not keep
    the others waiting. Whatever finishes is stored at once. What another driver on the same store has in hand is left to
    it, and heard of when it is there. When interrupted, workers are told to stop, and what finished meanwhile is kept.
    stop_on_failure: a member without a number ends it all; its record is kept
    """
    book = _Book(questions, store, watcher or Watcher())
    yield from book.settled()
    with closing(_Bench(book, make_runner, stop_on_failure)) as bench:
        while bench.work():
            for _ in bench.records():
                yield from book.settled()
            yield from book.settled()
    yield from book.settled()


@dataclass
class _Book:
    """What is asked, what is known of it, and what was trained here."""

    questions: Sequence[Question]
    store: Store
    watcher: Watcher
    trained: set[str] = field(default_factory=set)
    rounds: int = 0

    def __post_init__(self) -> None:
        self.provenance: dict[str, Mapping[str, Any]] = {}
        self.agenda = Agenda(self.questions, self._lookup)
        self.ahead = self.agenda.wanted(ENOUGH)  # told when they begin

    def _lookup(self, run_ids: Sequence[str]) -> dict[str, Verdict]:
        found = self.store.get_many(run_ids)
        self.provenance.update({run_id: record.provenance for run_id, record in found.items()})
        return {run_id: record.verdict for run_id, record in found.items()}

    def wanted(self) -> list[Run]:
        """Rounds that begin now, of one question or of several, told to the watcher."""
        runs, self.ahead = self.ahead or self.agenda.wanted(ENOUGH), []
        if runs:
            self.rounds += 1
            self.watcher.round(self.rounds, runs, self.agenda.measured)
        return runs

    def hear(self, record: Record) -> None:
        """A member has a record in the store."""
        self.provenance[record.run_id] = record.provenance
        self.agenda.hear(record.run_id, record.verdict)
        self.watcher.finished(record)

    def settled(self) -> Iterator[tuple[int, Outcome]]:
        """Questions that have been answered; what is known of their members is then left to the store."""
        self.ahead = self.ahead or self.agenda.wanted(ENOUGH)
        while (found := self.agenda.pop_answered()) is not None:
            number, answered = found
            ids = [probe.run.run_id for probe in answered.probes]
            self._lookup([run_id for run_id in ids if run_id not in self.provenance])
            about = {run_id: self.provenance[run_id] for run_id in ids}
            yield number, Outcome(answered, tuple(i for i in ids if i in self.trained), about)
            self.agenda.forget(ids)
            for run_id in ids:
                self.provenance.pop(run_id, None)


class _Bench:
    """Members in work: a runner, made when it is needed, whose records go to the store as they come, and on the way out."""

    def __init__(self, book: _Book, make_runner: Callable[[], Runner], stop_on_failure: bool) -> None:
        self.book, self.make_runner, self.stop_on_failure = book, make_runner, stop_on_failure
        self.desk = Desk(book.store, book.wanted, book.hear)
        self.runner: Runner | None = None
        self.runs: list[Run] = []
        self._arrived: list[Record] = []

    def work(self) -> bool:
        """Whether anything is left to be trained or to be waited for."""
        if self.runner is None and self.book.ahead:
            self.runner = self.make_runner()
            refuse = getattr(self.runner, "refuse", None)
            if refuse is not None:  # what this machine cannot train is said before anything begins
                refuse(self.book.ahead)
            self.desk.appetite = getattr(self.runner, "appetite", None)
        self.runs = self.desk.next()
        return bool(self.runs) or self.desk.waiting

    def records(self) -> Iterator[Record]:
        """Train what is in hand and what is wanted meanwhile, or wait a little for others."""
        if not self.runs:
            sleep(PAUSE)
            return
        assert self.runner is not None
        for record in self.runner.run(self.runs, self.book.watcher.progress, self.desk.next):
            self._arrived.append(record)
            if len(self._arrived) >= TOGETHER or not getattr(self.runner, "backlog", 0):
                yield from self._keep()
        yield from self._keep()

    def _keep(self) -> list[Record]:
        """Store what has arrived, in one transaction, and tell of it. returns: the records that answer"""
        arrived, self._arrived = self._arrived, []
        stored = getattr(self.runner, "stored", set[str]())
        mine = [record for record in arrived if record.run_id not in stored]
        kept = dict(zip((record.run_id for record in mine), self.book.store.put_each(mine), strict=True)) if mine else {}
        known = self.book.store.get_many(run_id for run_id, new in kept.items() if not new)  # somebody was first
        found = [known.get(record.run_id, record) for record in arrived]
        for record in found:
            if record.run_id not in known:
                self.book.trained.add(record.run_id)
            self.desk.done(record.run_id)
            self.book.hear(record)
        for record in found:
            if self.stop_on_failure and not record.verdict.measured:
                got = f"{record.run_id} is {record.verdict.status}"
                raise RunnerError(f"Every member must be measured with `--on-error stop`, but {got}.")
        return found

    def close(self) -> None:
        try:
            self._arrived += self.runner.close() if self.runner is not None else []
            self._keep()
        finally:
            self.desk.close()
