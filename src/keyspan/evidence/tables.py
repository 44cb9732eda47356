"""The tables of a store, in plain SQLAlchemy Core that another database can share, and how they move to a newer version."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import sqlalchemy as sa

from keyspan.errors import StoreError

APPLICATION = "keyspan"

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
live = records.c.seq.not_in(_removed)
first = live & ~sa.exists().where(  # no live copy of the same run comes before this one
    _earlier.c.run_id == records.c.run_id, _earlier.c.copy < records.c.copy, _earlier.c.seq.not_in(_removed)
)


def now() -> str:
    """This moment, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def version_of(connection: sa.Connection, where: str) -> int:
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


def migrate(connection: sa.Connection, where: str) -> None:
    """Bring the tables to the latest version, in the transaction given."""
    for number in range(version_of(connection, where), len(MIGRATIONS)):
        MIGRATIONS[number](connection)
        connection.execute(meta.insert().values(version=number + 1, application=APPLICATION, created=now()))
