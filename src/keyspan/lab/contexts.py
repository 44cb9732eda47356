"""Contexts that grow and shrink: the lowest edge and the highest non-edge among the items present, item by item.

An item that comes adds one row and one column of scores, `4 |C| D_K` operations, and nothing else has to be looked at. An
item that goes can only widen the gap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.lab.tiles import check_weights
from keyspan.problems.relations import RelationInstance

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Pair:
    """A score, and whose it is."""

    score: float
    source: int
    target: int


NO_EDGE, NO_NONEDGE = Pair(math.inf, -1, -1), Pair(-math.inf, -1, -1)


class Context:
    """Some of the items of a problem, and what a channel says of their pairs. w_query, w_key: (heads, d_model, d_key)"""

    def __init__(self, instance: RelationInstance, w_query: Float, w_key: Float, items: Iterable[int] = ()) -> None:
        check_weights(instance, w_query, w_key)
        self.instance, self._w = instance, (w_query, w_key)
        self._edges = {(int(i), int(j)) for i, j in instance.edges}
        self._order: list[int] = []
        self._sides: dict[int, tuple[Float, Float]] = {}  # query and key of an item, (heads, d_key) each
        self._worst: dict[int, tuple[Pair, Pair]] = {}  # of an item with itself and with those that came before it
        for item in items:
            self.add(item)

    @property
    def items(self) -> tuple[int, ...]:
        """Who is present, in the order in which they came."""
        return tuple(self._order)

    @property
    def min_edge(self) -> Pair | None:
        """The lowest edge among the items present."""
        return self._best(0)

    @property
    def max_nonedge(self) -> Pair | None:
        """The highest non-edge among them."""
        return self._best(1)

    @property
    def margin(self) -> float:
        """min_edge - max_nonedge; infinite where one of them does not exist."""
        low, high = self.min_edge, self.max_nonedge
        return math.inf if low is None or high is None else low.score - high.score

    def recovered(self, tau: float) -> bool:
        """Whether the channel is right on every pair of the context: edges above tau, others not."""
        low, high = self.min_edge, self.max_nonedge
        return (low is None or low.score > tau) and (high is None or high.score <= tau)

    def add(self, item: int) -> None:
        """An item comes."""
        require(0 <= item < self.instance.items, f"0 <= item < {self.instance.items}", item, "Name an item of the problem.")
        require(item not in self._sides, "an item that is not in the context yet", item, "Each is in it once.")
        row = self.instance.embeddings[item]
        query, key = (np.einsum("a,hac->hc", row, w) for w in self._w)
        self._sides[item] = (query, key)
        self._order.append(item)
        self._look(item, self._order)

    def remove(self, item: int) -> None:
        """An item goes; those whose worst pair was with it are looked at again."""
        require(item in self._sides, "an item of the context", item, f"It holds {len(self._order)} others.")
        place = self._order.index(item)
        del self._order[place], self._sides[item], self._worst[item]
        for later in range(place, len(self._order)):
            other = self._order[later]
            if any(item in (pair.source, pair.target) for pair in self._worst[other]):
                self._look(other, self._order[: later + 1])

    def _look(self, item: int, others: list[int]) -> None:
        """The item's row and column of scores, against these (itself among them)."""
        query, key = self._sides[item]
        queries, keys = (np.stack([self._sides[other][side] for other in others]) for side in (0, 1))
        row = np.einsum("hc,nhc->nh", query, keys).max(axis=1)
        column = np.einsum("nhc,hc->nh", queries, key).max(axis=1)
        low, high = NO_EDGE, NO_NONEDGE
        for n, other in enumerate(others):
            for score, source, target in ((row[n], item, other), (column[n], other, item)):
                if (source, target) in self._edges:
                    low = min(low, Pair(float(score), source, target), key=lambda pair: pair.score)
                else:
                    high = max(high, Pair(float(score), source, target), key=lambda pair: pair.score)
        self._worst[item] = (low, high)

    def _best(self, side: int) -> Pair | None:
        pick = max if side else min
        found = pick((worst[side] for worst in self._worst.values()), key=lambda pair: pair.score, default=NO_EDGE)
        return found if math.isfinite(found.score) else None
