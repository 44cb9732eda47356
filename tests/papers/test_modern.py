"""Attention in use today: what is asked, what the table makes of the answers, its claims and its picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.asked import ask, told
from tests.papers.made import answered

from keyspan.attention.shapes import Heads
from keyspan.papers import claims, modern, reproduce
from keyspan.papers.figures import TIERS, Figure
from keyspan.papers.modern import PLANS, Plan, Table, measured, paper, questions
from keyspan.problems.placed import Placed
from keyspan.problems.relations import Relations
from keyspan.specs import Run, decode
from keyspan.verdict import Status, Verdict
from keyspan.views.drawings import draw_figure, drawing_of

CELL = (16, 16, 1)
TINY = Plan(cells=(CELL, (16, 16, 2)), most=4, seeds=3, positions=4)
FIGURE = Figure("heads", "t", dict.fromkeys(TIERS, TINY))
NEEDS = {"norm": 8, "cap": 6, "latent": 10, "share": 12, "rotary": 9, "keys": 5}  # D_K by what is not as in plain heads


def knows(run: Run) -> Verdict:
    """Plain heads need a key budget of 4, every change its own; rounding to int4 after training doubles the need."""
    heads = run.instrument
    assert isinstance(heads, Heads)
    plain = Heads(heads=heads.heads, d_key=heads.d_key)
    need = max([4, *(n for name, n in NEEDS.items() if getattr(heads, name) != getattr(plain, name))])
    need = need if heads.heads < 4 else 2 * need
    assert isinstance(run.problem, Placed) == (heads.rotary > 0)
    f1 = float(heads.key_budget >= need)
    scores = {"f1": f1, "f1_seen": f1} | {f"f1_{kept}": f1 for kept in ("bf16", "fp8", "int8")}
    return Verdict(status=Status.MEASURED, exact=f1 == 1, scores=scores | {"f1_int4": float(heads.key_budget >= 2 * need)})


@pytest.fixture(scope="module")
def table() -> Table:
    asked = questions(FIGURE, "short")
    return measured(FIGURE, "short", asked, [answered(question, knows) for question in asked])


def test_what_is_asked() -> None:
    for tier, plan in PLANS.items():
        asked = questions(Figure("heads", "t", PLANS), tier)
        assert len(asked) == sum(len(plan.heads(kind)) for _, kind in plan.lines)
        for question in asked:
            (arm,) = question.arms
            first, last = (question.instrument.with_budget(arm.heads, level) for level in (arm.levels[0], arm.levels[-1]))  # type: ignore[attr-defined]
            relations = getattr(question.problem, "relations", question.problem)
            assert isinstance(relations, Relations) and decode(question.to_json()) == question
            assert max(last.d_key, last.latent) <= relations.d_model
            assert (first.rotary == 0) == isinstance(question.problem, Relations)
            assert first.rotary == 0 or first.turned >= 2 * (first.rotary == 1.0)
    names = [kind.name for kind in modern.kinds(64)]
    assert len(set(names)) == len(names) >= 20 and set(modern.SMOKE) <= set(names)


def test_each_kind_is_told_where_it_needs_least(table: Table) -> None:
    plain = table.line("plain", CELL)
    assert plain is not None and [(p.heads, p.budget) for p in plain.points] == [(1, 4), (2, 4), (4, 8)]
    assert (plain.least("budget"), plain.least("parameters"), plain.least("cache_bits")) == (4, 2 * 16 * 4, 4 * 32)
    shared = table.line("MQA", CELL)
    assert shared is not None and [(p.heads, p.budget) for p in shared.points] == [(2, 12), (4, 24)]
    assert shared.least("cache_bits") == 6 * 32 and shared.best("cache_bits") == shared.points[0]
    latent = table.line("MLA, latent of 2 d_key", CELL)
    assert latent is not None and latent.points[0].cached == 2 * 5  # a latent of twice d_key = 5, for two heads
    int4 = table.line("keys int4 after training", CELL)
    assert int4 is not None and int4.least("budget") == 8 and int4.least("cache_bits") == 8 * (4 + 32 / 16)
    several = table.line("plain", (16, 16, 2))
    assert several is not None and several.least("cache_bits") == 4 * 32 / 2  # two relations an item
    assert table.line("rotary", (16, 16, 2)) is None
    assert table.ratio("MQA", "cache_bits") == 1.5 and table.ratio("QK-norm", "budget") == 2.0


def test_what_is_not_reached_is_no_number(table: Table) -> None:
    never = replace(
        table, lines=tuple(replace(x, points=tuple(replace(p, budget=None) for p in x.points)) for x in table.lines)
    )
    assert never.ratio("QK-norm", "budget") is None and never.ratio_ends("MQA", "budget") is None
    assert never.lines[0].best("budget") is None
    info = drawing_of("modern", "heads").info(never)
    assert "not reached" in info.alt_text and all(row["key_budget"] is None for row in info.rows())


def test_claims_are_judged(table: Table) -> None:
    loaded = claims.load(paper())
    assert {claim.statistic for claim in loaded} == set(modern.STATISTICS) and len(loaded) >= 8
    holds = {j.claim.id: j.holds for j in claims.judge(table, paper())}
    assert holds["modern-norm-free"] is False and holds["modern-rotary-costs"] is True
    assert holds["modern-int8-free"] is True and holds["modern-int4-halves"] is True
    (norm,) = (j for j in claims.judge(table, paper()) if j.claim.id == "modern-norm-free")
    assert norm.low is not None and norm.high is not None and norm.low <= (norm.measured or 0) <= norm.high
    failed = replace(table, lines=(replace(table.lines[0], failed=1), *table.lines[1:]))
    assert failed.failed_cells == {("plain", CELL)}
    assert {j.holds for j in claims.judge(failed, paper())} == {None}


def test_the_picture_and_its_data(table: Table, tmp_path: Path) -> None:
    info = drawing_of("modern", "heads").info(table)
    files = draw_figure(info, "heads", tmp_path, "modern")
    assert [f.name for f in files] == ["modern-heads.svg", "modern-heads.png", "modern-heads.csv", "modern-heads.pdf"]
    rows: list[dict[str, Any]] = info.rows()
    assert len(rows) == sum(len(line.points) for line in table.lines)
    assert rows[0] | {"kind": "plain", "targets": 1, "heads": 1, "key_budget": 4, "cached_numbers": 4} == rows[0]
    title, columns, printed = info.printed()
    assert "0.99" in title and len(printed) == len(table.lines) and all(len(row) == len(columns) for row in printed)
    assert info.facts()["over_plain"][0]["budget"] == 1.0


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two lines that share their members, on a few items: trained in seconds."""
    plan = Plan(cells=((12, 16, 1),), most=1, seeds=2, positions=4, only=("plain", "keys int8 after training"))
    figure = Figure("heads", "t", dict.fromkeys(TIERS, plan))
    monkeypatch.setattr(reproduce, "PAPERS", {"modern": lambda: replace(paper(), figures={"heads": figure})})
    monkeypatch.chdir(tmp_path)


def test_trained_for_real(tiny: None) -> None:
    data = told("reproduce", "modern:heads", "--jobs", "1")
    assert data["failed"] == 0 and data["done"] == data["cells"] == 2 and data["trained_now"] == len(data["run_ids"])
    rows = {row["kind"]: row for row in data["figures"][0]["data"]}
    assert rows["plain"]["key_budget"] and rows["plain"]["seeds"] == 2
    assert rows["keys int8 after training"]["cache_bits_per_relation"] < rows["plain"]["cache_bits_per_relation"]
    assert ask("reproduce", "modern", "--quiet").code == 0


def test_what_is_not_there_is_named() -> None:
    assert "modern:heads" in ask("reproduce", "modern:tails").err
