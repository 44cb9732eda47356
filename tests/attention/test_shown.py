"""Channels that are not shown all pairs at every step: value and gradient on what is in view, and who sees what when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.contracts.attention_contract import channel_params, close, random_weights
from tests.lab.test_fleet import channel_run

from keyspan.attention import channel, reference
from keyspan.attention.channel import ChannelBucket
from keyspan.attention.growing import GrowingBucket
from keyspan.attention.instrument import ALIGN
from keyspan.attention.sampled import SampledBucket
from keyspan.errors import BadInput
from keyspan.lab.crew import make_bucket
from keyspan.lab.recipes import Recipe, gradient, hinge, showing
from keyspan.problems import NoContents, graphs
from keyspan.problems.relations import RelationInstance, Relations
from keyspan.problems.shown import CHUNK, batch_of, contexts
from keyspan.specs import Run, Stopping

CPU = torch.device("cpu")
CHANNELS = [(3, 2), (4, 2), (3, 2)]
FAMILIES = [graphs.permutation(), graphs.erdos_renyi(), graphs.power_law()]


def runs_of(recipe: Recipe, items: int = 23, d_model: int = 11) -> list[Run]:
    """Members of one bucket, on graphs of three families with as many edges."""
    stopping = Stopping(check_every=5)
    made = [channel_run(h, k, seed, recipe=recipe, arithmetic="fp64") for seed, (h, k) in enumerate(CHANNELS)]
    problems = [Relations(items=items, d_model=d_model, graph=graph) for graph in FAMILIES]
    return [replace(r, problem=p, stopping=stopping) for r, p in zip(made, problems, strict=True)]


def instances_of(runs: Sequence[Run]) -> list[RelationInstance]:
    return [r.problem.instance(r.problem_id, NoContents()) for r in runs]  # type: ignore[attr-defined]


def expected(
    instance: RelationInstance, w: dict[str, NDArray[np.float64]], loss: str, weights: NDArray[np.float64]
) -> tuple[float, dict[str, Any]]:
    """Loss and gradient with a weight for every pair. weights: (items, items)"""
    x, (i, j) = instance.embeddings, instance.edges.T
    s = reference.scores(x, w["w_query"], w["w_key"])
    z = reference.aggregate(s) + float(w["bias"])
    if loss == "bce":
        each, g = reference.softplus(z), reference.sigmoid(z)
        each[i, j] -= z[i, j]
        g[i, j] -= 1.0
    else:
        each, g = np.maximum(0, 1 + z) ** 2, 2 * np.maximum(0, 1 + z)
        each[i, j], g[i, j] = np.maximum(0, 1 - z[i, j]) ** 2, -2 * np.maximum(0, 1 - z[i, j])
    g = g * weights
    routed = np.where(s == reference.aggregate(s), g, 0.0)
    d_query = x.T @ (routed @ (x @ w["w_key"]))
    d_key = x.T @ (routed.transpose(0, 2, 1) @ (x @ w["w_query"]))
    return float((each * weights).sum()), {"w_query": d_query, "w_key": d_key, "bias": np.array(g.sum())}


def check(bucket: ChannelBucket, runs: list[Run], batch: Any, weights: Sequence[NDArray[np.float64]], loss: str) -> None:
    """A bucket's value and gradient against the reference with these weights of pairs, member by member."""
    given = [random_weights(run, 1.0, 3) for run in runs]
    params = channel_params(bucket, runs, given)
    value, grads = bucket.value_and_grad(params, batch)
    nothing, same = bucket.value_and_grad(params, batch, value=False)
    assert value is not None and nothing is None and all(torch.equal(grads[k], same[k]) for k in grads)
    for member, (run, instance) in enumerate(zip(runs, instances_of(runs), strict=True)):
        theirs, slope = expected(instance, given[member], loss, weights[member])
        assert float(value[member]) == pytest.approx(theirs, rel=1e-12)
        mine = bucket.answers(grads, member, run)
        assert all(close(mine[k], slope[k], 1e-12) for k in slope)


# --- sampled contexts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("items, size", [(23, 7), (23, 23), (23, 2), (3 * ALIGN - 5, ALIGN), (3 * ALIGN - 5, 2 * ALIGN + 1)])
@pytest.mark.parametrize("make, loss", [(gradient, "bce"), (hinge, "squared-hinge")])
@pytest.mark.parametrize("tile", [None, 1])
def test_a_context_is_a_small_problem(
    items: int, size: int, make: Any, loss: str, tile: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pairs within each member's context of its own step, over the edges that a context has on average."""
    if tile:
        monkeypatch.setitem(channel.TILE_BYTES, "cpu", tile)
    runs = runs_of(showing(make(steps=200), contexts=size), items)
    bucket = make_bucket(runs, CPU)
    assert isinstance(bucket, SampledBucket) and not bucket.static
    batch = bucket.load(runs[0].problem.batch(0, instances_of(runs)), runs)  # type: ignore[attr-defined]
    for steps in ([0, 1, 70], [CHUNK, 0, 3 * CHUNK - 1]):
        bucket.turn(batch, {}, steps)
        weights = []
        for run, step in zip(runs, steps, strict=True):
            here = np.zeros(items)
            here[contexts(run.problem_id, step // CHUNK, items, size)[step % CHUNK]] = 1.0
            weights.append(np.outer(here, here) / (items * (size / items) ** 2))
        check(bucket, runs, batch, weights, loss)


def test_contexts_are_of_the_instance_and_the_step() -> None:
    """Each step another context, the same for whoever shares the instance; items are in it equally often."""
    first = contexts("p1", 0, 29, 11)
    assert first.shape == (CHUNK, 11) and (np.diff(first, axis=1) > 0).all()
    assert len(np.unique(first, axis=0)) == CHUNK
    assert (first == contexts("p1", 0, 29, 11)).all()
    assert (first != contexts("p2", 0, 29, 11)).any() and (first != contexts("p1", 1, 29, 11)).any()
    seen = np.bincount(np.concatenate([contexts("p", k, 29, 11) for k in range(40)]).reshape(-1), minlength=29)
    assert np.abs(seen / seen.mean() - 1).max() < 0.1


def test_the_whole_problem_decides_who_holds_it() -> None:
    """Weights that hold a context and no more are not clear."""
    runs = runs_of(showing(gradient(steps=200), contexts=7))
    bucket = make_bucket(runs, CPU)
    plain = make_bucket([replace(r, recipe=gradient(steps=200)) for r in runs], CPU)
    data = runs[0].problem.batch(0, instances_of(runs))  # type: ignore[attr-defined]
    batch, whole = bucket.load(data, runs), plain.load(data, runs)
    bucket.turn(batch, {}, [0, 0, 0])
    params = bucket.init(runs)
    params["bias"].fill_(-1e6)
    assert torch.equal(bucket.clear(params, batch, 0.0), plain.clear(params, whole, 0.0))
    assert not bucket.clear(params, batch, 0.0).any()


def test_members_that_stay_and_join_see_their_own() -> None:
    runs = runs_of(showing(gradient(steps=200), contexts=7))
    bucket = make_bucket(runs, CPU)
    batch = bucket.load(runs[0].problem.batch(0, instances_of(runs)), runs)  # type: ignore[attr-defined]
    bucket.turn(batch, {}, [4, 5, 6])
    keep = torch.tensor([2, 0])
    few = bucket.select(batch, keep)
    back = bucket.join(few, bucket.select(batch, torch.tensor([1])))
    order = [runs[2], runs[0], runs[1]]
    bucket.turn(back, {}, [6, 4, 5])
    assert torch.equal(back.inside.x, batch.inside.x[torch.tensor([2, 0, 1])])
    assert isinstance(bucket, ChannelBucket)
    given = [random_weights(run, 1.0, 3) for run in order]
    value, _ = bucket.value_and_grad(channel_params(bucket, order, given), back)
    before, _ = bucket.value_and_grad(channel_params(bucket, runs, [given[i] for i in (1, 2, 0)]), batch)
    assert value is not None and before is not None and torch.equal(value, before[torch.tensor([2, 0, 1])])


# --- batches of rows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("make, loss", [(gradient, "bce"), (hinge, "squared-hinge")])
@pytest.mark.parametrize("tile", [None, 1])
def test_a_phase_is_the_rows_in_view(
    replay: bool, make: Any, loss: str, tile: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tile:
        monkeypatch.setitem(channel.TILE_BYTES, "cpu", tile)
    items = 2 * ALIGN + 3
    recipe = showing(make(steps=30), batches=3, replay=replay)
    assert [p.steps for p in recipe.phases] == [50, 50, 50]  # type: ignore[attr-defined]
    runs = runs_of(recipe, items)
    bucket = make_bucket(runs, CPU)
    assert isinstance(bucket, GrowingBucket)
    instances = instances_of(runs)
    batch = bucket.load(runs[0].problem.batch(0, instances), runs)  # type: ignore[attr-defined]
    memory = bucket.memory(runs)
    memory["turns"] += torch.tensor([0, 50, 149])  # members in the first, the second and the third phase
    bucket.turn(batch, memory, [0, 0, 49])
    weights = []
    for run, instance, phase in zip(runs, instances, range(3), strict=True):
        owner = batch_of(run.problem_id, items, 3)
        seen = owner <= phase if replay else owner == phase
        edges = seen[instance.edges[:, 0]].sum()
        weights.append(np.repeat(seen[:, None] / edges, items, axis=1))
    check(bucket, runs, batch, weights, loss)
    assert memory["turns"].tolist() == [1, 51, 150]


def test_batches_share_the_rows_equally() -> None:
    owner = batch_of("p", 23, 4)
    assert sorted(np.bincount(owner)) == [5, 6, 6, 6]
    assert (owner == batch_of("p", 23, 4)).all() and (owner != batch_of("q", 23, 4)).any()


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more, mentions",
    [
        ({"contexts": 1}, ("--contexts >= 2", "1")),
        ({"batches": 1}, ("--batches >= 2", "1")),
        ({"replay": True}, ("--replay", "--batches")),
        ({"contexts": 5, "batches": 2}, ("--contexts", "left out", "5")),
    ],
)
def test_what_cannot_be_shown_is_refused(more: dict[str, Any], mentions: tuple[str, ...]) -> None:
    with pytest.raises(BadInput) as refusal:
        showing(gradient(), **more)
    assert all(m in str(refusal.value) for m in mentions), refusal.value


@pytest.mark.parametrize("more, mentions", [({"contexts": 24}, "--contexts <= 23"), ({"batches": 24}, "--batches <= 23")])
def test_more_than_there_is_is_refused(more: dict[str, Any], mentions: str) -> None:
    with pytest.raises(BadInput, match=mentions):
        make_bucket(runs_of(showing(gradient(), **more)), CPU)


def test_phases_that_no_look_ends_are_refused() -> None:
    runs = [replace(r, stopping=Stopping(check_every=7)) for r in runs_of(showing(gradient(), batches=2))]
    with pytest.raises(BadInput, match="number of looks"):
        make_bucket(runs, CPU)


def test_a_recipe_of_batches_has_a_phase_for_each() -> None:
    recipe = showing(gradient(), batches=4)
    with pytest.raises(BadInput, match="a phase for each"):
        replace(recipe, phases=recipe.phases[:3])
