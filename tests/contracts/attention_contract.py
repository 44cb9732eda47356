"""What every speed of an instrument must do: agree with `keyspan.attention.reference` in value and in gradient.

A speed inherits `ChannelContract` or `LinearContract` and says its device, its arithmetic and its tolerance. Weights go
in and come out in the reference's own layout, so that the suite knows nothing of how a bucket keeps them, except in
`channel_params`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from keyspan.attention import channel, linear, owned, reference
from keyspan.attention.channel import ChannelBucket
from keyspan.attention.instrument import ALIGN, Arrays, Params
from keyspan.attention.linear import LinearBucket
from keyspan.errors import BadInput
from keyspan.lab.recipes import gradient
from keyspan.problems import NoContents, embeddings, graphs
from keyspan.problems.dichotomies import Dichotomies, DichotomyInstance
from keyspan.problems.graphs import Graph
from keyspan.problems.relations import RelationInstance, Relations
from keyspan.seeds import Stream
from keyspan.specs import Channel, LinearUnit, Run, Spec, Stopping

Float = NDArray[np.float64]
Weights = dict[str, Float]


def close(mine: Float, theirs: Float, tolerance: float) -> bool:
    """Do two arrays differ by no more than `tolerance` of their length?"""
    mine, theirs = np.asarray(mine), np.asarray(theirs)
    assert mine.shape == theirs.shape
    return float(np.linalg.norm(mine - theirs)) <= tolerance * float(np.linalg.norm(theirs))


# ------------------------------------------------------------------------------------------------- channels


# What a channel's loss is, by its name in a recipe: value and gradient.
CHANNEL_LOSSES: dict[str, tuple[Callable[..., float], Callable[..., tuple[Float, Float, float]]]] = {
    "bce": (reference.bce, reference.bce_grad),
    "squared-hinge": (reference.channel_hinge, reference.channel_hinge_grad),
    owned.LOSS: (reference.owned_hinge, reference.owned_hinge_grad),
}


@dataclass
class Loaded:
    """Members of one bucket, ready to step. loss: its name    weights: per member, in the reference's layout"""

    loss: str
    bucket: ChannelBucket
    runs: list[Run]
    instances: list[RelationInstance]
    weights: list[Weights]
    params: Params
    batch: Any

    def seen(self, member: int) -> tuple[Any, ...]:
        """What the reference is given before the weights: rows, edges, and owners where the loss knows any."""
        run, i = self.runs[member], self.instances[member]
        assert isinstance(run.instrument, Channel)
        owners = (owned.draw_owners(run, len(i.edges), run.instrument.heads),) if self.loss == owned.LOSS else ()
        return (i.embeddings, i.edges, *owners)

    def reference_value(self, member: int, weights: Weights | None = None) -> float:
        w = self.weights[member] if weights is None else weights
        return CHANNEL_LOSSES[self.loss][0](*self.seen(member), w["w_query"], w["w_key"], float(w["bias"]))

    def reference_grad(self, member: int) -> Weights:
        w = self.weights[member]
        slope = CHANNEL_LOSSES[self.loss][1]
        dq, dk, db = slope(*self.seen(member), w["w_query"], w["w_key"], float(w["bias"]))
        return {"w_query": dq, "w_key": dk, "bias": np.array(db)}

    def answers(self, params: Params, member: int) -> Arrays:
        return self.bucket.answers(params, member, self.runs[member])


def channel_params(bucket: ChannelBucket, runs: Sequence[Run], weights: Sequence[Weights]) -> Params:
    """Weights in the reference's layout -> a bucket's parameters."""
    params = {k: torch.zeros_like(v) for k, v in bucket.init(runs).items()}
    for member, w in enumerate(weights):
        for name in ("w_query", "w_key"):
            heads, d_model, d_key = w[name].shape
            rows = torch.from_numpy(np.ascontiguousarray(w[name].transpose(0, 2, 1)))
            params[name][member, :heads, :d_key, :d_model] = rows.to(params[name])
        params["bias"][member].view(-1)[0] = float(w["bias"])
    return params


def random_weights(run: Run, scale: float, seed: int) -> Weights:
    c, problem = run.instrument, run.problem
    assert isinstance(c, Channel) and isinstance(problem, Relations)
    shape = (2, c.heads, problem.d_model, c.d_key)
    query, key = Stream(run.weights_id, "test", seed).normal(shape) * scale * c.d_key**-0.25
    return {"w_query": query, "w_key": key, "bias": np.array(-0.7 * scale * scale)}


def exact_weights(instance: RelationInstance) -> Weights:
    """One rank-1 head per edge: it holds any graph on unit rows none equal or opposite (`trivial_budget`)."""
    x, (source, target) = instance.embeddings, instance.edges.T
    query, key = x[source][:, :, None], x[target][:, :, None]
    s = reference.aggregate(reference.scores(x, query, key))
    on = s[source, target].min()
    s[source, target] = -np.inf
    assert on > s.max()
    return {"w_query": query, "w_key": key, "bias": np.array(-(on + s.max()) / 2)}


SHAPES = [
    (5, 2, [(1, 1)]),
    (11, 1, [(2, 3), (2, 3)]),
    (13, 7, [(1, 5), (1, 7), (1, 8)]),
    (23, 11, [(3, 2), (4, 2), (3, 2)]),
    (31, 17, [(7, 3), (5, 4), (8, 3), (6, 4)]),
    (47, 19, [(13, 5), (11, 7)]),
    (2 * ALIGN, ALIGN, [(2, 16), (2, 11)]),  # nothing to pad but a key dimension
]
THREE_TILES = 3 * ALIGN - 7  # items that fill two tiles of ALIGN rows and a part of a third


class ChannelContract:
    """Inherited once for every device, arithmetic and loss."""

    device: ClassVar[str]
    arithmetic: ClassVar[str]
    tolerance: ClassVar[float]
    loss: ClassVar[str] = "bce"
    kind: ClassVar[type[ChannelBucket]] = ChannelBucket
    rounding: ClassVar[float] = 0.0  # of a factor, where the arithmetic rounds factors: 2^-8 in bf16, 2^-11 in tf32

    def bucket(self, runs: Sequence[Run]) -> ChannelBucket:
        return self.kind(runs, self.loss, 1.0, -3.0, torch.device(self.device))

    def runs(self, items: int, d_model: int, channels: Sequence[tuple[int, int]]) -> list[Run]:
        """Members of one bucket: graphs of one size, of several families."""
        families = [graphs.permutation(), graphs.erdos_renyi(), graphs.functional(loops=False), graphs.power_law()]
        return [
            Run(
                problem=Relations(items=items, d_model=d_model, graph=families[k % len(families)]),
                replicate=k,
                instrument=Channel(heads=heads, d_key=d_key),
                recipe=gradient(),
                stopping=Stopping(),
                arithmetic=self.arithmetic,
            )
            for k, (heads, d_key) in enumerate(channels)
        ]

    def loaded(self, runs: list[Run], weights: Sequence[Weights] | None = None, scale: float = 1.0) -> Loaded:
        bucket = self.bucket(runs)
        instances = [r.problem.instance(r.problem_id, NoContents()) for r in runs]  # type: ignore[attr-defined]
        batch = bucket.load(runs[0].problem.batch(0, instances), runs)  # type: ignore[attr-defined]
        params = channel_params(bucket, runs, weights or [random_weights(r, scale, 0) for r in runs])
        kept = [dict(bucket.answers(params, k, r)) for k, r in enumerate(runs)]  # rounded, if the arithmetic rounds
        return Loaded(self.loss, bucket, runs, instances, kept, params, batch)

    def assert_reference(self, given: Loaded) -> None:
        value, grads = given.bucket.value_and_grad(given.params, given.batch)
        assert value is not None and value.shape == (len(given.runs),)
        for member in range(len(given.runs)):
            theirs = given.reference_value(member)
            assert abs(float(value[member]) - theirs) <= self.tolerance * abs(theirs)
            mine, gradient_there = given.answers(grads, member), given.reference_grad(member)
            for name in ("w_query", "w_key", "bias"):
                room = self.tolerance + (self.ties(given, member) if name != "bias" else 0.0)
                assert close(mine[name], gradient_there[name], room), (member, name, room)

    def ties(self, given: Loaded, member: int) -> float:
        """How far the gradient may turn because rounding decides which of two heads attains a maximum.

        A pair whose two best heads lie within what the arithmetic rounds may send its slope to either. The slopes of such
        pairs, over all slopes, times sqrt(2): what leaves one head comes to another. Exact arithmetic has no such pair.
        """
        if not self.rounding:
            return 0.0
        w, instance = given.weights[member], given.instances[member]
        scores = np.sort(reference.scores(instance.embeddings, w["w_query"], w["w_key"]), axis=0)
        if len(scores) == 1:
            return 0.0
        z = scores[-1] + float(w["bias"])
        slope = 1.0 / (1.0 + np.exp(-z))
        slope[instance.edges[:, 0], instance.edges[:, 1]] -= 1.0
        q, k = ((instance.embeddings @ w[name]) ** 2 for name in ("w_query", "w_key"))
        error = self.rounding * np.sqrt((q @ k.transpose(0, 2, 1)).max(0))  # of products of rounded factors, as they add up
        near = scores[-1] - scores[-2] < error
        return float(np.sqrt(2.0 * (slope[near] ** 2).sum() / (slope**2).sum()))

    # ------------------------------------------------------------------------------ value and gradient

    @pytest.mark.parametrize("items, d_model, channels", SHAPES)
    def test_value_and_gradient_are_the_reference(self, items: int, d_model: int, channels: list[tuple[int, int]]) -> None:
        self.assert_reference(self.loaded(self.runs(items, d_model, channels)))

    @pytest.mark.parametrize("scale", [1e-3, 0.1, 3.0, 5.0])
    def test_weak_and_strong_weights_are_no_exception(self, scale: float) -> None:
        self.assert_reference(self.loaded(self.runs(23, 11, [(3, 2), (4, 2)]), scale=scale))

    def test_other_graphs_and_rows(self) -> None:
        for graph in (graphs.erdos_renyi(1), graphs.bipartite(61), graphs.regular(5), graphs.erdos_renyi(360)):
            runs = self.runs(19, 23, [(3, 5), (4, 7)])
            for rows in (embeddings.one_hot(), embeddings.sparse(3)):
                problem = Relations(items=19, d_model=23, graph=graph, embeddings=rows)
                self.assert_reference(self.loaded([replace(r, problem=problem) for r in runs]))

    def test_the_gradient_is_the_slope_of_the_reference(self) -> None:
        given = self.loaded(self.runs(13, 7, [(3, 5), (4, 7)]))
        _, grads = given.bucket.value_and_grad(given.params, given.batch)
        step = 1e-6
        for member in range(len(given.runs)):
            w, slope = given.weights[member], given.answers(grads, member)
            for name in ("w_query", "w_key", "bias"):
                way = Stream(name, "direction").normal(w[name].shape)
                up, down = dict(w), dict(w)
                up[name], down[name] = w[name] + step * way, w[name] - step * way
                there = [given.reference_value(member, v) for v in (up, down)]
                measured = (there[0] - there[1]) / (2 * step)
                expected = float((slope[name] * way).sum())
                assert measured == pytest.approx(expected, rel=1e-4, abs=1e-6)

    @pytest.mark.parametrize("items, d_model, channels", SHAPES)
    def test_padding_has_no_gradient(self, items: int, d_model: int, channels: list[tuple[int, int]]) -> None:
        given = self.loaded(self.runs(items, d_model, channels))
        _, grads = given.bucket.value_and_grad(given.params, given.batch)
        for name in ("w_query", "w_key"):
            padding = grads[name].clone()
            for member, (heads, d_key) in enumerate(channels):
                padding[member, :heads, :d_key, :d_model] = 0
            assert int(padding.count_nonzero()) == 0
            assert int(grads["bias"].view(len(channels), -1)[:, 1:].count_nonzero()) == 0
            assert bool(torch.isfinite(grads[name]).all())

    def test_without_the_value_the_gradient_is_the_same(self) -> None:
        given = self.loaded(self.runs(23, 11, [(3, 2), (4, 2)]))
        value, grads = given.bucket.value_and_grad(given.params, given.batch)
        nothing, same = given.bucket.value_and_grad(given.params, given.batch, value=False)
        assert value is not None and nothing is None
        assert set(grads) == set(same) == set(given.params)
        for name, g in grads.items():
            assert torch.equal(g, same[name]) and g.shape == given.params[name].shape

    def test_the_parameters_and_the_batch_are_left_alone(self) -> None:
        given = self.loaded(self.runs(23, 11, [(3, 2), (4, 2)]))
        before = {k: v.clone() for k, v in given.params.items()}
        first, _ = given.bucket.value_and_grad(given.params, given.batch)
        given.bucket.clear(given.params, given.batch, 0.1)
        second, _ = given.bucket.value_and_grad(given.params, given.batch)
        assert first is not None and second is not None and torch.equal(first, second)
        assert all(torch.equal(before[k], given.params[k]) for k in before)

    def test_extreme_weights_stay_finite(self) -> None:
        given = self.loaded(self.runs(23, 11, [(3, 2), (4, 2), (3, 2)]), scale=1e4)
        value, grads = given.bucket.value_and_grad(given.params, given.batch)
        assert value is not None and bool(torch.isfinite(value).all())
        assert all(bool(torch.isfinite(g).all()) for g in grads.values())
        for member in range(3):
            assert float(value[member]) == pytest.approx(given.reference_value(member), rel=1e-4)

    # ------------------------------------------------------------------------------------------- tiles

    @pytest.mark.parametrize("tiles, block", [(3, 1), (2, 1), (1, 1), (1, 2), (1, 3)])
    def test_tiles_change_nothing(self, tiles: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Several tiles of rows of one member, or one tile of several members, the last ones cut short."""
        runs = self.runs(THREE_TILES, 19, [(3, 5), (4, 7), (3, 8), (4, 6), (3, 6)])
        whole = self.loaded(runs)
        row = whole.bucket.heads * whole.bucket.items * whole.bucket.dtype.itemsize
        rows = {3: 1, 2: 2, 1: 3}[tiles] * ALIGN
        monkeypatch.setitem(channel.TILE_BYTES, torch.device(self.device).type, row * rows * block)
        tiled = self.loaded(runs)
        assert (tiled.bucket.items, tiled.bucket.rows, tiled.bucket.block) == (3 * ALIGN, rows, block)
        self.assert_reference(tiled)
        one, grads_one = whole.bucket.value_and_grad(whole.params, whole.batch)
        two, grads_two = tiled.bucket.value_and_grad(tiled.params, tiled.batch)
        assert one is not None and two is not None
        assert torch.allclose(one, two, rtol=self.tolerance, atol=0)
        for name in grads_one:
            assert close(grads_one[name].double().cpu().numpy(), grads_two[name].double().cpu().numpy(), self.tolerance)
        for slack in (0.0, 1e-3):
            assert torch.equal(
                whole.bucket.clear(whole.params, whole.batch, slack),
                tiled.bucket.clear(tiled.params, tiled.batch, slack),
            )

    def test_a_tile_without_an_edge(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(channel.TILE_BYTES, torch.device(self.device).type, 1)
        run = self.runs(THREE_TILES, 19, [(3, 5)])[0]
        problem = Relations(items=THREE_TILES, d_model=19, graph=Graph(name="erdos-renyi", edges=1))
        given = self.loaded([replace(run, problem=problem)])
        assert given.bucket.rows == ALIGN
        self.assert_reference(given)

    # ------------------------------------------------------------------------------------------- clear

    def dense_clear(self, given: Loaded, member: int, slack: float) -> bool:
        w, i = given.weights[member], given.instances[member]
        z = reference.aggregate(reference.scores(i.embeddings, w["w_query"], w["w_key"])) + float(w["bias"])
        on = z[i.edges[:, 0], i.edges[:, 1]].copy()
        z[i.edges[:, 0], i.edges[:, 1]] = -np.inf
        return bool(on.min() > slack and z.max() < -slack)

    def exact_members(self, tile: int | None, monkeypatch: pytest.MonkeyPatch) -> Loaded:
        if tile:
            monkeypatch.setitem(channel.TILE_BYTES, torch.device(self.device).type, tile)
        runs = self.runs(THREE_TILES, 13, [(THREE_TILES, 1)] * 4)
        instances = [r.problem.instance(r.problem_id, NoContents()) for r in runs]  # type: ignore[attr-defined]
        return self.loaded(runs, [exact_weights(i) for i in instances])

    @pytest.mark.parametrize("tile", [None, 1])
    def test_clear_sees_what_a_dense_check_sees(self, tile: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
        midway = self.exact_members(tile, monkeypatch)
        seen = set()
        for shift in (-0.03, 0.0, 0.03):  # a threshold nearer to the edges, midway, nearer to the others
            weights = [w | {"bias": w["bias"] + shift} for w in midway.weights]
            given = self.loaded(midway.runs, weights)
            for slack in (0.0, 0.02, 0.05, 0.3):
                mine = given.bucket.clear(given.params, given.batch, slack).tolist()
                assert mine == [self.dense_clear(given, m, slack) for m in range(4)]
                seen |= {(shift, answer) for answer in mine}
        assert len(seen) == 6

    @pytest.mark.parametrize("tile", [None, 1])
    def test_one_wrong_pair_is_enough(self, tile: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
        given = self.exact_members(tile, monkeypatch)
        assert given.bucket.clear(given.params, given.batch, 1e-3).tolist() == [True] * 4
        weights = [dict(w) for w in given.weights]
        for member, edge in ((1, 0), (2, THREE_TILES - 1)):  # the head of one edge is silenced
            weights[member]["w_query"] = weights[member]["w_query"].copy()
            weights[member]["w_query"][edge] = 0.0
        x = given.instances[3].embeddings
        source, target = given.instances[3].edges[5]
        known = given.instances[3].edges.tolist()
        other = next(j for j in range(THREE_TILES - 1, -1, -1) if j != target and [source, j] not in known)
        weights[3]["w_key"] = weights[3]["w_key"].copy()
        weights[3]["w_key"][5, :, 0] += x[other]  # the head of one edge also fires on a pair that is none
        wrong = self.loaded(given.runs, weights)
        assert wrong.bucket.clear(wrong.params, wrong.batch, 0.0).tolist() == [True, False, False, False]
        assert [self.dense_clear(wrong, m, 0.0) for m in range(4)] == [True, False, False, False]

    def test_random_weights_are_not_clear(self) -> None:
        given = self.loaded(self.runs(23, 11, [(3, 2), (4, 2)]))
        assert given.bucket.clear(given.params, given.batch, 0.0).tolist() == [False, False]

    def test_weights_that_are_no_numbers_are_not_clear(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given = self.exact_members(None, monkeypatch)
        given.params["w_query"][1, 0, 0, 0] = math.nan
        assert given.bucket.clear(given.params, given.batch, 0.0).tolist() == [True, False, True, True]

    # ---------------------------------------------------------------------------------- in and out again

    def test_answers_are_the_weights_without_their_padding(self) -> None:
        runs = self.runs(31, 17, [(7, 3), (5, 4), (8, 3)])
        given = self.loaded(runs)
        for member, run in enumerate(runs):
            sent, back = random_weights(run, 1.0, 0), given.answers(given.params, member)
            assert set(back) == {"w_query", "w_key", "bias"}
            for name in sent:
                assert back[name].dtype == np.float64 and back[name].shape == sent[name].shape
                rounded = sent[name] if self.arithmetic == "fp64" else sent[name].astype(np.float32)
                assert np.array_equal(back[name], rounded.astype(np.float64))

    def test_initial_weights_are_as_the_recipe_says_in_any_company(self) -> None:
        runs = self.runs(31, 17, [(7, 3), (5, 4), (8, 3)])
        bucket = self.bucket(runs)
        together = bucket.init(runs)
        for member, run in enumerate(runs):
            alone = bucket.answers(self.bucket([run]).init([run]), 0, run)
            here = bucket.answers(together, member, run)
            assert all(np.array_equal(alone[k], here[k]) for k in alone)
            assert float(here["bias"]) == -3.0
        wide = self.runs(5, 101, [(8, 32)])
        w = self.bucket(wide).answers(self.bucket(wide).init(wide), 0, wide[0])
        for name in ("w_query", "w_key"):  # N(0, 1/d_k)
            assert abs(w[name].mean()) < 0.005 and w[name].var() == pytest.approx(1 / 32, rel=0.03)
        assert abs(np.corrcoef(w["w_query"].ravel(), w["w_key"].ravel())[0, 1]) < 0.02

    def test_initial_weights_do_not_depend_on_the_recipe(self) -> None:
        run = self.runs(13, 7, [(3, 5)])[0]
        other = replace(run, recipe=gradient(steps=7, peak=0.5), stopping=Stopping(check_every=3))
        one, two = (self.bucket([r]).init([r]) for r in (run, other))
        assert all(torch.equal(one[k], two[k]) for k in one)

    def test_selected_members_go_on_as_they_were(self) -> None:
        given = self.loaded(self.runs(23, 11, [(3, 2), (4, 2), (3, 2), (4, 2)]))
        keep = torch.tensor([3, 1], device=self.device)
        batch = given.bucket.select(given.batch, keep)
        params = {k: v[keep] for k, v in given.params.items()}
        value, grads = given.bucket.value_and_grad(params, batch)
        assert value is not None
        for here, member in enumerate(keep.tolist()):
            assert float(value[here]) == pytest.approx(given.reference_value(member), rel=self.tolerance)
            mine = given.bucket.answers(grads, here, given.runs[member])
            assert close(mine["w_query"], given.reference_grad(member)["w_query"], self.tolerance)


# ---------------------------------------------------------------------------------------------- linear units


class LinearContract:
    device: ClassVar[str]
    arithmetic: ClassVar[str]
    tolerance: ClassVar[float]

    value: ClassVar[dict[str, Any]] = {"squared-hinge": reference.squared_hinge, "bce": reference.logistic}
    slope: ClassVar[dict[str, Any]] = {"squared-hinge": reference.squared_hinge_grad, "bce": reference.logistic_grad}

    def bucket(self, runs: Sequence[Run], loss: str) -> LinearBucket:
        return LinearBucket(runs, loss, 1.0, 0.0, torch.device(self.device))

    def runs(self, dimension: int, examples: Sequence[int]) -> list[Run]:
        return [
            Run(
                problem=Dichotomies(dimension=dimension, examples=t),
                replicate=k,
                instrument=LinearUnit(),
                recipe=gradient(),
                stopping=Stopping(),
                arithmetic=self.arithmetic,
            )
            for k, t in enumerate(examples)
        ]

    def loaded(self, runs: list[Run], loss: str) -> tuple[LinearBucket, list[DichotomyInstance], Any]:
        bucket = self.bucket(runs, loss)
        instances = [r.problem.instance(r.problem_id, NoContents()) for r in runs]  # type: ignore[attr-defined]
        return bucket, instances, bucket.load(runs[0].problem.batch(0, instances), runs)  # type: ignore[attr-defined]

    def params(self, bucket: LinearBucket, runs: list[Run], weights: Sequence[Float]) -> Params:
        params = {"w": torch.zeros_like(bucket.init(runs)["w"])}
        for member, w in enumerate(weights):
            params["w"][member, : len(w)] = torch.from_numpy(w).to(params["w"])
        return params

    @pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
    @pytest.mark.parametrize("loss", linear.LOSSES)
    @pytest.mark.parametrize("dimension, examples", [(2, [5]), (7, [17, 19, 31]), (17, [37, 41]), (53, [97, 101, 103])])
    def test_value_and_gradient_are_the_reference(self, dimension: int, examples: list[int], loss: str, scale: float) -> None:
        runs = self.runs(dimension, examples)
        bucket, instances, batch = self.loaded(runs, loss)
        params = self.params(bucket, runs, [Stream(r.run_id, "w").normal((dimension,)) * scale for r in runs])
        value, grads = bucket.value_and_grad(params, batch)
        nothing, same = bucket.value_and_grad(params, batch, value=False)
        assert value is not None and nothing is None and torch.equal(grads["w"], same["w"])
        for member, (run, i) in enumerate(zip(runs, instances, strict=True)):
            signed, w = i.labels[:, None] * i.points, bucket.answers(params, member, run)["w"]
            theirs = self.value[loss](signed, w)
            assert abs(float(value[member]) - theirs) <= self.tolerance * theirs
            assert close(bucket.answers(grads, member, run)["w"], self.slope[loss](signed, w), self.tolerance)
        assert int(grads["w"][:, dimension:].count_nonzero()) == 0

    def test_clear_is_a_plane_with_room_to_spare(self) -> None:
        runs = self.runs(7, [3, 5, 5])
        bucket, instances, batch = self.loaded(runs, "squared-hinge")
        through: list[Float] = [np.linalg.pinv(i.points) @ i.labels for i in instances]  # every margin is 1
        through[2] = Stream("other", "w").normal((7,))
        params = self.params(bucket, runs, through)
        assert bucket.clear(params, batch, 0.99).tolist() == [True, True, False]
        assert bucket.clear(params, batch, 1.01).tolist() == [False, False, False]
        params["w"][0] = math.nan
        assert bucket.clear(params, batch, 0.5).tolist() == [False, True, False]
        params["w"][1] *= -1
        assert bucket.clear(params, batch, 0.0).tolist() == [False, False, False]

    def test_weights_go_in_and_come_out(self) -> None:
        runs = self.runs(53, [97, 101])
        bucket = self.bucket(runs, "bce")
        params = bucket.init(runs)
        for member, run in enumerate(runs):
            w = bucket.answers(params, member, run)["w"]
            assert w.shape == (53,) and w.dtype == np.float64
            assert np.array_equal(w, bucket.answers(self.bucket([run], "bce").init([run]), 0, run)["w"])
        wide = self.runs(997, [3])
        w = self.bucket(wide, "bce").answers(self.bucket(wide, "bce").init(wide), 0, wide[0])["w"]
        assert w.var() == pytest.approx(1 / 997, rel=0.2)  # N(0, 1/d)

    def test_selected_members_go_on_as_they_were(self) -> None:
        runs = self.runs(7, [17, 19, 23, 29])
        bucket, _, batch = self.loaded(runs, "squared-hinge")
        params = bucket.init(runs)
        value, grads = bucket.value_and_grad(params, batch)
        keep = torch.tensor([2, 0], device=self.device)
        few, few_grads = bucket.value_and_grad({"w": params["w"][keep]}, bucket.select(batch, keep))
        assert value is not None and few is not None
        assert torch.allclose(few, value[keep], rtol=self.tolerance, atol=0)
        assert close(few_grads["w"].double().cpu().numpy(), grads["w"][keep].double().cpu().numpy(), self.tolerance)


# ------------------------------------------------------------------------------------------------- refusals


def refused(run: Run, kind: Callable[..., Any], loss: str = "bce") -> str:
    """The message with which a bucket refuses a run."""
    with pytest.raises(BadInput) as refusal:
        kind([run], loss, 1.0, 0.0, torch.device("cpu"))
    return str(refusal.value)


def run_of(problem: Spec, instrument: Spec, arithmetic: str = "fp32") -> Run:
    return Run(
        problem=problem,
        replicate=0,
        instrument=instrument,
        recipe=gradient(),
        stopping=Stopping(),
        arithmetic=arithmetic,
    )
