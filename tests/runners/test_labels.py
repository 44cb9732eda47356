"""Labels asked and answered: what is searched, what `largest` and `yield` are, layers that are computed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.asked import ask, told
from tests.files.refusals import refused

import keyspan
from keyspan.evidence.record import Record, make_record
from keyspan.evidence.store import open_store
from keyspan.files.contents import Contents
from keyspan.lab.search import Answer, propose
from keyspan.problems.contexts import Labels
from keyspan.runners import driver, explicit
from keyspan.runners.driver import More, Progress
from keyspan.runners.estimate import estimate
from keyspan.runners.families import Context, questions_of
from keyspan.runners.grids import Point
from keyspan.runners.labels import STEP, LabelsResult, guess, labels_question, levels_of, yielded
from keyspan.seeds import Stream
from keyspan.specs import Layer, Question, Run
from keyspan.verdict import Status, Verdict

PROBLEM = Labels(context=8, d_model=16)
HELD = 300  # examples that the layer of the oracle holds; of more it answers that many, and a little fewer the more there are
BINS = {"threshold": 0.99, "heads": [0.5], "examples": [1, 1], "largest": [0] * 20, "first": [[0.5]]}


class Oracle:
    """A layer that holds `HELD` examples."""

    def run(self, runs: Sequence[Run], progress: Progress = lambda i, a, b: None, more: More = lambda: ()) -> Iterator[Record]:
        for run in runs:
            assert isinstance(run.problem, Labels) and run.problem.examples is not None
            over = run.problem.examples / (HELD + 10 * (run.replicate % 3))
            accuracy = 1.0 if over <= 1 else max(0.01, over**-0.75 if over < 2.5 else over**-2)
            scores = {"accuracy": accuracy, "loss": 0.1, "saturated": 0.6, "unsaturated_examples": 0.9}
            verdict = Verdict(
                status=Status.MEASURED, exact=accuracy == 1, scores=scores, witness={"right": 1, "saturation": BINS}
            )
            yield make_record(run, verdict, steps=5)

    def close(self) -> list[Record]:
        return []


def answered(question: Question, tmp_path: Path) -> LabelsResult:
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        (outcome,) = driver.answer([question], store, Oracle)
    return LabelsResult(question, outcome)


def test_levels_lie_a_tenth_apart_and_end_with_a_file() -> None:
    levels = levels_of(PROBLEM)
    assert levels[:30] == tuple(range(1, 31)) and levels[-1] == 2**24
    assert all(b - a == 1 or b / a <= STEP + 1 / a for a, b in itertools.pairwise(levels))
    assert levels_of(PROBLEM, rows=108)[-1] == 100


def test_both_criteria(tmp_path: Path) -> None:
    result = answered(labels_question(PROBLEM, heads=4, d_head=8), tmp_path)
    data = result.to_dict()
    found = data["capacity"]
    assert 0.95 * HELD < found["largest"] < 1.15 * HELD and found["low"] <= found["largest"] <= found["high"]
    held = {s["examples"]: s["accuracy"] * s["examples"] for s in data["scores"]}
    assert found["yield"] == int(max(held.values())) > found["largest"]
    assert found["yield_low"] <= found["yield"] <= found["yield_high"]
    assert max(held) > 2.9 * found["largest"], "it goes on beyond what is held"
    assert data["theorem"] == 4 * 7 + 1 and data["cap"] == 4 * 16 and data["target"] == 0.99
    assert data["saturation"]["examples"] <= found["largest"] and data["saturation"]["saturated"] == pytest.approx(0.6)
    assert {p["status"] for p in data["probes"]} == {"measured"} and data["trained_now"] == len(data["probes"])


def test_every_example_or_half_of_the_seeds(tmp_path: Path) -> None:
    """A target of 1 asks where half of the seeds hold all: between 300 and 320 with the oracle's three."""
    result = answered(labels_question(PROBLEM, heads=4, d_head=8, target=1), tmp_path)
    assert result.to_dict()["target"] == 1 and 290 < (result.crossing.estimate or 0) < 330


def test_what_is_given_is_measured_and_nothing_else(tmp_path: Path) -> None:
    result = answered(labels_question(PROBLEM, heads=4, d_head=8, examples=[100, 250], seeds=2), tmp_path)
    found = result.to_dict()["capacity"]
    assert [s["examples"] for s in result.to_dict()["scores"]] == [100, 250]
    assert (found["largest"], found["low"], found["high"], found["yield"]) == (None, 250, None, 250)
    only = answered(labels_question(Labels(context=8, d_model=16, examples=900), heads=4, d_head=8), tmp_path)
    assert [s["examples"] for s in only.to_dict()["scores"]] == [900] and only.crossing.low is None
    assert only.saturation is None


def test_a_search_is_a_function_of_its_question(tmp_path: Path) -> None:
    """Other seeds are other members; the levels walked depend on the verdicts alone."""
    first, second = (answered(labels_question(PROBLEM, heads=4, d_head=8, seed=s), tmp_path) for s in (0, 0))
    assert second.outcome.trained == () and first.to_dict()["run_ids"] == second.to_dict()["run_ids"]
    other = answered(labels_question(PROBLEM, heads=4, d_head=8, seed=1), tmp_path)
    assert set(other.to_dict()["run_ids"]).isdisjoint(first.to_dict()["run_ids"])


def test_the_yield_of_nothing_is_none() -> None:
    assert yielded(labels_question(PROBLEM, heads=4, d_head=8), []) is None


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        ({"heads": 0}, "--heads"),
        ({"d_head": 1.5}, "--d-head"),
        ({"recipe": "slow"}, "fast|paper"),
        ({"target": 1.5}, "--target"),
        ({"steps": 0}, "--steps"),
        ({"examples": []}, "--examples"),
        ({"examples": [0]}, "--examples"),
        ({"arithmetic": "fp8"}, "--arithmetic"),
        ({"seeds": 0}, "--seeds"),
    ],
)
def test_what_cannot_be_asked(asked: dict[str, Any], parts: str) -> None:
    refused(lambda: labels_question(PROBLEM, **({"heads": 2, "d_head": 4} | asked)), parts)


def test_examples_are_said_once() -> None:
    refused(lambda: labels_question(Labels(context=4, d_model=8, examples=5), heads=1, d_head=1, examples=7), "once")


def test_what_a_search_would_cost(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        fast = estimate([labels_question(PROBLEM, heads=4, d_head=8)], store, 1)
        slow = estimate([labels_question(PROBLEM, heads=4, d_head=8, recipe="paper")], store, 1)
    assert 9 <= fast.members <= 40 and slow.seconds > 5 * fast.seconds > 0
    assert guess(PROBLEM, 8, 8) == 2 * guess(PROBLEM, 4, 8) and guess(PROBLEM, 4, 1) < guess(PROBLEM, 4, 8)


def test_a_sweep_of_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", Stream("rows", "rows").normal((40, 8)))
    context = Context(Contents(tmp_path / "files"), tmp_path)
    fields = {"heads": 2, "d_head": 4, "context": 4, "d_model": 8, "contexts": "fixed", "tokens": "rows.npy", "seeds": 2}
    (question,) = questions_of(Point("labels", fields, "grid[0]"), context)
    assert isinstance(question.problem, Labels) and question.problem.tokens.content in context.files
    assert question.arms[0].levels[-1] == 36 and isinstance(question.instrument, Layer)


# ----------------------------------------------------------------------------------------------- computed layers


@pytest.mark.parametrize("contexts", ["random", "fixed", "perm"])
@pytest.mark.parametrize("task", ["classes", "values"])
def test_the_explicit_layer_holds_what_the_theorem_says(contexts: str, task: str) -> None:
    asked = ("--heads", 3, "--d-head", 5, "--context", 6, "--d-model", 24, "--contexts", contexts, "--task", task)
    data = told("measure", "labels", *map(str, asked), "--recipe", "explicit", "--seeds", "2")
    found = data["capacity"]
    assert (found["largest"], found["low"], found["high"], found["yield"]) == (13, 13, 13, 13) and data["theorem"] == 13
    assert all(p["exact"] and p["steps"] == 0 for p in data["probes"])
    assert told("measure", "labels", *map(str, asked), "--recipe", "explicit", "--seeds", "2")["trained_now"] == 0


@pytest.mark.parametrize(("contexts", "cap"), [("fixed", 3 * 5 + 1), ("random", 3 * 24)])
def test_random_attention_reaches_the_cap_and_no_more(contexts: str, cap: int) -> None:
    """With real values: one example more than the rank of the features cannot be solved for."""
    asked = ("--heads", 3, "--d-head", 5, "--context", 6, "--d-model", 24, "--contexts", contexts, "--task", "values")
    data = told("measure", "labels", *map(str, asked), "--recipe", "random")
    assert data["capacity"]["largest"] == cap == data["cap"]
    assert {p["examples"]: p["exact"] for p in data["probes"]} == {cap: True, cap + 1: False}


def test_a_computed_layer_says_how_it_came_about(tmp_path: Path) -> None:
    question = explicit.question(Labels(context=4, d_model=9, task="values"), heads=2, d_head=3, recipe="explicit", seeds=1)
    step = propose(question, {})
    assert not isinstance(step, Answer)
    record = explicit.carry_out(step.runs[0], Contents(tmp_path))
    assert record.verdict.scores["rank"] == 5 and record.verdict.scores["error"] < 1e-9
    assert record.verdict.scores["condition"] >= 1 and record.provenance["kernel"] == "construction"
    assert Run.from_json(record.run).run_id == record.run_id


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        (("--examples", "99"), ("--examples <= 13", "99")),
        (("--steps", "9"), ("--steps", "explicit")),
        (("--hand-out", "x.jsonl"), ("--hand-out", "explicit")),
    ],
)
def test_what_a_computed_layer_is_not_asked(more: tuple[str, ...], parts: tuple[str, ...], tmp_path: Path) -> None:
    asked = ("--heads", "3", "--d-head", "5", "--context", "6", "--d-model", "24", "--recipe", "explicit")
    ran = ask("measure", "labels", *asked, *more)
    assert ran.code == 2 and all(part in ran.err for part in parts), ran.err


# ------------------------------------------------------------------------------------------------ from end to end


def test_trained_by_a_call_of_the_package() -> None:
    cell = keyspan.Labels(context=4, d_model=8, contexts="fixed")
    result = keyspan.measure(cell, heads=2, d_head=4, examples=[4, 40], seeds=1, steps=150)
    assert isinstance(result, LabelsResult)
    data = result.to_dict()
    accuracy = {s["examples"]: s["accuracy"] for s in data["scores"]}
    assert accuracy[4] > accuracy[40] and data["trained_now"] == 2
    asked = ("--heads", "2", "--d-head", "4", "--context", "4", "--d-model", "8", "--contexts", "fixed")
    again = told("measure", "labels", *asked, "--examples", "4,40", "--seeds", "1", "--steps", "150")
    assert again == data | {"trained_now": 0}
    printed = ask("measure", "labels", *asked, "--examples", "4,40", "--seeds", "1", "--steps", "150")
    assert printed.code == 0 and "yield" in printed.out and "theorem      7" in printed.out
