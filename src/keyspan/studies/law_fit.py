"""Which law says best what the solvers needed? Fitted to small cells, held to large ones (docs/law.md).

    python -m keyspan.studies.law_fit benchmarks/law.csv

Every form predicts D_K of a cell at a number of heads. Its constants are fitted to cells of at most 256 items whose interval
(largest that fails, smallest that holds] is narrow, by least squares between logarithms of the prediction and of its middle.
Errors are distances from the prediction to that interval, over its nearer end, on the cells that are larger.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np

from keyspan.errors import BadInput, KeyspanError
from keyspan.theory.gardner import gardner_load
from keyspan.theory.width import width_budget

LARGEST_FITTED = 256  # items of the cells that constants are fitted to
OWNED = "solver-fixed"
NARROW = 1.25  # a cell is fitted to if its ends lie no further apart: a step of d_k from 1 to 2 says little
LEAST_BUDGET = 40  # of the cells that a form is held to: below it one step of d_k is too coarse


@dataclass(frozen=True)
class Held:
    """A closed point: more than `fails`, no more than `holds`."""

    items: int
    d_model: int
    edges: int
    heads: int
    fails: int
    holds: int

    @property
    def middle(self) -> float:
        """Geometric mean of the ends."""
        return math.sqrt(max(self.fails, 0.5) * self.holds)

    def distance(self, predicted: float) -> float:
        """From a prediction to the interval, over its nearer end."""
        if predicted > self.holds:
            return predicted / self.holds - 1
        return max(0.0, 1 - predicted / self.fails) if self.fails else 0.0


Predict = Callable[[Held, Sequence[float]], float | None]


@dataclass(frozen=True)
class Form:
    """A law. constants: names, with the interval in which each is looked for; none: nothing is fitted"""

    name: str
    formula: str
    predict: Predict
    constants: tuple[tuple[str, float, float], ...] = ()


def by_rho(held: Held, rho: Callable[[float], float]) -> float | None:
    """D_K with 2t - t^2 = rho(t) P / (h d^2), by bisection; None where the heads are too few at any width."""
    used = gardner_load(held.edges, held.items, held.heads) / (held.heads * held.d_model**2)
    low, high = 0.0, 1.0
    if rho(1.0) * used > 1.0:
        return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if 2 * middle - middle**2 >= rho(middle) * used else (middle, high)
    return held.heads * held.d_model * high


def _log_law(held: Held) -> float:
    return held.edges * math.log(held.edges) / held.d_model


FORMS = (
    Form("width", "h d^2 F(t) = P", lambda c, k: width_budget(c.edges, c.items, c.d_model, c.heads)),
    Form(
        "width, excess",
        "h d^2 F(t) = k P",
        lambda c, k: width_budget(c.edges, c.items, c.d_model, c.heads, excess=k[0]),
        (("k", 0.5, 2.0),),
    ),
    Form("gardner, as before", "rho = .72 + .28 t", lambda c, k: by_rho(c, lambda t: 0.72 + 0.28 * t)),
    Form("gardner, fitted", "rho = a + (1 - a) t", lambda c, k: by_rho(c, lambda t: k[0] + (1 - k[0]) * t), (("a", 0.2, 1.5),)),
    Form("gardner, constant", "rho = a", lambda c, k: by_rho(c, lambda t: k[0]), (("a", 0.2, 1.5),)),
    Form("degrees of freedom", "rho = 1", lambda c, k: by_rho(c, lambda t: 1.0)),
    Form("law", "c m' ln m' / d", lambda c, k: k[0] * _log_law(c), (("c", 1e-3, 1e3),)),
    Form("no log", "c m' / d", lambda c, k: k[0] * c.edges / c.d_model, (("c", 1e-3, 1e3),)),
    Form(
        "power",
        "c m'^p / d^a",
        lambda c, k: k[0] * c.edges ** k[1] / c.d_model ** k[2],
        (("c", 1e-3, 1e3), ("p", 0.0, 3.0), ("a", 0.0, 3.0)),
    ),
)


@dataclass(frozen=True)
class Fitted:
    """A form with its constants, and how far it lies from what was measured. None where it predicts nothing for a cell"""

    form: Form
    constants: tuple[float, ...]
    fitted_to: int
    median: float | None
    mean: float | None
    largest: float | None
    inside: int
    of: int
    undefined: int

    def line(self) -> list[str]:
        """Its row of the table in docs/law.md."""
        values = ", ".join(
            f"{name} = {value:.3g}" for (name, _, _), value in zip(self.form.constants, self.constants, strict=True)
        )
        errors = [_percent(v) for v in (self.median, self.mean, self.largest)]
        return [self.form.name, f"`{self.form.formula}`", values or "none", *errors, f"{self.inside} of {self.of}"]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


def fit(form: Form, cells: Sequence[Held]) -> tuple[float, ...]:
    """The constants of a form, least squares of logarithms."""
    if not form.constants:
        return ()
    if form.name == "power":
        design = np.array([[1.0, math.log(c.edges), -math.log(c.d_model)] for c in cells])
        theta = np.linalg.lstsq(design, np.log([c.middle for c in cells]), rcond=None)[0]
        return float(np.exp(theta[0])), float(theta[1]), float(theta[2])
    from scipy.optimize import minimize_scalar

    ((_, low, high),) = form.constants

    def loss(log_constant: float) -> float:
        predicted = [(form.predict(c, (math.exp(log_constant),)), c) for c in cells]
        return math.fsum(math.log(p / c.middle) ** 2 if p else 1.0 for p, c in predicted)

    found = minimize_scalar(loss, bounds=(math.log(low), math.log(high)), method="bounded", options={"xatol": 1e-6})
    return (float(math.exp(found.x)),)


def judge(form: Form, fitted_to: Sequence[Held], held_out: Sequence[Held]) -> Fitted:
    """Fit a form to some cells and hold it to others."""
    constants = fit(form, fitted_to)
    predicted = [(form.predict(c, constants), c) for c in held_out]
    known = [c.distance(p) for p, c in predicted if p is not None]
    return Fitted(
        form,
        constants,
        fitted_to=len(fitted_to),
        median=median(known) if known else None,
        mean=fmean(known) if known else None,
        largest=max(known, default=None),
        inside=sum(d == 0 for d in known),
        of=len(known),
        undefined=len(predicted) - len(known),
    )


def cells_of(rows: Sequence[Mapping[str, str]], recipe: str, *, plain: bool = True) -> list[Held]:
    """The closed points of a recipe; permutations of gaussian rows only, where `plain`."""
    numbers = ("items", "d_model", "edges", "heads", "fails", "key_budget")
    return [
        Held(*(int(row[name]) for name in numbers))
        for row in rows
        if row["recipe"] == recipe and row["key_budget"] and (not plain or is_plain(row))
    ]


def split(cells: Sequence[Held], largest: int = LARGEST_FITTED, least: int = LEAST_BUDGET) -> tuple[list[Held], list[Held]]:
    """Those that constants are fitted to, and those that forms are held to. largest: items    least: budget"""
    small = [c for c in cells if c.items <= largest and c.holds <= NARROW * c.fails]
    return small, [c for c in cells if c.items > largest and c.holds >= least]


def table(
    rows: Sequence[Mapping[str, str]], recipe: str, largest: int = LARGEST_FITTED, least: int = LEAST_BUDGET
) -> list[Fitted]:
    """Every form, fitted and judged."""
    small, large = split(cells_of(rows, recipe), largest, least)
    if not small or not large:
        raise BadInput(f"The table must have small and large cells of `{recipe}`, but got {len(small)} and {len(large)}.")
    return [judge(form, small, large) for form in FORMS]


def markdown(found: Sequence[Fitted]) -> str:
    """The table of docs/law.md."""
    head = ["form", "", "fitted", "median", "mean", "largest", "inside"]
    lines = [head, ["---"] * len(head), *[f.line() for f in found]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def is_plain(row: Mapping[str, str]) -> bool:
    """Whether it is a permutation of gaussian rows."""
    return (row["graph"], row["embeddings"]) == ("permutation", "gaussian")


def thresholds(rows: Sequence[Mapping[str, str]], *, plain: bool = True) -> str:
    """What was measured, as docs/law.md has it: a line for every cell, in it every number of heads.

    plain: permutations of gaussian rows; or everything else
    """
    chosen = sorted((r for r in rows if is_plain(r) is plain), key=lambda r: (*_cell(r), int(r["heads"])))
    first = ["items, d"] if plain else ["items, d", "graph, edges", "vectors"]
    head = [*first, "edges", "heads: largest that fails, smallest that holds (width)"]
    lines = [head, ["---"] * len(head)]
    for (items, d_model, graph, edges, vectors, recipe), group in itertools.groupby(chosen, _cell):
        names = [f"{items}, {d_model}"] if plain else [f"{items}, {d_model}", f"{graph}, {edges}", vectors]
        lines.append([*names, "owned" if recipe == OWNED else "chosen", "; ".join(_interval(r) for r in group)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(row: Mapping[str, str]) -> tuple[int, int, str, int, str, str]:
    sizes = (int(row[name]) for name in ("items", "d_model", "edges"))
    items, d_model, edges = sizes
    return items, d_model, row["graph"], edges, row["embeddings"], row["recipe"]


def _interval(row: Mapping[str, str]) -> str:
    width = f"{float(row['width']):.1f}" if row["width"] else "none"
    return f"**{row['heads']}**: {row['fails']}, {row['key_budget'] or 'none'} ({width})"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `python -m keyspan.studies.law_fit`."""
    parser = argparse.ArgumentParser(prog="python -m keyspan.studies.law_fit", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path, help="what `python -m keyspan.studies.law --out` wrote")
    parser.add_argument("--recipe", default=OWNED, help="solver-fixed|solver")
    parser.add_argument("--largest", type=int, default=LARGEST_FITTED, help="items of the cells that constants are fitted to")
    parser.add_argument("--least", type=int, default=LEAST_BUDGET, help="budget of the cells that forms are held to")
    parser.add_argument("--thresholds", action="store_true", help="print what was measured instead")
    parser.add_argument("--others", action="store_true", help="with --thresholds: other graphs and vectors")
    args = parser.parse_args(argv)
    try:
        with args.table.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        if args.thresholds:
            print(thresholds(rows, plain=not args.others))
            return 0
        found = table(rows, args.recipe, args.largest, args.least)
    except (KeyspanError, OSError) as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return 2
    print(f"fitted to {found[0].fitted_to} cells of at most {args.largest} items, held to {found[0].of + found[0].undefined}")
    print(markdown(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
