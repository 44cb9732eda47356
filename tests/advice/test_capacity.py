"""Capacity by the design law: its inverse, its limits, and what token vectors that are not spread evenly take away."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyspan.advice.capacity import capacity
from keyspan.advice.spectra import stable_rank
from keyspan.evidence.design_law import Size
from keyspan.evidence.shipped import rows_effect, shipped_law
from keyspan.problems.spectrum import dimension_of
from keyspan.seeds import Stream
from keyspan.theory.bounds import gardner_budget


@given(heads=st.integers(1, 64), d_key=st.integers(1, 128), d=st.integers(1, 4096), share=st.floats(0, 1))
def test_the_law_is_inverted(heads: int, d_key: int, d: int, share: float) -> None:
    found = capacity(heads=heads, d_key=d_key, dimension=share * d, d_model=d)
    law, budget = shipped_law(), heads * min(d_key, d)
    factor = rows_effect().factor(d, share * d)

    def need(items: float) -> float:
        return (law.need(Size(int(items), d, int(items)), heads) or float("inf")) * factor.value

    assert 1 <= found.low <= found.estimate <= found.high and found.basis == "design law"
    if share == 0:
        assert found.high == 1 and found.out_of_range
        return
    if found.estimate > 1:
        assert need(found.estimate) <= budget < need(found.estimate * 1.01 + 1)
    size = Size(max(2, int(found.estimate)), d, max(2, int(found.estimate)))
    assert found.out_of_range is bool(law.outside(size))


def test_vectors_with_a_preference_hold_less() -> None:
    """As a factor of the budget, not by a smaller d: that is what clustered rows were measured to cost."""
    plain, leaning = (capacity(heads=8, d_key=16, dimension=d, d_model=128) for d in (128.0, 16.0))
    assert leaning.estimate < plain.estimate and leaning.solver == plain.solver
    assert capacity(heads=8, d_key=16, dimension=16.0).estimate < leaning.estimate
    effect = rows_effect()
    assert effect.cells >= 8 and 0 < effect.kappa < 1 and effect.factor(64, 64.0).slack == 0 < effect.factor(64, 8.0).slack


def test_known_cells_lie_within() -> None:
    """Cells measured by training: so many items, each with one edge, needed this budget."""
    for items, d, heads, d_key in ((128, 16, 8, 9), (128, 32, 2, 8), (256, 32, 8, 9), (512, 64, 2, 33)):
        found = capacity(heads=heads, d_key=d_key, dimension=d)
        assert found.low <= items <= found.high, (items, d, found)


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
