"""The explicit memorising layer and the layer of random attention: exactness, ranks, and what one example more does."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from tests.files.refusals import refused

from keyspan.attention import reference
from keyspan.seeds import Stream
from keyspan.theory.memorization import feature_cap, theorem
from keyspan.theory.memorizing import Float, Memorizer, explicit_attention, memorize, random_attention


class Sizes(NamedTuple):
    """d_model, context, heads, d_head"""

    d: int
    n: int
    heads: int
    d_key: int


class Data(NamedTuple):
    queries: Float
    contexts: Float
    labels: Float


def data(sizes: Sizes, count: int, seed: int, *, shared: bool, uniform: bool = False) -> Data:
    stream = Stream(f"memorizing-{seed}", "data")

    def draw(*shape: int) -> Float:
        return stream.fractions(shape).astype(np.float64) if uniform else stream.normal(shape)

    contexts = draw(1 if shared else count, sizes.n, sizes.d)
    return Data(draw(count, sizes.d), contexts, stream.fractions((count, 1)).astype(np.float64))


def explicit(sizes: Sizes, given: Data, seed: int = 0) -> Memorizer:
    stream = Stream(f"memorizing-{seed}", "weights")
    return memorize(explicit_attention(stream, given.queries, given.contexts, sizes.heads, sizes.d_key), *given)


def at_random(sizes: Sizes, given: Data, seed: int = 0, spread: float = 3.0) -> Memorizer:
    stream = Stream(f"memorizing-{seed}", "weights")
    return memorize(random_attention(stream, given.queries, given.contexts, sizes.heads, sizes.d_key, spread), *given)


# ------------------------------------------------------------------------------------------------ the explicit layer


def drawn_sizes(seed: int) -> Sizes:
    d, n, heads, d_key = Stream(f"memorizing-{seed}", "sizes").uniform(4).tolist()
    width = 4 + int(d * 29)
    context = 1 + int(n * min(width - 1, 14))
    return Sizes(width, context, 1 + int(heads * 6), 1 + int(d_key * (context + 3)))


@pytest.mark.parametrize("part", range(4))
def test_two_hundred_instances_are_memorised_exactly(part: int) -> None:
    """Over (d, n, H, d_h), shared contexts and others, gaussian tokens and uniform ones: T = H (r - 1) + 1 real labels."""
    for seed in range(50 * part, 50 * (part + 1)):
        sizes = drawn_sizes(seed)
        count = theorem(sizes.heads, sizes.n, sizes.d_key)
        given = data(sizes, count, seed, shared=seed % 2 == 0, uniform=seed % 4 < 2)
        made = explicit(sizes, given, seed)
        assert made.error <= 1e-6 and made.rank == count, (seed, sizes, made.rank, made.condition)
        if given.contexts.shape[0] == 1 and sizes.d_key >= sizes.n:
            assert made.rank == feature_cap(sizes.heads, sizes.n, sizes.d)


def test_the_weights_are_those_of_an_attention_layer() -> None:
    """The readout as values and output, through the reference: `W_V = R`, `W_O` picks."""
    sizes = Sizes(13, 5, 3, 4)
    given = data(sizes, theorem(3, 5, 4), 1, shared=False)
    made = explicit(sizes, given)
    a = made.attention
    readout: Float = made.readout
    answered = reference.layer(*given[:2], a.w_query, a.w_key, readout, np.ones((3, 1, 1)), 1.0)
    assert np.abs(answered - given.labels).max() <= 1e-9
    weights = reference.attention(given.queries, given.contexts, a.w_query, a.w_key, 1.0)
    assert np.abs(weights - a.weights(given.queries, given.contexts)).max() < 1e-12
    assert a.w_query.shape == a.w_key.shape == (3, 13, 4)


def test_every_head_owns_its_share_and_saturates_on_the_others() -> None:
    sizes = Sizes(17, 6, 4, 6)
    given = data(sizes, theorem(4, 6, 6), 3, shared=True, uniform=True)
    weights = explicit(sizes, given).attention.weights(given.queries, given.contexts)
    token = weights.argmax(axis=2)
    for head in range(4):
        owned = slice(5 * head, 5 * head + 5)
        assert token[owned, head].tolist() == [0, 1, 2, 3, 4]  # each on a token of its own
        others = np.delete(token[:, head], np.arange(owned.start, owned.stop))
        assert set(others.tolist()) <= {0, 5}
        rest = np.delete(weights[:, head].max(axis=1), np.arange(owned.start, owned.stop))
        assert rest.min() > 1 - 1e-12


def test_several_outputs_at_once() -> None:
    sizes = Sizes(12, 6, 3, 5)
    given = data(sizes, theorem(3, 6, 5), 5, shared=True)
    labels = Stream("more", "labels").normal((len(given.queries), 4))
    made = explicit(sizes, Data(given.queries, given.contexts, labels))
    assert made.readout.shape == (3, 12, 4) and made.error <= 1e-9


def test_what_the_explicit_layer_cannot_do_is_refused() -> None:
    sizes = Sizes(9, 4, 2, 4)
    refused(lambda: explicit(sizes, data(sizes, 8, 0, shared=True)), "H (min(n, d_h) - 1) + 1 = 7", "8")
    refused(lambda: explicit(Sizes(3, 4, 2, 4), data(Sizes(3, 4, 2, 4), 5, 0, shared=True)), "n <= d_model")
    twice = data(sizes, 5, 0, shared=False)
    twice.contexts[2, 1:] = twice.contexts[2, 0]
    refused(lambda: explicit(sizes, twice), "tokens of a context differ")
    equal = data(sizes, 7, 0, shared=True)
    equal.queries[6] = equal.queries[0]  # owned by head 0 and by nobody: not independent
    refused(lambda: explicit(sizes, equal), "Kruskal rank")
    refused(lambda: at_random(sizes, twice, spread=0.0), "spread > 0")


# ------------------------------------------------------------------------------------------------- random attention

RANDOM = [Sizes(16, 4, 4, 4), Sizes(24, 8, 4, 4), Sizes(32, 8, 6, 16), Sizes(20, 12, 3, 8), Sizes(16, 8, 2, 1)]


@pytest.mark.parametrize("sizes", RANDOM)
@pytest.mark.parametrize("shared", [True, False])
def test_random_attention_reaches_the_cap_whatever_d_h_is(sizes: Sizes, shared: bool) -> None:
    """Also where the theorem promises less, d_h < n, and even with d_h = 1."""
    cap = feature_cap(sizes.heads, sizes.n, sizes.d, "fixed" if shared else "random")
    spread = 10.0 if sizes.d_key == 1 else 3.0
    full = at_random(sizes, data(sizes, cap, 1, shared=shared), spread=spread)
    assert full.rank == cap >= theorem(sizes.heads, sizes.n, sizes.d_key) and full.error < 1e-5
    more = at_random(sizes, data(sizes, cap + 8, 1, shared=shared), spread=spread)
    assert more.rank == cap


@pytest.mark.parametrize("sizes", RANDOM)
@pytest.mark.parametrize("method", ["explicit", "random"])
def test_one_example_more_than_the_cap_fails_with_a_shared_context(sizes: Sizes, method: str) -> None:
    """Real labels, exact arithmetic: what is left is no rounding but the part of the labels outside the rank."""
    cap = feature_cap(sizes.heads, sizes.n, sizes.d)
    given = data(sizes, cap + 1, 2, shared=True)
    if method == "random":
        made = at_random(sizes, given, spread=10.0 if sizes.d_key == 1 else 3.0)
    else:
        within = Data(given.queries[:cap], given.contexts, given.labels[:cap])
        if theorem(sizes.heads, sizes.n, sizes.d_key) < cap:
            return  # the explicit layer stays below the cap where d_h < n
        attention = explicit(sizes, within).attention
        made = memorize(attention, *given)
    features = made.attention.features(given.queries, given.contexts)
    assert made.rank == cap == np.linalg.matrix_rank(features, tol=1e-12 * np.linalg.norm(features))
    assert made.error > 1e-3


def test_a_trained_layer_may_hold_more_than_the_cap() -> None:
    """H = 1, n = 2: the cap is 2, yet d real values are held, since attention is a sigmoid of a free linear form.

    y_t = sigma(u . e_t) with u = E^-1 logit(y): the features are chosen for the labels, which no rank forbids.
    """
    stream = Stream("beyond", "the-cap")
    d = 7
    queries, context = stream.normal((d, d)), stream.normal((1, 2, d))
    labels = 0.1 + 0.8 * stream.uniform(d)
    u: Float = np.asarray(np.linalg.solve(queries, np.log(labels / (1 - labels))), dtype=np.float64)
    kappa = np.linalg.pinv(context[0]) @ np.array([1.0, 0.0])
    value = np.linalg.pinv(context[0]) @ np.array([[1.0], [0.0]])
    answered = reference.layer(queries, context, u[None, :, None], kappa[None, :, None], value[None], np.ones((1, 1, 1)), 1.0)
    assert feature_cap(1, 2, d) == 2 and np.abs(answered[:, 0] - labels).max() < 1e-12
