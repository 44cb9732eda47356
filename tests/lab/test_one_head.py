"""One head, decided both ways: against linear programs, against rational arithmetic, and in the judge's verdict."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from keyspan.errors import BadInput
from keyspan.lab import recipes
from keyspan.lab.fleet import sail
from keyspan.lab.judge import judge
from keyspan.lab.one_head import NEGLIGIBLE, applies, gap_bound, one_head
from keyspan.problems import NoContents, graphs
from keyspan.problems.relations import RelationInstance, Relations
from keyspan.seeds import Stream
from keyspan.specs import Channel, Run

Float = NDArray[np.float64]


def instance(items: int, d_model: int, seed: int = 0, graph: graphs.Graph | None = None) -> RelationInstance:
    problem = Relations(items=items, d_model=d_model, graph=graph or graphs.permutation())
    run = run_of(problem, seed)
    return problem.instance(run.problem_id, NoContents())


def run_of(problem: Relations, seed: int, heads: int = 1, d_key: int = 1) -> Run:
    return Run(
        problem=problem,
        replicate=seed,
        instrument=Channel(heads=heads, d_key=d_key),
        recipe=recipes.solver(),
        stopping=recipes.DEFAULT_STOPPING,
        arithmetic="fp64",
    )


def signs_of(problem: RelationInstance) -> Float:
    signs = -np.ones((problem.items, problem.items))
    signs[problem.edges[:, 0], problem.edges[:, 1]] = 1.0
    return signs


def separable(problem: RelationInstance) -> bool:
    """Does a linear program find M and tau with y (x_i M x_j - tau) >= 1 on every pair?"""
    x, y = problem.embeddings, signs_of(problem).reshape(-1)
    features = np.einsum("ia,jb->ijab", x, x).reshape(len(y), -1)
    rows = -y[:, None] * np.hstack([features, -np.ones((len(y), 1))])
    found = linprog(np.zeros(rows.shape[1]), A_ub=rows, b_ub=-np.ones(len(y)), bounds=(None, None), method="highs")
    assert found.status in (0, 2)
    return bool(found.status == 0)


@settings(max_examples=60, deadline=None)
@given(items=st.integers(3, 15), d_model=st.integers(2, 5), seed=st.integers(0, 10**6), kind=st.sampled_from(["p", "er", "pl"]))
def test_it_agrees_with_linear_programs_and_proves_what_it_says(items: int, d_model: int, seed: int, kind: str) -> None:
    graph = {"p": graphs.permutation(), "er": graphs.erdos_renyi(items), "pl": graphs.power_law()}[kind]
    problem = instance(items, d_model, seed, graph)
    found = one_head(problem)
    assert found.held != found.impossible  # random instances are never on the brink
    assert found.held == separable(problem)
    if found.held:
        scores, on = problem.embeddings @ found.weights @ problem.embeddings.T, signs_of(problem) > 0
        gap = (scores[on].min() - scores[~on].max()) / np.linalg.norm(found.weights)
        assert gap == pytest.approx(found.gap) and found.at_most == math.inf
    else:
        assert 0 <= found.at_most <= 1e-9 and found.pairs >= 2


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), items=st.integers(3, 7), d_model=st.integers(1, 4), lopsided=st.floats(0.5, 2.0))
def test_any_multipliers_bound_the_gap_of_any_weights(seed: int, items: int, d_model: int, lopsided: float) -> None:
    """In rational arithmetic: |R| and the sums are not above what is said of them, and no M has a larger gap."""
    problem, stream = instance(items, d_model, seed), Stream(str(seed), "multipliers")
    x, signs = problem.embeddings, signs_of(problem)
    a = signs * np.maximum(stream.normal((items, items)), 0.0) * np.where(signs > 0, lopsided, 1.0)
    bound = gap_bound(x, a)
    on = [(i, j) for i in range(items) for j in range(items) if signs[i, j] > 0]
    alpha = sum((Fraction(a[i, j]) for i, j in on), Fraction(0))
    if alpha == 0:
        assert bound == math.inf
        return
    exact = [[Fraction(v) for v in row] for row in x.tolist()]
    moment = sum(
        sum(Fraction(a[i, j]) * exact[i][p] * exact[j][q] for i in range(items) for j in range(items)) ** 2
        for p in range(d_model)
        for q in range(d_model)
    )
    apart = abs(sum((Fraction(v) for v in a.reshape(-1).tolist()), Fraction(0)))
    longest = max(sum(v * v for v in row) for row in exact)
    left = (Fraction(bound) * alpha - apart * longest) ** 2
    assert Fraction(bound) * alpha >= apart * longest and left >= moment
    for k in range(20):
        m = stream.normal((d_model, d_model)) if k else x.T @ a @ x
        scores = x @ m @ x.T
        size = float(np.linalg.norm(m))
        assert (scores[signs > 0].min() - scores[signs < 0].max()) / size <= bound * (1 + 1e-12) + 1e-12


def test_the_bound_is_attained_where_one_edge_faces_one_pair() -> None:
    """x_1 -> x_1 is the only edge that counts, x_2 -> x_1 the only other pair: the gap of the best M is |x_1 - x_2| |x_1|."""
    x = np.array([[3.0, 0.0], [0.0, 4.0]])
    a = np.array([[1.0, 0.0], [-1.0, 0.0]])
    assert gap_bound(x, a) == pytest.approx(3.0 * 5.0, rel=1e-5)


def test_on_either_side_of_the_critical_size() -> None:
    """d = 8: P(m, 1) = d^2 near 19 items. Well below it a head is found, well above none can be."""
    assert all(one_head(instance(12, 8, seed)).held for seed in range(4))
    assert all(one_head(instance(30, 8, seed)).impossible for seed in range(4))


def test_scale_does_not_matter() -> None:
    for problem in (instance(12, 8), instance(30, 8)):
        found = one_head(problem)
        for factor in (1e-3, 1e3):
            other = one_head(RelationInstance(None, problem.edges, problem.embeddings * factor))
            assert (other.held, other.impossible) == (found.held, found.impossible)


def test_items_that_share_a_vector_are_told_apart_by_no_head() -> None:
    problem = instance(6, 4)
    rows = problem.embeddings.copy()
    rows[1] = rows[0]
    found = one_head(RelationInstance(None, problem.edges, rows))
    assert found.impossible and found.at_most <= NEGLIGIBLE * found.rows


def test_what_is_too_large_is_not_tried() -> None:
    large, full = instance(40, 25), RelationInstance(None, np.array([[0, 0]]), np.ones((1, 1)))
    assert not applies(large) and not applies(full)
    with pytest.raises(BadInput, match="d_model <= 24"):
        one_head(large)


def test_the_judge_says_that_no_head_could_have_done_it() -> None:
    problem = instance(30, 8)
    weights = {"w_query": np.zeros((1, 8, 2)), "w_key": np.zeros((1, 8, 2)), "bias": np.array(-1.0)}
    plain, proven = judge(problem, weights), judge(problem, weights, certify=True)
    assert "one_head" not in plain.witness and proven.scores == plain.scores and proven.exact is False
    assert proven.measured and proven.witness["one_head"]["gap_at_most"] <= 1e-9
    two = {k: np.concatenate([v, v]) if v.ndim else v for k, v in weights.items()}
    assert "one_head" not in judge(problem, two, certify=True).witness  # two heads might


def test_a_solver_that_fails_where_nothing_can_succeed_says_so() -> None:
    short = replace(recipes.solver(steps=6))
    hopeless, open_ = (replace(run_of(Relations(items=m, d_model=8), 0, d_key=3), recipe=short) for m in (30, 12))
    found = {f.run.run_id: f.verdict for f in sail([hopeless, open_])}
    assert not any(v.exact for v in found.values())
    assert "one_head" in found[hopeless.run_id].witness and "one_head" not in found[open_.run_id].witness
