"""The driver: read the store, propose, run, store; again until the question is answered. Starting it again is the resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from keyspan.evidence.record import Record
from keyspan.evidence.store import Store
from keyspan.lab.search import Answer, Wanted, propose
from keyspan.specs import Question, Run


class Runner(Protocol):
    """Anything that turns members into records."""

    def run(self, runs: Sequence[Run], progress: Callable[[list[str], int, int], None] = ...) -> Iterator[Record]: ...
    def close(self) -> list[Record]: ...


class Watcher:
    """Told what happens; a silent one by default."""

    def round(self, number: int, runs: Sequence[Run], measured: int) -> None:
        """A round of the search begins: these members are to be trained, so many are there already."""

    def progress(self, run_ids: list[str], step: int, steps: int) -> None:
        """These members are at this step."""

    def finished(self, record: Record) -> None:
        """A member has finished and is stored."""


@dataclass(frozen=True)
class Outcome:
    """An answer, which members this call trained for it, and how every member on its path came about."""

    answer: Answer
    trained: tuple[str, ...]
    provenance: Mapping[str, Mapping[str, Any]]


def missing(question: Question, store: Store, known: dict[str, Record] | None = None) -> Wanted | Answer:
    """The next members to train, given what the store holds, or the answer. known: filled with the records looked up"""
    known = {} if known is None else known
    while True:
        step = propose(question, {run_id: record.verdict for run_id, record in known.items()})
        if isinstance(step, Answer):
            return step
        found = store.get_many([run.run_id for run in step.runs])
        known |= found
        left = tuple(run for run in step.runs if run.run_id not in found)
        if left:
            return Wanted(left, step.measured)


def answer(
    questions: Sequence[Question], store: Store, make_runner: Callable[[], Runner], watcher: Watcher | None = None
) -> list[Outcome]:
    """Answer questions, training only what the store does not hold. The runner is made only if something is trained.

    The rounds of several questions go together, so that one's last member does not keep the others waiting. Whatever
    finishes is stored at once. When interrupted, workers are told to stop, and what finished meanwhile is kept.
    """
    watcher = watcher or Watcher()
    trained: set[str] = set()
    known: dict[str, Record] = {}
    steps = [missing(question, store, known) for question in questions]
    if any(isinstance(step, Wanted) for step in steps):
        with closing(_Keeper(make_runner(), store, trained, watcher)) as keeper:
            for number in count(1):
                wanted = [step for step in steps if isinstance(step, Wanted)]
                if not wanted:
                    break
                runs = {run.run_id: run for step in wanted for run in step.runs}
                watcher.round(number, list(runs.values()), sum(step.measured for step in wanted))
                keeper.train(list(runs.values()))
                steps = [missing(question, store, known) for question in questions]
    return [_outcome(step, trained, known) for step in steps if isinstance(step, Answer)]


def _outcome(answered: Answer, trained: set[str], known: Mapping[str, Record]) -> Outcome:
    ids = [probe.run.run_id for probe in answered.probes]
    return Outcome(answered, tuple(i for i in ids if i in trained), {i: known[i].provenance for i in ids})


class _Keeper:
    """A runner whose records go to the store as they come, and on the way out."""

    def __init__(self, runner: Runner, store: Store, trained: set[str], watcher: Watcher) -> None:
        self.runner, self.store, self.trained, self.watcher = runner, store, trained, watcher

    def train(self, runs: Sequence[Run]) -> None:
        for record in self.runner.run(runs, self.watcher.progress):
            self._keep(record)

    def _keep(self, record: Record) -> None:
        if self.store.put(record):
            self.trained.add(record.run_id)
        self.watcher.finished(record)

    def close(self) -> None:
        for record in self.runner.close():
            self._keep(record)
