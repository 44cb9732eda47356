"""The store: every record ever measured, in SQLite through SQLAlchemy Core.

Append-only: a record is inserted whole in one transaction or not at all, never changed and never deleted; removing one
adds a line that hides it. A run may have several copies (two machines measured it, and the stores were merged): all
are kept, and every answer uses the first that is not removed. The tables and queries are plain Core, so that PostgreSQL
can inherit them; what only SQLite does (files, WAL, locks, error codes) is in the lower half.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa

from keyspan.errors import BadInput, StoreError, require
from keyspan.evidence.record import Record
from keyspan.verdict import Status

APPLICATION = "keyspan"
BUSY_SECONDS = 30.0  # how long a writer waits for another one
BATCH = 500  # records in one transaction or one page: bounds memory, and how long a lock is held

metadata = sa.MetaData()
_seq = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite numbers rows by itself only if this is INTEGER


def _text(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


meta = sa.Table(  # one row for every version that the store has been through; the last one counts
    "meta",
    metadata,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    *_text("application", "created"),
)
records = sa.Table(
    "records",
    metadata,
    sa.Column("seq", _seq, primary_key=True, autoincrement=True),
    sa.Column("copy", sa.Integer, nullable=False),
    *_text("run_id", "problem_id", "kind", "status", "content", "body"),
    sa.UniqueConstraint("run_id", "copy"),
    sqlite_autoincrement=True,
)
removals = sa.Table(
    "removals",
    metadata,
    sa.Column("seq", _seq, sa.ForeignKey(records.c.seq), primary_key=True, autoincrement=False),
    *_text("removed"),
)

# The n-th leads from version n to n + 1. (The day a table changes, the first one keeps the old tables, spelled out.)
MIGRATIONS: tuple[Callable[[sa.Connection], None], ...] = (metadata.create_all,)

_earlier, _removed = records.alias("earlier"), sa.select(removals.c.seq)
_live = records.c.seq.not_in(_removed)
_first = _live & ~sa.exists().where(  # no live copy of the same run comes before this one
    _earlier.c.run_id == records.c.run_id, _earlier.c.copy < records.c.copy, _earlier.c.seq.not_in(_removed)
)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class Store(AbstractContextManager["Store"]):
    """Records by run id. Made by `open_store`; safe to share among threads, and to open from many processes."""

    def __init__(self, engine: sa.Engine, where: str, *, read_only: bool) -> None:
        self.where, self.read_only = where, read_only
        self._engine, self._closed, self._process = engine, False, os.getpid()

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
            with self._transaction(locks=True) as connection:
                added += sum(_insert(connection, record, copies=copies) for record in batch)
        return added

    def remove(self, run_id: str) -> int:
        """Hide every copy of a run; it may be measured and put again. returns: how many copies were hidden"""
        query = sa.select(records.c.seq).where(records.c.run_id == run_id, _live)
        with self._transaction(locks=True) as connection:
            seqs = connection.execute(query).scalars().all()
            if not seqs:
                raise _unknown(run_id)
            connection.execute(removals.insert(), [{"seq": seq, "removed": _now()} for seq in seqs])
        return len(seqs)

    def get(self, run_id: str) -> Record | None:
        """The record of a run (its first live copy), or None."""
        return self.get_many([run_id]).get(run_id)

    def get_many(self, run_ids: Iterable[str]) -> dict[str, Record]:
        """The records of those of these runs that are here, in the order asked."""
        wanted = list(dict.fromkeys(run_ids))
        found: dict[str, Record] = {}
        for start in range(0, len(wanted), BATCH):
            chunk = wanted[start : start + BATCH]
            found |= {r.run_id: r for _, r in self._select(_first & records.c.run_id.in_(chunk))}
        return {run_id: found[run_id] for run_id in wanted if run_id in found}

    def find(self, prefix: str) -> Record:
        """The record whose run id begins like this; `BadInput` when none does, or more than one."""
        begins = records.c.run_id.between(prefix, prefix + "~")  # "~" comes after every character of an id
        found = [record for _, record in self._select(_first & begins, limit=3)]
        if not found or not prefix:
            raise _unknown(prefix)
        if len(found) > 1:
            names = ", ".join(record.run_id for record in found)
            raise BadInput(f"A run id must be unique, but {prefix!r} begins {names}. Type more of it.")
        return found[0]

    def copies(self, run_id: str) -> list[Record]:
        """Every live copy of a run, the one that answers first."""
        return [record for _, record in self._select(_live & (records.c.run_id == run_id))]

    def count(self, *, copies: bool = False) -> int:
        """How many runs are here; with `copies`, how many live copies of them."""
        with self._transaction() as connection:
            query = sa.select(sa.func.count()).select_from(records).where(_live if copies else _first)
            return int(connection.execute(query).scalar_one())

    def records(
        self, *, kind: str | None = None, status: str | None = None, copies: bool = False, limit: int | None = None
    ) -> Iterator[Record]:
        """Stream the records in the order they came, a page in memory at a time, no transaction held in between.

        kind: the family of the problem    copies: every live copy, not only the first
        """
        require(limit is None or limit >= 0, "`limit >= 0`", limit, "Leave it out to get all.")
        names = [str(s) for s in Status]
        require(status is None or status in names, f"`status` in {'|'.join(names)}", repr(status), "Choose one.")
        condition = _live if copies else _first
        if kind is not None:
            condition &= records.c.kind == kind
        if status is not None:
            condition &= records.c.status == status
        return islice(self._pages(condition), limit)

    def _pages(self, condition: sa.ColumnElement[bool]) -> Iterator[Record]:
        with self._transaction() as connection:
            last = connection.execute(sa.select(sa.func.max(records.c.seq))).scalar() or 0  # later ones are left out
        seq = 0
        while page := self._select(condition & (records.c.seq > seq) & (records.c.seq <= last), limit=BATCH):
            yield from (record for _, record in page)
            seq = page[-1][0]

    def _select(self, condition: sa.ColumnElement[bool], limit: int | None = None) -> list[tuple[int, Record]]:
        query = sa.select(records.c.seq, records.c.body).where(condition).order_by(records.c.seq).limit(limit)
        with self._transaction() as connection:
            rows = connection.execute(query).all()
        try:
            return [(seq, Record.from_line(body)) for seq, body in rows]
        except BadInput as error:
            raise StoreError(f"The store must hold readable records, but {self.where} does not: {error}") from error

    @contextmanager
    def _transaction(self, *, locks: bool = False) -> Iterator[sa.Connection]:
        """A transaction; with `locks` it holds the write lock from the first line, so that what it reads stays true."""
        if self._closed or (locks and self.read_only):
            wanted, state = ("open", "closed") if self._closed else ("open for writing", "open read-only")
            raise StoreError(f"The store must be {wanted}, but {self.where} is {state}. Open it again.")
        if self._process != os.getpid():  # a forked child must not use, nor close, its parent's connections
            self._engine.dispose(close=False)
            self._process = os.getpid()
        with _explained(self.where), self._engine.execution_options(locks=locks).begin() as connection:
            yield connection

    def close(self) -> None:
        """Close every connection; the store cannot be used afterwards."""
        self._closed = True
        self._engine.dispose(close=self._process == os.getpid())

    def __exit__(self, *_: object) -> None:
        self.close()


def _unknown(run_id: str) -> BadInput:
    return BadInput(f"A run id must be in the store, but got {run_id!r}. `keyspan runs list` shows those that are.")


def _insert(connection: sa.Connection, record: Record, *, copies: bool) -> bool:
    query = sa.select(records.c.copy, records.c.content, _live).where(records.c.run_id == record.run_id)
    known, content = connection.execute(query).all(), record.content
    if any(live and (not copies or content == theirs) for _, theirs, live in known):
        return False
    row = {"run_id": record.run_id, "problem_id": record.problem_id, "kind": record.kind}
    row |= {"status": str(record.verdict.status), "content": content, "body": record.to_line()}
    copy = 1 + max((copy for copy, _, _ in known), default=-1)
    connection.execute(records.insert().values(copy=copy, **row))
    return True


def _version(connection: sa.Connection, where: str) -> int:
    """The version of the store's tables, 0 when it has none; a foreign or newer store is refused."""
    names = set(sa.inspect(connection).get_table_names())
    if not names:
        return 0
    latest = sa.select(meta.c.version, meta.c.application).order_by(meta.c.version.desc()).limit(1)
    row = connection.execute(latest).first() if {"meta", "records", "removals"} <= names else None
    if row is None or row.application != APPLICATION:
        raise StoreError(f"The store must be one that keyspan made, but {where} holds other tables. Choose another.")
    if row.version > (newest := len(MIGRATIONS)):
        raise StoreError(f"The store must have version <= {newest}, but {where} has {row.version}. Use a newer keyspan.")
    return int(row.version)


def _migrate(connection: sa.Connection, where: str) -> None:
    """Bring the tables to the latest version, in the transaction given."""
    for number in range(_version(connection, where), len(MIGRATIONS)):
        MIGRATIONS[number](connection)
        connection.execute(meta.insert().values(version=number + 1, application=APPLICATION, created=_now()))


# ------------------------------------------------------------------------------------------------------------ SQLite


def open_store(url: str, *, read_only: bool = False, missing_ok: bool = False) -> Store:
    """Open the store at a URL such as `sqlite:///.keyspan/store.db`.

    A writer makes what is missing (the folder, the file, the tables) and brings an old store forward; a reader changes
    nothing, and with `missing_ok` it is given an empty store where there is none yet.
    """
    path = _path(url)
    where = repr(str(path))
    if _is_file(path, where, read_only=read_only):
        engine = _engine(path, read_only=read_only)
        try:
            with _explained(where):
                usable = _prepare(engine, where, read_only=read_only)
        except BaseException:
            engine.dispose()
            raise
        if usable:
            return Store(engine, where, read_only=read_only)
    if not missing_ok:
        raise StoreError(f"The store must exist to be read, but {where} has none. Measure first, or change `--store`.")
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool, connect_args={"check_same_thread": False})
    with engine.begin() as connection:
        _migrate(connection, where)
    return Store(engine, where, read_only=True)


def _path(url: str) -> Path:
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        parsed = sa.URL.create("not-a-url")
    plain = parsed.drivername == "sqlite" and not parsed.host and not parsed.query
    if not plain or not parsed.database or parsed.database == ":memory:":
        shown = url if parsed.password is None else parsed.render_as_string(hide_password=True)
        fix = "Use a URL such as `sqlite:///.keyspan/store.db`."
        raise StoreError(f"The store must be the URL of an SQLite file, without options, but got {shown!r}. {fix}")
    return Path(parsed.database).absolute()  # a later change of folder means nothing


def _is_file(path: Path, where: str, *, read_only: bool) -> bool:
    """Refuse a path that cannot be a store, make a writer's folder. returns: whether there is a file to open"""
    try:
        if not read_only:
            path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode
    except FileNotFoundError:
        return not read_only  # SQLite makes it
    except (OSError, ValueError) as error:
        raise StoreError(f"The store must be in a usable folder, but {where} is not ({error}). Choose another.") from None
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "not a plain file"
        raise StoreError(f"The store must be a file, but {where} is {kind}. Name a file in it, such as `store.db`.")
    return True


def _engine(path: Path, *, read_only: bool) -> sa.Engine:
    """Writers keep their connections. Readers open one for every question, and so see the store as it is then."""
    connect, pool = (_connect_reader, sa.NullPool) if read_only else (_connect_writer, sa.QueuePool)
    engine = sa.create_engine(sa.URL.create("sqlite", database=str(path)), creator=lambda: connect(path), poolclass=pool)

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # A transaction that reads first and locks later fails at once when another writer came between: lock first.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("locks") else "BEGIN")

    return engine


def _connect(path: Path, options: str, first: str = "PRAGMA schema_version") -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?{options}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,  # transactions begin and end where we say
        check_same_thread=False,  # the pool lends a connection to one thread at a time
    )
    try:
        connection.execute(first).fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_writer(path: Path) -> sqlite3.Connection:
    # FULL: what `put` has returned survives a power cut too. It costs milliseconds; a record cost minutes.
    return _connect(path, "mode=rwc", "PRAGMA synchronous = FULL")


def _connect_reader(path: Path) -> sqlite3.Connection:
    try:
        return _connect(path, "mode=ro")
    except sqlite3.OperationalError as error:
        # Reading in WAL mode needs an index file beside the store. In a folder where none can be made nobody writes
        # either, so the file may be read as it stands, unless a killed writer left records in the log next to it.
        log = path.with_name(path.name + "-wal")
        left = log.exists() and log.stat().st_size > 0
        refused = _code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if left or not refused or os.access(path.parent, os.W_OK, effective_ids=True):
            raise
    return _connect(path, "mode=ro&immutable=1")


def _prepare(engine: sa.Engine, where: str, *, read_only: bool) -> bool:
    """Check the tables, and make or move them forward for a writer. returns: whether the store can be used"""
    with engine.connect() as connection:  # look before touching: a foreign file must stay as it is
        version = _version(connection, where)
        page = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
    if os.path.getsize(str(engine.url.database)) % page:  # a last page cut short is all that SQLite does not notice
        raise StoreError(f"The store must be whole, but {where} is cut off in the middle of a page. Take a backup.")
    if read_only:
        if 0 < version < (newest := len(MIGRATIONS)):
            raise StoreError(f"The store must have version {newest}, but {where} has {version}. Open it once for writing.")
        return version > 0
    _use_wal(engine)
    with engine.execution_options(locks=True).begin() as connection:  # also tells at once if one cannot write
        _migrate(connection, where)
    return True


def _use_wal(engine: sa.Engine) -> None:
    """Turn the write-ahead log on. Two that do so at once are refused without waiting, so the waiting is ours."""
    deadline = time.monotonic() + BUSY_SECONDS
    with closing(engine.raw_connection()) as connection:
        while True:
            try:
                connection.cursor().execute("PRAGMA journal_mode = WAL").close()
                return
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)


_REASONS = {  # SQLite's primary error code -> the rule, what it found, the fix
    sqlite3.SQLITE_ERROR: ("be one that keyspan made", "holds other tables", "Choose another `--store`."),
    sqlite3.SQLITE_BUSY: ("be free for writing", "another process keeps it locked", "Try again when that one is done."),
    sqlite3.SQLITE_READONLY: ("be writable", "the file or its folder is read-only", "Choose another `--store`."),
    sqlite3.SQLITE_IOERR: ("be on a disk that works", "the disk refused", "Check the disk and the space left on it."),
    sqlite3.SQLITE_CORRUPT: ("be whole", "it is damaged", "Take a backup, or `sqlite3 FILE .recover`."),
    sqlite3.SQLITE_FULL: ("have room to grow", "the disk is full", "Free some space; what was stored is kept."),
    sqlite3.SQLITE_CANTOPEN: ("be a file one can open", "it cannot be opened", "Check its folder and permissions."),
    sqlite3.SQLITE_NOTADB: ("be an SQLite file", "it is something else", "Choose another `--store`."),
}


def _code(error: object) -> int:
    """The primary code of an error of SQLite's; 255, which is none, when it is from elsewhere."""
    return int(getattr(error, "sqlite_errorcode", -1)) & 0xFF


@contextmanager
def _explained(where: str) -> Iterator[None]:
    """Turn what SQLite and SQLAlchemy raise into a `StoreError` of one line."""
    try:
        yield
    except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
        cause: object = getattr(error, "orig", None) or error
        other = ("answer", "it does not", "Check the file with `sqlite3 FILE 'PRAGMA integrity_check'`.")
        rule, found, fix = _REASONS.get(_code(cause), other)
        detail = " ".join(str(cause).split())
        raise StoreError(f"The store must {rule}, but at {where} {found} ({detail}). {fix}") from error
