"""The data of Haermae et al.'s figures: what is drawn, told in words, printed and written beside the picture."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from keyspan.decoders import Decoder
from keyspan.evidence.fits_ecm import EcmFit, LawFit
from keyspan.evidence.sequence_cells import COLUMNS, SequenceCell
from keyspan.papers.harma_measured import PUBLISHED, RIVAL, TEXT, Point, Recitals
from keyspan.theory import ecm
from keyspan.views.drawings import Data

MORRIS, ALLEN_ZHU = 3.6, 2.0  # bits per parameter: Morris et al. 2025; Allen-Zhu and Li 2024
SAID = ("estimate", "low", "high")


@dataclass(frozen=True)
class Points(Data):
    """Capacities of a figure, whatever stands on its axis."""

    found: Recitals

    @property
    def points(self) -> tuple[Point, ...]:
        """All of them."""
        return self.found.points

    @property
    def series(self) -> list[str]:
        """Lines, in the order they were asked for."""
        return list(dict.fromkeys(p.ask.series for p in self.points))

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        each = [f"{p.ask.series}, {_cell(p)}: {_held(p.cell)}" for p in self.points]
        return f"{self.found.figure.title}. Sequences recited: {'; '.join(each)}."

    def rows(self) -> list[dict[str, Any]]:
        """A row for every capacity, for the CSV."""
        return [{"series": p.ask.series, "x": p.ask.x} | row_of(p.cell) for p in self.points]

    def facts(self) -> dict[str, Any]:
        """How many were measured, and how many count."""
        cells = self.found.cells
        return {"capacities": len(cells), "converged": sum(c.status == "measured" for c in cells)}

    def printed(self) -> tuple[str, list[str], list[list[Any]]]:
        """A table of all capacities."""
        columns = ["line", "H", "N", "B", "P", "recited [low, high]", "library", "bits per parameter", "status"]
        rows: list[list[Any]] = []
        for p in self.points:
            c = p.cell
            bits = "-" if c.recited_per_parameter is None else f"{c.recited_per_parameter:.2f}"
            rows.append([p.ask.series, c.heads, c.length, c.d_model, c.parameters, _held(c), c.library, bits, c.status])
        return self.found.figure.title, columns, rows


def row_of(cell: SequenceCell) -> dict[str, Any]:
    """A capacity as a row: the columns of a file of cells."""
    told = asdict(cell)
    return {name: told[name] for name in COLUMNS}


def _cell(point: Point) -> str:
    c = point.cell
    return f"H {c.heads}, N {c.length}, B {c.d_model}" + (f", {c.layers} layers" if c.layers > 1 else "")


def _held(cell: SequenceCell) -> str:
    if cell.capacity is None:
        return cell.status
    ends = "" if cell.low is None or cell.high is None else f" [{cell.low:.0f}, {cell.high:.0f}]"
    return f"{cell.capacity:.0f}{ends}" + ("" if cell.status == "measured" else f" ({cell.status})")


@dataclass(frozen=True)
class Laws(Points):
    """The grid with the laws fitted, regime by regime."""

    @property
    def fits(self) -> dict[str, EcmFit]:
        """By regime."""
        return self.found.fits

    @property
    def shown(self) -> tuple[str, ...]:
        """The laws drawn: the published one, its text's, the rival, and the best one of each regime."""
        best = [fit.best.model for fit in self.fits.values()]
        return tuple(dict.fromkeys([PUBLISHED, TEXT, RIVAL, *best]))

    def curve(self, regime: str, law: str, heads: int, length: int, widths: list[float]) -> list[float]:
        """A law's capacity along B, one H and N."""
        fit = self.fits[regime]
        like = next(c for c in fit.used if c.length == length)
        decoders = [(Decoder(heads=heads, d_model=max(1, round(b))), length) for b in widths]
        at = ecm.architectures(decoders, like.vocabulary, like.prompt)._replace(bits=_constant(like.bits, len(widths)))
        return [float(v) for v in ecm.law_named(law).curve(_constants(fit.law(law)), at)]

    def facts(self) -> dict[str, Any]:
        """Every law's errors, in and out of sample, by regime."""
        return super().facts() | {"regimes": {regime: _errors(fit) for regime, fit in self.fits.items()}}

    @property
    def alt_text(self) -> str:
        """The figure in words: the laws, then the capacities."""
        said = []
        for regime, fit in self.fits.items():
            best = fit.best
            said.append(f"{regime}: {len(fit.used)} cells; {best.model} is best on unseen cells, {_error(best)}")
        return f"{super().alt_text} Laws: {'; '.join(said) or 'too few cells'}."


def _constant(value: float, count: int) -> Any:
    return np.full(count, value)


def _constants(fit: LawFit) -> Any:
    return np.array(fit.constants)


def _error(fit: LawFit) -> str:
    held = "-" if fit.mape_held_out is None else f"{fit.mape_held_out:.3f}"
    return f"error {fit.mape:.3f}, held out {held}"


def _errors(fit: EcmFit) -> dict[str, Any]:
    """Laws of a regime with their errors."""
    return {
        "cells": len(fit.used),
        "best": fit.best.model,
        "fit_id": fit.fit_id,
        "laws": {
            law.model: {"mape": law.mape, "mape_held_out": law.mape_held_out}
            | {f"held_out_{s.what}": [s.mape.estimate, s.mape.low, s.mape.high] for s in law.held_out}
            for law in fit.fits
        },
    }


@dataclass(frozen=True)
class Residuals(Laws):
    """Measured over predicted, law by law."""

    def residuals(self, regime: str, law: str) -> list[tuple[SequenceCell, float]]:
        """Every cell with `C / predicted - 1`."""
        fit = self.fits[regime]
        predicted = fit.predictions(fit.law(law))
        pairs = zip(fit.used, predicted, strict=True)
        return [(c, float((c.capacity or 0.0) / p - 1.0)) for c, p in pairs if p > 0]

    def rows(self) -> list[dict[str, Any]]:
        """A row for every cell and law."""
        return [
            {"regime": regime, "law": law.model, "heads": c.heads, "length": c.length, "d_model": c.d_model}
            | {"capacity": c.capacity, "residual": residual}
            for regime, fit in self.fits.items()
            for law in fit.fits
            for c, residual in self.residuals(regime, law.model)
        ]


@dataclass(frozen=True)
class Bits(Points):
    """Bits that a parameter holds: stored, and recited."""

    def facts(self) -> dict[str, Any]:
        """Means and spreads over cells that count, by regime; beside what others found."""
        told: dict[str, Any] = {"morris_et_al": MORRIS, "allen_zhu_and_li": ALLEN_ZHU}
        for regime in self.series:
            counted = [p.cell for p in self.found.series(regime) if p.cell.status == "measured"]
            for name in ("stored_per_parameter", "recited_per_parameter"):
                values = [v for c in counted if (v := getattr(c, name)) is not None]
                if values:
                    low, high = (float(q) for q in np.quantile(values, [0.025, 0.975]))
                    told[f"{regime}_{name}"] = {"mean": float(np.mean(values)), "low": low, "high": high, "cells": len(values)}
        return super().facts() | told


@dataclass(frozen=True)
class Tents(Points):
    """Recited against the library's size."""

    def rows(self) -> list[dict[str, Any]]:
        """A row for every library tried."""
        return [
            {"measure": p.ask.measure, "heads": p.cell.heads, "length": p.cell.length, "d_model": p.cell.d_model}
            | {"steps": p.cell.steps, "library": r.library, "recited": r.mean, "seeds": len(r.recited)}
            | {"capacity": p.cell.capacity, "mls": p.cell.mls, "nearly": p.cell.nearly}
            for p in self.points
            for r in p.rungs
        ]

    def compared(self) -> list[dict[str, Any]]:
        """Every cell's measures beside each other, over the ladder's peak."""
        out: list[dict[str, Any]] = []
        for top in (p for p in self.points if p.ask.measure == "ladder"):
            mine = (top.ask.decoder, top.ask.problem)
            same = {p.ask.measure: p.cell for p in self.points if (p.ask.decoder, p.ask.problem) == mine}
            peak = top.cell.capacity
            told: dict[str, Any] = {"heads": top.cell.heads, "length": top.cell.length, "d_model": top.cell.d_model}
            told |= {"ladder": peak, "mls": top.cell.mls, "all_but_1_percent": top.cell.nearly}
            for name, cell in same.items():
                if name != "ladder":
                    told[name] = cell.capacity
                    told[f"{name}_over_ladder"] = cell.capacity / peak if peak and cell.capacity is not None else None
                told[f"{name}_spread"], told[f"{name}_stored_per_parameter"] = cell.spread, cell.stored_per_parameter
            out.append(told)
        return out

    def facts(self) -> dict[str, Any]:
        """The measures beside each other."""
        return super().facts() | {"measures": self.compared()}

    def printed(self) -> tuple[str, list[str], list[list[Any]]]:
        """The measures beside each other, cell by cell."""
        columns = ["H", "N", "B", "ladder (MAC)", "MLS", "all but 1%", "ride", "over ladder", "spread", "literal"]
        rows: list[list[Any]] = []
        for c in self.compared():
            share, spread = c.get("ride_over_ladder"), c.get("ride_spread")
            held = [_number(c.get(name)) for name in ("ladder", "mls", "all_but_1_percent", "ride")]
            beside = ["-" if share is None else f"{share:.2f}", "-" if spread is None else f"{spread:.1%}"]
            rows.append([c["heads"], c["length"], c["d_model"], *held, *beside, _number(c.get("literal"))])
        return self.found.figure.title, columns, rows


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
