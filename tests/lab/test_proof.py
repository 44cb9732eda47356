"""Proofs of a channel: which tiles they need, what they agree with, when they stay silent."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.lab.test_judge import Dense, bare, one_head_per_edge, whole_numbers

from keyspan.lab import channels
from keyspan.lab.channels import judge_channel, prove_channel
from keyspan.lab.proof import prove
from keyspan.lab.rounding import Spans, forming_error, gamma, largest, product_error
from keyspan.lab.scorer import Scorer
from keyspan.lab.tiles import Tiles
from keyspan.problems import NoContents
from keyspan.problems.relations import RelationInstance, Relations
from keyspan.seeds import Stream
from keyspan.verdict import Verdict

Float = NDArray[np.float64]


def blocks(items: int, heads: int, d_key: int, seed: int = 0) -> tuple[RelationInstance, Float, Float]:
    """A permutation whose items carry their own query and key: head k reads those of the k-th block of items."""
    stream = Stream(f"{seed}", "blocks")
    code = stream.normal((items, d_key))
    code /= np.linalg.norm(code, axis=1, keepdims=True)
    target, width = stream.permutation(items), heads * d_key
    x, read = np.zeros((items, 2 * width)), np.zeros((2, heads, 2 * width, d_key))
    for head in range(heads):
        mine, here = np.arange(items) * heads // items == head, slice(head * d_key, (head + 1) * d_key)
        there = slice(width + here.start, width + here.stop)
        x[mine, here], x[target[mine], there] = code[mine], code[mine]
        read[0, head, here], read[1, head, there] = np.eye(d_key), np.eye(d_key)
    return bare(np.stack([np.arange(items), target], axis=1), x), read[0], read[1]


# ---------------------------------------------------------------------------------------------- the bounds


@pytest.mark.parametrize("heads, d_key, d_model", [(1, 3, 7), (3, 2, 5), (2, 37, 11)])
@pytest.mark.parametrize("spread", [1.0, 1e6])
def test_brackets_hold_the_scores_and_are_narrow(heads: int, d_key: int, d_model: int, spread: float) -> None:
    instance = Relations(items=149, d_model=d_model).instance("p1", NoContents())
    wq, wk = Stream("w", "weights").normal((2, heads, d_model, d_key)) * np.logspace(0, math.log10(spread), d_key)
    dense = Dense.of(instance, wq, wk, 0.0)
    on, off = dense.scores[dense.is_edge], dense.scores[~dense.is_edge]
    for low in (False, True):
        proof = prove_channel(instance, wq, wk, 0.0, 64, low=low)
        assert proof.max_nonedge is not None
        size = float(np.abs(dense.scores).max())
        for bracket, truth in ((proof.min_edge, on.min()), (proof.max_nonedge, off.max())):
            assert bracket.at_least < truth < bracket.at_most
            assert bracket.at_most - bracket.at_least < 1e-11 * size * d_key
            assert dense.scores[bracket.source, bracket.target] == pytest.approx(bracket.score, abs=1e-12 * size)
        assert proof.exact is False and proof.separated is False


@pytest.mark.parametrize(
    "level, ulp, where", [("fp32", 2.0**-24, "product"), ("fp64", 2.0**-53, "product"), ("fp64", 2.0**-53, "forming")]
)
def test_sums_that_stand_still_are_within_the_error(level: str, ulp: float, where: str) -> None:
    """1 + t + t + ..., each t just below half a unit in the last place of 1: added one by one, all of them are lost."""
    terms, each = 201, math.sqrt(ulp * 0.999)
    line = np.array([1.0] + [each] * (terms - 1), dtype=np.float32).astype(np.float64)
    if where == "product":  # the only item's query and key are the weights themselves
        x, wq, wk = np.eye(1), line[None, None], line[None, None]
    else:  # one key dimension, and a row of the item that meets a column of weights
        x, wq, wk = line[None], line[None, :, None], line[None, :, None]
    truth = sum((Fraction(t) ** 2 for t in line.tolist()), Fraction())
    truth = truth if where == "product" else truth**2
    twice = np.vstack([x, x])
    scorer = Scorer(Tiles(bare(np.array([[0, 1]]), twice), wq, wk, 64))
    peak = scorer.peak((0, 0), level)
    assert 50 * ulp < abs(Fraction(peak.score) - truth) <= Fraction(peak.error)
    assert peak.error < 20 * terms * ulp
    score, error = (float(part[0]) for part in scorer.on_edges())
    assert abs(Fraction(score) - truth) <= Fraction(error)


def test_most_tiles_need_no_double_precision() -> None:
    instance, wq, wk = blocks(960, 3, 11)
    proof = prove_channel(instance, wq, wk, -0.999, 64, low=True)
    plain = prove_channel(instance, wq, wk, -0.999, 64, low=False)
    assert proof.exact and plain.exact and proof.max_nonedge == plain.max_nonedge
    assert sum(proof.tiles.values()) == sum(plain.tiles.values()) == 15**2
    assert 1 <= proof.tiles["fp64"] < 25 and plain.tiles == {"norms": 0, "fp64": 225}


def test_norms_settle_what_is_small() -> None:
    """Items whose queries are a hundredth as long as the others cannot matter, and no product says so."""
    instance, wq, wk = blocks(512, 2, 7)
    quiet = np.vstack([instance.embeddings, instance.embeddings * 0.01])
    proof = prove_channel(bare(instance.edges, quiet), wq, wk, -0.999, 64, low=True)
    assert proof.exact and proof.tiles["norms"] == 16 * 16 - 8 * 8


def test_a_level_that_never_helps_is_left_out() -> None:
    """All non-edges alike: no tile lies below another one by more than the error of float32."""
    items, one = 64 * 12, np.ones((1, 1, 1))
    proof = prove_channel(bare(np.array([[0, 0]]), np.full((items, 1), 1 / 3)), one, one, 0.0, 64, low=True)
    assert proof.tiles == {"norms": 0, "fp32": 0, "fp64": 144} and proof.separated is None


def test_a_search_that_may_give_up_stops_at_the_first_error() -> None:
    instance, wq, wk = blocks(640, 1, 5)
    tiles = Tiles(instance, wq[:, :, ::-1], wk, 64)
    whole = prove(Scorer(tiles), 0.9)
    short = prove(Scorer(tiles), 0.9, give_up=True)
    assert whole.exact is False and short.exact is False
    assert sum(short.tiles.values()) < 5 < sum(whole.tiles.values()) == 100
    assert short.max_nonedge is not None and short.max_nonedge.to_json()["at_most"] is None


def test_only_to_decide_costs_less_than_to_locate() -> None:
    instance, wq, wk = blocks(640, 4, 3)
    tiles = Tiles(instance, wq, wk, 64)
    tau = 1 - 1e-6
    found = prove(Scorer(tiles), tau)
    decided = prove(Scorer(tiles), tau, locate=False)
    assert found.exact and decided.exact and decided.tiles["fp64"] <= found.tiles["fp64"]
    assert decided.max_nonedge is not None and found.max_nonedge is not None
    assert decided.max_nonedge.at_most >= found.max_nonedge.score >= decided.max_nonedge.at_least


def test_a_graph_of_all_pairs_has_no_nonedge() -> None:
    every = np.argwhere(np.ones((5, 5)))
    proof = prove_channel(bare(every, np.eye(5)), np.eye(5)[None], np.ones((1, 5, 5)), -0.5)
    assert proof.exact and proof.separated and proof.max_nonedge is None and proof.gap == math.inf


@pytest.mark.parametrize("bias, exact", [(-1.0, None), (-0.999, True), (-1.001, False), (0.0, None), (0.001, False)])
def test_at_the_threshold_rounding_leaves_it_open(bias: float, exact: bool | None) -> None:
    """One-hot: edges score 1, others 0. A tie with the threshold is no error of computing, but no proof either."""
    edges = np.array([[0, 1], [1, 2], [2, 0]])
    proof = prove_channel(bare(edges, np.eye(3)), np.eye(3)[None], np.eye(3)[[2, 0, 1]][None], bias)
    assert proof.exact is exact and proof.separated is True


@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1e-30, 1e30, 1e150, 1e290])
def test_scale_proves_nothing_false(scale: float) -> None:
    instance = Relations(items=131, d_model=13).instance("p1", NoContents())
    wq, wk = one_head_per_edge(instance)
    proof = prove_channel(instance, wq * scale, wk, -scale * (1 - 1e-3), 64, low=True)
    assert proof.exact is not False and proof.separated is not False
    if 1e-100 < scale < 1e140:  # beyond it, norms over- or underflow, and nothing is claimed
        assert proof.exact and proof.tiles["fp32"] > 0


def test_the_error_of_a_product_by_hand() -> None:
    """3-4-5 rows: |q| = 5, |k| = 13, and 2 terms."""
    q, k = (Spans.of(np.array([n]), np.array([e])) for n, e in ((5.0, 1e-3), (13.0, 2e-3)))
    assert largest(q, k)[0] == pytest.approx(65, rel=1e-3) and largest(q, k)[0] >= 5.001 * 13.002
    share = gamma(2, 2.0**-24)
    assert 2 * 2.0**-24 < share < 5 * 2.0**-24
    assert product_error(q, k, 2, share, 0.0) == pytest.approx(1e-3 * 13 + 5 * 2e-3, rel=1e-3)
    assert forming_error(2.0, np.array([3.0]), 7)[0] == pytest.approx(6 * 9 * 2.0**-53, rel=1e-3)
    assert gamma(2**60, 2.0**-53) == math.inf


# ------------------------------------------------------------------------------------------ the judge uses it


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the judge try the proof first, on any number of items."""
    monkeypatch.setattr(channels, "MANY", 2)


def plain_and_proven(instance: RelationInstance, wq: Float, wk: Float, bias: float, monkeypatch: pytest.MonkeyPatch) -> Verdict:
    """The verdict, which must be the same whether the proof goes first or not, but for the last bits of scores."""
    monkeypatch.setattr(channels, "MANY", 10**9)
    plain = judge_channel(instance, wq, wk, bias, 64)
    monkeypatch.setattr(channels, "MANY", 2)
    proven = judge_channel(instance, wq, wk, bias, 64)
    assert proven.exact == plain.exact and proven.scores == pytest.approx(plain.scores, abs=1e-13)
    assert {k: v for k, v in proven.witness.items() if not isinstance(v, dict)} == pytest.approx(
        {k: v for k, v in plain.witness.items() if not isinstance(v, dict)}, abs=1e-13
    )
    for name in ("min_edge", "max_nonedge"):
        assert proven.witness[name]["score"] == pytest.approx(plain.witness[name]["score"], abs=1e-13)
    return proven


@pytest.mark.parametrize("bias", [-0.9999, -0.3, -1.5, -1.0 + 1e-17, 10.0])
def test_the_verdict_is_the_same_with_and_without_a_proof(bias: float, monkeypatch: pytest.MonkeyPatch) -> None:
    instance, wq, wk = blocks(330, 2, 7)
    verdict = plain_and_proven(instance, wq, wk, bias, monkeypatch)
    assert verdict.exact is (bias == -0.9999)
    noisy = wq + 0.05 * Stream("n", "noise").normal(wq.shape)
    plain_and_proven(instance, noisy, wk, bias, monkeypatch)


def test_a_proof_that_fails_leaves_the_counts_exact(few_are_many: None) -> None:
    """Whole numbers with many ties, far from exact: the counts are those of every threshold tried."""
    x = whole_numbers("x", (150, 3), 1)
    wq, wk = whole_numbers("w", (2, 2, 3, 2), 2)
    instance = bare(np.array([[0, 1], [5, 80], [149, 3]]), x)
    Dense.of(instance, wq, wk, -1.0).assert_agrees(judge_channel(instance, wq, wk, -1.0, 64))


def test_tiles_that_do_not_fit_are_formed_when_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    instance, wq, wk = blocks(330, 3, 5)
    held = prove_channel(instance, wq, wk, -0.9999, 64, low=True)
    said = judge_channel(instance, wq, wk, -0.9999, 64)
    monkeypatch.setattr("keyspan.lab.tiles.HOLD", 0)
    monkeypatch.setattr("keyspan.lab.tiles.SOME", 100)
    monkeypatch.setattr("keyspan.lab.scorer.HOLD_LOW", 0)
    formed = prove_channel(instance, wq, wk, -0.9999, 64, low=True)
    assert formed.exact and formed.tiles == held.tiles and formed.max_nonedge == held.max_nonedge
    assert formed.min_edge.score == held.min_edge.score
    assert judge_channel(instance, wq, wk, -0.9999, 64) == said
