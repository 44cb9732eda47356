"""Pairs of tokens from a text file: `source,target`, as ids or as words."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

from keyspan.errors import BadInput
from keyspan.files.paths import name_of, reading, shown

LIMIT = 2**26  # bytes
MOST = 2**20  # pairs
HEADER = ("source", "target")
_ID = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Pairs:
    """What a file relates, in its order, each pair once. ids: whether every field of the file is a whole number"""

    rows: tuple[tuple[str, str], ...]
    ids: bool


def read_pairs(path: str | Path) -> Pairs:
    """Read a table of two columns: `.tsv` is split at tabs, anything else at commas, unless its first row has a tab.

    Fields may stand in double quotes, as in any CSV. A header `source,target`, blank lines and lines that begin with `# `
    are skipped. A file of whole numbers alone holds token ids, any other one words.
    """
    name = name_of(path)
    with reading(path, LIMIT) as (handle, _):
        try:
            text = handle.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            got = f"byte 0x{error.object[error.start]:02x}"
            raise BadInput(f"`{name}` must be UTF-8 text, but got {got}. Save it as UTF-8 CSV.") from None
    found: dict[tuple[str, str], int] = {}
    delimiter = "\t" if Path(path).suffix.lower() == ".tsv" else None
    for line, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        if not raw.strip() or raw.startswith("# "):
            continue
        delimiter = delimiter or ("\t" if "\t" in raw else ",")
        pair = _fields(raw, delimiter, name, line)
        if found or tuple(field.lower() for field in pair) != HEADER:
            found.setdefault(pair, line)
        if len(found) > MOST:
            raise BadInput(f"`{name}` must have at most {MOST} pairs, but got more. Give fewer.")
    if not found:
        raise BadInput(f"`{name}` must have at least one pair, but got none. Write source,target on a line.")
    return Pairs(tuple(found), all(_ID.fullmatch(field) for pair in found for field in pair))


def _fields(raw: str, delimiter: str, name: str, line: int) -> tuple[str, str]:
    """The two fields of a row."""
    try:
        fields = next(csv.reader([raw], delimiter=delimiter, strict=True, skipinitialspace=True))
    except csv.Error as error:
        raise BadInput(f"Rows of `{name}` must be CSV, but got {error} on line {line}. Close the quotes.") from None
    if len(fields) != 2 or not all(field.strip() for field in fields):
        mark = "a tab" if delimiter == "\t" else "a comma"
        got = f"{shown(raw)} on line {line}"
        raise BadInput(f"Rows of `{name}` must have two fields, but got {got}. Put {mark} between source and target.")
    return fields[0].strip(), fields[1].strip()
