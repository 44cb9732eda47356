"""The prediction of block heads: second moments against simulation, limits, and the study's grid in part."""

import numpy as np
import pytest
from tests.lab.test_judge import bare
from tests.theory.test_constructions import problem

from keyspan.errors import BadInput
from keyspan.lab.judge import judge_channel
from keyspan.seeds import Stream
from keyspan.studies import predictor
from keyspan.theory import blocks, codes
from keyspan.theory.constructions import build, plan
from keyspan.theory.outer_predictor import inverse_moments, inverse_prediction, outer_moments, outer_prediction, outer_spread


@pytest.mark.parametrize("name", ["outer", "pinv"])
def test_second_moments(name: str) -> None:
    """Many blocks of one head: B = 17 edges in 67 dimensions, words of 11 signs. The sources' and targets' rows differ."""
    blocks_made, size, d, k = 1000, 17, 67, 11
    x = Stream("o", "rows").normal((blocks_made, 2 * size + 2, d))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    words = codes.random_signs(Stream("o", "words"), blocks_made * size, k).reshape(blocks_made, size, k)
    ends = x[:, :size], x[:, size : 2 * size]
    w_query, w_key = (blocks.outer_weights(e, words) if name == "outer" else np.linalg.pinv(e) @ words for e in ends)
    query, key = x @ w_query, x @ w_key
    scores = query @ key.transpose(0, 2, 1)
    own = np.einsum("nii->ni", scores[:, :size, size : 2 * size])
    same = scores[:, :size, size : 2 * size][:, ~np.eye(size, dtype=bool)]
    cross = np.concatenate([scores[:, :size, -1].ravel(), scores[:, -1, size : 2 * size].ravel()])
    far = scores[:, -2, -1]
    expected = outer_moments(size, d, k) if name == "outer" else inverse_moments(size, d, k)
    assert own.mean() == pytest.approx(1.0, abs=0.02)
    assert ((own - 1) ** 2).mean() == pytest.approx(expected.edge, rel=0.15, abs=1e-12)
    assert (same**2).mean() == pytest.approx(expected.same, rel=0.05)
    assert (cross**2).mean() == pytest.approx(expected.cross, rel=0.06)
    assert (far**2).mean() == pytest.approx(expected.far, rel=0.2)
    assert (far**4).mean() > 3.5 * (far**2).mean() ** 2  # heavier tails than a normal score, which the spread is for
    assert outer_spread(size, d, k).far > 2 / k


@pytest.mark.parametrize(
    ("sizes", "f1"), [((4096, 512, 16, 85), 0.9917), ((4096, 256, 32, 90), 0.9906), ((2048, 256, 16, 70), 0.9755)]
)
def test_large_blocks_that_were_simulated_before(sizes: tuple[int, int, int, int], f1: float) -> None:
    assert outer_prediction(*sizes).f1 == pytest.approx(f1, abs=0.005)


def test_exactness_comes_where_it_was_seen() -> None:
    """(4096, 512) with 16 heads: exact at d_k 178, which is about where it is as likely as not."""
    assert 0.2 < outer_prediction(4096, 512, 16, 178).exact < 0.8
    assert outer_prediction(4096, 512, 16, 85).exact < 1e-9
    assert outer_prediction(4096, 512, 16, 260).exact > 0.9


def test_wider_heads_are_predicted_to_be_better() -> None:
    found = [outer_prediction(512, 64, 16, k).f1 for k in (2, 5, 11, 23, 47, 97, 397)]
    assert found == sorted(found) and found[0] < 0.2 and found[-1] > 0.95
    assert outer_prediction(512, 64, 1, 7).f1 < outer_prediction(512, 64, 512, 7).f1
    with pytest.raises(BadInput, match="heads <= items"):
        outer_prediction(8, 4, 9, 2)


def test_inverse_blocks() -> None:
    assert inverse_prediction(512, 64, 8, 5) is None  # 64 edges of a head have no inverse to speak of
    found = [inverse_prediction(512, 64, 32, k) for k in (3, 7, 13, 29)]
    scores = [p.f1 for p in found if p is not None]
    assert len(scores) == 4 and scores == sorted(scores)
    edges, rows = problem(512, 64)
    for d_key, expected in ((7, scores[1]), (13, scores[2])):
        built = build(plan("pinv"), 32, d_key, edges, rows, "p0")
        verdict = judge_channel(bare(edges, rows), built.w_query, built.w_key, -0.5)
        assert verdict.scores["f1_best"] == pytest.approx(expected, abs=0.06)


def test_a_part_of_the_grid() -> None:
    """Every fifth point up to 512 items; the whole grid is the study's."""
    points = [p for p in predictor.grid() if p.items <= 512][::5]
    rows = [predictor.measure(p) for p in points]
    rms, mean, largest = predictor.summary(rows)
    assert len(rows) == 11 and rms <= 0.06 and abs(mean) < 0.05 and largest < 0.15
