"""Channels whose edges have owners: every edge belongs to one head from the start, and no head may take another's.

There is no maximum in this loss, so heads meet in the bias alone, and each of them is a perceptron in the products of
coordinates `x_ia x_jb`: convex where d_k = d. What is judged is the channel with its maximum all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from keyspan.attention.channel import ChannelBatch, ChannelBucket
from keyspan.attention.instrument import Params
from keyspan.errors import BadInput
from keyspan.problems import Batch
from keyspan.seeds import Stream
from keyspan.specs import Run

LOSS = "owned-hinge"


@dataclass(frozen=True)
class OwnedBatch(ChannelBatch):
    """owners: (members, m'), the head of every edge"""

    owners: torch.Tensor


def draw_owners(run: Run, edges: int, heads: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """As many edges to every head, give or take one: edges in a drawn order, heads in turns. returns: (m',)"""
    order = Stream(run.weights_id, "owners", getattr(run.recipe, "draw", 0)).permutation(edges)
    owners = np.empty(edges, dtype=np.int64)
    owners[order] = np.arange(edges) % heads
    return owners


class OwnedChannelBucket(ChannelBucket):
    """`L = (1/m') [ sum_edges max(0, 1 - z^own)^2 + sum_k sum_non-edges max(0, 1 + z^k)^2 ]`, z^k = S^k + b.

    (`reference.owned_hinge`.) Heads that do not own an edge may score on it what they like.
    """

    def __init__(self, runs: Sequence[Run], loss: str, init_scale: float, bias: float, device: torch.device) -> None:
        if loss != LOSS:
            raise BadInput(f"An owned channel's loss must be {LOSS}, but got {loss!r}. Change the recipe.")
        super().__init__(runs, "squared-hinge", init_scale, bias, device)

    def load(self, batch: Batch, runs: Sequence[Run]) -> OwnedBatch:
        """Rows and edges on the device, padded, and every edge's owner."""
        loaded = super().load(batch, runs)
        owners = [draw_owners(run, int(self.edges), self._channel(run).heads) for run in runs]
        return OwnedBatch(**vars(loaded), owners=torch.from_numpy(np.stack(owners)).to(self.device))

    def select(self, batch: ChannelBatch, keep: torch.Tensor) -> OwnedBatch:
        """The loaded batch of some members only."""
        return OwnedBatch(**vars(super().select(batch, keep)), owners=_owned(batch).owners[keep])

    def join(self, batch: ChannelBatch, other: ChannelBatch) -> OwnedBatch:
        """Two loaded batches as one."""
        owners = torch.cat([_owned(b).owners for b in (batch, other)])
        return OwnedBatch(**vars(super().join(batch, other)), owners=owners)

    def _tile(
        self,
        params: Params,
        batch: ChannelBatch,
        q: torch.Tensor,
        k: torch.Tensor,
        here: slice,
        top: int,
        dq: torch.Tensor,
        dk: torch.Tensor,
        dbias: torch.Tensor,
        loss: torch.Tensor | None,
        scratch: torch.Tensor,
    ) -> None:
        """One tile of rows, of one block of members: every head's own share of the loss and of the gradients."""
        rows = min(self.rows, self.items - top)
        room = scratch.flatten()[: (here.stop - here.start) * self.heads * rows * self.items]
        s = self._by_head(batch, q, k, here, top, room.view(-1, rows, self.items))  # in one piece, to be written flat
        by_head = s.view(-1, self.heads, rows, self.items)
        by_head += (params["bias"][here, 0] + 1.0)[:, None, None, None]
        edges, owners = self._edges(batch, here, top, rows), self._owners(batch, here, top, rows)
        flat = by_head.flatten(1)
        own = owners * (rows * self.items) + edges
        short = (2.0 - flat.gather(1, own)).clamp_(min=0.0)  # 1 - z, of scores that have 1 added
        s.clamp_(min=0.0)
        self._drop_padding(s, top)
        every = torch.arange(self.heads, device=s.device)[None, :, None] * (rows * self.items) + edges[:, None, :]
        flat.scatter_(1, every.flatten(1), 0.0)
        flat.scatter_(1, own, short)
        if loss is not None:
            loss[here] += flat.square().sum(-1) / self.edges
        flat.scatter_(1, own, -short)
        s *= 2.0 / self.edges
        dbias[here, 0] += s.sum(-1).sum(-1).view(-1, self.heads).sum(-1)
        self._pull(s, q, k, here, top, dq, dk)

    def _owners(self, batch: ChannelBatch, here: slice, top: int, rows: int) -> torch.Tensor:
        """Owners of the edges inside a tile, in the order of `_edges`. returns: (block, edges in the tile)"""
        owners = _owned(batch).owners[here]
        if rows == self.items:
            return owners
        inside = (batch.sources[here] >= top) & (batch.sources[here] < top + rows)
        return owners[inside].view(len(owners), -1)


def _owned(batch: ChannelBatch) -> OwnedBatch:
    if not isinstance(batch, OwnedBatch):
        raise BadInput("A batch of an owned channel must say who owns its edges, but got none. Load it here.")
    return batch
