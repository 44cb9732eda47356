"""Channels whose edges arrive in batches: a phase looks at the rows of one batch of sources, or of all batches so far.

Weights at the end of every phase are carried along, so that the judge can say what was learned and what was forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from keyspan.attention.channel import ChannelBatch, ChannelBucket
from keyspan.attention.instrument import Arrays, Params
from keyspan.errors import BadInput, require
from keyspan.problems import Batch
from keyspan.problems.shown import Batches, batch_of
from keyspan.specs import Run

AFTER = "after."  # before the names of weights as they were at the end of a phase


@dataclass(frozen=True)
class GrowingBatch(ChannelBatch):
    """weights: (members, items), what a source's row counts now    owner: (members, items), its batch; -1 at padding

    degree: (members, items), its edges    phases: the phase that `weights` are of, member by member; -1 before the first
    """

    weights: torch.Tensor
    owner: torch.Tensor
    degree: torch.Tensor
    phases: list[int]


class GrowingBucket(ChannelBucket):
    """Channels of one shape that are shown as many batches.

    The loss of a phase is that of the rows in view, over the number of their edges.
    """

    static = False

    def __init__(self, runs: Sequence[Run], loss: str, init_scale: float, bias: float, device: torch.device) -> None:
        super().__init__(runs, loss, init_scale, bias, device)
        show = getattr(runs[0].recipe, "show", None)
        assert isinstance(show, Batches)
        fix = "Use fewer batches."
        require(show.count <= self.true_items, f"`--batches <= {self.true_items}`", show.count, fix)
        self.count, self.replay = show.count, show.replay
        self.steps = int(runs[0].recipe.phases[0].steps)  # type: ignore[attr-defined]
        if self.steps % runs[0].stopping.check_every:
            every = runs[0].stopping.check_every
            raise BadInput(f"A phase must be a number of looks, but got {self.steps} steps, one look in {every}. Round it.")

    # ------------------------------------------------------------------------------------------- what is seen

    def load(self, batch: Batch, runs: Sequence[Run]) -> GrowingBatch:
        """All pairs on the device, and which batch every row is in. Nothing is in view yet."""
        whole = super().load(batch, runs)
        owner = np.full((len(runs), self.items), -1)
        for member, run in enumerate(runs):
            owner[member, : self.true_items] = batch_of(run.problem_id, self.true_items, self.count)
        degree = whole.x.new_zeros(len(runs), self.items)
        degree.scatter_add_(1, whole.sources, torch.ones_like(whole.sources, dtype=degree.dtype))
        return GrowingBatch(
            **vars(whole),
            weights=torch.zeros_like(degree),
            owner=torch.from_numpy(owner).to(self.device),
            degree=degree,
            phases=[-1] * len(runs),
        )

    def turn(self, batch: GrowingBatch, memory: Params, steps: Sequence[int]) -> None:
        """Where a phase begins, put its rows in view."""
        now = (memory["turns"] // self.steps).tolist()
        memory["turns"] += 1
        for member, phase in enumerate(now):
            if batch.phases[member] != phase:
                batch.phases[member] = phase
                owner, degree = batch.owner[member], batch.degree[member]
                seen = (owner >= 0) & (owner <= phase) if self.replay else owner == phase
                edges = (degree * seen).sum().clamp(min=1.0)
                batch.weights[member] = seen.to(degree.dtype) / edges

    def _scale_pairs(self, t: torch.Tensor, batch: ChannelBatch, here: slice, top: int) -> torch.Tensor:
        assert isinstance(batch, GrowingBatch)
        return t.mul_(batch.weights[here, top : top + t.shape[1], None])

    def _loss(self, z: torch.Tensor, edges: torch.Tensor, batch: ChannelBatch, here: slice, top: int) -> torch.Tensor:
        assert isinstance(batch, GrowingBatch)
        each = self._drop_padding(self._scale_pairs(self.pair_loss.others(z), batch, here, top), top)
        turned = self.pair_loss.turn(z.flatten(1).gather(1, edges))
        turned *= batch.weights[here].gather(1, edges // self.items + top)
        return each.sum(-1).sum(-1) + turned.sum(-1)

    def select(self, batch: ChannelBatch, keep: torch.Tensor) -> GrowingBatch:
        """The loaded batch of some members only."""
        assert isinstance(batch, GrowingBatch)
        more = {name: getattr(batch, name)[keep] for name in ("weights", "owner", "degree")}
        return GrowingBatch(**vars(super().select(batch, keep)), **more, phases=[batch.phases[i] for i in keep.tolist()])

    def join(self, batch: ChannelBatch, other: ChannelBatch) -> GrowingBatch:
        """Two loaded batches as one."""
        assert isinstance(batch, GrowingBatch) and isinstance(other, GrowingBatch)
        more = {name: torch.cat([getattr(b, name) for b in (batch, other)]) for name in ("weights", "owner", "degree")}
        return GrowingBatch(**vars(super().join(batch, other)), **more, phases=batch.phases + other.phases)

    # ------------------------------------------------------------------------------------- what is carried along

    def memory(self, runs: Sequence[Run]) -> Params:
        """Steps taken in all phases, and weights at the end of each. after.w_query: (members, batches, heads, d_key, width)"""
        like = self.place([self.draw(run) for run in runs])
        ends = {AFTER + k: torch.stack([torch.zeros_like(v)] * self.count, dim=1) for k, v in like.items()}
        return ends | {"turns": torch.zeros(len(runs), dtype=torch.int64, device=self.device)}

    def look(self, params: Params, batch: GrowingBatch, memory: Params, steps: Sequence[int]) -> None:
        """At the end of a phase, keep the weights."""
        for member, turns in enumerate(memory["turns"].tolist()):
            if turns and turns % self.steps == 0:
                for name, value in params.items():
                    memory[AFTER + name][member, turns // self.steps - 1] = value[member]

    def kept(self, params: Params, memory: Params) -> Params:
        """The last weights, and those at the end of every phase."""
        return params | memory

    def answers(self, params: Params, member: int, run: Run) -> Arrays:
        """The last weights; `after_` each phase the same, along a leading axis; the batch of every row."""
        last = dict(super().answers(params, member, run))
        if "turns" not in params:
            return last
        over = int(params["turns"][member]) // self.steps  # phases that were gone through to their end
        ends: dict[str, list[NDArray[np.float64]]] = {name: [] for name in last}
        for phase in range(self.count):
            then = {k: params[AFTER + k][:, phase] for k in last}
            for name, value in (super().answers(then, member, run) if phase < over else last).items():
                ends[name].append(value)
        batch = batch_of(run.problem_id, self.true_items, self.count).astype(np.float64)
        return last | {f"after_{k}": np.stack(v) for k, v in ends.items()} | {"batch": batch}
