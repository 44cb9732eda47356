"""Relations of items that stand somewhere: i -> j must be recognised wherever i and j stand among so many positions.

The positions of two items are independent and uniform on 0 .. P-1, so an offset p_i - p_j = t comes with probability
(P - |t|) / P^2; an item stands at no distance from itself. At every training step every item gets another position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.problems import Batch, ContentSource
from keyspan.problems.relations import OnGraph, RelationInstance, Relations
from keyspan.seeds import Stream
from keyspan.specs import Spec

BLOCK = 64  # steps whose positions are drawn together


@dataclass(frozen=True, kw_only=True)
class Placed(Spec, family="placed-relations", version=1):
    """Recover the graph of `relations` from its items wherever they stand among `positions` places.

    positions: P
    """

    relations: Relations
    positions: int

    static: ClassVar[bool] = False
    scores: ClassVar[tuple[str, ...]] = ("f1", "f1_best", "precision", "recall", "threshold")

    def check(self) -> None:
        require(self.positions >= 1, "`--positions >= 1`", self.positions, "Items stand somewhere; 1 is one place for all.")
        require(self.positions <= 4096, "`--positions <= 4096`", self.positions, "Every offset is judged; ask for fewer.")

    @property
    def shape(self) -> tuple[int, ...]:
        """(items, d_model, edges, positions): what members must share to share a fleet."""
        return (*self.relations.shape, self.positions)

    def instance(self, problem_id: str, contents: ContentSource) -> PlacedInstance:
        """The graph and the rows, drawn from the problem's id."""
        return PlacedInstance(problem_id, self.positions, self.relations.instance(problem_id, contents))

    def batch(self, step: int, instances: Sequence[PlacedInstance]) -> Batch:
        """Rows and edges, the same at every step, and the positions of the step. positions: (members, items)"""
        whole = self.relations.batch(step, [i.relations for i in instances])
        return whole | {"positions": np.stack([i.placed_at(step) for i in instances])}


@dataclass(frozen=True, eq=False)
class PlacedInstance(OnGraph):
    """A graph on item vectors, and where its items may stand. problem_id: what positions are drawn from"""

    problem_id: str
    positions: int
    relations: RelationInstance

    def placed_at(self, step: int) -> NDArray[np.int64]:
        """Where every item stands at a step of training. returns: (items,)"""
        block = placements(self.problem_id, self.positions, self.relations.items, step // BLOCK)
        return np.asarray(block[step % BLOCK])

    def offsets(self) -> Iterator[tuple[int, float]]:
        """Every offset of two different items, and how probable it is."""
        for offset in range(1 - self.positions, self.positions):
            yield offset, (self.positions - abs(offset)) / self.positions**2


def placements(problem_id: str, positions: int, items: int, block: int) -> NDArray[np.int64]:
    """Positions of the steps of a block. returns: (BLOCK, items)"""
    return Stream(problem_id, "placements", block).integers(positions, BLOCK * items).reshape(BLOCK, items)
