"""The batched channel: the contract on every device, and what it refuses."""

from __future__ import annotations

import sys

import pytest
import torch
from tests.attention import test_owned
from tests.contracts.attention_contract import CHANNEL_LOSSES, ChannelContract, refused, run_of

from keyspan.attention import owned
from keyspan.attention.channel import LOSSES, ChannelBucket
from keyspan.attention.instrument import next_power_of_two, round_up
from keyspan.problems.dichotomies import Dichotomies
from keyspan.problems.relations import Relations
from keyspan.specs import Channel


class TestChannelOnCpuInDouble(ChannelContract):
    device, arithmetic, tolerance = "cpu", "fp64", 1e-12


class TestChannelOnCpuInSingle(ChannelContract):
    device, arithmetic, tolerance = "cpu", "fp32", 1e-5


@pytest.mark.gpu
class TestChannelOnGpuInDouble(ChannelContract):
    device, arithmetic, tolerance = "cuda", "fp64", 1e-12


@pytest.mark.gpu
class TestChannelOnGpuInSingle(ChannelContract):
    device, arithmetic, tolerance = "cuda", "fp32", 1e-5


class TestHingeOnCpuInDouble(TestChannelOnCpuInDouble):
    loss = "squared-hinge"


class TestHingeOnCpuInSingle(TestChannelOnCpuInSingle):
    loss = "squared-hinge"


@pytest.mark.gpu
class TestHingeOnGpuInDouble(TestChannelOnGpuInDouble):
    loss = "squared-hinge"


@pytest.mark.gpu
class TestHingeOnGpuInSingle(TestChannelOnGpuInSingle):
    loss = "squared-hinge"


def test_every_loss_has_a_reference_and_is_held_to_it() -> None:
    assert {*LOSSES, owned.LOSS} == set(CHANNEL_LOSSES)
    modules = (sys.modules[__name__], test_owned)
    held = [c for m in modules for c in vars(m).values() if isinstance(c, type) and issubclass(c, ChannelContract)]
    assert {c.loss for c in held} == set(CHANNEL_LOSSES)


@pytest.mark.gpu
def test_initial_weights_have_equal_bits_on_every_device() -> None:
    here, there = TestChannelOnCpuInSingle(), TestChannelOnGpuInSingle()
    runs = here.runs(31, 17, [(7, 3), (5, 4), (8, 3)])
    one, other = here.bucket(runs).init(runs), there.bucket(runs).init(runs)
    assert all(torch.equal(one[k], other[k].cpu()) for k in one)


RELATIONS = Relations(items=7, d_model=5)
CHANNEL = Channel(heads=2, d_key=3)


def test_what_a_channel_cannot_do_is_refused() -> None:
    other = run_of(Dichotomies(dimension=3, examples=5), CHANNEL)
    assert "dichotomies" in refused(other, ChannelBucket)
    assert "bce|squared-hinge" in refused(run_of(RELATIONS, CHANNEL), ChannelBucket, loss="hinge")
    for arithmetic in ("tf32", "bf16"):
        assert arithmetic in refused(run_of(RELATIONS, CHANNEL, arithmetic), ChannelBucket)


def test_padded_sizes() -> None:
    assert [next_power_of_two(n) for n in (1, 2, 3, 4, 5, 8, 9, 1000)] == [1, 2, 4, 4, 8, 8, 16, 1024]
    assert [round_up(n, 16) for n in (1, 15, 16, 17, 48)] == [16, 16, 16, 32, 48]
