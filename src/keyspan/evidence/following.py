"""Following a store while others write to it: what is new since one last looked, and whether anything was taken away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import sqlalchemy as sa

from keyspan.evidence.record import Record
from keyspan.evidence.store import BATCH, Store
from keyspan.evidence.tables import first, records, removals


class Position(NamedTuple):
    """How far a store has come. last: number of its newest row    rows: how many there are    removed: how many are hidden"""

    last: int
    rows: int
    removed: int


def position(store: Store) -> Position:
    """Where the store is now; two equal positions hold the same records."""
    newest = sa.select(sa.func.max(records.c.seq), sa.func.count()).select_from(records)
    hidden = sa.select(sa.func.count()).select_from(removals)
    with store._transaction() as connection:
        last, rows = connection.execute(newest).one()
        return Position(int(last or 0), int(rows), int(connection.execute(hidden).scalar_one()))


def since(store: Store, seq: int) -> Iterator[tuple[int, Record]]:
    """(number, record) of every run whose answering copy came after this number, a page in memory at a time."""
    while page := store._select(first & (records.c.seq > seq), limit=BATCH):
        yield from page
        seq = page[-1][0]


def numbered(store: Store, seqs: list[int]) -> list[tuple[int, Record]]:
    """The records of these numbers that are still there, in the order asked."""
    found = dict(store._select(first & records.c.seq.in_(seqs[:BATCH])))
    return [(seq, found[seq]) for seq in seqs[:BATCH] if seq in found]
