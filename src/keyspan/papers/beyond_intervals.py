"""95% intervals of the statistics beyond the paper's figures. Each is named like its statistic (`beyond_statistics`).

fits       a bootstrap over graphs; held-out errors are drawn graph by graph, in pairs
ratios     the ends of the cells' own intervals, whichever way they make the ratio smallest and largest
forgotten  a bootstrap over seeds, the same in all curves
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from keyspan.papers import beyond_statistics as stats
from keyspan.papers.compared import Compared, Curve, Line
from keyspan.papers.figures import Interval
from keyspan.papers.sweeps import Size
from keyspan.seeds import Stream

DRAWS = 400
Float = NDArray[np.float64]
Ends = tuple[float, float] | None


def _ends(known: Sequence[float] | Float) -> Ends:
    values = np.sort(np.asarray(known, dtype=np.float64))
    if not len(values):
        return None
    low, high = int(0.025 * len(values)), math.ceil(0.975 * len(values)) - 1
    return float(values[low]), float(values[high])


def _draws(found: Compared, n: int) -> NDArray[np.int64]:
    return Stream(f"{found.figure.name} {found.tier}", "claims").integers(n, DRAWS * n).reshape(DRAWS, n)


# ------------------------------------------------------------------------------------------------------- graphs


def graphs_r2(found: Compared) -> Ends:
    """Over draws of graphs; a draw of budgets all alike has no spread to explain and is left out."""
    lines = stats.fit_lines(found)
    if len(lines) < stats.FIT_CELLS:
        return None
    budgets = np.log([float(x.cell.key_budget or 1) for x in lines])
    residuals = budgets - np.log([x.cell.law for x in lines])
    picks = _draws(found, len(lines))
    spread = budgets[picks].var(axis=1)
    known = spread > 0
    return _ends(1 - residuals[picks][known].var(axis=1) / spread[known])


def graphs_gain(found: Compared) -> Ends:
    """Held-out errors graph by graph, of the law and of the other count that does best over all of them, drawn together."""
    lines = stats.fit_lines(found)
    if len(lines) < stats.FIT_CELLS:
        return None
    budgets = np.log([float(x.cell.key_budget or 1) for x in lines])
    counts = {
        "law": [x.cell.law for x in lines],
        "no-log": [x.cell.edges / x.cell.d_model for x in lines],
        "items-log": [x.cell.edges * math.log(x.cell.items) / x.cell.d_model for x in lines],
        "entropy": [x.bits / x.cell.d_model for x in lines],
    }
    errors = {name: _held_out(budgets - np.log(values)) for name, values in counts.items()}
    rival = min(stats.COUNTS, key=lambda name: float(errors[name].mean()))
    picks = _draws(found, len(lines))
    mine, others = (errors[name][picks].mean(axis=1) for name in ("law", rival))
    return _ends(others[mine > 0] / mine[mine > 0])


def _held_out(residuals: Float) -> Float:
    """|prediction / D_K* - 1| of every graph by the constant of all the others."""
    others = (residuals.sum() - residuals) / (len(residuals) - 1)
    return np.asarray(np.abs(np.exp(others - residuals) - 1))


def edges_exponent(found: Compared) -> Ends:
    """Over draws of graphs within their sizes."""
    groups: dict[Size, list[tuple[float, float]]] = defaultdict(list)
    for line in stats.fit_lines(found):
        groups[line.size].append((math.log(line.cell.law), math.log(line.cell.key_budget or 1)))
    stream = Stream(f"{found.figure.name} {found.tier}", "claims")
    picks = [stream.integers(len(g), DRAWS * len(g)).reshape(DRAWS, -1) for g in groups.values()]
    drawn = [
        stats.slope_within([[g[i] for i in pick[k]] for g, pick in zip(groups.values(), picks, strict=True)])
        for k in range(DRAWS)
    ]
    return _ends([slope for slope in drawn if slope is not None])


# ------------------------------------------------------------------------------------------------------- ratios


def _range(line: Line, base: Line | None) -> Ends:
    """The least and the largest D_K* / D_K* that the two intervals allow; open ends count as the estimate."""
    if base is None or not base.cell.key_budget or not line.cell.key_budget:
        return None
    here, unit = line.cell, base.cell
    low = (here.low or here.key_budget or 0) / (unit.high or unit.key_budget or 1)
    return low, (here.high or here.key_budget or 0) / (unit.low or unit.key_budget or 1)


def _ratios(labels: Callable[[Compared], Iterable[str]], pick: Callable[[Iterable[float]], float]) -> Interval:
    """Of the largest or the least ratio to the base, over labels and sizes."""

    def interval(found: Compared) -> Ends:
        wanted = set(labels(found))
        ranges = [_range(x, found.at(found.comparison.base, x.size)) for x in found.lines if x.label in wanted]
        known = [r for r in ranges if r is not None]
        return (pick(r[0] for r in known), pick(r[1] for r in known)) if known and len(known) == len(ranges) else None

    return interval


def _either_way(ranges: Sequence[Ends]) -> Ends:
    """The same for a factor that is taken either way, so that it is 1 at least."""
    known = [r for r in ranges if r is not None]
    if not known or len(known) < len(ranges):
        return None
    lows = [1.0 if low <= 1 <= high else min(max(low, 1 / low), max(high, 1 / high)) for low, high in known]
    return max(lows), max(max(end, 1 / end) for r in known for end in r)


def sign_ratio(found: Compared) -> Ends:
    """The factor either way."""
    return _either_way([_range(x, found.at(found.comparison.base, x.size)) for x in found.lines if x.label == "sign"])


def families_spread(found: Compared) -> Ends:
    """The factor to a permutation either way, of graphs with as many edges as items."""
    wanted = [x for x in found.lines if x.cell.edges == x.cell.items and x.label != found.comparison.base]
    return _either_way([_range(x, found.at(found.comparison.base, x.size)) for x in wanted])


def family_spread(found: Compared) -> Ends:
    """The factor between any two graphs of one size with as many edges."""
    lines = stats.fit_lines(found)
    pairs = [(a, b) for a, b in combinations(lines, 2) if (a.size, a.cell.edges) == (b.size, b.cell.edges)]
    return _either_way([_range(a, b) for a, b in pairs])


def _over(labels: str, other: Callable[[Line], str]) -> Callable[[Compared], list[Ends]]:
    """The ranges of D_K* of lines whose label ends so, over that of another label at their size."""
    return lambda found: [_range(x, found.at(other(x), x.size)) for x in found.lines if x.label.endswith(labels)]


def types_add_up(found: Compared) -> Ends:
    """The factor either way."""
    lines = [x for x in found.lines if x.label.endswith("partitioned")]
    ranges = [_range(x, found.at(found.comparison.base, x.size)) for x in lines]
    types = [stats.types_of(x.label) for x in lines]
    return _either_way([None if r is None else (r[0] / t, r[1] / t) for r, t in zip(ranges, types, strict=True)])


def _extreme(ranges: Callable[[Compared], list[Ends]]) -> Interval:
    """Of the largest of several ratios."""

    def interval(found: Compared) -> Ends:
        every = ranges(found)
        known = [r for r in every if r is not None]
        return (max(r[0] for r in known), max(r[1] for r in known)) if known and len(known) == len(every) else None

    return interval


def shared_ratio(found: Compared) -> Ends:
    """Of the least ratio. Where D_K* was never reached there is no upper end, and the statistic is a lower bound."""
    every = _over("shared", stats.own_label)(found)
    known = [r for r in every if r is not None]
    return (min(r[0] for r in known), min(r[1] for r in known)) if known and len(known) == len(every) else None


# ---------------------------------------------------------------------------------------------------- forgotten


def _over_seeds(statistic: Callable[[Compared], float | None]) -> Interval:
    """Percentiles over draws of seeds; None where most draws do not define it."""

    def interval(found: Compared) -> Ends:
        fewest = min((len(v) for c in found.curves for by in c.scores.values() for v in by.values()), default=0)
        if fewest < 2 or statistic(found) is None:
            return None
        picks = _draws(found, fewest)
        distinct, counts = np.unique(np.sort(picks, axis=1), axis=0, return_counts=True)
        values: list[float] = []
        for pick, count in zip(distinct.tolist(), counts.tolist(), strict=True):
            value = statistic(replace(found, curves=tuple(_drawn(c, pick) for c in found.curves)))
            values += [value] * count if value is not None else []
        return _ends(values) if 2 * len(values) > DRAWS else None

    return interval


def _drawn(curve: Curve, pick: Sequence[int]) -> Curve:
    scores = {at: {k: tuple(v[i] for i in pick) for k, v in by.items()} for at, by in curve.scores.items()}
    return replace(curve, scores=scores)


INTERVALS: Mapping[str, Interval] = {
    "graphs_r2": graphs_r2,
    "graphs_gain": graphs_gain,
    "edges_exponent": edges_exponent,
    "family_spread": family_spread,
    "families_spread": families_spread,
    "sign_ratio": sign_ratio,
    "sparse_ratio": _ratios(stats.sparse_labels, max),
    "clustered_ratio": _ratios(lambda found: ["clustered 0.75"], min),
    "half_contexts_ratio": _ratios(lambda found: ["1/2"], max),
    "quarter_contexts_ratio": _ratios(lambda found: ["1/4, as many pairs"], max),
    "replay_ratio": _ratios(stats.replay_labels, max),
    "types_add_up": types_add_up,
    "types_over_edges": _extreme(_over("partitioned", stats.edges_label)),
    "leaning_ratio": _extreme(_over("leaning", stats.own_label)),
    "shared_ratio": shared_ratio,
    "forgotten_at_twice_the_law": _over_seeds(stats.forgotten_at_twice_the_law),
    "forgotten_with_room": _over_seeds(stats.forgotten_with_room),
}
