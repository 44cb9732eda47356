"""Channels whose edges have owners: the contract on every device, who owns what, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.contracts.attention_contract import ChannelContract, refused, run_of

from keyspan.attention.owned import LOSS, OwnedChannelBucket, draw_owners
from keyspan.lab.crew import kernel_of, make_bucket
from keyspan.lab.recipes import solver, solver_fixed
from keyspan.problems.relations import Relations
from keyspan.specs import Channel


class TestOwnedOnCpuInDouble(ChannelContract):
    device, arithmetic, tolerance, loss, kind = "cpu", "fp64", 1e-12, LOSS, OwnedChannelBucket


class TestOwnedOnCpuInSingle(ChannelContract):
    device, arithmetic, tolerance, loss, kind = "cpu", "fp32", 1e-5, LOSS, OwnedChannelBucket


@pytest.mark.gpu
class TestOwnedOnGpuInDouble(ChannelContract):
    device, arithmetic, tolerance, loss, kind = "cuda", "fp64", 1e-12, LOSS, OwnedChannelBucket


RUN = run_of(Relations(items=11, d_model=5), Channel(heads=3, d_key=2), "fp64")


def test_every_head_owns_as_many_edges_as_any_other_give_or_take_one() -> None:
    counts = np.bincount(draw_owners(RUN, 11, 3), minlength=3)
    assert sorted(counts) == [3, 4, 4]
    assert np.bincount(draw_owners(RUN, 2, 3), minlength=3).max() == 1


def test_owners_are_drawn_from_the_instance_the_architecture_and_the_draw() -> None:
    mine = draw_owners(RUN, 200, 3)
    assert np.array_equal(mine, draw_owners(replace(RUN, recipe=solver_fixed(steps=7)), 200, 3))
    assert not np.array_equal(mine, draw_owners(replace(RUN, replicate=1), 200, 3))
    assert not np.array_equal(mine, draw_owners(replace(RUN, recipe=replace(solver_fixed(), draw=1)), 200, 3))
    assert len(set(mine.tolist())) == 3 and not np.array_equal(mine, np.arange(200) % 3)


def test_the_recipe_says_which_bucket_it_trains_in() -> None:
    cpu = torch.device("cpu")
    assert isinstance(make_bucket([replace(RUN, recipe=solver_fixed())], cpu), OwnedChannelBucket)
    assert not isinstance(make_bucket([replace(RUN, recipe=solver())], cpu), OwnedChannelBucket)
    assert kernel_of(replace(RUN, recipe=solver_fixed()), cpu) == "torch"


def test_another_loss_is_refused() -> None:
    assert LOSS in refused(RUN, OwnedChannelBucket, loss="bce")


def test_a_batch_without_owners_is_refused() -> None:
    bucket = make_bucket([replace(RUN, recipe=solver_fixed())], torch.device("cpu"))
    free = make_bucket([replace(RUN, recipe=solver())], torch.device("cpu"))
    instance = RUN.problem.instance(RUN.problem_id, None)  # type: ignore[attr-defined]
    batch = free.load(RUN.problem.batch(0, [instance]), [RUN])  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="who owns"):
        bucket.select(batch, torch.tensor([0]))
