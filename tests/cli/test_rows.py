"""A long document is printed like a short one, in little memory, and whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from keyspan.cli import show

BEFORE, AFTER = {"schema": 1, "keyspan": "x"}, {"total": 7}


def rows(count: int) -> list[dict[str, Any]]:
    row = {"text": 'a\n"b" \u00e9', "deep": {"x": [1, 2.5, None]}, "none": []}
    return [{"run_id": f"r{count - i}"} | row for i in range(count)]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_text_is_that_of_one_document(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    ids = sorted(row["run_id"] for row in rows(count))
    show.print_json(BEFORE | {"runs": rows(count), "run_ids": ids} | AFTER)
    whole = capsys.readouterr().out
    show.print_json_rows(BEFORE, "runs", iter(rows(count)), "run_id", AFTER)
    assert capsys.readouterr().out == whole


def test_nothing_is_printed_of_what_cannot_be_read_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    def torn() -> Iterator[dict[str, Any]]:
        yield from rows(2)
        raise ValueError("torn")

    with pytest.raises(ValueError, match="torn"):
        show.print_json_rows(BEFORE, "runs", torn(), "run_id", AFTER)
    assert capsys.readouterr().out == ""
