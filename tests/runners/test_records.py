"""The record table: what is exact in all seeds, the smallest budget of each cell and recipe, a command for each row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keyspan.errors import BadInput
from keyspan.evidence.record import Record, make_record
from keyspan.lab.recipes import hinge
from keyspan.problems import embeddings, graphs
from keyspan.problems.dichotomies import Dichotomies
from keyspan.problems.relations import Relations
from keyspan.runners.questions import relations_question
from keyspan.runners.records import COLUMNS, record_rows, write_rows
from keyspan.specs import LinearUnit, Run
from keyspan.verdict import Status, Verdict

CELL = Relations(items=64, d_model=32)
EXACT = Verdict(status=Status.MEASURED, exact=True, scores={"f1": 1.0})
SHORT = Verdict(status=Status.MEASURED, exact=False, scores={"f1": 0.99})
LOST = Verdict(status=Status.DIVERGED)


def runs(problem: Relations = CELL, *, heads: int = 2, budget: int = 12, seeds: int = 3, **asked: Any) -> list[Run]:
    """The members of one point."""
    asked = {"recipe": "hinge"} | asked
    question = relations_question(problem, heads=[heads], key_budgets=[budget], seeds=seeds, **asked)
    return list(question.runs(question.arms[0], budget))


def records(runs: list[Run], *verdicts: Verdict, steps: int = 7) -> list[Record]:
    """Their records; the last verdict is that of all that follow."""
    each = [*verdicts, *[verdicts[-1] if verdicts else EXACT] * len(runs)]
    return [make_record(r, v, steps=steps + k, device="cpu") for k, (r, v) in enumerate(zip(runs, each, strict=False))]


def test_a_row_says_what_was_held_and_how_to_measure_it_again() -> None:
    (row,) = record_rows(records(runs()))
    assert tuple(row) == COLUMNS
    assert (row["items"], row["d_model"], row["graph"], row["embeddings"]) == (64, 32, "permutation", "gaussian")
    assert (row["recipe"], row["heads"], row["d_key"], row["key_budget"]) == ("hinge", 2, 6, 12)
    assert (row["seeds"], row["exact"], row["steps"], row["steps_taken"]) == (3, 3, hinge().steps, 9)
    assert row["command"] == (
        "keyspan measure relations --items 64 --d-model 32 --heads 2 --key-budgets 12 --seeds 3 --recipe hinge"
    )


def test_every_seed_must_be_exact_and_three_at_least() -> None:
    assert record_rows([]) == record_rows(records(runs(seeds=2))) == []
    for verdicts in ([SHORT, EXACT, EXACT], [EXACT, EXACT, SHORT], [EXACT, LOST]):
        assert record_rows(records(runs(), *verdicts)) == []
    assert record_rows(records(runs(seeds=5), EXACT, EXACT, EXACT, EXACT, SHORT)) == []
    assert [r["seeds"] for r in record_rows(records(runs(seeds=5)))] == [5]
    gap = records(runs(seeds=5))
    assert [r["seeds"] for r in record_rows(gap[:3] + gap[4:])] == [3]  # `--seeds 4` would train the one that is missing
    assert record_rows(gap[1:]) == []


def test_the_smallest_budget_wins_then_the_fewest_steps_then_the_fewest_heads() -> None:
    points: list[dict[str, Any]] = [
        {"heads": h, "budget": b, "steps": s} for h, b, s in [(2, 14, 100), (4, 12, 900), (2, 12, 900), (2, 12, 950)]
    ]
    found = [r for p in points for r in records(runs(**p))]
    for order in (found, found[::-1]):
        (row,) = record_rows(order)
        assert (row["heads"], row["key_budget"], row["steps"]) == (2, 12, 900)
    assert "--steps 900" in row["command"]
    worse = records(runs(heads=2, budget=10), EXACT, EXACT, SHORT)
    assert record_rows(found + worse) == [row]


def test_a_row_for_every_cell_and_recipe() -> None:
    others = [
        Relations(items=64, d_model=16),
        replace(CELL, graph=graphs.regular(3)),
        replace(CELL, graph=graphs.power_law(loops=False)),
        replace(CELL, embeddings=embeddings.sparse(4)),
        replace(CELL, embeddings=embeddings.clustered(4, 0.25)),
    ]
    found = [r for p in [CELL, *others] for name in ("gradient", "hinge") for r in records(runs(p, recipe=name))]
    rows = record_rows(found)
    assert len(rows) == 12 and rows == sorted(rows, key=lambda r: [r[c] for c in COLUMNS[:5]])
    assert {r["graph"] for r in rows} == {"permutation", "regular --degree 3", "power-law --edges 64 --exponent 1.0 --no-loops"}
    assert {r["embeddings"] for r in rows} == {"gaussian", "sparse --ones 4", "clustered --clusters 4 --correlation 0.25"}
    for row in rows:  # a plain recipe is held to what a record needs
        assert row["command"].endswith("--target 1 --criterion all") == (row["recipe"] == "gradient")


def test_a_seed_that_needed_another_start_counts_and_the_row_says_so() -> None:
    question = relations_question(CELL, heads=[2], key_budgets=[12], recipe="solver")
    first, second, third = (list(question.runs(question.arms[0], 12, start)) for start in range(3))
    found = [*records(first, EXACT, SHORT, EXACT), *records([second[1]], SHORT), *records([third[1]], EXACT, steps=40)]
    for order in (found, found[::-1]):
        (row,) = record_rows(order)
        assert (row["seeds"], row["exact"], row["starts"], row["steps_taken"]) == (3, 3, 3, 40)
    assert row["command"].endswith("--recipe solver")  # which tries so many anyway
    fifth = list(question.runs(question.arms[0], 12, 4))
    (row,) = record_rows([*found[:3], *records([fifth[1]], EXACT)])
    assert row["starts"] == 5 and "--starts 5" in row["command"]
    assert record_rows(found[:4]) == []


def test_what_no_command_can_measure_is_no_record() -> None:
    point = runs()
    file = Relations(items=64, d_model=32, graph=graphs.Graph(name="file", edges=5, content="h" * 8))
    odd: list[list[Run]] = [
        [replace(r, recipe=replace(hinge(), bias=-1.0)) for r in point],
        [replace(r, recipe=replace(hinge(), draw=1)) for r in point],
        [replace(r, recipe=replace(hinge(), name="mine")) for r in point],
        [replace(r, stopping=replace(r.stopping, slack=0.5)) for r in point],
        [replace(r, arithmetic="fp64") for r in point],
        [replace(r, problem=file) for r in point],
        [replace(r, problem=Dichotomies(dimension=3, examples=5), instrument=LinearUnit()) for r in point],
    ]
    assert [record_rows(records(members)) for members in odd] == [[]] * len(odd)


def test_a_table_is_written_whole(tmp_path: Path) -> None:
    rows = record_rows(records(runs()))
    write_rows(rows, tmp_path / "records.csv")
    head, line = (tmp_path / "records.csv").read_text().splitlines()
    assert head.split(",") == list(COLUMNS) and line.startswith("64,32,permutation,gaussian,hinge,2,6,12,3,3,1,6000,9,")
    for bad in ("records.txt", "nowhere/records.csv"):
        with pytest.raises(BadInput, match="record table"):
            write_rows(rows, tmp_path / bad)
