"""Families of directed graphs, how each is drawn, and how many bits it takes to say which one was drawn.

Edges are ordered pairs (source, target), sorted; an item may point to itself unless `loops` is false.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput, require
from keyspan.problems import ContentSource
from keyspan.seeds import Stream, exp, log
from keyspan.specs import Spec

Edges = NDArray[np.int64]
FAMILIES = ("permutation", "functional", "regular", "out-regular", "erdos-renyi", "power-law", "bipartite", "file")
_BY_EDGES = ("erdos-renyi", "power-law", "bipartite", "file")
_BY_DEGREE = ("regular", "out-regular")


class Bits(NamedTuple):
    """Entropy of a family in bits; `exact` is false where only an asymptotic count is known."""

    value: float
    exact: bool


@dataclass(frozen=True, kw_only=True)
class Graph(Spec, family="graph", version=1):
    """Which directed graph.

    name: permutation, functional (every item to one random item), regular (every in- and out-degree is `degree`),
    out-regular (every out-degree is `degree`), erdos-renyi (uniform among graphs with `edges` edges), power-law (the
    r-th largest out-degree falls like r^-exponent, `edges` in all), bipartite (`edges` from the first half of the items
    to the second), file    loops: may an item point to itself (said of a family where none can, or of a file, it means
    nothing, and is true)    content: hash of the edges that came from a file
    """

    name: str = "permutation"
    edges: int | None = None
    degree: int | None = None
    exponent: float | None = None
    loops: bool = True
    content: str | None = field(default=None, metadata={"absent": None})

    def check(self) -> None:
        if self.name in ("bipartite", "file"):  # it changes no edge, so it must change no identity
            object.__setattr__(self, "loops", True)
        require(
            self.name in FAMILIES,
            f"`--graph` in {'|'.join(FAMILIES[:-1])} or a .csv/.tsv/.npz file",
            repr(self.name),
            "Choose a family, or give a file that exists.",
        )
        require(self.edges is None or self.edges >= 1, "`edges >= 1`", self.edges, "Ask for at least one relation.")
        require(self.degree is None or self.degree >= 1, "`degree >= 1`", self.degree, "Ask for at least one.")
        require(self.exponent is None or 0 <= self.exponent <= 10, "`0 <= exponent <= 10`", self.exponent, "Try 1.")
        named = f"{self.name} graph"
        require(
            self.edges is None or self.name in _BY_EDGES,
            f"a {named} has its number of edges fixed, so no `--edges`",
            self.edges,
            f"Leave it out, or choose among {'|'.join(_BY_EDGES[:-1])}.",
        )
        require(
            (self.degree is not None) == (self.name in _BY_DEGREE),
            f"`--degree` with {'|'.join(_BY_DEGREE)} only, and always there",
            f"graph={self.name}, degree={self.degree}",
            "Give it there, leave it out elsewhere.",
        )
        require(self.exponent is None or self.name == "power-law", "`exponent` with power-law only", named, "Drop it.")
        require((self.content is not None) == (self.name == "file"), "`content` with a file only", named, "Read it.")


def resolve(graph: Graph, items: int) -> Graph:
    """The graph with its defaults filled in (as many edges as items, exponent 1), checked against the items."""
    edges, exponent = graph.edges, graph.exponent
    if graph.name in _BY_EDGES and edges is None:
        edges = items
    if graph.name == "power-law" and exponent is None:
        exponent = 1.0
    full = Graph(
        name=graph.name,
        edges=edges,
        degree=graph.degree,
        exponent=exponent,
        loops=graph.loops,
        content=graph.content,
    )
    require(items >= 2, "`--items >= 2`", items, "Relations need at least two items.")
    if full.degree is not None:
        limit = items // 2 if full.name == "regular" else _width(full, items) - 1
        require(full.degree <= limit, f"`--degree <= {limit}` at {items} items", full.degree, "Lower it.")
    room = pairs(full, items)
    count = edge_count(full, items)
    require(count < room, f"`--edges < {room}` (pairs that could be one)", count, "Leave at least one non-edge.")
    return full


def pairs(graph: Graph, items: int) -> int:
    """How many ordered pairs could be an edge of this family."""
    if graph.name == "bipartite":
        return (items // 2) * (items - items // 2)
    return items * _width(graph, items)


def _width(graph: Graph, items: int) -> int:
    return items if graph.loops else items - 1


def edge_count(graph: Graph, items: int) -> int:
    """m', the number of edges of a resolved graph."""
    if graph.edges is not None:
        return graph.edges
    return items * (graph.degree or 1)


def make(graph: Graph, items: int, problem_id: str, contents: ContentSource) -> Edges:
    """The edges, drawn from (problem_id, "graph"), sorted. returns: (edges, 2)"""
    stream = Stream(problem_id, "graph")
    if graph.name == "file":
        edges = _from_file(graph, items, contents)
    elif graph.name in ("permutation", "regular"):
        edges = _regular(stream, items, graph.degree or 1, graph.loops)
    elif graph.name in ("functional", "out-regular"):
        edges = _with_degrees(stream, np.full(items, graph.degree or 1), items, graph.loops)
    elif graph.name == "power-law":
        ranked = power_law_degrees(graph, items)
        edges = _with_degrees(stream, ranked[stream.permutation(items)], items, graph.loops)
    else:
        code = _distinct(stream, pairs(graph, items), edge_count(graph, items))
        if graph.name == "bipartite":
            half = items // 2
            edges = np.stack([code // (items - half), half + code % (items - half)], axis=1)
        else:
            edges = _pairs_from(code, _width(graph, items), graph.loops)
    return edges[np.lexsort((edges[:, 1], edges[:, 0]))]


def _from_file(graph: Graph, items: int, contents: ContentSource) -> Edges:
    assert graph.content is not None
    edges = np.asarray(contents.get(graph.content), dtype=np.int64)
    check_edges(edges, items, graph.loops)
    require(len(edges) == graph.edges, "`edges` = rows of the file", f"{graph.edges} and {len(edges)}", "Drop --edges.")
    return edges


def check_edges(edges: Edges, items: int, loops: bool) -> None:
    """Refuse edges that name an item that is not there, or a self-loop where none is allowed."""
    require(edges.size > 0, "a graph has at least one edge", "none", "Check the file.")
    top = int(edges.max())
    require(top < items, f"item ids < --items ({items})", top, f"Use --items {top + 1} or more, or fix the file.")
    own = edges[edges[:, 0] == edges[:, 1]]
    if not loops and own.size:
        raise BadInput(f"source != target must hold (--no-loops), but got {own[0, 0]},{own[0, 0]}. Allow loops or drop it.")


def _pairs_from(code: Edges, width: int, loops: bool) -> Edges:
    source, target = code // width, code % width
    if not loops:
        target = target + (target >= source)  # skip the diagonal
    return np.stack([source, target], axis=1)


def _distinct(stream: Stream, below: int, count: int) -> Edges:
    """`count` distinct integers below `below`, uniform: repeated ones are drawn again."""
    if 2 * count > below:  # draw the ones left out instead
        mask = np.ones(below, dtype=bool)
        mask[_distinct(stream, below, below - count)] = False
        return np.flatnonzero(mask)
    have = np.empty(0, dtype=np.int64)
    while have.size < count:
        both = np.concatenate([have, stream.integers(below, count - have.size)])
        _, first = np.unique(both, return_index=True)
        have = both[np.sort(first)]
    return have


def _with_degrees(stream: Stream, degrees: Edges, items: int, loops: bool) -> Edges:
    """Every source with a uniform set of targets of its out-degree."""
    width = items if loops else items - 1
    parts = []
    for degree in np.unique(degrees):
        sources = np.flatnonzero(degrees == degree)
        targets = stream.subsets(sources.size, width, int(degree))
        parts.append(_pairs_from((sources[:, None] * width + targets).reshape(-1), width, loops))
    return np.concatenate(parts)


def power_law_degrees(graph: Graph, items: int) -> Edges:
    """Out-degrees by rank: proportional to r^-exponent, rounded by largest remainder, capped, `edges` in all."""
    assert graph.edges is not None and graph.exponent is not None
    cap = _width(graph, items)
    weight = exp(-graph.exponent * log(np.arange(1, items + 1, dtype=np.float64)))
    quota = graph.edges * weight / math.fsum(weight)
    degrees = np.minimum(np.floor(quota).astype(np.int64), cap)
    order = np.argsort(-(quota - np.floor(quota)), kind="stable")
    missing = graph.edges - int(degrees.sum())
    while missing > 0:
        open_ranks = order[degrees[order] < cap][:missing]
        degrees[open_ranks] += 1
        missing -= open_ranks.size
    return degrees


def _regular(stream: Stream, items: int, degree: int, loops: bool) -> Edges:
    """The union of `degree` random permutations; where two coincide, random switches part them.

    For degree 2 and more this reaches every regular graph, but not all of them equally often, so `entropy`, the logarithm
    of how many there are, is an upper bound on the draw's own.
    """
    columns = np.empty((items, 0), dtype=np.int64)
    for _ in range(degree):
        target = stream.permutation(items)
        if degree == 1 and not loops:  # a uniform derangement, by rejection
            while (target == np.arange(items)).any():
                target = stream.permutation(items)
        while True:
            clash = (columns == target[:, None]).any(axis=1)
            if not loops:
                clash |= target == np.arange(items)
            bad = np.flatnonzero(clash)
            if bad.size == 0:
                break
            for i, j in zip(bad, stream.integers(items, bad.size), strict=True):
                target[i], target[j] = target[j], target[i]
        columns = np.concatenate([columns, target[:, None]], axis=1)
    return np.stack([np.repeat(np.arange(items), degree), columns.reshape(-1)], axis=1)


# ------------------------------------------------------------------------------------------------- degrees, entropy


def degrees(edges: Edges, items: int) -> tuple[Edges, Edges]:
    """Out- and in-degree of every item. edges: (edges, 2)    returns: (items,), (items,)"""
    return np.bincount(edges[:, 0], minlength=items), np.bincount(edges[:, 1], minlength=items)


def _log2_factorial(n: float) -> float:
    return math.lgamma(n + 1) / math.log(2)


def log2_choose(n: int, k: int) -> float:
    """log2 of the binomial coefficient."""
    return _log2_factorial(n) - _log2_factorial(k) - _log2_factorial(n - k)


def entropy(graph: Graph, items: int) -> Bits:
    """Bits to name one graph of a resolved family: log2 of how many there are (docs/mathematics.md, "Entropy")."""
    width = _width(graph, items)
    if graph.name == "permutation":
        return Bits(_log2_factorial(items) if graph.loops else _log2_derangements(items), True)
    if graph.name in ("functional", "out-regular"):
        return Bits(items * log2_choose(width, graph.degree or 1), True)
    if graph.name == "regular":
        return _log2_regular(items, graph.degree or 1, graph.loops)
    if graph.name == "power-law":
        ranked = power_law_degrees(graph, items)
        values, counts = np.unique(ranked, return_counts=True)
        who = _log2_factorial(items) - sum(_log2_factorial(int(c)) for c in counts)
        return Bits(who + sum(int(c) * log2_choose(width, int(v)) for v, c in zip(values, counts, strict=True)), True)
    return Bits(log2_choose(pairs(graph, items), edge_count(graph, items)), True)


def _log2_derangements(items: int) -> float:
    if items > 20:  # n!/e to far below one bit in 10^18
        return _log2_factorial(items) - 1.0 / math.log(2)
    return math.log2(sum((-1) ** k * math.factorial(items) // math.factorial(k) for k in range(items + 1)))


def _log2_regular(items: int, degree: int, loops: bool) -> Bits:
    """Number of 0/1 matrices with all row and column sums `degree`: exact for degree 1 and 2, else asymptotic."""
    if degree == 1:
        return Bits(_log2_factorial(items) if loops else _log2_derangements(items), True)
    if degree == 2 and loops and items <= 2000:
        n, total, term = items, 0, math.factorial(2 * items)  # (n!)^2 4^-n sum_i (-2)^i (2n-2i)! / (i! (n-i)!^2)
        for i in range(n + 1):
            total += term
            if i < n:
                term = -term * (n - i) // ((i + 1) * (2 * n - 2 * i - 1))
        return Bits(_log2_int(total) - 2 * n, True)
    k = degree
    value = _log2_factorial(items * k) - 2 * items * _log2_factorial(k) - (k - 1) ** 2 / (2 * math.log(2))
    return Bits(value if loops else value - k / math.log(2), False)


def _log2_int(n: int) -> float:
    shift = max(0, n.bit_length() - 60)
    return math.log2(n >> shift) + shift


# --------------------------------------------------------------------------------------------------- named builders


def permutation(*, loops: bool = True) -> Graph:
    """Every item points to one, and is pointed to by one."""
    return Graph(name="permutation", loops=loops)


def functional(*, loops: bool = True) -> Graph:
    """Every item points to one random item."""
    return Graph(name="functional", loops=loops)


def regular(degree: int, *, loops: bool = True) -> Graph:
    """Every in-degree and every out-degree is `degree`."""
    return Graph(name="regular", degree=degree, loops=loops)


def out_regular(degree: int, *, loops: bool = True) -> Graph:
    """Every out-degree is `degree`, the targets uniform."""
    return Graph(name="out-regular", degree=degree, loops=loops)


def erdos_renyi(edges: int | None = None, *, loops: bool = True) -> Graph:
    """Uniform among graphs with this many edges (default: as many as items)."""
    return Graph(name="erdos-renyi", edges=edges, loops=loops)


def power_law(edges: int | None = None, *, exponent: float = 1.0, loops: bool = True) -> Graph:
    """Out-degrees that fall like a power of their rank."""
    return Graph(name="power-law", edges=edges, exponent=exponent, loops=loops)


def bipartite(edges: int | None = None) -> Graph:
    """From the first half of the items to the second."""
    return Graph(name="bipartite", edges=edges)
