"""benchmarks/law.csv and docs/law.md: rows are consistent, two are measured again, and the page's tables are theirs."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable

import pytest
from tests.cli.asked import ROOT

from keyspan.lab.fleet import sail
from keyspan.specs import Run
from keyspan.studies import law, law_fit
from keyspan.theory.width import width_budget

ROWS = list(csv.DictReader((ROOT / "benchmarks" / "law.csv").read_text("utf-8").splitlines()))
PAGE = (ROOT / "docs" / "law.md").read_text("utf-8")


def block(name: str) -> str:
    """What stands on the page between a table's marks."""
    found = re.search(rf"<!-- {re.escape(name)} -->\n(.*?)\n*<!-- end -->", PAGE, re.DOTALL)
    assert found, name
    return found[1].strip()


def test_rows_are_closed_from_both_sides() -> None:
    assert ROWS and tuple(ROWS[0]) == law.COLUMNS
    for row in ROWS:
        heads, fails = int(row["heads"]), int(row["fails"])
        assert row["recipe"] in (law.OWNED, law.FREE) and int(row["seeds"]) >= 3
        assert fails % heads == 0
        if row["key_budget"]:
            assert int(row["key_budget"]) == fails + heads  # one dimension a head between them
        else:
            assert fails == heads * int(row["d_model"])
        width = width_budget(int(row["edges"]), int(row["items"]), int(row["d_model"]), heads)
        assert row["width"] == ("" if width is None else f"{round(width, 3)}")


@pytest.mark.parametrize("name, largest, least", [("solver-fixed", 256, 40), ("smaller cells", 128, 8)])
def test_the_tables_of_rivals_are_those_of_the_rows(name: str, largest: int, least: int) -> None:
    assert block(f"rivals, {name}") == law_fit.markdown(law_fit.table(ROWS, law.OWNED, largest, least))


def test_the_thresholds_of_the_page_are_those_of_the_rows() -> None:
    assert block("thresholds") == law_fit.thresholds(ROWS)


def held(runs: Iterable[Run]) -> list[bool]:
    """Which members are exact, trained here and now."""
    return [f.verdict.exact is True for f in sail(list(runs))]


@pytest.mark.parametrize("items, d_model, heads", [(64, 32, 1), (64, 16, 4)])
def test_a_row_is_measured_again(items: int, d_model: int, heads: int) -> None:
    (point,) = [p for p in law.points() if (p.group, p.items, p.d_model, p.heads) == ("small", items, d_model, heads)]
    sizes = ("small", str(items), str(d_model), str(heads))
    (row,) = [r for r in ROWS if (r["group"], r["items"], r["d_model"], r["heads"]) == sizes]
    question = point.question()
    (arm,) = question.arms
    assert not all(held(question.runs(arm, int(row["fails"]))))
    assert all(held(question.runs(arm, int(row["key_budget"]))))
