"""`keyspan ledger`: one document, readable tables, exit codes; no torch, no store made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.asked import ask, told

from keyspan.papers import claims


def test_the_fields_of_the_surface() -> None:
    data = told("ledger")
    assert [c["id"] for c in data["claims"]] == [c.id for c in claims.every()]
    for claim in data["claims"]:
        assert {"id", "paper", "claim", "expected", "measured", "low", "high", "status"} <= set(claim)
    assert sum(data["counts"].values()) == len(data["claims"]) and data["trained_now"] == 0
    assert {c["paper"] for c in data["claims"]} == {"adler", "mahdavi", "harma", "modern"}


def test_the_table() -> None:
    ran = ask("ledger", "--paper", "harma")
    assert ran.code == 0 and "Claims of harma" in ran.out and "harma-error" in ran.out and "adler" not in ran.out
    assert "13 claims: 0 holds, 0 fails, 13 unmeasured" in " ".join(ran.out.split())


@pytest.mark.parametrize(
    "claim, said",
    [
        (
            "adler-context-robust",
            ["status    holds", "command   keyspan ledger --claim adler-context-robust", "measured  0.00"],
        ),
        ("adler-persists-gpt2", ["status    unmeasured", "proxy     ", "reason    GPT-2"]),
        ("adler-law-explains", ["command   keyspan reproduce adler:fig3 --tier short", "power     "]),
    ],
)
def test_one_claim_in_words(claim: str, said: list[str]) -> None:
    ran = ask("ledger", "--claim", claim)
    assert ran.code == 0 and all(words in ran.out for words in said), ran.out


@pytest.mark.parametrize("argv", [("--paper", "nobody"), ("--claim", "nothing"), ("--store", "http://x"), ("--dry-run",)])
def test_bad_input_is_one_line(argv: tuple[str, ...]) -> None:
    ran = ask("ledger", *argv)
    assert ran.code == 2 and ran.out == "" and ran.err.startswith("keyspan: ") and ran.err.count("\n") == 1


def test_a_damaged_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_bytes(b"not a store at all" * 100)
    assert ask("ledger", "--store", f"sqlite:///{tmp_path / 'bad.db'}").code == 2


def test_json_has_no_nan() -> None:
    json.loads(ask("ledger", "--json").out, parse_constant=lambda name: pytest.fail(name))
