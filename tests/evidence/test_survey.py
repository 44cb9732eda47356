"""A survey counts every run once, by what it was made with; slim records give the same tables."""

from __future__ import annotations

from dataclasses import replace

from tests.cli.asked import knows

from keyspan.evidence.record import Record, make_record
from keyspan.evidence.survey import Slim, seed_sets, survey
from keyspan.lab import recipes
from keyspan.problems.dichotomies import Dichotomies
from keyspan.problems.relations import Relations
from keyspan.runners.questions import relations_question
from keyspan.runners.records import record_rows
from keyspan.specs import LinearUnit, Run
from keyspan.verdict import Status, Verdict


def cell_records(seeds: int = 3) -> list[Record]:
    question = relations_question(Relations(items=16, d_model=8), heads=[2], key_budgets=[4, 8], seeds=seeds)
    runs = [run for arm in question.arms for level in arm.levels for run in question.runs(arm, level)]
    return [make_record(run, knows(run), steps=7, seconds=0.5, device="cpu", kernel="torch", torch="2") for run in runs]


def test_every_run_is_counted() -> None:
    records = cell_records()
    lost = replace(records[0], verdict=Verdict(status=Status.DIVERGED), provenance={"device": "cuda", "seconds": True})
    unit = Run(
        problem=Dichotomies(dimension=8, examples=4),
        replicate=1_000_001,
        instrument=LinearUnit(),
        recipe=recipes.separator(),
        stopping=recipes.SEPARATOR_STOPPING,
        arithmetic="fp64",
    )
    told = survey([*records, lost, make_record(unit, knows(unit), seconds=2.0, device="cpu")]).to_dict()
    assert told["runs"] == 8 and sum(k["runs"] for k in told["kinds"]) == 8
    assert {"problem": "relations", "status": "diverged", "runs": 1} in told["kinds"]
    assert sorted(r["runs"] for r in told["recipes"]) == [1, 7] == sorted(s["runs"] for s in told["stopping"])
    assert told["recipes"][0]["recipe"]["name"] == "gradient" and told["arithmetics"] == {"fp32": 7, "fp64": 1}
    assert [(m["device"], m["runs"], m["seconds"]) for m in told["machines"]] == [
        ("cpu", 6, 3.0),
        ("cuda", 1, 0),
        ("cpu", 1, 2.0),
    ]
    assert told["seeds"] == {"distinct": 4, "sets": [[0, 2], [1_000_001, 1_000_001]]}
    assert told["first"] <= told["last"]


def test_an_empty_survey() -> None:
    told = survey([]).to_dict()
    assert (told["runs"], told["kinds"], told["first"], told["seeds"]) == (0, [], None, {"distinct": 0, "sets": []})


def test_sets_of_seeds() -> None:
    assert seed_sets([3, 1, 2, 9, 10, 5]) == [[1, 3], [5, 5], [9, 10]]


def test_slim_records_give_the_same_table() -> None:
    records = cell_records()
    exact = [replace(r, verdict=Verdict(status=Status.MEASURED, exact=True, scores=dict(r.verdict.scores))) for r in records]
    slim = Slim()
    kept = [slim(r) for r in exact]
    assert record_rows(kept) == record_rows(exact) != []
    assert kept[0].run["recipe"] is kept[1].run["recipe"] and kept[0].run_id == exact[0].run_id
