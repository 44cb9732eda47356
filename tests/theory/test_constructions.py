"""Constructions: what each promises on a small problem, what it refuses, and that draws come from the identity alone."""

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.lab.test_judge import bare

from keyspan.errors import BadInput
from keyspan.lab.judge import judge_channel
from keyspan.problems import NoContents, graphs
from keyspan.problems.embeddings import Embeddings, gaussian, one_hot, sparse
from keyspan.problems.relations import Relations
from keyspan.seeds import Stream
from keyspan.theory import constructions
from keyspan.theory.constructions import BLOCKS, METHODS, Construction, Plan, build, plan
from keyspan.theory.matchings import max_degree
from keyspan.verdict import Verdict

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def problem(items: int, d_model: int, rows: Embeddings | None = None, graph: graphs.Graph | None = None) -> tuple[Int, Float]:
    spec = Relations(items=items, d_model=d_model, embeddings=rows or gaussian(), graph=graph or graphs.permutation())
    instance = spec.instance("p0", NoContents())
    return instance.edges, instance.embeddings


def judged(built: Construction, edges: Int, rows: Float) -> Verdict:
    assert built.threshold is not None
    return judge_channel(bare(edges, rows), built.w_query, built.w_key, -built.threshold)


# --- one head ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "d_key", "margin"), [("binary-codes", 5, 2 / 5), ("circle", 2, 1 - np.cos(2 * np.pi / 29))])
def test_codes_keep_their_margin(name: str, d_key: int, margin: float) -> None:
    edges, rows = problem(29, 31, one_hot())
    built = build(plan(name), 1, d_key, edges, rows, "p0")
    assert built.w_query.shape == (1, 31, d_key) and built.proven
    assert built.margin == pytest.approx(margin)
    verdict = judged(built, edges, rows)
    assert verdict.exact and verdict.scores["margin"] == pytest.approx(margin)


def test_random_signs_are_exact_just_where_all_words_differ() -> None:
    edges, rows = problem(29, 29, one_hot())
    proven = 0
    for draw in range(20):
        built = build(Plan(name="random-signs", draw=draw), 1, 9, edges, rows, "p0")
        proven += built.proven
        assert judged(built, edges, rows).exact is built.proven
        assert built.exact_probability == pytest.approx(np.prod(1 - np.arange(29) / 2**9), rel=1e-12)
    assert 0 < proven < 20


@pytest.mark.parametrize("turned", [False, True])
def test_codes_hold_one_target_per_item_and_one_source_per_item(turned: bool) -> None:
    edges, rows = problem(23, 29, gaussian(), graphs.functional())  # independent rows will do: they need not be one-hot
    if turned:
        edges = edges[:, ::-1][np.lexsort((edges[:, 0], edges[:, 1]))]
    built = build(plan("binary-codes"), 1, 5, edges, rows, "p0")
    assert built.proven and judged(built, edges, rows).exact


def test_codes_refuse_what_they_do_not_hold() -> None:
    edges, rows = problem(11, 13, one_hot(), graphs.regular(2))
    with pytest.raises(BadInput, match=r"one target at most.*degrees up to 2"):
        build(plan("circle"), 1, 2, edges, rows, "p0")
    edges, rows = problem(13, 11)
    with pytest.raises(BadInput, match=r"items <= d_model.*13 and 11"):
        build(plan("circle"), 1, 2, edges, rows, "p0")
    edges, rows = problem(11, 13)
    for wrong, rule in (((2, 2), "--heads 1"), ((1, 3), "--d-key 2")):
        with pytest.raises(BadInput, match=rule):
            build(plan("circle"), *wrong, edges, rows, "p0")
    with pytest.raises(BadInput, match="--d-key >= 4"):
        build(plan("binary-codes"), 1, 3, edges, rows, "p0")


# --- one head per edge ---------------------------------------------------------------------------------------------


def test_trivial_has_the_margin_of_its_coherence() -> None:
    edges, rows = problem(41, 13, graph=graphs.power_law(97))
    built = build(plan("trivial"), 97, 1, edges, rows, "p0")
    assert built.proven and built.margin is not None
    verdict = judged(built, edges, rows)
    assert verdict.exact and verdict.scores["margin"] >= built.margin - 1e-12 > 0.05


def test_trivial_is_not_proven_for_opposite_rows_or_long_ones() -> None:
    rows = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    assert not build(plan("trivial"), 1, 1, np.array([[0, 2]]), rows, "p0").proven
    long = np.array([[1.0, 0.0], [1.5, 1.0], [0.0, 1.0]])  # scores more on item 0's head than item 0 does
    assert not build(plan("trivial"), 1, 1, np.array([[0, 2]]), long, "p0").proven
    with pytest.raises(BadInput, match=r"number of edges.*2 and 1.*--heads 1 --d-key 1"):
        build(plan("trivial"), 2, 1, np.array([[0, 2]]), rows, "p0")


# --- blocks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_are_exact_with_room_and_have_the_shape_asked(name: str) -> None:
    edges, rows = problem(61, 67)
    heads, d_key = (2, 53) if name in ("outer", "cca") else (5, 43)
    built = build(plan(name), heads, d_key, edges, rows, "p0")
    assert built.w_query.shape == built.w_key.shape == (heads, 67, d_key)
    assert (built.heads, built.d_key) == (heads, d_key)
    verdict = judge_channel(bare(edges, rows), built.w_query, built.w_key, -0.5)
    assert verdict.scores["f1_best"] >= (0.95 if name in ("outer", "cca") else 1.0)


def test_inverse_blocks_promise_what_the_judge_finds() -> None:
    edges, rows = problem(127, 131, graph=graphs.regular(2))
    built = build(plan("quiet"), 19, 7, edges, rows, "p0")
    assert built.proven and built.margin is not None and built.threshold == 1 - built.margin / 2
    verdict = judged(built, edges, rows)
    assert verdict.exact and verdict.scores["margin"] >= built.margin
    assert verdict.witness["min_edge"]["score"] == pytest.approx(1.0, abs=1e-9)


def test_a_proof_that_fails_is_no_promise() -> None:
    edges, rows = problem(127, 31)
    built = build(plan("pinv"), 9, 7, edges, rows, "p0")
    assert not built.proven and built.margin is None and built.threshold is None
    assert not all(c.holds for c in built.conditions)


def test_blocks_refuse_what_they_do_not_hold() -> None:
    edges, rows = problem(61, 13, graph=graphs.out_regular(5))
    with pytest.raises(BadInput, match=r"--heads >= .*largest degree.*repair"):
        build(plan("outer"), 2, 3, edges, rows, "p0")
    with pytest.raises(BadInput, match="edges of a head <= d_model"):
        build(plan("pinv"), 20, 3, edges, rows, "p0")
    with pytest.raises(BadInput, match="--heads <= 305"):
        build(plan("ridge"), 306, 3, edges, rows, "p0")
    with pytest.raises(BadInput, match="--d-key <= --d-model"):
        build(plan("cca"), 20, 14, edges, rows, "p0")
    for heads, d_key in ((0, 1), (1, 0)):
        with pytest.raises(BadInput, match=">= 1"):
            build(plan("repair"), heads, d_key, edges, rows, "p0")


def test_repair_holds_hubs_with_fewer_heads_than_edges_of_a_hub() -> None:
    edges, rows = problem(61, 31, graph=graphs.power_law(120))
    assert max_degree(edges, 61) > 8
    built = build(plan("repair"), 4, 6, edges, rows, "p0")
    assert judge_channel(bare(edges, rows), built.w_query, built.w_key, -0.9).scores["margin"] > 0


# --- vectors with a common direction -------------------------------------------------------------------------------


def test_a_common_direction_is_taken_out_by_a_linear_map() -> None:
    edges, rows = problem(127, 31, sparse(13))
    common = constructions.common_direction(rows)
    assert common is not None and np.linalg.norm(common) == pytest.approx(1.0)
    built = build(plan("outer"), 31, 29, edges, rows, "p0")
    assert np.abs(common @ built.w_query).max() < 1e-12  # the weights are blind to it
    raw = judge_channel(bare(edges, rows), built.w_query, built.w_key, -0.5)
    projected = rows - np.outer(rows @ common, common)
    assert judge_channel(bare(edges, projected), built.w_query, built.w_key, -0.5).scores["f1_best"] == raw.scores["f1_best"]


def test_centring_is_what_saves_outer_products_of_sparse_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    edges, rows = problem(127, 61, sparse(23))
    centred = build(plan("outer"), 16, 61, edges, rows, "p0")
    monkeypatch.setattr(constructions, "common_direction", lambda rows: None)
    raw = build(plan("outer"), 16, 61, edges, rows, "p0")
    found = [judge_channel(bare(edges, rows), b.w_query, b.w_key, -0.5).scores["f1_best"] for b in (centred, raw)]
    assert found[0] > 0.9 > 0.5 > found[1]


@pytest.mark.parametrize("family", [gaussian(), one_hot()])
def test_other_vectors_are_left_as_they_are(family: Embeddings) -> None:
    assert constructions.common_direction(problem(31, 37, family)[1]) is None


# --- plans, draws --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BLOCKS)
def test_draws_come_from_the_identity_and_the_draw(name: str) -> None:
    edges, rows = problem(41, 17)
    chosen = Plan(**{**plan(name).__dict__, "rounds": min(plan(name).rounds, 2)})
    one, same = (build(chosen, 5, 3, edges, rows, "p0") for _ in range(2))
    assert (one.w_query == same.w_query).all() and (one.w_key == same.w_key).all()
    other = build(chosen, 5, 3, edges, rows, "p1")
    drawn = build(Plan(**{**chosen.__dict__, "draw": 1}), 5, 3, edges, rows, "p0")
    assert (one.w_query != other.w_query).any() and (one.w_query != drawn.w_query).any()


def test_every_method_has_a_plan() -> None:
    assert [plan(name).name for name in METHODS] == list(METHODS)
    with pytest.raises(BadInput, match=r"--method.*random-signs.*'magic'"):
        plan("magic")
    for field in ("ridge", "quiet", "rounds", "draw"):
        with pytest.raises(BadInput, match=f"{field} >= 0"):
            Plan(**{"name": "quiet", field: -1})  # type: ignore[arg-type]
    assert Plan.from_json(plan("repair").to_json()) == plan("repair")


def test_relative_coherence_is_the_largest_share() -> None:
    rows = Stream("c", "rows").normal((37, 5))
    gram = np.abs(rows @ rows.T) / (rows**2).sum(axis=1)[:, None]
    np.fill_diagonal(gram, 0)
    for tile in (7, 1024):
        assert constructions.relative_coherence(rows, tile) == pytest.approx(gram.max())
        assert constructions.codes_coherence(rows, tile) == pytest.approx((rows @ rows.T - 1e9 * np.eye(37)).max())
