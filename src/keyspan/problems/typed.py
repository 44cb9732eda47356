"""Typed relations: several directed graphs on the same items, each a type of its own (X is shared, R_1 .. R_T are asked).

A triple (t, i, j) holds when i -> j is an edge of type t. What is asked is all T m^2 triples. A head of attention knows the
items and not the type, so a channel for them says how heads and types go together: `TypedChannel`, the instrument's spec.
"""

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
from keyspan.problems.relations import RelationInstance, Relations
from keyspan.specs import Channel, Spec

MOST_TYPES = 2**12
SHARING = ("partitioned", "shared", "leaning")  # of heads among types


@dataclass(frozen=True, kw_only=True)
class TypedRelations(Spec, family="typed-relations", version=1):
    """Recover `types` directed graphs on the same `items` items from their vectors.

    items: m    d_model: d    types: T    graph: the family of every type, drawn for each by itself
    embeddings: the fixed rows x_i, the same for all types
    """

    items: int
    d_model: int
    types: int
    graph: Graph = Graph()
    embeddings: Embeddings = Embeddings()

    static: ClassVar[bool] = True
    scores: ClassVar[tuple[str, ...]] = ("f1", "f1_best", "precision", "recall")

    def check(self) -> None:
        require(self.types >= 2, "`--types >= 2`", self.types, "One type is plain relations: leave it out.")
        require(self.types <= MOST_TYPES, f"`--types <= {MOST_TYPES}`", self.types, "Ask for fewer.")
        require(self.graph.name != "file", "`--types` with a family of graphs", "a file", "A file is one type.")
        object.__setattr__(self, "graph", self.each.graph)

    @property
    def each(self) -> Relations:
        """One type alone, as a problem."""
        return Relations(items=self.items, d_model=self.d_model, graph=self.graph, embeddings=self.embeddings)

    @property
    def edges(self) -> int:
        """T m', the number of triples that hold."""
        return self.types * graphs.edge_count(self.graph, self.items)

    @property
    def bits(self) -> float:
        """Entropy of the family: types are drawn independently, so it is T times that of one."""
        return self.types * self.each.bits

    @property
    def shape(self) -> tuple[int, ...]:
        """(items, d_model, edges, types): what members must share to share a fleet."""
        return (self.items, self.d_model, self.edges, self.types)

    def instance(self, problem_id: str, contents: ContentSource) -> TypedInstance:
        """The graphs and the rows, drawn from the problem's id; every type from its own."""
        drawn = [graphs.make(self.graph, self.items, f"{problem_id}/{t}", contents) for t in range(self.types)]
        rows = embeddings.make(self.embeddings, self.items, self.d_model, problem_id, contents)
        return TypedInstance(spec=self, edges=np.stack(drawn), embeddings=rows)

    def batch(self, step: int, instances: Sequence[TypedInstance]) -> Batch:
        """All triples, the same at every step. embeddings: (members, items, d_model); edges: (members, types, m', 2)"""
        return {
            "embeddings": np.stack([i.embeddings for i in instances]),
            "edges": np.stack([i.edges for i in instances]),
        }


@dataclass(frozen=True, kw_only=True)
class TypedChannel(Spec, family="typed-channel", version=1):
    """A key-query channel for several relations on the same items: `z^t_ij = max_k (S^k_ij + g_tk)`, i -> j of type t if z > 0.

    heads: h, of all types together    d_key: d_k
    sharing: `partitioned`, every type has h / T heads of its own and one threshold (one channel a type); `shared`, all types
    use all heads, each through gates g_tk of its own, which are learned and begin equal; `leaning`, the same, but a type's
    gates begin lower at all heads but h / T of its own
    """

    heads: int
    d_key: int
    sharing: str = "partitioned"

    def check(self) -> None:
        Channel(heads=self.heads, d_key=self.d_key)
        require(self.sharing in SHARING, f"`--sharing` in {'|'.join(SHARING)}", repr(self.sharing), "Choose one.")

    @property
    def channel(self) -> Channel:
        """Its heads as a plain channel."""
        return Channel(heads=self.heads, d_key=self.d_key)

    @property
    def key_budget(self) -> int:
        """D_K = h d_k, of all types together."""
        return self.heads * self.d_key

    def with_budget(self, heads: int, budget: int) -> TypedChannel:
        """The typed channel with this many heads and this key budget."""
        made = self.channel.with_budget(heads, budget)
        return TypedChannel(heads=made.heads, d_key=made.d_key, sharing=self.sharing)

    def check_types(self, types: int) -> None:
        """Refuse heads that cannot be parted equally among the types."""
        if self.sharing != "shared":
            up = -(-self.heads // types) * types
            rule = f"`--types` divides `--heads` where types have heads of their own (types={types})"
            require(self.heads % types == 0, rule, self.heads, f"Use {up} heads.")

    def heads_of(self, which: int, types: int) -> slice:
        """The heads that a type uses."""
        return self.own(which, types) if self.sharing == "partitioned" else slice(0, self.heads)

    def own(self, which: int, types: int) -> slice:
        """The h / T heads that are a type's own, or that it leans to."""
        each = self.heads // types
        return slice(which * each, (which + 1) * each)


@dataclass(frozen=True, eq=False)
class TypedInstance:
    """Several graphs on one set of item vectors. edges: (types, m', 2), sorted    embeddings: (items, d_model), float64"""

    spec: TypedRelations
    edges: NDArray[np.int64]
    embeddings: NDArray[np.float64]

    @property
    def items(self) -> int:
        """m"""
        return len(self.embeddings)

    @property
    def load(self) -> int:
        """T m', the number of triples to recover."""
        return int(self.edges.shape[0] * self.edges.shape[1])

    @property
    def bits(self) -> float:
        """Entropy of the family."""
        return self.spec.bits

    def of(self, which: int) -> RelationInstance:
        """One type alone."""
        return RelationInstance(spec=self.spec.each, edges=self.edges[which], embeddings=self.embeddings)

    @cached_property
    def best(self) -> float:
        """Highest mean F1 over types that any channel can reach."""
        return float(np.mean([self.of(t).best for t in range(len(self.edges))]))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the edges and the rows."""
        return digest_of(self.edges, self.embeddings)


AnyRelations = Relations | TypedRelations
