"""Item vectors: unit rows, all different, and what each family is made of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.files.contents import Contents
from keyspan.problems import NoContents, embeddings
from keyspan.problems.embeddings import Embeddings, coherence
from keyspan.problems.incoherence import leak_ratio
from keyspan.problems.relations import Relations
from keyspan.seeds import Stream


def draw(spec: Embeddings, items: int, d_model: int, seed: int = 0) -> NDArray[np.float64]:
    embeddings.check_fit(spec, items, d_model)
    return embeddings.make(spec, items, d_model, f"p{seed}", NoContents())


GENERATED = [
    (embeddings.one_hot(), 13, 17),
    (embeddings.gaussian(), 53, 17),
    (embeddings.sign(), 53, 17),
    (embeddings.sparse(5), 53, 17),
    (embeddings.clustered(7, 0.6), 53, 17),
]
RANDOM = GENERATED[1:]


@pytest.mark.parametrize("spec, items, d_model", GENERATED, ids=[g[0].name for g in GENERATED])
def test_rows_have_unit_norm_and_differ(spec: Embeddings, items: int, d_model: int) -> None:
    rows = draw(spec, items, d_model)
    assert rows.shape == (items, d_model) and rows.dtype == np.float64
    assert np.abs(np.linalg.norm(rows, axis=1) - 1).max() < 1e-14
    assert len(np.unique(rows, axis=0)) == items


@pytest.mark.parametrize("spec, items, d_model", RANDOM, ids=[g[0].name for g in RANDOM])
def test_rows_are_a_function_of_the_id(spec: Embeddings, items: int, d_model: int) -> None:
    assert np.array_equal(draw(spec, items, d_model, 3), draw(spec, items, d_model, 3))
    assert not np.array_equal(draw(spec, items, d_model, 3), draw(spec, items, d_model, 4))


def test_one_hot_rows_are_the_unit_vectors() -> None:
    assert draw(embeddings.one_hot(), 5, 7).tolist() == np.eye(7)[:5].tolist()


def test_sign_rows_are_signs() -> None:
    rows = draw(embeddings.sign(), 101, 23)
    assert set(np.unique(rows).tolist()) == {-1 / math.sqrt(23), 1 / math.sqrt(23)}
    assert abs(np.sign(rows).mean()) < 0.1


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.9])
def test_clustered_rows_are_correlated_within_their_cluster(correlation: float) -> None:
    """Cosines are `correlation` on average within a cluster and 0 between clusters; clusters have as many items or one more."""
    items, clusters = 211, 7
    gram = (rows := draw(embeddings.clustered(clusters, correlation), items, 101)) @ rows.T
    same = np.array([np.asarray(g) for g in Stream("p0", "embeddings").permutation(items) % clusters])
    inside = (same[:, None] == same) & ~np.eye(items, dtype=bool)
    assert sorted(np.bincount(same)) == [30] * 6 + [31]
    assert gram[inside].mean() == pytest.approx(correlation, abs=0.02)
    assert abs(gram[same[:, None] != same].mean()) < 0.02


def test_clusters_leak_more_than_independent_rows() -> None:
    """What a block of items leaks onto its neighbours is what independence would give, and rho^2 of each neighbour more."""
    leaks = [leak_ratio(draw(embeddings.clustered(32, rho), 256, 64)) for rho in (0.0, 0.5, 0.8)]
    assert leaks[0] == pytest.approx(1, abs=0.1) and leaks[0] < leaks[1] < leaks[2]
    expected = 1 + (256 / 32 - 1) * 0.8**2 * 64 / 255
    assert leaks[2] == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize("ones", [1, 2, 7, 19])
def test_sparse_rows_have_so_many_ones(ones: int) -> None:
    items = min(61, math.comb(19, ones))
    rows = draw(embeddings.sparse(ones), items, 19)
    assert ((rows != 0).sum(axis=1) == ones).all()
    assert set(np.unique(rows[rows != 0]).tolist()) == {1 / math.sqrt(ones)}


@pytest.mark.parametrize("spec, items, d_model", [(embeddings.sign(), 32, 5), (embeddings.sparse(2), 10, 5)])
def test_every_row_of_a_small_family_can_be_asked_for(spec: Embeddings, items: int, d_model: int) -> None:
    assert len(np.unique(draw(spec, items, d_model), axis=0)) == items
    with pytest.raises(BadInput):
        draw(spec, items + 1, d_model)


@pytest.mark.parametrize("spec", [embeddings.gaussian(), embeddings.sign()], ids=["gaussian", "sign"])
def test_rows_point_everywhere_alike(spec: Embeddings) -> None:
    """Inner products of two rows have mean 0 and mean square 1/d."""
    rows = draw(spec, 401, 31)
    gram = (rows @ rows.T)[np.triu_indices(401, 1)]
    assert abs(gram.mean()) < 0.005
    assert (gram**2).mean() == pytest.approx(1 / 31, rel=0.03)


def test_sparse_rows_overlap_by_chance() -> None:
    """`s` ones of `d`: the mean inner product is s/d."""
    rows = draw(embeddings.sparse(8), 401, 64)
    assert (rows @ rows.T)[np.triu_indices(401, 1)].mean() == pytest.approx(8 / 64, rel=0.05)


# ----------------------------------------------------------------------------------------------- coherence


@pytest.mark.parametrize("items, d_model, measured", [(256, 64, 0.493), (512, 32, 0.664), (1024, 64, 0.536)])
def test_coherence_of_gaussian_rows_is_as_measured_before(items: int, d_model: int, measured: float) -> None:
    """Measured before, by another program."""
    assert coherence(draw(embeddings.gaussian(), items, d_model)) == pytest.approx(measured, abs=0.07)


@pytest.mark.parametrize("tile", [1, 7, 29, 1024])
def test_coherence_is_the_largest_inner_product_whatever_the_tile(tile: int) -> None:
    rows = draw(embeddings.gaussian(), 29, 11)
    gram = np.abs(rows @ rows.T)
    assert coherence(rows, tile) == pytest.approx(gram[~np.eye(29, dtype=bool)].max(), abs=1e-15)


def test_coherence_at_the_extremes() -> None:
    assert coherence(np.eye(7)) == 0.0
    assert coherence(np.array([[0.6, 0.8], [1.0, 0.0], [0.6, 0.8]])) == pytest.approx(1.0)
    assert coherence(np.array([[1.0, 0.0], [-1.0, 0.0]])) == 1.0
    assert coherence(np.array([[1.0, 0.0]])) == 0.0


# --------------------------------------------------------------------------------------------- from a file


def test_a_file_gives_its_own_rows() -> None:
    contents = Contents()
    rows = np.arange(15.0).reshape(5, 3)
    spec = Embeddings(name="file", content=contents.put(rows.astype(np.float32)))
    made = embeddings.make(spec, 5, 3, "p", contents)
    assert made.dtype == np.float64 and made.tolist() == rows.tolist()


@pytest.mark.parametrize("items, d_model", [(4, 3), (5, 2), (3, 5)])
def test_a_file_of_another_shape_is_refused(items: int, d_model: int) -> None:
    contents = Contents()
    spec = Embeddings(name="file", content=contents.put(np.ones((5, 3))))
    with pytest.raises(BadInput, match=r"\(5, 3\)"):
        embeddings.make(spec, items, d_model, "p", contents)


def test_a_file_that_is_not_at_hand_is_refused() -> None:
    spec = Embeddings(name="file", content="0" * 64)
    for contents in (NoContents(), Contents()):
        with pytest.raises(BadInput, match="content"):
            embeddings.make(spec, 5, 3, "p", contents)


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "fields, mentions",
    [
        ({"name": "word2vec"}, ("one-hot|gaussian|sign|sparse", "'word2vec'")),
        ({"name": "sparse"}, ("`ones` with sparse", "None")),
        ({"name": "gaussian", "ones": 3}, ("`ones` with sparse", "3")),
        ({"name": "sparse", "ones": 0}, ("`ones >= 1`", "0")),
        ({"name": "sparse", "ones": 1.5}, ("embeddings.ones", "1.5")),
        ({"name": "clustered", "clusters": 3}, ("`clusters` and `correlation`", "None")),
        ({"name": "gaussian", "correlation": 0.5}, ("clustered only", "0.5")),
        ({"name": "clustered", "clusters": 0, "correlation": 0.5}, ("`clusters >= 1`", "0")),
        ({"name": "clustered", "clusters": 3, "correlation": 1.0}, ("`0 <= correlation < 1`", "1.0")),
        ({"name": "file"}, ("`content`", "None")),
        ({"name": "sign", "content": "0" * 64}, ("`content`", "0" * 64)),
    ],
)
def test_embeddings_that_make_no_sense_are_refused(fields: dict[str, object], mentions: tuple[str, ...]) -> None:
    with pytest.raises(BadInput) as refusal:
        Embeddings(**fields)  # type: ignore[arg-type]
    assert all(m in str(refusal.value) for m in mentions), refusal.value


@pytest.mark.parametrize(
    "spec, items, d_model, mentions",
    [
        (embeddings.one_hot(), 8, 7, ("items <= d_model", "items=8, d_model=7")),
        (embeddings.sign(), 9, 3, ("2^d_model", "items=9, d_model=3")),
        (embeddings.sparse(4), 5, 3, ("ones <= d_model", "ones=4, d_model=3")),
        (embeddings.sparse(2), 4, 3, ("C(d_model, ones)", "items=4, places=3")),
        (embeddings.clustered(5), 4, 3, ("clusters <= items", "clusters=5, items=4")),
    ],
)
def test_embeddings_that_cannot_be_told_apart_are_refused(
    spec: Embeddings, items: int, d_model: int, mentions: tuple[str, ...]
) -> None:
    with pytest.raises(BadInput) as refusal:
        Relations(items=items, d_model=d_model, embeddings=spec)
    assert all(m in str(refusal.value) for m in mentions), refusal.value
