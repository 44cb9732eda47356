"""A graph cut into matchings of equal size: an equitable edge colouring of its bipartite double cover.

The double cover has every item twice, once as a source and once as a target, so an edge i -> j joins two different
vertices even where i = j. A matching is a set of edges no two of which share a source or a target: what one block of
heads can hold. With Delta the largest in- or out-degree, Delta matchings are enough (Koenig 1916), and for every number
of colours from Delta on there is a colouring whose classes differ by at most one edge (de Werra 1971).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require

Int = NDArray[np.int64]


def max_degree(edges: Int, items: int) -> int:
    """Delta, the largest out- or in-degree: the fewest matchings that hold the graph. edges: (m', 2)"""
    out, into = np.bincount(edges[:, 0], minlength=items), np.bincount(edges[:, 1], minlength=items)
    return int(max(out.max(initial=0), into.max(initial=0)))


def equitable_matchings(edges: Int, items: int, colours: int, order: Int | None = None) -> Int:
    """A colour for every edge, such that each colour is a matching and their sizes differ by at most one.

    edges: (m', 2)    colours: h >= Delta    order: in which edges are taken, (m',); the same order gives the same colours
    returns: (m',), in 0 .. h - 1
    """
    degree = max_degree(edges, items)
    require(colours >= max(degree, 1), f"heads >= {degree}, the largest degree", colours, "Ask for more heads.")
    order = np.arange(len(edges)) if order is None else order
    if degree <= 1:
        colour = np.empty(len(edges), dtype=np.int64)
        colour[order] = np.arange(len(edges)) % colours
        return colour
    work = _Colouring(edges, colours)
    for edge in order:
        work.add(int(edge))
    work.balance()
    return work.colour


class _Colouring:
    """A proper colouring as it grows. at[side]: vertex -> {colour: edge}; side 0 holds sources, side 1 targets."""

    def __init__(self, edges: Int, colours: int) -> None:
        self.ends = edges.tolist()
        self.colour = np.full(len(edges), -1, dtype=np.int64)
        self.load = np.zeros(colours, dtype=np.int64)
        self.at: tuple[dict[int, dict[int, int]], dict[int, dict[int, int]]] = ({}, {})
        for source, target in self.ends:
            self.at[0].setdefault(source, {})
            self.at[1].setdefault(target, {})

    def add(self, edge: int) -> None:
        """Colour one more edge: the least used colour free at both ends, or one made free along an alternating path."""
        source, target = self.ends[edge]
        here, there = self.at[0][source], self.at[1][target]
        free = self.load.copy()
        free[list(here.keys() | there.keys())] = np.iinfo(np.int64).max
        best = int(free.argmin())
        if free[best] == np.iinfo(np.int64).max:  # none is free at both: Koenig's argument
            best = next(c for c in range(len(self.load)) if c not in here)
            other = next(c for c in range(len(self.load)) if c not in there)
            self._swap(self._path(1, target, best, other), best, other)
        self._put(edge, best)

    def balance(self) -> None:
        """Move edges from the fullest colour to the emptiest one until sizes differ by at most one.

        The union of two matchings falls into paths and cycles that alternate. Where one colour has more edges, some path
        has one more of it; swapping the colours along that path moves one edge over.
        """
        low, high = len(self.ends) // len(self.load), -(-len(self.ends) // len(self.load))
        while int(self.load.max()) - int(self.load.min()) > 1:
            full, empty = int(self.load.argmax()), int(self.load.argmin())
            moves = max(min(int(self.load[full]) - high, low - int(self.load[empty])), 1)
            for path in self._surplus(full, empty)[:moves]:
                self._swap(path, full, empty)

    def _surplus(self, full: int, empty: int) -> list[list[int]]:
        """The paths in two colours that begin and end with an edge of `full`."""
        found, seen = [], set()
        for edge in np.flatnonzero(self.colour == full).tolist():
            source, target = self.ends[edge]
            for side, vertex in ((0, source), (1, target)):
                if empty not in self.at[side][vertex] and edge not in seen:  # the path ends here
                    path = self._path(side, vertex, full, empty)
                    seen.update(path)
                    if len(path) % 2:
                        found.append(path)
        return found

    def _path(self, side: int, vertex: int, first: int, second: int) -> list[int]:
        """The edges met from a vertex by colours `first`, `second`, `first` ... until there is none."""
        path: list[int] = []
        while (edge := self.at[side][vertex].get(first)) is not None:
            path.append(edge)
            side = 1 - side
            vertex, first, second = self.ends[edge][side], second, first
        return path

    def _swap(self, path: list[int], first: int, second: int) -> None:
        """Exchange two colours along a path."""
        colours = [int(self.colour[edge]) for edge in path]
        for edge in path:
            self._drop(edge)
        for edge, was in zip(path, colours, strict=True):
            self._put(edge, second if was == first else first)

    def _put(self, edge: int, colour: int) -> None:
        source, target = self.ends[edge]
        self.at[0][source][colour] = self.at[1][target][colour] = edge
        self.colour[edge] = colour
        self.load[colour] += 1

    def _drop(self, edge: int) -> None:
        source, target = self.ends[edge]
        colour = int(self.colour[edge])
        del self.at[0][source][colour], self.at[1][target][colour]
        self.load[colour] -= 1
