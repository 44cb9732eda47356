"""The measurements that the package ships (`design_cells.csv`), and what is read off them: the design law, and what other
item vectors and other targets cost beside it.

The CSV is written by `python -m keyspan.studies.design_cells`; a row says which command measures it, with which version and
seeds. What the law promises was judged with those of the role `held-out` left out, and in blocks (`studies.held_out`); the one
that answers is fitted to both.

**Item vectors.** Vectors that prefer some directions need more: D_K* = law (d / d')^kappa, where d' is the d of Gaussian rows
with their stable rank (`spectrum.dimension_of`). kappa is fitted, through the origin, to clustered rows beside gaussian
ones of the same size.

**Targets.** The budget that reaches another F1, over that for 0.99, read off the levels that were measured anyway.
"""

from __future__ import annotations

import csv
import io
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources

import numpy as np

from keyspan.evidence.cells import Cell, cells_from
from keyspan.evidence.design_law import DesignLaw, fit_design

SHIPPED = "measurements shipped with keyspan"
FITTED = ("fit", "held-out")
SPREAD = 1.645  # standard deviations to the 95% quantile of a normal distribution
NEAR = 1.05  # rows with d / d' below this say nothing of kappa


@dataclass(frozen=True)
class Shipped:
    """One row of the file. dimension: d', what stands for d    at: (F1, budget that reaches it), for other targets    command:
    measures it"""

    role: str
    cell: Cell
    dimension: float
    at: tuple[tuple[float, float], ...]
    command: str


@dataclass(frozen=True)
class Factor:
    """What multiplies the law. slack: of its logarithm, to a 90% interval"""

    value: float
    slack: float


@dataclass(frozen=True)
class RowsEffect:
    """kappa of item vectors, and the standard deviation of what it leaves unexplained, in logarithms"""

    kappa: float
    deviation: float
    cells: int

    def factor(self, d_model: float, dimension: float) -> Factor:
        """(d / d')^kappa; no slack where d' is d."""
        ratio = max(1.0, d_model / max(dimension, 1e-9))
        return Factor(ratio**self.kappa, SPREAD * self.deviation if ratio > NEAR else 0.0)


@lru_cache(maxsize=1)
def shipped() -> tuple[Shipped, ...]:
    """The rows of the file that comes with the package."""
    text = resources.files("keyspan.evidence").joinpath("design_cells.csv").read_text("utf-8")
    return read_shipped(text, "design_cells.csv")


def read_shipped(text: str, name: str) -> tuple[Shipped, ...]:
    """Rows of a file as `studies.design_cells` writes it."""
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    targets = [(float(k[3:]), k) for k in (rows[0] if rows else ()) if k.startswith("at_")]
    found = []
    for row, cell in zip(rows, cells_from(rows, name), strict=True):
        at = tuple((target, float(row[key])) for target, key in targets if row[key])
        found.append(Shipped(row["role"], cell, float(row["dimension"]), at, row["command"]))
    return tuple(found)


@lru_cache(maxsize=4)
def shipped_law(roles: tuple[str, ...] = FITTED) -> DesignLaw:
    """The law fitted to the cells of these roles."""
    return fit_design(cells_of(*roles), SHIPPED)


def cells_of(*roles: str) -> list[Cell]:
    """The cells of some roles."""
    return [row.cell for row in shipped() if row.role in roles]


@lru_cache(maxsize=1)
def rows_effect() -> RowsEffect:
    """kappa, from the cells of the role `rows` beside gaussian ones of the same size."""
    plain = {_size(r.cell): _middle(r.cell) for r in shipped() if r.role == "fit" and r.cell.graph == "permutation"}
    points = [
        (math.log(r.cell.d_model / r.dimension), math.log(_middle(r.cell) / plain[_size(r.cell)]))
        for r in shipped()
        if r.role == "rows" and r.dimension * NEAR < r.cell.d_model and _size(r.cell) in plain
    ]
    x, y = np.array(points).T
    kappa = float(x @ y / (x @ x))
    return RowsEffect(kappa, float(np.sqrt(((y - kappa * x) ** 2).sum() / (len(x) - 1))), len(x))


@lru_cache(maxsize=256)
def target_factor(target: float) -> Factor:
    """What reaching F1 = target costs, over reaching 0.99: between measured targets on a line, below the least as that."""
    table = _targets()
    places = [place for place, _ in table]
    target = max(target, places[0])
    after = min(bisect_left(places, target), len(places) - 1)
    before = max(0, after - 1)
    (a, left), (b, right) = table[before], table[after]
    share = 1.0 if a == b else (target - a) / (b - a)
    mix = [(1 - share) * getattr(left, k) + share * getattr(right, k) for k in ("value", "slack")]
    return Factor(*mix)


@lru_cache(maxsize=1)
def _targets() -> list[tuple[float, Factor]]:
    """Median and spread of the factor, for the targets in the file and for 0.99."""
    found: dict[float, list[float]] = {}
    for row in shipped():
        if row.role in FITTED:
            for target, budget in row.at:
                found.setdefault(target, []).append(math.log(budget / _middle(row.cell)))
    made = {t: Factor(float(np.exp(np.median(v))), float(SPREAD * np.std(v))) for t, v in found.items()}
    table, most = [], 0.0
    for target, factor in sorted((made | {0.99: Factor(1.0, 0.0)}).items()):
        most = max(most, factor.value)  # a larger target takes no less, whatever the medians of few levels say
        table.append((target, Factor(most, factor.slack)))
    return table


def _size(cell: Cell) -> tuple[int, int, int]:
    return cell.items, cell.d_model, cell.edges


def _middle(cell: Cell) -> float:
    """D_K* less half a step, as whole heads round it up."""
    assert cell.key_budget is not None and cell.heads is not None
    return cell.key_budget - cell.heads / 2


def near(items: int, d_model: int, edges: int, graph: str | None, cells: Sequence[Cell]) -> Cell | None:
    """The measured cell of just this size, of this family if one is named; gaussian rows."""
    same = [c for c in cells if _size(c) == (items, d_model, edges) and c.key_budget and c.embeddings == "gaussian"]
    return next((c for c in same if graph in (None, c.graph)), None)
