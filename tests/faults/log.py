"""Dated logs of faults: a row a fault, in CSV, added as they come, so that what was stopped can go on."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a log, which may not have begun."""
    if not path.exists():
        return []
    with open(path, newline="") as handle:
        return list(csv.DictReader(handle))


def write(path: Path, rows: Sequence[Any]) -> None:
    """Add rows, instances of one dataclass."""
    new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", newline="") as handle:
        writer = csv.writer(handle, lineterminator="\n")
        if new and rows:
            writer.writerow(field.name for field in fields(rows[0]))
        writer.writerows(asdict(row).values() for row in rows)
