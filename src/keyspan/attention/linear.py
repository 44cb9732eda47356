"""Batched linear units in torch: the instrument that the laboratory is calibrated with.

In products with a vector the vector stands on the left. With it on the right the library takes another path for one
matrix than for many, and a member's bits would depend on its company (the fleet's tests see it).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from keyspan.attention.instrument import ALIGN, Arrays, Params, Static, dtype_of, round_up
from keyspan.errors import BadInput
from keyspan.problems import Batch
from keyspan.problems.dichotomies import Dichotomies
from keyspan.seeds import Stream
from keyspan.specs import Run

LOSSES = ("squared-hinge", "bce")


@dataclass(frozen=True)
class LinearBatch:
    """signed: (members, examples, dimension), points times labels, zeros as padding    real: (members, examples)"""

    signed: torch.Tensor
    real: torch.Tensor


class LinearBucket(Static):
    """Linear units of one dimension and one padded number of examples. `L` as `reference.squared_hinge`, `.logistic`."""

    def __init__(self, runs: Sequence[Run], loss: str, init_scale: float, bias: float, device: torch.device) -> None:
        problem = runs[0].problem
        if not isinstance(problem, Dichotomies):
            raise BadInput(f"A linear unit must be given dichotomies, but got {problem.family}. Use another instrument.")
        if loss not in LOSSES:
            raise BadInput(f"A linear unit's loss must be one of {'|'.join(LOSSES)}, but got {loss!r}. Change the recipe.")
        self.dimension, self.loss, self.init_scale, self.device = problem.dimension, loss, init_scale, device
        self.dtype = dtype_of(runs[0].arithmetic, device)
        self.width = round_up(self.dimension, ALIGN)

    def init(self, runs: Sequence[Run]) -> Params:
        """`w ~ N(0, init_scale / d)` entrywise, from each run's weights id and its recipe's draw. w: (members, dimension)"""
        return self.place([self.draw(run) for run in runs])

    def draw(self, run: Run) -> Arrays:
        """One member's initial weights, padded. w: (width,)"""
        w = np.zeros(self.width)
        stream = Stream(run.weights_id, "weights", getattr(run.recipe, "draw", 0))
        w[: self.dimension] = stream.normal((self.dimension,)) * math.sqrt(self.init_scale / self.dimension)
        return {"w": w}

    def place(self, drawn: Sequence[Arrays]) -> Params:
        """Drawn weights of several members, stacked on the device."""
        return {"w": torch.from_numpy(np.stack([d["w"] for d in drawn])).to(device=self.device, dtype=self.dtype)}

    def load(self, batch: Batch, runs: Sequence[Run]) -> LinearBatch:
        """Points on the device."""
        signed = np.zeros((*batch["signed"].shape[:2], self.width))
        signed[..., : self.dimension] = batch["signed"]
        return LinearBatch(
            torch.from_numpy(signed).to(device=self.device, dtype=self.dtype),
            torch.from_numpy(batch["real"]).to(device=self.device, dtype=self.dtype),
        )

    def select(self, batch: LinearBatch, keep: torch.Tensor) -> LinearBatch:
        """The loaded batch of some members only."""
        return LinearBatch(batch.signed[keep], batch.real[keep])

    def join(self, batch: LinearBatch, other: LinearBatch) -> LinearBatch:
        """Two loaded batches as one."""
        return LinearBatch(torch.cat([batch.signed, other.signed]), torch.cat([batch.real, other.real]))

    def _margins(self, params: Params, batch: LinearBatch) -> torch.Tensor:
        return torch.bmm(params["w"].unsqueeze(1), batch.signed.transpose(1, 2)).squeeze(1)

    def value_and_grad(self, params: Params, batch: LinearBatch, *, value: bool = True) -> tuple[torch.Tensor | None, Params]:
        """`reference.squared_hinge` or `reference.logistic` and its gradient, of every member."""
        margins = self._margins(params, batch)
        if self.loss == "squared-hinge":
            short = (1.0 - margins).clamp_(min=0.0) * batch.real
            loss, pull = (short * short).sum(1) if value else None, -2.0 * short
        else:
            count = batch.real.sum(1, keepdim=True)
            loss = (torch.nn.functional.softplus(-margins, threshold=40.0) * batch.real / count).sum(1) if value else None
            pull = -torch.sigmoid(-margins) * batch.real / count
        return loss, {"w": torch.bmm(pull.unsqueeze(1), batch.signed).squeeze(1)}

    def clear(self, params: Params, batch: LinearBatch, slack: float) -> torch.Tensor:
        """Whether every label is fitted with `slack` of the largest margin to spare. returns: (members,), bool"""
        margins = self._margins(params, batch)
        least = margins.masked_fill(batch.real == 0, math.inf).amin(1)
        return least > slack * margins.abs().amax(1)

    def compile(self, run: Run, steps: int) -> None:
        """PyTorch's own operations are compiled already."""

    def answers(self, params: Params, member: int, run: Run) -> Arrays:
        """One member's weights. w: (dimension,)"""
        return {"w": params["w"][member, : self.dimension].double().cpu().numpy()}
