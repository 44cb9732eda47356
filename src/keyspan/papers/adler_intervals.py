"""95% intervals of the statistics of Adler's claims. Each is named like its statistic (`adler_statistics`).

curves     a bootstrap over seeds: a seed is one instance at every budget and head count, so a draw takes whole seeds
shares     Wilson's interval of a fraction, its cells or pairs taken for independent
the law    a bootstrap over cells, as in `evidence.fits`; held-out errors are drawn cell by cell, in pairs
ratios     the ends of the cells' own intervals, whichever way they make the ratio smallest and largest
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from keyspan.evidence.cells import Cell
from keyspan.papers import adler_statistics as stats
from keyspan.papers.figures import Interval
from keyspan.papers.measured import Curves, Measured
from keyspan.runners.measure import wilson
from keyspan.seeds import Stream

DRAWS = 400
Float = NDArray[np.float64]
Ends = tuple[float, float] | None


# ------------------------------------------------------------------------------------------------- over seeds


def _over_seeds(statistic: Callable[[Measured], float | None]) -> Interval:
    """Percentiles of a statistic of the curves over draws of seeds; None where most draws do not define it."""

    def interval(found: Measured) -> Ends:
        sizes = sorted({_seeds(c) for c in found.curves})
        if not sizes or sizes[0] < 2 or statistic(found) is None:
            return None
        stream = Stream(f"{found.figure.name} {found.tier}", "claims")
        picks = np.hstack([np.sort(stream.integers(n, DRAWS * n).reshape(DRAWS, n), axis=1) for n in sizes])
        distinct, counts = np.unique(picks, axis=0, return_counts=True)
        starts = np.cumsum([0, *sizes])
        drawn = []
        for pick, count in zip(distinct.tolist(), counts, strict=True):
            by_size = {n: pick[first : first + n] for n, first in zip(sizes, starts, strict=False)}
            drawn.append((statistic(_drawn(found, by_size)), int(count)))
        values = np.repeat(
            [math.nan if value is None else value for value, _ in drawn], [count for _, count in drawn]
        )  # a draw that does not define it is no number, and counts against there being an interval
        known = np.sort(values[~np.isnan(values)])
        return _ends(known) if 2 * len(known) > DRAWS else None

    return interval


def _seeds(curves: Curves) -> int:
    """Seeds that every point of a cell has."""
    return min((len(p.scores) for p in curves.points), default=0)


def _drawn(found: Measured, picks: Mapping[int, Sequence[int]]) -> Measured:
    """picks: seeds drawn, for cells of so many"""

    def line(curves: Curves) -> Curves:
        pick = picks[_seeds(curves)]
        points = tuple(replace(p, scores=tuple(p.scores[i] for i in pick)) for p in curves.points)
        return replace(curves, points=points)

    return replace(found, curves=tuple(line(c) for c in found.curves))


def _ends(known: Float) -> Ends:
    low, high = int(0.025 * len(known)), math.ceil(0.975 * len(known)) - 1
    return float(known[low]), float(known[high])


# ----------------------------------------------------------------------------------------------------- shares


def _share(count: Callable[[Measured], int]) -> Callable[[Callable[[Measured], float | None]], Interval]:
    """Wilson's interval of a share of so many. (A share that is set to 0 by its definition keeps its own ends.)"""

    def of(statistic: Callable[[Measured], float | None]) -> Interval:
        def interval(found: Measured) -> Ends:
            share, n = statistic(found), count(found)
            return None if share is None or n < 1 else wilson(round(share * n), n)

        return interval

    return of


def _cells(belongs: Callable[[Cell], bool]) -> Callable[[Measured], int]:
    return lambda found: sum(belongs(c) for c in stats.reached(found))


def _pairs(field: str) -> Callable[[Measured], int]:
    def count(found: Measured) -> int:
        sizes: dict[int, int] = {}
        for cell in stats.reached(found):
            key = int(getattr(cell, field))
            sizes[key] = sizes.get(key, 0) + 1
        return sum(n * (n - 1) // 2 for n in sizes.values())

    return count


def line_gain(found: Measured) -> Ends:
    """Over draws of cells: +1 where only the line is right, -1 where only m > d is, 0 where both are or neither."""
    cells = stats.reached(found)
    if len(cells) < stats.SHARE_CELLS:
        return None
    line = np.array([c.several_beat_one == stats.above_line(c) for c in cells], dtype=np.float64)
    plain = np.array([c.several_beat_one == (c.items > c.d_model) for c in cells], dtype=np.float64)
    return _ends(np.sort((line - plain)[_cell_draws(found, len(cells))].mean(axis=1)))


# ---------------------------------------------------------------------------------------------------- the law


def law_exponent(found: Measured) -> Ends:
    """As the fit says."""
    fitted = stats.law_of(found)
    exponent = None if fitted is None else fitted.exponent
    return None if exponent is None or exponent.low is None or exponent.high is None else (exponent.low, exponent.high)


def law_r2(found: Measured) -> Ends:
    """Over draws of cells; a draw of cells all alike has no spread to explain and is left out."""
    fitted = stats.law_of(found)
    if fitted is None:
        return None
    budgets = np.log([float(c.key_budget or 1) for c in fitted.used])
    residuals = budgets - np.log([c.law for c in fitted.used])
    picks = _cell_draws(found, len(budgets))
    spread = budgets[picks].var(axis=1)
    known = spread > 0
    values = 1 - residuals[picks][known].var(axis=1) / spread[known]
    return _ends(np.sort(values)) if len(values) else None


def log_gain(found: Measured) -> Ends:
    """Held-out errors without and with the logarithm, cell by cell, drawn together."""
    fitted = stats.law_of(found)
    if fitted is None:
        return None
    budgets = np.log([float(c.key_budget or 1) for c in fitted.used])
    laws = np.log([c.law for c in fitted.used])
    plain = np.log([c.edges / c.d_model for c in fitted.used])
    picks = _cell_draws(found, len(budgets))
    with_log, without = (_held_out(budgets - offset)[picks].mean(axis=1) for offset in (laws, plain))
    known = with_log > 0
    return _ends(np.sort(without[known] / with_log[known])) if known.any() else None


def _held_out(residuals: Float) -> Float:
    """|prediction / D_K* - 1| of every cell by the constant of all the others."""
    n = len(residuals)
    others = (residuals.sum() - residuals) / (n - 1)
    return np.asarray(np.abs(np.exp(others - residuals) - 1))


def _cell_draws(found: Measured, n: int) -> NDArray[np.int64]:
    return Stream(f"{found.figure.name} {found.tier}", "claims").integers(n, DRAWS * n).reshape(DRAWS, n)


# ------------------------------------------------------------------------------------------------------ ratios


def ratio_spread(found: Measured) -> Ends:
    """Largest D_K* / law over smallest, from the ends of the cells' intervals; open ends count as the estimate."""
    lows, highs = _ratio_ends(stats.reached(found))
    return None if not lows else (max(1.0, max(lows) / min(highs)), max(highs) / min(lows))


def diagonal_growth(found: Measured) -> Ends:
    """D_K* / law at the largest m over the smallest, from the ends of their intervals."""
    lows, highs = _ratio_ends(sorted(stats.reached(found), key=lambda c: c.items))
    return None if len(lows) < stats.DIAGONAL_CELLS else (lows[-1] / highs[0], highs[-1] / lows[0])


def _ratio_ends(cells: Sequence[Cell]) -> tuple[list[float], list[float]]:
    known = [c for c in cells if c.key_budget and c.law]
    lows = [(c.low or c.key_budget or 0) / c.law for c in known]
    highs = [(c.high or c.key_budget or 0) / c.law for c in known]
    return lows, highs


INTERVALS: Mapping[str, Interval] = {
    "threshold_width": _over_seeds(stats.threshold_width),
    "threshold_place": _over_seeds(stats.threshold_place),
    "one_head_deficit": _over_seeds(stats.one_head_deficit),
    "several_share_compressed": _share(_cells(lambda c: c.items > c.d_model))(stats.several_share_compressed),
    "one_share_uncompressed": _share(_cells(lambda c: c.items <= c.d_model))(stats.one_share_uncompressed),
    "line_gain": line_gain,
    "heads_rise_with_items": _share(_pairs("d_model"))(stats.heads_rise_with_items),
    "heads_rise_with_less_width": _share(_pairs("items"))(stats.heads_rise_with_less_width),
    "diagonal_growth": diagonal_growth,
    "law_r2": law_r2,
    "law_exponent": law_exponent,
    "log_gain": log_gain,
    "ratio_spread": ratio_spread,
}
