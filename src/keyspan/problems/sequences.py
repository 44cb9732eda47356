"""Libraries of token sequences to be recited from a prompt (Haermae et al. 2024: C sequences of N tokens)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.problems import Batch, ContentSource, digest_of
from keyspan.problems.graphs import Graph
from keyspan.problems.sources import Int, Source, available, draw
from keyspan.specs import Spec

PLACES = 64  # a library is given at least so many places, and else the next power of two, so that loads share a batch
MOST = 2**21  # sequences


@dataclass(frozen=True, kw_only=True)
class Sequences(Spec, family="sequences", version=1):
    """Recite a library of sequences: given the first `prompt` tokens of one, all that follow.

    length: N    vocabulary: tokens there are    prompt: k    source: where sequences come from
    library: how many; 0 leaves that to whoever measures
    """

    length: int
    vocabulary: int = 64
    prompt: int = 2
    source: Source = Source()
    library: int = 0

    static: ClassVar[bool] = False
    scores: ClassVar[tuple[str, ...]] = ("recited", "share", "nearly", "shown", "recited_shown", "stored_bits", "tokens")

    def check(self) -> None:
        require(2 <= self.length <= 2**14, "`2 <= --length <= 16384`", self.length, "Ask for another length.")
        require(2 <= self.vocabulary <= 2**20, "`2 <= --vocab <= 1048576`", self.vocabulary, "Try 64.")
        rule = "`1 <= --prompt < --length`"
        require(1 <= self.prompt < self.length, rule, f"prompt={self.prompt}, length={self.length}", "Try 2.")
        require(0 <= self.library <= MOST, f"`--library <= {MOST}`", self.library, "Ask for fewer sequences.")
        object.__setattr__(self, "source", self.source.resolved(self.vocabulary, self.length, self.prompt))
        most = available(self.source, self.vocabulary, self.prompt)
        if most is not None:
            rule = f"`--library <= {most}`, all that this source has"
            require(self.library <= most, rule, self.library, "Ask for fewer, or for a longer --prompt.")

    def with_load(self, sequences: int) -> Sequences:
        """The same problem with another number of sequences."""
        require(sequences >= 1, "`--library >= 1`", sequences, "Recite at least one.")
        return replace(self, library=sequences)

    @property
    def sequences(self) -> int:
        """L, the size of the library."""
        require(self.library >= 1, "`--library >= 1`", self.library, "Say how many sequences there are.")
        return self.library

    @property
    def places(self) -> int:
        """Places for sequences in a member's arrays."""
        return max(PLACES, 1 << (self.sequences - 1).bit_length())

    @property
    def shape(self) -> tuple[int, ...]:
        """(V, N, prompt, places): what members must share to share a fleet."""
        return (self.vocabulary, self.length, self.prompt, self.places)

    def instance(self, problem_id: str, contents: ContentSource) -> SequenceInstance:
        """The library, drawn from the problem's id."""
        sizes = (self.vocabulary, self.length, self.prompt, self.sequences)
        drawn = draw(self.source, *sizes, problem_id, contents)
        require(len(drawn.tokens) == self.sequences, "the source has the library", len(drawn.tokens), "Lower --library.")
        top = int(drawn.tokens.max())
        require(top < self.vocabulary, f"tokens < --vocab ({self.vocabulary})", top, f"Use {top + 1} or more.")
        return SequenceInstance(drawn.tokens, self.prompt, drawn.bits, drawn.kind)

    def batch(self, step: int, instances: Sequence[SequenceInstance]) -> Batch:
        """The libraries. tokens: (members, most sequences, N)    count: (members,)    entropy: (members,), nats of each"""
        most = max(len(i.tokens) for i in instances)
        tokens = np.zeros((len(instances), most, self.length), dtype=np.int64)
        for k, i in enumerate(instances):
            tokens[k, : len(i.tokens)] = i.tokens
        count = np.array([len(i.tokens) for i in instances])
        return {"tokens": tokens, "count": count, "entropy": np.array([i.bits for i in instances]) / count * np.log(2.0)}


@dataclass(frozen=True, eq=False)
class SequenceInstance:
    """A library. tokens: (L, N)    prompt: k    entropies: (L,), bits of each sequence given its prompt    kind: of them"""

    tokens: Int
    prompt: int
    entropies: NDArray[np.float64]
    kind: str

    @property
    def load(self) -> int:
        """L"""
        return len(self.tokens)

    @property
    def bits(self) -> float:
        """Entropy of the library, the prompts being known."""
        return float(self.entropies.sum())

    @cached_property
    def _groups(self) -> tuple[Int, Int]:
        """Which prompt, and which whole sequence, every sequence has; equal ones have equal numbers."""
        prompts = np.unique(self.tokens[:, : self.prompt], axis=0, return_inverse=True)[1]
        whole = np.unique(self.tokens, axis=0, return_inverse=True)[1]
        return prompts.reshape(-1), whole.reshape(-1)

    @cached_property
    def ceiling(self) -> int:
        """Most sequences that anything can recite: for every prompt, those of its most frequent continuation."""
        prompts, whole = self._groups
        first, many = np.unique(whole, return_index=True, return_counts=True)[1:]
        most = np.zeros(prompts.max() + 1, dtype=np.int64)
        np.maximum.at(most, prompts[first], many)
        return int(most.sum())

    @cached_property
    def irreducible(self) -> float:
        """Bits that no model can save, sum over prompts of n H(continuations): the least negative log-likelihood."""
        prompts, whole = self._groups
        first, many = np.unique(whole, return_index=True, return_counts=True)[1:]
        of_prompt = np.bincount(prompts)[prompts[first]]
        return float(-(many * np.log2(many / of_prompt)).sum()) + 0.0

    @property
    def best(self) -> float:
        """The largest `recited` that any member can reach."""
        return float(self.ceiling)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the tokens."""
        return digest_of(self.tokens)


def expected_ceiling(vocabulary: int, prompt: int, sequences: int) -> float:
    """`V^k (1 - (1 - V^-k)^L)`: distinct prompts among L that are drawn uniformly, each with a continuation of its own."""
    codes = float(vocabulary) ** prompt
    return float(-codes * np.expm1(sequences * np.log1p(-1.0 / codes)))


# --------------------------------------------------------------------------------------------------- named builders


def uniform(*, prefixes: str = "distinct") -> Source:
    """Every token alike."""
    return Source(name="uniform", prefixes=prefixes)


def negbin(successes: int = 2, rate: float = 0.1, *, prefixes: str = "drawn") -> Source:
    """Negative-binomial numbers, the skewed source of Haermae et al."""
    return Source(name="negbin", successes=successes, rate=rate, prefixes=prefixes)


def zipf(exponent: float = 1.0, *, prefixes: str = "drawn") -> Source:
    """Weights that fall like a power of the rank."""
    return Source(name="zipf", exponent=exponent, prefixes=prefixes)


def markov(spread: float = 2.0, *, prefixes: str = "drawn") -> Source:
    """A chain whose rows are drawn once."""
    return Source(name="markov", spread=spread, prefixes=prefixes)


def triplets(graph: Graph | None = None, relations: int = 1) -> Source:
    """Item, relation, item, along the edges of a graph."""
    return Source(name="triplets", graph=graph, relations=relations)


def walks(graph: Graph | None = None) -> Source:
    """Along the edges of a graph."""
    return Source(name="walks", graph=graph)
