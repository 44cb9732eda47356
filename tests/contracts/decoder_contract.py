"""What every speed of a decoder must do: agree with `keyspan.attention.reference_decoder` in value and in gradient.

A speed inherits `DecoderContract` and says its device, its arithmetic and its tolerance. Gradients are held to derivatives
of the reference along random directions, taken by an imaginary step, which loses no digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from keyspan.attention import reference_decoder as reference
from keyspan.attention.decoder import DecoderBatch, DecoderBucket
from keyspan.attention.instrument import Arrays, Params
from keyspan.decoders import ACTIVATIONS, Decoder, layout
from keyspan.lab import recipes
from keyspan.lab.recipes import Recipe
from keyspan.problems import NoContents
from keyspan.problems.sequences import Sequences
from keyspan.seeds import Stream
from keyspan.specs import Run

Float = NDArray[np.float64]
PLAIN = Decoder(heads=2, d_model=6)
VARIANTS = [
    PLAIN,
    Decoder(heads=3, d_model=5),  # heads that do not divide d_model
    Decoder(heads=2, d_model=3, d_head=7, layers=2),
    Decoder(heads=1, d_model=4, ff="absent"),
    Decoder(heads=2, d_model=5, ff="frozen", ff_factor=3),
    *(Decoder(heads=2, d_model=6, activation=name, ff_factor=2) for name in ACTIVATIONS[1:]),
    Decoder(heads=2, d_model=6, positions="sinusoidal", norm="none"),
    Decoder(heads=2, d_model=6, positions="rotary", norm="post", layers=2),
    Decoder(heads=2, d_model=7, d_head=5, positions="rotary", norm="final"),
    Decoder(heads=2, d_model=6, norm="final", tied=True, layers=3),
    Decoder(heads=2, d_model=6, norm="none", tied=True),
    Decoder(heads=2, d_model=6, attention="linear", layers=2),
    Decoder(heads=3, d_model=7, attention="window", window=3, layers=2),
    Decoder(heads=2, d_model=6, attention="sparse", window=2, positions="rotary"),
    Decoder(heads=2, d_model=4, attention="window", window=1, ff="absent", norm="post"),
]


def named(decoder: Decoder) -> str:
    """What tells a variant from a plain decoder."""
    usual = Decoder(heads=1, d_model=1).to_json()
    return "-".join(f"{k}={v}" for k, v in decoder.to_json().items() if k not in ("family", "version") and usual[k] != v)


def run_of(
    decoder: Decoder,
    replicate: int = 0,
    *,
    length: int = 7,
    vocabulary: int = 11,
    prompt: int = 2,
    library: int = 23,
    batch: int = 5,
    steps: int = 20,
    recipe: Recipe | None = None,
    arithmetic: str = "fp32",
) -> Run:
    """A member that recites a few short sequences."""
    return Run(
        problem=Sequences(length=length, vocabulary=vocabulary, prompt=prompt, library=library),
        replicate=replicate,
        instrument=decoder,
        recipe=recipe or recipes.budgeted(steps, batch=batch),
        stopping=recipes.recital_stopping(steps),
        arithmetic=arithmetic,
    )


def loaded(bucket: DecoderBucket, runs: Sequence[Run]) -> DecoderBatch:
    """The libraries of some members, on the device."""
    problem = runs[0].problem
    assert isinstance(problem, Sequences)
    return bucket.load(problem.batch(0, [r.problem.instance(r.problem_id, NoContents()) for r in runs]), runs)  # type: ignore[attr-defined]


def moved(params: Params, seed: int) -> Params:
    """Weights a little away from where they begin, so that no bias is zero and no gain one."""
    flat = params["flat"]
    noise = Stream("decoders", "noise", seed).normal(tuple(flat.shape)) * 0.2
    return {"flat": flat + torch.from_numpy(noise).to(flat)}


class DecoderContract:
    """Inherited once for every device and arithmetic."""

    device: ClassVar[str]
    arithmetic: ClassVar[str]
    tolerance: ClassVar[float]

    def ready(self, decoder: Decoder, members: int = 3, **sizes: Any) -> tuple[DecoderBucket, list[Run], Params, DecoderBatch]:
        """Members with a batch before them."""
        runs = [run_of(decoder, seed, arithmetic=self.arithmetic, **sizes) for seed in range(members)]
        recipe = runs[0].recipe
        assert isinstance(recipe, Recipe)
        bucket = DecoderBucket(runs, recipe.loss, recipe.init_scale, recipe.bias, torch.device(self.device))
        batch = loaded(bucket, runs)
        memory = bucket.memory(runs)
        for step in range(2):
            bucket.turn(batch, memory, [step] * members)
        return bucket, runs, moved(bucket.init(runs), len(named(decoder))), batch

    def shown(self, bucket: DecoderBucket, batch: DecoderBatch, member: int) -> NDArray[np.int64]:
        """What a member sees, without padding."""
        shown: NDArray[np.int64] = batch.tokens[member, : bucket.shown, : bucket.problem.length].cpu().numpy()
        return shown

    @pytest.mark.parametrize("decoder", VARIANTS, ids=named)
    def test_value(self, decoder: Decoder) -> None:
        bucket, runs, params, batch = self.ready(decoder)
        value, _ = bucket.value_and_grad(params, batch)
        assert value is not None
        for member, run in enumerate(runs):
            tokens, weights = self.shown(bucket, batch, member), bucket.answers(params, member, run)
            expected = reference.recital_loss(decoder, weights, tokens, bucket.problem.prompt)
            assert float(value[member]) == pytest.approx(expected, rel=self.tolerance)

    @pytest.mark.parametrize("decoder", VARIANTS, ids=named)
    def test_gradient(self, decoder: Decoder) -> None:
        bucket, runs, params, batch = self.ready(decoder, members=2)
        _, grad = bucket.value_and_grad(params, batch)
        slopes = bucket.trained.views(grad["flat"])
        for member, run in enumerate(runs):
            tokens, weights = self.shown(bucket, batch, member), bucket.answers(params, member, run)
            problem = bucket.problem
            whole = float(torch.linalg.vector_norm(grad["flat"][member].double()))
            for weight in layout(decoder, problem.vocabulary, problem.length):
                if not weight.trained:
                    assert weight.name not in slopes
                    continue
                direction = Stream(f"{member}", weight.name).normal(weight.shape)
                along = slopes[weight.name][member].double().cpu().numpy()
                error = abs(float((along * direction).sum()) - derivative(decoder, weights, weight.name, direction, tokens))
                assert error <= self.tolerance * whole * np.linalg.norm(direction), weight.name

    @pytest.mark.parametrize("decoder", [PLAIN, VARIANTS[4], VARIANTS[11]], ids=named)
    def test_padding_has_no_gradient(self, decoder: Decoder) -> None:
        bucket, _, params, batch = self.ready(decoder)
        _, grad = bucket.value_and_grad(params, batch)
        inside = torch.zeros_like(grad["flat"], dtype=torch.bool)
        for view in bucket.trained.views(inside).values():
            view.fill_(True)
        assert not grad["flat"][~inside].any() and grad["flat"][inside].any()


def derivative(decoder: Decoder, weights: Arrays, name: str, direction: Float, tokens: NDArray[np.int64]) -> float:
    """Of the reference's loss along a direction of one array: `Im f(w + i eps v) / eps`, exact to rounding."""
    step = 1e-30
    bent = dict(weights) | {name: weights[name] + 1j * step * direction}
    return float(reference.recital_loss(decoder, bent, tokens, 2).imag / step)
