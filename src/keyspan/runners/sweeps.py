"""Sweeps: the cells of a TOML file, asked like any other questions. Stopped or killed, the same command goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keyspan.display import Displayed
from keyspan.errors import StoreError
from keyspan.evidence.record import head
from keyspan.evidence.store import Store, open_store
from keyspan.evidence.sweeps import Begun, Journal
from keyspan.files.contents import Contents
from keyspan.files.documents import parse_toml
from keyspan.lab.agenda import Agenda
from keyspan.runners import driver, live
from keyspan.runners.driver import Outcome
from keyspan.runners.families import Context, Row, family_of, questions_of
from keyspan.runners.grids import Point, read_grids
from keyspan.runners.lab import Lab
from keyspan.specs import Question, digest
from keyspan.verdict import Verdict

TELL = 1.0  # seconds between two notes of how far the cells are


@dataclass(frozen=True)
class Sweep:
    """A file's cells. points: their fields    questions: of each cell"""

    begun: Begun
    points: tuple[Point, ...]
    questions: tuple[tuple[Question, ...], ...]

    @property
    def asked(self) -> list[Question]:
        """The questions of all cells."""
        return [question for questions in self.questions for question in questions]


def read_sweep(data: bytes, name: str, folder: Path, seed: int, contents: Contents) -> Sweep:
    """The sweep of a TOML file. name: the file's, in errors and where it names no other    folder: where paths in it begin

    Its id is a hash of what it says, of the seed and of the files that it names.
    """
    document = parse_toml(data, name)
    grids = read_grids(document, name)
    context = Context(contents, folder, seed)
    questions = tuple(tuple(questions_of(point, context)) for point in grids.points)
    sweep_id = digest({"file": document, "seed": seed, "contents": context.files}, "s")
    begun = Begun(
        sweep_id=sweep_id,
        name=grids.name or Path(name).stem,
        text=data.decode("utf-8-sig"),
        folder=str(folder.absolute()),
        seed=seed,
        cells=len(questions),
        skipped=grids.skipped,
    )
    return Sweep(begun, grids.points, questions)


def begun_sweep(begun: Begun, contents: Contents) -> Sweep:
    """A sweep that a store remembers."""
    return read_sweep(begun.text.encode(), begun.name, Path(begun.folder), begun.seed, contents)


@dataclass
class Swept(Displayed):
    """What a sweep came to. rows: by cell, of those answered    failed: cells with a member that has no number"""

    sweep: Sweep
    rows: dict[int, Row] = field(default_factory=dict)
    failed: int = 0
    run_ids: set[str] = field(default_factory=set)
    trained: set[str] = field(default_factory=set)

    @property
    def results(self) -> list[Row]:
        """The rows in the order of the cells."""
        return [self.rows[number] for number in sorted(self.rows)]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan sweep`."""
        begun = self.sweep.begun
        counts = {"cells": begun.cells, "done": len(self.rows) - self.failed, "failed": self.failed, "skipped": begun.skipped}
        counts["open"] = begun.cells - len(self.rows)
        ids = {"run_ids": sorted(self.run_ids), "trained_now": len(self.trained)}
        return head() | {"sweep": begun.name, "sweep_id": begun.sweep_id} | counts | {"results": self.results} | ids


def carry_out(
    sweep: Sweep, lab: Lab, *, stop_on_failure: bool = False, heard: Callable[[Swept], None] = lambda swept: None
) -> Swept:
    """Answer every cell, training only what the store does not hold. heard: told after every cell"""
    swept = Swept(sweep)
    with open_store(lab.url) as store, live.watching(lab.folder, lab.watcher) as watcher:
        diary = _Diary(Journal(store), sweep)
        outcomes = driver.answers(sweep.asked, store, lab.make_runner, watcher, stop_on_failure=stop_on_failure)
        try:
            for number, found in _by_cell(sweep, outcomes):
                failed = sum(outcome.answer.failed for outcome in found)
                swept.rows[number] = row = _row(sweep, number, found, failed)
                swept.failed += failed > 0
                swept.run_ids.update(run_id for outcome in found for run_id in outcome.provenance)
                swept.trained.update(run_id for outcome in found for run_id in outcome.trained)
                diary.tell(number, failed, row)
                heard(swept)
        finally:
            outcomes.close()
            with suppress(StoreError):  # whatever ended the sweep is what the caller should hear of
                diary.close()
    return swept


def _by_cell(sweep: Sweep, outcomes: Iterator[tuple[int, Outcome]]) -> Iterator[tuple[int, list[Outcome]]]:
    """Cells as the last of their questions is answered."""
    owner = [(cell, place) for cell, questions in enumerate(sweep.questions) for place in range(len(questions))]
    waiting: dict[int, dict[int, Outcome]] = {}
    for number, outcome in outcomes:
        cell, place = owner[number]
        found = waiting.setdefault(cell, {})
        found[place] = outcome
        if len(found) == len(sweep.questions[cell]):
            del waiting[cell]
            yield cell, [found[place] for place in sorted(found)]


def _row(sweep: Sweep, number: int, found: Sequence[Outcome], failed: int) -> Row:
    point = sweep.points[number]
    family = family_of(point.family, point.where)
    about = family.row(sweep.questions[number], [outcome.answer for outcome in found])
    members = sum(len(outcome.answer.probes) for outcome in found)
    return {"cell": number, "family": point.family, **point.fields, **about, "members": members, "failed": failed}


class _Diary:
    """Tells the journal of cells, a second's worth at a time. A sweep of which nothing is new is not written down again."""

    def __init__(self, journal: Journal, sweep: Sweep) -> None:
        self.journal, self.sweep_id = journal, sweep.begun.sweep_id
        journal.begin(sweep.begun)
        self._rows: list[tuple[int, int, Row]] = []
        self._told = time.monotonic()

    def tell(self, number: int, failed: int, row: Row) -> None:
        self._rows.append((number, failed, row))
        if time.monotonic() - self._told >= TELL:
            self.close()

    def close(self) -> None:
        self.journal.tell(self.sweep_id, self._rows)
        self._rows, self._told = [], time.monotonic()


def forget_failed(sweep: Sweep, store: Store) -> list[str]:
    """Hide the records of a sweep's members that have no number, so that they are trained again. returns: their ids"""
    failed: dict[str, None] = {}

    def lookup(run_ids: Sequence[str]) -> dict[str, Verdict]:
        found = {run_id: record.verdict for run_id, record in store.get_many(run_ids).items()}
        failed.update({run_id: None for run_id, verdict in found.items() if not verdict.measured})
        return found

    for question in sweep.asked:
        Agenda([question], lookup).wanted()
    for run_id in failed:
        store.remove(run_id)
    return list(failed)
