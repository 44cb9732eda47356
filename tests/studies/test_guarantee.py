"""The softmax guarantee on explicit channels: the rows that are committed, and one of them made again."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from keyspan.attention.shapes import Routed
from keyspan.lab.routed import errors_in
from keyspan.problems import NoContents
from keyspan.problems.in_context import InContext
from keyspan.problems.relations import Relations
from keyspan.studies import guarantee
from keyspan.studies.guarantee import CASES, REPLICATES, Case, Trial, adversarial, carry_out_all, main

ROWS = Path(__file__).parents[2] / "benchmarks" / "guarantee.csv"


def test_what_was_measured() -> None:
    """50 channels, a thousand random contexts and the adversarial ones of each, with both kinds of softmax."""
    with ROWS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len(CASES) * REPLICATES == 100 and {row["kind"] for row in rows} == {"per head", "aggregate"}
    assert all(int(row["contexts"]) >= 1000 and float(row["gap"]) > 0 for row in rows)
    assert {row["suffices"] for row in rows} == {"True"}
    assert sum(row["half_fails"] == "True" for row in rows if row["kind"] == "per head") == 50


def test_a_row_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--methods", "repair", "--channels", "1", "--out", str(tmp_path / "rows.csv")]) == 0
    assert "| repair, 8 x 6 | per head | 1 |" in capsys.readouterr().out
    mine, theirs = (
        [row for row in csv.DictReader(path.open(encoding="utf-8")) if (row["method"], row["replicate"]) == ("repair", "0")]
        for path in (tmp_path / "rows.csv", ROWS)
    )
    assert [row["kind"] for row in mine] == [row["kind"] for row in theirs] == ["per head", "aggregate"]
    for one, other in zip(mine, theirs, strict=True):
        for name in ("gap", "beta", "random", "worst", "half_random", "half_worst"):
            assert float(one[name]) == pytest.approx(float(other[name]), rel=1e-6, abs=1e-12)


def test_a_temperature_below_what_suffices_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(method="repair", heads=8, d_key=6, items=32, d_model=16, length=8)
    (good, _) = carry_out_all([case], 1)
    monkeypatch.setattr(guarantee, "routed_beta", lambda *args: good.beta / 4)
    (bad, _) = carry_out_all([case], 1)
    assert good.suffices and not bad.suffices and bad.random > bad.eps


def test_adversarial_contexts_are_worse_than_others() -> None:
    case = Case(method="repair", heads=8, d_key=6, items=32, d_model=16, length=8)
    seen: list[Trial] = list(carry_out_all([case], 1))
    assert all(row.half_worst >= 0.9 * row.half_random > 0 for row in seen)


def test_adversarial_contexts_are_contexts() -> None:
    problem = InContext(relations=Relations(items=12, d_model=8), length=6)
    instance = problem.instance("p-worst", NoContents())
    w = {name: np.ones((2, 8, 3)) * math.pi for name in ("w_query", "w_key")}
    chosen = adversarial(instance, w["w_query"], w["w_key"])
    assert chosen.items.shape == (24, 6)
    for items, places in zip(chosen.items, chosen.places, strict=True):
        assert len(set(items.tolist())) == 6
        target = instance.targets[items[0]]
        assert places[0] == (items.tolist().index(target) if places[0] >= 0 else -1)
    assert (chosen.places[1::2, 0] >= 0).all()
    layer = Routed(heads=2, d_key=3)
    assert errors_in(instance, layer, w | {"sink": np.zeros(2)}, chosen).shape == (24, 6)
