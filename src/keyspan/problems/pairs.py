"""Pairs of tokens: does a layer know the token that follows each of them? (Dana, Pydi and Chevaleyre 2025)

N tokens make N^2 ordered pairs; each is followed by one token, drawn at random, once for all. Training looks at `samples` of
them, drawn with replacement before it begins; the judge looks at all.

N: tokens    d: d_model
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.identity import Spec
from keyspan.problems import Batch, ContentSource, digest_of
from keyspan.problems.contexts import epochs_at_once
from keyspan.seeds import Stream

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Pairs(Spec, family="pairs", version=1):
    """What follows every pair of `tokens` tokens. samples: pairs that training looks at, some of them several times"""

    tokens: int
    samples: int = 2**14

    static: ClassVar[bool] = False
    scores: ClassVar[tuple[str, ...]] = ("accuracy", "accuracy_seen", "loss")

    def check(self) -> None:
        require(2 <= self.tokens <= 2**11, "`2 <= tokens <= 2048`", self.tokens, "Try 50.")
        require(1 <= self.samples <= 2**24, "`1 <= samples <= 16777216`", self.samples, "Try 16384.")

    def with_load(self, tokens: int) -> Pairs:
        """The same problem with another number of tokens."""
        return replace(self, tokens=tokens)

    @property
    def shape(self) -> tuple[int, ...]:
        """(tokens,): what members must share to share a fleet."""
        return (self.tokens,)

    def instance(self, problem_id: str, contents: ContentSource) -> PairInstance:
        """What follows, and the samples, drawn from the problem's id."""
        count = self.tokens**2
        return PairInstance(
            identity=problem_id,
            tokens=self.tokens,
            follows=Stream(problem_id, "labels").integers(self.tokens, count),
            samples=Stream(problem_id, "samples").integers(count, self.samples),
        )

    def batch(self, step: int, instances: Sequence[PairInstance]) -> Batch:
        """The instances themselves. given: (members,)"""
        given = np.empty(len(instances), dtype=object)
        given[:] = list(instances)
        return {"given": given}


@dataclass(frozen=True, eq=False)
class PairInstance:
    """follows: (N^2,), the token after the pair (i, j) at i N + j    samples: (samples,), pairs"""

    identity: str
    tokens: int
    follows: Ints
    samples: Ints

    @property
    def load(self) -> int:
        """N^2"""
        return len(self.follows)

    @property
    def bits(self) -> float:
        """N^2 log2 N"""
        return self.load * math.log2(self.tokens)

    @property
    def best(self) -> float:
        """Every pair can be known."""
        return 1.0

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what follows and of the samples."""
        return digest_of(self.follows, self.samples)

    def order(self, epoch: int) -> Ints:
        """The samples in the order of an epoch. returns: (samples,)"""
        group = epochs_at_once(len(self.samples))
        words = Stream(self.identity, "order", epoch // group).words(group * len(self.samples)).reshape(group, -1)
        return np.asarray(self.samples[np.argsort(words[epoch % group], kind="stable")])


@dataclass(frozen=True, kw_only=True)
class PairLayer(Spec, family="pair-layer", version=1):
    """One layer of attention with positions and residual, between an embedding of tokens and a map to them, without biases.

    heads: H    d_key: d_h, of queries, keys and values    d_model: d
    """

    heads: int
    d_key: int
    d_model: int

    def check(self) -> None:
        for name, size in (("heads", self.heads), ("d_key", self.d_key), ("d_model", self.d_model)):
            require(1 <= size <= 2**16, f"`1 <= {name} <= 65536`", size, "Try 10.")
