"""Batched decoders in torch: many members side by side, gradients written out (`blocks`), held to `reference_decoder`.

A member's trained weights are one flat vector, so that an optimiser's step is a few operations whatever the number of
layers. Sequences are padded to a multiple of 8 tokens and batches to a multiple of 4 sequences, so that a member's slot is
whole cache lines in every array (`instrument.ALIGN`); no other axis is padded, since none is shared with another member.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from keyspan.attention import library
from keyspan.attention.blocks import Pass, tables_of
from keyspan.attention.instrument import ALIGN, Arrays, Params, dtype_of, round_up
from keyspan.attention.library import Shelf
from keyspan.decoders import Decoder, Weight, layout
from keyspan.errors import BadInput
from keyspan.problems import Batch
from keyspan.problems.sequences import Sequences
from keyspan.problems.shown import Ride
from keyspan.seeds import Stream
from keyspan.specs import Run

LOSSES = ("recital",)
TOKENS, SEQUENCES = 8, 4  # sequences and batches are padded to multiples of these: together whole slots of ALIGN
LOOK = 128  # sequences that a member's look takes at once

Tensor = torch.Tensor


@dataclass
class DecoderBatch:
    """tokens: (members, batch, padded N), what is shown at this step    shelf: the libraries
    fixed: (members, numbers), flat weights that are not trained"""

    tokens: Tensor
    shelf: Shelf
    fixed: Tensor


class _Flat:
    """Some of a decoder's weights as one vector. Each begins at a multiple of ALIGN."""

    def __init__(self, weights: Sequence[Weight]) -> None:
        self.weights, self.places, at = list(weights), {}, 0
        for weight in self.weights:
            self.places[weight.name] = at
            at += round_up(weight.size, ALIGN)
        self.size = at

    def views(self, flat: Tensor) -> Params:
        """The weights by name. flat: (members, size)    each: (members, ...)"""
        at = self.places
        return {w.name: flat[:, at[w.name] : at[w.name] + w.size].view(len(flat), *w.shape) for w in self.weights}


class DecoderBucket:
    """Decoders of one spec on sequences of one shape. `L` as `reference_decoder.recital_loss`."""

    static = False

    def __init__(self, runs: Sequence[Run], loss: str, init_scale: float, bias: float, device: torch.device) -> None:
        run = runs[0]
        problem, decoder = run.problem, run.instrument
        shown, batch = getattr(run.recipe, "show", None), getattr(run.recipe, "batch", None)
        if not isinstance(problem, Sequences) or not isinstance(decoder, Decoder):
            raise BadInput(f"A decoder must be given sequences, but got {problem.family}. Use another instrument.")
        if loss not in LOSSES:
            raise BadInput(f"A decoder's loss must be one of {'|'.join(LOSSES)}, but got {loss!r}. Change the recipe.")
        if batch is None:
            raise BadInput("A decoder's recipe must say how many sequences a step is shown, but got none. Give it a `batch`.")
        self.problem, self.decoder, self.init_scale, self.device = problem, decoder, init_scale, device
        self.riding, self.shown = shown if isinstance(shown, Ride) else None, int(batch)
        self.tf32 = run.arithmetic == "tf32" and device.type == "cuda"
        self.dtype = torch.float32 if self.tf32 else dtype_of(run.arithmetic, device)
        weights = layout(decoder, problem.vocabulary, problem.length)
        self.trained, self.frozen = (_Flat([w for w in weights if w.trained is t]) for t in (True, False))
        self.tokens, self.batch = round_up(problem.length, TOKENS), round_up(self.shown, SEQUENCES)
        self.tables = tables_of(decoder, self.tokens, self.dtype, device)
        counted = torch.zeros(self.batch, self.tokens, dtype=self.dtype)
        asked = problem.length - problem.prompt
        counted[: self.shown, problem.prompt - 1 : problem.length - 1] = 1.0 / (self.shown * asked)
        self.counted = counted.view(1, -1, 1).to(device)

    # ------------------------------------------------------------------------------------------- weights

    def init(self, runs: Sequence[Run]) -> Params:
        """Initial weights, from each run's weights id and its recipe's draw."""
        return self.place([self.draw(run) for run in runs])

    def draw(self, run: Run) -> Arrays:
        """One member's initial weights, flat. Each array has a stream of its own, so that none depends on the others."""
        return {"flat": self._drawn(run, self.trained)}

    def _drawn(self, run: Run, flat: _Flat) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        out = np.zeros(flat.size)
        for weight in flat.weights:
            at = flat.places[weight.name]
            out[at : at + weight.size] = weight.start
            if weight.std:
                stream = Stream(run.weights_id, f"weights {weight.name}", getattr(run.recipe, "draw", 0))
                out[at : at + weight.size] = stream.normal((weight.size,)) * (weight.std * self.init_scale**0.5)
        return out

    def place(self, drawn: Sequence[Arrays]) -> Params:
        """Drawn weights, stacked on the device. flat: (members, numbers)"""
        return {"flat": self._put(np.stack([d["flat"] for d in drawn]))}

    def _put(self, array: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Tensor:
        return torch.from_numpy(array).to(device=self.device, dtype=self.dtype)

    def answers(self, params: Params, member: int, run: Run) -> Arrays:
        """One member's weights by name, float64; with a ride also the sequences it was left with, and when it last grew."""
        flat = {"flat": params["flat"][member : member + 1].double().cpu()}
        fixed = torch.from_numpy(self._drawn(run, self.frozen))[None].to(self.dtype).double()
        named = self.trained.views(flat["flat"]) | self.frozen.views(fixed)
        out = {name: np.array(w[0].numpy()) for name, w in named.items()}
        if "rank" in params:
            active = params["rank"][member, : int(params["active"][member])]
            out |= {"shown": active.sort().values.double().cpu().numpy(), "grew": params["grew"][member].double().cpu().numpy()}
        return out

    # ------------------------------------------------------------------------------------------- libraries

    def load(self, batch: Batch, runs: Sequence[Run]) -> DecoderBatch:
        """Libraries, orders and frozen weights on the device."""
        most = self.problem.places
        tokens = np.zeros((len(runs), most, self.problem.length), dtype=np.int64)
        tokens[:, : batch["tokens"].shape[1]] = batch["tokens"]
        integers = [tokens, batch["count"], np.stack([library.shuffles(run) for run in runs])]
        shelf, count, shuffles = (torch.from_numpy(a).to(self.device) for a in integers)
        entropy = torch.from_numpy(batch["entropy"]).to(self.device)
        shown = torch.zeros(len(runs), self.batch, self.tokens, dtype=torch.int64, device=self.device)
        fixed = self._put(np.stack([self._drawn(run, self.frozen) for run in runs]))
        return DecoderBatch(shown, Shelf(shelf, count, entropy, shuffles), fixed)

    def select(self, batch: DecoderBatch, keep: Tensor) -> DecoderBatch:
        """Some members only."""
        return DecoderBatch(batch.tokens[keep], batch.shelf.select(keep), batch.fixed[keep])

    def join(self, batch: DecoderBatch, other: DecoderBatch) -> DecoderBatch:
        """Members of both."""
        tokens, fixed = torch.cat([batch.tokens, other.tokens]), torch.cat([batch.fixed, other.fixed])
        return DecoderBatch(tokens, batch.shelf.join(other.shelf), fixed)

    def memory(self, runs: Sequence[Run]) -> Params:
        """Where each member is in the order of its library, and how much of it is active."""
        counts = [run.problem.sequences for run in runs]  # type: ignore[attr-defined]
        return library.memory(self.riding, counts, self.problem.places, self.device)

    def turn(self, batch: DecoderBatch, memory: Params, steps: Sequence[int]) -> None:
        """The next sequences of every member."""
        library.show(batch.shelf, memory, batch.tokens[:, : self.shown, : self.problem.length])

    def look(self, params: Params, batch: DecoderBatch, memory: Params, steps: Sequence[int]) -> None:
        """A ride's library grows, or sheds."""
        if self.riding is not None:
            library.ride(self.riding, memory, lambda: self._surprise(params, batch, memory), batch.shelf, steps)

    def kept(self, params: Params, memory: Params) -> Params:
        """The last weights, and what a ride has come to."""
        return params | {name: memory[name] for name in ("rank", "active", "grew") if "rank" in memory}

    # ------------------------------------------------------------------------------------------- computing

    def scores(self, params: Params, batch: DecoderBatch, tokens: Tensor) -> Tensor:
        """Scores of every next token, for tests and looks. tokens: (members, sequences, tokens)    returns: (..., V)"""
        passing = Pass(self.decoder, self._weights(params, batch), {}, self.tables)
        return passing.forward(tokens).view(*tokens.shape, -1)

    def _weights(self, params: Params, batch: DecoderBatch) -> Params:
        return self.trained.views(params["flat"]) | self.frozen.views(batch.fixed)

    def value_and_grad(self, params: Params, batch: DecoderBatch, *, value: bool = True) -> tuple[Tensor | None, Params]:
        """`reference_decoder.recital_loss` of the sequences shown, and its gradient, of every member."""
        if not self.tf32:
            return self._value_and_grad(params, batch, value)
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return self._value_and_grad(params, batch, value)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before

    def _value_and_grad(self, params: Params, batch: DecoderBatch, value: bool) -> tuple[Tensor | None, Params]:
        grad = torch.zeros_like(params["flat"])
        passing = Pass(self.decoder, self._weights(params, batch), self.trained.views(grad), self.tables)
        scores = passing.forward(batch.tokens)
        target = torch.roll(batch.tokens, -1, 2).view(len(grad), -1, 1)
        loss = (self._cost(scores, target) * self.counted[..., 0]).sum(1) if value else None
        slope = torch.softmax(scores, -1)
        slope.scatter_add_(2, target, torch.full((1, 1, 1), -1.0, dtype=slope.dtype, device=slope.device).expand_as(target))
        passing.backward(slope.mul_(self.counted))
        return loss, {"flat": grad}

    @staticmethod
    def _cost(scores: Tensor, target: Tensor) -> Tensor:
        """Surprise of every token. scores: (members, rows, V)    returns: (members, rows)"""
        return torch.logsumexp(scores, -1) - scores.gather(2, target)[..., 0]

    def _looks(self, params: Params, batch: DecoderBatch, which: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Scores and targets of listed sequences, after the prompt, so many at a time that no member's bits depend on how
        many others have. which: (members, sequences)    yields: (members, some, asked, V), (members, some, asked, 1)"""
        length, first = self.problem.length, self.problem.prompt - 1
        tokens = torch.zeros(len(which), LOOK, self.tokens, dtype=torch.int64, device=self.device)
        for start in range(0, which.shape[1], LOOK):
            some = which[:, start : start + LOOK]
            found = batch.shelf.tokens.gather(1, some[:, :, None].expand(-1, -1, length))
            tokens[:, : some.shape[1], :length] = found
            scores = self.scores(params, batch, tokens)[:, : some.shape[1], first : length - 1]
            yield scores, found[:, :, first + 1 :, None]

    def _surprise(self, params: Params, batch: DecoderBatch, memory: Params) -> Tensor:
        """Of every active sequence, in nats, in the order of the rank. returns: (members, most active)"""
        which = memory["rank"][:, : int(memory["active"].max())]
        each = [
            (torch.logsumexp(scores, -1) - scores.gather(3, target)[..., 0]).sum(2)
            for scores, target in self._looks(params, batch, which)
        ]
        return torch.cat(each, 1)

    def clear(self, params: Params, batch: DecoderBatch, slack: float) -> Tensor:
        """Whether every sequence of the library is recited, each token `slack` above all others. returns: (members,), bool"""
        count = batch.shelf.count
        which = torch.arange(int(count.max()), device=self.device).repeat(len(count), 1)
        good = []
        for scores, target in self._looks(params, batch, which):
            own = scores.gather(3, target)
            others = scores.scatter(3, target, -torch.inf)
            good.append((own[..., 0] - others.amax(3) > slack).all(2))
        return (torch.cat(good, 1) | (which >= count[:, None])).all(1)

    def compile(self, run: Run, steps: int) -> None:
        """PyTorch's own operations are compiled already."""
