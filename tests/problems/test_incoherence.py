"""Restricted self-incoherence: against its sums written out, and what is known of gaussian, one-hot and sparse rows."""

import numpy as np
import pytest
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.problems import NoContents, graphs
from keyspan.problems.embeddings import gaussian, make, one_hot, sparse
from keyspan.problems.incoherence import leak_ratio, leaks, restricted, sampled, sampled_leaks
from keyspan.seeds import Stream

Float = NDArray[np.float64]


def test_leaks_are_the_sums() -> None:
    rows = Stream("i", "rows").normal((23, 7))
    gram = rows @ rows.T
    np.fill_diagonal(gram, 0.0)
    assert np.allclose(leaks(rows), (gram**2).sum(axis=1), rtol=1e-10)


def test_sampled_leaks_are_unbiased() -> None:
    rows = make(gaussian(), 211, 31, "p0", NoContents())
    exact = leaks(rows)
    probes = sampled_leaks(rows, Stream("i", "signs"), 4000)
    assert probes.mean() == pytest.approx(exact.mean(), rel=0.01)
    assert np.abs(probes / exact - 1).max() < 0.25  # standard error sqrt(2 / 4000), 211 of them
    few = sampled_leaks(rows, Stream("i", "few"), 3)
    assert few.mean() == pytest.approx(exact.mean(), rel=0.25)


def test_gaussian_rows_leak_as_expected_and_sparse_rows_more_until_centred() -> None:
    assert leak_ratio(make(gaussian(), 499, 61, "p0", NoContents())) == pytest.approx(1.0, abs=0.03)
    rows = make(sparse(31), 499, 61, "p0", NoContents())
    mean = rows.mean(axis=0) / np.linalg.norm(rows.mean(axis=0))
    assert leak_ratio(rows) > 5
    assert leak_ratio(rows - np.outer(rows @ mean, mean)) < 1.2
    assert leak_ratio(make(one_hot(), 31, 37, "p0", NoContents())) == 0.0


def test_restricted_sums_written_out() -> None:
    rows = make(gaussian(), 19, 5, "p0", NoContents())
    sources, targets = np.array([[0, 3, 7]]), np.array([[7, 1, 2]])
    gram = rows @ rows.T
    outside = [np.setdiff1d(np.arange(19), block) for block in (sources[0], targets[0])]
    leak = max(
        (gram[np.ix_(out, block)] ** 2).sum(axis=1).max() for out, block in zip(outside, (sources[0], targets[0]), strict=True)
    )
    cross = np.abs(gram[np.ix_(outside[0], sources[0])] @ gram[np.ix_(outside[1], targets[0])].T).max()
    found = restricted(rows, sources, targets)
    assert (found.block, found.blocks) == (3, 1)
    assert found.epsilon == pytest.approx(leak * 5 / 3 - 1)
    assert found.mu == pytest.approx(cross * 5 / np.sqrt(3))
    both = np.concatenate([sources[0], targets[0]])
    assert found.coherence == pytest.approx(np.abs(gram - np.eye(19))[:, both].max())


def test_random_blocks_are_seen_by_all_blocks() -> None:
    """Blocks of one edge can all be looked at: no sample sees more than they do, and a full sample sees the same."""
    rows = make(gaussian(), 23, 11, "p0", NoContents())
    edges = graphs.make(graphs.resolve(graphs.permutation(), 23), 23, "p0", NoContents())
    exact = restricted(rows, edges[:, :1], edges[:, 1:])
    some = sampled(rows, edges, 1, Stream("i", "some"), 5)
    many = sampled(rows, edges, 1, Stream("i", "many"), 300)
    assert some.epsilon <= exact.epsilon and some.mu <= exact.mu and some.blocks == 5
    assert many.epsilon == exact.epsilon and many.mu == exact.mu
    with pytest.raises(BadInput, match=r"block <= 23.*24"):
        sampled(rows, edges, 24, Stream("i", "none"))
    with pytest.raises(BadInput, match="probes >= 1"):
        sampled_leaks(rows, Stream("i", "none"), 0)
