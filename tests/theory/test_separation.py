"""The cheap look at a channel: the dense computation's numbers, and an early stop that never calls a failure a success."""

import numpy as np
import pytest

from keyspan.attention import reference
from keyspan.seeds import Stream
from keyspan.theory import separation
from keyspan.theory.separation import Gap, gap


@pytest.mark.parametrize("tile", [3, 7, 512])
def test_gap_is_the_dense_one(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separation, "ROWS", tile)
    stream = Stream("s", "gap")
    rows, w_query, w_key = stream.normal((23, 7)), stream.normal((3, 7, 5)), stream.normal((3, 7, 5))
    code = np.sort(stream.permutation(23 * 23)[:31])
    edges = np.stack([code // 23, code % 23], axis=1)
    scores = reference.aggregate(reference.scores(rows, w_query, w_key))
    truth = np.zeros(scores.shape, dtype=bool)
    truth[edges[:, 0], edges[:, 1]] = True
    full = gap(rows, edges, w_query, w_key, hasty=False)
    assert full.min_edge == pytest.approx(scores[truth].min(), rel=1e-12)
    assert full.max_nonedge == pytest.approx(scores[~truth].max(), rel=1e-12)
    hasty = gap(rows, edges, w_query, w_key)
    assert not full.separates and not hasty.separates
    assert hasty.max_nonedge <= full.max_nonedge and hasty.min_edge == full.min_edge


def test_threshold_lies_between() -> None:
    assert Gap(1.0, 0.5).threshold == 0.75
    assert Gap(-2.0, -np.inf).threshold < -2.0 and Gap(2.0, -np.inf).threshold < 2.0
