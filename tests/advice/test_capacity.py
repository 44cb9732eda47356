"""Capacity by the law: its inverse, its limits, and the width that stands for tokens that are not spread evenly."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyspan.advice.capacity import ITEMS, WIDTHS, capacity, dimension_of
from keyspan.advice.spectra import stable_rank
from keyspan.seeds import Stream
from keyspan.theory.bounds import TRAINED_OVER_LAW, gardner_budget


def law(edges: float, d: float) -> float:
    return edges * math.log(edges) / d


@given(heads=st.integers(1, 64), d_key=st.integers(1, 128), dimension=st.floats(1, 4096))
def test_the_law_is_inverted(heads: int, d_key: int, dimension: float) -> None:
    found = capacity(heads=heads, d_key=d_key, dimension=dimension)
    budget = heads * min(d_key, dimension)
    least, most = TRAINED_OVER_LAW
    assert law(found.estimate, dimension) == pytest.approx(budget, rel=1e-9)
    assert most * law(found.low, dimension) == pytest.approx(budget, rel=1e-9)
    assert least * law(found.high, dimension) == pytest.approx(budget, rel=1e-9)
    assert found.low < found.estimate < found.high and found.basis == "law"
    inside = ITEMS[0] <= found.estimate <= ITEMS[1] and WIDTHS[0] <= dimension <= WIDTHS[1]
    assert found.out_of_range is not inside


def test_known_cells_lie_within() -> None:
    """Cells measured by training: so many items, each with one edge, needed this budget."""
    for items, d, heads, d_key in ((128, 16, 8, 9), (128, 32, 2, 8), (512, 64, 2, 24), (1024, 128, 2, 28)):
        found = capacity(heads=heads, d_key=d_key, dimension=d)
        assert found.low <= items <= found.high, (items, d, found)
        assert found.out_of_range is (items == 1024)  # the estimate lies just above it


def test_the_solver_holds_what_its_budget_says() -> None:
    found = capacity(heads=4, d_key=16, dimension=64)
    assert found.solver is not None
    within, above = (gardner_budget(n, n, 64, 4) for n in (int(found.solver), int(found.solver * 1.01) + 1))
    assert within is not None and above is not None and within <= 64 < above
    assert capacity(heads=4, d_key=16, dimension=5).solver is None
    assert capacity(heads=1, d_key=64, dimension=64).solver == pytest.approx(544, rel=0.03)  # where one head is full


@pytest.mark.parametrize("items, d", [(100, 40), (400, 40), (2000, 64)])
def test_gaussian_rows_have_their_own_dimension(items: int, d: int) -> None:
    rows = Stream("rows", f"{items}").normal((items, d))
    stable = float(stable_rank(np.asarray(np.linalg.svd(rows, compute_uv=False), dtype=np.float64)))
    assert dimension_of(stable, items, d) == pytest.approx(d, rel=0.12)
    assert dimension_of(1e9, items, d) == d
