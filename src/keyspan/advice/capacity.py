"""How many relations a layer has room for: the design law (`evidence.design_law`) solved for the number of items.

The law was measured on Gaussian rows. Token vectors prefer some directions, which costs trained channels a factor (d /
d')^kappa
(`evidence.shipped.rows_effect`): d' is what their spread amounts to (`problems.spectrum.dimension_of`), d what they span.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from keyspan.evidence.design_law import DesignLaw, Size
from keyspan.evidence.shipped import rows_effect, shipped_law
from keyspan.theory.bounds import gardner_budget

BASIS = "design law"
MOST_ITEMS = 2**40


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """Relations that a key budget holds among items of a given spread, one relation an item.

    estimate: by the design law    low, high: with the ends of its 90% interval    out_of_range: whether the law is asked
    beyond the cells that it was measured on: then nothing says that the interval is calibrated    solver: what the
    perceptron's capacity says that the best weights would hold, which does not depend on the spread (conjectured)
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


def capacity(*, heads: int, d_key: int, dimension: float, d_model: int | None = None, law: DesignLaw | None = None) -> Capacity:
    """Relations that `heads` heads of width `d_key` hold between items in `d_model` dimensions.

    dimension: d', the d of Gaussian rows that are spread alike    d_model: d (default: d' itself, rounded)
    """
    if dimension <= 0:  # vectors that are all alike
        return Capacity(estimate=1.0, low=1.0, high=1.0, basis=BASIS, out_of_range=True, solver=None)
    law = shipped_law() if law is None else law
    width = max(1, round(dimension)) if d_model is None else d_model
    budget = heads * min(d_key, width)  # no head needs to be wider than what it looks at
    rows = rows_effect().factor(width, min(dimension, width))

    def holds(times: Callable[[Size], float]) -> Callable[[int], bool]:
        def fits(items: int) -> bool:
            size = Size(items, width, items)
            need = law.need(size, heads)
            return need is not None and need * rows.value * times(size) <= budget

        return fits

    estimate = _largest(holds(lambda _: 1.0))
    size = Size(max(2, int(estimate)), width, max(2, int(estimate)))
    return Capacity(
        estimate=estimate,
        low=_largest(holds(lambda at: law.spread(at, rows.slack)[1])),
        high=_largest(holds(lambda at: law.spread(at, rows.slack)[0])),
        basis=BASIS,
        out_of_range=bool(law.outside(size)),
        solver=_solver(heads, budget, width),
    )


def _largest(fits: Callable[[int], bool]) -> float:
    """The most items that fit, to a thousandth; 1 where not even two do (one relation costs nothing)."""
    low, high = 1, 2
    while high < MOST_ITEMS and fits(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 1000):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return float(low)


def _solver(heads: int, budget: float, d: int) -> float | None:
    """The most items, each with one edge, whose predicted budget is within this one; None where d is too small to say."""
    if d < 8:
        return None

    def fits(items: int) -> bool:
        needed = gardner_budget(items, items, d, heads)
        return needed is not None and needed <= budget

    return _largest(fits) if fits(2) else None
