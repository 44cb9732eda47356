"""The reference against numbers worked out by hand and sums written as loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from keyspan.attention import reference
from keyspan.seeds import Stream

Float = NDArray[np.float64]

ITEMS, D_MODEL, HEADS, D_KEY, EDGES = 7, 5, 3, 2, 11


def case() -> tuple[Float, NDArray[np.int64], Float, Float, float]:
    stream = Stream("reference", "case")
    x = stream.normal((ITEMS, D_MODEL))
    wq, wk = stream.normal((2, HEADS, D_MODEL, D_KEY))
    code = np.sort(stream.subsets(1, ITEMS * ITEMS, EDGES)[0])
    return x, np.stack([code // ITEMS, code % ITEMS], axis=1), wq, wk, -0.7


def test_scores_are_products_of_queries_and_keys() -> None:
    x, _, wq, wk, _ = case()
    s = reference.scores(x, wq, wk)
    assert s.shape == (HEADS, ITEMS, ITEMS)
    for k in range(HEADS):
        for i in range(ITEMS):
            for j in range(ITEMS):
                by_hand = sum(
                    sum(x[i, a] * wq[k, a, c] for a in range(D_MODEL)) * sum(x[j, b] * wk[k, b, c] for b in range(D_MODEL))
                    for c in range(D_KEY)
                )
                assert s[k, i, j] == pytest.approx(by_hand, abs=1e-12)


def test_the_best_head_speaks() -> None:
    s = np.array([[[1.0, -2.0], [3.0, 0.0]], [[0.0, -1.0], [4.0, -5.0]]])
    assert reference.aggregate(s).tolist() == [[1.0, -1.0], [4.0, 0.0]]


def test_softplus_and_sigmoid_at_the_extremes() -> None:
    assert reference.softplus(np.array([0.0])).tolist() == [pytest.approx(math.log(2))]
    assert reference.softplus(np.array([1e4, -1e4])).tolist() == [1e4, 0.0]
    assert reference.sigmoid(np.array([0.0, 1e4, -1e4])).tolist() == [0.5, 1.0, 0.0]
    z = np.linspace(-30, 30, 61)
    assert np.allclose(reference.sigmoid(z), 1 / (1 + np.exp(-z)), rtol=1e-13)
    assert np.allclose(reference.softplus(z), np.log1p(np.exp(z)), rtol=1e-13)


def test_the_loss_is_the_sum_of_the_recipe() -> None:
    x, edges, wq, wk, bias = case()
    z = reference.aggregate(reference.scores(x, wq, wk)) + bias
    total = 0.0
    for i in range(ITEMS):
        for j in range(ITEMS):
            sign = -1 if [i, j] in edges.tolist() else 1
            total += math.log1p(math.exp(sign * z[i, j]))
    assert reference.bce(x, edges, wq, wk, bias) == pytest.approx(total / EDGES, rel=1e-13)


def test_the_squared_hinge_is_the_sum_of_the_shortfalls() -> None:
    x, edges, wq, wk, bias = case()
    z = reference.aggregate(reference.scores(x, wq, wk)) + bias
    total = 0.0
    for i in range(ITEMS):
        for j in range(ITEMS):
            sign = 1 if [i, j] in edges.tolist() else -1
            total += max(0.0, 1 - sign * z[i, j]) ** 2
    assert reference.channel_hinge(x, edges, wq, wk, bias) == pytest.approx(total / EDGES, rel=1e-13)
    far = reference.channel_hinge(x, edges, 0 * wq, wk, 0.0)
    assert far == pytest.approx(ITEMS**2 / EDGES, rel=1e-13)  # at z = 0 every pair misses by 1


def slope(value: float, other: float, step: float) -> float:
    return (value - other) / (2 * step)


LOSSES = [(reference.bce, reference.bce_grad), (reference.channel_hinge, reference.channel_hinge_grad)]


@pytest.mark.parametrize("loss, grad", LOSSES)
def test_the_gradient_is_the_slope_of_the_loss(loss: Any, grad: Any) -> None:
    x, edges, wq, wk, bias = case()
    dq, dk, db = grad(x, edges, wq, wk, bias)
    step = 1e-6
    for index in np.ndindex(wq.shape):
        e = np.zeros_like(wq)
        e[index] = step
        by_query = slope(loss(x, edges, wq + e, wk, bias), loss(x, edges, wq - e, wk, bias), step)
        by_key = slope(loss(x, edges, wq, wk + e, bias), loss(x, edges, wq, wk - e, bias), step)
        assert dq[index] == pytest.approx(by_query, abs=1e-7) and dk[index] == pytest.approx(by_key, abs=1e-7)
    by_bias = slope(loss(x, edges, wq, wk, bias + step), loss(x, edges, wq, wk, bias - step), step)
    assert db == pytest.approx(by_bias, abs=1e-7)


@pytest.mark.parametrize("loss, grad", LOSSES)
def test_heads_that_tie_share_the_gradient_in_full(loss: Any, grad: Any) -> None:
    x, edges, wq, wk, bias = case()
    one_q, one_k, _ = grad(x, edges, wq[:1], wk[:1], bias)
    two_q, two_k, _ = grad(x, edges, wq[[0, 0]], wk[[0, 0]], bias)
    assert np.array_equal(two_q, one_q[[0, 0]]) and np.array_equal(two_k, one_k[[0, 0]])


def test_an_edge_scores_above_the_threshold_and_not_at_it() -> None:
    x = np.eye(2)
    wq, wk = np.eye(2)[None], np.array([[[1.0, 2.0], [3.0, 4.0]]])
    assert reference.aggregate(reference.scores(x, wq, wk)).tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert reference.decisions(x, wq, wk, -2.0).tolist() == [[False, True], [False, True]]
    assert reference.decisions(x, wq, wk, -4.0).any() == np.False_


def test_f1_by_hand() -> None:
    edges = np.array([[0, 1], [1, 1]])
    said = np.array([[True, True], [False, False]])
    assert reference.f1(said, edges) == 2 * 1 / (2 * 1 + 1 + 1)
    assert reference.f1(np.zeros((2, 2), dtype=bool), edges) == 0.0
    assert reference.f1(np.array([[False, True], [False, True]]), edges) == 1.0


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_the_losses_of_a_linear_unit(scale: float) -> None:
    stream = Stream("reference", "linear")
    signed, w = stream.normal((17, 5)), stream.normal((5,)) * scale
    margins = [sum(signed[t, a] * w[a] for a in range(5)) for t in range(17)]
    hinge = sum(max(0.0, 1 - m) ** 2 for m in margins)
    assert reference.squared_hinge(signed, w) == pytest.approx(hinge, rel=1e-13)
    assert reference.logistic(signed, w) == pytest.approx(sum(math.log1p(math.exp(-m)) for m in margins) / 17, rel=1e-12)
    step = 1e-6
    for axis in range(5):
        e = step * np.eye(5)[axis]
        for value, grad in (
            (reference.squared_hinge, reference.squared_hinge_grad),
            (reference.logistic, reference.logistic_grad),
        ):
            assert grad(signed, w)[axis] == pytest.approx(slope(value(signed, w + e), value(signed, w - e), step), rel=1e-5)
