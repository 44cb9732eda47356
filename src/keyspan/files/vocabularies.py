"""A model's vocabulary, to find the token that a word is: `tokenizer.json`, `vocab.json` or `vocab.txt`. No tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keyspan.errors import BadInput
from keyspan.files.documents import read_json
from keyspan.files.paths import name_of, reading, shown

LIMIT = 2**27  # bytes of a vocabulary
START = ("\u0120", "\u2581")  # what byte-level BPE and SentencePiece write for the blank before a word


class Vocabulary:
    """Tokens by their text."""

    def __init__(self, tokens: Mapping[str, int]) -> None:
        self.tokens = tokens
        self.bytewise = any(token.startswith(START[0]) for token in tokens)

    def find(self, word: str) -> int | None:
        """The one token that is this word: as it begins after a blank, else as written, else in lower case; or None."""
        for text in (word, word.lower()):
            spelled = _bytewise(text) if self.bytewise else text
            for candidate in (*(mark + spelled for mark in START), spelled, text):
                if candidate in self.tokens:
                    return self.tokens[candidate]
        return None


def read_vocabulary(folder: str | Path) -> Vocabulary | None:
    """The vocabulary in a model's folder, or None where there is none."""
    where = Path(folder)
    if (where / "tokenizer.json").is_file():
        return Vocabulary(_of_tokenizer(where / "tokenizer.json"))
    if (where / "vocab.json").is_file():
        return Vocabulary(_checked(read_json(where / "vocab.json", LIMIT), where / "vocab.json"))
    if (where / "vocab.txt").is_file():
        return Vocabulary(_of_lines(where / "vocab.txt"))
    return None


def _of_tokenizer(path: Path) -> dict[str, int]:
    """`model.vocab`, by text or as a list of (text, score), and the tokens added to it."""
    data = read_json(path, LIMIT)
    model = data.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocab, list):
        vocab = {piece[0]: i for i, piece in enumerate(vocab) if isinstance(piece, list) and piece and _is_text(piece[0])}
    if not isinstance(vocab, dict):
        return _checked(vocab, path)
    added = data.get("added_tokens")
    listed = [token for token in added if isinstance(token, dict)] if isinstance(added, list) else []
    return _checked(vocab | {t["content"]: t["id"] for t in listed if "id" in t and _is_text(t.get("content"))}, path)


def _of_lines(path: Path) -> dict[str, int]:
    with reading(path, LIMIT) as (handle, _):
        try:
            lines = handle.read().decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            got = f"byte 0x{error.object[error.start]:02x}"
            raise BadInput(f"`{name_of(path)}` must be UTF-8 text, but got {got}. Copy it again.") from None
    return {line.rstrip("\r"): i for i, line in enumerate(lines) if line}


def _checked(vocab: Any, path: Path) -> dict[str, int]:
    if not isinstance(vocab, dict) or not vocab:
        raise BadInput(f"`{name_of(path)}` must hold tokens by text, but got {shown(vocab)}. Give token ids instead.")
    wrong = next((value for value in vocab.values() if type(value) is not int or not 0 <= value < 2**31), None)
    if wrong is not None or None in vocab.values():
        raise BadInput(f"Token ids in `{name_of(path)}` must be whole numbers, but got {shown(wrong)}. Copy it again.")
    return vocab


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _bytewise(text: str) -> str:
    """The text as byte-level BPE spells it: every byte a printable character, itself where it is one."""
    return "".join(_SPELLING[byte] for byte in text.encode("utf-8", "surrogatepass"))


def _spelling() -> dict[int, str]:
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [byte for byte in range(256) if byte not in kept]
    return {byte: chr(byte) for byte in kept} | {byte: chr(256 + i) for i, byte in enumerate(moved)}


_SPELLING = _spelling()
