"""The bench of labels: both sides take the same steps, and what is said of them."""

from __future__ import annotations

import json

import pytest

from keyspan.bench.labels import CLOSE, Case, disagreement, main


@pytest.mark.parametrize("contexts", ["random", "fixed"])
def test_both_sides_take_the_same_steps(contexts: str) -> None:
    assert disagreement(Case(heads=3, context=5, d_model=12, examples=300, contexts=contexts)) < CLOSE


def test_what_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--heads", "2", "--context", "4", "--d-model", "8", "--examples", "64", "--fleet", "2", "--rounds", "2"]
    assert main([*sizes, "--seconds", "0.02", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert len(data["results"]) == 4 and all(0 < r["low"] <= r["ratio"] <= r["high"] for r in data["results"])
    assert main([*sizes, "--seconds", "0.01"]) == 0 and "times the plain formulation" in capsys.readouterr().out
    assert main([*sizes, "--rounds", "0"]) == 2
