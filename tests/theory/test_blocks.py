"""Block heads against their equations, with a different prime for every dimension."""

import numpy as np
import pytest
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.seeds import Stream
from keyspan.theory import blocks, codes

Float = NDArray[np.float64]
HEADS, EDGES, D_MODEL, D_KEY = 3, 7, 13, 5


def rows(count: int = EDGES, index: int = 0) -> Float:
    x = Stream("b", "rows", index).normal((HEADS, count, D_MODEL))
    return np.asarray(x / np.linalg.norm(x, axis=2, keepdims=True))


def words() -> Float:
    return codes.random_signs(Stream("b", "words"), HEADS * EDGES, D_KEY).reshape(HEADS, EDGES, D_KEY)


def test_groups_hold_every_edge_once() -> None:
    colour = np.array([0, 2, 2, 0, 4, 2, 0, 1, 4])
    seen: dict[int, list[int]] = {}
    for heads, members in blocks.groups(colour, 5):
        assert members.shape[0] == len(heads)
        seen |= {int(h): sorted(m.tolist()) for h, m in zip(heads, members, strict=True)}
    assert seen == {0: [0, 3, 6], 1: [7], 2: [1, 2, 5], 4: [4, 8]}  # head 3 has none


def test_outer_and_inverse_weights() -> None:
    x, s = rows(), words()
    assert blocks.outer_weights(x, s).shape == (HEADS, D_MODEL, D_KEY)
    assert np.allclose(blocks.outer_weights(x, s)[1], sum(np.outer(x[1, a], s[1, a]) for a in range(EDGES)))
    w = blocks.inverse_weights(x, blocks.inverse_gram(x, 0.0), s)
    assert np.allclose(w, np.linalg.pinv(x) @ s, atol=1e-10)
    assert np.allclose(x @ w, s, atol=1e-10)  # exact on its own rows
    ridge = blocks.inverse_weights(x, blocks.inverse_gram(x, 0.4), s)
    normal = np.linalg.solve(x.transpose(0, 2, 1) @ x + 0.4 * np.eye(D_MODEL), x.transpose(0, 2, 1) @ s)
    assert np.allclose(ridge, normal, atol=1e-10)  # rows of unit norm: lam in units of their mean square is lam


def test_rows_that_depend_on_each_other_have_no_inverse() -> None:
    x = rows()
    x[2, 3] = x[2, 1]
    with pytest.raises(BadInput, match=r"independent.*more heads, or a ridge"):
        blocks.inverse_gram(x, 0.0)
    assert np.isfinite(blocks.inverse_gram(x, 0.1)).all()


def test_leakage_is_that_of_gaussian_rows() -> None:
    """Mean B / (d - B - 1), and what items outside a block receive of random words."""
    x = Stream("l", "rows").normal((40, 17, 67)) / np.sqrt(67)
    leak = blocks.leakage(x, blocks.inverse_gram(x, 0.0))
    assert leak.mean() == pytest.approx(17 / (67 - 17 - 1), rel=0.05)
    s = codes.random_signs(Stream("l", "words"), 40 * 17, 5).reshape(40, 17, 5)
    outside = Stream("l", "outside").normal((997, 67)) / np.sqrt(67)
    queries = outside @ blocks.inverse_weights(x, blocks.inverse_gram(x, 0.0), s)
    assert (queries**2).sum(axis=2).mean() == pytest.approx(leak.mean(), rel=0.1)


def test_canonical_heads_agree_on_edges_where_the_spaces_meet() -> None:
    """B <= 2d - d_key: two d-dimensional column spaces in R^B share 2d - B directions, so q_a = k_a there."""
    source, target = rows(19, 1), rows(19, 2)
    w_query, w_key = blocks.canonical_heads(source, target, D_KEY, 0.0)
    assert w_query.shape == w_key.shape == (HEADS, D_MODEL, D_KEY)
    assert np.allclose(source @ w_query, target @ w_key, atol=1e-8)
    wide = blocks.canonical_heads(rows(29, 1), rows(29, 2), D_KEY, 0.0)  # 29 > 2 * 13: nothing is shared
    assert np.abs(rows(29, 1) @ wide[0] - rows(29, 2) @ wide[1]).max() > 0.05
