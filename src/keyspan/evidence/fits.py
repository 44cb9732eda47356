"""Laws fitted to measured cells: D_K* = c m' ln m' / d, its rivals, and how well each predicts a cell it has not seen.

Every model is linear in logarithms: ln D_K* = ln(offset) + sum_k theta_k f_k, with ln c the coefficient of f = 1. It is
fitted by least squares there, because errors of capacities are relative (a budget is found to within one step of its own
size). Intervals are a 95% bootstrap over cells (percentile, 1000 draws); held-out errors leave one cell out at a time.
Errors are fractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.evidence.cells import Cell
from keyspan.seeds import Stream
from keyspan.specs import digest
from keyspan.theory.bounds import gardner_budget

DRAWS = 1000
FIT_VERSION = 1  # raised when the numbers of a fit change; it is hashed into the fit id
Float = NDArray[np.float64]


@dataclass(frozen=True)
class Model:
    """A law: ln D_K* = offset(cell) + ln c + sum of exponent * feature(cell). A parameter's sign is that of the formula."""

    name: str
    formula: str
    offset: Callable[[Cell], float | None]
    exponents: tuple[tuple[str, float, Callable[[Cell], float]], ...] = ()

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names, the constant first."""
        return ("c", *(name for name, _, _ in self.exponents))


def _log_edges(cell: Cell) -> float:
    return math.log(cell.edges)


def _log_width(cell: Cell) -> float:
    return math.log(cell.d_model)


def _log_law(cell: Cell) -> float | None:
    return math.log(cell.law) if cell.law > 0 else None


def _log_law_times_width(cell: Cell) -> float | None:
    return math.log(cell.law * cell.d_model) if cell.law > 0 else None


def gardner_prediction(cell: Cell) -> float | None:
    """The smallest Gardner budget over powers of two of heads, up to as many as there are items; None: none holds it."""
    powers = [1 << k for k in range(cell.items.bit_length())]
    found = [gardner_budget(cell.edges, cell.items, cell.d_model, h) for h in powers if h <= cell.items]
    return min((f for f in found if f is not None), default=None)


def _log_gardner(cell: Cell) -> float | None:
    found = gardner_prediction(cell)
    return math.log(found) if found else None


LAW = Model("law", "c m' ln m' / d", _log_law)
RIVALS = (
    Model("no-log", "c m' / d", lambda cell: _log_edges(cell) - _log_width(cell)),
    Model("law-d-exponent", "c m' ln m' / d^a", _log_law_times_width, (("a", -1.0, _log_width),)),
    Model("power", "c m'^p / d^a", lambda cell: 0.0, (("p", 1.0, _log_edges), ("a", -1.0, _log_width))),
    Model("gardner", "c G, the least Gardner budget", _log_gardner),
)


@dataclass(frozen=True)
class Estimate:
    """A parameter with its 95% interval; None where there are too few cells for one."""

    estimate: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Fit:
    """One model fitted. r2, aic: of ln D_K*, the scale it is fitted on    r2_linear: of D_K* itself

    mape: mean |prediction / D_K* - 1|    mape_held_out: the same for cells left out one at a time    aic: corrected for
    few cells (AICc)    cells: how many it was fitted to    note: why numbers are missing
    """

    model: str
    formula: str
    parameters: dict[str, Estimate] = field(default_factory=dict)
    mape: float | None = None
    mape_held_out: float | None = None
    r2: float | None = None
    r2_linear: float | None = None
    aic: float | None = None
    cells: int = 0
    note: str | None = None
    predictions: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON data, without the predictions."""
        return {k: v for k, v in asdict(self).items() if k != "predictions"}


@dataclass(frozen=True, kw_only=True)
class LawFit:
    """The law with its rivals, all on the same cells. used: the cells    left_out: (cell, reason)"""

    fit: Fit
    exponent: Estimate | None
    rivals: tuple[Fit, ...]
    used: tuple[Cell, ...]
    left_out: tuple[tuple[str, str], ...]
    fit_id: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan fit law`, without the head."""
        rows = [
            {
                "items": cell.items,
                "d_model": cell.d_model,
                "edges": cell.edges,
                "graph": cell.graph,
                "embeddings": cell.embeddings,
                "key_budget": cell.key_budget,
                "low": cell.low,
                "high": cell.high,
                "predicted": predicted,
                "residual": (cell.key_budget or 0) / predicted - 1,
            }
            for cell, predicted in zip(self.used, self.fit.predictions, strict=True)
        ]
        return self.fit.to_dict() | {
            "exponent": None if self.exponent is None else asdict(self.exponent),
            "rivals": [rival.to_dict() for rival in self.rivals],
            "cells": rows,
            "left_out": [{"cell": name, "reason": reason} for name, reason in self.left_out],
            "fit_id": self.fit_id,
            "run_ids": sorted({run_id for cell in self.used for run_id in cell.run_ids}),
            "trained_now": 0,
        }


def fit_law(cells: Sequence[Cell], left_out: Sequence[tuple[str, str]] = ()) -> LawFit:
    """Fit D_K* = c m' ln m' / d and its rivals to the cells that reached their target; the others are named.

    fit_id: hash of the model and of the evidence (the run ids) of every cell used. exponent: of the law itself, fitted as
    ln D_K* = s ln(m' ln m' / d) + const; 1 where D_K* is proportional to it.
    """
    used = tuple(sorted((cell for cell in cells if _unfit(cell) is None), key=_order))
    unfit = [(cell.name, why) for cell in cells if (why := _unfit(cell)) is not None]
    if len(used) < 2:
        raise BadInput(
            f"A fit must have at least 2 cells that reached their target, but got {len(used)} "
            f"({len(unfit) + len(left_out)} left out). Measure more cells: keyspan reproduce adler:fig3 --tier smoke."
        )
    fit_id = digest({"model": LAW.name, "version": FIT_VERSION, "evidence": sorted(c.evidence for c in used)}, "f")
    slope = Model("exponent", "c (m' ln m' / d)^s", lambda cell: 0.0, (("s", 1.0, lambda cell: _log_law(cell) or 0.0),))
    fit, power, *rivals = fit_models((LAW, slope, *RIVALS), used, fit_id)
    return LawFit(
        fit=fit,
        exponent=power.parameters.get("s"),
        rivals=tuple(rivals),
        used=used,
        left_out=(*left_out, *unfit),
        fit_id=fit_id,
    )


def fit_models(models: Sequence[Model], cells: Sequence[Cell], identity: str) -> list[Fit]:
    """Several models fitted to the same cells, with the same draws of cells. identity: what these are drawn from"""
    n = len(cells)
    draws = Stream(identity, "bootstrap").integers(n, DRAWS * n).reshape(DRAWS, n)
    return [_fit(model, cells, draws) for model in models]


def _unfit(cell: Cell) -> str | None:
    """Why a cell has no D_K* to fit, or None."""
    if cell.key_budget is None:
        return "D_K* was not reached with d_key <= d_model"
    if cell.cut_short:
        return f"the most heads tried, {cell.most_heads}, are the best: more might do with less"
    return "the law is 0 for a single edge" if cell.law <= 0 else None


def _order(cell: Cell) -> tuple[int, int, int, str, str, str]:
    return cell.items, cell.d_model, cell.edges, cell.graph, cell.embeddings, cell.evidence


def _fit(model: Model, cells: Sequence[Cell], draws: NDArray[np.int64]) -> Fit:
    """One model on these cells, or the reason why it cannot be fitted to them."""
    offsets = [model.offset(cell) for cell in cells]
    undefined = [cell.name for cell, offset in zip(cells, offsets, strict=True) if offset is None]
    if undefined:
        return Fit(model=model.name, formula=model.formula, note=f"not defined for {undefined[0]} (of {len(undefined)})")
    design = np.array([[1.0, *(sign * f(cell) for _, sign, f in model.exponents)] for cell in cells], dtype=np.float64)
    offset = np.array(offsets, dtype=np.float64)
    budgets = np.array([cell.key_budget for cell in cells], dtype=np.float64)
    target = np.log(budgets) - offset
    theta = _solve(design, target)
    if theta is None:
        why = f"{len(model.parameters)} parameters cannot be told apart on {len(cells)} cells like these"
        return Fit(model=model.name, formula=model.formula, note=why)
    predicted = np.exp(design @ theta + offset)
    residuals = target - design @ theta
    return Fit(
        model=model.name,
        formula=model.formula,
        parameters=_intervals(model, theta, *_solve_all(design[draws], target[draws])),
        mape=_mape(predicted, budgets),
        mape_held_out=_held_out(design, target, offset, budgets),
        r2=_r2(np.log(budgets), residuals),
        r2_linear=_r2(budgets, budgets - predicted),
        aic=_aicc(residuals, len(model.parameters)),
        cells=len(cells),
        predictions=tuple(float(p) for p in predicted),
    )


def _solve(design: Float, target: Float) -> Float | None:
    """Least squares; None where the columns are not independent, so that no parameter has a value."""
    thetas, known = _solve_all(design[None], target[None])
    return thetas[0] if known[0] else None


def _solve_all(designs: Float, targets: Float) -> tuple[Float, NDArray[np.bool_]]:
    """Least squares of many fits at once. designs: (fits, cells, k); targets: (fits, cells); returns: (fits, k), (fits,)

    The second says which fits are determined: their columns are independent, at least as many cells as parameters.
    """
    k = designs.shape[-1]
    gram = np.einsum("fnk,fnl->fkl", designs, designs)
    known = np.linalg.cond(gram) < 1e12
    known &= designs.shape[1] >= k
    gram[~known] = np.eye(k)
    right = np.einsum("fnk,fn->fk", designs, targets)
    return np.linalg.solve(gram, right[..., None])[..., 0], known


def _intervals(model: Model, theta: Float, drawn: Float, known: NDArray[np.bool_]) -> dict[str, Estimate]:
    """Estimates with percentile intervals over the draws that fix the parameters, c brought back from its logarithm."""
    ends = np.quantile(drawn[known], [0.025, 0.975], axis=0) if 2 * known.sum() > DRAWS else None
    out = {}
    for k, name in enumerate(model.parameters):
        values = [theta[k], *([] if ends is None else ends[:, k])]
        numbers = [float(np.exp(v)) if name == "c" else float(v) for v in values]
        low, high = (numbers[1], numbers[2]) if ends is not None else (None, None)
        out[name] = Estimate(numbers[0], low, high)
    return out


def _mape(predicted: Float, measured: Float) -> float:
    return float(np.mean(np.abs(predicted / measured - 1)))


def _held_out(design: Float, target: Float, offset: Float, budgets: Float) -> float | None:
    """Mean relative error of every cell predicted from the others; None where the others do not fix the parameters."""
    errors = []
    for k in range(len(target)):
        rest = np.arange(len(target)) != k
        theta = _solve(design[rest], target[rest])
        if theta is None:
            return None
        errors.append(abs(math.exp(float(design[k] @ theta + offset[k])) / budgets[k] - 1))
    return float(np.mean(errors))


def _r2(values: Float, residuals: Float) -> float | None:
    spread = float(np.sum((values - values.mean()) ** 2))
    return None if spread == 0 else 1 - float(np.sum(residuals**2)) / spread


def _aicc(residuals: Float, parameters: int) -> float | None:
    """Akaike's criterion with the correction for few cells; the variance is one more parameter."""
    n, k = len(residuals), parameters + 1
    square = float(residuals @ residuals)
    if n <= k + 1 or square <= 1e-20 * n:
        return None
    return n * math.log(square / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1)
