"""What claims about Adler's figures are tested on: functions of what a figure measured, which know no threshold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from keyspan.evidence.cells import Cell
from keyspan.evidence.fits import LawFit, fit_law
from keyspan.papers.figures import Statistic
from keyspan.papers.measured import Curves, Measured
from keyspan.theory.bounds import gardner_load

FIT_CELLS = 6  # below, a fit of two parameters says nothing
SHARE_CELLS = 2  # below, a share of cells or pairs says nothing
DIAGONAL_CELLS = 3  # below, two ends are no trend
LOW_F1 = 0.5  # where a curve begins to rise

# ----------------------------------------------------------------------------------------------- F1 against D_K


def threshold_width(found: Measured) -> float | None:
    """Over cells, the largest of (smallest D_K with F1 at the target) / (largest D_K before it with F1 below 0.5)."""
    return _most([_width(curves) for curves in found.curves])


def _width(curves: Curves) -> float | None:
    best = _best(curves)
    if best is None:
        return None
    heads, reach = best
    below = [p.key_budget for p in curves.of(heads) if p.key_budget < reach and (p.mean or 0.0) < LOW_F1]
    return reach / max(below) if below else None


def threshold_place(found: Measured) -> float | None:
    """Over cells, the largest factor between the D_K where F1 crosses the target, for the best heads, and the law."""
    return _most([_place(curves) for curves in found.curves])


def _place(curves: Curves) -> float | None:
    reached = [where for heads in curves.heads if (where := curves.crossing(heads)) is not None]
    return max(min(reached) / curves.law, curves.law / min(reached)) if reached else None


def one_head_deficit(found: Measured) -> float | None:
    """Over cells with m > d, the least of (F1 of several - F1 of one head) at the smallest D_K where several reach it.

    One head of width d holds nothing more at a larger D_K: there its largest budget counts.
    """
    return _least([_deficit(curves) for curves in found.curves if curves.items > curves.d_model])


def _deficit(curves: Curves) -> float | None:
    best = _best(curves, fewest=2)
    if best is None:
        return None
    several = next(p.mean for p in curves.of(best[0]) if p.key_budget == best[1])
    one = [p.mean for p in curves.of(1) if p.key_budget <= best[1]]
    return None if not one or one[-1] is None or several is None else several - one[-1]


def _best(curves: Curves, fewest: int = 1) -> tuple[int, int] | None:
    """(heads, D_K) of the smallest budget that reaches the target, with at least so many heads."""
    reached = [(reach, heads) for heads in curves.heads if heads >= fewest and (reach := curves.reach(heads)) is not None]
    return (min(reached)[1], min(reached)[0]) if reached else None


# ------------------------------------------------------------------------------------------------- heads


def several_share_compressed(found: Measured) -> float | None:
    """Share of the cells with m > d where several heads reach the target at a strictly smaller D_K than one."""
    return _share(c.several_beat_one for c in reached(found) if c.items > c.d_model)


def one_share_uncompressed(found: Measured) -> float | None:
    """Share of the cells with m <= d where no number of heads beats one."""
    return _share(not c.several_beat_one for c in reached(found) if c.items <= c.d_model)


def line_gain(found: Measured) -> float | None:
    """Share of the cells where P(m', 1) > d^2 says rightly whether several heads beat one, less the same for m > d."""
    cells = reached(found)
    line = _share(c.several_beat_one == above_line(c) for c in cells)
    plain = _share(c.several_beat_one == (c.items > c.d_model) for c in cells)
    return None if line is None or plain is None else line - plain


def above_line(cell: Cell) -> bool:
    """Whether P(m', 1) > d^2: one head cannot hold the cell at any width (conjectured)."""
    return gardner_load(cell.edges, cell.items, 1) > cell.d_model**2


def heads_rise_with_items(found: Measured) -> float | None:
    """Share of the pairs of cells with one d where the larger m has at least as many heads; 0 if it never has more."""
    cells = reached(found)
    return _rising([(a, b) for a, b in combinations(sorted(cells, key=lambda c: c.items), 2) if a.d_model == b.d_model])


def heads_rise_with_less_width(found: Measured) -> float | None:
    """Share of the pairs of cells with one m where the smaller d has at least as many heads; 0 if it never has more."""
    cells = reached(found)
    return _rising([(a, b) for a, b in combinations(sorted(cells, key=lambda c: -c.d_model), 2) if a.items == b.items])


def _rising(pairs: Sequence[tuple[Cell, Cell]]) -> float | None:
    return _ordered([(a.heads or 0, b.heads or 0) for a, b in pairs])


def diagonal_growth(found: Measured) -> float | None:
    """D_K* / law at the largest m of the diagonal over the same at the smallest, of three cells or more."""
    ratios = [c.ratio for c in sorted(reached(found), key=lambda c: c.items) if c.ratio]
    return ratios[-1] / ratios[0] if len(ratios) >= DIAGONAL_CELLS else None


def _ordered(pairs: Sequence[tuple[int, int]]) -> float | None:
    """Share of the pairs (first, second) with first <= second; 0 where none has first < second."""
    share = _share(a <= b for a, b in pairs)
    return share if share is None or any(a < b for a, b in pairs) else 0.0


# --------------------------------------------------------------------------------------------------- the law


def law_r2(found: Measured) -> float | None:
    """R^2 of ln D_K* under D_K* = c m' ln m' / d."""
    fitted = law_of(found)
    return None if fitted is None else fitted.fit.r2


def law_exponent(found: Measured) -> float | None:
    """s of D_K* = c (m' ln m' / d)^s."""
    fitted = law_of(found)
    return None if fitted is None or fitted.exponent is None else fitted.exponent.estimate


def log_gain(found: Measured) -> float | None:
    """Held-out error of c m' / d over that of c m' ln m' / d."""
    fitted = law_of(found)
    if fitted is None or not fitted.fit.mape_held_out:
        return None
    without = next(rival for rival in fitted.rivals if rival.model == "no-log").mape_held_out
    return None if without is None else without / fitted.fit.mape_held_out


def ratio_spread(found: Measured) -> float | None:
    """Largest D_K* / law over smallest."""
    ratios = [c.ratio for c in reached(found) if c.ratio]
    return max(ratios) / min(ratios) if len(ratios) >= FIT_CELLS else None


def law_of(found: Measured) -> LawFit | None:
    """The law fitted to a figure's cells, where there are enough."""
    known = [cell for cell in reached(found) if not cell.cut_short]
    return fit_law(found.at(0.99)) if len(known) >= FIT_CELLS else None


# ------------------------------------------------------------------------------------------------------ helpers


def reached(found: Measured) -> list[Cell]:
    """The cells that reached F1 0.99."""
    return [cell for cell in found.at(0.99) if cell.key_budget is not None]


def _share(holds: Iterable[bool | None]) -> float | None:
    known = [bool(h) for h in holds if h is not None]
    return sum(known) / len(known) if len(known) >= SHARE_CELLS else None


def _most(values: Sequence[float | None]) -> float | None:
    """The largest, if every cell has one."""
    known = [v for v in values if v is not None]
    return max(known) if known and len(known) == len(values) else None


def _least(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return min(known) if known and len(known) == len(values) else None


STATISTICS: Mapping[str, Statistic] = {
    f.__name__: f
    for f in (
        threshold_width,
        threshold_place,
        one_head_deficit,
        several_share_compressed,
        one_share_uncompressed,
        line_gain,
        heads_rise_with_items,
        heads_rise_with_less_width,
        diagonal_growth,
        law_r2,
        law_exponent,
        log_gain,
        ratio_spread,
    )
}
