"""The batched layer: the contract, the plain formulation, examples on the device, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.contracts.attention_contract import refused, run_of
from tests.contracts.layer_contract import CONTEXTS, LayerContract, layer_run, plain_outputs

from keyspan.attention import reference
from keyspan.attention.examples import Examples, Sizes
from keyspan.attention.layer import LayerBucket
from keyspan.attention.softmax import softmax_, softmax_slope_
from keyspan.lab import recipes
from keyspan.problems import NoContents
from keyspan.problems.contexts import LabelInstance, Labels
from keyspan.problems.relations import Relations
from keyspan.seeds import Stream
from keyspan.specs import Channel, Layer


class TestLayerOnCpuInDouble(LayerContract):
    device, arithmetic, tolerance = "cpu", "fp64", 1e-12


class TestLayerOnCpuInSingle(LayerContract):
    device, arithmetic, tolerance = "cpu", "fp32", 1e-5


@pytest.mark.gpu
class TestLayerOnGpuInDouble(LayerContract):
    device, arithmetic, tolerance = "cuda", "fp64", 1e-12


@pytest.mark.gpu
class TestLayerOnGpuInSingle(LayerContract):
    device, arithmetic, tolerance = "cuda", "fp32", 1e-5


# ----------------------------------------------------------------------------------------- the reference itself


def drawn(heads: int = 3, d_head: int = 2, d_value: int = 2, d: int = 5, outputs: int = 4) -> dict[str, np.ndarray]:
    stream = Stream("layer", "weights")
    shapes = {"w_in": (d, d), "b_in": (d,), "w_query": (heads, d, d_head), "w_key": (heads, d, d_head)}
    shapes |= {"w_value": (heads, d, d_value), "w_out": (heads, d_value, d), "w_label": (d, outputs), "b_label": (outputs,)}
    return {name: stream.normal(shape) for name, shape in shapes.items()}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("task", ["classes", "values"])
def test_the_gradient_is_the_slope_of_the_reference(shared: bool, task: str) -> None:
    stream = Stream("layer", task)
    queries, contexts = stream.normal((7, 5)), stream.normal((1 if shared else 7, 3, 5))
    weights = drawn(outputs=4 if task == "classes" else 1)

    def loss(w: dict[str, np.ndarray]) -> float:
        outputs = reference.labels_outputs(w, queries, contexts)
        if task == "classes":
            return reference.cross_entropy(outputs, np.arange(7) % 4)
        return reference.squared_error(outputs, np.linspace(0, 1, 7))

    outputs = reference.labels_outputs(weights, queries, contexts)
    if task == "classes":
        slope = reference.cross_entropy_slope(outputs, np.arange(7) % 4)
    else:
        slope = reference.squared_error_slope(outputs, np.linspace(0, 1, 7))
    grads = reference.labels_grad(weights, queries, contexts, slope)
    for name, gradient in grads.items():
        way = stream.normal(gradient.shape)
        up, down = ({**weights, name: weights[name] + sign * 1e-6 * way} for sign in (1, -1))
        assert (loss(up) - loss(down)) / 2e-6 == pytest.approx(float((gradient * way).sum()), rel=1e-5, abs=1e-8), name


def test_positions_are_sinusoids_of_ten_thousand() -> None:
    p = reference.positions(4, 6)
    assert p[0].tolist() == [0, 1, 0, 1, 0, 1]
    assert p[3, 2] == pytest.approx(np.sin(3 / 10000 ** (2 / 6))) and p[3, 5] == pytest.approx(np.cos(3 / 10000 ** (4 / 6)))
    assert reference.positions(3, 5).shape == (3, 5)


def test_attention_by_hand() -> None:
    """One head, two tokens: weights e^l / (e^l + 1) of the logits' difference."""
    queries, contexts = np.array([[2.0, 0.0]]), np.array([[[1.0, 0.0], [0.0, 3.0]]])
    w_query, w_key = np.array([[[1.0], [0.0]]]), np.array([[[0.5], [0.0]]])
    a = reference.attention(queries, contexts, w_query, w_key, 2.0)
    assert a.shape == (1, 1, 2) and a[0, 0, 0] == pytest.approx(1 / (1 + np.exp(-2.0)))
    z = reference.head_outputs(a, contexts, np.array([[[0.0], [1.0]]]))
    assert z[0, 0, 0] == pytest.approx(3 / (1 + np.exp(2.0)))


# --------------------------------------------------------------------------------------- the plain formulation


@pytest.mark.parametrize("contexts", CONTEXTS)
def test_it_is_the_plain_formulation(contexts: str) -> None:
    """All positions, a broadcast product a head: the same answers and, by autograd, the same gradient."""
    run = layer_run(5, 6, 9, 16, contexts=contexts, arithmetic="fp64", d_model=12)
    bucket = LayerBucket([run], "cross-entropy", 3.0, 0.0, torch.device("cpu"))
    instance = run.problem.instance(run.problem_id, NoContents())  # type: ignore[attr-defined]
    batch = bucket.load(run.problem.batch(0, [instance]), [run])  # type: ignore[attr-defined]
    params = bucket.init([run])
    bucket.turn(batch, {}, [0])
    value, grads = bucket.value_and_grad(params, batch)
    some = instance.order(0, 1)[0][:16]
    tokens = np.broadcast_to(instance.context(some), (16, 9, 12))
    rows = torch.from_numpy(np.concatenate([instance.queries[some, None], tokens], axis=1).astype(np.float64))
    weights = {k: torch.from_numpy(np.array(v)).requires_grad_() for k, v in bucket.answers(params, 0, run).items()}
    loss = torch.nn.functional.cross_entropy(plain_outputs(weights, rows), torch.from_numpy(instance.labels[some]))
    loss.backward()
    assert value is not None and float(value[0]) == pytest.approx(loss.item(), rel=1e-13)
    mine = bucket.answers(grads, 0, run)
    for name, w in weights.items():
        assert w.grad is not None and np.allclose(mine[name], w.grad.numpy(), rtol=1e-11, atol=1e-15), name


# -------------------------------------------------------------------------------------------- softmax and sinks


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("sink", [False, True])
def test_softmax_and_its_slope(dim: int, sink: bool) -> None:
    logits = torch.from_numpy(Stream("softmax", "logits").normal((3, 7, 5)) * 30).requires_grad_()
    null = torch.full((1, 1, 1), 2.5, dtype=torch.float64) if sink else None
    wide = torch.cat([logits, null.expand_as(logits.narrow(dim, 0, 1))], dim) if null is not None else logits
    expected = torch.softmax(wide, dim).narrow(dim, 0, logits.shape[dim])
    mine = softmax_(logits.detach().clone(), dim, null)
    assert torch.allclose(mine, expected, rtol=1e-14, atol=0)
    slope = torch.from_numpy(Stream("softmax", "slope").normal((3, 7, 5)))
    (expected * slope).sum().backward()
    assert logits.grad is not None
    assert torch.allclose(softmax_slope_(mine, slope.clone(), dim), logits.grad, rtol=1e-12, atol=1e-15)


def test_a_closed_token_has_no_weight() -> None:
    logits = torch.tensor([[1.0, 2.0, -torch.inf]])
    assert softmax_(logits, 1)[0, 2] == 0 and float(logits.sum()) == pytest.approx(1.0)


# ------------------------------------------------------------------------------------------- examples on the device


def loaded(instances: list[LabelInstance], which: list[int], batch: int = 4) -> Examples:
    sizes = Sizes(batch, 8, 32, False, torch.device("cpu"), torch.float32)
    return Examples(instances, which, [5] * len(which), sizes)


def instance(examples: int, seed: int) -> LabelInstance:
    return Labels(context=5, d_model=7, examples=examples).instance(f"p{seed}", NoContents())


def test_members_of_one_instance_share_its_examples() -> None:
    one, two = instance(9, 1), instance(6, 2)
    given = loaded([one, two], [0, 1, 0])
    assert given.queries.shape == (15, 32) and given.contexts is not None and given.contexts.shape == (15, 8, 32)
    given.show([0, 0, 1])
    assert given.place[0].tolist() == one.order(0, 1)[0][:4].tolist()
    assert given.place[1].tolist() == (9 + two.order(0, 1)[0][:4]).tolist()
    assert given.place[2].tolist() == one.order(0, 1)[0][4:8].tolist()
    given.show([2, 1, 3])  # what is left of an epoch, and the next one
    assert given.weight.tolist() == [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25] * 4]
    assert given.place[2].tolist() == one.order(1, 1)[0][:4].tolist()


def test_all_examples_in_parts() -> None:
    given = loaded([instance(9, 1), instance(6, 2)], [0, 1])
    seen: dict[int, list[int]] = {0: [], 1: []}
    for first in range(0, 9, 4):
        given.part(first)
        for member in seen:
            seen[member] += given.place[member][given.weight[member] > 0].tolist()
    assert seen == {0: list(range(9)), 1: list(range(9, 15))}


def test_the_pool_is_thinned_out_when_most_of_it_is_nobodys() -> None:
    given = loaded([instance(9, 1), instance(6, 2), instance(20, 3)], [0, 1, 2, 0])
    assert len(given.select([0, 2]).queries) == 35  # still whole
    small = given.select([1, 3])
    assert len(small.queries) == 15 and small.which == [1, 0]
    both = small.join(given.select([3]))
    assert len(both.instances) == 3 or len(both.queries) >= 15
    assert [both.instances[k].load for k in both.which] == [6, 9, 9]


# ----------------------------------------------------------------------------------------------------- refusals


def test_what_a_layer_cannot_do_is_refused() -> None:
    labels = Labels(context=3, d_model=5, examples=7)
    layer = Layer(heads=2, d_key=3)
    with_batch = replace(run_of(labels, layer), recipe=recipes.paper())
    assert "relations" in refused(run_of(Relations(items=7, d_model=5), layer), LayerBucket)
    assert "cross-entropy" in refused(with_batch, LayerBucket, loss="squared-error")
    assert "bare" in refused(replace(with_batch, instrument=replace(layer, embed=False)), LayerBucket, loss="cross-entropy")
    assert "batch" in refused(run_of(labels, layer), LayerBucket, loss="cross-entropy")
    assert "channel" in refused(run_of(labels, Channel(heads=2, d_key=3)), LayerBucket)
    assert "bf16" in refused(replace(with_batch, arithmetic="bf16"), LayerBucket, loss="cross-entropy")


def test_the_start_is_that_of_the_official_code() -> None:
    """Uniform within Xavier's bounds head by head, and 1/sqrt(d) for the maps around the layer."""
    run = layer_run(6, 8, 4, 10, d_model=16)
    bucket = LayerBucket([run], "cross-entropy", 1.0, 0.0, torch.device("cpu"))
    w = bucket.answers(bucket.init([run]), 0, run)
    bounds = {"w_in": 0.25, "b_in": 0.25, "w_label": 0.25, "b_label": 0.25, "w_query": 0.5, "w_key": 0.5}
    bounds |= {"w_value": (6 / 17) ** 0.5, "w_out": (6 / 22) ** 0.5}
    for name, bound in bounds.items():
        most = float(np.abs(w[name]).max())
        assert 0.6 * bound < most <= bound, name
        if w[name].size > 200:
            assert float(w[name].std()) == pytest.approx(bound / 3**0.5, rel=0.15), name
