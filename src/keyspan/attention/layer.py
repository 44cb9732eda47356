"""Batched layers of softmax attention in torch, for labelled contexts: many members, ragged in H, n, d_h, T and instance.

`reference.labels_outputs` says what is computed; here only the row that answers is, and products of weights come first
(`folding`). What is left of a step are five products with the tokens of a minibatch. Every buffer is kept, since memory
that is asked for anew each step costs as much as the arithmetic.

members: M    batch: B    context: n    heads: H    d_head: d_h    d_value: d_v
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from keyspan.attention.examples import Examples, Sizes
from keyspan.attention.folding import Folded, fold, unfold
from keyspan.attention.instrument import ALIGN, Arrays, Params, dtype_of, round_up
from keyspan.attention.reference import positions
from keyspan.attention.softmax import softmax_, softmax_slope_
from keyspan.errors import BadInput
from keyspan.problems import Batch
from keyspan.problems.contexts import ROWS, Labels
from keyspan.seeds import Stream
from keyspan.specs import Layer, Run

LOSSES = ("cross-entropy", "squared-error")
TASK_OF = {"cross-entropy": "classes", "squared-error": "values"}
BLOCK_BYTES = {"cpu": 1 << 22, "cuda": 1 << 33}  # of tokens and logits of the members that are computed together
HEADS, D_HEAD = 4, 8  # heads and their width are padded to multiples of these
BEST = "best."


def padded_heads(heads: int) -> int:
    """What a number of heads is padded to."""
    return round_up(heads, HEADS)


@dataclass
class _Here:
    """Some members at a step: their minibatch and what became of it on the way there."""

    queries: Tensor  # (M, B, d)
    tokens: Tensor | None  # (M B, n, d); None where a context is shared
    weights: Tensor  # (M, B, n, H)
    values: Tensor  # (M, B or 1, n, H, d_v)
    heads: Tensor  # (M, B, H, d_v)
    outputs: Tensor  # (M, B, outputs)


class LayerBucket:
    """Layers of one padded shape and one recipe. Padding is zeros everywhere, and has no gradient."""

    static: bool = False

    def __init__(self, runs: Sequence[Run], loss: str, init_scale: float, bias: float, device: torch.device) -> None:
        problem, layer, batch = runs[0].problem, self._layer(runs[0]), getattr(runs[0].recipe, "batch", None)
        if not isinstance(problem, Labels):
            raise BadInput(f"A layer must be given labels, but got {problem.family}. Use another instrument.")
        if not layer.embed:
            raise BadInput("A layer that is trained must have embed=True, but got a bare one. It is for explicit weights.")
        if loss not in LOSSES or TASK_OF[loss] != problem.task:
            wanted = next(name for name, task in TASK_OF.items() if task == problem.task)
            raise BadInput(f"A layer's loss for {problem.task} must be {wanted}, but got {loss!r}. Change the recipe.")
        if batch is None:
            raise BadInput("A layer's recipe must have a batch, but got none. Set it to 256, say.")
        self.loss, self.init_scale, self.device = loss, init_scale, device
        self.dtype = dtype_of(runs[0].arithmetic, device)
        self.heads, self.d_value = padded_heads(layer.heads), layer.d_value
        self.d_head = round_up(layer.d_key, D_HEAD)
        self.d_model, self.outputs = problem.d_model, problem.outputs
        self.width, self.slots = round_up(problem.d_model, ALIGN), round_up(problem.outputs, ALIGN)
        context = round_up(problem.context, ROWS)
        self.shared = problem.contexts == "fixed"
        self.sizes = Sizes(batch, context, self.width, self.shared, device, self.dtype)
        table = np.zeros((context + 1, self.width))
        table[:, : self.d_model] = positions(context + 1, self.d_model)
        self.positions = torch.from_numpy(table).to(device=device, dtype=self.dtype)
        self.scale = 1.0 / math.sqrt(self.d_model)
        self.tolerance = problem.tolerance or 0.0
        own = batch * context * (2 * self.heads + (0 if self.shared else self.width)) * self.dtype.itemsize
        self.block = max(1, BLOCK_BYTES[device.type] // own)
        self._kept: dict[str, Tensor] = {}

    @staticmethod
    def _layer(run: Run) -> Layer:
        if not isinstance(run.instrument, Layer):
            raise BadInput(f"A layer must be asked for, but got {run.instrument.family}. Use another bucket.")
        return run.instrument

    # ------------------------------------------------------------------------------------------ weights and data

    def init(self, runs: Sequence[Run]) -> Params:
        """Initial weights, from each run's weights id and its recipe's draw."""
        return self.place([self.draw(run) for run in runs])

    def draw(self, run: Run) -> Arrays:
        """One member's initial weights, padded: every attention matrix uniform within +-sqrt(6/(rows + columns)), per
        head; the maps before and after the layer, with their biases, within +-1/sqrt(d)."""
        layer, d = self._layer(run), self.d_model
        h, k, v = layer.heads, layer.d_key, layer.d_value
        stream = Stream(run.weights_id, "weights", getattr(run.recipe, "draw", 0))

        def uniform(bound: float, *shape: int) -> np.ndarray:
            return (2.0 * stream.uniform(math.prod(shape)) - 1.0).reshape(shape) * bound * math.sqrt(self.init_scale)

        near, across = 1.0 / math.sqrt(d), math.sqrt(6.0 / (d + k))
        given = {
            "w_in": uniform(near, d, d),
            "b_in": uniform(near, d),
            "w_query": uniform(across, h, d, k),
            "w_key": uniform(across, h, d, k),
            "w_value": uniform(math.sqrt(6.0 / (d + v)), h, d, v),
            "w_out": uniform(math.sqrt(6.0 / (h * v + d)), h, v, d),
            "w_label": uniform(near, d, self.outputs),
            "b_label": uniform(near, self.outputs),
        }
        return self.packed(given)

    def packed(self, weights: Arrays) -> Arrays:
        """Weights in the reference's layout -> as they are kept, padded.

        w_query, w_key: (H, d_h, d)    w_value: (d, H d_v)    w_out: (H d_v, d)    b_label: whole slots
        """
        heads, d, v = self.heads, self.width, self.d_value
        out = {
            "w_in": np.zeros((d, d)),
            "b_in": np.zeros(d),
            "w_query": np.zeros((heads, self.d_head, d)),
            "w_key": np.zeros((heads, self.d_head, d)),
            "w_value": np.zeros((d, heads, v)),
            "w_out": np.zeros((heads, v, d)),
            "w_label": np.zeros((d, self.slots)),
            "b_label": np.zeros(self.slots),
        }
        turned = {"w_query": (0, 2, 1), "w_key": (0, 2, 1), "w_value": (1, 0, 2)}
        for name, array in out.items():
            given = weights[name].transpose(turned[name]) if name in turned else weights[name]
            array[tuple(slice(0, size) for size in given.shape)] = given
        return out | {"w_value": out["w_value"].reshape(d, -1), "w_out": out["w_out"].reshape(-1, d)}

    def answers(self, params: Params, member: int, run: Run) -> Arrays:
        """One member's weights without padding, as `reference.labels_outputs` takes them."""
        layer, d = self._layer(run), self.d_model
        h, k, v = layer.heads, layer.d_key, layer.d_value
        w = {name: t[member].double().cpu().numpy() for name, t in params.items()}
        out = {
            "w_in": w["w_in"][:d, :d],
            "b_in": w["b_in"][:d],
            "w_query": w["w_query"][:h, :k, :d].transpose(0, 2, 1),
            "w_key": w["w_key"][:h, :k, :d].transpose(0, 2, 1),
            "w_value": w["w_value"].reshape(self.width, self.heads, v)[:d, :h].transpose(1, 0, 2),
            "w_out": w["w_out"].reshape(self.heads, v, self.width)[:h, :, :d],
            "w_label": w["w_label"][:d, : self.outputs],
            "b_label": w["b_label"][: self.outputs],
        }
        return {name: np.ascontiguousarray(a) for name, a in out.items()}

    def place(self, drawn: Sequence[Arrays]) -> Params:
        """Drawn weights of several members, stacked on the device."""
        stacked = {k: torch.from_numpy(np.stack([d[k] for d in drawn])) for k in drawn[0]}
        return {k: v.to(device=self.device, dtype=self.dtype) for k, v in stacked.items()}

    def load(self, batch: Batch, runs: Sequence[Run]) -> Examples:
        """All examples on the device, each instance once."""
        tokens = [run.problem.context for run in runs]  # type: ignore[attr-defined]
        return Examples(batch["given"].tolist(), batch["which"].tolist(), tokens, self.sizes)

    def select(self, batch: Examples, keep: Tensor) -> Examples:
        """The examples of some members only."""
        return batch.select(keep.tolist())

    def join(self, batch: Examples, other: Examples) -> Examples:
        """Two loaded batches as one."""
        return batch.join(other)

    def compile(self, run: Run, steps: int) -> None:
        """PyTorch's own operations are compiled already."""

    # ----------------------------------------------------------------------------------------------- the step

    def turn(self, batch: Examples, memory: Params, steps: Sequence[int]) -> None:
        """The next minibatch of every member."""
        batch.show(steps)

    def value_and_grad(self, params: Params, batch: Examples, *, value: bool = True) -> tuple[Tensor | None, Params]:
        """Mean loss over the minibatch (`reference.cross_entropy`, `reference.squared_error`), and its gradient."""
        losses, grads = [], []
        for here, some in self._blocks(params):
            shared = self._shared(batch, here)
            folded, seen = fold(some, self.positions, shared, batch.closed[here])
            there = self._forward(folded, batch, here)
            loss, slope = self._loss(there.outputs, batch, here, value)
            losses.append(loss)
            grads.append(unfold(some, self._backward(folded, there, slope), seen, shared))
        joined = grads[0] if len(grads) == 1 else {k: torch.cat([g[k] for g in grads]) for k in params}
        return (torch.cat([x for x in losses if x is not None]) if value else None), joined

    def _blocks(self, params: Params) -> Iterator[tuple[slice, Params]]:
        """Members that are computed together: as many as a cache holds."""
        members = len(params["w_in"])
        for first in range(0, members, self.block):
            here = slice(first, min(first + self.block, members))
            yield here, {k: v[here] for k, v in params.items()}

    def _shared(self, batch: Examples, here: slice) -> Tensor | None:
        return None if batch.shared is None else batch.shared[batch.dataset[here]]

    def _buffer(self, name: str, *shape: int) -> Tensor:
        """A place that is kept from step to step."""
        size = math.prod(shape)
        kept = self._kept.get(name)
        if kept is None or kept.numel() < size:
            kept = self._kept[name] = torch.empty(size, dtype=self.dtype, device=self.device)
        return kept[:size].view(shape)

    def _forward(self, folded: Folded, batch: Examples, here: slice) -> _Here:
        """What is answered. Only the tokens are as many as examples times context; they are met twice."""
        place = batch.place[here].reshape(-1)
        members, size, n, heads, d = len(folded.bias), self.sizes.batch, self.sizes.context, self.heads, self.width
        queries = self._buffer("queries", members * size, d)
        torch.index_select(batch.queries, 0, place, out=queries)
        queries = queries.view(members, size, d)
        logits = self._buffer("logits", members, size, n * heads)
        torch.baddbmm(folded.start.unsqueeze(1), queries, folded.by_place.transpose(1, 2), out=logits)
        tokens = self._tokens(batch, place)
        if tokens is not None and folded.by_token is not None and folded.lead is not None and folded.value is not None:
            turned = self._buffer("turned", members, size, heads * d)
            torch.baddbmm(folded.lead.unsqueeze(1), queries, folded.by_token.transpose(1, 2), out=turned)
            by_example = logits.view(-1, n, heads)
            torch.baddbmm(by_example, tokens, turned.view(-1, heads, d).transpose(1, 2), out=by_example)
            values = self._buffer("values", members, size * n, heads * self.d_value)
            torch.bmm(tokens.view(members, size * n, d), folded.value, out=values)
            values = values.view(members, size, n, -1).add_(folded.value_start.unsqueeze(1))
        else:
            values = folded.value_start.unsqueeze(1)
        weights = softmax_(logits.mul_(self.scale).view(members, size, n, heads), 2)
        values = values.view(members, -1, n, heads, self.d_value)
        answered = self._weighed("weighed", weights, values).sum(2)
        outputs = torch.baddbmm(folded.bias.unsqueeze(1), answered.flatten(2), folded.read)
        return _Here(queries, tokens, weights, values, answered, outputs[..., : self.outputs])

    def _weighed(self, name: str, weights: Tensor, values: Tensor) -> Tensor:
        """weights: (M, B, n, H)    values: (M, B or 1, n or 1, H, d_v)    returns: (M, B, n, H, d_v)"""
        return torch.mul(weights.unsqueeze(4), values, out=self._buffer(name, *weights.shape, self.d_value))

    def _tokens(self, batch: Examples, place: Tensor) -> Tensor | None:
        """The contexts of a minibatch. returns: (M B, n, d), or None where they are shared"""
        if batch.contexts is None and batch.bag is None:
            return None
        tokens = self._buffer("tokens", len(place), self.sizes.context, self.width)
        if batch.contexts is not None:
            torch.index_select(batch.contexts, 0, place, out=tokens)
        elif batch.bag is not None and batch.index is not None:
            torch.index_select(batch.bag, 0, batch.index[place].view(-1), out=tokens.view(-1, self.width))
        return tokens

    def _loss(self, outputs: Tensor, batch: Examples, here: slice, value: bool) -> tuple[Tensor | None, Tensor]:
        """The loss of every member and its slope by the outputs."""
        labels = batch.labels[batch.place[here]].unsqueeze(2)
        weight = batch.weight[here].unsqueeze(2)
        if self.loss == "squared-error":
            short = outputs - labels
            return ((short * short * weight).sum((1, 2)) if value else None), 2.0 * short * weight
        logs = outputs - outputs.logsumexp(2, keepdim=True)
        slope = logs.exp().mul_(weight)
        slope.scatter_add_(2, labels, -weight)
        return (-(logs.gather(2, labels) * weight).sum((1, 2)) if value else None), slope

    def _backward(self, folded: Folded, there: _Here, slope: Tensor) -> Folded:
        """Slopes of the folded weights, from that of the outputs. slope: (M, B, outputs)"""
        members, size, n, heads, d_value = *there.weights.shape, self.d_value
        if slope.shape[2] < self.slots:
            slope = torch.nn.functional.pad(slope, (0, self.slots - slope.shape[2]))
        read = torch.bmm(there.heads.flatten(2).transpose(1, 2), slope)
        to_heads = torch.bmm(slope, folded.read.transpose(1, 2)).view(members, size, 1, heads, d_value)
        to_values = self._weighed("to_values", there.weights, to_heads)
        if d_value == 1:  # sum_j a_j da_j is the head's own answer times its slope
            logits = torch.sub(there.values, there.heads.unsqueeze(2), out=self._buffer("to_logits", *to_values.shape))
            logits = logits.mul_(to_values).squeeze(4)
        else:
            logits = softmax_slope_(there.weights, (there.values * to_heads).sum(4), 2)
        logits.mul_(self.scale)
        start = logits.view(members, size, -1)
        by_token = lead = value = None
        if there.tokens is not None:
            turned = self._buffer("to_turned", members * size, heads, self.width)
            torch.bmm(logits.view(-1, n, heads).transpose(1, 2), there.tokens, out=turned)
            turned = turned.view(members, size, -1)
            by_token, lead = torch.bmm(turned.transpose(1, 2), there.queries), turned.sum(1)
            flat = there.tokens.view(members, size * n, -1)
            value = torch.bmm(flat.transpose(1, 2), to_values.view(members, size * n, -1))
        return Folded(
            by_token=by_token,
            by_place=torch.bmm(start.transpose(1, 2), there.queries),
            lead=lead,
            start=start.sum(1),
            value=value,
            value_start=to_values.sum(1).view(members, n, -1),
            read=read,
            bias=slope.sum(1),
        )

    # ------------------------------------------------------------------------------------------ looking, leaving

    def memory(self, runs: Sequence[Run]) -> Params:
        """The best weights so far, by their loss over all examples."""
        kept = {BEST + k: torch.zeros_like(v) for k, v in self.init(runs).items()}
        worst = torch.full((len(runs),), math.inf, dtype=self.dtype, device=self.device)
        return kept | {"loss": worst, "accuracy": torch.zeros_like(worst)}

    def look(self, params: Params, batch: Examples, memory: Params, steps: Sequence[int]) -> None:
        """Score all examples; keep the weights if their loss is the least so far, or if every example is right."""
        loss, right = self._scored(params, batch)
        count = torch.tensor(batch.counts, dtype=self.dtype, device=self.device)
        batch.right = right == count
        better = (loss < memory["loss"]) | batch.right
        memory["loss"].copy_(torch.where(better, loss, memory["loss"]))
        memory["accuracy"].copy_(torch.where(better, right / count, memory["accuracy"]))
        for name, w in params.items():
            shape = (-1, *(1,) * (w.ndim - 1))
            memory[BEST + name].copy_(torch.where(better.view(shape), w, memory[BEST + name]))

    def _scored(self, params: Params, batch: Examples) -> tuple[Tensor, Tensor]:
        """Mean loss over all examples, and how many are right. returns: (members,) each"""
        loss = torch.zeros(len(params["w_in"]), dtype=self.dtype, device=self.device)
        right = torch.zeros_like(loss)
        count = torch.tensor(batch.counts, dtype=self.dtype, device=self.device)
        for here, some in self._blocks(params):
            folded, _ = fold(some, self.positions, self._shared(batch, here), batch.closed[here])
            for first in range(0, max(batch.counts[here]), self.sizes.batch):
                batch.part(first)
                outputs = self._forward(folded, batch, here).outputs
                counted = batch.weight[here] > 0
                value, _ = self._loss(outputs, batch, here, True)
                assert value is not None
                loss[here] += value * counted.sum(1) / count[here]
                right[here] += (self._right(outputs, batch, here) & counted).sum(1)
        return loss, right

    def _right(self, outputs: Tensor, batch: Examples, here: slice) -> Tensor:
        """Which answers are right. returns: (M, B)"""
        labels = batch.labels[batch.place[here]]
        if self.loss == "squared-error":
            return (outputs.squeeze(2) - labels).abs() <= self.tolerance
        return outputs.argmax(2) == labels

    def clear(self, params: Params, batch: Examples, slack: float) -> Tensor:
        """Whether every example was right at this look."""
        return batch.right

    def kept(self, params: Params, memory: Params) -> Params:
        """The best weights, where a look has found any."""
        seen = torch.isfinite(memory["loss"])
        return {k: torch.where(seen.view(-1, *(1,) * (w.ndim - 1)), memory[BEST + k], w) for k, w in params.items()}
