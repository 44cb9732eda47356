"""TOML files, by Python's own reader, with limits on what it is fed: size, depth, and keys of thousands of parts."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from keyspan.errors import BadInput
from keyspan.files.paths import name_of, reading

MOST = 1 << 18  # bytes of a file
DEEPEST = 30  # tables and lists in each other
DOTS = 200  # on one line: the reader takes time that grows with the square of a key's parts


def read_toml(path: str | Path) -> dict[str, Any]:
    """The document in a file."""
    with reading(path, MOST) as (handle, _):
        return parse_toml(handle.read(), name_of(path))


def parse_toml(data: bytes, name: str) -> dict[str, Any]:
    """The document in these bytes. name: what they are called in an error"""
    if any(line.count(b".") > DOTS for line in data.splitlines()):
        raise BadInput(f"`{name}` must have at most {DOTS} dots on a line, but got more. Write it on several lines.")
    try:
        document = tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
        if not _is_shallow(document, DEEPEST):
            raise RecursionError
    except RecursionError:
        raise BadInput(f"`{name}` must be nested at most {DEEPEST} deep, but got more. Flatten it.") from None
    except ValueError as error:  # not TOML, not UTF-8, or a number of thousands of digits
        why = " ".join(str(error).split()).rstrip(".")
        raise BadInput(f"`{name}` must be a TOML file, but got: {why[:150]}. Correct it there.") from None
    return document


def _is_shallow(data: Any, room: int) -> bool:
    if not isinstance(data, dict | list):
        return True
    return room > 0 and all(_is_shallow(value, room - 1) for value in (data.values() if isinstance(data, dict) else data))
