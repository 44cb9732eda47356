"""Who has which members in hand, written in the store itself, so that drivers on one store share work.

A driver is a holder. It takes a lease on every member that it trains, and its record, once stored, ends the lease. While a
driver lives its `beat` grows. Others free what is left by one whose beat stands still; what that means, and how long they
look, they settle themselves (`runners.leases`). No clock is compared with another machine's, nor with its own past: nothing
here knows what time it is. A lease protects effort, not data: of two records of one run the store keeps the first anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

import sqlalchemy as sa

from keyspan.evidence.store import BATCH, Store
from keyspan.evidence.tables import first, holders, leases, records

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A driver. place, pid, started: its process, as its own machine knows it (`place` is empty where it cannot)"""

    holder: str
    host: str
    place: str
    pid: int
    started: str
    beat: int = 0


class Leases:
    """The leases of a store, as seen by one of its drivers."""

    def __init__(self, store: Store, me: Holder) -> None:
        self.store, self.me = store, me

    def take(self, run_ids: Sequence[str]) -> set[str]:
        """Take those of these members that nobody has in hand and that have no record. returns: the ones we have now"""
        return {run_id for chunk in _chunks(run_ids) for run_id in self._take(chunk)}

    def _take(self, run_ids: Sequence[str]) -> set[str]:
        held = sa.select(leases.c.run_id, leases.c.holder).where(leases.c.run_id.in_(run_ids))
        done = sa.select(records.c.run_id).where(first & records.c.run_id.in_(run_ids))

        def work(connection: sa.Connection) -> set[str]:
            by = {row.run_id: row.holder for row in connection.execute(held)}
            taken = by.keys() | set(connection.execute(done).scalars())
            fresh = [{"run_id": run_id, "holder": self.me.holder} for run_id in run_ids if run_id not in taken]
            if fresh:
                self._sign_in(connection)
                connection.execute(leases.insert(), fresh)
            return {row["run_id"] for row in fresh} | {run_id for run_id, holder in by.items() if holder == self.me.holder}

        return self.store.within(work, locks=True)

    def held(self, run_ids: Sequence[str]) -> set[str]:
        """Those of these members that somebody has in hand."""
        found: set[str] = set()
        for chunk in _chunks(run_ids):
            query = sa.select(leases.c.run_id).where(leases.c.run_id.in_(chunk))
            found |= set(self.store.within(lambda connection, query=query: connection.execute(query).scalars().all()))  # type: ignore[misc]
        return found

    def beat(self) -> list[Holder]:
        """Say that we live. returns: the other drivers"""
        mine = holders.c.holder == self.me.holder
        lost = leases.c.holder.not_in(sa.select(holders.c.holder))

        def work(connection: sa.Connection) -> list[Holder]:
            self._sign_in(connection)
            connection.execute(holders.update().where(mine).values(beat=holders.c.beat + 1))
            connection.execute(leases.delete().where(lost))
            return [Holder(**row) for row in connection.execute(sa.select(holders).where(~mine)).mappings()]

        return self.store.within(work, locks=True)

    def free(self, other: Holder) -> bool:
        """Free what a driver has in hand, unless its heart has beaten since. returns: whether it was freed"""
        same = (holders.c.holder == other.holder) & (holders.c.beat == other.beat)

        def work(connection: sa.Connection) -> bool:
            gone = connection.execute(holders.delete().where(same)).rowcount == 1
            if gone:
                connection.execute(leases.delete().where(leases.c.holder == other.holder))
            return gone

        return self.store.within(work, locks=True)

    def leave(self) -> None:
        """Give back everything that we have in hand."""

        def work(connection: sa.Connection) -> None:
            connection.execute(leases.delete().where(leases.c.holder == self.me.holder))
            connection.execute(holders.delete().where(holders.c.holder == self.me.holder))

        self.store.within(work, locks=True)

    def _sign_in(self, connection: sa.Connection) -> None:
        """Be among the holders, also after others thought us dead."""
        known = connection.execute(sa.select(holders.c.beat).where(holders.c.holder == self.me.holder)).first()
        if known is None:
            connection.execute(holders.insert().values(**asdict(self.me)))


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    every = list(items)
    return (every[i : i + BATCH] for i in range(0, len(every), BATCH))
