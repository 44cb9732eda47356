"""The store: every record ever measured, in SQLite or PostgreSQL through SQLAlchemy Core.

Append-only: a record is inserted whole in one transaction or not at all, never changed and never deleted; removing one
adds a line that hides it. A run may have several copies (two machines measured it, and the stores were merged): all
are kept, and every answer uses the first that is not removed. The tables (`tables.py`) and the queries are plain Core;
what only one database does is in `sqlite.py` and `postgres.py`. Every row carries a checksum, which every read compares.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import TypeVar

import sqlalchemy as sa

from keyspan.errors import BadInput, StoreError, StoreLost, require, shown
from keyspan.evidence import postgres, sqlite
from keyspan.evidence.migrations import migrate
from keyspan.evidence.record import Record
from keyspan.evidence.tables import cells, first, leases, live, now, records, removals, seal
from keyspan.verdict import Status

T = TypeVar("T")
BATCH = 500  # records in one transaction or one page: bounds memory, and how long a lock is held
PATIENCE = 120.0  # seconds that a server which was there may be gone, as when it is started again
PAUSE = 0.2  # seconds between two tries


class Store(AbstractContextManager["Store"]):
    """Records by run id. Made by `open_store`; safe to share among threads, and to open from many processes."""

    def __init__(self, engine: sa.Engine, where: str, *, read_only: bool) -> None:
        self.where, self.read_only = where, read_only
        self._engine, self._closed, self._process = engine, False, os.getpid()
        self._explained = (sqlite if engine.dialect.name == "sqlite" else postgres).explained

    def put(self, record: Record) -> bool:
        """Keep a finished record. returns: False when this run has a live record already (the first one wins)"""
        return self.put_all([record]) == 1

    def put_copy(self, record: Record) -> bool:
        """Keep a record from another store beside what is here. returns: False when a live copy says the same"""
        return self.put_all([record], copies=True) == 1

    def put_all(self, new: Iterable[Record], *, copies: bool = False) -> int:
        """`put`, or with `copies` `put_copy`, of many, a batch to a transaction. returns: how many were kept"""
        source, added = iter(new), 0
        while batch := list(islice(source, BATCH)):
            added += sum(self.put_each(batch, copies=copies))
        return added

    def put_each(self, batch: Sequence[Record], *, copies: bool = False) -> list[bool]:
        """`put_all` of a few, in one transaction. returns: for each, whether it was kept"""
        tries = 0

        def insert(connection: sa.Connection) -> list[bool]:
            nonlocal tries
            tries += 1
            return _insert(connection, batch, copies=copies, again=tries > 1)

        return self.within(insert, locks=True)

    def remove(self, run_id: str) -> int:
        """Hide every copy of a run; it may be measured and put again. returns: how many copies were hidden"""
        query = sa.select(records.c.seq).where(records.c.run_id == run_id, live)

        def hide(connection: sa.Connection) -> int:
            seqs = connection.execute(query).scalars().all()
            if not seqs:
                raise _unknown(run_id)
            connection.execute(removals.insert(), [{"seq": seq, "removed": now()} for seq in seqs])
            connection.execute(cells.delete())  # any cell of a sweep may have rested on it
            return len(seqs)

        return self.within(hide, locks=True)

    def get(self, run_id: str) -> Record | None:
        """The record of a run (its first live copy), or None."""
        return self.get_many([run_id]).get(run_id)

    def get_many(self, run_ids: Iterable[str]) -> dict[str, Record]:
        """The records of those of these runs that are here, in the order asked."""
        wanted = list(dict.fromkeys(run_ids))
        found: dict[str, Record] = {}
        for start in range(0, len(wanted), BATCH):
            chunk = wanted[start : start + BATCH]
            found |= {r.run_id: r for _, r in self._select(first & records.c.run_id.in_(chunk))}
        return {run_id: found[run_id] for run_id in wanted if run_id in found}

    def find(self, prefix: str) -> Record:
        """The record whose run id begins like this; `BadInput` when none does, or more than one."""
        begins = (records.c.run_id >= prefix) & (records.c.run_id <= prefix + "~")  # "~" comes after every character of an id
        found = [record for _, record in self._select(first & begins, limit=3)]
        if not found or not prefix:
            raise _unknown(prefix)
        if len(found) > 1:
            names = ", ".join(record.run_id for record in found)
            raise BadInput(f"A run id must be unique, but {prefix!r} begins {names}. Type more of it.")
        return found[0]

    def copies(self, run_id: str) -> list[Record]:
        """Every live copy of a run, the one that answers first."""
        return [record for _, record in self._select(live & (records.c.run_id == run_id))]

    def count(self, *, copies: bool = False) -> int:
        """How many runs are here; with `copies`, how many live copies of them."""
        query = sa.select(sa.func.count()).select_from(records).where(live if copies else first)
        return self.within(lambda connection: int(connection.execute(query).scalar_one()))

    def records(
        self, *, kind: str | None = None, status: str | None = None, copies: bool = False, limit: int | None = None
    ) -> Iterator[Record]:
        """Stream the records in the order they came, a page in memory at a time, no transaction held in between.

        kind: the family of the problem    copies: every live copy, not only the first
        """
        require(limit is None or limit >= 0, "`limit >= 0`", limit, "Leave it out to get all.")
        names = [str(s) for s in Status]
        require(status is None or status in names, f"`status` in {'|'.join(names)}", repr(status), "Choose one.")
        condition = live if copies else first
        if kind is not None:
            condition &= records.c.kind == kind
        if status is not None:
            condition &= records.c.status == status
        return islice(self._pages(condition), limit)

    def _pages(self, condition: sa.ColumnElement[bool]) -> Iterator[Record]:
        newest = sa.select(sa.func.max(records.c.seq))
        last = self.within(lambda connection: connection.execute(newest).scalar()) or 0  # later ones are left out
        seq = 0
        while page := self._select(condition & (records.c.seq > seq) & (records.c.seq <= last), limit=BATCH):
            yield from (record for _, record in page)
            seq = page[-1][0]

    def _select(self, condition: sa.ColumnElement[bool], limit: int | None = None) -> list[tuple[int, Record]]:
        query = sa.select(*records.c).where(condition).order_by(records.c.seq).limit(limit)
        rows = self.within(lambda connection: connection.execute(query).all())
        try:
            return [(row.seq, _read(row)) for row in rows]
        except BadInput as error:
            raise StoreError(f"The store must hold readable records, but {self.where} does not: {error}") from error

    def within(self, work: Callable[[sa.Connection], T], *, locks: bool = False) -> T:
        """What this work returns, in one transaction. It is done again when the server went away and came back, so
        it must bear to be done twice. locks: as for `_transaction`"""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with self._transaction(locks=locks) as connection:
                    return work(connection)
            except StoreLost:
                if time.monotonic() > deadline:
                    raise
                time.sleep(PAUSE)

    @contextmanager
    def _transaction(self, *, locks: bool = False) -> Iterator[sa.Connection]:
        """A transaction; with `locks` it holds the write lock from the first line, so that what it reads stays true."""
        if self._closed or (locks and self.read_only):
            wanted, state = ("open", "closed") if self._closed else ("open for writing", "open read-only")
            raise StoreError(f"The store must be {wanted}, but {self.where} is {state}. Open it again.")
        if self._process != os.getpid():  # a forked child must not use, nor close, its parent's connections
            self._engine.dispose(close=False)
            self._process = os.getpid()
        with self._explained(self.where), self._engine.execution_options(locks=locks).begin() as connection:
            yield connection

    def close(self) -> None:
        """Close every connection; the store cannot be used afterwards."""
        self._closed = True
        self._engine.dispose(close=self._process == os.getpid())

    def __exit__(self, *_: object) -> None:
        self.close()


def _unknown(run_id: str) -> BadInput:
    return BadInput(f"A run id must be in the store, but got {run_id!r}. `keyspan runs list` shows those that are.")


def _read(row: sa.Row[tuple[object, ...]]) -> Record:
    """The record of a row, if the row is as it was written."""
    parts = [getattr(row, name) for name in _SEALED]
    whole = isinstance(parts[0], int) and all(isinstance(part, str) for part in parts[1:])
    if not whole or row.seal != seal(*parts):
        raise BadInput(f"the row of {shown(row.run_id)} has changed since it was written. Take a backup.")
    return Record.from_line(row.body)


_SEALED = ("copy", "run_id", "problem_id", "kind", "status", "content", "body")


def _insert(connection: sa.Connection, batch: Sequence[Record], *, copies: bool, again: bool) -> list[bool]:
    """Keep those that are new. again: the server went away before, and nobody knows whether they were kept then"""
    ids = list({record.run_id for record in batch})
    query = sa.select(records.c.run_id, records.c.copy, records.c.content, records.c.body, live).where(
        records.c.run_id.in_(ids)
    )
    known: dict[str, list[tuple[int, str, str, bool]]] = defaultdict(list)
    for run_id, *row in connection.execute(query):
        known[run_id].append((row[0], row[1], row[2], bool(row[3])))
    kept: list[bool] = []
    rows: list[dict[str, object]] = []
    for record in batch:
        here, content, body = known[record.run_id], record.content, record.to_line()
        if any(alive and (not copies or content == theirs) for _, theirs, _, alive in here):
            kept.append(again and any(alive and theirs == body for _, _, theirs, alive in here))
            continue
        copy = 1 + max((copy for copy, _, _, _ in here), default=-1)
        parts = (copy, record.run_id, record.problem_id, record.kind, str(record.verdict.status), content, body)
        rows.append({**dict(zip(_SEALED, parts, strict=True)), "seal": seal(*parts)})
        here.append((copy, content, "", True))
        kept.append(True)
    if not copies:
        connection.execute(leases.delete().where(leases.c.run_id.in_(ids)))  # nobody needs to work on them now
    if rows:
        connection.execute(records.insert(), rows)
    return kept


def open_store(url: str, *, read_only: bool = False, missing_ok: bool = False) -> Store:
    """Open the store at a URL such as `sqlite:///.keyspan/store.db` or `postgresql://me@host/lab`.

    A writer makes what is missing (the folder, the file, the tables) and brings an old store forward; a reader changes
    nothing, and with `missing_ok` it is given an empty store where there is none yet.
    """
    parsed = _parsed(url)
    opened = sqlite.open_file if parsed.drivername == "sqlite" else postgres.open_database
    engine, where = opened(parsed, read_only=read_only)
    if engine is not None:
        return Store(engine, where, read_only=read_only)
    if not missing_ok:
        raise StoreError(f"The store must exist to be read, but {where} has none. Measure first, or change `--store`.")
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool, connect_args={"check_same_thread": False})
    with engine.begin() as connection:
        migrate(connection, where)
    return Store(engine, where, read_only=True)


def _parsed(url: str) -> sa.URL:
    """A store's URL; any other is refused."""
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        parsed = sa.URL.create("not-a-url")
    if not sqlite.is_plain(parsed) and parsed.drivername not in postgres.DRIVERS:
        got = shown(url if parsed.password is None else parsed.render_as_string(hide_password=True))
        fix = "Use a URL such as `sqlite:///.keyspan/store.db` or `postgresql://me@host/lab`."
        raise StoreError(f"The store must be an SQLite file without options or a PostgreSQL database, but got {got}. {fix}")
    return parsed
