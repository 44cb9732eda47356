"""Tokens from texts and tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from keyspan.errors import BadInput
from keyspan.files.tokens import read_tokens


def written(folder: Path, text: str | bytes, name: str = "a.txt") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_text_is_cut_into_pieces_of_characters(tmp_path: Path) -> None:
    held = read_tokens(written(tmp_path, "abcabda"), 3)
    assert held.tokens.tolist() == [[0, 1, 2], [0, 1, 3]] and held.names == ("a", "b", "c", "d") and held.left_out == 1


def test_bytes_are_numbered_in_order(tmp_path: Path) -> None:
    held = read_tokens(written(tmp_path, b"\xff\x00\x80\x00"), 2, "bytes")
    assert held.tokens.tolist() == [[2, 0], [1, 0]] and held.names == ("0", "128", "255")


def test_words_and_ids(tmp_path: Path) -> None:
    path = written(tmp_path, "10 9\n9  10\t7 10")
    assert read_tokens(path, 3, "ids").tokens.tolist() == [[2, 1, 1], [2, 0, 2]]
    assert read_tokens(path, 3, "words").names == ("10", "7", "9")


def test_a_table_has_a_sequence_a_line(tmp_path: Path) -> None:
    path = written(tmp_path, "# facts\nparis\tcapital\tfrance\nrome\tcapital\titaly\tmore\nshort\tline\n\n", "facts.tsv")
    held = read_tokens(path, 3)
    assert [[held.names[t] for t in row] for row in held.tokens] == [
        ["paris", "capital", "france"],
        ["rome", "capital", "italy"],
    ]
    assert held.left_out == 1
    ids = read_tokens(written(tmp_path, "5,6,7\n5,7,6\n", "ids.csv"), 3, "ids")
    assert ids.tokens.tolist() == [[0, 1, 2], [0, 2, 1]]


def test_line_ends_and_marks_make_no_difference(tmp_path: Path) -> None:
    one = read_tokens(written(tmp_path, "ab\ncd\n"), 2)
    other = read_tokens(written(tmp_path, "\ufeffab\r\ncd\r\n", "b.txt"), 2)
    assert (one.tokens == other.tokens).all() and one.names == other.names


@pytest.mark.parametrize(
    "text, name, length, tokenizer, says",
    [
        ("ab", "a.txt", 3, None, "one sequence of 3 tokens"),
        ("aaaa", "a.txt", 2, None, "two different tokens"),
        (b"\xff\xfe\xfd", "a.txt", 2, None, "UTF-8"),
        ("1 2 x", "a.txt", 2, "ids", "whole numbers"),
        ("1 -2", "a.txt", 2, "ids", "whole numbers"),
        ("1 99999999999", "a.txt", 2, "ids", "whole numbers"),
        ("a\tb\n", "a.tsv", 3, None, "a line of 3 fields"),
        ("a\tb\n", "a.tsv", 2, "chars", "fields"),
        ("abc", "a.txt", 2, "letters", "--tokenizer"),
        ("abc", "a.txt", 1, None, "--length"),
        ("", "a.txt", 2, None, "empty"),
    ],
)
def test_what_is_no_library(
    tmp_path: Path, text: str | bytes, name: str, length: int, tokenizer: str | None, says: str
) -> None:
    with pytest.raises(BadInput, match=says):
        read_tokens(written(tmp_path, text, name), length, tokenizer)
