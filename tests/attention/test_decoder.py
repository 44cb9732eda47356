"""Batched decoders against the reference; who moves when one token is another; and equal bits in any company."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.contracts.decoder_contract import PLAIN, VARIANTS, DecoderContract, loaded, moved, named, run_of

from keyspan.attention import reference_decoder as reference
from keyspan.attention.decoder import DecoderBucket
from keyspan.decoders import Decoder, layout, parameters
from keyspan.errors import BadInput
from keyspan.lab.crew import make_bucket
from keyspan.seeds import Stream

Tokens = NDArray[np.int64]
Scores = Callable[[Tokens], NDArray[np.float64]]  # (members, sequences, N) -> (members, sequences, N, V)


class TestDouble(DecoderContract):
    device, arithmetic, tolerance = "cpu", "fp64", 1e-11


class TestSingle(DecoderContract):
    device, arithmetic, tolerance = "cpu", "fp32", 1e-4


@pytest.mark.gpu
class TestDoubleOnGpu(DecoderContract):
    device, arithmetic, tolerance = "cuda", "fp64", 1e-11


@pytest.mark.gpu
class TestSingleOnGpu(DecoderContract):
    device, arithmetic, tolerance = "cuda", "fp32", 1e-4


# ------------------------------------------------------------------------------------------------- who moves


def reach(decoder: Decoder, length: int) -> NDArray[np.bool_]:
    """Which positions a token can move, through all layers: (token that changes, position whose scores move)"""
    seen = reference.visible(decoder, length).astype(int)
    total = np.eye(length, dtype=int)
    for _ in range(decoder.layers):
        total = np.minimum(seen @ total, 1)
    return total.T.astype(bool)


def movers(scores: Scores, tokens: Tokens, at: tuple[int, int, int], vocabulary: int) -> NDArray[np.bool_]:
    """Change one token and see whose scores move at all. at: (member, sequence, position)    returns: as tokens"""
    other = tokens.copy()
    other[at] = (other[at] + 1) % vocabulary
    moved: NDArray[np.bool_] = (scores(tokens) != scores(other)).any(axis=-1)
    return moved


def scores_of(decoder: Decoder, members: int = 2) -> tuple[Scores, int]:
    runs = [run_of(decoder, seed, arithmetic="fp64") for seed in range(members)]
    bucket = make_bucket(runs, torch.device("cpu"))
    assert isinstance(bucket, DecoderBucket)
    batch, params = loaded(bucket, runs), moved(bucket.init(runs), 1)
    return lambda tokens: bucket.scores(params, batch, torch.from_numpy(tokens)).numpy(), bucket.problem.vocabulary


def assert_only_those_who_may_move(scores: Scores, decoder: Decoder, vocabulary: int, members: int = 2) -> None:
    tokens = Stream("who", "moves").integers(vocabulary, members * 3 * 8).reshape(members, 3, 8)
    for position in range(8):
        expected = np.zeros(tokens.shape, dtype=bool)
        expected[1, 2] = reach(decoder, 8)[position]
        assert (movers(scores, tokens, (1, 2, position), vocabulary) == expected).all(), position


@pytest.mark.parametrize("decoder", VARIANTS, ids=named)
def test_a_token_moves_its_own_sequence_from_there_on_and_nothing_else(decoder: Decoder) -> None:
    """Causality and the batch axis at once: exactly those positions move that may look at the token, in that sequence."""
    scores, vocabulary = scores_of(decoder)
    assert_only_those_who_may_move(scores, decoder, vocabulary)


def test_attention_over_the_batch_axis_is_found() -> None:
    """A published program had its axes swapped: sequences looked at each other, and not at their own tokens."""
    scores, vocabulary = scores_of(PLAIN)
    swapped: Scores = lambda tokens: scores(tokens.swapaxes(1, 2)).swapaxes(1, 2)  # noqa: E731
    with pytest.raises(AssertionError):
        assert_only_those_who_may_move(swapped, PLAIN, vocabulary)
    tokens = Stream("who", "moves").integers(vocabulary, 48).reshape(2, 3, 8)
    moves = movers(swapped, tokens, (1, 0, 3), vocabulary)
    assert moves[1, 1:, 3].all(), "other sequences of the batch move"
    assert not moves[1, 0, 4:].any(), "and the tokens that follow do not"


@pytest.mark.parametrize("decoder", VARIANTS, ids=named)
def test_order_matters(decoder: Decoder) -> None:
    """Two tokens that change places move the scores after them, wherever both can be seen: positions are known."""
    if decoder.window == 1:
        return  # each token sees itself only
    scores, vocabulary = scores_of(decoder)
    tokens = np.arange(2 * 3 * 8).reshape(2, 3, 8) % vocabulary
    other = tokens.copy()
    other[..., [3, 4]] = other[..., [4, 3]]
    assert (scores(tokens)[:, :, 5] != scores(other)[:, :, 5]).any()


def test_without_positions_order_would_not_matter() -> None:
    """The test above can fail: with the position table at zero, one layer's last score knows no order."""
    runs = [run_of(PLAIN, arithmetic="fp64")]
    bucket = make_bucket(runs, torch.device("cpu"))
    assert isinstance(bucket, DecoderBucket)
    params, batch = bucket.init(runs), loaded(bucket, runs)
    bucket.trained.views(params["flat"])["positions"].zero_()
    tokens = np.arange(8)[None, None]
    other = tokens[..., [0, 1, 2, 4, 3, 5, 6, 7]]
    one, two = (bucket.scores(params, batch, torch.from_numpy(t))[0, 0, 7] for t in (tokens, other))
    assert torch.allclose(one, two, atol=1e-12)


# ------------------------------------------------------------------------------------------------ the reference


def test_teacher_forcing_is_greedy_reading() -> None:
    """A sequence whose every token scores highest given the true ones is what greedy reading gives, and the other way round."""
    for seed, decoder in enumerate(VARIANTS):
        run = run_of(decoder, seed)
        bucket = make_bucket([run], torch.device("cpu"))
        weights = bucket.answers(moved(bucket.init([run]), seed), 0, run)
        prompts = Stream("greedy", "prompts", seed).integers(11, 20).reshape(10, 2)
        read = reference.greedy(decoder, weights, prompts, 7)
        assert (reference.logits(decoder, weights, read)[:, 1:-1].argmax(-1) == read[:, 2:]).all()


def test_what_is_visible() -> None:
    sparse = reference.visible(Decoder(heads=1, d_model=1, attention="sparse", window=2), 5).astype(int)
    assert sparse.tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [1, 0, 1, 1, 1]]
    window = reference.visible(Decoder(heads=1, d_model=1, attention="window", window=2), 4).astype(int)
    assert window.tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_rows_of_the_mixing_sum_to_one_and_see_no_later_token(attention: str) -> None:
    decoder = Decoder(heads=2, d_model=6, attention=attention)
    q, k = Stream("mixing", attention).normal((2, 5, 2, 7, 3))
    mixing = reference.mixing(decoder, q, k)
    assert np.allclose(mixing.sum(-1), 1) and (mixing >= 0).all() and not np.triu(mixing, 1).any()


def test_rotary_scores_know_distances_only() -> None:
    """Turned by their positions, the product of two vectors depends on how far apart they stand."""
    x, y = Stream("rotary", "x").normal((2, 1, 5))
    q, k = (reference.rotate(np.repeat(z, 9, axis=0)) for z in (x, y))
    product = q @ k.T
    for distance in range(1, 9):
        assert np.allclose(np.diag(product, distance), product[0, distance])
    assert abs(product[0, 1] - product[0, 2]) > 1e-3


def test_gelu_is_near_x_for_large_x_and_near_zero_for_small() -> None:
    x = np.array([-9.0, -1.0, 0.0, 1.0, 9.0])
    assert np.allclose(reference.activate("gelu", x), [0.0, -0.15865525, 0.0, 0.84134475, 9.0], atol=1e-7)


# ----------------------------------------------------------------------------------------------- specs, counts


def test_parameters_are_those_of_the_protocol() -> None:
    """(V 64, N 16, H 2): counted by hand, every table, bias and gain."""
    expected = {(16, "trained"): 5648, (32, "trained"): 17376, (16, "frozen"): 3520, (16, "absent"): 3488, (32, "frozen"): 9024}
    for (d_model, ff), count in expected.items():
        assert parameters(Decoder(heads=2, d_model=d_model, ff=ff), 64, 16) == count
    assert parameters(Decoder(heads=2, d_model=16, layers=2), 64, 16) == 8928
    assert parameters(Decoder(heads=2, d_model=16, tied=True), 64, 16) == 5648 - 64 * 16


@pytest.mark.parametrize("decoder", VARIANTS, ids=named)
def test_initial_weights_are_those_of_the_layout(decoder: Decoder) -> None:
    run = run_of(decoder, arithmetic="fp64")
    bucket = make_bucket([run], torch.device("cpu"))
    answers = bucket.answers(bucket.init([run]), 0, run)
    weights = layout(decoder, 11, 7)
    assert list(answers) != [] and set(answers) == {w.name for w in weights}
    for weight in weights:
        assert answers[weight.name].shape == weight.shape
        if not weight.std:
            assert (answers[weight.name] == weight.start).all()
    assert sum(answers[w.name].size for w in weights if w.trained) == parameters(decoder, 11, 7)


def test_initial_spreads() -> None:
    run = run_of(Decoder(heads=2, d_model=64), vocabulary=512, length=64, prompt=2, library=8, arithmetic="fp64")
    bucket = make_bucket([run], torch.device("cpu"))
    answers = bucket.answers(bucket.init([run]), 0, run)
    for name, std in (("tokens", 0.3), ("positions", 0.3), ("0.qkv", 1 / 8), ("0.down", 1 / 16), ("output", 1 / 8)):
        assert answers[name].std() == pytest.approx(std, rel=0.03), name


def test_heads_share_d_model_unless_told() -> None:
    assert Decoder(heads=5, d_model=8).d_head == 2 and Decoder(heads=2, d_model=8, d_head=64).width == 128
    assert Decoder(heads=2, d_model=8) == Decoder(heads=2, d_model=8, d_head=4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"heads": 0},
        {"layers": 0},
        {"attention": "dense"},
        {"attention": "window"},
        {"window": 3},
        {"activation": "sin"},
        {"ff": "cold"},
        {"positions": "none"},
        {"norm": "batch"},
        {"d_head": -1},
        {"attention": "window", "window": 0},
    ],
    ids=str,
)
def test_decoders_that_make_no_sense(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="must hold"):
        Decoder(**({"heads": 2, "d_model": 4} | wrong))  # type: ignore[arg-type]


def test_an_absent_feed_forward_has_no_activation() -> None:
    assert Decoder(heads=1, d_model=2, ff="absent", activation="relu") == Decoder(heads=1, d_model=2, ff="absent")
