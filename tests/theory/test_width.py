"""The width of heads of low rank: against random matrices, against its own limits, and the symmetry that it predicts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyspan.errors import BadInput
from keyspan.seeds import Stream
from keyspan.theory.gardner import gardner_load, heads_needed
from keyspan.theory.width import rank_needed, rho_of_width, top_share, width_budget, width_floor


def test_the_share_is_that_of_random_matrices() -> None:
    """Squared singular values of gaussian matrices of 200 x 200; the limit is off by about 1/d."""
    stream = Stream("widths", "matrices")
    spectra = [np.linalg.svd(stream.normal((200, 200)), compute_uv=False) ** 2 for _ in range(3)]
    for rank in (1, 2, 5, 20, 50, 100, 150, 200):
        seen = np.mean([s[:rank].sum() for s in spectra]) / 200**2
        assert top_share(rank / 200) == pytest.approx(seen, rel=0.03)


def test_a_thin_head_counts_twice_its_degrees_of_freedom_and_a_full_one_once() -> None:
    assert rho_of_width(1e-6) == pytest.approx(0.5, abs=1e-3) and rho_of_width(1.0) == 1.0
    assert top_share(0.0) == 0.0 and top_share(1.0) == 1.0 and top_share(1e-6) == pytest.approx(4e-6, rel=1e-3)
    rhos = [rho_of_width(t / 50) for t in range(1, 51)]
    assert rhos == sorted(rhos) and all(0.5 < r <= 1 for r in rhos)


@given(st.floats(1e-9, 1.0))
def test_rank_and_share_undo_each_other(rank: float) -> None:
    """Near full rank F is flat: its share tells a rank no better than its own rounding allows."""
    flat = 1e-15 / max(1 - rank, 1e-5) ** 2
    assert rank_needed(top_share(rank)) == pytest.approx(rank, rel=1e-9, abs=flat)


def test_above_full_rank_nothing_will_do() -> None:
    assert rank_needed(1.0) == 1.0 and rank_needed(1.0 + 1e-12) is None
    assert width_budget(512, 512, 32, 4) is None and width_budget(512, 512, 32, 5) is not None
    assert heads_needed(512, 512, 32) == 5  # the same line: at full rank the width is d^2


def test_the_budget_solves_its_equation() -> None:
    for items, d_model, heads in ((256, 64, 1), (512, 64, 4), (1024, 64, 16), (128, 16, 8)):
        for excess in (0.9, 1.0, 1.1):
            budget = width_budget(items, items, d_model, heads, excess=excess)
            assert budget is not None
            held = heads * d_model**2 * top_share(budget / (heads * d_model))
            assert held == pytest.approx(excess * gardner_load(items, items, heads), rel=1e-9)


@given(items=st.integers(64, 2000), ratio=st.integers(1, 16), heads=st.integers(1, 64))
def test_twice_the_items_in_twice_the_width_want_half_the_heads(items: int, ratio: int, heads: int) -> None:
    """P(m, h) is m times a function of h m, nearly: the pairs that are none are m^2 - m'. So the budget is the same."""
    d_model = max(8, items // ratio)
    small, large = width_budget(items, items, d_model, 2 * heads), width_budget(2 * items, 2 * items, 2 * d_model, heads)
    if small is not None and large is not None:
        assert large == pytest.approx(small, rel=0.02)


def test_it_lies_below_the_count_of_degrees_of_freedom() -> None:
    for items, d_model, heads in ((256, 64, 1), (512, 64, 4), (1024, 64, 16)):
        load = gardner_load(items, items, heads)
        counted = heads * (d_model - math.sqrt(d_model**2 - load / heads))
        width = width_budget(items, items, d_model, heads)
        assert width is not None and counted / 2 < width < counted


def test_the_freedom_to_choose_owners_lowers_the_floor_where_there_is_one() -> None:
    for items, d_model, heads in ((256, 64, 1), (512, 64, 4), (1024, 64, 16)):
        budget, floor = width_budget(items, items, d_model, heads), width_floor(items, items, d_model, heads)
        assert budget is not None and floor is not None
        assert floor == budget if heads == 1 else 0 < floor < budget
    assert width_budget(512, 512, 32, 2) is None and width_floor(512, 512, 32, 2) is not None


def test_sizes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(BadInput, match="d_model >= 1"):
        width_budget(5, 5, 0, 1)
