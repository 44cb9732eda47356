"""What only PostgreSQL does: a server that may go away, one lock for all writers, error codes. psycopg comes with an extra."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from keyspan.errors import BadInput, MissingExtra, StoreError, StoreLost
from keyspan.evidence.migrations import is_readable, migrate, version_of

DRIVERS = ("postgresql", "postgresql+psycopg")
CONNECT_SECONDS = 10  # how long a server may take to answer
BUSY_SECONDS = 30  # how long a writer waits for another one
WRITERS = 0x6B657973  # one number for all: who holds it, writes. Rows then become visible in the order of `seq`


def open_database(url: sa.URL, *, read_only: bool) -> tuple[sa.Engine | None, str]:
    """The database that a URL names, and what it is called in errors. No engine: there is nothing to read."""
    where = _name(url)
    if "password" in url.query:
        raise StoreError(f"A password must stand before the host, but got one among the options of {where}. Move it.")
    if importlib.util.find_spec("psycopg") is None:
        raise MissingExtra(f"The store at {where} needs psycopg, but got none. Run: pip install 'keyspan[postgres]'")
    engine = _make_engine(url, read_only=read_only)
    try:
        with explained(where):
            usable = _prepare(engine, where, read_only=read_only)
    except StoreLost as error:  # it never was there: whoever asks for it learns that at once
        engine.dispose()
        raise StoreError(str(error)) from error
    except BaseException:
        engine.dispose()
        raise
    if not usable:
        engine.dispose()
    return engine if usable else None, where


def _name(url: sa.URL) -> str:
    """The URL without its secrets."""
    shown = {key: "***" if "pass" in key else value for key, value in url.query.items()}
    return repr(url.set(query=shown).render_as_string(hide_password=True))


def _make_engine(url: sa.URL, *, read_only: bool) -> sa.Engine:
    """Connections are tried before they are used again; a dead client's locks are let go of by the server."""
    engine = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_pre_ping=True,
        pool_size=2,
        max_overflow=30,
        connect_args={
            "connect_timeout": CONNECT_SECONDS,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
        },
        execution_options={"postgresql_readonly": True} if read_only else {},
    )

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        if connection.get_execution_options().get("locks"):
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{BUSY_SECONDS}s'")
            connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{BUSY_SECONDS}s'")
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITERS})")

    return engine


def _prepare(engine: sa.Engine, where: str, *, read_only: bool) -> bool:
    """Check the tables, and make or move them forward for a writer. returns: whether the store can be used"""
    with engine.connect() as connection:
        version = version_of(connection, where)
    if read_only:
        return is_readable(version, where)
    with engine.execution_options(locks=True).begin() as connection:
        migrate(connection, where)
        connection.exec_driver_sql("DELETE FROM meta WHERE false")  # who may not write learns it now
    return True


_REASONS = {  # the beginning of an SQLSTATE -> the rule, what it found, the fix
    "28": ("let you in", "it does not", "Check the user and the password."),
    "3D": ("be a database that exists", "the server has none of this name", "Make it with `createdb`, or change `--store`."),
    "3F": ("have a schema to hold tables", "there is none", "Make the schema, or change `--store`."),
    "42501": ("be writable", "you may not", "Ask its owner for the right to make and change tables."),
    "25006": ("be writable", "the server is read-only", "Choose another `--store`."),
    "42": ("be one that keyspan made", "it holds other tables", "Choose another `--store`."),
    "55P03": ("be free for writing", "another process keeps it locked", "Try again when that one is done."),
    "53100": ("have room to grow", "the server's disk is full", "Free some space; what was stored is kept."),
    "53300": ("have a connection left", "it has none", "Raise max_connections, or start fewer drivers."),
    "XX": ("be whole", "it is damaged", "Take a backup."),
}
_GONE = ("08", "57P01", "57P02", "57P03", "57P05", "25P03")  # the connection, a shutdown, a crash, a start, an idle session


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn what psycopg and SQLAlchemy raise into a `StoreError` of one line, `StoreLost` if it may be over soon."""
    try:
        yield
    except sa.exc.SQLAlchemyError as error:
        cause: Any = getattr(error, "orig", None) or error
        state = str(getattr(cause, "sqlstate", None) or "")
        detail = " ".join(str(cause).split())
        if "NUL" in detail and isinstance(error, sa.exc.DBAPIError) and not state:
            raise BadInput(f"Text in a store must hold no NUL, but got one ({detail}). Leave it out.") from error
        lost = state.startswith(_GONE) or getattr(error, "connection_invalidated", False)
        if lost or (isinstance(error, sa.exc.OperationalError) and not state):
            fix = "See that the server runs and can be reached; what was stored is kept."
            raise StoreLost(f"The store must answer, but {where} cannot be reached ({detail}). {fix}") from error
        other = ("answer", "it does not", "See the server's log.")
        rule, found, fix = next((why for begin, why in _REASONS.items() if state.startswith(begin)), other)
        raise StoreError(f"The store must {rule}, but at {where} {found} ({detail}). {fix}") from error
