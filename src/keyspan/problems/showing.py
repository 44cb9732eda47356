"""What a member is shown of its library, step by step: data for a recipe, and a part of what a run is.

`Draws` shows the whole library, in an order shuffled anew each time round. `Ride` begins with a few sequences and takes on
more while the member knows those it has, so that one training finds how many it can hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from keyspan.errors import require
from keyspan.specs import Spec


@dataclass(frozen=True, kw_only=True)
class Draws(Spec, family="draws", version=1):
    """Minibatches of `batch` sequences, every sequence once before any comes again."""

    batch: int

    def check(self) -> None:
        require(1 <= self.batch <= 2**24, "`1 <= --batch <= 16777216`", self.batch, "Try 32.")


@dataclass(frozen=True, kw_only=True)
class Ride(Spec, family="ride", version=1):
    """A library that grows during one training.

    At every look before step `hold`, the active set grows by `growth` of itself if its mean surprise is no more than
    `theta` of its entropy. From `hold` to `settle` it sheds its most surprising sequences, until the mean surprise of the
    others is down to a line that falls from `theta + floor` at `hold` to `floor` at `steps`, but no more than `shed` of
    itself at a look. Then it stays.

    batch: sequences a step    start: sequences at first    steps: of the whole training
    """

    batch: int
    start: int
    steps: int
    hold: int
    settle: int
    growth: float = 0.06
    theta: float = 0.2
    shed: float = 0.02
    floor: float = 0.04

    def check(self) -> None:
        require(1 <= self.batch <= 2**24, "`1 <= --batch <= 16777216`", self.batch, "Try 32.")
        require(self.start >= 1, "`start >= 1`", self.start, "Begin with one sequence at least.")
        ordered = 1 <= self.hold <= self.settle <= self.steps
        got = f"hold={self.hold}, settle={self.settle}, steps={self.steps}"
        require(ordered, "`1 <= hold <= settle <= steps`", got, "Grow first, then settle.")
        require(0 < self.growth <= 1, "`0 < growth <= 1`", self.growth, "Try 0.06.")
        require(0 < self.theta < 1, "`0 < theta < 1`", self.theta, "Try 0.2.")
        require(0 <= self.shed < 1, "`0 <= shed < 1`", self.shed, "Try 0.02.")
        require(0 <= self.floor < 1, "`0 <= floor < 1`", self.floor, "Try 0.04.")
