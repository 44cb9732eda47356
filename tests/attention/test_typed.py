"""Channels with types: value and gradient are the reference's, whoever shares what; what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.contracts.attention_contract import close

from keyspan.attention import channel, reference
from keyspan.attention.instrument import ALIGN, Params
from keyspan.attention.typed import LEAN, TypedBucket
from keyspan.errors import BadInput
from keyspan.lab.recipes import Recipe, gradient, hinge
from keyspan.problems import NoContents, graphs
from keyspan.problems.relations import Relations
from keyspan.problems.typed import SHARING, TypedChannel, TypedInstance, TypedRelations
from keyspan.seeds import Stream
from keyspan.specs import Channel, Run, Stopping

CPU = torch.device("cpu")
Float = NDArray[np.float64]
LOSSES: dict[str, tuple[Recipe, list[Callable[[Float], Float]], list[Callable[[Float], Float]]]] = {
    "bce": (
        gradient(),
        [lambda z: reference.softplus(-z), reference.softplus],
        [lambda z: np.asarray(reference.sigmoid(z) - 1.0), reference.sigmoid],
    ),
    "squared-hinge": (
        hinge(),
        [lambda z: np.asarray(np.maximum(0, 1 - z) ** 2), lambda z: np.asarray(np.maximum(0, 1 + z) ** 2)],
        [lambda z: np.asarray(-2 * np.maximum(0, 1 - z)), lambda z: np.asarray(2 * np.maximum(0, 1 + z))],
    ),
}


def runs_of(sharing: str, recipe: Recipe, items: int, types: int, d_model: int = 11) -> list[Run]:
    """Members of one bucket: graphs of three families, ragged in heads and d_key."""
    families = [graphs.permutation(), graphs.erdos_renyi(), graphs.power_law()]
    shapes = [(3 * types, 5), (2 * types + 2 * types, 7), (3 * types, 6)]
    return [
        Run(
            problem=TypedRelations(items=items, d_model=d_model, types=types, graph=family),
            replicate=seed,
            instrument=TypedChannel(heads=h, d_key=k, sharing=sharing),
            recipe=recipe,
            stopping=Stopping(),
            arithmetic="fp64",
        )
        for seed, (family, (h, k)) in enumerate(zip(families, shapes, strict=True))
    ]


def instances_of(runs: Sequence[Run]) -> list[TypedInstance]:
    return [r.problem.instance(r.problem_id, NoContents()) for r in runs]  # type: ignore[attr-defined]


def typed(run: Run) -> tuple[TypedRelations, TypedChannel]:
    assert isinstance(run.problem, TypedRelations) and isinstance(run.instrument, TypedChannel)
    return run.problem, run.instrument


def weights_of(run: Run) -> tuple[Float, Float, Float]:
    """Random weights; where heads are a type's own, one threshold a type and -inf elsewhere."""
    problem, instrument = typed(run)
    stream = Stream(run.weights_id, "test")
    query, key = stream.normal((2, instrument.heads, problem.d_model, instrument.d_key)) * instrument.d_key**-0.25
    gates = stream.normal((problem.types, instrument.heads)) - 0.7
    if instrument.sharing == "partitioned":
        own = np.full_like(gates, -np.inf)
        for t in range(problem.types):
            own[t, instrument.own(t, problem.types)] = gates[t, 0]
        gates = own
    return query, key, gates


def params_of(bucket: TypedBucket, runs: Sequence[Run]) -> Params:
    params = {k: torch.zeros_like(v) for k, v in bucket.init(runs).items()}
    for member, run in enumerate(runs):
        problem, instrument = typed(run)
        query, key, gates = weights_of(run)
        for name, w in (("w_query", query), ("w_key", key)):
            rows = torch.from_numpy(np.ascontiguousarray(w.transpose(0, 2, 1)))
            params[name][member, : instrument.heads, : instrument.d_key, : problem.d_model] = rows
        if instrument.sharing == "partitioned":
            params["gates"][member, : problem.types] = torch.from_numpy(gates.max(axis=1))
        else:
            room = params["gates"][member, : problem.types * bucket.heads].view(problem.types, bucket.heads)
            room[:, : instrument.heads] = torch.from_numpy(gates)
    return params


@pytest.mark.parametrize("sharing", SHARING)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("items, types, tile", [(23, 3, None), (13, 2, None), (3 * ALIGN - 7, 3, 1)])
def test_value_and_gradient_are_the_reference(
    sharing: str, loss: str, items: int, types: int, tile: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tile:
        monkeypatch.setitem(channel.TILE_BYTES, "cpu", tile)
    recipe, values, slopes = LOSSES[loss]
    runs = runs_of(sharing, recipe, items, types)
    bucket = TypedBucket(runs, loss, 1.0, -3.0, CPU)
    instances = instances_of(runs)
    batch = bucket.load(runs[0].problem.batch(0, instances), runs)  # type: ignore[attr-defined]
    params = params_of(bucket, runs)
    value, grads = bucket.value_and_grad(params, batch)
    nothing, same = bucket.value_and_grad(params, batch, value=False)
    assert value is not None and nothing is None and all(torch.equal(grads[k], same[k]) for k in grads)
    for member, (run, i) in enumerate(zip(runs, instances, strict=True)):
        w = weights_of(run)
        theirs = reference.typed_loss(i.embeddings, i.edges, *w, *values)
        assert float(value[member]) == pytest.approx(theirs, rel=1e-12)
        dq, dk, dg = reference.typed_grad(i.embeddings, i.edges, *w, *slopes)
        mine = bucket.answers(grads, member, run)
        problem, instrument = typed(run)
        if sharing == "partitioned":  # one threshold a type: its slope stands at every one of its heads
            for t in range(types):
                dg[t, instrument.own(t, types)] = dg[t, instrument.own(t, types)].sum()
        assert close(mine["w_query"], dq, 1e-12) and close(mine["w_key"], dk, 1e-12) and close(mine["gates"], dg, 1e-12)
        assert problem.edges == i.load == types * i.edges.shape[1]


def test_the_slope_of_the_reference_is_that_of_its_loss() -> None:
    """By central differences, gates included."""
    (run, *_) = runs_of("shared", gradient(), 7, 2, d_model=3)
    (i,) = instances_of([run])
    w = list(weights_of(run))
    _, values, slopes = LOSSES["bce"]
    grads = reference.typed_grad(i.embeddings, i.edges, w[0], w[1], w[2], *slopes)
    for which, grad in enumerate(grads):
        for at in [(0,) * w[which].ndim, tuple(n - 1 for n in w[which].shape)]:
            ends = []
            for step in (1e-6, -1e-6):
                moved = [x.copy() for x in w]
                moved[which][at] += step
                ends.append(reference.typed_loss(i.embeddings, i.edges, moved[0], moved[1], moved[2], *values))
            assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(grad[at], rel=1e-5, abs=1e-9)


def test_heads_of_their_own_are_a_channel_for_each_type() -> None:
    """The loss is the mean of the channels' losses."""
    (run, *_) = runs_of("partitioned", gradient(), 23, 2)
    (i,) = instances_of([run])
    problem, instrument = typed(run)
    query, key, gates = weights_of(run)
    bucket = TypedBucket([run], "bce", 1.0, -3.0, CPU)
    value, _ = bucket.value_and_grad(params_of(bucket, [run]), bucket.load(problem.batch(0, [i]), [run]))
    alone = []
    for t in range(2):
        own = instrument.own(t, 2)
        alone.append(reference.bce(i.embeddings, i.edges[t], query[own], key[own], float(gates[t, own][0])))
    assert value is not None and float(value[0]) == pytest.approx(np.mean(alone), rel=1e-12)


@pytest.mark.parametrize("sharing", SHARING)
def test_clear_is_every_triple_right(sharing: str) -> None:
    """One rank-1 head for every edge of every type, each gate shut to the heads of others."""
    items, types = 19, 2
    run = runs_of(sharing, gradient(), items, types, d_model=23)[0]
    run = replace(run, instrument=TypedChannel(heads=types * items, d_key=1, sharing=sharing))
    (i,) = instances_of([run])
    x = i.embeddings
    bucket = TypedBucket([run], "bce", 1.0, -3.0, CPU)
    batch = bucket.load(run.problem.batch(0, [i]), [run])  # type: ignore[attr-defined]
    params = {k: torch.zeros_like(v) for k, v in bucket.init([run]).items()}
    source, target = i.edges[..., 0].reshape(-1), i.edges[..., 1].reshape(-1)
    for name, which in (("w_query", source), ("w_key", target)):
        params[name][0, : types * items, 0, : x.shape[1]] = torch.from_numpy(x[which])
    s = reference.scores(x, x[source][:, :, None], x[target][:, :, None]).reshape(types, items, items, items).max(axis=1)
    t, a, b = np.arange(types)[:, None], i.edges[..., 0], i.edges[..., 1]
    on = s[t, a, b].min()
    s[t, a, b] = -np.inf
    middle = (on + s.max()) / 2
    if sharing == "partitioned":
        params["gates"][0, :types] = -middle
    else:
        gates = params["gates"][0, : types * bucket.heads].view(types, bucket.heads)
        gates.fill_(-100.0)
        for k in range(types):
            gates[k, k * items : (k + 1) * items] = -middle
    room = (on - s.max()) / 2
    assert bucket.clear(params, batch, 0.9 * room).tolist() == [True]
    assert bucket.clear(params, batch, 1.1 * room).tolist() == [False]
    params["w_query"][0, 3] = 0.0
    assert bucket.clear(params, batch, 0.0).tolist() == [False]


def test_gates_begin_as_they_should() -> None:
    for sharing in SHARING:
        run = runs_of(sharing, gradient(), 13, 2)[0]
        bucket = TypedBucket([run], "bce", 1.0, -3.0, CPU)
        begun = bucket.answers(bucket.init([run]), 0, run)
        problem, instrument = typed(run)
        expected = np.full((2, instrument.heads), {"shared": -3.0, "partitioned": 0.0, "leaning": -3.0 - LEAN}[sharing])
        for t in range(2):
            expected[t, instrument.own(t, 2)] = -3.0
        assert np.array_equal(begun["gates"], expected)
        plain = Run(
            problem=problem.each,
            replicate=0,
            instrument=instrument.channel,
            recipe=gradient(),
            stopping=Stopping(),
            arithmetic="fp64",
        )
        assert plain.weights_id != run.weights_id


def test_members_that_stay_and_join_are_as_they_were() -> None:
    runs = runs_of("shared", gradient(), 23, 3)
    bucket = TypedBucket(runs, "bce", 1.0, -3.0, CPU)
    batch = bucket.load(runs[0].problem.batch(0, instances_of(runs)), runs)  # type: ignore[attr-defined]
    params = params_of(bucket, runs)
    whole, _ = bucket.value_and_grad(params, batch)
    keep = torch.tensor([2, 0])
    few = bucket.select(batch, keep)
    back = bucket.join(few, bucket.select(batch, torch.tensor([1])))
    order = torch.tensor([2, 0, 1])
    again, _ = bucket.value_and_grad({k: v[order] for k, v in params.items()}, back)
    assert whole is not None and again is not None and torch.equal(again, whole[order])


def test_what_is_refused() -> None:
    run = runs_of("partitioned", gradient(), 13, 3)[0]
    odd = replace(run, instrument=TypedChannel(heads=4, d_key=2))
    with pytest.raises(BadInput, match=r"--types` divides `--heads`.*got 4. Use 6 heads"):
        TypedBucket([odd], "bce", 1.0, -3.0, CPU)
    plain: Any = replace(run, problem=Relations(items=13, d_model=11), instrument=Channel(heads=3, d_key=2))
    with pytest.raises(BadInput, match="typed relations"):
        TypedBucket([plain], "bce", 1.0, -3.0, CPU)
    with pytest.raises(BadInput, match=r"partitioned\|shared\|leaning"):
        TypedChannel(heads=4, d_key=2, sharing="mine")
