"""Sequences asked and answered: measures, regimes, doubled steps, ceilings, cells recovered, predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.asked import ask, told
from tests.files.refusals import refused
from tests.recitals import RIDE, capacity, knows

import keyspan
from keyspan.decoders import Decoder
from keyspan.evidence.record import Record, make_record
from keyspan.evidence.sequence_cells import reading
from keyspan.evidence.store import open_store
from keyspan.files.contents import Contents
from keyspan.problems import graphs, sequences
from keyspan.problems.sequences import Sequences
from keyspan.runners import driver
from keyspan.runners.driver import More, Progress
from keyspan.runners.families import Context, questions_of
from keyspan.runners.grids import Point
from keyspan.runners.lab import Lab
from keyspan.runners.sequence_fits import fit_sequences, predict_sequences, recover
from keyspan.runners.sequences import SequencesResult, answered, ask_sequences, instances_of
from keyspan.specs import Run
from keyspan.verdict import Verdict

CELL: dict[str, Any] = {"heads": 2, "d_model": 8}
TINY = (
    "measure",
    "sequences",
    "--heads",
    "1",
    "--length",
    "6",
    "--d-model",
    "6",
    "--vocab",
    "16",
    "--seeds",
    "2",
    "--jobs",
    "1",
)


class Oracle:
    """Decoders whose capacity is known."""

    def __init__(self, rule: Any = knows) -> None:
        self.rule = rule

    def __call__(self) -> Oracle:
        return self

    def run(self, runs: Sequence[Run], progress: Progress = lambda i, a, b: None, more: More = lambda: ()) -> Iterator[Record]:
        for run in runs:
            yield make_record(run, self.rule(run), steps=5)

    def close(self) -> list[Record]:
        return []


def result(tmp_path: Path, rule: Any = knows, **given: Any) -> SequencesResult:
    asked = ask_sequences(Sequences(length=16), **CELL | given)
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        outcomes = driver.answer(list(asked.questions), store, Oracle(rule))
    level = reading(asked.questions, [o.answer for o in outcomes], asked.bits, asked.measure).library
    return SequencesResult(asked, tuple(outcomes), instances_of(asked, level, Contents(None)))


def test_a_ladder_finds_the_peak_and_what_is_held_whole(tmp_path: Path) -> None:
    data = result(tmp_path, measure="ladder", regime="budgeted").to_dict()
    held = capacity(Run.from_json(_run(tmp_path)))
    assert data["capacity"]["mac"] == pytest.approx(held, rel=0.05) and data["capacity"]["mls"] <= data["capacity"]["mac"]
    assert data["status"] == "measured" and data["moved"] is None and data["limited_by"] is None
    assert data["nearly"] >= data["capacity"]["mls"] and data["capacity"]["low"] <= data["capacity"]["mac"]


def _run(tmp_path: Path) -> dict[str, Any]:
    with open_store(f"sqlite:///{tmp_path}/s.db", read_only=True) as store:
        return dict(next(iter(store.records())).run)


def test_a_ride_is_asked_twice_and_says_whether_it_moved(tmp_path: Path) -> None:
    found = result(tmp_path, seeds=2).to_dict()
    assert found["steps"] == 8000 and found["status"] == "measured" and abs(found["moved"]) < 0.02
    assert found["capacity"]["mls"] is None and found["bits_per_parameter"] > 0

    def moving(run: Run) -> Verdict:
        verdict = knows(run)
        share = 1.05 if run.recipe.steps == 8000 else 1.0  # type: ignore[attr-defined]
        return replace(verdict, scores={**verdict.scores, "recited": share * verdict.scores["recited"]})

    (tmp_path / "moving").mkdir()
    moved = result(tmp_path / "moving", rule=moving, seeds=2).to_dict()
    assert moved["status"] == "unconverged" and moved["moved"] == pytest.approx(0.05, abs=0.001)


def test_steps_are_doubled_again_while_that_moves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(run: Run) -> Verdict:
        verdict = knows(run)
        share = {100: 0.6, 200: 0.9, 400: 1.0, 800: 1.0}[run.recipe.steps]  # type: ignore[attr-defined]
        return replace(verdict, scores={**verdict.scores, "recited": share * verdict.scores["recited"]})

    monkeypatch.setattr("keyspan.runners.lab.LocalRunner", lambda *a, **k: Oracle(slow))
    given: dict[str, Any] = CELL | {"steps": 100, "seeds": 2}
    first = ask_sequences(Sequences(length=16), **given)
    lab = Lab(store=f"sqlite:///{tmp_path}/s.db")
    once = answered(first, lab, 1, given).to_dict()
    assert (once["steps"], once["status"]) == (200, "unconverged")
    more = answered(first, lab, 8, given).to_dict()
    assert (more["steps"], more["status"]) == (800, "measured") and more["trained_now"] == 4


def test_a_ceiling_of_the_data_is_said_and_is_no_capacity(tmp_path: Path) -> None:
    """The public code of a follow-up read such a ceiling, of repeated keys, as the capacity of its models."""
    walks = Sequences(length=4, vocabulary=12, prompt=2, source=sequences.walks(graphs.out_regular(2)), library=200)
    asked = ask_sequences(walks, heads=2, d_model=64, measure="literal", steps=8, seeds=2, twice=False)
    (question,) = asked.questions
    ceilings = [i.ceiling for i in instances_of(asked, 200, Contents(None))]
    assert max(ceilings) < 110  # 24 pairs begin walks of 4 ways each: most of 200 walks cannot be told from another

    def all_that_can_be(run: Run) -> Verdict:
        verdict = knows(run)
        ceiling = run.problem.instance(run.problem_id, Contents(None)).ceiling  # type: ignore[attr-defined]
        return replace(verdict, scores={**verdict.scores, "recited": float(ceiling)})

    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        outcomes = driver.answer([question], store, Oracle(all_that_can_be))
    data = SequencesResult(asked, tuple(outcomes), instances_of(asked, 200, Contents(None))).to_dict()
    assert data["limited_by"] == "data" and data["capacity"]["mac"] == data["data_ceiling"] == sum(ceilings) / 2


def test_cells_are_recovered_from_records_and_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyspan.evidence.fits_ecm.STARTS", 2)
    grid = [(h, n, b) for h in (1, 2, 4) for n in (8, 16) for b in (8, 16)]
    url = f"sqlite:///{tmp_path}/s.db"
    asked = [ask_sequences(Sequences(length=n), heads=h, d_model=b, seeds=2) for h, n, b in grid]
    with open_store(url) as store:
        driver.answer([q for a in asked for q in a.questions], store, Oracle())
        cells, left_out = recover(store.records())
    assert len(cells) == len(grid) and not left_out and {c.seeds for c in cells} == {2}
    fit = fit_sequences(store=url, draws=2).to_dict()
    assert fit["cells_used"] == 12 and fit["model"] in ("per-parameter-H", "budget") and fit["mape"] < 0.03
    assert {r["model"] for r in fit["rivals"]} >= {"ecm-max", "ecm-min", "poly-5", "per-parameter"}
    predicted = predict_sequences(store=url, heads=2, d_model=16, length=16, model="per-parameter-H").to_dict()
    measured = next(c for c in cells if (c.heads, c.length, c.d_model) == (2, 16, 16))
    assert predicted["capacity"]["estimate"] == pytest.approx(measured.capacity, rel=0.03)
    assert predicted["outside"] == [] and predicted["source"] == url
    cheapest = predict_sequences(store=url, capacity=200, length=16, heads=4, model="per-parameter-H").to_dict()["cheapest"]
    assert cheapest[0]["heads"] == 4 and cheapest[0]["capacity"] >= 200


def test_design_finds_the_cheapest_decoder_too(tmp_path: Path) -> None:
    cells = [f"{h},{n},{b},{b * b // n}\n" for h in (1, 2) for n in (4, 8) for b in (8, 16)]
    (tmp_path / "cells.csv").write_text("heads,length,d_model,capacity\n" + "".join(cells))
    assert "--length" in ask("design", "--recite", "40").err
    assert "--items" in ask("design", "--recite", "40", "--length", "8", "--items", "4").err
    empty = ("--store", f"sqlite:///{tmp_path}/none.db")
    refusal = ask("design", "--recite", "40", "--length", "8", *empty)
    assert refusal.code == 2 and "harma:capacity" in refusal.err  # nothing measured, so nothing is promised
    found = told("predict", "ecm", "--capacity", "40", "--length", "8", "--from", tmp_path / "cells.csv")["cheapest"]
    assert found and found[0]["capacity"] >= 40


def test_a_sweep_asks_as_the_command_does() -> None:
    fields = {"heads": 2, "length": 16, "d_model": 8, "regime": "budgeted"}
    asked = questions_of(Point("sequences", fields, "grid 1"), Context(Contents(None), Path()))
    assert asked == list(ask_sequences(Sequences(length=16), **CELL, regime="budgeted").questions)


def test_trained_for_real(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lab.db"
    given = (*TINY, "--steps", "80", "--store", url)
    first, again = told(*given), told(*given)
    assert first["trained_now"] == 4 and again["trained_now"] == 0
    assert {k: v for k, v in first.items() if k != "trained_now"} == {k: v for k, v in again.items() if k != "trained_now"}
    assert first["capacity"]["mac"] > 0 and first["measure"] == "ride" and first["regime"] == "saturated"
    assert len(first["run_ids"]) == 4 and first["data_ceiling"] == first["library"]
    python = keyspan.measure(
        keyspan.Sequences(length=6, vocabulary=16), lab=keyspan.Lab(store=url), heads=1, d_model=6, seeds=2, steps=80
    )
    assert python.to_dict()["capacity"] == first["capacity"]


def test_what_another_machine_trains_comes_home(tmp_path: Path) -> None:
    from keyspan.lab import worker

    questions, url = tmp_path / "box" / "questions.jsonl", f"sqlite:///{tmp_path}/lab.db"
    questions.parent.mkdir()
    given = (*TINY, "--steps", "40", "--store", url)
    assert ask(*given, "--hand-out", questions).code == 0
    assert worker.main([str(questions), "--out", str(tmp_path / "home"), "--device", "cpu"]) == 0
    assert told("runs", "import", tmp_path / "home", "--store", url)["added"] == 4
    assert told(*given)["trained_now"] == 0


def test_a_dry_run_says_what_it_costs(tmp_path: Path) -> None:
    large = ("--heads", "16", "--d-model", "512", "--layers", "4", "--length", "64", "--vocab", "1024")
    data = told("measure", "sequences", *large, "--dry-run", "--store", f"sqlite:///{tmp_path}/lab.db")
    assert data["members"] == 6 and data["flops"] > 1e15 and data["memory_bytes"] > 1e8


def test_what_makes_no_sense_is_refused() -> None:
    refused(lambda: ask_sequences(Sequences(length=8), **CELL, measure="guess"), "--measure")
    refused(lambda: ask_sequences(Sequences(length=8), **CELL, regime="lucky"), "--regime")
    refused(lambda: ask_sequences(Sequences(length=8), **CELL, steps=2), "--steps")
    refused(lambda: predict_sequences(length=8, heads=1), "--d-model", "--capacity")
    refused(lambda: ask_sequences(Sequences(length=8), heads=2, d_model=8, attention="window"), "--window")


def test_a_ride_reads_a_little_below_the_peak() -> None:
    assert 0.8 < RIDE < 1.05
    decoder = Decoder(**CELL)
    both = [ask_sequences(Sequences(length=16), decoder=decoder, measure=m).questions[0] for m in ("ride", "ladder")]
    assert both[0].arms[0].levels[0] >= max(both[1].arms[0].low, 64)
