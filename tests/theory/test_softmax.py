"""Softmax guarantees against softmaxes that are computed: at the worst scores they allow, and on channels made of weights."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.files.refusals import refused

from keyspan.attention import reference
from keyspan.problems import NoContents
from keyspan.problems.relations import Relations
from keyspan.seeds import Stream
from keyspan.theory import softmax

Float = NDArray[np.float64]
gaps = st.floats(1e-3, 10)
shares = st.floats(1e-6, 0.9)
contexts = st.integers(1, 5000)


def attention(logits: Float) -> Float:
    """Softmax over the last axis."""
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


# --- the worst scores that are allowed ------------------------------------------------------------------------------


@given(gaps, contexts, shares, st.integers(1, 7))
def test_the_certified_temperature_leaves_eps_at_the_worst_scores(gap: float, others: int, eps: float, targets: int) -> None:
    context = others + targets
    beta = softmax.aggregate_beta(gap, context, eps, targets)
    logits = np.concatenate([np.full(targets, 0.3 + gap), np.full(others, 0.3)])
    mass = float(attention(beta * logits)[:targets].sum())
    assert mass >= 1 - eps - 1e-12
    assert mass == pytest.approx(softmax.aggregate_mass(gap, context, beta, targets), abs=1e-12)
    if beta > 0:  # and no smaller temperature would do
        assert softmax.aggregate_mass(gap, context, beta * 0.999, targets) < 1 - eps


@given(gaps, st.integers(1, 300), shares, st.integers(1, 5), st.integers(0, 10**6))
def test_better_scores_only_help(gap: float, others: int, eps: float, targets: int, seed: int) -> None:
    stream = Stream(f"{seed}", "scores")
    logits = np.concatenate([0.3 + gap + stream.uniform(targets), 0.3 - stream.uniform(others)])
    beta = softmax.aggregate_beta(gap, others + targets, eps, targets)
    assert float(attention(beta * logits)[:targets].sum()) >= 1 - eps - 1e-12


@given(gaps, st.floats(0, 50), shares, st.integers(1, 5))
def test_context_and_temperature_are_inverses(gap: float, beta: float, eps: float, targets: int) -> None:
    context = softmax.aggregate_context(gap, beta, eps, targets)
    assert softmax.aggregate_mass(gap, context, beta, targets) >= (1 - eps) * (1 - 1e-9)
    assert softmax.aggregate_mass(gap, context + 2 + context // 10**9, beta, targets) < 1 - eps
    routed = softmax.routed_context(gap / 2, beta, eps, 3)
    if routed:
        assert softmax.routed_error(gap / 2, routed, beta, 3) <= eps * (1 + 1e-9)
    assert softmax.routed_error(gap / 2, routed + 2 + routed // 10**9, beta, 3) > eps


# --- per head, with a null key --------------------------------------------------------------------------------------


def routed(scores: Float, values: Float, tau: float, beta: float) -> tuple[Float, Float]:
    """Heads with a null key each, values summed. scores: (heads, items, L)    returns: output (items, .), attention"""
    null = np.full((*scores.shape[:2], 1), tau)
    mass = attention(beta * np.concatenate([scores, null], axis=2))
    return np.asarray((mass[:, :, :-1] @ values).sum(axis=0)), mass


@given(st.floats(1e-2, 5), st.integers(2, 60), st.integers(1, 9), shares, st.floats(-3, 3))
def test_values_arrive_at_the_worst_scores(half: float, context: int, heads: int, eps: float, tau: float) -> None:
    """Every score as bad as it may be, and values that all pull away from the target's."""
    beta = softmax.routed_beta(half, context, eps, heads)
    scores = np.full((heads, 1, context), tau - half)
    scores[0, 0, 0] = tau + half
    for pull in (-1.0, 1.0):
        values = np.full((context, 1), pull)
        values[0] = -1.0
        out, mass = routed(scores, values, tau, beta)
        assert abs(float(out[0, 0]) + 1.0) <= softmax.routed_error(half, context, beta, heads) <= eps
    assert mass[0, 0, 0] >= softmax.owner_mass(half, context, beta) - 1e-12
    assert mass[0, 0, 0] == pytest.approx(softmax.owner_mass(half, context, beta), abs=1e-9)
    idle = softmax.idle_leak(half, context, beta)
    all_idle = routed(np.full((1, 1, context), tau - half), values, tau, beta)[1][0, 0, :-1].sum()
    assert all_idle == pytest.approx(idle, abs=1e-12)
    assert all(mass[k, 0, :-1].sum() <= idle + 1e-12 for k in range(1, heads))


def one_head_per_edge(items: int, d_model: int) -> tuple[Float, Float, Float, NDArray[np.int64]]:
    instance = Relations(items=items, d_model=d_model).instance("p1", NoContents())
    x, (source, target) = instance.embeddings, instance.edges.T
    return x, x[source][:, :, None], x[target][:, :, None], target


@pytest.mark.parametrize("eps", [0.1, 0.01])
def test_a_channel_made_of_weights(eps: float) -> None:
    """19 items, one head per edge: attention and routed values at the certified temperatures, in all of it and in part."""
    x, wq, wk, target = one_head_per_edge(19, 11)
    s = reference.scores(x, wq, wk)
    best = reference.aggregate(s)
    edge = np.zeros(best.shape, dtype=bool)
    edge[range(19), target] = True
    gap = float(best[edge].min() - best[~edge].max())
    tau = float(best[edge].min() + best[~edge].max()) / 2
    given = softmax.guarantee(gap=gap, context=19, eps=eps, heads=19)
    mass = attention(given.aggregate_beta * best)[range(19), target]
    assert mass.min() >= given.aggregate_mass >= 1 - eps
    values = Stream("v", "values").normal((19, 5))
    size = float(np.linalg.norm(values, axis=1).max())
    out, heads = routed(s, values, tau, given.per_head_beta)
    assert np.linalg.norm(out - values[target], axis=1).max() <= given.routed_error * size <= eps * size
    assert heads[range(19), range(19), target].min() >= given.owner_mass
    for context in (np.arange(7), np.array([3, 8, int(target[3])])):
        inside = np.isin(target[context], context)
        sub = attention(given.aggregate_beta * best[np.ix_(context, context)])
        on = np.array([sub[row, context == target[i]].sum() for row, i in enumerate(context)])
        assert (on[inside] >= 1 - eps).all()


def test_without_a_null_key_idle_heads_drown_the_answer() -> None:
    """docs/mathematics.md: the sink is essential once there is more than one head."""
    x, wq, wk, target = one_head_per_edge(19, 11)
    s = reference.scores(x, wq, wk)
    best = np.sort(s.max(axis=0).ravel())
    tau, gap = float(best[-20:-18].mean()), float(best[-19] - best[-20])
    beta = softmax.routed_beta(gap / 2, 19, 0.01, 19)
    with_null = routed(s, np.eye(19), tau, beta)[0]
    without = attention(beta * s).sum(axis=0)
    assert (with_null.argmax(axis=1) == target).all()
    assert (without.argmax(axis=1) == target).mean() < 0.5


@pytest.mark.parametrize("tau", [0.7, -0.7, 0.0])
def test_a_null_key_is_one_more_dimension(tau: float) -> None:
    query, key = softmax.null_key(tau)
    x, wq, wk, _ = one_head_per_edge(7, 5)
    q = np.concatenate([x @ wq, np.full((7, 7, 1), query)], axis=2)
    k = np.concatenate([np.concatenate([x @ wk, np.zeros((7, 7, 1))], axis=2), np.tile([[[0.0, key]]], (7, 1, 1))], axis=1)
    logits = q @ k.transpose(0, 2, 1)
    assert np.allclose(logits[:, :, -1], tau) and np.allclose(logits[:, :, :-1], reference.scores(x, wq, wk))


# --- exact cases, refusals ------------------------------------------------------------------------------------------


def test_known_numbers() -> None:
    assert softmax.aggregate_beta(1.0, 2, 0.5) == 0.0 and softmax.aggregate_beta(0.5, 1, 0.01) == 0.0
    assert softmax.aggregate_beta(2.0, 101, 0.01) == pytest.approx(math.log(9900) / 2)
    assert softmax.aggregate_mass(1.0, 11, 0.0) == pytest.approx(1 / 11)
    assert softmax.aggregate_beta(1.0, 30, 0.1, 10) == pytest.approx(math.log(2 * 9))
    assert softmax.routed_beta(0.5, 16, 0.1, 4) == pytest.approx(2 * math.log(650))
    assert softmax.routed_error(1.0, 10**6, 0.0, 2) == math.inf
    assert softmax.routed_context(1.0, 0.0, 0.5) == 0
    data = softmax.guarantee(gap=0.5, context=64, eps=0.01, heads=4).to_json()
    assert data["aggregate_mass"] >= 0.99 and data["routed_error"] <= 0.01 and data["context"] == 64


@pytest.mark.parametrize(
    "call, mentions",
    [
        (lambda: softmax.aggregate_beta(0.0, 5, 0.1), ("gap > 0", "0.0")),
        (lambda: softmax.aggregate_beta(math.nan, 5, 0.1), ("gap > 0", "nan")),
        (lambda: softmax.aggregate_beta(math.inf, 5, 0.1), ("gap > 0", "inf")),
        (lambda: softmax.aggregate_beta(1.0, 5, 1.0), ("eps < 1", "1.0")),
        (lambda: softmax.aggregate_beta(1.0, 5, 0.0), ("0 < eps", "0.0")),
        (lambda: softmax.aggregate_beta(1.0, 2, 0.1, 3), ("context >= targets (3)", "2")),
        (lambda: softmax.aggregate_mass(1.0, 5, -1.0), ("beta >= 0", "-1.0")),
        (lambda: softmax.aggregate_context(1.0, 1000.0, 0.1), ("beta * gap", "1000.0")),
        (lambda: softmax.owner_mass(1.0, 0, 1.0), ("context >=", "0")),
        (lambda: softmax.routed_beta(1.0, 5, 0.1, 0), ("heads >= 1", "0")),
        (lambda: softmax.routed_context(1.0, 701.0, 0.1), ("half_gap", "701.0")),
    ],
)
def test_what_guarantees_nothing_is_refused(call: Callable[[], object], mentions: tuple[str, ...]) -> None:
    refused(call, *mentions)
