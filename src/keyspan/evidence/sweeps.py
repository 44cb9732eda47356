"""What a store remembers of sweeps: their files, and how far each cell is. The answers themselves are read off records.

A cell's state is what a driver last saw, so that `sweep status` costs nothing. Removing a run forgets all states, because any
cell may have rested on it; `sweep resume` works them out again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa

from keyspan.errors import BadInput, shown
from keyspan.evidence.store import BATCH, Store
from keyspan.evidence.tables import cells, now, sweeps


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A sweep that was begun. text: its file    folder: where the file lay    cells, skipped: how many it has"""

    sweep_id: str
    name: str
    text: str
    folder: str
    seed: int
    cells: int
    skipped: int


@dataclass(frozen=True)
class State:
    """How far a sweep is. done: cells whose members all have a number    failed: answered, with one that has none"""

    sweep: Begun
    done: int
    failed: int

    @property
    def open(self) -> int:
        """Cells without an answer yet."""
        return self.sweep.cells - self.done - self.failed


class Journal:
    """The sweeps of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def begin(self, sweep: Begun) -> None:
        """Remember a sweep, as the latest one."""
        row = asdict(sweep) | {"created": now()}

        def work(connection: sa.Connection) -> None:
            connection.execute(sweeps.delete().where(sweeps.c.sweep_id == sweep.sweep_id))
            connection.execute(sweeps.insert().values(**row))

        self.store.within(work, locks=True)

    def tell(self, sweep_id: str, rows: Sequence[tuple[int, int, dict[str, Any]]]) -> None:
        """Cells that have been answered: (number, failed members, row of the table)."""
        for start in range(0, len(rows), BATCH):
            new = [
                {"sweep_id": sweep_id, "number": number, "failed": failed, "body": json.dumps(row)}
                for number, failed, row in rows[start : start + BATCH]
            ]
            numbers = [row["number"] for row in new]

            def work(connection: sa.Connection, new: list[dict[str, Any]] = new, numbers: list[Any] = numbers) -> None:
                connection.execute(cells.delete().where((cells.c.sweep_id == sweep_id) & cells.c.number.in_(numbers)))
                connection.execute(cells.insert(), new)

            self.store.within(work, locks=True)

    def states(self, name: str | None = None) -> list[State]:
        """Sweeps, the latest first. name: only those of this name, or whose id begins so"""
        done = sa.func.coalesce(sa.func.sum(sa.case((cells.c.failed == 0, 1), else_=0)), 0)
        failed = sa.func.coalesce(sa.func.sum(sa.case((cells.c.failed > 0, 1), else_=0)), 0)
        counts = sa.select(cells.c.sweep_id, done.label("done"), failed.label("failed")).group_by(cells.c.sweep_id).subquery()
        query = sa.select(sweeps, counts.c.done, counts.c.failed).join_from(
            sweeps, counts, sweeps.c.sweep_id == counts.c.sweep_id, isouter=True
        )
        query = query.order_by(sweeps.c.seq.desc())
        if name is not None:
            begins = (sweeps.c.sweep_id >= name) & (sweeps.c.sweep_id <= name + "~")
            query = query.where((sweeps.c.name == name) | begins)
        rows = self.store.within(lambda connection: connection.execute(query).mappings().all())
        known = Begun.__dataclass_fields__
        return [State(Begun(**{k: row[k] for k in known}), row["done"] or 0, row["failed"] or 0) for row in rows]

    def find(self, name: str | None) -> State:
        """The latest sweep of this name, or the latest of all; `BadInput` when there is none."""
        found = self.states(name) if name != "" else []
        if not found:
            names = ", ".join(dict.fromkeys(state.sweep.name for state in self.states())) or "none"
            raise BadInput(f"A sweep must be a TOML file or one of the store's ({names}), but got {shown(name)}. Name one.")
        return found[0]

    def rows(self, sweep_id: str) -> Iterator[dict[str, Any]]:
        """The table's rows that there are, in the order of the cells."""
        last = -1
        while True:
            query = sa.select(cells.c.number, cells.c.body).where((cells.c.sweep_id == sweep_id) & (cells.c.number > last))
            query = query.order_by(cells.c.number).limit(BATCH)
            page = self.store.within(lambda connection, query=query: connection.execute(query).all())  # type: ignore[misc]
            if not page:
                return
            yield from (json.loads(body) for _, body in page)
            last = page[-1].number
