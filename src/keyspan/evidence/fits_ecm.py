"""The empirical capacity model and its rivals fitted to measured cells, and judged by cells that they have not seen.

Every law of `theory.ecm` is fitted by least squares of relative errors, `C_predicted / C - 1`, from several starts, since
capacities are found to within a share of themselves. Held out are whole architectures: the most heads, the widest tables,
the longest sequences, each with everything else in the fit. Intervals are a 95% bootstrap over cells (percentile). A law is
chosen by its mean error over the splits, never by its error in sample. Errors are fractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.evidence.fits import Estimate
from keyspan.evidence.sequence_cells import SequenceCell
from keyspan.seeds import Stream
from keyspan.specs import digest
from keyspan.theory.ecm import LAWS, Architectures, Law

Float = NDArray[np.float64]
Ints = NDArray[np.intp]
STARTS = 8  # random starts of a law that is not linear
DRAWS = 100  # of the bootstrap
FIT_VERSION = 1
LEAST_CELLS = 6
MOST_CALLS = 400  # of a law, from one start
NEAR_CALLS = 60  # from the constants of all cells, which are close to those of a draw
HELD_OUT: dict[str, Callable[[Architectures], Float]] = {  # what is largest in the cells that are held out
    "heads": lambda at: at.heads,
    "d_model": lambda at: at.d_model,
    "length": lambda at: at.length,
}


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Cells with the largest of something, predicted from all others.

    what: heads, d_model or length    value: the largest    mape: of these cells, with its interval    cells: how many
    above: share of them whose measured capacity is no less than predicted, with Wilson's interval
    errors: of the bootstrap's draws, which are the same cells for every law, so that laws can be compared draw by draw
    """

    what: str
    value: float
    mape: Estimate
    cells: int
    above: Estimate
    errors: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON data, without the draws."""
        return {k: v for k, v in asdict(self).items() if k != "errors"}


@dataclass(frozen=True, kw_only=True)
class LawFit:
    """One law fitted.

    origin: who proposed it    mape: in sample    mape_held_out: mean over the splits    note: why numbers are missing
    """

    model: str
    formula: str
    origin: str
    parameters: dict[str, Estimate]
    constants: tuple[float, ...]
    mape: float | None
    mape_held_out: float | None
    held_out: tuple[HeldOut, ...]
    cells: int
    note: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON data; constants of a polynomial are too many to tell."""
        told = {k: v for k, v in asdict(self).items() if k != "constants"}
        return told | {"held_out": [split.to_dict() for split in self.held_out]}

    def split(self, what: str) -> HeldOut | None:
        """Its error on the cells with the largest of something; None where nothing was held out so."""
        return next((split for split in self.held_out if split.what == what), None)


@dataclass(frozen=True, kw_only=True)
class EcmFit:
    """All laws fitted to the cells of one regime. best: the one with the least held-out error"""

    regime: str
    fits: tuple[LawFit, ...]
    used: tuple[SequenceCell, ...]
    left_out: tuple[tuple[str, str], ...]
    fit_id: str

    @property
    def best(self) -> LawFit:
        """The law with the smallest error on what it has not seen; in sample where nothing could be held out."""
        known = [f for f in self.fits if f.mape is not None]
        return min(known, key=lambda f: (math.inf if f.mape_held_out is None else f.mape_held_out, f.mape or 0.0))

    def law(self, name: str) -> LawFit:
        """A law by its name."""
        return next(f for f in self.fits if f.model == name)

    def predictions(self, fit: LawFit) -> Float:
        """Of a law, for every cell used."""
        law = next(law for law in LAWS if law.name == fit.model)
        return law.curve(np.array(fit.constants), arrays(self.used))


def arrays(cells: Sequence[SequenceCell]) -> Architectures:
    """Cells as the columns that laws are functions of."""
    rows = [(c.heads, c.length, c.d_model, c.parameters, c.bits) for c in cells]
    return Architectures(*np.array(rows, dtype=np.float64).reshape(-1, 5).T)


def usable(cells: Sequence[SequenceCell], regime: str) -> tuple[list[SequenceCell], list[tuple[str, str]]]:
    """The cells of a regime that count, and the others with the reason."""
    mine = [c for c in cells if c.regime == regime]
    good, gone = [], []
    for cell in mine:
        why = None
        if not cell.capacity:
            why = "nothing was recited, or no member has a number"
        elif cell.status != "measured":
            why = f"{cell.status}: twice the steps moved it by {cell.moved:+.1%}" if cell.moved is not None else cell.status
        elif cell.failed:
            why = f"{cell.failed} members have no number"
        if why is None:
            good.append(cell)
        else:
            gone.append((cell.name, why))
    return good, gone


def fit_ecm(cells: Sequence[SequenceCell], regime: str, draws: int = DRAWS) -> EcmFit:
    """Every law on the cells of a regime. fit_id: hash of the laws and of the evidence of every cell"""
    used, left_out = usable(cells, regime)
    used.sort(key=lambda c: (c.heads, c.length, c.d_model, c.evidence))
    if len(used) < LEAST_CELLS:
        raise BadInput(
            f"A fit must have at least {LEAST_CELLS} cells of the regime `{regime}` that count, but got {len(used)} "
            f"({len(left_out)} left out). Measure more: keyspan reproduce harma:capacity."
        )
    laws = [law.name for law in LAWS]
    about = {"model": laws, "version": FIT_VERSION, "regime": regime, "evidence": sorted(c.evidence for c in used)}
    fit_id = digest(about, "f")
    at, held = arrays(used), np.array([c.capacity for c in used], dtype=np.float64)
    fits = tuple(_Fitter(law, fit_id, draws).fit(at, held) for law in LAWS)
    return EcmFit(regime=regime, fits=fits, used=tuple(used), left_out=tuple(left_out), fit_id=fit_id)


def mape(predicted: Float, measured: Float) -> float:
    """Mean |predicted / measured - 1|."""
    return float(np.mean(np.abs(predicted / measured - 1.0)))


class _Fitter:
    """One law, its starts and its draws, which depend on the fit's id alone."""

    def __init__(self, law: Law, fit_id: str, draws: int) -> None:
        self.law, self.fit_id, self.draws = law, fit_id, draws

    def fit(self, at: Architectures, held: Float) -> LawFit:
        """The law on all cells, and on all but those held out."""
        constants = self.solve(at, held)
        splits = [split for what, of in HELD_OUT.items() if (split := self._held_out(what, of(at), at, held))]
        errors = [split.mape.estimate for split in splits]
        return LawFit(
            model=self.law.name,
            formula=self.law.formula,
            origin=self.law.source,
            parameters=self._intervals(constants, at, held),
            constants=tuple(float(c) for c in constants),
            mape=mape(self.law.curve(constants, at), held),
            mape_held_out=float(np.mean(errors)) if errors else None,
            held_out=tuple(splits),
            cells=len(held),
            note=self._note(len(held)),
        )

    def _note(self, cells: int) -> str | None:
        if self.law.columns is None:
            return None if cells > len(self.law.names) else f"{len(self.law.names)} constants on {cells} cells"
        return f"56 constants on {cells} cells; where the cells do not tell them apart, the smallest"

    # -------------------------------------------------------------------------------------------- one solution

    def solve(self, at: Architectures, held: Float, near: Float | None = None) -> Float:
        """Constants with the least squared relative error. near: one start instead of many"""
        if self.law.columns is not None:
            rows = self.law.columns(at) / held[:, None]
            return np.asarray(np.linalg.lstsq(rows, np.ones(len(held)), rcond=None)[0])
        starts = [near] if near is not None else self._starts(at, held)
        calls = MOST_CALLS if near is None else NEAR_CALLS
        found = [self._from(start, at, held, calls) for start in starts]
        return min(found, key=lambda pair: pair[0])[1]

    def _starts(self, at: Architectures, held: Float) -> list[Float]:
        """Random constants within the law's ranges, then scaled, where that can be, to the size of what was measured."""
        stream = Stream(self.fit_id, f"starts {self.law.name}")
        out = []
        for _ in range(1 if len(self.law.names) == 1 else STARTS):
            share = stream.uniform(len(self.law.names))
            values = [
                math.exp(math.log(low) + u * math.log(high / low)) if kind == "log" else low + u * (high - low)
                for u, (_, low, high, kind) in zip(share, self.law.constants, strict=True)
            ]
            out.append(np.array(values))
        return out

    def _from(self, start: Float, at: Architectures, held: Float, calls: int) -> tuple[float, Float]:
        """Where least squares leads from a start. returns: sum of squares, constants"""
        from scipy.optimize import least_squares

        logs = np.array([kind == "log" for *_, kind in self.law.constants])

        def constants(z: Float) -> Float:
            return np.where(logs, np.exp(np.clip(z, -40.0, 40.0)), z)

        def errors(z: Float) -> Float:
            with np.errstate(all="ignore"):
                relative = self.law.curve(constants(z), at) / held - 1.0
            return np.nan_to_num(np.clip(relative, -1e3, 1e3), nan=1e3)

        begin = np.where(logs, np.log(np.where(logs, start, 1.0)), start)
        method = "lm" if len(held) >= len(begin) else "trf"  # the first is much faster, and wants as many cells as constants
        solved = least_squares(errors, begin, method=method, x_scale=np.maximum(np.abs(begin), 0.1), max_nfev=calls)
        return float(2.0 * solved.cost), np.asarray(constants(solved.x))

    # ------------------------------------------------------------------------------------------------ intervals

    def _drawn(self, cells: int, purpose: str) -> Ints:
        stream = Stream(self.fit_id, f"bootstrap {purpose}")
        return stream.integers(cells, self.draws * cells).reshape(self.draws, cells).astype(np.intp)

    def _intervals(self, constants: Float, at: Architectures, held: Float) -> dict[str, Estimate]:
        if self.law.columns is not None:
            return {}
        drawn = np.array([self.solve(at.pick(d), held[d], constants) for d in self._drawn(len(held), "constants")])
        low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
        return {name: Estimate(float(constants[k]), float(low[k]), float(high[k])) for k, name in enumerate(self.law.names)}

    def _held_out(self, what: str, sizes: Float, at: Architectures, held: Float) -> HeldOut | None:
        """The cells with the largest of something, predicted from all others; None where the others are too few."""
        largest = float(sizes.max())
        test = sizes == largest
        if test.all() or int((~test).sum()) < max(2, LEAST_CELLS // 2):
            return None
        learned, unseen = np.flatnonzero(~test), np.flatnonzero(test)
        constants = self.solve(at.pick(learned), held[learned])
        predicted = self.law.curve(constants, at.pick(unseen))
        error = mape(predicted, held[unseen])
        errors = []
        both = zip(self._drawn(len(learned), f"learned {what}"), self._drawn(len(unseen), f"unseen {what}"), strict=True)
        for a, b in both:
            again = self.solve(at.pick(learned[a]), held[learned[a]], constants if self.law.columns is None else None)
            errors.append(mape(self.law.curve(again, at.pick(unseen[b])), held[unseen[b]]))
        low, high = np.quantile(errors, [0.025, 0.975])
        hits = int((held[unseen] >= predicted).sum())
        return HeldOut(
            what=what,
            value=largest,
            mape=Estimate(error, float(low), float(high)),
            cells=len(unseen),
            above=Estimate(hits / len(unseen), *wilson(hits, len(unseen))),
            errors=tuple(errors),
        )


def wilson(hits: int, of: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's 95% interval of a share."""
    centre = (hits + z * z / 2) / (of + z * z)
    half = z * math.sqrt(hits * (of - hits) / of + z * z / 4) / (of + z * z)
    return max(0.0, centre - half), min(1.0, centre + half)
