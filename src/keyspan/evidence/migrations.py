"""How a store moves to a newer version of its tables: forward only, in one transaction."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from keyspan.errors import StoreError
from keyspan.evidence import tables
from keyspan.evidence.tables import meta, now, plain, sequence

APPLICATION = "keyspan"

_one = sa.MetaData()  # the tables of version 1, as they were
_records = sa.Table(
    "records",
    _one,
    sa.Column("seq", sequence, primary_key=True, autoincrement=True),
    sa.Column("copy", sa.Integer, nullable=False),
    *(sa.Column(n, plain, nullable=False) for n in ("run_id", "problem_id", "kind", "status", "content", "body")),
    sa.UniqueConstraint("run_id", "copy"),
    sqlite_autoincrement=True,
)
_removals = sa.Table(
    "removals",
    _one,
    sa.Column("seq", sequence, sa.ForeignKey(_records.c.seq), primary_key=True, autoincrement=False),
    sa.Column("removed", plain, nullable=False),
)


def _first(connection: sa.Connection) -> None:
    tables.metadata.create_all(connection, [meta])
    _one.create_all(connection)


def _seals_and_leases(connection: sa.Connection) -> None:
    """Every row gets a checksum of what stands in it; drivers can say which members they have in hand."""
    connection.exec_driver_sql("ALTER TABLE records ADD COLUMN seal TEXT NOT NULL DEFAULT ''")
    tables.metadata.create_all(connection, [tables.holders, tables.leases])
    columns = [getattr(_records.c, n) for n in ("seq", "copy", "run_id", "problem_id", "kind", "status", "content", "body")]
    page, last = sa.select(*columns).order_by(_records.c.seq).limit(500), 0
    while rows := connection.execute(page.where(_records.c.seq > last)).all():
        for seq, *row in rows:
            connection.execute(sa.update(tables.records).where(tables.records.c.seq == seq).values(seal=tables.seal(*row)))
        last = rows[-1][0]


def _sweeps(connection: sa.Connection) -> None:
    """Sweeps that were begun, and how far their cells are."""
    tables.metadata.create_all(connection, [tables.sweeps, tables.cells])


# The n-th leads from version n to n + 1.
MIGRATIONS: tuple[Callable[[sa.Connection], None], ...] = (_first, _seals_and_leases, _sweeps)


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


def is_readable(version: int, where: str) -> bool:
    """Whether there is something to read at this version; what a writer must bring forward first is refused."""
    if 0 < version < (newest := len(MIGRATIONS)):
        raise StoreError(f"The store must have version {newest}, but {where} has {version}. Open it once for writing.")
    return version > 0


def migrate(connection: sa.Connection, where: str) -> None:
    """Bring the tables to the latest version, in the transaction given."""
    for number in range(version_of(connection, where), len(MIGRATIONS)):
        MIGRATIONS[number](connection)
        connection.execute(meta.insert().values(version=number + 1, application=APPLICATION, created=now()))
