"""Batched key-query channels in torch: many members, ragged in heads and d_key, held to `reference` in value and gradient.

The score tensor (heads x items x items) never exists as a whole. Rows of it are made, used and dropped, a tile at a
time, small enough to stay in a core's cache. Two choices come from timing: masks are written as floats (a boolean mask
costs a conversion per pair), and small factors go on the left of a product, `(d_key x items) @ (items x items)`, which
is several times faster than the transpose of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from keyspan.attention.instrument import ALIGN, Arrays, Params, Static, dtype_of, next_power_of_two, round_up
from keyspan.attention.losses import PAIR_LOSSES
from keyspan.errors import BadInput
from keyspan.problems import Batch
from keyspan.problems.relations import Relations
from keyspan.seeds import Stream
from keyspan.specs import Channel, Run

TILE_BYTES = {"cpu": 1 << 20, "cuda": 1 << 28}
LOSSES = tuple(PAIR_LOSSES)


@dataclass(frozen=True)
class ChannelBatch:
    """What a bucket of channels looks at.

    x: (members, items, d_model), zero rows and columns as padding    xt: its transpose    flat: (members, m'), edges as
    source * items + target, ascending    sources: (members, m')    closed: (members, heads) -inf at padded heads
    """

    x: torch.Tensor
    xt: torch.Tensor
    flat: torch.Tensor
    sources: torch.Tensor
    closed: torch.Tensor | None


class ChannelBucket(Static):
    """Channels of one shape, `heads` and `d_key` padded to powers of two.

    Padded key and model dimensions are zeros in both W_Q and W_K, whose gradient stays zero; a padded head is left out of
    the maximum. Weights are stored as (members, heads, d_key, d_model).
    """

    def __init__(self, runs: Sequence[Run], loss: str, init_scale: float, bias: float, device: torch.device) -> None:
        problem = self._relations(runs[0])
        if loss not in LOSSES:
            raise BadInput(f"A channel's loss must be one of {'|'.join(LOSSES)}, but got {loss!r}. Change the recipe.")
        channels = [self._channel(r) for r in runs]
        self.heads = next_power_of_two(channels[0].heads)
        self.d_key = next_power_of_two(channels[0].d_key)
        self.d_model, self.width = problem.d_model, round_up(problem.d_model, ALIGN)
        self.dtype = self._dtype(runs[0].arithmetic, device)
        self.device, self.init_scale, self.bias = device, init_scale, bias
        self.pair_loss = PAIR_LOSSES[loss]
        self._look_at(problem.items, problem.edges)

    def _look_at(self, items: int, edges: float, spare: int = 0) -> None:
        """Tiles for so many items; the loss is divided by `edges`. spare: padded items that there must be at least"""
        self.true_items, self.edges, self.items = items, edges, round_up(items + spare, ALIGN)
        row = self.heads * self.items * self.dtype.itemsize
        budget = TILE_BYTES[self.device.type]
        self.rows = min(self.items, max(ALIGN, budget // row // ALIGN * ALIGN))  # fixed by the member's own shape
        self.block = max(1, budget // (row * self.items)) if self.rows == self.items else 1

    @staticmethod
    def _dtype(arithmetic: str, device: torch.device) -> torch.dtype:
        """The type that weights are kept in."""
        return dtype_of(arithmetic, device)

    @staticmethod
    def _relations(run: Run) -> Relations:
        """What is to be held."""
        if not isinstance(run.problem, Relations):
            raise BadInput(f"A channel must be given relations, but got {run.problem.family}. Use another instrument.")
        return run.problem

    @staticmethod
    def _channel(run: Run) -> Channel:
        assert isinstance(run.instrument, Channel)
        return run.instrument

    def init(self, runs: Sequence[Run]) -> Params:
        """`W ~ N(0, init_scale / d_k)` entrywise, from each run's weights id and its recipe's draw.

        The bias begins where the recipe puts it.
        """
        return self.place([self.draw(run) for run in runs])

    def draw(self, run: Run) -> Arrays:
        """One member's initial weights, padded. w_query, w_key: (heads, d_key, width)    bias: a whole slot"""
        c = self._channel(run)
        stream = Stream(run.weights_id, "weights", getattr(run.recipe, "draw", 0))
        w = stream.normal((2, c.heads, c.d_key, self.d_model)) * math.sqrt(self.init_scale / c.d_key)
        both = np.zeros((2, self.heads, self.d_key, self.width))
        both[:, : c.heads, : c.d_key, : self.d_model] = w
        bias = np.zeros(ALIGN)  # a whole slot, of which the first number counts
        bias[0] = self.bias
        return {"w_query": both[0], "w_key": both[1], "bias": bias}

    def place(self, drawn: Sequence[Arrays]) -> Params:
        """Drawn weights of several members, stacked on the device."""
        stacked = {k: torch.from_numpy(np.stack([d[k] for d in drawn])) for k in drawn[0]}
        return {k: v.to(device=self.device, dtype=self.dtype) for k, v in stacked.items()}

    def load(self, batch: Batch, runs: Sequence[Run]) -> ChannelBatch:
        """Rows and edges on the device, padded."""
        rows, edges = batch["embeddings"], batch["edges"]
        x = np.zeros((len(runs), self.items, self.width))
        x[:, : self.true_items, : self.d_model] = rows
        flat = edges[..., 0] * self.items + edges[..., 1]
        closed = np.zeros((len(runs), self.heads))
        for member, run in enumerate(runs):
            closed[member, self._channel(run).heads :] = -np.inf
        xs = torch.from_numpy(x).to(device=self.device, dtype=self.dtype)
        return ChannelBatch(
            x=xs,
            xt=xs.transpose(1, 2).contiguous(),
            flat=torch.from_numpy(flat).to(self.device),
            sources=torch.from_numpy(np.ascontiguousarray(edges[..., 0])).to(self.device),
            closed=torch.from_numpy(closed).to(device=self.device, dtype=self.dtype) if closed.any() else None,
        )

    def select(self, batch: ChannelBatch, keep: torch.Tensor) -> ChannelBatch:
        """The loaded batch of some members only."""
        return ChannelBatch(
            x=batch.x[keep],
            xt=batch.xt[keep],
            flat=batch.flat[keep],
            sources=batch.sources[keep],
            closed=None if batch.closed is None else batch.closed[keep],
        )

    def join(self, batch: ChannelBatch, other: ChannelBatch) -> ChannelBatch:
        """Two loaded batches as one."""
        both = (batch, other)
        closed = [b.x.new_zeros(len(b.x), self.heads) if b.closed is None else b.closed for b in both]
        return ChannelBatch(
            x=torch.cat([b.x for b in both]),
            xt=torch.cat([b.xt for b in both]),
            flat=torch.cat([b.flat for b in both]),
            sources=torch.cat([b.sources for b in both]),
            closed=None if all(b.closed is None for b in both) else torch.cat(closed),
        )

    # ------------------------------------------------------------------------------------------- the step

    def value_and_grad(self, params: Params, batch: ChannelBatch, *, value: bool = True) -> tuple[torch.Tensor | None, Params]:
        """The recipe's loss (`reference.bce`, `reference.channel_hinge`) and its gradient, of every member.

        value: (members,)    gradients: as the parameters
        """
        members = len(batch.x)
        q, k = self._sides(params, batch)
        loss, dq, dk, dbias = self._slopes(params, batch, q, k, value)
        shape = params["w_query"].shape
        grads = {
            "w_query": torch.bmm(dq.view(members, -1, self.items), batch.x).view(shape),
            "w_key": torch.bmm(dk.view(members, -1, self.items), batch.x).view(shape),
            "bias": dbias,
        }
        return loss, grads

    def _slopes(
        self, params: Params, batch: ChannelBatch, q: torch.Tensor, k: torch.Tensor, value: bool
    ) -> tuple[torch.Tensor | None, torch.Tensor, torch.Tensor, torch.Tensor]:
        """From queries and keys, (members * heads, d_key, items), to the loss and the slopes of queries, keys and bias."""
        members = len(batch.x)
        dq, dk = torch.empty_like(q), (torch.empty_like if self.rows == self.items else torch.zeros_like)(k)
        scratch = q.new_empty(min(self.block, members) * self.heads, self.rows, self.items)
        dbias = torch.zeros_like(params["bias"])
        loss = torch.zeros_like(dbias[:, 0])
        for first in range(0, members, self.block):
            here = slice(first, min(first + self.block, members))
            for top in range(0, self.items, self.rows):
                self._tile(params, batch, q, k, here, top, dq, dk, dbias, loss if value else None, scratch)
        return (loss if value else None), dq, dk, dbias

    def _sides(self, params: Params, batch: ChannelBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys of all items. returns: (members * heads, d_key, items) twice"""
        return self._project(params["w_query"], batch), self._project(params["w_key"], batch)

    def _project(self, w: torch.Tensor, batch: ChannelBatch) -> torch.Tensor:
        """Queries or keys of all items. w: (members, heads, d_key, d_model)    returns: (members * heads, d_key, items)"""
        return torch.bmm(w.flatten(1, 2), batch.xt).view(-1, self.d_key, self.items)

    def _scores(
        self,
        batch: ChannelBatch,
        q: torch.Tensor,
        k: torch.Tensor,
        here: slice,
        top: int,
        scratch: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows top.. of every head's scores and their maximum. returns: (block * heads, rows, items), (block, rows, items)"""
        s = self._by_head(batch, q, k, here, top, scratch)
        by_head = s.view(-1, self.heads, *s.shape[1:])
        return s, by_head.amax(1) if self.heads > 1 else by_head[:, 0]

    def _by_head(
        self, batch: ChannelBatch, q: torch.Tensor, k: torch.Tensor, here: slice, top: int, scratch: torch.Tensor | None
    ) -> torch.Tensor:
        """Rows top.. of every head's scores, -inf at padded heads. returns: (block * heads, rows, items)"""
        qs, ks = self._slots(q, here, top), self._slots(k, here)
        out = None if scratch is None else scratch[: len(qs), : qs.shape[2]]
        s = torch.bmm(qs.transpose(1, 2), ks, out=out)
        if batch.closed is not None:
            by_head = s.view(-1, self.heads, *s.shape[1:])
            by_head += batch.closed[here, :, None, None]
        return s

    def _slots(self, t: torch.Tensor, here: slice, top: int | None = None) -> torch.Tensor:
        """Some members' heads, and of those the items of a tile. t: (members * heads, d_key, items)"""
        some = t[here.start * self.heads : here.stop * self.heads]
        return some if top is None or self.rows == self.items else some[:, :, top : top + self.rows]

    def _edges(self, batch: ChannelBatch, here: slice, top: int, rows: int) -> torch.Tensor:
        """Positions of the edges inside a tile. returns: (block, edges in the tile)"""
        flat = batch.flat[here]
        if rows == self.items:
            return flat
        inside = (batch.sources[here] >= top) & (batch.sources[here] < top + rows)  # one member at a time here
        return flat[inside].view(len(flat), -1) - top * self.items

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
        """One tile of rows, of one block of members: its share of the loss and of the gradients."""
        s, best = self._scores(batch, q, k, here, top, scratch)
        rows = best.shape[1]
        z = self._level(best) + params["bias"][here, :1, None]
        edges = self._edges(batch, here, top, rows)
        if loss is not None:
            loss[here] += self._loss(z, edges, batch, here, top)
        g = self._drop_padding(self._scale_pairs(self.pair_loss.slope(z, edges), batch, here, top), top)
        dbias[here, 0] += g.sum(-1).sum(-1)
        g = self._pulled(g, best)
        by_head = s.view(-1, self.heads, rows, self.items)
        if self.heads > 1:  # route: a pair's gradient goes to the head that attains its maximum
            torch.eq(by_head, best.unsqueeze(1), out=by_head)
            by_head *= g.unsqueeze(1)
        else:
            by_head.copy_(g.unsqueeze(1))
        self._pull(s, q, k, here, top, dq, dk)

    def _pull(
        self, s: torch.Tensor, q: torch.Tensor, k: torch.Tensor, here: slice, top: int, dq: torch.Tensor, dk: torch.Tensor
    ) -> None:
        """Gradients of a tile's scores -> of queries and keys. s: (block * heads, rows, items)"""
        qs, ks = self._slots(q, here, top), self._slots(k, here)
        dqs, dks = self._slots(dq, here, top), self._slots(dk, here)
        if self.rows == self.items:
            torch.bmm(ks, s.transpose(1, 2), out=dqs)
            torch.bmm(qs, s, out=dks)
        else:
            dqs.copy_(torch.bmm(ks, s.transpose(1, 2)))
            dks += torch.bmm(qs, s)

    def _level(self, best: torch.Tensor) -> torch.Tensor:
        """What of the largest score is compared with the threshold: all of it."""
        return best

    def _pulled(self, g: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
        """From the slope of `_level(best)` to that of `best`."""
        return g

    def _drop_padding(self, t: torch.Tensor, top: int, fill: float = 0.0) -> torch.Tensor:
        """Pairs with a padded item count for nothing. t: (block, rows, items)"""
        if self.items > self.true_items:
            t[:, :, self.true_items :] = fill
            if top + t.shape[1] > self.true_items:
                t[:, max(0, self.true_items - top) :] = fill
        return t

    def _scale_pairs(self, t: torch.Tensor, batch: ChannelBatch, here: slice, top: int) -> torch.Tensor:
        """What each pair counts in the loss: 1/m'. t: (block, rows, items), in place"""
        return t.mul_(1.0 / self.edges)

    def _loss(self, z: torch.Tensor, edges: torch.Tensor, batch: ChannelBatch, here: slice, top: int) -> torch.Tensor:
        """`other(z)` over all pairs, plus what the edges turn it into, over m'. returns: (block,)"""
        each = self._drop_padding(self.pair_loss.others(z), top)
        return (each.sum(-1).sum(-1) + self.pair_loss.turn(z.flatten(1).gather(1, edges)).sum(-1)) / self.edges

    # ------------------------------------------------------------------------------------- tests and answers

    def clear(self, params: Params, batch: ChannelBatch, slack: float) -> torch.Tensor:
        """Whether every edge scores above its threshold and every non-edge below, by `slack`. returns: (members,), bool"""
        members = len(batch.x)
        q, k = self._sides(params, batch)
        ok = torch.ones(members, dtype=torch.bool, device=self.device)
        for first in range(0, members, self.block):
            here = slice(first, min(first + self.block, members))
            for top in range(0, self.items, self.rows):
                _, best = self._scores(batch, q, k, here, top)
                z = self._level(best) + params["bias"][here, :1, None]
                ok[here] &= self._right(z, self._edges(batch, here, top, best.shape[1]), top, slack)
        return ok

    def _right(self, z: torch.Tensor, edges: torch.Tensor, top: int, slack: float) -> torch.Tensor:
        """Whether a tile's edges are above `slack` and its other pairs below `-slack`. returns: (block,), bool"""
        flat = self._drop_padding(z, top, fill=-math.inf).flatten(1)
        above = (flat.gather(1, edges) > slack).all(1)
        flat.scatter_(1, edges, -math.inf)
        return above & (flat.amax(1) < -slack)

    def compile(self, run: Run, steps: int) -> None:
        """PyTorch's own operations are compiled already."""

    def answers(self, params: Params, member: int, run: Run) -> Arrays:
        """One member's weights without padding. w_query, w_key: (heads, d_model, d_key)    bias: ()"""
        return {"bias": params["bias"][member, 0].double().cpu().numpy(), **self._weights(params, member, run)}

    def _weights(self, params: Params, member: int, run: Run) -> dict[str, NDArray[np.float64]]:
        c, out = self._channel(run), {}
        for name in ("w_query", "w_key"):
            w = params[name][member, : c.heads, : c.d_key, : self.d_model].double().cpu().numpy()
            out[name] = np.ascontiguousarray(w.transpose(0, 2, 1))
        return out
