"""Repair: the correction is the least-squares one, and rounds make exact what was not."""

import numpy as np
import pytest
from tests.lab.test_judge import bare

from keyspan.lab.judge import judge_channel
from keyspan.problems import NoContents
from keyspan.problems.relations import Relations
from keyspan.seeds import Stream
from keyspan.theory import repair
from keyspan.theory.constructions import Plan, build, plan
from keyspan.theory.repair import repaired
from keyspan.theory.separation import gap


def test_a_correction_solves_its_least_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the normal equations of all d * d_key unknowns at once."""
    monkeypatch.setattr(repair, "ITERATIONS", 200)
    monkeypatch.setattr(repair, "TOLERANCE", 1e-30)
    stream = Stream("r", "correction")
    rows, fixed = stream.normal((17, 7)), stream.normal((17, 3))
    code = stream.permutation(17 * 17)[:41]
    pairs = repair._Pairs(code // 17, code % 17, stream.normal((41,)))
    found = pairs.correction(rows, pairs.source, pairs.target, fixed)
    features = np.einsum("nd,nk->ndk", rows[pairs.target], fixed[pairs.source]).reshape(41, 21)
    rho = repair.RIDGE * (rows**2).sum() / 17
    expected = np.linalg.solve(features.T @ features + rho * np.eye(21), features.T @ pairs.change)
    assert np.allclose(found, expected.reshape(7, 3), atol=1e-9)


def test_only_the_worst_non_edges_are_kept() -> None:
    stream = Stream("r", "worst")
    query, key = stream.normal((11, 3)), stream.normal((11, 3))
    own, high = np.array([[0, 1], [2, 3]]), np.argwhere(query @ key.T > 0.9)
    kept = repair._Pairs.of(own, high, query, key, 5)
    scores = (query @ key.T)[kept.source[2:], kept.target[2:]]
    assert kept.source[:2].tolist() == [0, 2] and len(kept.source) == 7
    assert sorted(scores) == sorted(np.sort((query @ key.T)[high[:, 0], high[:, 1]])[-5:])
    assert np.allclose(scores + kept.change[2:], np.minimum(scores, repair.CAP))


def test_rounds_make_exact_what_is_not() -> None:
    """(128, 32), a permutation: 18 key dimensions. The start gets pairs wrong, the rounds put them right."""
    instance = Relations(items=128, d_model=32).instance("p0", NoContents())
    rows, edges = instance.embeddings, instance.edges
    start = build(Plan(name="quiet", ridge=0.05, quiet=1.5), 2, 9, edges, rows, "p0")
    assert not gap(rows, edges, start.w_query, start.w_key).separates
    made = build(plan("repair"), 2, 9, edges, rows, "p0")
    found = gap(rows, edges, made.w_query, made.w_key, hasty=False)
    assert found.separates and 0 < made.rounds <= 100
    assert judge_channel(bare(edges, rows), made.w_query, made.w_key, -found.threshold).exact
    again = repaired(rows, edges, made.w_query, made.w_key, 100)
    assert again[2] == 0 and (again[0] == made.w_query).all()  # nothing is wrong, so nothing changes


def test_what_cannot_be_held_is_given_up_early() -> None:
    """Two key dimensions for 64 edges in 8: the best weights met are returned, and not all rounds are taken."""
    instance = Relations(items=64, d_model=8).instance("p0", NoContents())
    made = build(plan("repair"), 1, 2, instance.edges, instance.embeddings, "p0")
    assert made.rounds < 60
    assert not gap(instance.embeddings, instance.edges, made.w_query, made.w_key).separates
    assert np.isfinite(made.w_query).all() and np.isfinite(made.w_key).all()


def test_given_up_only_where_the_trend_is_too_slow() -> None:
    closing = [-1.0 + 0.02 * n for n in range(40)]
    assert not repair._hopeless(closing, 60) and repair._hopeless(closing, 2)
    assert repair._hopeless([-1.0] * 40, 60) and not repair._hopeless([-1.0] * 5, 60)
