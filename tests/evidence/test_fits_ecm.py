"""The laws of sequences fitted: to cells that a law made, and to 80 cells of an early program (tests/data/decoders.csv)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.files.refusals import refused

from keyspan.evidence.fits_ecm import EcmFit, arrays, fit_ecm, usable, wilson
from keyspan.evidence.sequence_cells import SequenceCell, cells_csv, read_cells, student

DATA = Path(__file__).parent.parent / "data" / "decoders.csv"


@pytest.fixture(scope="module")
def early() -> EcmFit:
    with pytest.MonkeyPatch.context() as few:
        few.setattr("keyspan.evidence.fits_ecm.STARTS", 3)
        return fit_ecm(read_cells(DATA), "saturated", draws=4)


def test_parameters_decide_and_the_published_form_does_not(early: EcmFit) -> None:
    best, printed = early.best, early.law("ecm-max")
    assert best.model in ("per-parameter-H", "budget") and best.mape is not None and best.mape < 0.06
    assert best.parameters["rho"].estimate == pytest.approx(2.1, abs=0.1)
    assert printed.mape == pytest.approx(0.334, abs=0.01)
    heads = {fit.model: fit.split("heads") for fit in early.fits}
    assert all(split is not None and split.value == 5 and split.cells == 16 for split in heads.values())
    assert heads["ecm-max"].mape.estimate == pytest.approx(0.344, abs=0.01)  # type: ignore[union-attr]
    assert heads["per-parameter-H"].mape.estimate < 0.06  # type: ignore[union-attr]


def test_only_unseen_cells_tell_a_polynomial_from_a_law(early: EcmFit) -> None:
    rival, ours = early.law("poly-5"), early.law("per-parameter-H")
    assert rival.mape is not None and ours.mape is not None and rival.mape < ours.mape / 2
    assert rival.mape_held_out is not None and ours.mape_held_out is not None
    assert rival.mape_held_out > 5 * ours.mape_held_out
    assert rival.note is not None and "56" in rival.note and rival.parameters == {}


def test_draws_are_the_same_cells_for_every_law(early: EcmFit) -> None:
    one, other = (early.law(name).split("heads") for name in ("per-parameter-H", "budget"))
    assert one is not None and other is not None and len(one.errors) == len(other.errors) == 4
    assert one.errors == pytest.approx(other.errors, abs=0.02)  # without a bound the two laws are one
    assert "errors" not in one.to_dict() and "constants" not in early.best.to_dict()


def test_the_share_above_is_of_the_cells_held_out(early: EcmFit) -> None:
    split = early.law("per-parameter-H").split("heads")
    assert split is not None
    test = [c for c in early.used if c.heads == 5]
    constants = early.law("per-parameter-H").constants
    held = np.array([c.capacity for c in test])
    rough = (held >= constants[0] * (1 - constants[1] / 5) * arrays(test).asked * 0.98).mean()
    assert abs(split.above.estimate - rough) < 0.3 and split.above.low is not None and split.above.low <= split.above.estimate


def test_the_same_cells_give_the_same_fit(early: EcmFit) -> None:
    again = fit_ecm(list(reversed(early.used[::4])), "saturated", draws=1)
    once = fit_ecm(early.used[::4], "saturated", draws=1)
    assert again.fit_id == once.fit_id != early.fit_id and again.best.constants == once.best.constants


def test_what_does_not_count_is_named() -> None:
    cells = read_cells(DATA)
    odd = [
        replace(cells[0], status="unconverged", moved=0.05),
        replace(cells[1], capacity=0.0),
        replace(cells[2], failed=1),
        replace(cells[3], regime="budgeted"),
        *cells[4:],
    ]
    good, gone = usable(odd, "saturated")
    assert len(good) == 76 and [why[:12] for _, why in gone] == ["unconverged:", "nothing was ", "1 members ha"]
    refused(lambda: fit_ecm(cells[:5], "saturated"), "at least 6 cells", "harma:capacity")


def test_cells_survive_their_file(tmp_path: Path) -> None:
    cells = read_cells(DATA)
    assert len(cells) == 80 and cells[0].parameters == 1960 + 64 and cells[0].bits == 36.0
    (tmp_path / "again.csv").write_text(cells_csv(cells))
    assert read_cells(tmp_path / "again.csv") == cells


@pytest.mark.parametrize("text, says", [
    ("heads,d_model\n1,8\n", "capacity"),
    ("heads,d_model,length,capacity\n1,eight,8,5\n", "`d_model` must be a number"),
    ("heads,d_model,length,capacity\n,8,8,5\n", "`heads` must be a whole number"),
])  # fmt: skip
def test_bad_files_are_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text(text)
    refused(lambda: read_cells(tmp_path / "bad.csv"), says)


def test_intervals() -> None:
    assert student([3.0]) == (None, None)
    low, high = student([10.0, 12.0])
    assert low is not None and high is not None and low < 10 and high > 12
    assert wilson(5, 10)[0] < 0.5 < wilson(5, 10)[1] and wilson(0, 4)[0] == 0.0


def test_cells_are_hashable_and_so_fits_can_be_remembered() -> None:
    assert isinstance(hash(SequenceCell(heads=1, d_model=8, d_head=8)), int)
