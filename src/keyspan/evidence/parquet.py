"""Records as a Parquet file, for data frames and queries: the columns of the CSV with their types. DuckDB writes it.

Columns are text, but for `exact` (boolean), scores and seconds (double), and sizes, levels and steps (64-bit integer). A
cell that is not of its column's type, as another keyspan may have written, is left empty.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, TextIO

from keyspan.errors import MissingExtra
from keyspan.evidence.record import Record

WHOLE = ("heads", "d_key", "key_budget", "replicate", "steps")
MEASURED = ("seconds",)
# What DuckDB would fetch by itself is not fetched; it needs nothing that its wheel has not.
SETTINGS = {"autoinstall_known_extensions": False, "autoload_known_extensions": False, "threads": 1}


def duckdb() -> Any:
    """DuckDB, imported at first use."""
    try:
        return importlib.import_module("duckdb")
    except ImportError:
        raise MissingExtra("Parquet needs DuckDB installed. Use: pip install 'keyspan[data]'.") from None


def types(columns: Iterable[str], scores: Iterable[str], sizes: Iterable[str]) -> dict[str, str]:
    """The type of every column, in DuckDB's words."""
    known = dict.fromkeys((*WHOLE, *sizes), "BIGINT") | dict.fromkeys((*MEASURED, *scores), "DOUBLE") | {"exact": "BOOLEAN"}
    return {name: known.get(name, "VARCHAR") for name in columns}


def write(
    records: Iterable[Record],
    handle: BinaryIO,
    write_csv: Callable[[Iterable[Record], TextIO], int],
    columns: dict[str, str],
) -> int:
    """Write the rows that `write_csv` writes. columns: name -> type    returns: how many were written"""
    engine = duckdb()
    with TemporaryDirectory() as folder:
        flat, packed = Path(folder) / "rows.csv", Path(folder) / "rows.parquet"
        with flat.open("w", encoding="utf-8", newline="") as file:
            count = write_csv(records, file)
        with engine.connect(config=SETTINGS) as connection:
            read = connection.read_csv(str(flat), header=True, all_varchar=True, sep=",", quotechar='"', escapechar='"')
            read.create("rows")  # text first: DuckDB 2.0 moves a cast into its reader, and there it is no TRY_CAST any more
            cells = ", ".join(f'TRY_CAST("{name}" AS {kind}) AS "{name}"' for name, kind in columns.items())
            connection.table("rows").project(cells).write_parquet(str(packed), compression="zstd")
        with packed.open("rb") as made:
            shutil.copyfileobj(made, handle)
    return count
