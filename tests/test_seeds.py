"""Random streams: the published generator, the same bits for ever, and numbers that look as they should."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from keyspan.errors import BadInput
from keyspan.seeds import Float, Stream, Words, exp, log, philox, tree_sum

MASK = 0xFFFFFFFF


def plain_philox(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Philox4x32-10 as Salmon et al. (SC'11) print it, in Python's own integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        left, right = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(right >> 32) ^ c[1] ^ k[0], right & MASK, (left >> 32) ^ c[3] ^ k[1], left & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return tuple(c)


def plain_words(identity: str, purpose: str, index: int, first_block: int, blocks: int) -> list[int]:
    """The words of a stream, by the definition: SHA-256 gives the key and half of the counter, blocks are counted."""
    seed = hashlib.sha256(f"{identity}\x00{purpose}\x00{index}".encode()).digest()
    k0, k1, high0, high1 = (int.from_bytes(seed[i : i + 4], "little") for i in range(0, 16, 4))
    words = []
    for block in range(first_block, first_block + blocks):
        a, b, c, d = plain_philox((block & MASK, block >> 32, high0, high1), (k0, k1))
        words += [a | b << 32, c | d << 32]
    return words


# ----------------------------------------------------------------------------------------------------------- generator


@pytest.mark.parametrize(
    "counter, key, expected",
    [  # the known answers of Random123 (kat_vectors: philox4x32, 10 rounds)
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_the_known_answers_of_random123(counter: str, key: str, expected: str) -> None:
    c, k, e = (tuple(int(word, 16) for word in text.split()) for text in (counter, key, expected))
    assert tuple(philox(np.array([c], dtype=np.uint64), (k[0], k[1]))[0].tolist()) == e
    assert plain_philox(c, k) == e


word32 = st.integers(0, MASK)


@given(st.lists(st.tuples(word32, word32, word32, word32), min_size=1, max_size=17), st.tuples(word32, word32))
def test_a_batch_is_as_one_by_one(counters: list[tuple[int, ...]], key: tuple[int, int]) -> None:
    given_ = np.array(counters, dtype=np.uint64)
    kept = given_.copy()
    found = philox(given_, key)
    assert found.dtype == np.uint64
    assert [tuple(row) for row in found.tolist()] == [plain_philox(counter, key) for counter in counters]
    assert np.array_equal(given_, kept)


@given(st.text(), st.text(), st.integers(-5, 2**70), st.integers(0, 23))
def test_words_are_what_the_definition_says(identity: str, purpose: str, index: int, count: int) -> None:
    words = Stream(identity, purpose, index).words(count)
    assert words.dtype == np.uint64
    assert words.tolist() == plain_words(identity, purpose, index, 0, (count + 1) // 2)[:count]


def test_the_counter_goes_on_past_32_bits() -> None:
    stream = Stream("identity", "purpose")
    stream._next = 2**32 - 3
    assert stream.words(12).tolist() == plain_words("identity", "purpose", 0, 2**32 - 3, 6)
    assert stream.words(2).tolist() == plain_words("identity", "purpose", 0, 2**32 + 3, 1)


@given(st.lists(st.integers(0, 13), max_size=7))
def test_split_draws_of_words_are_one_draw(halves: list[int]) -> None:
    counts = [2 * half for half in halves]  # an odd draw leaves the other half of its last block behind
    stream = Stream("a", "b", 7)
    split = np.concatenate([np.empty(0, np.uint64), *(stream.words(count) for count in counts)])
    assert np.array_equal(split, Stream("a", "b", 7).words(sum(counts)))


def test_an_odd_draw_ends_its_block() -> None:
    stream, whole = Stream("a", "b"), Stream("a", "b").words(8).tolist()
    assert [stream.words(3).tolist(), stream.words(1).tolist(), stream.words(1).tolist()] == [
        whole[:3],
        whole[4:5],
        whole[6:7],
    ]


def test_a_draw_begins_with_any_shorter_draw() -> None:
    long = Stream("a", "b").words(101)
    for count in (0, 1, 2, 3, 50, 100):
        assert np.array_equal(Stream("a", "b").words(count), long[:count])


# --------------------------------------------------------------------------------------------------------- golden draws

GOLDEN: dict[str, tuple[Callable[[Stream], Any], Any]] = {
    "words": (lambda s: s.words(3).tolist(), [4751481081147076896, 8264528032014547241, 14185598760717710124]),
    "uniform": (
        lambda s: [x.hex() for x in s.uniform(3).tolist()],
        ["0x1.c5d9ba943f99dp-1", "0x1.678ed4a3f1b55p-1", "0x1.f3c1f5f831e79p-1"],
    ),
    "normal": (
        lambda s: [x.hex() for x in s.normal((5,)).tolist()],
        [
            "-0x1.9d466dd2ec41cp+0",
            "0x1.ed3a575a17512p-2",
            "-0x1.16ea11a64e047p-2",
            "-0x1.133709cdc6fe9p+0",
            "-0x1.12749fad980cap-7",
        ],
    ),
    "signs": (lambda s: s.signs((2, 7)).astype(int).tolist(), [[1, 1, -1, 1, 1, -1, -1], [1, 1, -1, -1, 1, 1, -1]]),
    "integers": (lambda s: s.integers(1000, 7).tolist(), [93, 681, 384, 403, 25, 61, 506]),
    "large integers": (
        lambda s: s.integers(3 * 2**61, 3).tolist(),
        [429721659637924803, 5599713986868494864, 4440102000481694558],
    ),
    "permutation": (lambda s: s.permutation(11).tolist(), [5, 4, 3, 10, 6, 0, 8, 9, 1, 2, 7]),
    "few of many": (lambda s: s.subsets(3, 101, 3).tolist(), [[4, 14, 77], [23, 72, 86], [37, 54, 82]]),
    "many of few": (lambda s: s.subsets(3, 7, 4).tolist(), [[1, 3, 4, 6], [0, 1, 3, 4], [2, 3, 4, 5]]),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_draws(name: str) -> None:
    draw, expected = GOLDEN[name]
    assert draw(Stream("golden", name, 3)) == expected


def test_a_long_draw_has_not_changed_either() -> None:
    stream = Stream("golden", "long")
    parts = [stream.normal((331, 3)), stream.uniform(997), stream.integers(10**6, 499), stream.permutation(503)]
    parts += [stream.signs((7, 11)), stream.subsets(13, 997, 5), stream.subsets(17, 31, 19)]
    found = hashlib.sha256(b"".join(part.astype(part.dtype.newbyteorder("<")).tobytes() for part in parts))
    assert found.hexdigest()[:32] == "1f4ae60cb5dbf64b0fff63c2a7b5f6a3"


def test_draws_by_their_definitions() -> None:
    words = Stream("a", "b").words(100).tolist()
    assert Stream("a", "b").uniform(100).tolist() == [(word >> 11) / 2**53 for word in words]
    assert Stream("a", "b").signs((100,)).tolist() == [1.0 if word >> 63 else -1.0 for word in words]
    assert Stream("a", "b").integers(97, 100).tolist() == [word % 97 for word in words]
    assert Stream("a", "b").permutation(100).tolist() == sorted(range(100), key=words.__getitem__)
    below = 2**63 - 5  # half of all words fall beyond the last whole multiple, and are drawn again
    accepted = [word % below for word in words if word < 2 * below]
    assert Stream("a", "b").integers(below, 40).tolist() == accepted[:40]


def test_normal_by_its_definition() -> None:
    u = (2.0 * Stream("a", "b").uniform(20_000) - 1.0).reshape(-1, 2)
    expected: list[float] = []
    for x, y in u.tolist():
        s = x * x + y * y
        if 0.0 < s < 1.0:
            scale = math.sqrt(-2.0 * math.log(s) / s)
            expected += [x * scale, y * scale]
    found = Stream("a", "b").normal((10, 700))
    assert found.shape == (10, 700)
    np.testing.assert_allclose(found.reshape(-1), expected[:7000], rtol=1e-13, atol=0.0)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (2, 3, 5)])
def test_shapes(shape: tuple[int, ...]) -> None:
    assert Stream("a", "b").normal(shape).shape == shape
    assert Stream("a", "b").signs(shape).shape == shape
    assert Stream("a", "b").normal(shape).dtype == Stream("a", "b").signs(shape).dtype == np.float64


def test_nothing_drawn_is_nothing() -> None:
    stream = Stream("a", "b")
    for empty in (stream.words(0), stream.uniform(0), stream.integers(5, 0), stream.permutation(0)):
        assert empty.shape == (0,)
    assert stream.subsets(0, 5, 2).shape == (0, 2)
    assert stream.subsets(3, 5, 0).shape == (3, 0)


# -------------------------------------------------------------------------------------------------------- distributions

SIGNIFICANCE = 1e-3  # the streams are fixed, so a test that passes once passes always


def fits(counts: list[int], expected: float) -> bool:
    """Whether counts in equally likely bins are neither too uneven nor too even (chi-square, both sides)."""
    value = sum((count - expected) ** 2 for count in counts) / expected
    low, high = stats.chi2.ppf([SIGNIFICANCE, 1 - SIGNIFICANCE], len(counts) - 1)
    return bool(low < value < high)


def test_the_chi_square_test_has_teeth() -> None:
    assert fits([100, 90, 110, 105, 95], 100)
    assert not fits([100, 100, 100, 100, 100], 100)
    assert not fits([150, 50, 100, 100, 100], 100)


def test_uniform_numbers_are_uniform() -> None:
    x = Stream("statistics", "uniform").uniform(128_000)
    assert x.min() >= 0.0
    assert x.max() < 1.0
    assert abs(x.mean() - 0.5) < 4 * math.sqrt(1 / 12 / x.size)
    assert fits(np.bincount((x * 128).astype(int), minlength=128).tolist(), 1000)
    assert fits(np.bincount((x * 2**25).astype(int) % 64, minlength=64).tolist(), 2000)
    pairs = (x[0::2] * 16).astype(int) * 16 + (x[1::2] * 16).astype(int)
    assert fits(np.bincount(pairs, minlength=256).tolist(), 250)


def test_normal_numbers_are_normal() -> None:
    n = 200_001
    x = Stream("statistics", "normal").normal((n,))
    for power, mean in ((1, 0), (2, 1), (3, 0), (4, 3), (6, 15)):
        moments = {2: 1, 4: 3, 6: 15, 8: 105, 12: 10395}
        deviation = math.sqrt((moments[2 * power] - mean * mean) / n)
        assert abs(np.mean(x**power) - mean) < 4 * deviation, power
    assert stats.kstest(x, "norm").pvalue > SIGNIFICANCE
    assert abs(np.corrcoef(x[0:-1:2], x[1::2])[0, 1]) < 4 / math.sqrt(n / 2)  # the two of a pair
    assert 4.0 < np.abs(x).max() < 6.0


def test_signs_are_fair() -> None:
    x = Stream("statistics", "signs").signs((311, 313))
    assert set(np.unique(x).tolist()) == {-1.0, 1.0}
    assert abs(x.mean()) < 4 / math.sqrt(x.size)
    assert abs(x.mean(axis=0)).max() < 5 / math.sqrt(311)
    assert abs(x.mean(axis=1)).max() < 5 / math.sqrt(313)


@pytest.mark.parametrize("below", [1, 2, 7, 101])
def test_integers_are_uniform(below: int) -> None:
    x = Stream("statistics", "integers", below).integers(below, 200 * below)
    assert x.dtype == np.int64
    assert x.min() == 0
    assert x.max() == below - 1
    if below > 1:
        assert fits(np.bincount(x, minlength=below).tolist(), 200)


def test_large_integers_are_not_biased() -> None:
    below = 3 * 2**61  # taken modulo this without rejection, the lower third would come twice as often
    x = Stream("statistics", "large").integers(below, 30_000)
    assert fits(np.bincount(x // 2**61, minlength=3).tolist(), 10_000)


def test_permutations_are_uniform() -> None:
    stream = Stream("statistics", "permutation")
    counts = Counter(tuple(stream.permutation(5).tolist()) for _ in range(6000))
    assert set(counts) == set(permutations(range(5)))
    assert fits(list(counts.values()), 50)


@pytest.mark.parametrize("n, size", [(6, 3), (9, 3), (5, 1), (7, 6), (4, 2), (12, 2)])
def test_subsets_are_uniform(n: int, size: int) -> None:
    number = math.comb(n, size)
    found = Stream("statistics", f"subsets {n} {size}").subsets(100 * number, n, size)
    counts = Counter(map(tuple, found.tolist()))
    assert len(counts) == number
    assert fits(list(counts.values()), 100)


@given(st.integers(0, 9), st.integers(1, 60), st.data())
def test_a_subset_is_sorted_and_has_no_repeats(rows: int, n: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(0, n))
    found = Stream("subsets", "any", n).subsets(rows, n, size)
    assert found.shape == (rows, size)
    assert found.dtype == np.int64
    for row in found.tolist():
        assert all(a < b for a, b in pairwise(row))
        assert set(row) <= set(range(n))


@given(st.integers(0, 300))
def test_a_permutation_has_everything_once(n: int) -> None:
    assert sorted(Stream("permutation", "any", n).permutation(n).tolist()) == list(range(n))


def test_impossible_draws_are_refused() -> None:
    for below in (0, -3):
        with pytest.raises(BadInput, match=rf"`1 <= below <= 2\^63` must hold, but got {below}"):
            Stream("a", "b").integers(below, 1)
    for size in (-1, 6):
        with pytest.raises(BadInput, match=f"`0 <= size <= n` must hold, but got size={size}, n=5"):
            Stream("a", "b").subsets(1, 5, size)


def test_streams_do_not_know_each_other() -> None:
    names = [("p0", "graph", 0), ("p1", "graph", 0), ("p0", "labels", 0), ("p0", "graph", 1), ("p0graph", "", 0)]
    drawn: list[Words] = [Stream(*name).words(2000) for name in names]
    for i, one in enumerate(drawn):
        assert np.array_equal(one, Stream(*names[i]).words(2000))
        for other in drawn[:i]:
            different = np.bitwise_count(one ^ other).sum() / (64 * 2000)
            assert abs(different - 0.5) < 4 * 0.5 / math.sqrt(64 * 2000)
    lagged = drawn[0][1:] ^ drawn[0][:-1]
    assert abs(np.bitwise_count(lagged).sum() / (64 * 1999) - 0.5) < 4 * 0.5 / math.sqrt(64 * 1999)


# ---------------------------------------------------------------------------------------------------- sums, log and exp


def on_a_grid(low: float, high: float) -> Float:
    return low + (high - low) * Stream("grid", f"{low} {high}").uniform(50_000)


def test_log_is_the_logarithm() -> None:
    everywhere = np.ldexp(0.5 + on_a_grid(0.0, 0.5), Stream("grid", "exponent").integers(2000, 50_000) - 1000)
    corners = np.array([5e-324, 1e-310, 2.2250738585072014e-308, 0.5, math.sqrt(0.5), math.sqrt(2), 1.7976931348623157e308])
    tiny = np.array([1.0 + s * 2.0**-k for k in range(1, 53) for s in (1.0, -0.5)])
    for x in (everywhere, corners, tiny, on_a_grid(0.5, 2.0)):
        np.testing.assert_allclose(log(x), np.log(x), rtol=1e-14, atol=0.0)
    assert log(np.array([1.0]))[0] == 0.0


def test_exp_is_the_exponential() -> None:
    tiny = np.array([s * 2.0**-k for k in range(70) for s in (1.0, -1.0)])
    for x in (on_a_grid(-708.0, 709.0), on_a_grid(-2.0, 2.0), tiny):
        np.testing.assert_allclose(exp(x), np.exp(x), rtol=1e-14, atol=0.0)
    assert exp(np.array([0.0, -0.0])).tolist() == [1.0, 1.0]
    assert exp(np.array([-800.0]))[0] == 0.0


def test_golden_logarithms_and_exponentials() -> None:
    x = np.array([1e-300, 0.1, 0.7, 0.9, 1.5, 3.0, 1e10])
    assert [value.hex() for value in log(x).tolist()] == [
        "-0x1.5963447f87fb5p+9",
        "-0x1.26bb1bbb55515p+1",
        "-0x1.6d3c324e13f4fp-2",
        "-0x1.af8e8210a415bp-4",
        "0x1.9f323ecbf984cp-2",
        "0x1.193ea7aad030ap+0",
        "0x1.7069e2aa2aa5ap+4",
    ]
    x = np.array([-100.0, -1.0, -0.1, 0.1, 0.35, 1.0, 50.0])
    assert [value.hex() for value in exp(x).tolist()] == [
        "0x1.a8c1f14e2af5dp-145",
        "0x1.78b56362cef38p-2",
        "0x1.cf46d99d52b3ap-1",
        "0x1.1aec7b35a00d4p+0",
        "0x1.6b4802c805decp+0",
        "0x1.5bf0a8b14576ap+1",
        "0x1.19103e4080b45p+72",
    ]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 8, 11, 64, 97, 1000, 4097])
def test_tree_sum_is_the_sum(n: int) -> None:
    x = Stream("sum", "numbers", n).normal((3, n)) * np.ldexp(1.0, Stream("sum", "scales", n).integers(40, n))
    found = tree_sum(x)
    assert found.shape == (3,)
    for row, value in zip(x.tolist(), found.tolist(), strict=True):
        depth = math.ceil(math.log2(n)) if n > 1 else 0
        assert abs(value - math.fsum(row)) <= depth * 2.0**-53 * 1.01 * math.fsum(map(abs, row))


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=40))
def test_tree_sum_adds_in_a_fixed_order(numbers: list[float]) -> None:
    level = list(numbers)
    while len(level) > 1:
        half = len(level) // 2
        odd = level[2 * half :]
        level = [a + b for a, b in zip(level[:half], level[half : 2 * half], strict=True)] + odd
    assert tree_sum(np.array(numbers)).tolist() == level[0]
    alone, together = tree_sum(np.array([numbers])), tree_sum(np.array([numbers, numbers, numbers]))
    assert together.tolist() == alone.tolist() * 3
