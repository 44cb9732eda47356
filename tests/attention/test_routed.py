"""Routing in torch: the contract on every device, its spec, and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.contracts.attention_contract import refused, run_of
from tests.contracts.routed_contract import LAYERS, RoutedContract

from keyspan.attention import reference_routed as reference
from keyspan.attention.routed import RoutedBucket
from keyspan.attention.shapes import Routed
from keyspan.errors import BadInput
from keyspan.problems.in_context import InContext
from keyspan.problems.relations import Relations
from keyspan.seeds import Stream
from keyspan.specs import decode


class TestRoutedOnCpuInDouble(RoutedContract):
    device, arithmetic, tolerance = "cpu", "fp64", 1e-11


class TestRoutedOnCpuInSingle(RoutedContract):
    device, arithmetic, tolerance = "cpu", "fp32", 3e-5  # 1 - a loses digits where attention is near 1


@pytest.mark.gpu
class TestRoutedOnGpuInDouble(RoutedContract):
    device, arithmetic, tolerance = "cuda", "fp64", 1e-11


@pytest.mark.gpu
class TestRoutedOnGpuInSingle(RoutedContract):
    device, arithmetic, tolerance = "cuda", "fp32", 3e-5


def test_the_softmax_of_the_reference() -> None:
    """Against sums written out, with places that are closed."""
    layer = Routed(heads=2, d_key=3)
    stream = Stream("routed", "test")
    x, w = stream.normal((5, 4)), {"w_query": stream.normal((2, 4, 3)), "w_key": stream.normal((2, 4, 3))}
    w["sink"] = np.array([0.7, -800.0])
    there = np.array([True, True, False, True, True])
    a = reference.attention(layer, x, w, there)
    for k in range(2):
        for i in range(5):
            each = [math.exp(x[i] @ w["w_query"][k] @ w["w_key"][k].T @ x[j] / math.sqrt(3)) * there[j] for j in range(5)]
            assert a[k, i] == pytest.approx(np.array(each) / (math.exp(w["sink"][k]) + sum(each)), abs=1e-14)
    assert a[1].sum(axis=1) == pytest.approx(1.0) and (a[0].sum(axis=1) < 1.0).all()
    huge = reference.attention(layer, 1e3 * x, w | {"sink": np.array([1e4, 0.0])})
    assert np.isfinite(huge).all()


def test_leaning_is_more_than_half() -> None:
    layer, stream = Routed(heads=3, d_key=2), Stream("routed", "leaning")
    x = 2.0 * stream.normal((6, 4))
    w = {"w_query": stream.normal((3, 4, 2)), "w_key": stream.normal((3, 4, 2)), "sink": stream.normal((3,))}
    more = (reference.attention(layer, x, w) > 0.5).any(axis=0)
    assert np.array_equal(reference.leaning(layer, x, w) > 0, more) and 0 < more.sum() < more.size


def test_sizes() -> None:
    layer = Routed(heads=4, d_key=3, d_value=5, hidden=7)
    assert (layer.key_budget, layer.value_budget) == (12, 20) and layer.scale == 1 / math.sqrt(3)
    assert layer.parameters(11) == 2 * 11 * (12 + 20) + 4 + 2 * 11 * 7 + 7 + 4 * 11
    assert Routed(heads=4, d_key=3, sink=False, temperature=0.5).scale == 2.0
    wide = layer.with_budget(2, 8)
    assert wide == Routed(heads=2, d_key=4, d_value=10, hidden=7) and wide.value_budget == layer.value_budget
    with pytest.raises(BadInput, match="value budget"):
        layer.with_budget(3, 9)
    for pattern, sizes in LAYERS.values():
        made = pattern.with_budget(sizes[0][0], sizes[0][0] * sizes[0][1])
        assert decode(made.to_json()) == made


@pytest.mark.parametrize(
    "wrong, named",
    [
        ({"d_value": -1}, "d_value"),
        ({"hidden": 3}, "d_value > 0"),
        ({"temperature": 0.0}, "temperature"),
        ({"heads": 0}, "heads"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, float], named: str) -> None:
    given = {"heads": 2, "d_key": 3} | wrong
    with pytest.raises(BadInput) as refusal:
        Routed(**given)  # type: ignore[arg-type]
    assert named in str(refusal.value)


def test_what_routing_cannot_do_is_refused() -> None:
    layer, relations = Routed(heads=2, d_key=3), Relations(items=8, d_model=5)
    assert "relations in contexts" in refused(run_of(relations, layer), RoutedBucket)
    shown = InContext(relations=relations, length=4)
    assert "recall" in refused(run_of(shown, layer), RoutedBucket, loss="bce")
    assert "tf32" in refused(run_of(shown, layer, "tf32"), RoutedBucket, loss="recall")
