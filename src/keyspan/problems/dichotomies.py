"""Cover's random labelings: the standard that the laboratory is calibrated on (Cover 1965).

T points in general position in d dimensions with random signs. A linear unit separates a fraction of labelings that is
known exactly, so the capacity that the laboratory measures can be compared with the truth: 2d.
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
from keyspan.problems import Batch, ContentSource, digest_of
from keyspan.seeds import Stream, tree_sum
from keyspan.specs import Spec

ROWS = 32  # examples are padded to a multiple of this, so that loads near each other share a batch


@dataclass(frozen=True, kw_only=True)
class Dichotomies(Spec, family="dichotomies", version=1):
    """Random labels on random directions. examples: T    dimension: d"""

    dimension: int
    examples: int

    static: ClassVar[bool] = True
    scores: ClassVar[tuple[str, ...]] = ("fitted", "accuracy")

    def check(self) -> None:
        require(2 <= self.dimension <= 1000, "`2 <= --dimension <= 1000`", self.dimension, "Try 16 or 50.")
        require(self.examples >= 1, "`examples >= 1`", self.examples, "Label at least one point.")

    def with_load(self, examples: int) -> Dichotomies:
        """The same problem with another number of examples."""
        return replace(self, examples=examples)

    @property
    def shape(self) -> tuple[int, ...]:
        """(dimension, padded examples): the number of examples goes up to the next multiple of 32."""
        return (self.dimension, -(-self.examples // ROWS) * ROWS)

    def instance(self, problem_id: str, contents: ContentSource) -> DichotomyInstance:
        """Points and labels, drawn from the problem's id."""
        x = Stream(problem_id, "points").normal((self.examples, self.dimension))
        labels = Stream(problem_id, "labels").signs((self.examples,))
        return DichotomyInstance(points=x / np.sqrt(tree_sum(x * x))[:, None], labels=labels)

    def batch(self, step: int, instances: Sequence[DichotomyInstance]) -> Batch:
        """signed: (members, padded examples, dimension), the points times their labels, rows of zeros as padding;
        real: (members, padded examples), 1 for an example and 0 for padding."""
        rows = max(-(-len(i.points) // ROWS) * ROWS for i in instances)
        signed = np.zeros((len(instances), rows, instances[0].points.shape[1]))
        real = np.zeros((len(instances), rows))
        for k, i in enumerate(instances):
            signed[k, : len(i.points)] = i.labels[:, None] * i.points
            real[k, : len(i.points)] = 1.0
        return {"signed": signed, "real": real}


@dataclass(frozen=True, eq=False)
class DichotomyInstance:
    """T labelled points. points: (T, d), unit rows    labels: (T,), signs"""

    points: NDArray[np.float64]
    labels: NDArray[np.float64]

    @property
    def load(self) -> int:
        """T"""
        return len(self.points)

    @property
    def bits(self) -> float:
        """One bit a label."""
        return float(self.load)

    @property
    def best(self) -> float:
        """A member either fits all labels or does not; whether it can is what is measured."""
        return 1.0

    @cached_property
    def digest(self) -> str:
        """SHA-256 of points and labels."""
        return digest_of(self.points, self.labels)


def separable_fraction(examples: int, dimension: int) -> float:
    """Cover's count: the probability that T points in general position in d dimensions are separable.

    `P(T, d) = 2^(1-T) sum_{k<d} C(T-1, k)`, which is exactly 1/2 at T = 2d.
    """
    if examples <= dimension:
        return 1.0
    ways = sum(math.comb(examples - 1, k) for k in range(dimension))
    return float(ways / 2 ** (examples - 1))
