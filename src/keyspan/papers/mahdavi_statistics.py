"""What claims about labels are tested on, with their 95% intervals: functions of what a figure measured, which know no
threshold.

Capacities of a line are `largest`, where every point has one, else `yield`. Intervals are a bootstrap over seeds within
every T, point by point; Wilson's of shares of pairs; Student's over seeds of shares of heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from keyspan.evidence.intervals import student
from keyspan.papers.figures import Interval, Statistic
from keyspan.papers.mahdavi_measured import Heads, Lines, MeasuredLine
from keyspan.runners.measure import wilson

LEAST = 3  # points of a line that decide
OFFICIAL = {"accuracy": 0.302, "loss": 2.454}  # of the official code's run
Float = NDArray[np.float64]
Ends = tuple[float, float] | None


# ---------------------------------------------------------------------------------------------------------- lines


def r2_through_origin(x: Float, y: Float) -> float:
    """1 - |y - a x|^2 / |y - mean|^2 with the best a. x: (points,)    y: (..., points)"""
    slope = (y * x).sum(-1) / (x * x).sum()
    left = ((y - slope[..., None] * x) ** 2).sum(-1)
    return np.asarray(1 - left / ((y - y.mean(-1, keepdims=True)) ** 2).sum(-1))  # type: ignore[return-value]


def _r2(line: MeasuredLine | None) -> float | None:
    known = None if line is None else line.capacities()
    if line is None or known is None or None in known or len(known) < LEAST:
        return None
    x, y = np.array([float(p.value) for p in line.points]), np.array(known, dtype=np.float64)
    return float(r2_through_origin(x, y)) if y.var() > 0 else None


def _r2_ends(line: MeasuredLine | None) -> Ends:
    if line is None or _r2(line) is None:
        return None
    x = np.array([float(p.value) for p in line.points])
    drawn = []
    for k, draws in enumerate(line.draws()):  # sorted within a point: another order for each makes them independent
        drawn.append(draws[(np.arange(len(draws)) * (2 * k + 1) * 37 + 11 * k) % len(draws)])
    y = np.stack(drawn, axis=1)
    y = y[np.isfinite(y).all(axis=1) & (y.var(axis=1) > 0)]
    return _percentiles(np.asarray(r2_through_origin(x, y))) if len(y) else None


def _percentiles(values: Float) -> Ends:
    known = np.sort(values)
    return float(known[int(0.025 * len(known))]), float(known[math.ceil(0.975 * len(known)) - 1])


def heads_r2(found: Lines) -> float | None:
    """R^2 of a line through the origin in H; of a figure with several such lines the lowest."""
    values = [_r2(x) for x in _over_heads(found)]
    return min((v for v in values if v is not None), default=None) if None not in values else None


def heads_r2_ends(found: Lines) -> Ends:
    """Of the line whose R^2 is the lowest."""
    lines = [x for x in _over_heads(found) if _r2(x) is not None]
    return _r2_ends(min(lines, key=lambda x: _r2(x) or 0.0)) if lines else None


def _over_heads(found: Lines) -> list[MeasuredLine]:
    return [x for x in found.lines if x.line.axis == "heads"]


def _pairs(line: MeasuredLine | None, last: int | None = None) -> list[bool] | None:
    """Whether the larger value of neighbours memorises at least as many. last: the largest value that counts"""
    if line is None:
        return None
    known = [(p.value, c) for p, c in zip(line.points, line.capacities(), strict=True) if last is None or p.value <= last]
    if len(known) < LEAST or any(c is None for _, c in known):
        return None
    return [(b or 0.0) >= (a or 0.0) for (_, a), (_, b) in pairwise(known)]


def _share(pairs: list[bool] | None) -> float | None:
    return None if not pairs else sum(pairs) / len(pairs)


def _wilson(pairs: list[bool] | None) -> Ends:
    return None if not pairs else wilson(sum(pairs), len(pairs))


def context_pairs(found: Lines) -> list[bool] | None:
    """Neighbouring n in order."""
    return _pairs(found.line("context"))


def width_pairs(found: Lines) -> list[bool] | None:
    """Neighbouring d_h in order, up to n."""
    line = found.line("width")
    return None if line is None else _pairs(line, line.line.context)


def width_gain(found: Lines) -> float | None:
    """The most that a d_h above n memorises, over what the largest d_h up to n does."""
    line = found.line("width")
    if line is None:
        return None
    known = list(zip(line.points, line.capacities(), strict=True))
    below = [c for p, c in known if p.value <= line.line.context]
    above = [c for p, c in known if p.value > line.line.context]
    if not below or not above or below[-1] is None or None in above:
        return None
    return max(c for c in above if c is not None) / below[-1]


def width_gain_ends(found: Lines) -> Ends:
    """From the ends of both intervals, whichever way they make the ratio smallest and largest."""
    line = found.line("width")
    if line is None or width_gain(found) is None or line.criterion != "largest":
        return None
    below = [p.largest for p in line.points if p.value <= line.line.context][-1]
    above = [p.largest for p in line.points if p.value > line.line.context]
    ends = [below.low, below.high, *(c.low for c in above), *(c.high for c in above)]
    if any(end is None for end in ends):
        return None
    return max(c.low or 0.0 for c in above) / (below.high or 1.0), max(c.high or 0.0 for c in above) / (below.low or 1.0)


def over_theorem(found: Lines) -> float | None:
    """The least, over all layers, of what is memorised over the number of the theorem."""
    values = [None if p.memorised is None else p.memorised / p.theorem for x in found.lines for p in x.points]
    known = [v for v in values if v is not None]
    return min(known) if known and len(known) == len(values) else None


def over_theorem_ends(found: Lines) -> Ends:
    """The same of the low ends, and of the high ones; an open end is the estimate."""
    if over_theorem(found) is None:
        return None
    lows = [(p.largest.low or p.memorised or 0.0) / p.theorem for x in found.lines for p in x.points]
    highs = [(p.largest.high or p.memorised or 0.0) / p.theorem for x in found.lines for p in x.points]
    return min(lows), min(highs)


# ----------------------------------------------------------------------------------------------------- saturation


def _least(which: Callable[[Heads], list[Sequence[float]]]) -> tuple[Statistic, Interval]:
    """The mean over seeds of the layer where it is least, with Student's interval."""

    def statistic(found: Heads) -> float | None:
        means = [float(np.mean(values)) for values in which(found) if values]
        return min(means) if means and len(means) == len(found.cases) else None

    def interval(found: Heads) -> Ends:
        if statistic(found) is None:
            return None
        worst = min(which(found), key=lambda values: float(np.mean(values)))
        _, low, high = student(list(worst))
        return None if low is None or high is None else (max(0.0, low), min(1.0, high))

    return statistic, interval


saturated_share, saturated_ends = _least(lambda found: [x.shares for x in found.cases])
unsaturated_examples, unsaturated_ends = _least(lambda found: [x.unsaturated for x in found.cases])


def parity_deviations(found: Heads) -> float | None:
    """How far accuracy and loss of the official run lie from our means, in standard deviations over seeds; the larger."""
    if len(found.cases) != 1 or found.seeds < LEAST:
        return None
    case = found.cases[0]
    sides = ((OFFICIAL["accuracy"], case.accuracies), (OFFICIAL["loss"], case.losses))
    return max(abs(official - float(np.mean(ours))) / float(np.std(ours, ddof=1)) for official, ours in sides)


STATISTICS: Mapping[str, Statistic] = {
    "heads_r2": heads_r2,
    "general_r2": heads_r2,
    "values_r2": heads_r2,
    "context_rising": lambda found: _share(context_pairs(found)),
    "width_rising": lambda found: _share(width_pairs(found)),
    "width_gain": width_gain,
    "over_theorem": over_theorem,
    "saturated_share": saturated_share,
    "unsaturated_examples": unsaturated_examples,
    "parity_deviations": parity_deviations,
}
INTERVALS: Mapping[str, Interval] = {
    "heads_r2": heads_r2_ends,
    "general_r2": heads_r2_ends,
    "values_r2": heads_r2_ends,
    "context_rising": lambda found: _wilson(context_pairs(found)),
    "width_rising": lambda found: _wilson(width_pairs(found)),
    "width_gain": width_gain_ends,
    "over_theorem": over_theorem_ends,
    "saturated_share": saturated_ends,
    "unsaturated_examples": unsaturated_ends,
}
