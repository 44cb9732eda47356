"""Where a score crosses its target, with an interval. One method for every capacity that the laboratory reports.

A budget's capacity is a level: the lowest one from which every probed level up meets the target. A load's capacity is
a point: the scores' means, made monotone by isotonic regression, cross the target between two levels, on a line.

The interval is a bootstrap over replicates (the percentile method, 95%). A budget's replicates are the same instances
at every level, so they are drawn together across levels; a load's are not, so they are drawn level by level. Where
levels just below a budget's crossing were not measured, the interval reaches down to the highest one that failed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keyspan.seeds import Stream
from keyspan.specs import Question, digest

DRAWS = 1000
METHODS = {
    "budget": "95% bootstrap over seeds (drawn together across budgets), from above the highest budget that fails",
    "load": "isotonic regression of the means, 95% bootstrap over seeds within each level",
    "peak": "the largest mean over the levels, 95% bootstrap over seeds within each level",
}
Scores = tuple[float | None, ...]


@dataclass(frozen=True)
class Crossing:
    """A capacity: estimate, and the interval [low, high]. None where the levels end before it is reached."""

    estimate: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Table:
    """One arm's scores: level -> score per replicate, levels ascending; `levels` are all that were admissible."""

    levels: tuple[int, ...]
    probed: dict[int, Scores]

    def means(self) -> list[float | None]:
        """Mean of the measured scores at every probed level."""
        known = [[s for s in scores if s is not None] for scores in self.probed.values()]
        return [sum(k) / len(k) if k else None for k in known]


Meets = Callable[[Question, list[float | None]], bool]


def method_of(question: Question) -> str:
    """How the interval of a question's answer is made."""
    return METHODS["peak" if question.goal == "peak" else question.knob]


def cross(question: Question, tables: list[Table], meets: Meets) -> tuple[Crossing, list[Crossing], int | None]:
    """The crossing over all arms, of each arm, and the index of the arm that attains it."""
    if question.goal == "peak":
        each = [_peak(question, table) for table in tables]
        return each[0], each, 0 if each[0].estimate is not None else None
    if question.knob == "load":
        each = [_load_crossing(question, table) for table in tables]
        best = 0 if each[0].estimate is not None else None
        return each[0], each, best
    points = [_bracket(question, t, list(range(len(question.replicates))), meets) for t in tables]
    stream = Stream(digest(question.to_json(), "q"), "bootstrap")
    n = len(question.replicates)
    draws = stream.integers(n, DRAWS * n).reshape(DRAWS, n) if n > 1 else np.zeros((1, 1), dtype=np.int64)
    distinct, counts = np.unique(np.sort(draws, axis=1), axis=0, return_counts=True)
    drawn = [[_bracket(question, t, list(d), meets) for t in tables] for d in distinct.tolist()]
    each = [_interval(points[a], [row[a] for row in drawn], counts) for a in range(len(tables))]
    overall = _interval(_least(points), [_least(row) for row in drawn], counts)
    reached = [(p[1], a) for a, p in enumerate(points) if p[1] is not None]
    return overall, each, min(reached)[1] if reached else None


Bracket = tuple[int | None, int | None]  # (first level above the last failing one, first passing level)
UNTRIED: Bracket = None, None


def _bracket(question: Question, table: Table, draw: list[int], meets: Meets) -> Bracket:
    """The crossing of one draw of replicates. None: no probed level passes all the way up, or none was probed."""
    if not table.probed:
        return UNTRIED
    passing: int | None = None
    for level in sorted(table.probed, reverse=True):
        scores = table.probed[level]
        if not meets(question, [scores[i] for i in draw]):
            after = table.levels.index(level) + 1
            return (table.levels[after] if after < len(table.levels) else None), passing
        passing = level
    return table.levels[0], passing


def _least(brackets: list[Bracket]) -> Bracket:
    lows = [low for low, _ in brackets if low is not None]
    highs = [high for _, high in brackets if high is not None]
    return min(lows, default=None), min(highs, default=None)


def _interval(point: Bracket, drawn: list[Bracket], counts: NDArray[np.int64]) -> Crossing:
    if point[1] is None:
        return Crossing(None, point[0], None)
    low = _quantile([np.inf if b[1] is None else b[1] for b in drawn], counts, 0.025)
    high = _quantile([np.inf if b[1] is None else b[1] for b in drawn], counts, 0.975)
    low = min(low, point[1] if point[0] is None else point[0])
    return Crossing(point[1], low, None if np.isinf(high) else max(high, point[1]))


def _quantile(values: list[float], counts: NDArray[np.int64], q: float) -> float:
    """Lower quantile of weighted values for q < 1/2, upper for q > 1/2: always one of the values."""
    order = np.argsort(values, kind="stable")
    share = counts[order].cumsum() / counts.sum()
    at = int(np.searchsorted(share, q, side="left" if q > 0.5 else "right"))
    return float(np.asarray(values, dtype=np.float64)[order][min(at, len(values) - 1)])


# ------------------------------------------------------------------------------------------------------- loads


def isotonic_decreasing(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least-squares non-increasing fit, by pooling adjacent violators. values, weights: (levels,)"""
    blocks: list[list[float]] = []  # value, weight, length
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        blocks.append([value, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] < blocks[-1][0]:
            (v1, w1, n1), (v2, w2, n2) = blocks[-2], blocks.pop()
            blocks[-1] = [(v1 * w1 + v2 * w2) / (w1 + w2), w1 + w2, n1 + n2]
    return np.concatenate([np.full(int(n), v) for v, _, n in blocks])


def _point(levels: NDArray[np.float64], means: NDArray[np.float64], weights: NDArray[np.float64], target: float) -> float:
    """Where the line through the monotone values at the levels falls to the target; inf or 0 if it does not.

    Where several levels lie on the target itself, it is their middle.
    """
    fit = isotonic_decreasing(means, weights)
    if fit[0] < target:
        return 0.0
    if fit[-1] > target:
        return float("inf")
    above = int(np.flatnonzero(fit >= target)[-1])
    if fit[above] == target:  # a pool exactly on the target: its middle
        return float(levels[fit == target].mean())
    share = (fit[above] - target) / (fit[above] - fit[above + 1])
    return float(levels[above] + share * (levels[above + 1] - levels[above]))


def _peak(question: Question, table: Table) -> Crossing:
    """The largest mean over the levels, with a bootstrap within levels. Failed members are left out and counted."""
    known = [np.array([s for s in v if s is not None]) for v in table.probed.values()]
    known = [v for v in known if v.size]
    if not known:
        return Crossing(None, None, None)
    stream = Stream(digest(question.to_json(), "q"), "bootstrap")
    drawn = [v[stream.integers(v.size, DRAWS * v.size)].reshape(DRAWS, -1).mean(axis=1) for v in known]
    points = np.sort(np.stack(drawn).max(axis=0))
    low, high = points[int(0.025 * DRAWS)], points[int(np.ceil(0.975 * DRAWS)) - 1]
    return Crossing(float(max(v.mean() for v in known)), float(low), float(high))


def _load_crossing(question: Question, table: Table) -> Crossing:
    """Isotonic crossing of the means, with a bootstrap within levels. Failed members are left out and counted."""
    levels, known = _known(table)
    weights = np.array([v.size for v in known], dtype=np.float64)
    estimate = _point(levels, np.array([v.mean() for v in known]), weights, question.target)
    if not 0 < estimate < np.inf:
        return Crossing(None, None, None)
    points = load_draws(question, table)
    low, high = points[int(0.025 * DRAWS)], points[int(np.ceil(0.975 * DRAWS)) - 1]
    return Crossing(estimate, float(low) if low > 0 else None, float(high) if np.isfinite(high) else None)


def _known(table: Table) -> tuple[NDArray[np.float64], list[NDArray[np.float64]]]:
    """The probed levels that have a score, and their scores."""
    known = {k: np.array([s for s in v if s is not None]) for k, v in table.probed.items()}
    known = {k: v for k, v in known.items() if v.size}
    return np.array(list(known), dtype=np.float64), list(known.values())


def load_draws(question: Question, table: Table) -> NDArray[np.float64]:
    """The crossing of every draw of seeds within levels, sorted; 0 or inf where one lies beyond the levels."""
    levels, known = _known(table)
    weights = np.array([v.size for v in known], dtype=np.float64)
    stream = Stream(digest(question.to_json(), "q"), "bootstrap")
    drawn = [v[stream.integers(v.size, DRAWS * v.size)].reshape(DRAWS, -1).mean(axis=1) for v in known]
    return np.sort([_point(levels, row, weights, question.target) for row in np.stack(drawn, axis=1)])
