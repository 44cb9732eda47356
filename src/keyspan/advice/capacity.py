"""How many relations a layer has room for: one function, that a law fitted to more measurements can replace.

The law D_K = c m' ln m' / d (Adler 2025) is solved for m'. Its d is the width of vectors that point everywhere alike; token
vectors do not, so it is replaced by what their spread amounts to (`dimension_of`).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from keyspan.theory.bounds import TRAINED_OVER_LAW, gardner_budget

BASIS = "law"
ITEMS = (32, 1024)  # items of the cells on which the law's constant was measured: one edge an item
WIDTHS = (16, 256)  # and d_model of those


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Relations (directed edges) that a key budget holds among items of a given spread.

    estimate: with the law's constant 1    low, high: with the most and the least of it that trained channels needed; not a
    confidence interval    out_of_range: whether the law is asked beyond the sizes on which it was measured    solver: what the
    perceptron's capacity says that the best weights would hold (conjectured)
    """

    estimate: float
    low: float
    high: float
    basis: str
    out_of_range: bool
    solver: float | None

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON."""
        return asdict(self)


def capacity(*, heads: int, d_key: int, dimension: float) -> Capacity:
    """Relations that `heads` heads of width `d_key` hold between items that spread over `dimension` dimensions."""
    budget = heads * min(d_key, dimension)  # no head needs to be wider than what it looks at
    least, most = TRAINED_OVER_LAW
    estimate = _edges(budget, dimension)
    inside = ITEMS[0] <= estimate <= ITEMS[1] and WIDTHS[0] <= dimension <= WIDTHS[1]
    return Capacity(
        estimate=estimate,
        low=_edges(budget / most, dimension),
        high=_edges(budget / least, dimension),
        basis=BASIS,
        out_of_range=not inside,
        solver=_solver(heads, budget, dimension),
    )


def dimension_of(stable: float, items: int, d_model: int) -> float:
    """The d of Gaussian rows with this stable rank: stable (1 + sqrt(d / m))^2, at most d_model.

    m Gaussian rows in R^d have a stable rank of about d / (1 + sqrt(d/m))^2, for their largest singular value is sqrt(m) +
    sqrt(d) times that of one entry (Bai and Yin 1993). So rows without any preference are left at d.
    """
    return min(float(d_model), stable * (1 + math.sqrt(d_model / items)) ** 2)


def _edges(budget: float, dimension: float) -> float:
    """m' with m' ln m' / d = D_K, by bisection; at least 1, which costs nothing."""
    low, high = 1.0, 2.0
    while high * math.log(high) < budget * dimension:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle * math.log(middle) < budget * dimension else (low, middle)
    return low


def _solver(heads: int, budget: float, dimension: float) -> float | None:
    """The most items, each with one edge, whose predicted budget is within this one; None where d is too small to say."""
    d = round(dimension)
    if d < 8:
        return None

    def fits(items: int) -> bool:
        needed = gardner_budget(items, items, d, heads)
        return needed is not None and needed <= budget

    low, high = 2, 4
    if not fits(low):
        return None
    while fits(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return float(low)
