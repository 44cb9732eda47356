"""What a member is shown, where it is not all there is at every step. Stateless: drawn from ids.

A recipe may say so in its `show`: `Contexts` or `Batches` of pairs, a `Ride` through a library. Training then sees a part;
the judge sees everything, always.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.seeds import Stream
from keyspan.specs import Spec

Int = NDArray[np.int64]
CHUNK = 64  # contexts that one stream draws: making a stream costs a hash


@dataclass(frozen=True, kw_only=True)
class Contexts(Spec, family="contexts", version=1):
    """A context of `items` items at every step, drawn anew, and all ordered pairs within it (Adler's C, of length l)."""

    items: int

    def check(self) -> None:
        require(self.items >= 2, "`--contexts >= 2`", self.items, "A pair needs two items.")


@dataclass(frozen=True, kw_only=True)
class Batches(Spec, family="batches", version=1):
    """Sources in `count` batches, one a phase: the rows of pairs that they ask, with their edges and non-edges.

    replay: a phase shows the batches before it as well; without, they are seen no more
    """

    count: int
    replay: bool = False

    def check(self) -> None:
        require(self.count >= 2, "`--batches >= 2`", self.count, "One batch is all at once: leave it out.")


@dataclass(frozen=True, kw_only=True)
class Ride(Spec, family="ride", version=1):
    """A library of sequences that grows during one training, which so finds how many of them a member can hold.

    At every look before step `hold`, the active set grows by `growth` of itself if its mean surprise is no more than
    `theta` of its entropy. From `hold` to `settle` it sheds its most surprising sequences, until the mean surprise of the
    others is down to a line that falls from `theta + floor` at `hold` to `floor` at `steps`, but no more than `shed` of
    itself at a look. Then it stays.

    start: sequences at first    steps: of the whole training
    """

    start: int
    steps: int
    hold: int
    settle: int
    growth: float = 0.06
    theta: float = 0.2
    shed: float = 0.04
    floor: float = 0.02

    def check(self) -> None:
        require(self.start >= 1, "`start >= 1`", self.start, "Begin with one sequence at least.")
        ordered = 1 <= self.hold <= self.settle <= self.steps
        got = f"hold={self.hold}, settle={self.settle}, steps={self.steps}"
        require(ordered, "`1 <= hold <= settle <= steps`", got, "Grow first, then settle.")
        require(0 < self.growth <= 1, "`0 < growth <= 1`", self.growth, "Try 0.06.")
        require(0 < self.theta < 1, "`0 < theta < 1`", self.theta, "Try 0.2.")
        require(0 <= self.shed < 1, "`0 <= shed < 1`", self.shed, "Try 0.02.")
        require(0 <= self.floor < 1, "`0 <= floor < 1`", self.floor, "Try 0.04.")


def contexts(problem_id: str, chunk: int, items: int, size: int) -> Int:
    """The contexts of the steps `CHUNK * chunk ...`, each uniform among all subsets. returns: (CHUNK, size), sorted rows"""
    keys = Stream(problem_id, "contexts", chunk).words(CHUNK * items).reshape(CHUNK, items)
    return np.sort(np.argsort(keys, axis=1, kind="stable")[:, :size], axis=1)


def batch_of(problem_id: str, items: int, count: int) -> Int:
    """Which batch an item's row is in; batches have as many rows or one more. returns: (items,)"""
    return Stream(problem_id, "batches").permutation(items) % count
