"""Pairs of tokens from text files, and the tokens that words are."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.files.refusals import label, refused

from keyspan.files.pairs import read_pairs
from keyspan.files.vocabularies import Vocabulary, read_vocabulary


@pytest.mark.parametrize(
    "name, text, rows, ids",
    [
        ("p.csv", "1,2\n3,4\n1,2\n", (("1", "2"), ("3", "4")), True),
        ("p.csv", "source,target\n1,2\n", (("1", "2"),), True),
        ("p.csv", "\ufeffSource , Target\r\n\r\n# a word\r\nParis, France\r\n", (("Paris", "France"),), False),
        ("p.tsv", "a,b\tc\n", (("a,b", "c"),), False),
        ("p.csv", '"a,b",c\n"x ""y""",z\n', (("a,b", "c"), ('x "y"', "z")), False),
        ("p.txt", "a b\tc\n1\t2\n", (("a b", "c"), ("1", "2")), False),
        ("p.csv", "#1,#2\n", (("#1", "#2"),), False),
        ("p.csv", "\u0120Paris,\u2581x\n", (("\u0120Paris", "\u2581x"),), False),
    ],
)
def test_pairs_are_read(tmp_path: Path, name: str, text: str, rows: Any, ids: bool) -> None:
    (tmp_path / name).write_text(text)
    found = read_pairs(tmp_path / name)
    assert found.rows == rows and found.ids is ids


@pytest.mark.parametrize(
    "text, mentions",
    [
        (b"a,b,c\n", ("two fields", "line 1")),
        (b"a,b\nc\n", ("two fields", "line 2", "a comma")),
        (b"a,\n", ("two fields",)),
        (b'"a,b\n', ("CSV", "line 1")),
        (b"source,target\n", ("at least one pair",)),
        (b"\xff,b\n", ("UTF-8", "0xff")),
    ],
    ids=label,
)
def test_bad_pairs_are_refused(tmp_path: Path, text: bytes, mentions: tuple[str, ...]) -> None:
    (tmp_path / "p.csv").write_bytes(text)
    refused(lambda: read_pairs(tmp_path / "p.csv"), "p.csv", *mentions)


@pytest.mark.parametrize(
    "tokens, word, found",
    [
        (["paris", "Paris", "##is"], "Paris", 1),
        (["paris", "##is"], "Paris", 0),
        (["Paris", "\u0120Paris"], "Paris", 1),
        (["Paris", "\u0120paris"], "\u0120paris", 1),
        (["x", "\u2581Paris"], "Paris", 1),
        (["\u0120a", "\u0120caf\u00c3\u00a9"], "caf\u00e9", 1),  # the bytes of e acute, as byte-level BPE spells them
        (["caf\u00e9"], "caf\u00e9", 0),
        (["a"], "b", None),
    ],
)
def test_the_token_that_a_word_is(tokens: list[str], word: str, found: int | None) -> None:
    assert Vocabulary({token: i for i, token in enumerate(tokens)}).find(word) == found


def test_bytes_are_spelled_as_gpt2_spells_them() -> None:
    """Against the one table that everybody uses, by its properties: one printable character a byte, ASCII as it is."""
    from keyspan.files.vocabularies import _SPELLING

    assert len(set(_SPELLING.values())) == 256
    assert all(_SPELLING[byte] == chr(byte) for byte in range(33, 127))
    assert _SPELLING[ord(" ")] == "\u0120" and _SPELLING[ord("\n")] == "\u010a" and _SPELLING[0x7F] == "\u0121"
    assert all(character.isprintable() and not character.isspace() for character in _SPELLING.values())


def test_vocabularies_of_every_kind(tmp_path: Path) -> None:
    assert read_vocabulary(tmp_path) is None
    (tmp_path / "vocab.txt").write_text("a\nb\r\n\nc\n")
    assert (found := read_vocabulary(tmp_path)) is not None and found.tokens == {"a": 0, "b": 1, "c": 3}
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 5}))
    assert (found := read_vocabulary(tmp_path)) is not None and found.tokens == {"a": 5}
    model = {"model": {"vocab": {"a": 7}}, "added_tokens": [{"id": 9, "content": "<s>"}, {"id": 8}, 3]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(model))
    assert (found := read_vocabulary(tmp_path)) is not None and found.tokens == {"a": 7, "<s>": 9}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": [["x", -1.5], ["y", -2.0]]}}))
    assert (found := read_vocabulary(tmp_path)) is not None and found.tokens == {"x": 0, "y": 1}


@pytest.mark.parametrize("data", [{}, {"model": 3}, {"model": {"vocab": 3}}, {"model": {"vocab": {"a": "b"}}},
                                  {"model": {"vocab": {"a": None}}}, {"model": {"vocab": {"a": -1}}}])  # fmt: skip
def test_bad_vocabularies_are_refused(tmp_path: Path, data: Any) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    refused(lambda: read_vocabulary(tmp_path), "tokenizer.json")
