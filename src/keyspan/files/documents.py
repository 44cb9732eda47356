"""Settings from files: JSON and TOML, as plain data. Sizes and depths are limited, names are unique, numbers are finite."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from keyspan.errors import BadInput
from keyspan.files.paths import name_of, reading, shown

LIMIT = 2**26  # bytes of settings; an index of a million tensors fits
TOML_LIMIT = 2**18  # of a TOML file, which a person writes
DEEPEST = 30  # tables and lists in each other, in TOML
DOTS = 200  # on a line of TOML: the reader takes time that grows with the square of a key's parts


def read_json(path: str | Path, limit: int = LIMIT) -> dict[str, Any]:
    """A JSON object from a file of UTF-8 text."""
    name = name_of(path)
    text = _text(path, limit)
    try:
        data = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        why = shown(str(error).partition("\n")[0])
        raise BadInput(f"`{name}` must be JSON, but got {why}. Copy or save it again.") from None
    if not isinstance(data, dict):
        raise BadInput(f"`{name}` must hold a JSON object, but got {shown(data)}. Save it again.")
    return data


def read_toml(path: str | Path, limit: int = TOML_LIMIT) -> dict[str, Any]:
    """A TOML document from a file of UTF-8 text."""
    with reading(path, limit) as (handle, _):
        return parse_toml(handle.read(), name_of(path))


def parse_toml(data: bytes, name: str) -> dict[str, Any]:
    """The TOML document in these bytes. name: what they are called in an error"""
    text = _decoded(data, name)
    if any(line.count(".") > DOTS for line in text.splitlines()):
        raise BadInput(f"`{name}` must have at most {DOTS} dots on a line, but got more. Write it on several lines.")
    try:
        document = tomllib.loads(text)
        if not _is_shallow(document, DEEPEST):
            raise RecursionError
    except RecursionError:
        raise BadInput(f"`{name}` must be nested at most {DEEPEST} deep, but got more. Flatten it.") from None
    except ValueError as error:  # no TOML, or a number of thousands of digits
        why = shown(str(error).partition("\n")[0])
        raise BadInput(f"`{name}` must be TOML, but got {why}. Correct that line.") from None
    return document


def _is_shallow(data: Any, room: int) -> bool:
    if not isinstance(data, dict | list):
        return True
    return room > 0 and all(_is_shallow(value, room - 1) for value in (data.values() if isinstance(data, dict) else data))


def _text(path: str | Path, limit: int) -> str:
    with reading(path, limit) as (handle, _):
        return _decoded(handle.read(), name_of(path))


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        got = f"byte 0x{error.object[error.start]:02x} at {error.start}"
        raise BadInput(f"`{name}` must be UTF-8 text, but got {got}. Save it as UTF-8.") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise ValueError("a name twice")
    return data


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text}, which is no JSON number")
