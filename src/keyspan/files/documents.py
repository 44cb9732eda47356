"""Settings from files: JSON and TOML, as plain data. Sizes are limited, names are unique, numbers are finite."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, NoReturn

from keyspan.errors import BadInput
from keyspan.files.paths import name_of, reading, shown

LIMIT = 2**26  # bytes of settings; an index of a million tensors fits


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


def read_toml(path: str | Path, limit: int = 2**20) -> dict[str, Any]:
    """A TOML document from a file of UTF-8 text."""
    try:
        return tomllib.loads(_text(path, limit))
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadInput):
            raise
        why = shown(str(error).partition("\n")[0])
        raise BadInput(f"`{name_of(path)}` must be TOML, but got {why}. Correct that line.") from None


def _text(path: str | Path, limit: int) -> str:
    with reading(path, limit) as (handle, _):
        try:
            return handle.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            got = f"byte 0x{error.object[error.start]:02x} at {error.start}"
            raise BadInput(f"`{name_of(path)}` must be UTF-8 text, but got {got}. Save it as UTF-8.") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise ValueError("a name twice")
    return data


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text}, which is no JSON number")
