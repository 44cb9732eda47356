"""What a member is shown of a relation problem, where it is not all pairs at every step. Stateless: drawn from ids.

A recipe may say so in its `show`. Training then sees a part; the judge sees every pair, always.
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


def contexts(problem_id: str, chunk: int, items: int, size: int) -> Int:
    """The contexts of the steps `CHUNK * chunk ...`, each uniform among all subsets. returns: (CHUNK, size), sorted rows"""
    keys = Stream(problem_id, "contexts", chunk).words(CHUNK * items).reshape(CHUNK, items)
    return np.sort(np.argsort(keys, axis=1, kind="stable")[:, :size], axis=1)


def batch_of(problem_id: str, items: int, count: int) -> Int:
    """Which batch an item's row is in; batches have as many rows or one more. returns: (items,)"""
    return Stream(problem_id, "batches").permutation(items) % count
