"""The ledger as a table: README and docs show what their CSV says, and the CSV what the claims' checks are."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.asked import ROOT, ask

from keyspan.papers import claims
from keyspan.papers.ledger import ledger
from keyspan.views.ledger_table import BEGIN, COLUMNS, END, between, csv_rows, csv_text, markdown, read_rows, save_table

KEPT = ROOT / "benchmarks" / "ledger.csv"
PAGES = (ROOT / "README.md", ROOT / "docs" / "ledger.md")
AGAIN = "Make it again: keyspan ledger --out benchmarks/ledger.csv --out README.md --out docs/ledger.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_what_its_csv_says(page: Path) -> None:
    shown = page.read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    assert shown == f"\n{markdown(read_rows(KEPT.read_text('utf-8')))}", AGAIN


def test_the_csv_has_the_checks_of_the_claims() -> None:
    rows = {row["id"]: row for row in read_rows(KEPT.read_text("utf-8"))}
    known = {claim.id: claim for claim in claims.every()}
    assert set(rows) <= set(known) and tuple(next(iter(rows.values()))) == COLUMNS
    for name, row in rows.items():
        claim = known[name]
        bounds = claim.threshold if isinstance(claim.threshold, list | tuple) else [claim.threshold]
        assert [float(part) for part in row["threshold"].split()] == [float(bound) for bound in bounds], AGAIN
        assert (row["statistic"], row["test"], row["claim"]) == (claim.statistic, claim.test, claim.claim), AGAIN
        assert (row["status"] == "unmeasured") == bool(row["reason"]) and bool(row["measured"]) >= (row["status"] == "holds")


def test_what_theory_decides_comes_out_again(tmp_path: Path) -> None:
    """A row of the CSV made again, from no store at all."""
    name = "adler-large-head-interferes"
    (again,) = csv_rows(ledger(store=f"sqlite:///{tmp_path / 'none.db'}", claim=name).to_dict())
    (kept,) = (row for row in read_rows(KEPT.read_text("utf-8")) if row["id"] == name)
    assert float(again.pop("measured")) == pytest.approx(float(kept.pop("measured")), rel=1e-9)
    numbers = ("low", "high")
    assert {k: v for k, v in again.items() if k not in numbers} == {k: v for k, v in kept.items() if k not in numbers}


def test_the_command_writes_both(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nstale\n{END}\nafter\n")
    ran = ask("ledger", "--paper", "harma", "--out", tmp_path / "kept.csv", "--out", page, "--json")
    assert ran.code == 0 and len(ran.json["claims"]) == len(read_rows((tmp_path / "kept.csv").read_text()))
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n") and text.endswith(f"{END}\nafter\n") and "stale" not in text
    assert "`harma-held-out`" in text
    rows = read_rows((tmp_path / "kept.csv").read_text())
    assert csv_text(rows) == (tmp_path / "kept.csv").read_text() and between(text, markdown(rows)) == text
    save_table(ran.json, tmp_path / "new.md")
    assert (tmp_path / "new.md").read_text() == f"{BEGIN}\n{markdown(rows)}{END}\n"


@pytest.mark.parametrize("name, mentions", [("kept.txt", "must be a .csv or .md file"), ("page.md", "must have the lines")])
def test_what_cannot_be_written_is_refused_first(name: str, mentions: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("no marks\n")
    ran = ask("ledger", "--paper", "harma", "--out", tmp_path / name)
    assert ran.code == 2 and mentions in ran.err and (tmp_path / "page.md").read_text() == "no marks\n"


def test_no_text_ends_a_cell() -> None:
    row = dict.fromkeys(COLUMNS, "") | {"id": "a", "paper": "x", "claim": "p | q < r_s *", "status": "fails", "test": "<="}
    row |= {"threshold": "0.5 2.0", "measured": "1.23456", "low": "1", "high": "2", "runs": "0"}
    assert markdown([row]).splitlines()[4] == (
        "| p \\| q &lt; r\\_s \\* `a`, by theory | <= 0.5 and 2 | 1.23 [1, 2] | **fails** |"
    )
