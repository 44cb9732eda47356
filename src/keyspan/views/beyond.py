"""The data of the figures beyond Adler's: what `adler:graphs`, `adler:embeddings` ... came to, as small frozen tuples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Any

from keyspan.evidence.fits import Fit
from keyspan.papers.beyond_statistics import COUNTS, count_fits, edges_exponent
from keyspan.papers.compared import Compared, Curve, Line, Variant
from keyspan.papers.sweeps import Size
from keyspan.problems import NoContents, embeddings, incoherence
from keyspan.specs import digest
from keyspan.views.drawings import Data


def _row(line: Line, ratio: float | None) -> dict[str, Any]:
    return {"variant": line.label} | line.cell.to_row() | {"bits": line.bits, "over_base": ratio}


def _said(value: float | None, digits: int = 2) -> str:
    return "not known" if value is None else f"{value:.{digits}f}"


def _budget(line: Line | None) -> str:
    """D_K*, its range and heads, as a table shows them."""
    if line is None:
        return ""
    if line.cell.key_budget is None:
        return "not reached"
    low, high = ("?" if end is None else str(end) for end in (line.cell.low, line.cell.high))
    return f"{line.cell.key_budget} [{low}, {high}] h {'≥' if line.cell.cut_short else '='} {line.cell.heads}"


def _size(size: Size) -> str:
    return f"m {size[0]}, d {size[1]}"


# -------------------------------------------------------------------------------------------------------- graphs


@dataclass(frozen=True)
class GraphScatter(Data):
    """D_K* against m' ln m' / d, a marker for every family, and what might count instead. fits: by the model's name"""

    lines: tuple[Line, ...]
    labels: tuple[str, ...]
    sizes: tuple[Size, ...]
    fits: Mapping[str, Fit]
    exponent: float | None

    def of(self, label: str) -> list[Line]:
        """The lines of a label that have a number."""
        return [line for line in self.lines if line.label == label and line.cell.key_budget]

    def facts(self) -> dict[str, Any]:
        """The law and its rivals, one constant each for all graphs."""
        return {"exponent_of_edges": self.exponent, "fits": [fit.to_dict() for fit in self.fits.values()]}

    @property
    def summary(self) -> tuple[str, ...]:
        """The fits in a few lines."""
        if not self.fits:
            return ("too few graphs for a fit",)
        law = self.fits["law"]
        c = law.parameters["c"]
        said = [f"slope {c.estimate:.2f} [{_said(c.low)}, {_said(c.high)}]", f"R² {_said(law.r2, 3)} of ln D_K*"]
        errors = [f"{name} {fit.mape_held_out:.0%}" for name, fit in self.fits.items() if fit.mape_held_out is not None]
        return (*said, "held-out error:", *errors)

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        kinds = f"{len(self.labels)} kinds of graphs at {len(self.sizes)} sizes"
        return f"Measured D_K* against m' ln m' / d for {kinds}: {'; '.join(self.summary)}."

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it: what `keyspan fit law --from` reads."""
        return [_row(line, line.cell.ratio) | {"over_law": line.cell.ratio} for line in self.lines]

    def printed(self) -> tuple[str, list[str], list[list[Any]]]:
        """D_K* and its multiple of the law, graph by graph."""
        rows = []
        for label in self.labels:
            here = {line.size: line for line in self.lines if line.label == label}
            cells = [here.get(size) for size in self.sizes]
            ratios = ["" if c is None or c.cell.ratio is None else f"{c.cell.ratio:.2f}" for c in cells]
            rows.append([label, *[_budget(c) for c in cells], " ".join(ratios)])
        return "D_K* by graph", ["graph", *map(_size, self.sizes), "D_K* / law"], rows


def graphs_info(found: Compared) -> GraphScatter:
    """All graphs, and the fits to them."""
    fits = count_fits(found)
    wanted = {name: fits[name] for name in ("law", *COUNTS, "gardner", "power") if name in fits}
    return GraphScatter(found.lines, tuple(found.labels), tuple(found.sizes), wanted, edges_exponent(found))


# -------------------------------------------------------------------------------------------------- ratios to a base


@dataclass(frozen=True)
class Ratios(Data):
    """D_K* over that of a base, label by label and size by size. more: further columns, by label and size"""

    what: str
    base: str
    lines: tuple[Line, ...]
    labels: tuple[str, ...]
    sizes: tuple[Size, ...]
    over_base: Mapping[tuple[str, Size], float | None]
    more: Mapping[tuple[str, Size], Mapping[str, float]]

    def at(self, label: str, size: Size) -> Line | None:
        """The line of a label at a size."""
        return next((line for line in self.lines if (line.label, line.size) == (label, size)), None)

    def scaled(self, label: str, size: Size) -> tuple[float, float, float] | None:
        """D_K* and its interval over the base's D_K*; None where there is none. An open end is the estimate."""
        line, base = self.at(label, size), self.at(self.base, size)
        if line is None or base is None or not base.cell.key_budget or line.cell.key_budget is None:
            return None
        here, unit = line.cell.key_budget, base.cell.key_budget
        return here / unit, (line.cell.low or here) / unit, (line.cell.high or here) / unit

    def facts(self) -> dict[str, Any]:
        """The ratios."""
        told = [
            {"variant": label, "items": size[0], "d_model": size[1], "ratio": ratio, **self.more.get((label, size), {})}
            for (label, size), ratio in self.over_base.items()
        ]
        return {"base": self.base, "over_base": told}

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        each = []
        for label in self.labels:
            known = [r for (la, _), r in self.over_base.items() if la == label]
            each.append(f"{label}: {', '.join('not reached' if r is None else f'{r:.2f}' for r in known)}")
        return f"{self.what}, over that of {self.base}, at {', '.join(map(_size, self.sizes))}. {'; '.join(each)}."

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it."""
        return [
            _row(line, self.over_base[line.label, line.size]) | dict(self.more.get((line.label, line.size), {}))
            for line in self.lines
        ]

    def printed(self) -> tuple[str, list[str], list[list[Any]]]:
        """D_K* and the ratio, label by label."""
        rows = []
        for label in self.labels:
            ratios = [self.over_base.get((label, size)) for size in self.sizes]
            told = ["" if r is None else f"{r:.2f}" for r in ratios]
            rows.append([label, *[_budget(self.at(label, size)) for size in self.sizes], " ".join(told)])
        return self.what, ["", *map(_size, self.sizes), f"over {self.base}"], rows


def ratios_info(found: Compared, what: str, more: Mapping[tuple[str, Size], Mapping[str, float]] | None = None) -> Ratios:
    """Every line beside the base of its size."""
    return Ratios(
        what=what,
        base=found.comparison.base,
        lines=found.lines,
        labels=tuple(found.labels),
        sizes=tuple(found.sizes),
        over_base={(line.label, line.size): found.ratio(line) for line in found.lines},
        more=more or {},
    )


def embeddings_info(found: Compared) -> Ratios:
    """Item vectors beside gaussian ones, with how far from independent they are."""
    more = {(v.label, v.size): _incoherence(v) for v in found.comparison.variants}
    return ratios_info(found, "D_K* by item vectors", more)


def _incoherence(variant: Variant) -> dict[str, float]:
    """Of the first instance. coherence: largest |cosine|    leak_ratio: mean leak over that of gaussian rows

    leak_ratio_whitened: the same after the linear map that makes all directions alike, which a channel's weights can hold
    """
    problem = variant.problem
    problem_id = digest({"problem": problem.to_json(), "replicate": 0}, "p")
    rows = embeddings.make(problem.embeddings, problem.items, problem.d_model, problem_id, NoContents())
    return {
        "coherence": embeddings.coherence(rows),
        "leak_ratio": incoherence.leak_ratio(rows),
        "leak_ratio_whitened": incoherence.leak_ratio(incoherence.whitened(rows)),
    }


def contexts_info(found: Compared) -> Ratios:
    """Contexts of several sizes beside all items."""
    return ratios_info(found, "D_K* by what is shown at a step")


def typed_info(found: Compared) -> Ratios:
    """Several types beside one."""
    return ratios_info(found, "D_K* by types and how they share heads")


# ----------------------------------------------------------------------------------------------------- continual

KEPT = ("f1", "learned", "retained", "forgotten")  # what a curve is shown by


@dataclass(frozen=True)
class Forgetting(Data):
    """F1 and what was forgotten against D_K, and D_K* of what may reach it. ratios: of the searches"""

    ratios: Ratios
    curves: tuple[Curve, ...]
    sizes: tuple[Size, ...]

    def of(self, size: Size) -> list[Curve]:
        """The curves of a size."""
        return [curve for curve in self.curves if curve.size == size]

    def line(self, curve: Curve, name: str) -> list[tuple[int, float, float, float]]:
        """Budget, mean, least and largest over seeds; with the heads of the largest F1."""
        found = [(b, curve.at(b, name)) for b in curve.budgets]
        return [(b, mean(values), min(values), max(values)) for b, values in found if values]

    def facts(self) -> dict[str, Any]:
        """D_K* of the searches, over that of all at once."""
        return self.ratios.facts()

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        each = []
        for curve in self.curves:
            lost = [(b, value) for b, value, _, _ in self.line(curve, "forgotten")]
            if lost:
                (low, first), (high, last) = lost[0], lost[-1]
                each.append(f"{curve.label}, {_size(curve.size)}: {first:.2f} at D_K {low}, {last:.2f} at {high}")
        return f"{self.ratios.alt_text} Forgotten, of F1: {'; '.join(each)}."

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it: searches have a `key_budget` and no F1."""
        blank = dict.fromkeys(KEPT)
        searched = [
            {k: row[k] for k in ("variant", "items", "d_model", "heads", "key_budget", "low", "high", "seeds", "over_base")}
            | {"searched": True, **blank}
            for row in self.ratios.rows()
        ]
        keys = ("low", "high", "over_base")
        for curve in self.curves:
            for (heads, budget), scores in sorted(curve.scores.items()):
                about = {"variant": curve.label, "items": curve.size[0], "d_model": curve.size[1]}
                known = {name: mean(scores[name]) if scores.get(name) else None for name in KEPT}
                place = {"heads": heads, "key_budget": budget, "seeds": len(scores.get("f1", ())), "searched": False}
                searched.append(about | place | dict.fromkeys(keys) | known)
        return searched

    def printed(self) -> tuple[str, list[str], list[list[Any]]]:
        """F1, learned, kept and forgotten at every budget, with the best heads."""
        rows = []
        for curve in self.curves:
            for budget in curve.budgets:
                told = [curve.mean(budget, name) for name in KEPT]
                rows.append([curve.label, _size(curve.size), budget, *["" if v is None else f"{v:.3f}" for v in told]])
        return "Batch by batch", ["", "cell", "D_K", "F1", "learned", "retained", "forgotten"], rows


def continual_info(found: Compared) -> Forgetting:
    """The curves, and the searches beside all at once."""
    return Forgetting(ratios_info(found, "D_K* by how rows arrive"), found.curves, tuple(found.sizes))
