"""`keyspan bench`: one document, one table, an exit code that says whether the ratio means something."""

import sys
from typing import Any

import pytest
from tests.cli.asked import ask, told

from keyspan.bench import suite

TINY = ("bench", "--device", "cpu", "--case", "16x8x2x4", "--members", "2", "--rounds", "1", "--seconds", "0.02")


@pytest.fixture(autouse=True)
def small_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = sys.modules["keyspan.bench.ceilings"]
    monkeypatch.setitem(module.SIZES, "cpu", (32,))
    monkeypatch.setitem(module.COPY_BYTES, "cpu", 1 << 16)


def test_one_document_and_notes_aside() -> None:
    ran = ask(*TINY, "--workers", "1", "--no-growth", "--json")
    assert ran.code == 0, ran
    (found,) = ran.json["results"]
    assert found["name"] == "relations-16x8x2x4-cpu" and found["ratio"] > 0 and found["workers"] == 1
    assert "relations-16x8x2x4-cpu" in ran.err


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[suite.Plan]:
    """Nothing is timed: what was asked, and an answer by hand."""
    asked: list[suite.Plan] = []

    def answer(plan: suite.Plan, tell: suite.Tell) -> dict[str, Any]:
        asked.append(plan)
        ceiling = {"matmul": {"flops": 1e9, "size": 32}, "onednn": None, "copy": {"bytes_per_second": 1e9}}
        curve = {"axis": "items", "values": [8, 16], "seconds": [0.1, 0.4], "exponent": 2.0, "baseline_exponent": 1.0}
        head = suite.dry(plan) | {"load": {"before": 0.0, "after": 0.0}, "ceilings": ceiling}
        return head | {"results": [], "growth": [curve], "agrees": plan.seed == 0}

    monkeypatch.setattr(suite, "bench", answer)
    return asked


def test_the_table(answered: list[suite.Plan]) -> None:
    ran = ask(*TINY)
    assert ran.code == 0 and "torch.matmul 1 GFLOP/s" in ran.out and "exponent  2.00" in ran.out
    assert answered[0].growth and answered[0].seconds == 0.02 and answered[0].cases[0].members == 2


def test_sides_that_disagree_fail_the_call(answered: list[suite.Plan]) -> None:
    assert ask(*TINY, "--seed", "1", "--json").code == 1


def test_what_it_would_cost(answered: list[suite.Plan]) -> None:
    data = told("bench", "--quick", "--device", "cpu", "--dry-run")
    assert len(data["cases"]) == 4 and data["members"] > 0 and data["seconds"] > 1
    assert "relations-16x8x2x4-cpu" in ask(*TINY, "--dry-run").out and answered == []


@pytest.mark.parametrize(
    "wrong", [("--case", "12"), ("--rounds", "0"), ("--seconds", "-1"), ("--workers", "0"), ("--arithmetic", "fp8")]
)
def test_bad_input_is_one_line(wrong: tuple[str, str], answered: list[suite.Plan]) -> None:
    ran = ask(*TINY, *wrong)
    assert ran.code == 2 and ran.err.startswith("keyspan: ") and ran.err.count("\n") == 1
    assert answered == []
