"""Codes: what is known of them on paper, and the quiet code's two terms."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.seeds import Stream
from keyspan.theory import codes
from keyspan.theory.constructions import codes_coherence


def test_shapes_and_unit_rows() -> None:
    stream = Stream("c", "codes")
    leak = np.eye(7)[None].repeat(3, axis=0)
    made = [
        (codes.random_signs(stream, 7, 5), (7, 5)),
        (codes.binary_code(7, 3), (7, 3)),
        (codes.circle_code(7), (7, 2)),
        (codes.quiet_code(stream, leak, 5, 1.0), (3, 7, 5)),
    ]
    for words, shape in made:
        assert words.shape == shape
        assert np.allclose(np.linalg.norm(words, axis=-1), 1.0, atol=1e-12)


def test_binary_words_differ_in_one_sign_at_least() -> None:
    assert codes_coherence(codes.binary_code(32, 5)) == pytest.approx(1 - 2 / 5)
    assert codes_coherence(codes.binary_code(5, 70)) == pytest.approx(1 - 2 / 70)
    with pytest.raises(BadInput, match=r"ceil\(log2 9\).*Use 4"):
        codes.binary_code(9, 3)


def test_circle_words_lie_at_equal_angles() -> None:
    assert codes_coherence(codes.circle_code(17)) == pytest.approx(math.cos(2 * math.pi / 17))
    assert codes_coherence(codes.circle_code(1)) == -math.inf


def test_birthdays() -> None:
    """Exact for 23 people and 2^d_k days, and the width that the union bound asks for is enough."""
    room = 2**9
    expected = math.prod((room - t) / room for t in range(23))
    assert codes.distinct_probability(23, 9) == pytest.approx(expected, rel=1e-12)
    assert codes.distinct_probability(17, 4) == 0.0 and codes.distinct_probability(1, 1) == 1.0
    for count in (2, 64, 1024):
        assert codes.distinct_probability(count, codes.distinct_width(count, 0.05)) >= 0.95
    assert [codes.distinct_width(m, 0.05) for m in (64, 256, 1024, 2048)] == [16, 20, 24, 26]


@pytest.mark.parametrize(("items", "widths"), [(64, (22, 85)), (256, (27, 108)), (1024, (33, 130)), (2048, (36, 141))])
def test_widths_at_a_given_coherence(items: int, widths: tuple[int, int]) -> None:
    assert tuple(codes.coherent_width(items, rho, 0.05) for rho in (1.0, 0.5)) == widths


def test_hoeffding_holds_where_it_is_tried() -> None:
    width = codes.coherent_width(64, 0.5, 0.05)
    over = sum(codes_coherence(codes.random_signs(Stream("h", "signs", n), 64, width)) >= 0.5 for n in range(100))
    assert over <= 5


def test_an_optimised_code_is_better_than_signs_and_not_below_welch() -> None:
    none = np.zeros((1, 23, 23))
    words = codes.quiet_code(Stream("q", "code"), none, 7, 0.0)[0]
    gram = words @ words.T - np.eye(23)
    signs = codes_coherence(codes.random_signs(Stream("q", "signs"), 23, 7))
    assert codes_coherence(words) < 0.6 < signs
    assert np.abs(gram).max() >= codes.welch_coherence(23, 7) > 0.3


def test_a_quiet_code_leaks_less() -> None:
    """Two groups of items that leak much together: the code keeps out of those directions, at some cost in coherence."""
    stream = Stream("q", "leak")
    rows = stream.normal((2, 19, 23))
    leak: NDArray[np.float64] = np.asarray(np.linalg.inv(rows @ rows.transpose(0, 2, 1)), dtype=np.float64)

    def leaked(weight: float) -> float:
        words = codes.quiet_code(Stream("q", "words"), leak, 5, weight)
        return float(np.einsum("nak,nab,nbk->", words, leak, words))

    plain, quiet = leaked(0.0), leaked(4.0)
    assert quiet < 0.5 * plain


def test_one_word_has_nothing_to_differ_from() -> None:
    words = codes.quiet_code(Stream("q", "one"), np.ones((2, 1, 1)), 3, 1.0)
    assert words.shape == (2, 1, 3) and np.isfinite(words).all()
