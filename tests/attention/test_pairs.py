"""Layers on pairs of tokens: the reference by hand, the batched layer held to it, its own bits, the judge, the figure."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.files.refusals import refused
from tests.lab.test_fleet import assert_company_does_not_matter, in_pieces, train
from tests.papers.made import answered

from keyspan.attention.pairs import PairBucket
from keyspan.attention.reference_pairs import pair_outputs
from keyspan.lab import recipes
from keyspan.lab.costs import cost
from keyspan.lab.fleet import sail
from keyspan.lab.judge import judge
from keyspan.papers.figures import TIERS, Figure
from keyspan.papers.mahdavi_pairs import INTERVALS, PLANS, PUBLISHED, STATISTICS, Plan, measured, questions
from keyspan.problems import NoContents
from keyspan.problems.pairs import PairLayer, Pairs
from keyspan.seeds import Stream
from keyspan.specs import Channel, Run, Stopping, decode
from keyspan.verdict import Status, Verdict
from keyspan.views.drawings import draw_figure, drawing_of

Weights = dict[str, np.ndarray]


def pair_run(heads: int, d_key: int, replicate: int = 0, *, d_model: int = 7, arithmetic: str = "fp32", steps: int = 23) -> Run:
    return Run(
        problem=Pairs(tokens=5, samples=40),
        replicate=replicate,
        instrument=PairLayer(heads=heads, d_key=d_key, d_model=d_model),
        recipe=replace(recipes.association(steps=steps), batch=16),
        stopping=Stopping(check_every=7),
        arithmetic=arithmetic,
    )


def loss(weights: Weights, pairs: np.ndarray, follows: np.ndarray) -> float:
    outputs = pair_outputs(weights, pairs)
    return float((np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(len(pairs)), follows]).mean())


def test_the_reference_by_hand() -> None:
    """One head that attends to the first token alone and hands on what it is."""
    eye = np.eye(3)
    weights = {
        "embedding": eye,
        "unembedding": 2 * eye,
        "positions": np.array([[9.0, 9.0, 9.0], [0.0, 0.0, 0.0]]),
        "w_query": np.ones((1, 3, 1)),
        "w_key": np.ones((1, 3, 1)),
        "w_value": eye[None],
        "w_out": eye[None],
    }
    out = pair_outputs(weights, np.array([1 * 3 + 2]))
    assert np.allclose(out / 2, eye[2] + eye[1] + 9.0, atol=1e-10)


@pytest.mark.parametrize(("arithmetic", "tolerance"), [("fp64", 1e-12), ("fp32", 1e-5)])
def test_value_and_gradient_are_those_of_the_reference(arithmetic: str, tolerance: float) -> None:
    runs = [pair_run(3, 6, k, arithmetic=arithmetic) for k in (0, 1)]
    bucket = PairBucket(runs, "cross-entropy", 2.0, 0.0, torch.device("cpu"))
    instances = [run.problem.instance(run.problem_id, NoContents()) for run in runs]  # type: ignore[attr-defined]
    batch = bucket.load(runs[0].problem.batch(0, instances), runs)  # type: ignore[attr-defined]
    params = bucket.init(runs)
    bucket.turn(batch, {}, [3, 0])
    value, grads = bucket.value_and_grad(params, batch)
    for m, run in enumerate(runs):
        weights = dict(bucket.answers(params, m, run))
        pairs, follows = batch.pairs[m].numpy(), batch.follows[m].numpy()
        assert value is not None and float(value[m]) == pytest.approx(loss(weights, pairs, follows), rel=tolerance)
        slopes, stream = dict(bucket.answers(grads, m, run)), Stream("pairs", "ways")
        for name, slope in slopes.items():
            way = stream.normal(slope.shape)
            up, down = (loss({**weights, name: weights[name] + s * 1e-5 * way}, pairs, follows) for s in (1, -1))
            assert (slope * way).sum() == pytest.approx((up - down) / 2e-5, rel=2e-5, abs=1e-6), name


def test_minibatches_are_the_samples_in_an_order_of_each_epoch() -> None:
    run = pair_run(1, 4)
    instance = run.problem.instance(run.problem_id, NoContents())  # type: ignore[attr-defined]
    orders = [instance.order(epoch) for epoch in (0, 1)]
    assert all(sorted(order) == sorted(instance.samples) for order in orders) and (orders[0] != orders[1]).any()
    assert instance.load == 25 and instance.bits == pytest.approx(25 * np.log2(5)) and len(instance.digest) == 64


def test_a_layer_on_pairs_has_its_own_bits_in_any_company() -> None:
    assert_company_does_not_matter([pair_run(h, 8, k) for k, h in enumerate((1, 3, 4))], "pairs")


def test_interruptions_change_no_bit(tmp_path: Path) -> None:
    runs = [pair_run(h, 8, k) for k, h in enumerate((1, 3))]
    assert in_pieces(runs, tmp_path, itertools.repeat(4, 500)) == train(runs)


def test_it_learns_all_pairs_and_then_leaves() -> None:
    run = pair_run(8, 8, d_model=16, steps=600)
    run = replace(run, problem=Pairs(tokens=5, samples=200), stopping=Stopping(check_every=40))
    (finished,) = sail([run])
    assert finished.verdict.exact and finished.verdict.scores["accuracy"] == 1 and finished.facts["steps"] < 600


def test_the_judge_looks_at_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    run = pair_run(2, 4)
    bucket = PairBucket([run], "cross-entropy", 1.0, 0.0, torch.device("cpu"))
    weights = dict(bucket.answers(bucket.init([run]), 0, run))
    instance = run.problem.instance(run.problem_id, NoContents())  # type: ignore[attr-defined]
    every = np.arange(25)
    verdict = judge(instance, weights)
    assert verdict.scores["loss"] == pytest.approx(loss(weights, every, instance.follows))
    right = pair_outputs(weights, every).argmax(axis=1) == instance.follows
    assert verdict.witness["right"] == right.sum() and verdict.scores["accuracy"] == right.mean()
    assert verdict.scores["accuracy_seen"] == right[instance.samples].mean()
    monkeypatch.setattr("keyspan.lab.pairs.TILE", 4)
    assert judge(instance, weights).scores == pytest.approx(dict(verdict.scores))
    wild = {name: w * 1e200 for name, w in weights.items()}
    assert judge(instance, wild).status is Status.DIVERGED


def test_what_is_refused() -> None:
    run = pair_run(2, 4)
    refused(lambda: Pairs(tokens=1), "tokens")
    refused(lambda: PairLayer(heads=0, d_key=1, d_model=1), "heads")
    other = replace(run, instrument=Channel(heads=1, d_key=1))
    without = replace(run, recipe=replace(run.recipe, batch=None))  # type: ignore[type-var]
    refused(lambda: PairBucket([other], "cross-entropy", 1.0, 0.0, torch.device("cpu")), "pairs")
    refused(lambda: PairBucket([without], "cross-entropy", 1.0, 0.0, torch.device("cpu")), "pairs")
    refused(lambda: PairBucket([run], "bce", 1.0, 0.0, torch.device("cpu")), "cross-entropy")
    assert cost(pair_run(9, 4)).flops > cost(run).flops > 0 and decode(run.to_json()) == run


# ------------------------------------------------------------------------------------------------------ the figure


def knows(run: Run) -> Verdict:
    """What is published, a hundredth more with every seed."""
    assert isinstance(run.instrument, PairLayer)
    accuracy = min(1.0, PUBLISHED[run.instrument.heads] + 0.01 * (run.replicate % 3 - 0.5))
    return Verdict(
        status=Status.MEASURED,
        exact=False,
        scores={"accuracy": accuracy, "accuracy_seen": accuracy, "loss": 1.0},
        witness={"right": 1},
    )


def test_the_figure_beside_what_is_published(tmp_path: Path) -> None:
    figure = Figure("pairs", "t", PLANS)
    assert all(len(questions(PLANS[tier], 0)) == len(PLANS[tier].heads) for tier in TIERS)
    asked = questions(PLANS["short"], 2)
    assert [r.replicate for r in asked[0].runs(asked[0].arms[0], 50)] == [2_000_000, 2_000_001, 2_000_002]
    found = measured(figure, "short", asked, [answered(question, knows) for question in asked])
    distance, ratio = (STATISTICS[name](found) for name in ("published_distance", "association_over_bound"))
    assert distance == pytest.approx(0.005, abs=1e-3) and ratio is not None and ratio > 1
    for name, value in (("published_distance", distance), ("association_over_bound", ratio)):
        ends: Any = INTERVALS[name](found)
        assert ends[0] <= value <= ends[1]
    info = drawing_of("mahdavi", "pairs").info(found)
    assert draw_figure(info, "pairs", tmp_path, "mahdavi") and info.rows()[2]["published"] == 0.506
    assert "0.511 with 11 heads (published 0.506)" in info.alt_text and len(info.printed()[2]) == 7
    few = Figure("pairs", "t", {"smoke": Plan(heads=(1, 6), seeds=2, tokens=8)})
    asked = questions(few.tiers["smoke"], 0)
    small = measured(few, "smoke", asked, [answered(question, knows) for question in asked])
    assert STATISTICS["published_distance"](small) is None and INTERVALS["published_distance"](small) is None
