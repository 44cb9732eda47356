"""How many heads, and how wide, to hold a graph of relations? Answered at once, from theory alone (basis "law").

Symbols (Adler 2025): m items in R^d, m' edges, h heads of width d_k, key budget D_K = h d_k, 2 d D_K parameters.
"""

from __future__ import annotations

import math
import operator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.display import Displayed
from keyspan.errors import BadInput, require
from keyspan.evidence.record import head
from keyspan.files.edges import canonical_edges
from keyspan.files.paths import shown
from keyspan.problems import graphs
from keyspan.problems.graphs import Graph
from keyspan.theory import bounds
from keyspan.theory.bounds import Bound

LARGEST = 2**24  # items and dimensions, as in `Relations`
LAW_TARGET = 0.99  # the F1 at which the constant of the law was read off

INTERVAL_BASIS = (
    "low and high are {:.2f} and {:.2f} times the law: the least and the most that trained channels needed in nine "
    "cells (permutations, gaussian rows, 32 to 1024 items), kept between lower_bound and construction; not a "
    "confidence interval"
).format(*bounds.TRAINED_OVER_LAW)


@dataclass(frozen=True, kw_only=True)
class KeyBudget:
    """D_K = h d_k. Always lower_bound <= low <= estimate <= high <= construction.

    estimate: heads times d_key of the design    low, high: see `interval_basis`    lower_bound: with these heads not
    every graph of the family can be held below it (proven)    construction: explicit weights of one head per edge are
    exact (proven for rows of unit norm, none equal or opposite to another)
    """

    estimate: int
    low: int
    high: int
    lower_bound: float
    construction: int


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """Another number of heads, with the law's key budget for it.

    solver_capacity: D_K that a second-order solver needs with so many heads (conjectured); None: so few heads cannot
    hold the graph    feasible: whether `key_budget` is at least that
    """

    heads: int
    d_key: int
    key_budget: int
    parameters: int
    bits_per_parameter: float
    lower_bound: float
    solver_capacity: float | None
    feasible: bool


@dataclass(frozen=True, kw_only=True)
class Design(Displayed):
    """A channel for m items in R^d with m' edges that take `bits` to name; parameters counts W_Q and W_K."""

    items: int
    d_model: int
    edges: int
    bits: float
    target: float
    key_budget: KeyBudget
    heads: int
    d_key: int
    parameters: int
    bits_per_parameter: float
    basis: str
    interval_basis: str
    bounds: tuple[Bound, ...]
    alternatives: tuple[Alternative, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan design`."""
        return head() | {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class _Load:
    """What there is to hold: m' edges, their entropy, and the largest in- or out-degree where it is known."""

    edges: int
    bits: float
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
) -> Design:
    """Choose heads and d_key for a graph on `items` items in `d_model` dimensions.

    items: m    d_model: d    edges: m', of any graph    graph: a family, instead of edges    edge_list: (m', 2), the
    rows of a graph file, with or without its `graph`. Without any of them the graph is a permutation.    target: F1

    The key budget is the law m' ln m' / d with constant 1, rounded up to whole heads. Heads: 1 where one is enough and
    rows can be orthogonal (m <= d), else twice the least number that could hold the graph (`heads_needed`, conjectured)
    and 2 at least, since training reaches a given budget sooner with a few more heads than are needed; rounded up to a
    power of two, up to items/8 unless d_key would pass d_model. Where that costs as much as one head per edge, it is
    one head per edge, which is proven to work.
    """
    items = _whole(items, "--items", 2, "Relations need at least two items.")
    d_model = _whole(d_model, "--d-model", 1, "Item vectors need a dimension.")
    number = isinstance(target, int | float) and not isinstance(target, bool)
    require(number and 0 < target <= 1, "`0 < --target <= 1`", shown(target), "F1 is a fraction; the default is 0.99.")
    load = _load(items, edges, graph, edge_list)

    law = bounds.law(load.edges, d_model)
    needed = bounds.heads_needed(load.edges, items, d_model)
    heads = _heads(needed, items, d_model, law)
    d_key = max(1, math.ceil(law / heads))
    constructed = heads * d_key >= load.edges
    if constructed:
        heads, d_key = load.edges, 1
    estimate = heads * d_key
    return Design(
        items=items,
        d_model=d_model,
        edges=load.edges,
        bits=load.bits,
        target=float(target),
        key_budget=_key_budget(estimate, law, bounds.warren_budget(load.bits, items, d_model, heads), load.edges),
        heads=heads,
        d_key=d_key,
        parameters=2 * d_model * estimate,
        bits_per_parameter=load.bits / (2 * d_model * estimate),
        basis="law",
        interval_basis=INTERVAL_BASIS,
        bounds=bounds.key_budget_bounds(
            edges=load.edges, bits=load.bits, items=items, d_model=d_model, heads=heads, degree=load.degree
        ),
        alternatives=tuple(_alternative(h, law, load, items, d_model) for h in _around(heads, items, load.edges)),
        notes=tuple(_notes(load, target, heads, needed, constructed)),
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
            return _Load(len(rows), graphs.log2_choose(items**2, len(rows)), degree=degree)
    full = graphs.resolve(graph or graphs.permutation(), items)
    count = graphs.edge_count(full, items)
    if edge_list is not None:
        require(count == len(rows), "`edges` of the graph = rows of its file", f"{count} and {len(rows)}", "Drop one.")
    entropy = graphs.entropy(full, items)
    if degree is None and full.name in ("regular", "out-regular"):
        degree = full.degree
    return _Load(count, entropy.value, entropy.exact, degree)


def _heads(needed: int | None, items: int, d_model: int, law: float) -> int:
    """How many heads a trained channel wants, a power of two."""
    if needed == 1:
        wanted = 2 if items > d_model else 1
    else:
        wanted = _power_of_two(2 * needed) if needed else items
    heads = min(wanted, _most_heads(items))
    while heads * d_model < law:  # wider than d_model a head holds nothing more
        heads *= 2
    return heads


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _most_heads(items: int) -> int:
    """The largest power of two up to items/8, and 1 at least."""
    return 1 << (max(1, items // 8).bit_length() - 1)


def _key_budget(estimate: int, law: float, lower_bound: float, construction: int) -> KeyBudget:
    least, most = bounds.TRAINED_OVER_LAW
    return KeyBudget(
        estimate=estimate,
        low=max(1, math.ceil(lower_bound), min(estimate, math.floor(least * law))),
        high=min(construction, max(estimate, math.ceil(most * law))),
        lower_bound=lower_bound,
        construction=construction,
    )


def _around(heads: int, items: int, edges: int) -> list[int]:
    """Other powers of two, from a quarter to four times as many heads."""
    most = min(max(_most_heads(items), heads), 4 * heads, edges)
    powers = [1 << k for k in range(most.bit_length())]
    return [h for h in powers if 4 * h >= heads and h <= most and h != heads]


def _alternative(heads: int, law: float, load: _Load, items: int, d_model: int) -> Alternative:
    d_key = min(d_model, max(1, math.ceil(law / heads)))
    budget = heads * d_key
    capacity = bounds.gardner_budget(load.edges, items, d_model, heads)
    return Alternative(
        heads=heads,
        d_key=d_key,
        key_budget=budget,
        parameters=2 * d_model * budget,
        bits_per_parameter=load.bits / (2 * d_model * budget),
        lower_bound=bounds.warren_budget(load.bits, items, d_model, heads),
        solver_capacity=capacity,
        feasible=capacity is not None and capacity <= budget,
    )


def _notes(load: _Load, target: float, heads: int, needed: int | None, constructed: bool) -> list[str]:
    notes = []
    if target != LAW_TARGET:
        notes.append(f"the law carries no dependence on the target yet: this is the answer for {LAW_TARGET}")
    if constructed:
        notes.append("one head per edge costs no more here: explicit weights, exact for unit rows none equal or opposite")
    elif needed is None or needed > heads:
        least = "more heads than items" if needed is None else f"at least {needed} heads"
        notes.append(f"{least} are needed by the conjectured solver capacity, more than are tried up to items/8")
    if load.degree is not None and load.degree * heads > load.edges:
        notes.append(f"one item has {load.degree} edges, more than m'/heads: the law is for milder skew, and may be low")
    if not load.bits_exact:
        notes.append("the graph's entropy is an asymptotic count, and so is the lower bound")
    return notes
