"""The driver: read the store, propose, run, store; again until the question is answered. Starting it again is the resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from keyspan.evidence.record import Record
from keyspan.evidence.store import Store
from keyspan.lab.agenda import Agenda
from keyspan.lab.search import Answer
from keyspan.specs import Question, Run
from keyspan.verdict import Verdict

Progress = Callable[[list[str], int, int], None]
More = Callable[[], Sequence[Run]]


class Runner(Protocol):
    """Anything that turns members into records. more: asked after each record for members to take on as well"""

    def run(self, runs: Sequence[Run], progress: Progress = ..., more: More = ...) -> Iterator[Record]: ...
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


def answer(
    questions: Sequence[Question], store: Store, make_runner: Callable[[], Runner], watcher: Watcher | None = None
) -> list[Outcome]:
    """Answer questions, training only what the store does not hold. The runner is made only if something is trained.

    Every question goes on to its next round as soon as its own members are in, so that one's last member does not keep
    the others waiting. Whatever finishes is stored at once. When interrupted, workers are told to stop, and what
    finished meanwhile is kept.
    """
    trained: set[str] = set()
    known: dict[str, Record] = {}

    def lookup(ids: Sequence[str]) -> dict[str, Verdict]:
        found = store.get_many(list(ids))
        known.update(found)
        return {run_id: record.verdict for run_id, record in found.items()}

    agenda = Agenda(questions, lookup)
    rounds = _Rounds(agenda, watcher or Watcher())
    runs = rounds.next()
    if runs:
        with closing(_Keeper(make_runner(), store, trained, rounds)) as keeper:
            while runs:
                keeper.train(runs)
                runs = rounds.next()
    found = [a for a in agenda.answers if a is not None]
    lookup([i for i in agenda.verdicts if i not in known])
    return [_outcome(a, trained, known) for a in found]


class _Rounds:
    """What is to be trained next, told to the watcher."""

    def __init__(self, agenda: Agenda, watcher: Watcher) -> None:
        self.agenda, self.watcher, self.number = agenda, watcher, 0

    def next(self) -> list[Run]:
        """Rounds that begin now, of one question or of several."""
        runs = self.agenda.wanted()
        if runs:
            self.number += 1
            self.watcher.round(self.number, runs, self.agenda.measured)
        return runs


def _outcome(answered: Answer, trained: set[str], known: Mapping[str, Record]) -> Outcome:
    ids = [probe.run.run_id for probe in answered.probes]
    return Outcome(answered, tuple(i for i in ids if i in trained), {i: known[i].provenance for i in ids})


class _Keeper:
    """A runner whose records go to the store as they come, and on the way out."""

    def __init__(self, runner: Runner, store: Store, trained: set[str], rounds: _Rounds) -> None:
        self.runner, self.store, self.trained, self.rounds = runner, store, trained, rounds

    def train(self, runs: Sequence[Run]) -> None:
        for record in self.runner.run(runs, self.rounds.watcher.progress, self.rounds.next):
            self._keep(record)

    def _keep(self, record: Record) -> None:
        if self.store.put(record):
            self.trained.add(record.run_id)
        self.rounds.agenda.hear(record.run_id, record.verdict)
        self.rounds.watcher.finished(record)

    def close(self) -> None:
        for record in self.runner.close():
            self._keep(record)
