"""Batched heads of today in torch: keys shared, latent, turned, normalised, capped, rounded; the pairs as in `channel`.

What a member is shown goes through the parts (`keys`, `positions`, `precision`) by autograd, since that costs `items * D_K`;
scores and their slopes, which cost `items^2 * heads`, are the tiles of the channel. Held to `reference_heads`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from keyspan.attention.channel import ChannelBatch, ChannelBucket
from keyspan.attention.instrument import ALIGN, Arrays, Params, next_power_of_two, round_up
from keyspan.attention.keys import from_latent, normalised, shared
from keyspan.attention.positions import rates, turn
from keyspan.attention.precision import rounded
from keyspan.attention.shapes import Heads
from keyspan.errors import BadInput
from keyspan.problems import Batch
from keyspan.problems.placed import BLOCK, Placed, placements
from keyspan.problems.relations import Relations
from keyspan.seeds import Stream
from keyspan.specs import Channel, Run

KEEP = 256  # blocks of positions that are kept at hand


@dataclass(frozen=True)
class HeadsBatch(ChannelBatch):
    """A channel's batch, and what is a member's own.

    d_key: (members,)    content: (members, d_key), 1 where a latent makes the key    rate: (members, d_key / 2), radians a
    place    cos, sin: (members, d_key / 2, items)    ids: what positions are drawn from, a problem id a member
    """

    d_key: torch.Tensor
    content: torch.Tensor
    rate: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    ids: tuple[str, ...]


class HeadsBucket(ChannelBucket):
    """Heads of one kind and one padded shape.

    Parameters, all with a leading member axis and zeros as padding: w_query (heads, d_key, d_model), bias, and w_key (key
    heads, d_key, d_model), or w_down (1, latent, d_model), w_turned (1, d_key, d_model) and w_up (heads, d_key, latent);
    with `norm` gain (d_key,).
    """

    def __init__(self, runs: Sequence[Run], loss: str, init_scale: float, bias: float, device: torch.device) -> None:
        super().__init__(runs, loss, init_scale, bias, device)
        self.kind = self._heads(runs[0])
        self.share = self.kind.share or self.heads  # 0: one key head for all, padding too
        self.key_heads = next_power_of_two(self.kind.key_heads)
        self.latent = round_up(self.kind.latent, ALIGN) if self.kind.latent else 0
        problem = runs[0].problem
        self.places = min(problem.positions, self.kind.window or problem.positions) if isinstance(problem, Placed) else 1
        self.static = self.places == 1 or self.kind.rotary == 0
        self._drawn: dict[tuple[str, int], NDArray[np.int64]] = {}

    @staticmethod
    def _relations(run: Run) -> Relations:
        problem = run.problem.relations if isinstance(run.problem, Placed) else run.problem
        if not isinstance(problem, Relations):
            raise BadInput(f"Heads must be given relations, placed or not, but got {problem.family}. Use another instrument.")
        return problem

    @staticmethod
    def _heads(run: Run) -> Heads:
        assert isinstance(run.instrument, Heads)
        return run.instrument

    @staticmethod
    def _channel(run: Run) -> Channel:
        """The queries' shape."""
        heads = HeadsBucket._heads(run)
        return Channel(heads=heads.heads, d_key=heads.d_key)

    # ------------------------------------------------------------------------------------------- in and out

    def draw(self, run: Run) -> Arrays:
        """One member's initial weights, padded: entries of mean 0, and a variance that gives keys the variance of a channel's.

        Queries and keys from unit rows have variance init_scale / d_k. A latent shares it between `w_down` (1 / r) and `w_up`
        (init_scale / d_k), for a sum of r products.
        """
        c, d = self._heads(run), self.d_model
        stream = Stream(run.weights_id, "weights", getattr(run.recipe, "draw", 0))
        size = math.sqrt(self.init_scale / c.d_key)
        out = {"w_query": self._padded(stream, (c.heads, c.d_key, d), (self.heads, self.d_key, self.width), size)}
        if c.latent:
            content = c.d_key - c.turned
            out["w_down"] = self._padded(stream, (1, c.latent, d), (1, self.latent, self.width), math.sqrt(1.0 / c.latent))
            if c.rotary:
                out["w_turned"] = self._padded(stream, (1, c.turned, d), (1, self.d_key, self.width), size)
            up = self._padded(stream, (c.heads, content, c.latent), (self.heads, self.d_key, self.latent), size)
            out["w_up"] = np.roll(up, c.turned, axis=1)  # the first dimensions are the turned ones
        else:
            out["w_key"] = self._padded(stream, (c.key_heads, c.d_key, d), (self.key_heads, self.d_key, self.width), size)
        if c.norm:
            out["gain"] = np.zeros(round_up(self.d_key, ALIGN))
            out["gain"][: c.d_key] = 1.0
        out["bias"] = np.zeros(ALIGN)
        out["bias"][0] = self.bias
        return out

    @staticmethod
    def _padded(stream: Stream, shape: tuple[int, ...], room: tuple[int, ...], size: float) -> NDArray[np.float64]:
        out = np.zeros(room)
        out[tuple(slice(n) for n in shape)] = stream.normal(shape) * size
        return out

    def answers(self, params: Params, member: int, run: Run) -> Arrays:
        """One member's weights without padding, in the layout of `reference_heads`."""
        c, d = self._heads(run), self.d_model
        content = slice(c.turned, c.d_key)
        cuts: dict[str, tuple[Any, ...]] = {
            "w_query": (slice(c.heads), slice(c.d_key), slice(d)),
            "w_key": (slice(c.key_heads), slice(c.d_key), slice(d)),
            "w_down": (0, slice(c.latent), slice(d)),
            "w_turned": (0, slice(c.turned), slice(d)),
            "w_up": (slice(c.heads), content, slice(c.latent)),
            "gain": (slice(c.d_key),),
            "bias": (0,),
        }
        out: dict[str, NDArray[np.float64]] = {}
        for name, w in params.items():
            found = w[member][cuts[name]].double().cpu().numpy()
            out[name] = np.ascontiguousarray(np.swapaxes(found, -1, -2)) if found.ndim > 1 else found
        return out if not c.latent else {"w_turned": np.zeros((d, 0))} | out

    def load(self, batch: Batch, runs: Sequence[Run]) -> HeadsBatch:
        """Rows and edges, sizes, and the positions of the first step."""
        base = super().load(batch, runs)
        kinds = [self._heads(run) for run in runs]
        content, rate = np.zeros((len(runs), self.d_key)), []
        for member, c in enumerate(kinds):
            content[member, c.turned : c.d_key] = 1.0
            rate.append(rates(c.turned, self.d_key, c.base))
        some = base.x.new_zeros(len(runs), max(1, self.d_key // 2), self.items)
        return HeadsBatch(
            **vars(base),
            d_key=base.x.new_tensor([float(c.d_key) for c in kinds]),
            content=base.x.new_tensor(content),
            rate=torch.stack(rate).to(self.device),
            cos=some + 1.0,
            sin=some,
            ids=tuple(run.problem_id for run in runs),
        )

    def select(self, batch: ChannelBatch, keep: torch.Tensor) -> HeadsBatch:
        """The loaded batch of some members only."""
        assert isinstance(batch, HeadsBatch)
        own = {name: getattr(batch, name)[keep] for name in ("d_key", "content", "rate", "cos", "sin")}
        return HeadsBatch(**vars(super().select(batch, keep)), **own, ids=tuple(batch.ids[i] for i in keep.tolist()))

    def join(self, batch: ChannelBatch, other: ChannelBatch) -> HeadsBatch:
        """Two loaded batches as one."""
        assert isinstance(batch, HeadsBatch) and isinstance(other, HeadsBatch)
        names = ("d_key", "content", "rate", "cos", "sin")
        own = {name: torch.cat([getattr(batch, name), getattr(other, name)]) for name in names}
        return HeadsBatch(**vars(super().join(batch, other)), **own, ids=batch.ids + other.ids)

    def turn(self, batch: HeadsBatch, memory: Params, steps: Sequence[int]) -> None:
        """Every member's items stand where they stand at its own step."""
        where = np.zeros((len(steps), self.items))
        for member, (problem_id, step) in enumerate(zip(batch.ids, steps, strict=True)):
            where[member, : self.true_items] = self._block(problem_id, step // BLOCK)[step % BLOCK]
        angle = batch.rate[:, :, None] * torch.from_numpy(where).to(self.device)[:, None]
        batch.cos.copy_(torch.cos(angle))
        batch.sin.copy_(torch.sin(angle))

    def _block(self, problem_id: str, block: int) -> NDArray[np.int64]:
        if (problem_id, block) not in self._drawn:
            while len(self._drawn) >= KEEP:
                del self._drawn[next(iter(self._drawn))]
            self._drawn[problem_id, block] = placements(problem_id, self.places, self.true_items, block)
        return self._drawn[problem_id, block]

    # ------------------------------------------------------------------------------------------- the step

    def value_and_grad(self, params: Params, batch: ChannelBatch, *, value: bool = True) -> tuple[torch.Tensor | None, Params]:
        """`reference_heads.loss` and its gradient, of every member. value: (members,)    gradients: as the parameters"""
        weights = {name: w.detach().requires_grad_() for name, w in params.items() if name != "bias"}
        with torch.enable_grad():
            sides = self._sides(weights, batch)
        q, k = (side.detach() for side in sides)
        loss, dq, dk, dbias = self._slopes(params, batch, q, k, value)
        slopes = torch.autograd.grad(sides, list(weights.values()), (dq, dk))
        return loss, dict(zip(weights, slopes, strict=True)) | {"bias": dbias}

    def _sides(self, params: Params, batch: ChannelBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys of all items, through every part. returns: (members * heads, d_key, items) twice"""
        assert isinstance(batch, HeadsBatch)
        q = self._of(params["w_query"], batch)
        if self.kind.norm:
            q = normalised(q, batch.d_key) * params["gain"][:, None, : self.d_key, None]
        k = self._keys(params, batch)
        return self._placed(q, batch).flatten(0, 1), k.flatten(0, 1)

    def _keys(self, params: Params, batch: HeadsBatch) -> torch.Tensor:
        """Every head's keys as they are read from the cache. returns: (members, heads, d_key, items)"""
        if self.kind.latent:
            latent = rounded(self._of(params["w_down"], batch), self.kind.keys)
            made = from_latent(params["w_up"], latent[:, 0], batch.content)
            if not self.kind.rotary:
                return made
            turning = rounded(self._of(params["w_turned"], batch), self.kind.keys)
            return made + self._placed(turning, batch) * (1.0 - batch.content)[:, None, :, None]
        k = self._of(params["w_key"], batch)
        if self.kind.norm:
            k = normalised(k, batch.d_key)
        return shared(self._placed(rounded(k, self.kind.keys), batch), self.share, self.heads)

    def _of(self, w: torch.Tensor, batch: ChannelBatch) -> torch.Tensor:
        """`W x` of every head. w: (members, heads, size, d_model)    returns: (members, heads, size, items)"""
        out: torch.Tensor = torch.bmm(w.flatten(1, 2), batch.xt).unflatten(1, w.shape[1:3])
        return out

    def _placed(self, v: torch.Tensor, batch: HeadsBatch) -> torch.Tensor:
        return v if self.static or self.d_key == 1 else turn(v, batch.cos, batch.sin)

    def _level(self, best: torch.Tensor) -> torch.Tensor:
        cap = self.kind.cap
        return cap * torch.tanh(best / cap) if cap else best

    def _pulled(self, g: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
        return g * (1.0 - torch.tanh(best / self.kind.cap).square_()) if self.kind.cap else g

    def clear(self, params: Params, batch: ChannelBatch, slack: float) -> torch.Tensor:
        """As of a channel; where items move, nobody can tell by one step."""
        if self.static:
            return super().clear(params, batch, slack)
        return torch.zeros(len(batch.x), dtype=torch.bool, device=self.device)
