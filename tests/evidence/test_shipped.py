"""What ships with the package: where it comes from, how it was split, and what is read off it."""

from __future__ import annotations

import pytest

from keyspan.evidence.cells import Cell
from keyspan.evidence.design_law import Size
from keyspan.evidence.shipped import Shipped, cells_of, near, rows_effect, shipped, shipped_law, target_factor
from keyspan.studies.design_cells import command, plan


def test_every_row_is_one_that_was_planned() -> None:
    planned = {(p.role, command(p.problem)) for p in plan()}
    rows = [(row.role, row.command) for row in shipped()]
    assert set(rows) <= planned and len(set(rows)) == len(rows)
    assert all(row.cell.recipe == "gradient" and row.cell.target == 0.99 and row.cell.seeds == 3 for row in shipped())
    assert all(row.cell.failed == 0 and row.cell.evidence.startswith("e") for row in shipped())


def test_held_out_cells_share_nothing_with_the_fit() -> None:
    fitted, held = cells_of("fit"), cells_of("held-out")
    for part in ("items", "d_model", "graph"):
        assert not {getattr(c, part) for c in fitted} & {getattr(c, part) for c in held}, part


def test_what_the_law_rests_on() -> None:
    law, part = shipped_law(), shipped_law(("fit",))
    assert law.cells == len(cells_of("fit", "held-out")) and part.cells == len(cells_of("fit"))
    assert law.recipe == "gradient" and law.error < 0.12 and 0.85 <= law.covered <= 0.95
    found = law.expected(Size(128, 32, 128))
    assert found is not None and found.low <= 16 <= found.high  # measured


def test_targets_and_rows() -> None:
    factors = [target_factor(t) for t in (0.2, 0.5, 0.85, 0.95, 0.99, 1.0)]
    values = [f.value for f in factors]
    assert values == sorted(values) and values[0] == values[1] < 1 <= values[-1]
    assert target_factor(0.99) == target_factor(0.99) and target_factor(0.99).slack == 0 < target_factor(0.9).slack
    assert 0 < rows_effect().kappa < 1 and rows_effect().factor(64, 63.9).value == pytest.approx(1, abs=0.01)


def test_the_cell_of_just_this_size() -> None:
    cells = cells_of("fit")
    found = near(128, 32, 128, "permutation", cells)
    assert isinstance(found, Cell) and found.key_budget == 16
    assert near(128, 32, 128, "regular", cells) is None and near(127, 32, 128, None, cells) is None
    assert isinstance(shipped()[0], Shipped)
