"""The relation problem: item vectors and a directed graph on them (Adler 2025, section 3: X, G, m, m')."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.problems import Batch, ContentSource, digest_of, embeddings, graphs
from keyspan.problems.embeddings import Embeddings
from keyspan.problems.graphs import Graph
from keyspan.specs import Spec


@dataclass(frozen=True, kw_only=True)
class Relations(Spec, family="relations", version=1):
    """Recover a directed graph on `items` items from their vectors.

    items: m    d_model: d    graph: which m' ordered pairs are edges    embeddings: the fixed rows x_i
    """

    items: int
    d_model: int
    graph: Graph = Graph()
    embeddings: Embeddings = Embeddings()

    static: ClassVar[bool] = True
    scores: ClassVar[tuple[str, ...]] = ("f1", "f1_best", "precision", "recall", "threshold")

    def check(self) -> None:
        require(self.items >= 2, "`--items >= 2`", self.items, "Relations need at least two items.")
        require(self.items <= 2**24, "`--items <= 16777216`", self.items, "Ask for fewer items.")
        require(self.d_model >= 1, "`--d-model >= 1`", self.d_model, "Item vectors need a dimension.")
        require(self.d_model <= 2**16, "`--d-model <= 65536`", self.d_model, "Ask for fewer dimensions.")
        object.__setattr__(self, "graph", graphs.resolve(self.graph, self.items))
        embeddings.check_fit(self.embeddings, self.items, self.d_model)

    @property
    def edges(self) -> int:
        """m', the number of relations."""
        return graphs.edge_count(self.graph, self.items)

    @property
    def bits(self) -> float:
        """Entropy of the graph's family: bits to name one."""
        return graphs.entropy(self.graph, self.items).value

    @property
    def shape(self) -> tuple[int, ...]:
        """(items, d_model, edges): what members must share to share a fleet."""
        return (self.items, self.d_model, self.edges)

    def instance(self, problem_id: str, contents: ContentSource) -> RelationInstance:
        """The graph and the rows, drawn from the problem's id."""
        return RelationInstance(
            spec=self,
            edges=graphs.make(self.graph, self.items, problem_id, contents),
            embeddings=embeddings.make(self.embeddings, self.items, self.d_model, problem_id, contents),
        )

    def batch(self, step: int, instances: Sequence[RelationInstance]) -> Batch:
        """The whole item set, the same at every step. embeddings: (members, items, d_model); edges: (members, m', 2)"""
        return {
            "embeddings": np.stack([i.embeddings for i in instances]),
            "edges": np.stack([i.edges for i in instances]),
        }


@dataclass(frozen=True, eq=False)
class RelationInstance:
    """One graph on one set of item vectors. edges: (m', 2), sorted    embeddings: (items, d_model), float64"""

    spec: Relations | None
    edges: NDArray[np.int64]
    embeddings: NDArray[np.float64]

    @property
    def items(self) -> int:
        """m"""
        return len(self.embeddings)

    @property
    def load(self) -> int:
        """m', the number of edges to recover."""
        return len(self.edges)

    @property
    def bits(self) -> float:
        """Entropy of the graph's family; of a bare graph: among graphs with as many edges."""
        if self.spec is None:
            return graphs.log2_choose(self.items**2, self.load)
        return self.spec.bits

    @cached_property
    def best(self) -> float:
        """Highest F1 any channel can reach: below 1 only when items share a vector and so cannot be told apart."""
        _, group = np.unique(self.embeddings, axis=0, return_inverse=True)
        group = group.reshape(-1)
        size = np.bincount(group)
        if size.max() == 1:
            return 1.0
        code = group[self.edges[:, 0]] * size.size + group[self.edges[:, 1]]
        block, hits = np.unique(code, return_counts=True)
        area = size[block // size.size] * size[block % size.size]
        order = np.argsort(-hits / area, kind="stable")  # the best set of blocks is the densest ones
        return float((2 * hits[order].cumsum() / (area[order].cumsum() + self.load)).max())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the edges and the rows."""
        return digest_of(self.edges, self.embeddings)


class OnGraph:
    """What an instance that wraps a graph says of it; whatever else it draws follows from the problem's id."""

    relations: RelationInstance

    @property
    def load(self) -> int:
        """m', the number of edges to recover."""
        return self.relations.load

    @property
    def bits(self) -> float:
        """Entropy of the graph's family."""
        return self.relations.bits

    @property
    def best(self) -> float:
        """Highest F1 that scores of pairs can reach, which do not depend on what else is drawn."""
        return self.relations.best

    @property
    def digest(self) -> str:
        """SHA-256 of the edges and the rows."""
        return self.relations.digest
