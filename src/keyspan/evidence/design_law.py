"""The design law: the key budget that trained channels need, fitted to measured cells, with intervals that are calibrated.

    x_h = c G_h^a (1 + (m / 2.5 d)^4)^(b/4)        D_K = min over h of h ceil(x_h / h)

`G_h` is Gardner's budget of h heads (`theory.gardner`, conjectured, for a solver), h runs over powers of two up to m/8 as in
every
measurement. Training by gradient needs more than a solver, relatively most where budgets are small (a < 1) and where there
are several times as many items as dimensions (b > 0, from about 2.5 items a dimension on). The form was chosen by its error on
sizes left out of the fit (docs/design-law.md). A measured D_K* with h heads says that x_h lies between D_K* - h and D_K*; the
constants are fitted by least squares (a little ridge) of ln(D_K* - h/2) at the heads that attained it.

**Interval.** [D_K(-s), D_K(+s)] is the same with x_h e^-s and x_h e^+s. For every cell of the fit the least s that would have
reached its D_K* is found, downwards and upwards, by a law fitted to the cells of *other sizes* (items and d_model left out
together), in units of that law's own uncertainty there, `u = sqrt(1 + f^T (F^T F)^-1 f)`. The 95% quantiles of the two (with
the
rank of n + 1, as in conformal prediction) make an interval that misses one cell in ten, where cells are like these; away from
them u grows, and the interval with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput, require
from keyspan.evidence.cells import Cell
from keyspan.problems.graphs import power_law, power_law_degrees, resolve
from keyspan.specs import digest
from keyspan.theory.gardner import gardner_budget, gardner_load

Float = NDArray[np.float64]
LAW_VERSION = 1  # raised when the numbers of a fit change; it is hashed into the fit id
FEATURES = ("1", "ln G_h", "ln(1 + (m / 2.5 d)^4) / 4")  # of ln(x_h / G_h), so that a = 1 + the second coefficient
FLOOR = 0.8  # of G_h: about the least that any measured graph without hubs needed, so that no extrapolation promises less
CROWDED = 2.5  # items a dimension from which training needs more
RIDGE = 1e-3
LEAST_CELLS = 12
MISS = 0.05  # on either side of an interval
HUB_ROOM = 0.95  # of h d, what a hub's targets may use up
RANGES = ("items", "d_model", "edges_per_item", "load")


@dataclass(frozen=True)
class Size:
    """What a law is asked about: m, d, m', and the most edges of one item where that is known."""

    items: int
    d_model: int
    edges: int
    degree: int | None = None

    def features(self, budget: float) -> tuple[float, ...]:
        """As named by `FEATURES`. budget: G_h"""
        crowd = self.items / (CROWDED * self.d_model)
        return 1.0, math.log(budget), math.log1p(crowd**4) / 4

    @property
    def measures(self) -> dict[str, float]:
        """What of a size decides whether it is like the cells of a fit. load: P(m', 1) / d^2, 1 where one head is full"""
        load = gardner_load(self.edges, self.items, 1) / self.d_model**2
        return dict(zip(RANGES, (self.items, self.d_model, self.edges / self.items, load), strict=True))


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a law says of a size. at: the budget, the least and the most by number of heads, before they are rounded to whole
    heads; estimate, low, high: the smallest over heads    heads: attains the estimate    out_of_range: what of the size the
    measured cells do not cover"""

    estimate: int
    low: int
    high: int
    heads: int
    spread: tuple[float, float]
    at: Mapping[int, float]
    out_of_range: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DesignLaw:
    """A fitted law. theta: of `FEATURES`    down, up: s in units of u    gram: F^T F + ridge    ranges: of the cells fitted

    error: median of |prediction / D_K* - 1| over cells of sizes left out    covered: share of them inside their interval, of a
    law and of quantiles that have not seen their size    cells: how many    source: where they come from
    """

    theta: tuple[float, ...]
    down: float
    up: float
    gram: tuple[tuple[float, ...], ...]
    ranges: Mapping[str, tuple[float, float]]
    cells: int
    sizes: int
    error: float
    covered: float
    recipe: str
    target: float
    source: str
    fit_id: str
    run_ids: tuple[str, ...] = field(default=(), repr=False)

    def expected(self, size: Size, *, factor: float = 1.0, slack: float = 0.0) -> Expected | None:
        """The budget and its interval; None where no number of heads tried can hold the graph (conjectured).

        factor: multiplies the budget    slack: added to s on both sides, for what the factor is uncertain by
        """
        at = {h: factor * x for h in heads_tried(size.items) if (x := self.need(size, h)) is not None}
        if not at:
            return None
        low, high = self.spread(size, slack)
        estimate, heads = _smallest(at, 1.0)
        return Expected(
            estimate=estimate,
            low=_smallest(at, low)[0],
            high=_smallest(at, high)[0],
            heads=heads,
            spread=(low, high),
            at=at,
            out_of_range=self.outside(size),
        )

    def need(self, size: Size, heads: int) -> float | None:
        """x_h, the budget of so many heads before it is rounded to whole heads; None: they cannot hold the graph at any width
        (conjectured), or not with d_key <= d_model."""
        return _need(size, heads, self.theta)

    def spread(self, size: Size, slack: float = 0.0) -> tuple[float, float]:
        """The ends of the interval, as multiples of a budget."""
        u = _uncertainty(size, np.array(self.gram))
        down, up = (math.hypot(max(0.0, s * u), slack) for s in (self.down, self.up))
        return math.exp(-down), math.exp(up)

    def interval(self, size: Size, heads: int, need: float) -> tuple[int, int, int]:
        """low, estimate and high of the budget of so many heads. need: `need`, times what else it depends on"""
        low, high = self.spread(size)
        return whole(heads, need * low), whole(heads, need), whole(heads, need * high)

    def outside(self, size: Size) -> tuple[str, ...]:
        """Which measures of a size lie outside those of the cells fitted (by more than a hundredth)."""
        found = size.measures
        return tuple(n for n in RANGES if not self.ranges[n][0] / 1.01 <= found[n] <= self.ranges[n][1] * 1.01)

    @property
    def formula(self) -> str:
        """The law with its numbers."""
        c, a, b = math.exp(self.theta[0]), 1 + self.theta[1], self.theta[2] / 4
        return f"D_K = min over h of {c:.2f} G_h^{a:.2f} (1 + (m / {CROWDED} d)^4)^{b:.2f}, in whole heads"

    def to_dict(self) -> dict[str, Any]:
        """As JSON data, from which `from_json` makes it again."""
        return asdict(self) | {"version": LAW_VERSION, "features": list(FEATURES), "run_ids": list(self.run_ids)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], name: str) -> DesignLaw:
        """A law out of JSON data. name: where they are from, for errors"""
        if data.get("version") != LAW_VERSION or data.get("features") != list(FEATURES):
            raise BadInput(
                f"`{name}` must be a design law of this keyspan, but got another. Write it again: keyspan fit design."
            )
        k = len(FEATURES)
        try:
            theta, gram = np.array(data["theta"], dtype=np.float64), np.array(data["gram"], dtype=np.float64)
            ranges = {key: (float(data["ranges"][key][0]), float(data["ranges"][key][1])) for key in RANGES}
            plain = {key: kind(data[key]) for key, kind in _PLAIN.items()}
            good = theta.shape == (k,) and gram.shape == (k, k) and bool(np.isfinite([*theta, *gram.ravel()]).all())
            if not (good and np.linalg.cond(gram) < 1e12 and all(math.isfinite(plain[key]) for key in ("down", "up"))):
                raise ValueError("numbers that are no fit")
            runs = tuple(str(run_id) for run_id in data["run_ids"])
        except (KeyError, TypeError, ValueError, IndexError, OverflowError, np.linalg.LinAlgError) as error:
            why = f"{type(error).__name__}: {error}"[:80]
            raise BadInput(f"`{name}` must hold a design law, but got {why!r}. Write it again: keyspan fit design.") from None
        numbers = tuple(tuple(float(x) for x in row) for row in gram)
        return cls(theta=tuple(float(x) for x in theta), gram=numbers, ranges=ranges, run_ids=runs, **plain)


_PLAIN: dict[str, type] = {
    "down": float,
    "up": float,
    "cells": int,
    "sizes": int,
    "error": float,
    "covered": float,
    "recipe": str,
    "target": float,
    "source": str,
    "fit_id": str,
}


def _need(size: Size, heads: int, theta: Sequence[float] | Float) -> float | None:
    budget = _gardner(size, heads)
    if budget is None:
        return None
    need = budget * max(FLOOR, math.exp(float(np.dot(size.features(budget), theta))))
    return need if need <= heads * size.d_model else None


def whole(h: int, x: float) -> int:
    """h ceil(x / h): the least budget of h heads that is no less than x."""
    return h * max(1, math.ceil(x / h - 1e-9))


def _smallest(at: Mapping[int, float], times: float) -> tuple[int, int]:
    """The smallest whole budget, and the heads that attain it with most to spare."""
    budget, _, heads = min((whole(h, x * times), x, h) for h, x in at.items())
    return budget, heads


def _uncertainty(size: Size, gram: Float) -> float:
    """u, at the heads that hold most; 1 where none hold anything."""
    known = [g for h in heads_tried(size.items) if (g := _gardner(size, h)) is not None]
    if not known:
        return 1.0
    f = np.array(size.features(min(known)))
    return math.sqrt(1.0 + float(f @ np.linalg.solve(gram, f)))


@lru_cache(maxsize=2**14)
def _gardner(size: Size, heads: int) -> float | None:
    """G_h, or None where h heads cannot hold the graph, or its hub: m items are cut into targets and others by h d numbers,
    a perceptron of its own (conjectured, with the same formula)."""
    if size.degree is not None and size.degree < size.items:
        room = HUB_ROOM * heads * size.d_model
        if gardner_load(size.degree, size.items, heads, sources=1) > room:
            return None
    return gardner_budget(size.edges, size.items, size.d_model, heads)


def heads_tried(items: int) -> tuple[int, ...]:
    """Powers of two up to m/8, and 1 at least."""
    return tuple(1 << k for k in range(max(1, items // 8).bit_length()))


# ---------------------------------------------------------------------------------------------------------------- fit


def usable(cell: Cell) -> str | None:
    """Why a cell cannot be fitted, or None."""
    if cell.key_budget is None or cell.heads is None:
        return "D_K* was not reached with d_key <= d_model"
    if cell.cut_short:
        return f"the most heads tried, {cell.most_heads}, are the best: more might do with less"
    if cell.embeddings != "gaussian":
        return "its rows are not gaussian"
    if _gardner(size_of(cell), cell.heads) is None:
        return f"{cell.heads} heads should not hold it by Gardner's conjecture"
    return None


def fit_design(cells: Sequence[Cell], source: str) -> DesignLaw:
    """Fit the law to cells of one recipe and target; those that cannot be fitted are passed over (`usable`)."""
    used = sorted((c for c in cells if usable(c) is None), key=lambda c: (c.items, c.d_model, c.edges, c.graph, c.evidence))
    sizes = sorted({(c.items, c.d_model) for c in used})
    ways = {(c.recipe, c.target) for c in used}
    fix = "Measure more: python -m keyspan.studies.design_cells."
    require(len(used) >= LEAST_CELLS, f"cells for a design law >= {LEAST_CELLS}", len(used), fix)
    require(len(sizes) > len(FEATURES), f"sizes (items, d_model) of them > {len(FEATURES)}", len(sizes), fix)
    if len(ways) > 1:
        raise BadInput(f"Cells of a fit must be of one recipe and target, but got {sorted(ways)}. Choose one.")
    ((recipe, target),) = ways
    rows, goal = _design(used)
    theta, gram = _solve(rows, goal)
    found = [_left_out(used, rows, goal, size) for size in sizes]
    scores = [one for group in found for one in group]
    down, up = _quantile([s.down for s in scores]), _quantile([s.up for s in scores])
    inside = [_covers(one, [s for g in found if g is not group for s in g]) for group in found for one in group]
    measures = [size_of(c).measures for c in used]
    return DesignLaw(
        theta=tuple(map(float, theta)),
        down=down,
        up=up,
        gram=tuple(tuple(map(float, row)) for row in gram),
        ranges={name: (min(m[name] for m in measures), max(m[name] for m in measures)) for name in RANGES},
        cells=len(used),
        sizes=len(sizes),
        error=float(np.median([s.error for s in scores])),
        covered=sum(inside) / len(inside),
        recipe=recipe,
        target=target,
        source=source,
        fit_id=digest({"model": "design", "version": LAW_VERSION, "evidence": sorted(c.evidence for c in used)}, "f"),
        run_ids=tuple(sorted({run_id for c in used for run_id in c.run_ids})),
    )


@dataclass(frozen=True)
class _Score:
    """A cell seen by a law that knows no cell of its size: s that would reach it, in units of u, and the relative error."""

    down: float
    up: float
    error: float


def size_of(cell: Cell) -> Size:
    """A cell's size. Of a power law's hubs only the usual exponent, 1, is known from its name."""
    degree = None
    if cell.graph == "power-law":
        degree = int(power_law_degrees(resolve(power_law(cell.edges), cell.items), cell.items).max())
    return Size(cell.items, cell.d_model, cell.edges, degree)


def _needs(cell: Cell, theta: Float) -> dict[int, float]:
    size = size_of(cell)
    return {h: x for h in heads_tried(cell.items) if (x := _need(size, h, theta)) is not None}


def _design(cells: Sequence[Cell]) -> tuple[Float, Float]:
    """Features, and ln((D_K* - h/2) / G_h) at the heads that attained it."""
    rows, goal = [], []
    for cell in cells:
        assert cell.key_budget is not None and cell.heads is not None
        budget = _gardner(size_of(cell), cell.heads)
        assert budget is not None
        rows.append(size_of(cell).features(budget))
        goal.append(math.log((cell.key_budget - cell.heads / 2) / budget))
    return np.array(rows), np.array(goal)


def _solve(rows: Float, goal: Float) -> tuple[Float, Float]:
    """theta, and F^T F + ridge."""
    gram = rows.T @ rows + RIDGE * np.eye(rows.shape[1])
    return np.asarray(np.linalg.solve(gram, rows.T @ goal), dtype=np.float64), gram


def _left_out(cells: Sequence[Cell], rows: Float, goal: Float, size: tuple[int, int]) -> list[_Score]:
    mine = np.array([(c.items, c.d_model) == size for c in cells])
    theta, gram = _solve(rows[~mine], goal[~mine])
    return [score(c, theta, gram) for c, held in zip(cells, mine, strict=True) if held]


def score(cell: Cell, theta: Float, gram: Float) -> _Score:
    """How far a law misses a cell: D_K(-s) <= D_K* from `down`, D_K(+s) >= D_K* from `up` on."""
    assert cell.key_budget is not None
    budget, at = cell.key_budget, _needs(cell, theta)
    u = _uncertainty(size_of(cell), gram)
    down = min((math.log(x / (h * (budget // h))) for h, x in at.items() if h <= budget), default=math.inf)
    up = max((math.log(h * (math.ceil(budget / h) - 1) / x) for h, x in at.items() if h < budget), default=-math.inf)
    return _Score(down / u, up / u, abs(_smallest(at, 1.0)[0] / budget - 1))


def _quantile(scores: Sequence[float]) -> float:
    """The value that all but `MISS` of further scores stay below: that of rank (1 - MISS)(n + 1)."""
    rank = math.ceil((1 - MISS) * (len(scores) + 1))
    return sorted(scores)[min(rank, len(scores)) - 1]


def _covers(one: _Score, others: Sequence[_Score]) -> bool:
    return one.down <= max(0.0, _quantile([s.down for s in others])) and one.up <= max(0.0, _quantile([s.up for s in others]))
