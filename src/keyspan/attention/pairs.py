"""Batched layers on pairs of tokens in torch, by autograd. Held to `reference_pairs` in value and in gradient.

members: M    batch: B    heads: H    tokens: N    d: d_model
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from keyspan.attention.instrument import ALIGN, Arrays, Params, Static, dtype_of, round_up
from keyspan.errors import BadInput
from keyspan.problems import Batch
from keyspan.problems.pairs import PairInstance, PairLayer, Pairs
from keyspan.seeds import Stream
from keyspan.specs import Run

LOSS = "cross-entropy"
KEEP = 256  # orders of epochs that are kept at hand


@dataclass(frozen=True)
class PairBatch:
    """Pairs before every member. pairs: (M, B)    follows: (M, B)    instances: whose they are"""

    pairs: Tensor
    follows: Tensor
    instances: tuple[PairInstance, ...]


class PairBucket(Static):
    """Layers of one padded shape; padding is zeros, whose gradient is zero.

    Parameters, with a leading member axis: embedding, unembedding (N, d), positions (2, d), w_query, w_key, w_value (d, H d_h),
    w_out (H d_h, d)
    """

    static = False

    def __init__(self, runs: Sequence[Run], loss: str, init_scale: float, bias: float, device: torch.device) -> None:
        problem, layer, batch = runs[0].problem, self._layer(runs[0]), getattr(runs[0].recipe, "batch", None)
        if not isinstance(problem, Pairs):
            raise BadInput(f"A layer on pairs must be given pairs, but got {problem.family}. Use another instrument.")
        if loss != LOSS:
            raise BadInput(f"The loss of pairs must be {LOSS}, but got {loss!r}. Change the recipe.")
        if batch is None:
            raise BadInput("A recipe for pairs must have a batch, but got none. Set it to 256, say.")
        self.device, self.dtype, self.batch, self.init_scale = device, dtype_of(runs[0].arithmetic, device), batch, init_scale
        self.tokens, self.slots = problem.tokens, round_up(problem.tokens, ALIGN)
        self.d_model, self.width = layer.d_model, round_up(layer.d_model, ALIGN)
        self.d_key = layer.d_key
        self.heads = round_up(layer.heads, ALIGN // math.gcd(ALIGN, layer.d_key))  # so that all heads together are aligned
        self.scale = 1.0 / math.sqrt(layer.d_key)
        self.closed = torch.zeros(self.slots, dtype=self.dtype, device=device)
        self.closed[self.tokens :] = -torch.inf
        self._orders: dict[tuple[str, int], np.ndarray] = {}

    @staticmethod
    def _layer(run: Run) -> PairLayer:
        if not isinstance(run.instrument, PairLayer):
            raise BadInput(f"A layer on pairs must be asked for, but got {run.instrument.family}. Use another bucket.")
        return run.instrument

    def init(self, runs: Sequence[Run]) -> Params:
        """Initial weights, from each run's weights id and its recipe's draw."""
        return self.place([self.draw(run) for run in runs])

    def draw(self, run: Run) -> Arrays:
        """One member's initial weights, padded: queries, keys and values of a head uniform in +-sqrt(6 / (d + 3 d_h)), what it
        gives out in +-1/sqrt(d_h), embeddings and positions in +-1/sqrt(d) (what PyTorch's modules begin with)."""
        c, d, n = self._layer(run), self.d_model, self.tokens
        stream = Stream(run.weights_id, "weights", getattr(run.recipe, "draw", 0))
        near, across = 1.0 / math.sqrt(d), math.sqrt(6.0 / (d + 3 * c.d_key))
        size = math.sqrt(self.init_scale)

        def uniform(bound: float, *shape: int) -> np.ndarray:
            return (2.0 * stream.uniform(math.prod(shape)) - 1.0).reshape(shape) * bound * size

        given = {"embedding": uniform(near, n, d), "positions": uniform(near, 2, d), "unembedding": uniform(near, n, d)}
        given |= {name: uniform(across, c.heads, d, c.d_key) for name in ("w_query", "w_key", "w_value")}
        return self.packed(given | {"w_out": uniform(1.0 / math.sqrt(c.d_key), c.heads, c.d_key, d)})

    def packed(self, weights: Arrays) -> Arrays:
        """Weights in the reference's layout -> as they are kept, padded."""
        rows = {"embedding": self.slots, "unembedding": self.slots, "positions": 2}
        out = {name: np.zeros((rows[name], self.width)) for name in rows}
        for name, padded in out.items():
            given = weights[name]
            padded[: given.shape[0], : given.shape[1]] = given
        for name in ("w_query", "w_key", "w_value"):
            whole = np.zeros((self.width, self.heads, self.d_key))
            given = weights[name].transpose(1, 0, 2)
            whole[tuple(slice(0, size) for size in given.shape)] = given
            out[name] = whole.reshape(self.width, -1)
        whole = np.zeros((self.heads, self.d_key, self.width))
        whole[tuple(slice(0, size) for size in weights["w_out"].shape)] = weights["w_out"]
        return out | {"w_out": whole.reshape(-1, self.width)}

    def answers(self, params: Params, member: int, run: Run) -> Arrays:
        """One member's weights without padding, as `reference_pairs` takes them."""
        c, d = self._layer(run), self.d_model
        w = {name: t[member].double().cpu().numpy() for name, t in params.items()}
        out = {"embedding": w["embedding"][: self.tokens, :d], "unembedding": w["unembedding"][: self.tokens, :d]}
        out["positions"] = w["positions"][:, :d]
        for name in ("w_query", "w_key", "w_value"):
            whole = w[name].reshape(self.width, self.heads, self.d_key)
            out[name] = whole[:d, : c.heads, : c.d_key].transpose(1, 0, 2)
        out["w_out"] = w["w_out"].reshape(self.heads, self.d_key, self.width)[: c.heads, : c.d_key, :d]
        return {name: np.ascontiguousarray(a) for name, a in out.items()}

    def place(self, drawn: Sequence[Arrays]) -> Params:
        """Drawn weights of several members, stacked on the device."""
        stacked = {k: torch.from_numpy(np.stack([d[k] for d in drawn])) for k in drawn[0]}
        return {k: v.to(device=self.device, dtype=self.dtype) for k, v in stacked.items()}

    # ------------------------------------------------------------------------------------------------- the data

    def load(self, batch: Batch, runs: Sequence[Run]) -> PairBatch:
        """Room for a minibatch of every member."""
        instances = tuple(batch["given"].tolist())
        room = torch.zeros((2, len(instances), self.batch), dtype=torch.int64, device=self.device)
        loaded = PairBatch(room[0], room[1], instances)
        self.turn(loaded, {}, [0] * len(instances))
        return loaded

    def select(self, batch: PairBatch, keep: Tensor) -> PairBatch:
        """Those of some members only."""
        return PairBatch(batch.pairs[keep], batch.follows[keep], tuple(batch.instances[k] for k in keep.tolist()))

    def join(self, batch: PairBatch, other: PairBatch) -> PairBatch:
        """Two loaded batches as one."""
        pairs, follows = torch.cat([batch.pairs, other.pairs]), torch.cat([batch.follows, other.follows])
        return PairBatch(pairs, follows, batch.instances + other.instances)

    def compile(self, run: Run, steps: int) -> None:
        """PyTorch's own operations are compiled already."""

    def turn(self, batch: PairBatch, memory: Params, steps: Sequence[int]) -> None:
        """The next minibatch of every member: whole ones, in the order of its epoch."""
        for m, (instance, step) in enumerate(zip(batch.instances, steps, strict=True)):
            each = max(1, len(instance.samples) // self.batch)
            epoch, place = divmod(step, each)
            some = np.resize(self._order(instance, epoch)[place * self.batch : (place + 1) * self.batch], self.batch)
            batch.pairs[m].copy_(torch.from_numpy(some))
            batch.follows[m].copy_(torch.from_numpy(instance.follows[some]))

    def _order(self, instance: PairInstance, epoch: int) -> np.ndarray:
        key = (instance.identity, epoch)
        if key not in self._orders:
            while len(self._orders) >= KEEP:
                del self._orders[next(iter(self._orders))]
            self._orders[key] = instance.order(epoch)
        return self._orders[key]

    # ------------------------------------------------------------------------------------------------- the step

    def value_and_grad(self, params: Params, batch: PairBatch, *, value: bool = True) -> tuple[Tensor | None, Params]:
        """Mean cross-entropy over the minibatch, and its gradient."""
        weights = {name: w.detach().requires_grad_() for name, w in params.items()}
        with torch.enable_grad():
            outputs = self._outputs(weights, batch.pairs)
            right = outputs.gather(2, batch.follows[..., None]).squeeze(2)
            loss = (outputs.logsumexp(2) - right).mean(1)
            slopes = torch.autograd.grad(loss.sum(), list(weights.values()))
        return (loss.detach() if value else None), dict(zip(weights, slopes, strict=True))

    def _outputs(self, w: Params, pairs: Tensor) -> Tensor:
        """pairs: (M, B)    returns: (M, B, slots), -inf where there is no token"""
        members, size = pairs.shape
        first = torch.div(pairs, self.tokens, rounding_mode="floor")
        tokens = torch.stack([first, pairs - first * self.tokens], dim=2).view(members, 2 * size, 1)
        x = w["embedding"].gather(1, tokens.expand(-1, -1, self.width)).view(members, size, 2, self.width)
        y = x + w["positions"][:, None]
        flat, last = y.view(members, 2 * size, self.width), y[:, :, 1]
        shape = (members, size, -1, self.heads, self.d_key)
        keys, values = (torch.bmm(flat, w[name]).view(shape) for name in ("w_key", "w_value"))
        logits = (torch.bmm(last, w["w_query"]).view(shape) * keys).sum(4) * self.scale  # (M, B, 2, H)
        mixed = (torch.softmax(logits, 2).unsqueeze(4) * values).sum(2).view(members, size, -1)
        out = torch.bmm(mixed, w["w_out"]) + x[:, :, 1]
        return torch.bmm(out, w["unembedding"].transpose(1, 2)) + self.closed

    def look(self, params: Params, batch: PairBatch, memory: Params, steps: Sequence[int]) -> None:
        """Nothing is noted."""

    def clear(self, params: Params, batch: PairBatch, slack: float) -> Tensor:
        """Whether every pair is known, and by `slack`."""
        every = torch.arange(self.tokens**2, device=self.device).expand(len(batch.instances), -1)
        follows = torch.from_numpy(np.stack([i.follows for i in batch.instances])).to(self.device)[..., None]
        with torch.no_grad():
            outputs = self._outputs(params, every)
            mine = outputs.gather(2, follows).squeeze(2)
            others = outputs.scatter(2, follows, -torch.inf).amax(2)
        known: Tensor = (mine > others + slack).all(1)
        return known
