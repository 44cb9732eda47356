"""Batched softmax attention in torch: over contexts, with or without a sink, values, a whole block. By autograd.

A step looks at other contexts each time (`problems.in_context`). Held to `reference_routed` in value and in gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from keyspan.attention.instrument import ALIGN, Arrays, Params, Static, dtype_of, next_power_of_two, round_up
from keyspan.attention.reference_routed import NORM_EPS, TINY
from keyspan.attention.shapes import Routed
from keyspan.attention.softmax import softmax
from keyspan.errors import BadInput
from keyspan.problems import Batch
from keyspan.problems.in_context import BLOCK, Contexts, InContext, contexts
from keyspan.seeds import Stream
from keyspan.specs import Run

KEEP = 256  # blocks of contexts that are kept at hand
LOSS = "recall"


@dataclass(frozen=True)
class RoutedBatch:
    """What a bucket of layers looks at, G contexts of L places (padded) a member.

    x: (members, items, d_model)    items: (members, G * L), as rows of x    closed: (members, G, L), -inf where there is no
    item    places: (members, G, L), where targets stand, -1: nowhere    wanted: (members, G * L), which item is the target, the
    number of items for none    counts: (members, G * L), 1 where there is an item    heads: (members, heads), -inf at padded
    ones    scale: (members,), 1/T    ids, targets: what contexts are drawn from, a problem id and targets a member
    """

    x: torch.Tensor
    items: torch.Tensor
    closed: torch.Tensor
    places: torch.Tensor
    wanted: torch.Tensor
    counts: torch.Tensor
    heads: torch.Tensor
    scale: torch.Tensor
    ids: tuple[str, ...]
    targets: tuple[NDArray[np.int64], ...]


MEMBERS = ("x", "items", "closed", "places", "wanted", "counts", "heads", "scale")  # tensors with a member axis


class RoutedBucket(Static):
    """Layers of one padded shape; see `Routed` for what they compute.

    Parameters, with a leading member axis and zeros as padding: w_query, w_key (heads, d_key, d_model), sink (slot), w_value
    (heads, d_value, d_model), w_out (heads, d_value, d_model), bias (slot); of a block w_up, w_down (hidden, d_model), b_up
    (hidden), b_down and three norms' gains (d_model).
    """

    static = False

    def __init__(self, runs: Sequence[Run], loss: str, init_scale: float, bias: float, device: torch.device) -> None:
        problem, kind = runs[0].problem, self._layer(runs[0])
        if not isinstance(problem, InContext):
            raise BadInput(f"Routing must be given relations in contexts, but got {problem.family}. Use another instrument.")
        if loss != LOSS:
            raise BadInput(f"The loss of routing must be {LOSS}, but got {loss!r}. Change the recipe.")
        self.kind, self.device, self.init_scale, self.bias = kind, device, init_scale, bias
        relations = problem.relations
        self.true_items, self.d_model, self.edges = relations.items, relations.d_model, relations.edges
        self.items, self.width = round_up(relations.items + 1, ALIGN), round_up(relations.d_model, ALIGN)  # and "none"
        self.length, self.places, self.groups = problem.length, round_up(problem.length, ALIGN), problem.groups
        self.heads, self.d_key = next_power_of_two(kind.heads), next_power_of_two(kind.d_key)
        self.d_value = next_power_of_two(kind.d_value) if kind.d_value else 0
        self.hidden = round_up(kind.hidden, ALIGN) if kind.hidden else 0
        self.dtype = dtype_of(runs[0].arithmetic, device)
        self._drawn: dict[tuple[str, int], Contexts] = {}

    @staticmethod
    def _layer(run: Run) -> Routed:
        assert isinstance(run.instrument, Routed)
        return run.instrument

    # ------------------------------------------------------------------------------------------- in and out

    def init(self, runs: Sequence[Run]) -> Params:
        """Initial weights from each run's weights id and its recipe's draw."""
        return self.place([self.draw(run) for run in runs])

    def draw(self, run: Run) -> Arrays:
        """One member's initial weights, padded.

        Attention on bare rows, which have unit norm: queries and keys have entries of variance init_scale / d_k, as a
        channel's. In a block, whose rows are normalised: init_scale / d. Values and outputs carry a row through at its own
        size on average (variances 1/d_v and 1/(h d)). Sinks begin at 0, gains at 1, the feed-forward layer's output at 0.
        """
        c, d = self._layer(run), self.d_model
        stream = Stream(run.weights_id, "weights", getattr(run.recipe, "draw", 0))
        size = math.sqrt(self.init_scale / (d if c.hidden else c.d_key))
        room = (self.heads, self.d_key, self.width)
        out = {name: _padded(stream, (c.heads, c.d_key, d), room, size) for name in ("w_query", "w_key")}
        if c.sink:
            out["sink"] = np.zeros(round_up(self.heads, ALIGN))
        if c.d_value:
            room = (self.heads, self.d_value, self.width)
            out["w_value"] = _padded(stream, (c.heads, c.d_value, d), room, math.sqrt(1.0 / (d if c.hidden else c.d_value)))
            out["w_out"] = _padded(stream, (c.heads, c.d_value, d), room, math.sqrt(1.0 / (c.heads * d)))
            out["bias"] = np.zeros(ALIGN)
            out["bias"][0] = self.bias
        if c.hidden:
            out["w_up"] = _padded(stream, (c.hidden, d), (self.hidden, self.width), math.sqrt(1.0 / d))
            out["w_down"] = np.zeros((self.hidden, self.width))
            out |= {"b_up": np.zeros(self.hidden), "b_down": np.zeros(self.width)}
            for name in ("norm_in", "norm_mid", "norm_out"):
                out[name] = np.zeros(self.width)
                out[name][:d] = 1.0
        return out

    def place(self, drawn: Sequence[Arrays]) -> Params:
        """Drawn weights of several members, stacked on the device."""
        stacked = {k: torch.from_numpy(np.stack([d[k] for d in drawn])) for k in drawn[0]}
        return {k: v.to(device=self.device, dtype=self.dtype) for k, v in stacked.items()}

    def answers(self, params: Params, member: int, run: Run) -> Arrays:
        """One member's weights without padding, in the layout of `reference_routed`."""
        c, d = self._layer(run), slice(self.d_model)
        heads, keys, values, hidden = slice(c.heads), slice(c.d_key), slice(c.d_value), slice(c.hidden)
        cuts: dict[str, tuple[Any, ...]] = {
            "w_query": (heads, keys, d),
            "w_key": (heads, keys, d),
            "sink": (heads,),
            "w_value": (heads, values, d),
            "w_out": (heads, values, d),
            "bias": (0,),
            "w_up": (hidden, d),
            "w_down": (hidden, d),
            "b_up": (hidden,),
        }
        out: dict[str, NDArray[np.float64]] = {}
        for name, w in params.items():
            found = w[member][cuts.get(name, (d,))].double().cpu().numpy()
            turned = name in ("w_query", "w_key", "w_value", "w_up")
            out[name] = np.ascontiguousarray(np.swapaxes(found, -1, -2)) if turned else found.copy()
        return out

    def load(self, batch: Batch, runs: Sequence[Run]) -> RoutedBatch:
        """Rows on the device, and the contexts of the first step."""
        members, rows = len(runs), self.groups * self.places
        x = np.zeros((members, self.items, self.width))
        x[:, : self.true_items, : self.d_model] = batch["embeddings"]
        heads, scale = np.zeros((members, self.heads)), np.zeros(members)
        for member, run in enumerate(runs):
            heads[member, self._layer(run).heads :] = -np.inf
            scale[member] = self._layer(run).scale
        on, whole = (
            torch.zeros((), dtype=self.dtype, device=self.device),
            torch.zeros((), dtype=torch.int64, device=self.device),
        )
        loaded = RoutedBatch(
            x=torch.from_numpy(x).to(on),
            items=whole.new_zeros(members, rows),
            closed=on.new_zeros(members, self.groups, self.places),
            places=whole.new_zeros(members, self.groups, self.places),
            wanted=whole.new_zeros(members, rows),
            counts=on.new_zeros(members, rows),
            heads=torch.from_numpy(heads).to(on),
            scale=torch.from_numpy(scale).to(on),
            ids=tuple(run.problem_id for run in runs),
            targets=tuple(batch["targets"]),
        )
        self._show(loaded, [Contexts(*part) for part in zip(batch["items"], batch["open"], batch["places"], strict=True)])
        return loaded

    def select(self, batch: RoutedBatch, keep: torch.Tensor) -> RoutedBatch:
        """The loaded batch of some members only."""
        kept = keep.tolist()
        own = {name: getattr(batch, name)[keep] for name in MEMBERS}
        return RoutedBatch(**own, ids=tuple(batch.ids[i] for i in kept), targets=tuple(batch.targets[i] for i in kept))

    def join(self, batch: RoutedBatch, other: RoutedBatch) -> RoutedBatch:
        """Two loaded batches as one."""
        own = {name: torch.cat([getattr(batch, name), getattr(other, name)]) for name in MEMBERS}
        return RoutedBatch(**own, ids=batch.ids + other.ids, targets=batch.targets + other.targets)

    def turn(self, batch: RoutedBatch, memory: Params, steps: Sequence[int]) -> None:
        """Every member sees the contexts of its own step."""
        each = zip(batch.ids, batch.targets, steps, strict=True)
        self._show(batch, [self._block(name, targets, step // BLOCK).of(step % BLOCK) for name, targets, step in each])

    def _block(self, problem_id: str, targets: NDArray[np.int64], block: int) -> Contexts:
        if (problem_id, block) not in self._drawn:
            while len(self._drawn) >= KEEP:
                del self._drawn[next(iter(self._drawn))]
            self._drawn[problem_id, block] = contexts(problem_id, "contexts", block, targets, self.length, BLOCK)
        return self._drawn[problem_id, block]

    def _show(self, batch: RoutedBatch, drawn: Sequence[Contexts]) -> None:
        """Put contexts before the members, in place."""
        shape, room = (len(drawn), self.groups, self.places), slice(self.length)
        items, places = np.zeros(shape, dtype=np.int64), np.full(shape, -1, dtype=np.int64)
        there, wanted = np.zeros(shape, dtype=bool), np.full(shape, self.true_items, dtype=np.int64)
        for member, shown in enumerate(drawn):
            items[member, :, room], places[member, :, room], there[member, :, room] = shown.items, shown.places, shown.open
            target = np.take_along_axis(shown.items, np.maximum(shown.places, 0), axis=1)
            wanted[member, :, room] = np.where(shown.places >= 0, target, self.true_items)
        for mine, theirs in (
            (batch.items, items),
            (batch.places, places),
            (batch.wanted, wanted),
            (batch.counts, there),
            (batch.closed, np.where(there, 0.0, -np.inf)),
        ):
            mine.copy_(torch.from_numpy(theirs).view(mine.shape))

    # ------------------------------------------------------------------------------------------- the step

    def value_and_grad(self, params: Params, batch: RoutedBatch, *, value: bool = True) -> tuple[torch.Tensor | None, Params]:
        """`reference_routed.loss` and its gradient, of every member. value: (members,)    gradients: as the parameters"""
        weights = {name: w.detach().requires_grad_() for name, w in params.items()}
        with torch.enable_grad():
            loss = self._items_loss(weights, batch) if self.kind.d_value else self._pairs_loss(weights, batch)
            slopes = torch.autograd.grad(loss.sum(), list(weights.values()))
        return (loss.detach() if value else None), dict(zip(weights, slopes, strict=True))

    def _pairs_loss(self, w: Params, batch: RoutedBatch) -> torch.Tensor:
        """Cross-entropy of every pair of a context, by the head that leans most. returns: (members,)"""
        a = self._attention(w, batch, self._rows(batch))
        z = torch.log(a + _smallest(a.dtype)) - torch.log(1.0 - a + TINY)
        z = (z + batch.heads[:, None, :, None, None]).amax(2)  # (members, G, L, L)
        pairs = batch.counts.view(batch.closed.shape)[..., :, None] * batch.counts.view(batch.closed.shape)[..., None, :]
        each = torch.nn.functional.softplus(z, threshold=40.0) * pairs
        at = batch.places.clamp(min=0)[..., None]
        edges = z.gather(3, at)[..., 0] * (batch.places >= 0)
        return (each.sum(-1).sum(-1).sum(-1) - edges.sum(-1).sum(-1)) / self.edges

    def _items_loss(self, w: Params, batch: RoutedBatch) -> torch.Tensor:
        """Cross-entropy of every item's target among all items and "none". returns: (members,)"""
        scores = torch.bmm(self._stream(w, batch), batch.x.transpose(1, 2))  # (members, G * L, items)
        column = torch.arange(self.items, device=self.device)
        scores = scores - w["bias"][:, :1, None] * (column == self.true_items)
        scores = scores.masked_fill(column > self.true_items, -math.inf)
        top = scores.detach().amax(2, keepdim=True)
        each = (scores - top).exp().sum(2).log() + top[..., 0] - scores.gather(2, batch.wanted[..., None])[..., 0]
        return (each * batch.counts).sum(1) / batch.counts.sum(1)

    def _rows(self, batch: RoutedBatch) -> torch.Tensor:
        """The items of the contexts. returns: (members, G * L, d_model)"""
        start = torch.arange(len(batch.x), device=self.device)[:, None] * self.items
        return batch.x.view(-1, self.width)[(batch.items + start).view(-1)].view(*batch.items.shape, self.width)

    def _attention(self, w: Params, batch: RoutedBatch, rows: torch.Tensor) -> torch.Tensor:
        """Every head's softmax over each context. returns: (members, G, heads, L, L)"""
        scale = batch.scale[:, None, None]
        q, k = (self._by_head(rows, w[name]) for name in ("w_query", "w_key"))
        s = torch.matmul(q * scale[..., None, None], k.transpose(3, 4)) + batch.closed[:, :, None, None, :]
        return softmax(s, w["sink"][:, None, : self.heads, None, None] if self.kind.sink else None)

    def _by_head(self, rows: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """rows: (members, G * L, d_model)    w: (members, heads, size, d_model)    returns: (members, G, heads, L, size)"""
        out = torch.bmm(rows, w.flatten(1, 2).transpose(1, 2))
        return out.view(len(rows), self.groups, self.places, self.heads, -1).transpose(2, 3)

    def _output(self, w: Params, batch: RoutedBatch, rows: torch.Tensor) -> torch.Tensor:
        """`sum_k sum_j a^k_ij x_j W_V^k W_O^k`. returns: (members, G * L, d_model)"""
        moved = torch.matmul(self._attention(w, batch, rows), self._by_head(rows, w["w_value"]))
        return torch.bmm(moved.transpose(2, 3).reshape(len(rows), rows.shape[1], -1), w["w_out"].flatten(1, 2))

    def _stream(self, w: Params, batch: RoutedBatch) -> torch.Tensor:
        """What is read out: the heads' output, or the block's. returns: (members, G * L, d_model)"""
        rows = self._rows(batch)
        if not self.kind.hidden:
            return self._output(w, batch, rows)
        u = rows + self._output(w, batch, self._normalised(rows, w["norm_in"]))
        inner = torch.bmm(self._normalised(u, w["norm_mid"]), w["w_up"].transpose(1, 2)) + w["b_up"][:, None]
        y = u + torch.bmm(torch.nn.functional.gelu(inner, approximate="tanh"), w["w_down"]) + w["b_down"][:, None]
        return self._normalised(y, w["norm_out"])

    def _normalised(self, v: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        """Over the true width; padding stays zero."""
        return v * torch.rsqrt((v * v).sum(2, keepdim=True) / self.d_model + NORM_EPS) * gain[:, None]

    def clear(self, params: Params, batch: RoutedBatch, slack: float) -> torch.Tensor:
        """Nobody can tell by the contexts of one step."""
        return torch.zeros(len(batch.x), dtype=torch.bool, device=self.device)

    def compile(self, run: Run, steps: int) -> None:
        """PyTorch's own operations are compiled already."""


def _padded(stream: Stream, shape: tuple[int, ...], room: tuple[int, ...], size: float) -> NDArray[np.float64]:
    out = np.zeros(room)
    out[tuple(slice(n) for n in shape)] = stream.normal(shape) * size
    return out


def _smallest(kind: torch.dtype) -> float:
    """What keeps a logarithm finite where attention is 0."""
    return 1e-300 if kind == torch.float64 else 1e-37
