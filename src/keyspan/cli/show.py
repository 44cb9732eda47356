"""How answers are printed: one JSON document, or readable tables. Progress and notes go to stderr."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from keyspan.cli.options import current


def console(stderr: bool = False) -> Console:
    """A console that colours only a terminal and honours NO_COLOR."""
    columns = os.environ.get("COLUMNS", "")
    wide = int(columns) if columns.isdecimal() and int(columns) else 120
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, width=None if terminal else wide, highlight=False, markup=False, emoji=False)


def print_json(data: dict[str, Any]) -> None:
    """Exactly one JSON document on stdout."""
    sys.stdout.write(json.dumps(data, indent=2, allow_nan=False) + "\n")


def print_json_rows(before: dict[str, Any], name: str, rows: Iterable[dict[str, Any]], key: str, after: dict[str, Any]) -> None:
    """The same for a document with more rows than memory should hold, all of it or nothing. key: of a row; all are listed"""
    import shutil
    import tempfile
    import textwrap

    with tempfile.SpooledTemporaryFile(max_size=2**23, mode="w+", encoding="utf-8") as text:
        text.write(json.dumps(before, indent=2, allow_nan=False)[:-2] + f',\n  "{name}": [')
        end, ids = "", list[str]()
        for row in rows:
            ids.append(row[key])
            text.write((",\n" if end else "\n") + textwrap.indent(json.dumps(row, indent=2, allow_nan=False), "    "))
            end = "\n  "
        rest = {f"{key}s": sorted(ids)} | after
        text.write(end + "],\n" + json.dumps(rest, indent=2, allow_nan=False)[2:] + "\n")
        text.seek(0)
        shutil.copyfileobj(text, sys.stdout)


def flush() -> None:
    """Whoever reads a pipe sees what was printed so far."""
    sys.stdout.flush()


def note(text: str) -> None:
    """A line for the reader, on stderr, unless quiet."""
    if not current.quiet:
        console(stderr=True).print(text, soft_wrap=True)


def number(value: Any, digits: int = 3) -> str:
    """A number as a person writes it; a dash for nothing."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)


def bound(value: Any) -> str:
    """A threshold, or the two ends of one."""
    return f"{value:g}" if isinstance(value, float | int) else " and ".join(f"{v:g}" for v in value)


def counted(count: int, noun: str) -> str:
    """`1 head`, `2 heads`"""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def interval(value: dict[str, Any], digits: int = 1) -> str:
    """`estimate [low, high]`"""
    return f"{number(value['estimate'], digits)} [{number(value['low'], digits)}, {number(value['high'], digits)}]"


def width(drawn: Group) -> int:
    """How wide a table, or its title, would be if nothing limited it."""
    free = Console(width=10_000, file=io.StringIO())
    return free.measure(drawn).maximum


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], left: int = 1, last: Sequence[Any] | None = None
) -> Group:
    """A title over a table whose first `left` columns are text and the others numbers; `last` is a row set apart.

    (A title of Rich's own is folded to the width of the table, which is narrow where the table is.)
    """
    out = Table()
    for i, column in enumerate(columns):
        out.add_column(column, justify="left" if i < left else "right", no_wrap=i == 0)
    for k, row in enumerate(rows):
        out.add_row(*[number(v) for v in row], end_section=last is not None and k == len(rows) - 1)
    if last is not None:
        out.add_row(*[number(v) for v in last])
    return Group(Text(title, style="bold"), out)
