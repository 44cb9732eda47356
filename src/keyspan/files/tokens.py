"""Token sequences from files: text cut into pieces, or tables with a sequence a line; by characters, bytes, words or ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput, require
from keyspan.files.paths import name_of, reading, shown

LIMIT = 2**28  # bytes
TOKENIZERS = ("chars", "bytes", "words", "ids")
TABLES = {".tsv": "\t", ".csv": ","}
LARGEST_ID = 2**20


@dataclass(frozen=True, eq=False)
class TokenFile:
    """What a file holds. tokens: (sequences, N), numbered from 0    names: of the tokens, by number    left_out: lines that are
    too short, or tokens at the end that fill no sequence"""

    tokens: NDArray[np.int64]
    names: tuple[str, ...]
    left_out: int

    @property
    def vocabulary(self) -> int:
        """V, tokens that there are."""
        return len(self.names)


def read_tokens(path: str | Path, length: int, tokenizer: str | None = None) -> TokenFile:
    """Sequences of `length` tokens.

    A `.tsv` or `.csv` holds a sequence a line and a token a field; a longer line gives its first tokens. Any other file is
    one text, cut into pieces one after another. tokenizer: chars, bytes, words (split at white space) or ids (whole
    numbers, split at white space); default words for a table's fields, chars for a text. Tokens are numbered in the order of
    their characters, bytes or numbers, so that equal texts have equal numbers.
    """
    name, suffix = name_of(path), Path(path).suffix.lower()
    known = f"`--tokenizer` in {'|'.join(TOKENIZERS)}"
    require(tokenizer is None or tokenizer in TOKENIZERS, known, shown(tokenizer), "Choose one.")
    require(length >= 2, "`--length >= 2`", length, "Ask for another length.")
    with reading(path, LIMIT) as (handle, _):
        raw = handle.read()
    if suffix in TABLES:
        if tokenizer in ("chars", "bytes"):
            raise BadInput(f"A table's fields are its tokens, words or ids, but got --tokenizer {tokenizer}. Leave it out.")
        return _table(_text(raw, name), TABLES[suffix], length, tokenizer == "ids", name)
    if tokenizer == "bytes":
        stream: list[str] | list[int] = list(raw)
    elif tokenizer in ("words", "ids"):
        stream = _text(raw, name).split()
    else:
        stream = list(_text(raw, name))
    if tokenizer == "ids":
        stream = [_id(str(word), name) for word in stream]
    whole = len(stream) // length
    rule = f"`{name}` holds one sequence of {length} tokens at least"
    require(whole >= 1, rule, f"{len(stream)} tokens", "Give a longer file, or a shorter --length.")
    numbers, names = _numbered(stream)
    return TokenFile(numbers[: whole * length].reshape(whole, length), names, len(stream) - whole * length)


def _text(raw: bytes, name: str) -> str:
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise BadInput(f"`{name}` must be UTF-8 text, but got {error.reason} at byte {error.start}. Use bytes.") from None


def _id(word: str, name: str) -> int:
    text = word.strip()
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) >= LARGEST_ID:
        got = shown(word)
        raise BadInput(f"The ids of `{name}` must be whole numbers below {LARGEST_ID}, but got {got}. Use --tokenizer words.")
    return int(text)


def _table(text: str, mark: str, length: int, ids: bool, name: str) -> TokenFile:
    rows = [line.split(mark) for line in text.split("\n") if line.strip() and not line.startswith("#")]
    full = [row[:length] for row in rows if len(row) >= length]
    rule = f"`{name}` has a line of {length} fields at least"
    require(len(full) >= 1, rule, f"{len(rows)} lines", "Check the separator, or give a shorter --length.")
    fields = [field.strip() for row in full for field in row]
    numbers, names = _numbered([_id(field, name) for field in fields] if ids else fields)
    return TokenFile(numbers.reshape(len(full), length), names, len(rows) - len(full))


def _numbered(stream: list[str] | list[int]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    names = sorted(set(stream))  # type: ignore[type-var]
    require(len(names) >= 2, "a file has two different tokens at least", len(names), "Give another file.")
    number = {name: i for i, name in enumerate(names)}
    return np.array([number[token] for token in stream], dtype=np.int64), tuple(str(n) for n in names)
