"""The tables of a store, in plain SQLAlchemy Core that every database shares."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime

import sqlalchemy as sa

metadata = sa.MetaData()
sequence = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite numbers rows by itself only if this is INTEGER
plain = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")  # compared byte by byte, as SQLite does


def _text(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, plain, nullable=False) for name in names]


meta = sa.Table(  # one row for every version that the store has been through; the last one counts
    "meta",
    metadata,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    *_text("application", "created"),
)
records = sa.Table(
    "records",
    metadata,
    sa.Column("seq", sequence, primary_key=True, autoincrement=True),
    sa.Column("copy", sa.Integer, nullable=False),
    *_text("run_id", "problem_id", "kind", "status", "content", "body", "seal"),
    sa.UniqueConstraint("run_id", "copy"),
    sqlite_autoincrement=True,
)
removals = sa.Table(
    "removals",
    metadata,
    sa.Column("seq", sequence, sa.ForeignKey(records.c.seq), primary_key=True, autoincrement=False),
    *_text("removed"),
)
holders = sa.Table(  # drivers at work. beat: grows while one lives    place, pid, started: its process, where that can be seen
    "holders",
    metadata,
    sa.Column("holder", plain, primary_key=True),
    sa.Column("beat", sa.BigInteger, nullable=False),
    sa.Column("pid", sa.BigInteger, nullable=False),
    *_text("host", "place", "started"),
)
leases = sa.Table(  # members that a driver has in hand
    "leases",
    metadata,
    sa.Column("run_id", plain, primary_key=True),
    *_text("holder"),
)
sweeps = sa.Table(  # files of cells that were begun, the latest last
    "sweeps",
    metadata,
    sa.Column("seq", sequence, primary_key=True, autoincrement=True),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("cells", sa.Integer, nullable=False),
    sa.Column("skipped", sa.Integer, nullable=False),
    *_text("sweep_id", "name", "text", "folder", "created"),
    sqlite_autoincrement=True,
)
cells = sa.Table(  # what a driver last saw of a sweep's cells: members without a number, the row of the table
    "cells",
    metadata,
    sa.Column("sweep_id", plain, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("failed", sa.Integer, nullable=False),
    *_text("body"),
)

_earlier, _removed = records.alias("earlier"), sa.select(removals.c.seq)
live = records.c.seq.not_in(_removed)
first = live & ~sa.exists().where(  # no live copy of the same run comes before this one
    _earlier.c.run_id == records.c.run_id, _earlier.c.copy < records.c.copy, _earlier.c.seq.not_in(_removed)
)


def now() -> str:
    """This moment, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def seal(copy: int, run_id: str, problem_id: str, kind: str, status: str, content: str, body: str) -> str:
    """A checksum of a whole row: neither SQLite nor every PostgreSQL notices a byte that has changed on the disk."""
    row = json.dumps([copy, run_id, problem_id, kind, status, content, body])
    return hashlib.sha256(row.encode()).hexdigest()[:16]
