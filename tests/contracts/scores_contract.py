"""What every source of scores must do: hold the true scores within its errors, at each of its levels, and prove alike."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.lab.test_judge import Dense, bare, graph
from tests.lab.test_proof import blocks

from keyspan.lab.channels import prove_channel
from keyspan.lab.proof import Proof, Scores, prove
from keyspan.problems import NoContents, graphs
from keyspan.problems.relations import RelationInstance, Relations
from keyspan.seeds import Stream

Float = NDArray[np.float64]
UNITS = {"bf16": 2.0**-8, "tf32": 2.0**-10, "fp32": 2.0**-23, "fp64": 2.0**-52}


class ScoresContract:
    """The suite. A source says how it is made, and how items tile: `tile` items along a side"""

    tile = 64

    def scores(self, instance: RelationInstance, w_query: Float, w_key: Float) -> Scores:
        raise NotImplementedError

    def proof(self, instance: RelationInstance, wq: Float, wk: Float, tau: float, *, locate: bool = True) -> Proof:
        return prove(self.scores(instance, wq, wk), tau, locate=locate)

    @pytest.mark.parametrize("heads, d_key, d_model", [(1, 5, 7), (3, 2, 11), (2, 19, 5), (2, 67, 3)])
    @pytest.mark.parametrize("scale", [1.0, 1e-30, 1e25])
    def test_every_level_holds_the_truth(self, heads: int, d_key: int, d_model: int, scale: float) -> None:
        instance = Relations(items=131, d_model=d_model, graph=graphs.erdos_renyi(300)).instance("p1", NoContents())
        wq, wk = Stream("w", "weights").normal((2, heads, d_model, d_key)) * np.array([scale, 1.0]).reshape(2, 1, 1, 1)
        dense, made = Dense.of(instance, wq, wk, 0.0), self.scores(instance, wq, wk)
        size = float(np.abs(dense.scores).max())
        others = np.where(dense.is_edge, -math.inf, dense.scores)
        found, errors = made.on_edges()
        truth = dense.scores[instance.edges[:, 0], instance.edges[:, 1]]
        assert (np.abs(found - truth) <= errors + 1e-14 * size).all() and (errors < 1e-11 * size).all()
        corners = list(made.corners())
        assert corners == [(top, left) for top in range(0, 131, self.tile) for left in range(0, 131, self.tile)]
        for corner in corners:
            here = tuple(slice(start, start + self.tile) for start in corner)
            top = float(others[here].max())
            assert dense.scores[here].max() <= made.ceiling(corner)
            for level in made.levels:
                peak = made.peak(corner, level, -math.inf)
                assert abs(peak.score - top) <= peak.error + 1e-14 * size
                assert peak.error < 8 * size * max(100, 8 * d_key) * UNITS[level]
                at = others[peak.source, peak.target]
                assert peak.source // self.tile * self.tile == corner[0] and peak.target // self.tile * self.tile == corner[1]
                assert at >= top - 2 * peak.error - 1e-14 * size

    def test_sums_that_stand_still(self) -> None:
        """1 + t + t + ..., each t just below half a unit of float32: the true sum is out of reach, and within the error."""
        terms = 257
        line = np.array([1.0] + [math.sqrt(2.0**-24 * 0.999)] * (terms - 1), dtype=np.float32).astype(np.float64)
        truth = sum((Fraction(t) ** 2 for t in line.tolist()), Fraction())
        made = self.scores(bare(np.array([[0, 1]]), np.ones((2, 1))), line[None, None], line[None, None])
        for level in made.levels:
            peak = made.peak((0, 0), level, -math.inf)
            assert abs(Fraction(peak.score) - truth) <= Fraction(peak.error)

    @pytest.mark.parametrize("items, heads, d_key", [(200, 1, 11), (330, 3, 7), (64, 2, 5)])
    def test_what_is_right_is_proven_right(self, items: int, heads: int, d_key: int) -> None:
        instance, wq, wk = blocks(items, heads, d_key)
        ours = prove_channel(instance, wq, wk, -0.9999)
        for locate in (True, False):
            proof = self.proof(instance, wq, wk, 0.9999, locate=locate)
            assert proof.exact is True and proof.separated is True
            assert proof.max_nonedge is not None and ours.max_nonedge is not None
            assert proof.min_edge.score == pytest.approx(ours.min_edge.score, abs=1e-12)
            assert proof.max_nonedge.at_least <= ours.max_nonedge.at_most
            assert ours.max_nonedge.at_least <= proof.max_nonedge.at_most < 0.9999
            if locate:
                assert proof.max_nonedge.score == pytest.approx(ours.max_nonedge.score, abs=1e-12)
                assert proof.max_nonedge.source == ours.max_nonedge.source
        assert self.proof(instance, wq, wk, 1.0001).exact is False

    def test_what_is_wrong_is_proven_wrong(self) -> None:
        instance, wq, wk = blocks(150, 2, 7)
        noisy = wq + 0.5 * Stream("n", "noise").normal(wq.shape)
        for locate in (True, False):
            proof = self.proof(instance, noisy, wk, 0.9, locate=locate)
            assert proof.exact is False and proof.separated is False

    def test_a_tie_is_left_open(self) -> None:
        """Two items with one vector: an edge and a non-edge with one score."""
        instance, wq, wk = blocks(150, 1, 7)
        x = instance.embeddings.copy()
        x[149] = x[0]
        edges = instance.edges[instance.edges[:, 0] != 149]
        proof = self.proof(bare(edges, x), wq, wk, 0.9999)
        assert proof.separated is not True and proof.exact is not True

    def test_items_with_many_targets(self) -> None:
        """An item that points to all others, and items that point to none."""
        instance = bare(np.array([[3, j] for j in range(100)] + [[70, 5]]), Stream("x", "rows").normal((100, 3)))
        wq, wk = Stream("w", "weights").normal((2, 2, 3, 5))
        dense, proof = Dense.of(instance, wq, wk, 0.0), self.proof(instance, wq, wk, 0.0)
        assert proof.max_nonedge is not None
        assert proof.max_nonedge.score == pytest.approx(dense.scores[~dense.is_edge].max(), abs=1e-12)

    def test_weights_of_no_size_prove_nothing_false(self) -> None:
        for scale in (0.0, 5e-324, 1e-310, 1e200):
            instance = bare(graph(70, 40), np.ones((70, 2)))
            weights = np.full((1, 2, 3), scale)
            proof = self.proof(instance, weights, weights, 0.0)
            assert proof.exact is not True and proof.separated is not True  # all scores are equal
