"""The laboratory measures a capacity that is known exactly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from keyspan.cli.calibrate import shortfall
from keyspan.evidence.record import Record, make_record
from keyspan.evidence.store import open_store
from keyspan.lab.fleet import sail
from keyspan.problems.dichotomies import separable_fraction
from keyspan.runners import driver
from keyspan.runners.lab import Lab
from keyspan.runners.measure import CalibrateResult, _status, calibrate, wilson
from keyspan.runners.questions import calibration_questions
from keyspan.specs import Run
from keyspan.verdict import Status, Verdict


class InProcess:
    """The fleet without worker processes, for many small calibrations in a row. backlog: records are stored together"""

    backlog = 1

    def run(self, runs: Sequence[Run], progress: Any = None, more: Any = None) -> Iterator[Record]:
        for f in sail(runs):
            yield make_record(f.run, f.verdict, **f.facts)

    def close(self) -> list[Record]:
        return []


def measured(dimension: int, seeds: int, repetitions: int, folder: Path) -> list[CalibrateResult]:
    """Independent calibrations, their rounds together."""
    questions = [calibration_questions(dimension, seeds=seeds, seed=seed)[0] for seed in range(repetitions)]
    with open_store(f"sqlite:///{folder}/store.db") as store:
        outcomes = driver.answer(questions, store, InProcess)
    return [CalibrateResult(dimension, q, o, o) for q, o in zip(questions, outcomes, strict=True)]


def test_repetitions_cover_what_is_known(tmp_path: Path) -> None:
    """The contract is 17 of 20 at dimensions 16 and 50 (docs/measure.md); here a quicker cell, with fewer draws."""
    results = measured(5, 30, 20, tmp_path)
    assert sum(r.covered for r in results) >= 17
    assert all(r.failed == 0 for r in results), "every failure to fit is proven"
    assert len({r.solver.answer.crossing for r in results}) > 10, "seeds draw their own labelings"


def test_calibration_at_dimension_16(tmp_path: Path) -> None:
    result = calibrate(16, lab=Lab(store=f"sqlite:///{tmp_path}/store.db", device="cpu"), seeds=200)
    data = result.to_dict()
    assert data["known"] == 32
    assert data["covered"]
    assert data["high"] - data["low"] < 0.1 * 32
    assert data["failed"] == 0
    assert 0 < data["gradient_shortfall"] < 0.3, "plain gradient training falls short where margins vanish"
    solver = [p for p in data["probes"] if p["recipe"] == "separator"]
    for probe in solver:
        assert probe["exact"] == separable_fraction(probe["examples"], 16)
    inside = sum(p["low"] <= p["exact"] <= p["high"] for p in solver)
    assert inside >= len(solver) - 2, "the separable fraction agrees with Cover's formula at every T"
    again = calibrate(16, lab=Lab(store=f"sqlite:///{tmp_path}/store.db", device="cpu"), seeds=200)
    assert again.to_dict() == data | {"trained_now": 0}


@pytest.mark.parametrize(("hits", "of", "low", "high"), [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0)])
def test_wilson(hits: int, of: int, low: float, high: float) -> None:
    assert wilson(hits, of) == pytest.approx((low, high), abs=1e-4)


def test_a_shortfall_in_words() -> None:
    assert shortfall(0.133) == "falls short by 13%"
    assert shortfall(-0.26).startswith("comes out 26% higher, by chance")


def test_a_probe_is_labelled_by_how_its_members_ended() -> None:
    good = Verdict(status=Status.MEASURED, exact=True, scores={"fitted": 1.0})
    failed = {status: Verdict(status=status) for status in Status if status is not Status.MEASURED}
    assert _status([good, good]) == "measured"
    for status, verdict in failed.items():
        assert _status([good, verdict]) == str(status)
    assert _status([failed[Status.DIVERGED], failed[Status.UNCONVERGED], failed[Status.DIVERGED]]) == "diverged"
