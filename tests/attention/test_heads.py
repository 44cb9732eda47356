"""Heads of today in torch: the contract on every device, what their parts do, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.contracts.attention_contract import refused, run_of
from tests.contracts.heads_contract import KINDS, HeadsContract

from keyspan.attention.heads import HeadsBucket
from keyspan.attention.precision import rounded
from keyspan.attention.shapes import CACHES, Heads
from keyspan.errors import BadInput
from keyspan.problems.dichotomies import Dichotomies
from keyspan.problems.placed import Placed
from keyspan.problems.relations import Relations
from keyspan.specs import decode


class TestHeadsOnCpuInDouble(HeadsContract):
    device, arithmetic, tolerance = "cpu", "fp64", 1e-12


class TestHeadsOnCpuInSingle(HeadsContract):
    device, arithmetic, tolerance = "cpu", "fp32", 1e-5


class TestHeadsHingeOnCpuInDouble(TestHeadsOnCpuInDouble):
    loss = "squared-hinge"


@pytest.mark.gpu
class TestHeadsOnGpuInDouble(HeadsContract):
    device, arithmetic, tolerance = "cuda", "fp64", 1e-12


@pytest.mark.gpu
class TestHeadsOnGpuInSingle(HeadsContract):
    device, arithmetic, tolerance = "cuda", "fp32", 1e-5


def test_plain_heads_are_a_channel() -> None:
    """The same loss and slopes from the same weights, by the other bucket."""
    from keyspan.attention.channel import ChannelBucket
    from keyspan.problems import NoContents
    from keyspan.specs import Channel

    heads = run_of(Relations(items=23, d_model=11), Heads(heads=3, d_key=2))
    channel = replace(heads, instrument=Channel(heads=3, d_key=2))
    mine, theirs = HeadsBucket([heads], "bce", 1.0, -1.0, CPU), ChannelBucket([channel], "bce", 1.0, -1.0, CPU)
    instance = Relations(items=23, d_model=11).instance(heads.problem_id, NoContents())
    shown = Relations(items=23, d_model=11).batch(0, [instance])
    params = theirs.init([channel])
    one = mine.value_and_grad(params, mine.load(shown, [heads]))
    other = theirs.value_and_grad(params, theirs.load(shown, [channel]))
    assert one[0] is not None and other[0] is not None and torch.equal(one[0], other[0])
    assert all(torch.equal(one[1][k], other[1][k]) for k in params)


CPU = torch.device("cpu")


@pytest.mark.parametrize("keys", CACHES)
def test_rounding_gives_numbers_of_the_format_and_lets_the_slope_through(keys: str) -> None:
    v = torch.linspace(-3.0, 5.0, 101, dtype=torch.float64).reshape(1, 1, 101).clone().requires_grad_()
    near = rounded(v, keys)
    near.sum().backward()
    assert v.grad is not None and torch.equal(v.grad, torch.ones_like(v))
    assert torch.equal(rounded(near.detach(), keys), near)  # rounded numbers stay
    if keys in ("int8", "int4"):
        assert len(near.unique()) <= 2 ** CACHES[keys] - 1
    worst = float((near - v).detach().abs().max())
    assert worst <= {"fp32": 0.0, "bf16": 2**-6, "fp8": 5 * 16 / 448, "int8": 5 / 254, "int4": 5 / 14}[keys] * (1 + 1e-9)
    assert keys == "fp32" or worst > 0


def test_a_channel_of_zeros_stays_zero() -> None:
    assert all(float(rounded(torch.zeros(1, 2, 3), keys).abs().max()) == 0.0 for keys in CACHES)


def test_what_the_cache_holds_and_what_weights_there_are() -> None:
    plain = Heads(heads=8, d_key=4)
    assert (plain.key_budget, plain.cached, plain.parameters(16)) == (32, 32, 16 * 64)
    assert Heads(heads=8, d_key=4, share=0).cached == 4
    grouped = Heads(heads=8, d_key=4, share=2)
    assert (grouped.key_heads, grouped.cached, grouped.parameters(16)) == (4, 16, 16 * 48)
    latent = Heads(heads=8, d_key=4, latent=6, rotary=0.5)
    assert (latent.turned, latent.cached, latent.parameters(16)) == (2, 8, 16 * 32 + 16 * 8 + 8 * 6 * 2)
    assert plain.cache_bits(64) == 32 * 32 and replace(plain, keys="bf16").cache_bits(64) == 32 * 16
    assert replace(plain, keys="int4").cache_bits(64) == 32 * (4 + 0.5)
    assert Heads(heads=2, d_key=3, norm=True).parameters(7) == 2 * 7 * 6 + 3


def test_a_budget_keeps_the_kind() -> None:
    latent = Heads(heads=1, d_key=2, latent=6, cap=3.0)
    assert latent.with_budget(4, 20) == Heads(heads=4, d_key=5, latent=15, cap=3.0)
    with pytest.raises(BadInput, match="must divide"):
        latent.with_budget(3, 20)
    with pytest.raises(BadInput, match="share"):
        Heads(heads=4, d_key=1, share=4).with_budget(2, 2)
    for kind, sizes in KINDS.values():
        heads = kind.with_budget(sizes[0][0], sizes[0][0] * sizes[0][1])
        assert decode(heads.to_json()) == heads


@pytest.mark.parametrize(
    "wrong, named",
    [
        ({"share": 3}, "share"),
        ({"share": -1}, "share"),
        ({"latent": 2, "share": 2}, "latent"),
        ({"latent": 2, "norm": True}, "norm"),
        ({"rotary": 1.5}, "rotary"),
        ({"base": 1.0}, "base"),
        ({"window": -1}, "window"),
        ({"cap": -1.0}, "cap"),
        ({"keys": "int3"}, "fp32|bf16|fp8|int8|int4"),
        ({"latent": -2}, "latent"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, float], named: str) -> None:
    with pytest.raises(BadInput) as refusal:
        Heads(heads=4, d_key=2, **wrong)  # type: ignore[arg-type]
    assert named in str(refusal.value)


def test_what_heads_cannot_do_is_refused() -> None:
    heads = Heads(heads=2, d_key=3)
    assert "dichotomies" in refused(run_of(Dichotomies(dimension=3, examples=5), heads), HeadsBucket)
    placed = Placed(relations=Relations(items=7, d_model=5), positions=4)
    assert "bce|squared-hinge" in refused(run_of(placed, heads), HeadsBucket, loss="hinge")
    assert "bf16" in refused(run_of(placed, heads, "bf16"), HeadsBucket)
