"""The judge against an m x m computation with every threshold, and against planes that a linear program finds."""

from __future__ import annotations

import itertools
import math
import tracemalloc
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from keyspan.errors import BadInput
from keyspan.lab.judge import judge, judge_channel
from keyspan.problems import NoContents, embeddings, graphs
from keyspan.problems.dichotomies import Dichotomies, DichotomyInstance
from keyspan.problems.relations import RelationInstance, Relations
from keyspan.seeds import Stream
from keyspan.verdict import Status, Verdict

Float = NDArray[np.float64]
Edges = NDArray[np.int64]


def bare(edges: Edges, rows: Float) -> RelationInstance:
    return RelationInstance(spec=None, edges=edges, embeddings=rows)


def graph(items: int, count: int, seed: int = 0) -> Edges:
    spec = graphs.resolve(graphs.erdos_renyi(count), items)
    return graphs.make(spec, items, f"p{seed}", NoContents())


@dataclass
class Dense:
    """Everything that the judge says, from the whole matrix of scores and every threshold that can matter."""

    scores: Float
    edges: Edges
    tau: float

    @classmethod
    def of(cls, instance: RelationInstance, w_query: Float, w_key: Float, bias: float) -> Dense:
        q = np.einsum("ia,kac->kic", instance.embeddings, w_query)
        k = np.einsum("jb,kbc->kjc", instance.embeddings, w_key)
        return cls(np.einsum("kic,kjc->kij", q, k).max(axis=0), instance.edges, -bias)

    @property
    def is_edge(self) -> NDArray[np.bool_]:
        mask = np.zeros(self.scores.shape, dtype=bool)
        mask[self.edges[:, 0], self.edges[:, 1]] = True
        return mask

    def counts(self, tau: float) -> tuple[int, int, int]:
        """True positives, false positives, false negatives at a threshold."""
        said = self.scores > tau
        return (
            int((said & self.is_edge).sum()),
            int((said & ~self.is_edge).sum()),
            int((~said & self.is_edge).sum()),
        )

    def f1(self, tau: float) -> float:
        tp, fp, fn = self.counts(tau)
        return 2 * tp / (2 * tp + fp + fn)

    def f1_best(self) -> float:
        levels = np.unique(self.scores)
        between = (levels[1:] + levels[:-1]) / 2
        return max(self.f1(t) for t in [levels[0] - 1, *between, levels[-1] + 1])

    def assert_agrees(self, verdict: Verdict, tolerance: float = 0.0) -> None:
        """Counts must be equal; scores, too, unless they were summed in another order."""
        assert verdict.status is Status.MEASURED
        tp, fp, fn = self.counts(self.tau)
        w, s = verdict.witness, verdict.scores
        assert (w["true_positives"], w["false_positives"], w["false_negatives"]) == (tp, fp, fn)
        assert s["f1"] == self.f1(self.tau) and s["threshold"] == self.tau
        assert s["precision"] == (tp / (tp + fp) if tp + fp else 0.0) and s["recall"] == tp / (tp + fn)
        assert verdict.exact == (fp == fn == 0) == (s["f1"] == 1.0)
        assert s["f1_best"] == self.f1_best()
        on, off = self.scores[self.is_edge], self.scores[~self.is_edge]
        self._assert_at(w["min_edge"], float(on.min()), True, tolerance)
        if off.size:
            self._assert_at(w["max_nonedge"], float(off.max()), False, tolerance)
            assert s["margin"] == pytest.approx(on.min() - off.max(), abs=tolerance, rel=0)
        else:
            assert "margin" not in s and w["max_nonedge"] is None

    def _assert_at(self, said: dict[str, Any], score: float, edge: bool, tolerance: float) -> None:
        place = (said["source"], said["target"])
        assert said["score"] == pytest.approx(score, abs=tolerance, rel=0)
        assert self.scores[place] == pytest.approx(score, abs=tolerance, rel=0) and self.is_edge[place] == edge


def assert_best_is_reached(
    instance: RelationInstance, w_query: Float, w_key: Float, verdict: Verdict, tile: int = 1024
) -> None:
    """At the threshold that the judge calls best, the F1 is the one that it calls best."""
    there = judge_channel(instance, w_query, w_key, -verdict.witness["threshold_best"], tile)
    assert there.scores["f1"] == there.scores["f1_best"] == verdict.scores["f1_best"]


def whole_numbers(name: str, shape: tuple[int, ...], top: int) -> Float:
    """Numbers in -top..top: every product and every sum of a few of them is exact, so ties are true ties."""
    drawn = Stream(name, "whole").integers(2 * top + 1, math.prod(shape)) - top
    return drawn.astype(np.float64).reshape(shape)


# ------------------------------------------------------------------------------------- against every threshold


@pytest.mark.parametrize("tile", [5, 7, 23, 1024])
@pytest.mark.parametrize("heads, d_key", [(1, 1), (1, 5), (3, 2), (7, 1)])
@pytest.mark.parametrize("count", [1, 23, 300])
def test_whole_numbers_with_many_ties(heads: int, d_key: int, count: int, tile: int) -> None:
    x = whole_numbers(f"x{count}", (23, 3), 1)
    for seed in range(3):
        wq, wk = whole_numbers(f"w{seed}", (2, heads, 3, d_key), 2)
        instance = bare(graph(23, count, seed), x)
        for bias in (0.0, -1.0, 2.0, -2.5, 1000.0, -1000.0):
            verdict = judge_channel(instance, wq, wk, bias, tile)
            Dense.of(instance, wq, wk, bias).assert_agrees(verdict)
        assert_best_is_reached(instance, wq, wk, verdict, tile)


@pytest.mark.parametrize("tile", [5, 16, 1024])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_random_weights(scale: float, tile: int) -> None:
    for seed, (heads, d_key) in enumerate([(1, 2), (2, 3), (5, 7)]):
        problem = Relations(items=37, d_model=11, graph=graphs.erdos_renyi(53))
        instance = problem.instance(f"p{seed}", NoContents())
        wq, wk = Stream(f"{seed}", "weights").normal((2, heads, 11, d_key)) * scale
        for bias in (0.0, -0.5 * scale**2, 0.5 * scale**2):
            verdict = judge_channel(instance, wq, wk, bias, tile)
            Dense.of(instance, wq, wk, bias).assert_agrees(verdict, tolerance=1e-11 * scale**2)
        assert_best_is_reached(instance, wq, wk, verdict, tile)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3, 1.0])
def test_weights_of_every_quality(noise: float) -> None:
    """From exact to hopeless: one head per edge, disturbed more and more."""
    instance = Relations(items=29, d_model=13).instance("p1", NoContents())
    wq, wk = one_head_per_edge(instance)
    wq, wk = wq + noise * Stream("q", "noise").normal(wq.shape), wk + noise * Stream("k", "noise").normal(wk.shape)
    verdict = judge_channel(instance, wq, wk, -0.8)
    Dense.of(instance, wq, wk, -0.8).assert_agrees(verdict, tolerance=1e-11)
    assert_best_is_reached(instance, wq, wk, verdict)
    assert verdict.exact is (noise == 0.0)


def test_the_judge_of_the_laboratory_is_this_one() -> None:
    instance = Relations(items=13, d_model=5).instance("p1", NoContents())
    wq, wk = Stream("w", "weights").normal((2, 3, 5, 2))
    said = judge(instance, {"w_query": wq, "w_key": wk, "bias": np.array(-0.3)})
    assert said == judge_channel(instance, wq, wk, -0.3)
    assert Verdict.from_json(said.to_json()) == said


def test_tiles_change_nothing() -> None:
    x = whole_numbers("x", (23, 5), 3)
    wq, wk = whole_numbers("w", (2, 3, 5, 2), 3)
    instance = bare(graph(23, 41), x)
    counts = []
    for tile in (1, 2, 7, 22, 23, 24, 1024):
        verdict = judge_channel(instance, wq, wk, -4.0, tile)
        found = verdict.witness["max_nonedge"]
        counts.append((dict(verdict.scores), {k: v for k, v in verdict.witness.items() if k != "max_nonedge"}, found["score"]))
    assert all(c == counts[0] for c in counts)


# ---------------------------------------------------------------------------------------------- special graphs


def test_a_single_edge() -> None:
    x = np.eye(3)
    s = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0]])
    instance = bare(np.array([[1, 2]]), x)
    verdict = judge_channel(instance, np.eye(3)[None], np.ascontiguousarray(s.T)[None], -4.5)
    assert dict(verdict.scores) == {
        "f1": 2 / 5,
        "f1_best": 2 / 5,
        "threshold": 4.5,
        "precision": 1 / 4,
        "recall": 1.0,
        "margin": -3.0,
    }
    assert verdict.witness["min_edge"] == {"score": 5.0, "source": 1, "target": 2}
    assert verdict.witness["max_nonedge"] == {"score": 8.0, "source": 2, "target": 2}
    Dense.of(instance, np.eye(3)[None], np.ascontiguousarray(s.T)[None], -4.5).assert_agrees(verdict)


def test_the_best_threshold_lets_nothing_in_that_lies_between_two_edges() -> None:
    """Edges score 1, 5, 6, others 4.5, 4.4, 4.3 ...: halfway from 5 down to 1 would let three of them in."""
    s = np.array([[1.0, 5.0, 6.0], [4.5, 4.4, 4.3], [0.0, 0.0, 0.0]])
    instance = bare(np.array([[0, 0], [0, 1], [0, 2]]), np.eye(3))
    verdict = judge_channel(instance, np.eye(3)[None], np.ascontiguousarray(s.T)[None], 0.0)
    assert verdict.scores["f1_best"] == 0.8
    assert 4.5 <= verdict.witness["threshold_best"] < 5.0


def test_a_graph_that_is_complete_has_no_nonedge() -> None:
    x = whole_numbers("x", (5, 3), 2)
    wq, wk = whole_numbers("w", (2, 2, 3, 2), 2)
    everything = bare(np.array(list(itertools.product(range(5), repeat=2))), x)
    verdict = judge_channel(everything, wq, wk, 1e6)
    Dense.of(everything, wq, wk, 1e6).assert_agrees(verdict)
    assert verdict.exact and "margin" not in verdict.scores and verdict.witness["max_nonedge"] is None


def test_items_that_share_a_vector_cannot_be_told_apart() -> None:
    x = whole_numbers("x", (7, 5), 3)[[0, 1, 1, 2, 3, 3, 3]]
    instance = bare(graphs.make(graphs.permutation(), 7, "p1", NoContents()), x)
    for seed in range(10):
        wq, wk = whole_numbers(f"w{seed}", (2, 3, 5, 2), 3)
        verdict = judge_channel(instance, wq, wk, -1.0)
        Dense.of(instance, wq, wk, -1.0).assert_agrees(verdict)
        assert not verdict.exact and verdict.scores["margin"] <= 0
        assert verdict.scores["f1_best"] <= instance.best < 1


def test_rounding_does_not_tell_twins_apart() -> None:
    """Items with one vector have one score, but a product rounds by place: the ceiling holds all the same."""
    for items, seed in itertools.product((7, 11, 23), range(60)):
        stream = Stream(f"{seed}", "twins")
        x = stream.normal((items, 7))
        wq, wk = stream.normal((2, 1, 7, 5 + seed % 23))
        scores = Dense.of(bare(np.zeros((0, 2), dtype=np.int64), x), wq, wk, 0.0).scores
        source, target = (int(i) for i in np.unravel_index(scores.argmax(), scores.shape))
        twin = next(i for i in stream.permutation(items).tolist() if i not in (source, target))
        x[twin] = x[target]
        instance = bare(np.array([[source, target]]), x)
        assert judge_channel(instance, wq, wk, 0.0).scores["f1_best"] <= instance.best < 1


@pytest.mark.parametrize("bias, exact", [(-2.0, False), (-1.999, True), (-1.0, True), (-0.999, False)])
def test_a_score_at_the_threshold_is_no_edge(bias: float, exact: bool) -> None:
    """Edges score 2, others at most 1: at tau = 2 no edge is above it, at tau = 1 no other is."""
    s = np.array([[1.0, 2.0], [2.0, 0.0]])
    instance = bare(np.array([[0, 1], [1, 0]]), np.eye(2))
    verdict = judge_channel(instance, np.eye(2)[None], np.ascontiguousarray(s.T)[None], bias)
    assert verdict.exact is exact
    assert verdict.scores["recall"] == (0.0 if bias == -2.0 else 1.0)
    assert verdict.scores["f1_best"] == 1.0 and verdict.scores["margin"] == 1.0
    assert verdict.witness["threshold_best"] == 1.5


# ------------------------------------------------------------------------------- constructions with a known margin


def one_head_per_edge(instance: RelationInstance) -> tuple[Float, Float]:
    """Head a is the rank-1 product of the vectors of edge a."""
    x, (source, target) = instance.embeddings, instance.edges.T
    return x[source][:, :, None], x[target][:, :, None]


@pytest.mark.parametrize("items, d_model", [(29, 13), (61, 11), (13, 17)])
def test_one_head_per_edge_is_exact_with_the_margin_of_the_nearest_items(items: int, d_model: int) -> None:
    """docs/mathematics.md, "One head per edge": the margin is 1 less the largest inner product of two items."""
    instance = Relations(items=items, d_model=d_model).instance("p1", NoContents())
    gram = instance.embeddings @ instance.embeddings.T - 2 * np.eye(items)
    nearest = float(gram.max())
    verdict = judge_channel(instance, *one_head_per_edge(instance), bias=-(1 + nearest) / 2)
    assert verdict.exact and verdict.scores["f1"] == verdict.scores["f1_best"] == 1.0
    assert verdict.scores["margin"] == pytest.approx(1 - nearest, abs=1e-12)
    assert verdict.scores["margin"] >= 1 - embeddings.coherence(instance.embeddings) - 1e-12
    assert verdict.witness["min_edge"]["score"] == pytest.approx(1.0, abs=1e-12)


def coded(instance: RelationInstance, codes: NDArray[Any]) -> tuple[Float, Float]:
    """One-hot items: a source and its target carry one code, so S_ij is the product of the codes of two sources."""
    source, target = instance.edges.T
    query, key = np.zeros((2, 1, *codes.shape))
    query[0, source], key[0, target] = codes[source], codes[source]
    return query, key


def test_distinct_binary_codes_hold_a_permutation_of_one_hot_items() -> None:
    """docs/mathematics.md, "Codes": 2^d_k distinct codes have margin 2/d_k."""
    problem = Relations(items=32, d_model=32, embeddings=embeddings.one_hot())
    instance = problem.instance("p1", NoContents())
    codes = (2.0 * ((np.arange(32)[:, None] >> np.arange(5)) & 1) - 1) / math.sqrt(5)
    verdict = judge_channel(instance, *coded(instance, codes), bias=-0.8)
    assert verdict.exact and verdict.scores["margin"] == pytest.approx(2 / 5, abs=1e-12)
    codes[7] = codes[3]  # two sources with one code: each also points to the other's target
    broken = judge_channel(instance, *coded(instance, codes), bias=-0.8)
    assert not broken.exact and broken.witness["false_positives"] == 2 and broken.witness["false_negatives"] == 0
    assert broken.scores["margin"] == 0.0 and broken.scores["f1"] == 2 * 32 / (2 * 32 + 2)


@pytest.mark.parametrize("items", [3, 17, 257])
def test_points_on_a_circle_hold_any_permutation_with_two_key_dimensions(items: int) -> None:
    """docs/mathematics.md, "Codes": the margin is 1 - cos(2 pi / m)."""
    problem = Relations(items=items, d_model=items, embeddings=embeddings.one_hot())
    instance = problem.instance("p1", NoContents())
    angle = 2 * math.pi * np.arange(items) / items
    codes = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    gap = 1 - math.cos(2 * math.pi / items)
    verdict = judge_channel(instance, *coded(instance, codes), bias=-(1 - gap / 2))
    assert verdict.exact and verdict.scores["margin"] == pytest.approx(gap, rel=1e-9)


# ------------------------------------------------------------------------------------ no numbers, no verdict


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", ["w_query", "w_key", "bias"])
def test_weights_that_are_no_numbers_have_diverged(where: str, bad: float) -> None:
    instance = Relations(items=7, d_model=5).instance("p1", NoContents())
    answers = {"w_query": np.ones((2, 5, 3)), "w_key": np.ones((2, 5, 3)), "bias": np.zeros(())}
    answers[where] = np.array(answers[where])
    answers[where].flat[-1] = bad
    verdict = judge(instance, answers)
    assert verdict.status is Status.DIVERGED and verdict.exact is None and not verdict.scores


@pytest.mark.parametrize("key", [1e200, -1e200])
@pytest.mark.parametrize("source", [0, 1])
def test_scores_that_are_no_numbers_have_diverged(source: int, key: float) -> None:
    """Finite weights whose products are not: on an edge (source 0) or beside it (source 1), infinite or inf - inf."""
    instance = bare(np.array([[0, 2]]), np.eye(3))
    for second in (0.0, 1e200):
        query, keys = np.zeros((1, 3, 2)), np.zeros((1, 3, 2))
        query[0, source], keys[0, 2] = (1e200, second), (key, -key)
        assert judge_channel(instance, query, keys, -0.5).status is Status.DIVERGED


@pytest.mark.parametrize(
    "query, key",
    [
        ((2, 5, 3), (2, 5, 2)),
        ((2, 7, 3), (2, 7, 3)),
        ((1, 5, 3), (2, 5, 3)),
        ((5, 3), (5, 3)),
        ((2, 3, 5), (2, 3, 5)),
        ((0, 5, 3), (0, 5, 3)),
    ],
)
def test_weights_of_another_shape_are_refused(query: tuple[int, ...], key: tuple[int, ...]) -> None:
    instance = Relations(items=11, d_model=5).instance("p1", NoContents())
    with pytest.raises(BadInput, match="d_model"):
        judge_channel(instance, np.ones(query), np.ones(key), 0.0)


def test_a_problem_that_the_judge_does_not_know_is_refused() -> None:
    with pytest.raises(BadInput, match="str"):
        judge("a graph", {})


@pytest.mark.parametrize(
    ("items", "edges", "d_key", "most"),
    [(4096, 4096, 32, 64e6), (1024, 2**18, 64, 100e6)],
    ids=["many items: all scores would take 134 MB", "many edges: their queries and keys would take 268 MB"],
)
def test_the_judge_needs_no_square_of_the_items(items: int, edges: int, d_key: int, most: float) -> None:
    heads, d_model = 1, 17
    instance = Relations(items=items, d_model=d_model, graph=graphs.erdos_renyi(edges)).instance("p1", NoContents())
    wq, wk = Stream("w", "weights").normal((2, heads, d_model, d_key))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        verdict = judge_channel(instance, wq, wk, 0.0)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert verdict.measured and peak < most
    said = verdict.witness["true_positives"] + verdict.witness["false_positives"]
    assert items * items / 4 < said <= items * items


# ------------------------------------------------------------------------------------------------ dichotomies


def labelled(dimension: int, examples: int, seed: int = 0) -> DichotomyInstance:
    return Dichotomies(dimension=dimension, examples=examples).instance(f"p{seed}", NoContents())


def best_by_program(signed: Float) -> float:
    """max_w min_t y_t x_t . w over |w|_1 <= 1: never above the best margin of a unit vector, and of its sign."""
    examples, d = signed.shape
    rows = np.hstack([-signed, signed, np.ones((examples, 1))])  # w = p - n, margin s: s - y x . w <= 0
    found = linprog(
        [0.0] * (2 * d) + [-1.0],
        A_ub=np.vstack([rows, [1.0] * (2 * d) + [0.0]]),
        b_ub=[0.0] * examples + [1.0],
        bounds=[(0, None)] * (2 * d) + [(None, None)],
    )
    assert found.status == 0
    return -float(found.fun)


def test_a_plane_that_fits_all_labels() -> None:
    instance = labelled(7, 5)
    w = np.linalg.pinv(instance.points) @ instance.labels
    for scale in (1e-6, 1.0, 1e6):
        verdict = judge(instance, {"w": w * scale}, certify=True)
        assert verdict.exact and verdict.scores["fitted"] == verdict.scores["accuracy"] == 1.0
        assert verdict.scores["margin"] == pytest.approx(1 / np.linalg.norm(w)) and not verdict.witness


def test_a_point_on_the_plane_is_not_fitted() -> None:
    instance = DichotomyInstance(points=np.eye(3), labels=np.array([1.0, -1.0, 1.0]))
    assert judge(instance, {"w": np.array([1.0, -1.0, 1.0])}).exact
    verdict = judge(instance, {"w": np.array([1.0, -1.0, 0.0])})
    assert not verdict.exact and verdict.scores["accuracy"] == 2 / 3 and verdict.scores["margin"] == 0.0


def least_squares_hinge(signed: Float) -> Float:
    """The minimum of sum max(0, 1 - y x . w)^2, by Newton's method on the points that are short."""
    w = np.zeros(signed.shape[1])
    for _ in range(100):
        short = signed[signed @ w < 1]
        w = np.linalg.pinv(short) @ np.ones(len(short))
    return w


def test_a_failure_is_proven_by_gordan_and_only_then_counted() -> None:
    """Where no plane exists, the minimum of the squared hinge carries the proof; other weights carry none."""
    proven = 0
    for seed in range(12):
        instance = labelled(3, 11, seed)
        signed = instance.labels[:, None] * instance.points
        if best_by_program(signed) > 0:
            continue
        proven += 1
        verdict = judge(instance, {"w": least_squares_hinge(signed)}, certify=True)
        assert verdict.measured and verdict.exact is False and verdict.scores["fitted"] == 0.0
        assert 0 <= verdict.witness["largest_possible_margin"] <= 1e-7
        some = {"w": Stream(f"{seed}", "w").normal((3,))}
        doubtful = judge(instance, some, certify=True)
        assert doubtful.status is Status.UNCONVERGED and not doubtful.scores
        plain = judge(instance, some)
        assert plain.measured and plain.scores["fitted"] == 0.0 and plain.scores["accuracy"] < 1
    assert proven >= 5


@pytest.mark.parametrize("dimension, examples", [(2, 5), (3, 7), (5, 13)])
def test_no_plane_has_a_margin_above_the_bound(dimension: int, examples: int) -> None:
    checked = 0
    for seed in range(20):
        instance = labelled(dimension, examples, seed)
        best = best_by_program(instance.labels[:, None] * instance.points)
        for scale in (0.3, 1.0, 3.0):
            verdict = judge(instance, {"w": Stream(f"{seed}", "w").normal((dimension,)) * scale})
            assert verdict.measured
            if verdict.exact:
                assert best > 0
            else:
                assert verdict.witness["largest_possible_margin"] >= best - 1e-12
                checked += 1
    assert checked > 20


def test_the_bound_is_tight_where_the_best_plane_is_known() -> None:
    """Two points at angles +-60 degrees: the best direction lies between them, with margin cos 60."""
    points = np.array([[math.cos(math.pi / 3), math.sin(math.pi / 3)], [math.cos(math.pi / 3), -math.sin(math.pi / 3)]])
    instance = DichotomyInstance(points=points, labels=np.ones(2))
    verdict = judge(instance, {"w": np.zeros(2)})
    assert verdict.witness["largest_possible_margin"] == pytest.approx(0.5) and "margin" not in verdict.scores
    assert judge(instance, {"w": np.array([1.0, 0.0])}).scores["margin"] == pytest.approx(0.5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_plane_that_is_no_number_has_diverged(bad: float) -> None:
    assert judge(labelled(3, 5), {"w": np.array([0.0, bad, 1.0])}).status is Status.DIVERGED


def test_a_plane_whose_length_is_no_number_does_no_harm() -> None:
    """Only the direction counts, but a verdict that gives up is one, too; a crash or a warning is none."""
    w = Stream("w", "plane").normal((3,))
    verdict = judge(labelled(3, 5), {"w": w * 1e200})
    if verdict.measured:
        assert verdict.scores["fitted"] == judge(labelled(3, 5), {"w": w}).scores["fitted"]
    else:
        assert verdict.status is Status.DIVERGED


@pytest.mark.parametrize("shape", [(4,), (2,), (3, 1), ()])
def test_a_plane_of_another_dimension_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(BadInput, match="dimension"):
        judge(labelled(3, 5), {"w": np.ones(shape)})


def test_the_scores_that_a_family_promises_are_given_to_every_member() -> None:
    """An import refuses a record without them; weights of zero have no margin, and still have these."""
    relations, dichotomies = Relations(items=7, d_model=5), Dichotomies(dimension=5, examples=11)
    zeros = {"w_query": np.zeros((1, 5, 2)), "w_key": np.zeros((1, 5, 2)), "bias": np.array(0.0)}
    assert set(relations.scores) <= set(judge(relations.instance("p1", NoContents()), zeros).scores)
    assert set(dichotomies.scores) <= set(judge(dichotomies.instance("p1", NoContents()), {"w": np.zeros(5)}).scores)


def test_scores_of_any_size_warn_of_nothing() -> None:
    """Edges score 0 and the non-edges are huge: the bins of the first pass overflow, the answer does not."""
    x, size = np.eye(5), 1e150
    edges = np.array([[0, 1], [1, 2]])
    wq, wk = size * np.eye(5)[None, :, :], size * np.eye(5)[None, :, :]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        verdict = judge_channel(bare(edges, x), wq, wk, -1.0)
        assert not verdict.exact and verdict.scores["margin"] == -(size**2) and verdict.scores["recall"] == 0.0
        one, other = np.array([1e154, 0, 0, 0, 0]), np.array([1e154, -1e154, 0, 0, 0])  # their margin would overflow
        apart = judge_channel(bare(edges, x), one[None, :, None], other[None, :, None], -1.0)
        assert apart.status is Status.DIVERGED
