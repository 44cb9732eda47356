"""Formats against those that torch has, grids by hand, and the fewest bits against a look at every number of bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.lab.test_judge import one_head_per_edge

from keyspan.errors import BadInput
from keyspan.lab.channels import judge_channel
from keyspan.lab.quantize import FORMATS, MOST_BITS, Format, precision, separates, uniform
from keyspan.problems import NoContents
from keyspan.problems.relations import Relations
from keyspan.seeds import Stream

Float = NDArray[np.float64]
TORCH = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}


def unscaled(name: str) -> Format:
    f = FORMATS[name]
    return Format(f.significand, f.least, f.largest, scaled=False)


@pytest.mark.parametrize("name", FORMATS)
def test_formats_are_those_of_torch(name: str) -> None:
    """Every size from below the smallest to the largest number, ties among them."""
    f = unscaled(name)
    spread = np.exp2(np.linspace(f.least - f.significand - 3, np.log2(f.largest), 4001)) * Stream("f", name).signs((4001,))
    ties = np.arange(1, 4001) * 2.0 ** (f.least - f.significand)  # halfway between neighbours, every other one
    for values in (spread, ties[ties <= f.largest], np.zeros(3)):
        single = torch.from_numpy(values).to(torch.float32)  # torch rounds from float32: start there
        ours = f(single.double().numpy()[None, None])[0, 0]
        assert (ours == single.to(TORCH[name]).double().numpy()).all()
    assert (f(np.array([[[f.largest * 4, -f.largest * 4]]])) == [[[f.largest, -f.largest]]]).all()


def test_scaled_formats_use_the_whole_range_of_every_matrix() -> None:
    w = Stream("w", "weights").normal((3, 7, 5)) * np.array([1e-9, 1.0, 1e9])[:, None, None]
    out = FORMATS["fp8_e4m3"](w)
    largest = np.abs(w).max(axis=(1, 2))
    assert np.abs(out).max(axis=(1, 2)) == pytest.approx(largest, rel=1e-12)
    assert (np.abs(out - w) <= np.maximum(np.abs(w) * 2.0**-4, largest[:, None, None] / 448 * 2.0**-10) * (1 + 1e-12)).all()
    assert len(np.unique(np.abs(out[1]))) < 36 and (FORMATS["fp8_e4m3"](np.zeros((1, 2, 2))) == 0).all()


def test_a_uniform_grid_by_hand() -> None:
    w = np.array([[[1.0, -0.4, 0.26], [0.0, -1.0, 0.74]], [[8.0, 4.0, -1.0], [3.9, -4.1, 0.0]]])
    assert (uniform(w, 2) == [[[1, 0, 0], [0, -1, 1]], [[8, 0, 0], [0, -8, 0]]]).all()
    assert uniform(w, 3)[0] == pytest.approx(np.array([[3, -1, 1], [0, -3, 2]]) / 3)
    assert np.abs(uniform(w, 16) - w).max() < 8 / (2**15 - 1) and (uniform(np.zeros((1, 2, 2)), 4) == 0).all()
    for bits in (1, 33):
        with pytest.raises(BadInput, match=str(bits)):
            uniform(w, bits)


@pytest.mark.parametrize("items, d_model, noise", [(41, 11, 0.0), (29, 13, 0.01), (23, 11, 0.003)])
def test_the_fewest_bits_are_on_the_edge(items: int, d_model: int, noise: float) -> None:
    instance = Relations(items=items, d_model=d_model).instance("p3", NoContents())
    wq, wk = one_head_per_edge(instance)
    wq = wq + noise * Stream("n", "noise").normal(wq.shape)

    def margin(query: Float, key: Float) -> float:
        return judge_channel(instance, query, key, 0.0).scores["margin"]

    found = precision(instance, wq, wk)
    held = [bits for bits in range(2, MOST_BITS + 1) if margin(uniform(wq, bits), uniform(wk, bits)) > 1e-12]
    assert held, "the channel separates"
    assert found.fewest_bits in held and found.fewest_bits - 1 not in held
    for name, said in (("bf16", found.bf16_exact), ("fp8_e4m3", found.fp8_exact), ("fp8_e5m2", found.fp8_e5m2_exact)):
        assert said == (margin(FORMATS[name](wq), FORMATS[name](wk)) > 1e-12)
    assert found.fp16_exact or not found.bf16_exact


def test_what_does_not_separate_has_no_fewest_bits() -> None:
    instance = Relations(items=41, d_model=7).instance("p1", NoContents())
    wq, wk = Stream("w", "weights").normal((2, 2, 7, 3))
    found = precision(instance, wq, wk)
    assert found.fewest_bits is None and not found.bf16_exact and not found.fp8_exact
    assert not separates(instance, wq, wk) and not separates(instance, np.zeros_like(wq), wk)


def test_points_on_a_circle_need_many_bits() -> None:
    """The circle code has two key dimensions and hardly any margin: what it saves in width it pays in precision."""
    items = 64
    angle = 2 * np.pi * np.arange(items) / items
    codes = np.stack([np.cos(angle), np.sin(angle)], axis=1)[None]
    instance = Relations(items=items, d_model=items).instance("p1", NoContents())
    target = instance.edges[:, 1]
    keys = np.zeros_like(codes)
    keys[0, target] = codes[0]
    one_hot = type(instance)(None, instance.edges, np.eye(items))
    found = precision(one_hot, codes, keys)
    assert found.fewest_bits is not None and 6 <= found.fewest_bits <= 10 and not found.fp8_exact
