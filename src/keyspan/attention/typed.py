"""Batched channels with types: one pass over the scores, and for every type its own gates, maximum and gradient.

`z^t_ij = max_k (S^k_ij + g_tk)`, i -> j of type t when `z > 0` (`reference.typed`). With heads of their own, `g_tk` is type t's
threshold at its heads and -inf at all others; with shared heads it is learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from keyspan.attention.channel import ChannelBatch, ChannelBucket
from keyspan.attention.instrument import ALIGN, Arrays, Params, round_up
from keyspan.errors import BadInput
from keyspan.problems import Batch
from keyspan.problems.relations import Relations
from keyspan.problems.typed import TypedChannel, TypedRelations
from keyspan.specs import Channel, Run

LEAN = 3.0  # by which a leaning type's gates begin lower at the heads of others


@dataclass(frozen=True)
class TypedBatch(ChannelBatch):
    """types: the edges of each, as a batch that shares the rows    shut: (members, types, heads), -inf where a head is not a
    type's own, or is padding; else 0"""

    types: list[ChannelBatch]
    shut: torch.Tensor


class TypedBucket(ChannelBucket):
    """Typed channels of one shape and one way of sharing, heads and d_key padded as a channel's.

    gates: (members, slots), of each member's types and heads, or of its types where each has heads of its own
    """

    def __init__(self, runs: Sequence[Run], loss: str, init_scale: float, bias: float, device: torch.device) -> None:
        problem, instrument = runs[0].problem, runs[0].instrument
        if not isinstance(problem, TypedRelations) or not isinstance(instrument, TypedChannel):
            raise BadInput(f"A typed channel must be given typed relations, but got {problem.family}. Use a channel.")
        self.types, self.sharing = problem.types, instrument.sharing
        self.gated = self.sharing != "partitioned"
        for run in runs:
            assert isinstance(run.instrument, TypedChannel)
            run.instrument.check_types(self.types)
        super().__init__(runs, loss, init_scale, bias, device)
        self.edges = problem.edges  # of all types: the loss is their mean

    @staticmethod
    def _relations(run: Run) -> Relations:
        assert isinstance(run.problem, TypedRelations)
        return run.problem.each

    @staticmethod
    def _channel(run: Run) -> Channel:
        assert isinstance(run.instrument, TypedChannel)
        return run.instrument.channel

    @property
    def _slots_of_gates(self) -> int:
        return self.types * (self.heads if self.gated else 1)

    def draw(self, run: Run) -> Arrays:
        """As a channel's; every gate begins where the recipe puts the bias, or `LEAN` below it."""
        assert isinstance(run.instrument, TypedChannel)
        drawn = dict(super().draw(run))
        gates = np.full((self.types, self._slots_of_gates // self.types), drawn.pop("bias")[0])
        if self.sharing == "leaning":
            gates -= LEAN
            for t in range(self.types):
                gates[t, run.instrument.own(t, self.types)] += LEAN
        slots = np.zeros(round_up(gates.size, ALIGN))
        slots[: gates.size] = gates.reshape(-1)
        return drawn | {"gates": slots}

    def load(self, batch: Batch, runs: Sequence[Run]) -> TypedBatch:
        """Rows once, edges type by type, and which heads each type may use."""
        rows, edges = batch["embeddings"], batch["edges"]
        every = [super(TypedBucket, self).load({"embeddings": rows, "edges": edges[:, t]}, runs) for t in range(self.types)]
        types = [replace(b, x=every[0].x, xt=every[0].xt, closed=None) for b in every]
        shut = np.full((len(runs), self.types, self.heads), -np.inf)
        for member, run in enumerate(runs):
            assert isinstance(run.instrument, TypedChannel)
            for t in range(self.types):
                shut[member, t, run.instrument.heads_of(t, self.types)] = 0.0
        return TypedBatch(**vars(types[0]), types=types, shut=torch.from_numpy(shut).to(device=self.device, dtype=self.dtype))

    def select(self, batch: ChannelBatch, keep: torch.Tensor) -> TypedBatch:
        """The loaded batch of some members only."""
        assert isinstance(batch, TypedBatch)
        first = super().select(batch.types[0], keep)
        types = [replace(super(TypedBucket, self).select(b, keep), x=first.x, xt=first.xt) for b in batch.types]
        return TypedBatch(**vars(first), types=types, shut=batch.shut[keep])

    def join(self, batch: ChannelBatch, other: ChannelBatch) -> TypedBatch:
        """Two loaded batches as one."""
        assert isinstance(batch, TypedBatch) and isinstance(other, TypedBatch)
        types = [super(TypedBucket, self).join(a, b) for a, b in zip(batch.types, other.types, strict=True)]
        types = [replace(b, x=types[0].x, xt=types[0].xt) for b in types]
        return TypedBatch(**vars(types[0]), types=types, shut=torch.cat([batch.shut, other.shut]))

    # ------------------------------------------------------------------------------------------- the step

    def _gates(self, params: Params, batch: TypedBatch) -> torch.Tensor:
        """g_tk, -inf where shut. returns: (members, types, heads)"""
        open_ = params["gates"][:, : self._slots_of_gates].view(len(batch.shut), self.types, -1)
        return open_ + batch.shut

    def value_and_grad(self, params: Params, batch: ChannelBatch, *, value: bool = True) -> tuple[torch.Tensor | None, Params]:
        """The mean over types of the recipe's loss, and its gradient."""
        assert isinstance(batch, TypedBatch)
        members, gates = len(batch.x), self._gates(params, batch)
        q, k = self._project(params["w_query"], batch), self._project(params["w_key"], batch)
        dq, dk, dgates = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(gates)
        loss = torch.zeros_like(gates[:, 0, 0])
        for first in range(0, members, self.block):
            here = slice(first, min(first + self.block, members))
            for top in range(0, self.items, self.rows):
                routed = self._routed(batch, gates, q, k, here, top, dgates, loss if value else None)
                self._slots(dq, here, top).add_(torch.bmm(self._slots(k, here), routed.transpose(1, 2)))
                self._slots(dk, here).add_(torch.bmm(self._slots(q, here, top), routed))
        shape = params["w_query"].shape
        slots = dgates if self.gated else dgates.sum(-1, keepdim=True)
        grad = torch.zeros_like(params["gates"])
        grad[:, : self._slots_of_gates] = slots.flatten(1)
        grads = {
            "w_query": torch.bmm(dq.view(members, -1, self.items), batch.x).view(shape),
            "w_key": torch.bmm(dk.view(members, -1, self.items), batch.x).view(shape),
            "gates": grad,
        }
        return (loss if value else None), grads

    def _routed(
        self,
        batch: TypedBatch,
        gates: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        here: slice,
        top: int,
        dgates: torch.Tensor,
        loss: torch.Tensor | None,
    ) -> torch.Tensor:
        """A tile's gradient of every head's scores, of all types together; their gates' and the loss on the way.

        returns: (block * heads, rows, items)
        """
        scores = self._tile_of_scores(q, k, here, top)
        routed = torch.zeros_like(scores)
        for t, one in enumerate(batch.types):
            by_head = scores + gates[here, t, :, None, None]
            z = by_head.amax(1)
            edges = self._edges(one, here, top, z.shape[1])
            if loss is not None:
                loss[here] += self._loss(z, edges, one, here, top)
            g = self._drop_padding(self._scale_pairs(self.pair_loss.slope(z, edges), one, here, top), top)
            torch.eq(by_head, z.unsqueeze(1), out=by_head)
            by_head *= g.unsqueeze(1)
            dgates[here, t] += by_head.sum((2, 3))
            routed += by_head
        return routed.flatten(0, 1)

    def _tile_of_scores(self, q: torch.Tensor, k: torch.Tensor, here: slice, top: int) -> torch.Tensor:
        """returns: (block, heads, rows, items)"""
        s = torch.bmm(self._slots(q, here, top).transpose(1, 2), self._slots(k, here))
        return s.view(-1, self.heads, *s.shape[1:])

    # ------------------------------------------------------------------------------------- tests and answers

    def clear(self, params: Params, batch: ChannelBatch, slack: float) -> torch.Tensor:
        """Whether every triple is right, by `slack`. returns: (members,), bool"""
        assert isinstance(batch, TypedBatch)
        members, gates = len(batch.x), self._gates(params, batch)
        q, k = self._project(params["w_query"], batch), self._project(params["w_key"], batch)
        ok = torch.ones(members, dtype=torch.bool, device=self.device)
        for first in range(0, members, self.block):
            here = slice(first, min(first + self.block, members))
            for top in range(0, self.items, self.rows):
                scores = self._tile_of_scores(q, k, here, top)
                for t, one in enumerate(batch.types):
                    z = (scores + gates[here, t, :, None, None]).amax(1)
                    ok[here] &= self._right(z, self._edges(one, here, top, z.shape[1]), top, slack)
        return ok

    def answers(self, params: Params, member: int, run: Run) -> Arrays:
        """One member's weights without padding. w_query, w_key: (heads, d_model, d_key)    gates: (types, heads)

        Where heads are a type's own, the gates of the others are 0 and mean nothing.
        """
        assert isinstance(run.instrument, TypedChannel)
        heads = run.instrument.heads
        out = self._weights(params, member, run)
        gates = params["gates"][member, : self._slots_of_gates].double().cpu().numpy().reshape(self.types, -1)
        if self.gated:
            return out | {"gates": np.ascontiguousarray(gates[:, :heads])}
        own = np.zeros((self.types, heads))
        for t in range(self.types):
            own[t, run.instrument.heads_of(t, self.types)] = gates[t, 0]
        return out | {"gates": own}
