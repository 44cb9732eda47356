"""Fits against cells whose law is known: parameters come back, rivals lose where they should, errors are as defined."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.files.refusals import refused

from keyspan.evidence import fits
from keyspan.evidence.cells import Cell
from keyspan.evidence.fits import Fit, LawFit, fit_law, gardner_prediction
from keyspan.seeds import Stream
from keyspan.theory.bounds import gardner_budget, law

SIZES = [(m, m // r) for m in (128, 256, 512, 1024, 2048) for r in (1, 4, 16)]


def cells(budget: Callable[[int, int], float], noise: float = 0.0, sizes: list[tuple[int, int]] = SIZES) -> list[Cell]:
    """Cells that follow a law, with log-normal noise. Budgets are scaled up so that rounding is no noise of its own."""
    scatter = noise * Stream("test", "noise").normal((len(sizes),))
    out = []
    for (m, d), e in zip(sizes, scatter, strict=True):
        out.append(Cell(items=m, d_model=d, edges=m, key_budget=round(budget(m, d) * math.exp(e)), evidence=f"{m}x{d}"))
    return out


def rival(found: LawFit, name: str) -> Fit:
    return next(r for r in found.rivals if r.model == name)


def test_the_constant_comes_back() -> None:
    found = fit_law(cells(lambda m, d: 1000 * law(m, d)))
    c = found.fit.parameters["c"]
    assert c.estimate == pytest.approx(1000, rel=1e-4) and c.low == pytest.approx(1000, rel=1e-3) == c.high
    assert found.fit.mape == pytest.approx(0, abs=1e-4) and found.fit.mape_held_out == pytest.approx(0, abs=1e-4)
    assert found.fit.r2 == pytest.approx(1) and found.fit.r2_linear == pytest.approx(1)
    assert found.exponent is not None and found.exponent.estimate == pytest.approx(1, abs=1e-4)


def test_the_interval_covers_and_narrows() -> None:
    few = fit_law(cells(lambda m, d: 1000 * law(m, d), 0.2, SIZES[:6])).fit.parameters["c"]
    many = fit_law(cells(lambda m, d: 1000 * law(m, d), 0.2, SIZES * 4)).fit.parameters["c"]
    for c in (few, many):
        assert c.low is not None and c.high is not None and c.low < 1000 < c.high and c.low < c.estimate < c.high
    assert math.log((many.high or 0) / (many.low or 1)) < math.log((few.high or 0) / (few.low or 1))


def test_a_missing_logarithm_is_seen() -> None:
    found = fit_law(cells(lambda m, d: 1000 * m / d))
    without = rival(found, "no-log")
    assert without.parameters["c"].estimate == pytest.approx(1000, rel=1e-3)
    assert without.mape_held_out is not None and found.fit.mape_held_out is not None
    assert without.mape_held_out < 0.01 < found.fit.mape_held_out


def test_exponents_come_back() -> None:
    found = fit_law(cells(lambda m, d: 1e5 * m * math.log(m) / d**1.5))
    a = rival(found, "law-d-exponent").parameters["a"]
    assert a.estimate == pytest.approx(1.5, abs=1e-3) and a.low == pytest.approx(1.5, abs=1e-2) == a.high
    power = rival(fit_law(cells(lambda m, d: 1e5 * m**1.2 / d**0.7)), "power").parameters
    assert power["p"].estimate == pytest.approx(1.2, abs=1e-3) and power["a"].estimate == pytest.approx(0.7, abs=1e-3)
    assert power["c"].estimate == pytest.approx(1e5, rel=1e-2)


def test_the_gardner_budget_as_rival() -> None:
    """It has one parameter, as the law, and wins where it is the truth."""
    found = fit_law(cells(lambda m, d: 1000 * (gardner_prediction(Cell(items=m, d_model=d, edges=m)) or 0)))
    gardner = rival(found, "gardner")
    assert gardner.parameters["c"].estimate == pytest.approx(1000, rel=1e-3) and gardner.note is None
    assert gardner.aic is not None and found.fit.aic is not None and gardner.aic < found.fit.aic


def test_the_gardner_budget_is_that_of_the_best_number_of_heads() -> None:
    cell = Cell(items=512, d_model=32, edges=512)
    by_heads = [gardner_budget(512, 512, 32, 1 << k) for k in range(10)]
    assert by_heads[0] is None and gardner_prediction(cell) == min(b for b in by_heads if b is not None)


def test_a_rival_that_is_not_defined_says_so() -> None:
    found = fit_law([*cells(lambda m, d: 1000 * law(m, d)), Cell(items=64, d_model=1, edges=64, key_budget=9, evidence="x")])
    gardner = rival(found, "gardner")
    assert gardner.mape is None and gardner.parameters == {} and "64 items, d_model 1" in str(gardner.note)


def test_parameters_that_cannot_be_told_apart_get_no_number() -> None:
    diagonal = cells(lambda m, d: 1000 * law(m, d), 0.1, [(m, m // 8) for m in (128, 256, 512, 1024)])
    power = rival(fit_law(diagonal), "power")  # ln m and ln d go together
    assert power.parameters == {} and power.mape is None and "cannot be told apart" in str(power.note)
    two = fit_law(diagonal[:2])
    assert two.fit.parameters["c"].estimate > 0 and two.fit.aic is None
    assert rival(two, "law-d-exponent").mape_held_out is None  # one cell does not fix two parameters


def test_held_out_errors_are_leave_one_out() -> None:
    some = cells(lambda m, d: 1000 * law(m, d), 0.3, SIZES[:5])
    errors = []
    for k, cell in enumerate(some):
        others = [math.log((c.key_budget or 0) / c.law) for i, c in enumerate(some) if i != k]
        errors.append(abs(math.exp(float(np.mean(others))) * cell.law / (cell.key_budget or 0) - 1))
    found = fit_law(some).fit
    assert found.mape_held_out == pytest.approx(np.mean(errors), rel=1e-9)
    assert found.mape is not None and found.mape_held_out is not None and found.mape < found.mape_held_out


def test_akaike_against_its_definition() -> None:
    residuals = np.array([0.1, -0.2, 0.05, 0.12, -0.07])
    n, k = 5, 2
    expected = n * math.log(float(np.mean(residuals**2))) + 2 * k + 2 * k * (k + 1) / (n - k - 1)
    assert fits._aicc(residuals, 1) == pytest.approx(expected)


def test_censored_cells_are_named_and_left_out() -> None:
    known = cells(lambda m, d: 1000 * law(m, d))
    gone = Cell(items=64, d_model=8, edges=64, evidence="gone")
    found = fit_law([*known, gone], [("elsewhere", "because")])
    assert found.fit == fit_law(known).fit and found.fit_id == fit_law(known).fit_id
    assert [name for name, _ in found.left_out] == ["elsewhere", "64 items, d_model 8"]
    assert "not reached" in found.left_out[1][1]


def test_cells_cut_short_are_left_out() -> None:
    """Their D_K* is an upper bound: more heads were not tried."""
    known = cells(lambda m, d: 1000 * law(m, d))
    cut = replace(known[0], heads=4, most_heads=4, evidence="cut")
    found = fit_law([*known, cut])
    assert found.fit == fit_law(known).fit and "the most heads tried, 4" in found.left_out[0][1]


def test_the_fit_id_is_of_the_evidence_in_any_order() -> None:
    known = cells(lambda m, d: 1000 * law(m, d), 0.1)
    found = fit_law(known)
    assert fit_law(list(reversed(known))) == found and found.fit_id.startswith("f")
    assert fit_law([replace(known[0], evidence="other"), *known[1:]]).fit_id != found.fit_id
    assert fit_law(known[1:]).fit_id != found.fit_id


def test_too_few_cells_are_refused() -> None:
    known = cells(lambda m, d: 1000 * law(m, d))
    refused(lambda: fit_law(known[:1]), "at least 2 cells", "got 1")
    refused(lambda: fit_law([Cell(items=8, d_model=4, edges=8)] * 3), "got 0", "3 left out")


def test_the_json() -> None:
    data = fit_law(cells(lambda m, d: 1000 * law(m, d), 0.1)).to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["model"] == "law" and set(data["parameters"]["c"]) == {"estimate", "low", "high"}
    assert [r["model"] for r in data["rivals"]] == ["no-log", "law-d-exponent", "power", "gardner"]
    for row in data["cells"]:
        assert row["residual"] == pytest.approx(row["key_budget"] / row["predicted"] - 1)
    assert data["trained_now"] == 0
