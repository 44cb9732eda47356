"""One member of any size, timed."""

from __future__ import annotations

import json

import pytest

from keyspan.bench import large


def test_it_trains_and_says_what_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    assert large.main(["61x17x3x5", "67x13x2x3", "--device", "cpu", "--steps", "7"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["name"] for row in rows] == ["relations-61x17x3x5-cpu", "relations-67x13x2x3-cpu"]
    for row, (items, heads) in zip(rows, [(61, 3), (67, 2)], strict=True):
        assert row["bytes_of_all_scores"] == 4 * items * items * heads
        assert row["loss"][1] < row["loss"][0]
        assert row["seconds_per_step"] > 0 and row["peak_bytes"] > 0


@pytest.mark.parametrize("words", [["61x17"], ["61x17x3x5", "--arithmetic", "bf16", "--device", "cpu"]])
def test_what_cannot_be_is_said_in_a_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert large.main(words) == 2
    assert capsys.readouterr().err.startswith("keyspan: ")
