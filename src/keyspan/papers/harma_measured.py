"""What a figure of Haermae et al. came to: its capacities, its curves, its fits, and the statistics of its claims.

Which regime a claim about the published law speaks of is fixed here, before anything was measured: `budgeted`, the likelier
reading of the paper (docs/sequences.md, "Two regimes"). What is ours about parameters speaks of `saturated`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from keyspan.errors import BadInput
from keyspan.evidence.fits import Estimate
from keyspan.evidence.fits_ecm import EcmFit, fit_ecm
from keyspan.evidence.sequence_cells import SequenceCell, reading
from keyspan.papers import harma
from keyspan.papers.figures import Figure, Interval, Paper, Statistic
from keyspan.papers.harma import Ask, Sweep
from keyspan.runners.driver import Outcome
from keyspan.runners.sequences import REGIMES
from keyspan.seeds import Stream
from keyspan.specs import Question

PAPER = harma.PAPER
PUBLISHED, TEXT, RIVAL, OURS = "ecm-max", "ecm-min", "poly-5", "per-parameter-H"
DRAWS = 400
FIT_DRAWS = 60  # of a fit's bootstrap: every law and every split is solved again in each
ENOUGH_CELLS = 18  # of a regime, for a claim: fewer show that everything works, and decide nothing
LOSS = 0.05  # of a doubling of the batch, from which on it counts as one
LEAST_CELLS = 5  # of a correlation


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One size of library. recited: by each seed"""

    library: int
    recited: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(np.mean(self.recited)) if self.recited else math.nan


@dataclass(frozen=True, kw_only=True)
class Point:
    """One capacity, as asked and as found. rungs: every library of the larger training, the smallest first"""

    ask: Ask
    cell: SequenceCell
    rungs: tuple[Rung, ...]

    @property
    def key(self) -> tuple[str, float, str]:
        """A name that no other point of its figure has."""
        return self.ask.series, self.ask.x, f"{self.cell.name}, layers {self.cell.layers}, {self.ask.measure}"

    @property
    def recited(self) -> tuple[float, ...]:
        """By every seed, at the library where the capacity was read."""
        return next((rung.recited for rung in self.rungs if rung.library == self.cell.library), ())


@dataclass(frozen=True)
class Recitals:
    """A figure at a tier, measured (a `papers.figures.Found`)."""

    figure: Figure
    tier: str
    points: tuple[Point, ...]
    run_ids: frozenset[str]
    trained: frozenset[str]

    @property
    def sweep(self) -> Sweep:
        """What was asked."""
        sweep: Sweep = self.figure.tiers[self.tier]
        return sweep

    @property
    def seeds(self) -> int:
        """Libraries a point."""
        return self.sweep.seeds

    @property
    def cells_asked(self) -> Sequence[Hashable]:
        """The points."""
        return tuple(point.key for point in self.points)

    @property
    def failed_cells(self) -> frozenset[Any]:
        """Points with a member that has no number."""
        return frozenset(point.key for point in self.points if point.cell.failed)

    @property
    def left_out(self) -> Sequence[Mapping[str, Any]]:
        """Saturated cells that twice the steps still move: no fit counts them."""
        return [
            {
                "heads": c.heads,
                "length": c.length,
                "d_model": c.d_model,
                "reason": f"twice the steps moved it by {c.moved:+.1%}",
            }
            for c in (point.cell for point in self.points)
            if c.status == "unconverged" and c.moved is not None
        ]

    @property
    def cells(self) -> list[SequenceCell]:
        """All capacities."""
        return [point.cell for point in self.points]

    @cached_property
    def fits(self) -> dict[str, EcmFit]:
        """The laws, fitted in every regime that has cells enough."""
        found = {}
        for regime in REGIMES:
            try:
                found[regime] = _fitted(tuple(self.cells), regime)
            except BadInput:
                continue
        return found

    def series(self, name: str) -> list[Point]:
        """The points of one line, from left to right."""
        return sorted((p for p in self.points if p.ask.series == name), key=lambda p: p.ask.x)


@lru_cache(maxsize=8)
def _fitted(cells: tuple[SequenceCell, ...], regime: str) -> EcmFit:
    """Several figures show the same grid."""
    return fit_ecm(cells, regime, FIT_DRAWS)


def measured(figure: Figure, tier: str, asked: Sequence[Question], outcomes: Sequence[Outcome]) -> Recitals:
    """Read a figure's data off the outcomes, which come in the order of its questions."""
    sweep: Sweep = figure.tiers[tier]
    left, points = list(zip(asked, outcomes, strict=True)), []
    for ask in sweep.asks:
        count = 2 if ask.twice else 1
        mine, left = left[:count], left[count:]
        points.append(_point(ask, [q for q, _ in mine], [o for _, o in mine]))
    return Recitals(
        figure=figure,
        tier=tier,
        points=tuple(points),
        run_ids=frozenset(p.run.run_id for o in outcomes for p in o.answer.probes),
        trained=frozenset(run_id for o in outcomes for run_id in o.trained),
    )


def _point(ask: Ask, asked: Sequence[Question], outcomes: Sequence[Outcome]) -> Point:
    bits = harma.bits_of(ask)
    cell = reading(asked, [o.answer for o in outcomes], bits, ask.measure)
    at: dict[int, list[float]] = {}
    for probe in outcomes[-1].answer.probes:
        if probe.verdict.measured:
            at.setdefault(probe.level, []).append(probe.verdict.score("recited"))
    return Point(ask=ask, cell=cell, rungs=tuple(Rung(library=n, recited=tuple(at[n])) for n in sorted(at)))


# ------------------------------------------------------------------------------------------------------ statistics


def _fit(found: Recitals, regime: str) -> EcmFit | None:
    fit = found.fits.get(regime)
    return fit if fit is not None and len(fit.used) >= ENOUGH_CELLS else None


def _in_sample(law: str, regime: str) -> Statistic:
    def statistic(found: Recitals) -> float | None:
        fit = _fit(found, regime)
        return None if fit is None else fit.law(law).mape

    return statistic


def _held_out(law: str, regime: str) -> Callable[[Recitals], Estimate | None]:
    """Its error on the most heads, and the interval."""

    def found_in(found: Recitals) -> Estimate | None:
        fit = _fit(found, regime)
        split = fit.law(law).split("heads") if fit else None
        return None if split is None else split.mape

    return found_in


def _above(found: Recitals) -> Estimate | None:
    fit = _fit(found, "budgeted")
    split = fit.law(PUBLISHED).split("heads") if fit else None
    return None if split is None else split.above


def _ratio(one: str, other: str, splits: Sequence[str]) -> Callable[[Recitals], Estimate | None]:
    """Mean held-out error of one law over that of another, budgeted, draw by draw on the same cells."""

    def found_in(found: Recitals) -> Estimate | None:
        fit = _fit(found, "budgeted")
        if fit is None:
            return None
        mine, theirs = ([s for s in fit.law(law).held_out if s.what in splits] for law in (one, other))
        if len(mine) < len(splits) or len(theirs) < len(splits):
            return None
        upper, lower = (np.mean([s.errors for s in side], axis=0) for side in (mine, theirs))
        low, high = np.quantile(upper / lower, [0.025, 0.975])
        value = sum(s.mape.estimate for s in mine) / sum(s.mape.estimate for s in theirs)
        return Estimate(float(value), float(low), float(high))

    return found_in


def _drawn(points: Sequence[Sequence[float]], of: Callable[[list[float]], float], purpose: str) -> Estimate | None:
    """A function of the means over seeds, and its 95% bootstrap over seeds, each point's own. points: values by seed"""
    if not points or any(len(values) == 0 for values in points):
        return None
    stream = Stream("harma", purpose)
    value = of([float(np.mean(values)) for values in points])
    draws = []
    for _ in range(DRAWS):
        means = [float(np.mean(np.asarray(v)[stream.integers(len(v), len(v))])) for v in points]
        draws.append(of(means))
    low, high = np.quantile(draws, [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def gain_ratio(held: Sequence[float]) -> float:
    """What the last doubling adds over what the first does; 1 at least where a doubling loses more than 5%."""
    gains = [after - before for before, after in pairwise(held)]
    lost = any(gain < -LOSS * before for gain, before in zip(gains, held, strict=False))
    ratio = gains[-1] / gains[0] if gains[0] > 0 else math.inf
    return min(1e6, max(ratio, 1.0) if lost else ratio)


def _batch_gain(found: Recitals) -> Estimate | None:
    points = [p.recited for p in found.series("equal steps")]
    return _drawn(points, gain_ratio, "batch") if len(points) >= 3 else None


def _frozen_share(found: Recitals) -> Estimate | None:
    """Capacity with the feed-forward frozen over that with it trained, the mean over decoders."""
    frozen, trained = found.series("frozen"), found.series("trained")
    pairs = [(f.recited, t.recited) for f in frozen for t in trained if _same(f.ask, t.ask) and t.cell.capacity and f.recited]

    def share(means: list[float]) -> float:
        each = [one / other for one, other in zip(means[::2], means[1::2], strict=True) if other > 0]
        return float(np.mean(each)) if each else 0.0

    return _drawn([values for pair in pairs for values in pair], share, "frozen")


def _same(one: Ask, other: Ask) -> bool:
    mine, theirs = one.decoder, other.decoder
    return (mine.heads, mine.d_model, one.problem.length) == (theirs.heads, theirs.d_model, other.problem.length)


def _mac_mls(found: Recitals) -> Estimate | None:
    """Correlation of ln MAC and ln MLS over the ladder's cells, bootstrapped over cells."""
    pairs = [(p.cell.capacity, p.cell.mls) for p in found.series("ladder") if p.cell.capacity and p.cell.mls]
    if len(pairs) < LEAST_CELLS:
        return None
    logs = np.log(np.array(pairs, dtype=np.float64))
    stream = Stream("harma", "mac mls")
    draws = []
    for _ in range(DRAWS):
        some = logs[stream.integers(len(logs), len(logs))]
        if min(some.std(axis=0)) > 0:
            draws.append(float(np.corrcoef(some.T)[0, 1]))
    low, high = np.quantile(draws, [0.025, 0.975])
    return Estimate(float(np.corrcoef(logs.T)[0, 1]), float(low), float(high))


ESTIMATES: Mapping[str, Callable[[Recitals], Estimate | None]] = {
    "polynomial_over_ecm": _ratio(RIVAL, PUBLISHED, ("heads",)),
    "ecm_held_out": _held_out(PUBLISHED, "budgeted"),
    "above_prediction": _above,
    "batch_gain_ratio": _batch_gain,
    "frozen_share": _frozen_share,
    "mac_mls_r": _mac_mls,
    "max_over_min": _ratio(PUBLISHED, TEXT, ("heads", "d_model")),
    "parameters_held_out": _held_out(OURS, "saturated"),
}


def _value(estimate: Callable[[Recitals], Estimate | None]) -> Statistic:
    def statistic(found: Recitals) -> float | None:
        known = estimate(found)
        return None if known is None else known.estimate

    return statistic


def _interval(estimate: Callable[[Recitals], Estimate | None]) -> Interval:
    def interval(found: Recitals) -> tuple[float, float] | None:
        known = estimate(found)
        if known is None or known.low is None or known.high is None:
            return None
        return known.low, known.high

    return interval


STATISTICS: Mapping[str, Statistic] = {name: _value(estimate) for name, estimate in ESTIMATES.items()} | {
    "ecm_mape": _in_sample(PUBLISHED, "budgeted"),
    "skewed_mape": _in_sample(PUBLISHED, "budgeted"),
}
INTERVALS: Mapping[str, Interval] = {name: _interval(estimate) for name, estimate in ESTIMATES.items()}


def paper() -> Paper:
    """Haermae et al., as the laboratory knows them."""
    return Paper(
        name=PAPER,
        figures=harma.figures(),
        questions=harma.questions,
        measured=measured,
        statistics=STATISTICS,
        intervals=INTERVALS,
    )
