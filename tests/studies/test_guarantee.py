"""The softmax guarantee on explicit channels: the temperature of theory suffices, half of it does not; contexts; the table."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from keyspan.attention import reference
from keyspan.problems import NoContents
from keyspan.problems.in_context import InContext, InContextInstance
from keyspan.problems.relations import Relations
from keyspan.studies import guarantee as study
from keyspan.studies.guarantee import CASES, REPLICATES, Case, adversarial, carry_out_all, main, markdown

SMALL = (
    Case(method="trivial", heads=24, d_key=1, items=24, d_model=16, length=12),
    Case(method="pinv+code", heads=8, d_key=3, items=24, d_model=16, length=24, eps=0.01),
)
COMMITTED = Path(__file__).resolve().parents[2] / "benchmarks" / "guarantee.csv"


def test_the_temperature_of_theory_suffices_and_half_of_it_does_not() -> None:
    trials = list(carry_out_all(SMALL, 2))
    assert [t.kind for t in trials] == ["per head", "aggregate"] * 4
    for t in trials:
        assert t.contexts >= 1000 and t.gap > 0 and t.suffices
        assert max(t.half_random, t.half_worst) > max(t.random, t.worst)
    assert all(t.half_fails for t in trials if t.kind == "aggregate")  # there the temperature is the least that is certain
    assert any(t.half_fails for t in trials if t.kind == "per head")
    broken = replace(trials[0], worst=2 * trials[0].eps)
    assert not broken.suffices and not replace(broken, half_random=0.0, half_worst=broken.eps).half_fails


def test_adversarial_contexts_are_the_highest_scores() -> None:
    relations = Relations(items=10, d_model=6)
    instance = InContextInstance("p", 4, relations.instance("p", NoContents()))
    x, targets = instance.relations.embeddings, instance.targets
    w_query, w_key = np.random.default_rng(0).normal(size=(2, 3, 6, 2))
    best = reference.aggregate(reference.scores(x, w_query, w_key))
    chosen = adversarial(instance, w_query, w_key)
    assert chosen.items.shape == (20, 4) and chosen.open.all()
    for i in range(10):
        others = [j for j in np.argsort(-best[i], kind="stable") if j not in (i, targets[i])]
        without, with_target = chosen.items[2 * i], chosen.items[2 * i + 1]
        assert without.tolist() == [i, *others[:3]]
        if targets[i] != i:
            assert chosen.places[2 * i, 0] == -1 and chosen.places[2 * i + 1, 0] == 1
            assert with_target.tolist() == [i, targets[i], *others[:2]]
        else:
            assert chosen.places[2 * i, 0] == chosen.places[2 * i + 1, 0] == 0


def test_a_worst_context_is_worse_than_any_other_for_one_softmax() -> None:
    """What the target lacks grows with every other score, so no context of as many items is worse."""
    case = SMALL[1]
    problem = InContext(relations=Relations(items=case.items, d_model=case.d_model), length=6)
    small = next(t for t in carry_out_all([replace(case, length=6)], 1) if t.kind == "aggregate")
    assert problem.length == small.length and small.worst >= small.random and small.half_worst >= small.half_random


def test_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(study, "CASES", SMALL)
    out = tmp_path / "guarantee.csv"
    assert main(["--channels", "1", "--methods", "trivial", "--out", str(out)]) == 0
    rows = list(csv.DictReader(out.read_text("utf-8").splitlines()))
    assert [(r["method"], r["kind"], r["suffices"]) for r in rows] == [
        ("trivial", k, "True") for k in ("per head", "aggregate")
    ]
    printed = capsys.readouterr().out
    assert "| trivial, 24 x 1 | per head | 1 |" in printed and printed.strip() == markdown(carry_out_all(SMALL[:1], 1))
    assert main(["--methods", "no such"]) == 2


def test_the_committed_table_is_what_the_program_makes() -> None:
    """Fifty channels, each with both kinds of softmax; one of them is made anew."""
    rows = list(csv.DictReader(COMMITTED.read_text("utf-8").splitlines()))
    channels = {(r["method"], r["replicate"]) for r in rows}
    assert len(rows) == 2 * len(channels) == 2 * len(CASES) * REPLICATES == 100
    assert all(r["suffices"] == "True" and int(r["contexts"]) >= 1000 for r in rows)
    fails = {kind: sum(r["half_fails"] == "True" for r in rows if r["kind"] == kind) for kind in ("per head", "aggregate")}
    assert fails == {"per head": 50, "aggregate": 40}
    case = next(c for c in CASES if c.method == "ridge+code")
    for made in carry_out_all([case], 1):
        (kept,) = (r for r in rows if (r["method"], r["replicate"], r["kind"]) == (made.method, "0", made.kind))
        for name in ("gap", "beta", "random", "worst", "half_random", "half_worst"):
            assert float(kept[name]) == pytest.approx(getattr(made, name), rel=1e-6)
