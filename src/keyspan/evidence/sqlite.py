"""What only SQLite does: files, the write-ahead log, locks, error codes."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa

from keyspan.errors import StoreError
from keyspan.evidence.migrations import is_readable, migrate, version_of

BUSY_SECONDS = 30.0  # how long a writer waits for another one


def is_plain(url: sa.URL) -> bool:
    """Whether a URL names a file, and nothing else."""
    return url.drivername == "sqlite" and not url.host and not url.query and url.database not in (None, "", ":memory:")


def open_file(url: sa.URL, *, read_only: bool) -> tuple[sa.Engine | None, str]:
    """The file that a URL names, and what it is called in errors. No engine: there is nothing to read."""
    path = Path(str(url.database)).absolute()  # a later change of folder means nothing
    where = repr(str(path))
    if not is_file(path, where, read_only=read_only):
        return None, where
    engine = make_engine(path, read_only=read_only)
    try:
        with explained(where):
            usable = prepare(engine, where, read_only=read_only)
    except BaseException:
        engine.dispose()
        raise
    return engine if usable else None, where


def is_file(path: Path, where: str, *, read_only: bool) -> bool:
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


def make_engine(path: Path, *, read_only: bool) -> sa.Engine:
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
        f"file:{quote(os.fsencode(path))}?{options}",
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


def prepare(engine: sa.Engine, where: str, *, read_only: bool) -> bool:
    """Check the tables, and make or move them forward for a writer. returns: whether the store can be used"""
    with engine.connect() as connection:  # look before touching: a foreign file must stay as it is
        version = version_of(connection, where)
        page = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
        found = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()  # 0.6 s where there are 100,000 records
    if found != "ok":
        detail = " ".join(str(found).split())
        raise StoreError(
            f"The store must be whole, but {where} is damaged ({detail}). Take a backup, or `sqlite3 FILE .recover`."
        )
    if os.path.getsize(str(engine.url.database)) % page:  # a last page cut short is all that SQLite does not notice
        raise StoreError(f"The store must be whole, but {where} is cut off in the middle of a page. Take a backup.")
    if read_only:
        return is_readable(version, where)
    _use_wal(engine)
    with engine.execution_options(locks=True).begin() as connection:
        migrate(connection, where)
        # SQLite grants IMMEDIATE on a read-only file; a write of nothing tells at once, not after hours of training
        connection.exec_driver_sql("DELETE FROM meta WHERE 0")
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
def explained(where: str) -> Iterator[None]:
    """Turn what SQLite and SQLAlchemy raise into a `StoreError` of one line."""
    try:
        yield
    except (sa.exc.SQLAlchemyError, sqlite3.Error, UnicodeDecodeError) as error:  # the last from a name that is damaged
        cause: object = getattr(error, "orig", None) or error
        other = ("answer", "it does not", "Check the file with `sqlite3 FILE 'PRAGMA integrity_check'`.")
        rule, found, fix = _REASONS.get(_code(cause), other)
        detail = " ".join(str(cause).split())
        raise StoreError(f"The store must {rule}, but at {where} {found} ({detail}). {fix}") from error
