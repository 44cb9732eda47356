"""Which members share a batch: only those that may, every one of them once, the costliest first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keyspan.lab import recipes
from keyspan.lab.pack import bucket_key, flops, memory, seconds, shards
from keyspan.problems import graphs
from keyspan.problems.dichotomies import Dichotomies
from keyspan.problems.relations import Relations
from keyspan.specs import Channel, LinearUnit, Run, Spec


def channel(heads: int, d_key: int, replicate: int = 0, items: int = 61, steps: int = 100) -> Run:
    return Run(
        problem=Relations(items=items, d_model=17),
        replicate=replicate,
        instrument=Channel(heads=heads, d_key=d_key),
        recipe=recipes.gradient(steps=steps),
        stopping=recipes.DEFAULT_STOPPING,
    )


def linear(examples: int, replicate: int = 0, dimension: int = 7) -> Run:
    return Run(
        problem=Dichotomies(dimension=dimension, examples=examples),
        replicate=replicate,
        instrument=LinearUnit(),
        recipe=recipes.separator(),
        stopping=recipes.SEPARATOR_STOPPING,
        arithmetic="fp64",
    )


FLEET = (
    [channel(h, k, r) for h in (1, 3, 4, 5) for k in (2, 3, 5) for r in range(3)]
    + [channel(2, 2, r, items=m) for m in (29, 131) for r in range(11)]
    + [channel(2, 2, r, steps=1000) for r in range(7)]
    + [linear(t, r) for t in (13, 14, 17, 37) for r in range(5)]
)


@pytest.mark.parametrize("workers", [1, 2, 16, 1000])
def test_every_member_is_in_one_shard(workers: int) -> None:
    parts = shards(FLEET, workers)
    assert sorted(r.run_id for part in parts for r in part) == sorted(r.run_id for r in FLEET)
    assert all(parts)


@pytest.mark.parametrize("workers", [1, 2, 16, 1000])
def test_a_shard_has_one_bucket(workers: int) -> None:
    for part in shards(FLEET, workers):
        assert len({bucket_key(r) for r in part}) == 1


@pytest.mark.parametrize("workers", [1, 2, 16])
def test_the_costliest_shards_come_first(workers: int) -> None:
    costs = [sum(seconds(r) for r in part) for part in shards(FLEET, workers)]
    assert costs == sorted(costs, reverse=True)


def test_more_workers_get_more_shards_until_a_batch_is_not_worth_it() -> None:
    many = [channel(2, 2, r, items=131, steps=2000) for r in range(300)]
    counts = [len(shards(many, w)) for w in (1, 4, 16, 10**6)]
    assert counts == sorted(counts) and 1 <= counts[0] < counts[1]
    assert counts[-1] < 300 and counts[-1] == len(shards(many, 10**9))
    *even, last = sorted((len(p) for p in shards(many, 4)), reverse=True)
    assert len(set(even)) == 1 and last <= even[0]


def test_no_members_no_shards() -> None:
    assert shards([], 2) == []


def test_costly_members_are_alone() -> None:
    big = [channel(8, 8, r, items=2003, steps=2000) for r in range(3)]
    assert [len(p) for p in shards(big, 4)] == [1, 1, 1]


# ------------------------------------------------------------------------------------------------ bucket keys


def test_ragged_members_share_a_bucket_and_others_do_not() -> None:
    base = channel(4, 8)
    assert bucket_key(base) == bucket_key(channel(3, 5)) == bucket_key(channel(3, 8, replicate=7))
    assert bucket_key(base) != bucket_key(channel(5, 8)) and bucket_key(base) != bucket_key(channel(4, 4))
    assert bucket_key(channel(1, 1)) != bucket_key(channel(2, 1))


def test_graphs_of_one_size_share_a_bucket() -> None:
    def key(problem: Spec) -> str:
        return bucket_key(replace(channel(2, 3), problem=problem))

    sparse = Relations(items=61, d_model=17, graph=graphs.erdos_renyi())
    assert (
        key(sparse) == key(Relations(items=61, d_model=17)) == key(Relations(items=61, d_model=17, graph=graphs.functional()))
    )
    assert key(Relations(items=61, d_model=17, graph=graphs.erdos_renyi(62))) != key(sparse)
    assert key(Relations(items=61, d_model=19)) != key(sparse) != key(Relations(items=67, d_model=17))


def test_another_way_of_training_is_another_bucket() -> None:
    base = channel(2, 3)
    others = [
        replace(base, recipe=recipes.gradient(steps=101)),
        replace(base, recipe=recipes.gradient(steps=100, peak=0.01)),
        replace(base, stopping=replace(base.stopping, check_every=7)),
        replace(base, stopping=replace(base.stopping, slack=0.5)),
        replace(base, arithmetic="fp64"),
    ]
    assert len({bucket_key(r) for r in [base, *others]}) == 6


def test_close_numbers_of_examples_share_a_bucket() -> None:
    assert bucket_key(linear(13)) == bucket_key(linear(14, replicate=3))
    assert bucket_key(linear(13)) != bucket_key(linear(131)) and bucket_key(linear(13)) != bucket_key(linear(13, dimension=8))


# ---------------------------------------------------------------------------------------------------- costs


def test_costs_grow_with_what_there_is_to_do() -> None:
    for cost in (flops, seconds, memory):
        base = cost(channel(2, 3))
        assert 0 < base < cost(channel(4, 3)) < cost(channel(4, 7)) < cost(channel(4, 7, items=131))
        assert 0 < cost(linear(13)) < cost(linear(37)) < cost(linear(37, dimension=11))
    assert seconds(channel(2, 3, steps=1000)) > 5 * seconds(channel(2, 3))


def test_the_flops_of_a_channel_are_those_of_its_products() -> None:
    """Scores, two gradients of them: 6 m^2 D_K; queries, keys and their gradients: 8 m d D_K."""
    assert flops(channel(3, 5)) == 6 * 61**2 * 15 + 8 * 61 * 17 * 15
