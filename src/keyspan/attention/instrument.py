"""The seam that the laboratory trains through: a bucket of members behind `init`, `value_and_grad` and `answers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.problems import Batch
from keyspan.specs import Run

Params = dict[str, torch.Tensor]
Arrays = Mapping[str, NDArray[np.float64]]

# Every axis of a member's arrays is padded to a multiple of this, heads and d_key apart. A member's slot is then whole
# cache lines and whole unrolled vectors (two of 16 floats), so the same instructions run over it wherever it stands in a
# batch. Without it, equal numbers come out with another last bit: matrix products choose their path by alignment, and
# what is left over at the end of a vector loop goes through scalar code.
ALIGN = 32

DTYPES = {"fp64": torch.float64, "fp32": torch.float32}


class Bucket(Protocol):
    """Members of one padded shape, stacked along a leading axis.

    What a member's bits are depends on its own spec alone: it is padded to sizes fixed by that spec, alone or in
    company, and every operation treats the members' slots independently.

    static: every step looks at the same batch, so `turn` need not be called
    """

    static: bool

    def init(self, runs: Sequence[Run]) -> Params:
        """Initial weights, drawn from each run's weights id: `draw` of each, put in `place` together."""
        ...

    def draw(self, run: Run) -> Arrays:
        """One member's initial weights, padded, not yet on the device."""
        ...

    def place(self, drawn: Sequence[Arrays]) -> Params:
        """Several members' drawn weights, stacked on the device."""
        ...

    def load(self, batch: Batch, runs: Sequence[Run]) -> Any:
        """Put what a problem's `batch` stacked on the device, padded."""
        ...

    def memory(self, runs: Sequence[Run]) -> Params:
        """What members carry along beside their parameters (the best weights so far, how far a library has grown).

        Tensors with a leading member axis; they are kept in checkpoints, cut and joined with the members.
        """
        ...

    def turn(self, batch: Any, memory: Params, steps: Sequence[int]) -> None:
        """Put before every member what it sees at its own step, in place. steps: (members,), taken so far

        Called before every step, outside a captured graph, so it may do anything but give tensors another place.
        """
        ...

    def look(self, params: Params, batch: Any, memory: Params, steps: Sequence[int]) -> None:
        """Whenever members are looked at: note in `memory`, in place, what they shall carry along."""
        ...

    def kept(self, params: Params, memory: Params) -> Params:
        """The weights that members leave with: the last ones, unless `memory` holds others."""
        ...

    def value_and_grad(self, params: Params, batch: Any, *, value: bool = True) -> tuple[torch.Tensor | None, Params]:
        """Loss (members,) and gradient of every parameter; the loss only if it is wanted."""
        ...

    def clear(self, params: Params, batch: Any, slack: float) -> torch.Tensor:
        """A cheap test: is every decision right and `slack` clear of its threshold? returns: (members,), bool"""
        ...

    def compile(self, run: Run, steps: int) -> None:
        """Prepare, on any thread, whatever the first step of members like this one would wait for."""
        ...

    def answers(self, params: Params, member: int, run: Run) -> Arrays:
        """One member's weights without their padding, float64, for the judge."""
        ...

    def select(self, batch: Any, keep: torch.Tensor) -> Any:
        """The loaded batch of some members only. keep: (kept,) indices"""
        ...

    def join(self, batch: Any, other: Any) -> Any:
        """Two loaded batches as one, the members of `other` last."""
        ...


class Static:
    """The parts of a `Bucket` whose members look at one batch at every step and carry nothing along."""

    static: bool = True

    def memory(self, runs: Sequence[Run]) -> Params:
        """Nothing."""
        return {}

    def turn(self, batch: Any, memory: Params, steps: Sequence[int]) -> None:
        """The batch stays as it is."""

    def look(self, params: Params, batch: Any, memory: Params, steps: Sequence[int]) -> None:
        """Nothing is noted."""

    def kept(self, params: Params, memory: Params) -> Params:
        """The last weights."""
        return params


def dtype_of(arithmetic: str, device: torch.device) -> torch.dtype:
    """The torch type that a spec's arithmetic is carried out in."""
    if arithmetic not in DTYPES:
        raise BadInput(f"`arithmetic` must be one of {'|'.join(DTYPES)} on {device.type}, but got {arithmetic}. Use fp32.")
    return DTYPES[arithmetic]


def next_power_of_two(n: int) -> int:
    """1, 2, 4, 8 ... not below n."""
    return 1 << (n - 1).bit_length()


def round_up(n: int, step: int) -> int:
    """The next multiple of `step`, not below n."""
    return -(-n // step) * step
