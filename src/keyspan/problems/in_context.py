"""Relations recalled in contexts: every item of a context asks where its target stands in it, if it is there.

A step of training looks at as many contexts as it takes to ask every source once. Sources are shuffled and dealt out; a
context of L items is L/2 sources and their targets, each item once, so about half of its items have a target in it. Graphs
have at most one target an item (a permutation, a functional graph): then attention has one place to go, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.problems import Batch, ContentSource
from keyspan.problems.relations import OnGraph, RelationInstance, Relations
from keyspan.seeds import Stream
from keyspan.specs import Spec

BLOCK = 16  # steps whose contexts are drawn together
JUDGED = 1024  # contexts that a member is judged on, at least
Int = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class InContext(Spec, family="in-context", version=1):
    """Recall the relations of a graph in contexts of up to `length` items.

    length: L    relations: the items and their graph
    """

    relations: Relations
    length: int

    static: ClassVar[bool] = False
    scores: ClassVar[tuple[str, ...]] = ("f1", "routed")

    def check(self) -> None:
        require(self.length >= 2, "`length >= 2`", self.length, "A context holds an item and its target.")
        require(self.length % 2 == 0, "an even `length`", self.length, "Half of a context are sources.")
        most = 2 * (self.relations.items // 2)
        require(self.length <= most, f"`length <= {most}`, the items", self.length, "A context holds an item once.")

    @property
    def groups(self) -> int:
        """Contexts of a step: as many as it takes to ask every source once."""
        return -(-2 * self.relations.items // self.length)

    @property
    def shape(self) -> tuple[int, ...]:
        """(items, d_model, edges, length): what members must share to share a fleet."""
        return (*self.relations.shape, self.length)

    def instance(self, problem_id: str, contents: ContentSource) -> InContextInstance:
        """The graph and the rows, drawn from the problem's id."""
        return InContextInstance(problem_id, self.length, self.relations.instance(problem_id, contents))

    def batch(self, step: int, instances: Sequence[InContextInstance]) -> Batch:
        """Rows and targets, the same at every step, and the contexts of the step (as `Contexts`, a member axis first)."""
        drawn = [i.contexts_at(step) for i in instances]
        return {
            "embeddings": np.stack([i.relations.embeddings for i in instances]),
            "targets": np.stack([i.targets for i in instances]),
            "items": np.stack([c.items for c in drawn]),
            "open": np.stack([c.open for c in drawn]),
            "places": np.stack([c.places for c in drawn]),
        }


class Contexts(NamedTuple):
    """Contexts, padded to L places.

    items: (contexts, L)    open: whether there is an item    places: where each item's target stands, -1 where it has none
    here, and at a closed place
    """

    items: Int
    open: NDArray[np.bool_]
    places: Int

    def of(self, index: int | slice) -> Contexts:
        """Some of them."""
        return Contexts(self.items[index], self.open[index], self.places[index])


@dataclass(frozen=True, eq=False)
class InContextInstance(OnGraph):
    """A graph on item vectors, and the contexts in which it is recalled. problem_id: what they are drawn from"""

    problem_id: str
    length: int
    relations: RelationInstance

    @cached_property
    def targets(self) -> Int:
        """Every item's target, -1 where it has none. returns: (items,)"""
        source, target = self.relations.edges.T
        once = len(np.unique(source)) == len(source)
        require(once, "at most one target an item", f"{len(source)} edges", "Use a permutation or a functional graph.")
        out = np.full(self.relations.items, -1, dtype=np.int64)
        out[source] = target
        return out

    def contexts_at(self, step: int) -> Contexts:
        """The contexts of a step of training. returns: (contexts, L) each"""
        return contexts(self.problem_id, "contexts", step // BLOCK, self.targets, self.length, BLOCK).of(step % BLOCK)

    def judged(self) -> Contexts:
        """The contexts that a member is judged on, drawn apart from those of training. returns: (contexts, L) each"""
        groups = -(-2 * self.relations.items // self.length)
        drawn = contexts(self.problem_id, "judged", 0, self.targets, self.length, -(-JUDGED // groups))
        flat = (-1, self.length)
        return Contexts(drawn.items.reshape(flat), drawn.open.reshape(flat), drawn.places.reshape(flat))


def contexts(problem_id: str, purpose: str, block: int, targets: Int, length: int, count: int) -> Contexts:
    """So many passes over all sources, drawn together. returns: (count, groups, L) each"""
    m, half = len(targets), length // 2
    groups = -(-m // half)
    words = Stream(problem_id, purpose, block).words(count * m).reshape(count, m)
    order = np.argsort(words, axis=1, kind="stable").astype(np.int64)
    sources = order[:, np.arange(groups * half) % m].reshape(count, groups, half)  # the last context is filled from the first
    items = np.concatenate([sources, targets[sources]], axis=2)
    same = items[..., :, None] == items[..., None, :]
    there = (items >= 0) & ~(same & np.tri(length, k=-1, dtype=bool)).any(axis=3)
    wanted = np.where(there, targets[items], -1)
    found = (wanted[..., :, None] == items[..., None, :]) & there[..., None, :]
    places = np.where(found.any(axis=3), found.argmax(axis=3), -1)
    return Contexts(np.where(there, items, 0), there, places)
