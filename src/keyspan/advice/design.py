"""How many heads, and how wide, to hold a graph of relations? Answered at once, from a law fitted to measured channels.

Symbols (Adler 2025): m items in R^d, m' edges, h heads of width d_k, key budget D_K = h d_k, 2 d D_K parameters.

Three budgets stand side by side: below `lower_bound` no channel can hold every such graph (proven, *necessary*); trained
channels
reached F1 = 0.99 within [low, high] in nine cells of ten (measured, *likely*); with `construction` explicit weights are exact
(proven, *certain*).
"""

from __future__ import annotations

import math
import operator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.advice.choosing import Alternative, Choice, Limits, alternatives, choose
from keyspan.advice.costs import Cost, cost
from keyspan.advice.rows import Rows
from keyspan.display import Displayed
from keyspan.errors import BadInput, require
from keyspan.evidence.design_law import DesignLaw, Expected, Size
from keyspan.evidence.record import head
from keyspan.evidence.shipped import Factor, near, shipped, shipped_law, target_factor
from keyspan.files.edges import canonical_edges
from keyspan.files.paths import shown
from keyspan.problems import graphs
from keyspan.problems.graphs import Graph
from keyspan.theory import bounds
from keyspan.theory.bounds import Bound

LARGEST = 2**24  # items and dimensions, as in `Relations`
LAW_TARGET = 0.99  # the F1 at which cells are measured


@dataclass(frozen=True, kw_only=True)
class KeyBudget:
    """D_K = h d_k. Always lower_bound <= low <= estimate <= high <= construction.

    estimate: the smallest budget of a trained channel, by the law    low, high: see `interval_basis`    lower_bound: with the
    design's heads not every graph of the family can be held below it (proven)    construction: explicit weights of one head
    per edge are exact (proven for rows of unit norm, none equal or opposite to another)
    """

    estimate: int
    low: int
    high: int
    lower_bound: float
    construction: int


@dataclass(frozen=True, kw_only=True)
class Basis:
    """The law that answered. error: median of |prediction / D_K* - 1| in sizes that it was not fitted to    covered: share of
    such cells inside their 90% interval    out_of_range: what of the question the measured cells do not cover"""

    fit_id: str
    source: str
    recipe: str
    cells: int
    sizes: int
    error: float
    covered: float
    out_of_range: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Here:
    """What was measured of just this size."""

    graph: str
    key_budget: int
    low: int | None
    high: int | None
    heads: int | None
    seeds: int
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Design(Displayed):
    """A channel for m items in R^d with m' edges that take `bits` to name. heads, d_key: what to build; cost: of that"""

    items: int
    d_model: int
    edges: int
    bits: float
    target: float
    key_budget: KeyBudget
    heads: int
    d_key: int
    kv_heads: int
    parameters: int
    bits_per_parameter: float
    cost: Cost
    basis: str
    interval_basis: str
    law: Basis
    measured: Here | None
    rows: Rows | None
    limits: Limits
    bounds: tuple[Bound, ...]
    alternatives: tuple[Alternative, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan design`."""
        found: dict[str, Any] = _listed(asdict(self))
        return head() | found


def _listed(value: Any) -> Any:
    """Tuples as lists, as JSON has them."""
    if isinstance(value, dict):
        return {name: _listed(inner) for name, inner in value.items()}
    return [_listed(inner) for inner in value] if isinstance(value, tuple | list) else value


@dataclass(frozen=True)
class _Load:
    """What there is to hold: m' edges, their entropy, and the largest in- or out-degree where it is known."""

    edges: int
    bits: float
    name: str | None = None
    bits_exact: bool = True
    degree: int | None = None


def design(
    *,
    items: int,
    d_model: int,
    edges: int | None = None,
    graph: Graph | None = None,
    edge_list: NDArray[np.integer[Any]] | None = None,
    target: float = LAW_TARGET,
    rows: Rows | None = None,
    limits: Limits | None = None,
    law: DesignLaw | None = None,
) -> Design:
    """Choose heads and d_key for a graph on `items` items in `d_model` dimensions.

    items: m    d_model: d    edges: m', of any graph    graph: a family, instead of edges    edge_list: (m', 2), the
    rows of a graph file, with or without its `graph`. Without any of them the graph is a permutation.    target: F1
    rows: how item vectors are spread (`rows.rows_of`; default: gaussian)    limits: what the design must obey
    law: fitted to a store's measurements (`keyspan.fit("design")`; default: to those that come with the package)

    heads and d_key: of all that obey the limits, the smallest budget that reaches the law's for so many heads; fewer heads
    where two are equal. Where no number of heads up to items/8 will do, or one head per edge costs no more, it is one head
    per edge, which is proven to work.
    """
    items = _whole(items, "--items", 2, "Relations need at least two items.")
    d_model = _whole(d_model, "--d-model", 1, "Item vectors need a dimension.")
    number = isinstance(target, int | float) and not isinstance(target, bool)
    require(number and 0 < target <= 1, "`0 < --target <= 1`", shown(target), "F1 is a fraction; the default is 0.99.")
    load = _load(items, edges, graph, edge_list)
    limits = limits or Limits()
    law = shipped_law() if law is None else law
    width = d_model if rows is None else min(d_model, rows.rank)

    size = Size(items, width, load.edges, load.degree)
    factors = _factors(target, rows, limits)
    scale, slack = math.prod(f.value for f in factors), math.sqrt(sum(f.slack**2 for f in factors))
    expected = law.expected(size, factor=scale, slack=slack)
    choice = choose(law, size, scale, limits, d_model, load.bits)
    lower = bounds.warren_budget(load.bits, items, d_model, choice.heads)
    budget = _key_budget(expected, choice, lower, load.edges)
    spent = cost(choice.heads, choice.d_key, d_model, limits)
    outside = law.outside(size)
    return Design(
        items=items,
        d_model=d_model,
        edges=load.edges,
        bits=load.bits,
        target=float(target),
        key_budget=budget,
        heads=choice.heads,
        d_key=choice.d_key,
        kv_heads=spent.kv_heads,
        parameters=spent.parameters,
        bits_per_parameter=load.bits / spent.parameters,
        cost=spent,
        basis="law" if outside or expected is None else "measured",
        interval_basis=_interval_basis(law, bool(outside)),
        law=Basis(**{k: getattr(law, k) for k in Basis.__dataclass_fields__ if k != "out_of_range"}, out_of_range=outside),
        measured=_here(items, d_model, load) if rows is None else None,
        rows=rows,
        limits=limits,
        bounds=bounds.key_budget_bounds(
            edges=load.edges, bits=load.bits, items=items, d_model=d_model, heads=choice.heads, degree=load.degree
        ),
        alternatives=alternatives(law, size, scale, limits, d_model, choice, load.bits, budget.high),
        notes=tuple(_notes(load, target, choice, limits, expected, outside, rows)),
    )


def _whole(value: object, flag: str, least: int, why: str) -> int:
    """The value as an int between `least` and LARGEST, or `BadInput` in terms of the command line's flag."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise BadInput(f"`{flag}` must be a whole number, but got {shown(value)}. {why}")
    require(number >= least, f"`{flag} >= {least}`", number, why)
    if flag != "--edges":
        require(number <= LARGEST, f"`{flag} <= {LARGEST}`", number, "Ask for fewer.")
    return number


def _load(items: int, edges: int | None, graph: Graph | None, edge_list: NDArray[np.integer[Any]] | None) -> _Load:
    if edges is not None:
        require(graph is None and edge_list is None, "only one of `--edges` and `--graph`", "both", "Drop `--edges`.")
        edges = _whole(edges, "--edges", 1, "Ask for at least one relation.")
        require(edges < items**2, f"`--edges < {items**2}` (--items squared)", edges, "Leave at least one non-edge.")
        return _Load(edges, graphs.log2_choose(items**2, edges))
    if graph is not None and not isinstance(graph, Graph):
        raise BadInput(f"`graph` must be a Graph, but got {shown(graph)}. Use graphs.permutation() or the like.")
    degree = None
    if edge_list is not None:
        rows = canonical_edges(edge_list, "--graph")
        graphs.check_edges(rows, items, graph.loops if graph is not None else True)
        degree = max(int(side.max()) for side in graphs.degrees(rows, items))
        if graph is None:
            require(len(rows) < items**2, f"`edges < {items**2}` (--items squared)", len(rows), "Leave a non-edge.")
            return _Load(len(rows), graphs.log2_choose(items**2, len(rows)), "file", degree=degree)
    full = graphs.resolve(graph or graphs.permutation(), items)
    count = graphs.edge_count(full, items)
    if edge_list is not None:
        require(count == len(rows), "`edges` of the graph = rows of its file", f"{count} and {len(rows)}", "Drop one.")
    entropy = graphs.entropy(full, items)
    if degree is None and full.name in ("regular", "out-regular"):
        degree = full.degree
    if degree is None and full.name == "power-law":
        degree = int(graphs.power_law_degrees(full, items).max())
    return _Load(count, entropy.value, full.name, entropy.exact, degree)


def _factors(target: float, rows: Rows | None, limits: Limits) -> list[Factor]:
    """What multiplies the law: another target, item vectors with a preference, keys that are shared."""
    return [target_factor(float(target)), *([] if rows is None else [rows.factor]), limits.sharing]


def _key_budget(expected: Expected | None, choice: Choice, lower: float, edges: int) -> KeyBudget:
    """The law's interval, kept between what is proven; without one, what is proven is all there is."""
    least = max(1, math.ceil(lower))
    if expected is None:
        return KeyBudget(estimate=edges, low=min(least, edges), high=edges, lower_bound=min(lower, edges), construction=edges)
    estimate = max(least, min(expected.estimate, edges))
    return KeyBudget(
        estimate=estimate,
        low=max(least, min(expected.low, estimate)),
        high=max(estimate, min(expected.high, edges)),
        lower_bound=lower,
        construction=max(edges, estimate),
    )


def _interval_basis(law: DesignLaw, outside: bool) -> str:
    text = (
        f"90% interval of D_K* of trained channels (recipe {law.recipe}), calibrated on {law.cells} measured cells of "
        f"{law.sizes} "
        f"sizes, each by a law that had not seen its size; kept between lower_bound and construction"
    )
    return f"{text}; extrapolated here, where nothing says that it is calibrated" if outside else text


def _here(items: int, d_model: int, load: _Load) -> Here | None:
    cell = near(items, d_model, load.edges, load.name, [row.cell for row in shipped()])
    if cell is None or cell.key_budget is None:
        return None
    return Here(
        graph=cell.graph,
        key_budget=cell.key_budget,
        low=cell.low,
        high=cell.high,
        heads=cell.heads,
        seeds=cell.seeds,
        evidence=cell.evidence,
    )


def _notes(
    load: _Load,
    target: float,
    choice: Choice,
    limits: Limits,
    expected: Expected | None,
    outside: tuple[str, ...],
    rows: Rows | None,
) -> list[str]:
    notes = []
    if outside:
        what = ", ".join(name.replace("_", " ") for name in outside)
        notes.append(f"outside the measured cells in: {what}; the law is extrapolated")
    if target != LAW_TARGET:
        notes.append(f"the target {target:g} was read off cells that were searched for {LAW_TARGET}")
    if choice.constructed:
        notes.append("one head per edge costs no more here: explicit weights, exact for unit rows none equal or opposite")
    if expected is None:
        notes.append("no number of heads up to items/8 holds the graph at any width (conjectured)")
    if limits.gqa_group > 1:
        notes.append(f"keys shared by {limits.gqa_group} heads: counted by free parameters (conjectured), not measured")
    if rows is not None and rows.factor.value > 1:
        notes.append(
            f"item vectors spread like {rows.dimension:.0f} of {rows.d_model} dimensions: {rows.factor.value:.2f} times "
            f"the budget"
        )
    if load.degree is not None and load.degree * choice.heads > load.edges and load.degree > 8:
        notes.append(f"one item has {load.degree} edges, more than m'/heads: hubs ask for heads, and the law may be low")
    if not load.bits_exact:
        notes.append("the graph's entropy is an asymptotic count, and so is the lower bound")
    return notes
