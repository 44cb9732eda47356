"""Channels trained on sampled contexts: every step looks at some of the items and the pairs among them.

Contexts are drawn from the problem's id and the member's own step, so members that share an instance share them, and a
member's bits do not depend on its company or on a kill in between. Who holds the problem is looked up on all pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from keyspan.attention.channel import ChannelBatch, ChannelBucket
from keyspan.attention.instrument import Params
from keyspan.errors import require
from keyspan.problems import Batch
from keyspan.problems.shown import CHUNK, Contexts, contexts
from keyspan.specs import Run


@dataclass(frozen=True)
class SampledBatch:
    """whole: all pairs    inside: those of the members' contexts, changed in place    targets: (members, m'), of the edges

    problem_ids: what contexts are drawn from, member by member
    """

    whole: ChannelBatch
    inside: ChannelBatch
    targets: torch.Tensor
    problem_ids: list[str]


class _Inside(ChannelBucket):
    """The channel on a context. An edge that is not in it stands at the last padded pair, and counts for nothing."""

    def _loss(self, z: torch.Tensor, edges: torch.Tensor, batch: ChannelBatch, here: slice, top: int) -> torch.Tensor:
        each = self._drop_padding(self.pair_loss.others(z), top)
        turned = self.pair_loss.turn(z.flatten(1).gather(1, edges))
        turned = turned * (edges < (self.true_items - top) * self.items)
        return (each.sum(-1).sum(-1) + turned.sum(-1)) / self.edges


class SampledBucket(ChannelBucket):
    """Channels of one shape that see contexts of one size, l of m items.

    The loss of a step is that of the pairs within, over `m' (l/m)^2`, the edges that a context has on average: its mean over
    contexts is the loss of all pairs (but for self-pairs, which count m/l times as much).
    """

    static = False

    def __init__(self, runs: Sequence[Run], loss: str, init_scale: float, bias: float, device: torch.device) -> None:
        super().__init__(runs, loss, init_scale, bias, device)
        show = getattr(runs[0].recipe, "show", None)
        assert isinstance(show, Contexts)
        fix = "Show fewer, or leave it out to show all."
        require(show.items <= self.true_items, f"`--contexts <= {self.true_items}`", show.items, fix)
        self.size = show.items
        self.inner = _Inside(runs, loss, init_scale, bias, device)
        self.inner._look_at(self.size, self.edges * (self.size / self.true_items) ** 2, spare=1)
        self._chunks: dict[str, tuple[int, NDArray[np.int64]]] = {}  # by problem id: the chunk last drawn

    def load(self, batch: Batch, runs: Sequence[Run]) -> SampledBatch:  # type: ignore[override]
        """All pairs on the device, and room for the contexts."""
        whole = super().load(batch, runs)
        side, members = self.inner.items, len(runs)
        inside = ChannelBatch(
            x=whole.x.new_zeros(members, side, self.width),
            xt=whole.x.new_zeros(members, self.width, side),
            flat=torch.zeros_like(whole.flat),
            sources=torch.zeros_like(whole.sources),
            closed=whole.closed,
        )
        return SampledBatch(whole, inside, whole.flat % self.items, [run.problem_id for run in runs])

    def turn(self, batch: SampledBatch, memory: Params, steps: Sequence[int]) -> None:
        """Put every member's context of its own step in place."""
        drawn = np.stack([self._context(p, step) for p, step in zip(batch.problem_ids, steps, strict=True)])
        chosen = torch.from_numpy(drawn).to(self.device)
        inside, whole, last = batch.inside, batch.whole, self.inner.items - 1
        inside.x[:, : self.size] = whole.x.gather(1, chosen[:, :, None].expand(-1, -1, self.width))
        inside.xt.copy_(inside.x.transpose(1, 2))
        place = torch.full((len(drawn), self.items), -1, dtype=torch.int64, device=self.device)
        place.scatter_(1, chosen, torch.arange(self.size, device=self.device).expand_as(chosen))
        source, target = place.gather(1, whole.sources), place.gather(1, batch.targets)
        there = (source >= 0) & (target >= 0)
        inside.sources.copy_(source.where(there, torch.full_like(source, last)))
        inside.flat.copy_(inside.sources * self.inner.items + target.where(there, torch.full_like(target, last)))

    def _context(self, problem_id: str, step: int) -> NDArray[np.int64]:
        chunk, place = divmod(step, CHUNK)
        known = self._chunks.get(problem_id)
        if known is None or known[0] != chunk:
            known = self._chunks[problem_id] = chunk, contexts(problem_id, chunk, self.true_items, self.size)
        return np.asarray(known[1][place])

    def value_and_grad(  # type: ignore[override]
        self, params: Params, batch: SampledBatch, *, value: bool = True
    ) -> tuple[torch.Tensor | None, Params]:
        """The loss within the contexts, and its gradient."""
        return self.inner.value_and_grad(params, batch.inside, value=value)

    def clear(self, params: Params, batch: SampledBatch, slack: float) -> torch.Tensor:  # type: ignore[override]
        """Whether all pairs are right, in every context or not."""
        return super().clear(params, batch.whole, slack)

    def select(self, batch: SampledBatch, keep: torch.Tensor) -> SampledBatch:  # type: ignore[override]
        """The loaded batch of some members only."""
        whole, inside = super().select(batch.whole, keep), super().select(batch.inside, keep)
        return SampledBatch(whole, inside, batch.targets[keep], [batch.problem_ids[i] for i in keep.tolist()])

    def join(self, batch: SampledBatch, other: SampledBatch) -> SampledBatch:  # type: ignore[override]
        """Two loaded batches as one."""
        whole, inside = super().join(batch.whole, other.whole), super().join(batch.inside, other.inside)
        targets = torch.cat([batch.targets, other.targets])
        return SampledBatch(whole, inside, targets, batch.problem_ids + other.problem_ids)
