"""Layers in the fleet: their own bits in any company and after any interruption, the best weights kept, and judged."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.contracts.layer_contract import CONTEXTS, layer_run
from tests.files.refusals import refused
from tests.lab.test_fleet import FACTS, assert_company_does_not_matter, in_pieces, train

from keyspan.attention import reference
from keyspan.attention.layer import LayerBucket
from keyspan.lab import recipes
from keyspan.lab.costs import cost
from keyspan.lab.fleet import sail
from keyspan.lab.judge import judge
from keyspan.lab.labels import BINS, SHOWN
from keyspan.lab.optimizers import one_cycle
from keyspan.lab.pack import bucket_key
from keyspan.lab.recipes import Adam, Recipe
from keyspan.problems import NoContents
from keyspan.problems.contexts import Labels
from keyspan.seeds import Stream
from keyspan.specs import Layer, LinearUnit, Run
from keyspan.theory.memorization import theorem
from keyspan.theory.memorizing import explicit_attention, memorize
from keyspan.verdict import Status

SIZES = [(3, 2, 5, 13), (4, 2, 5, 40), (3, 7, 8, 13), (4, 8, 3, 21), (2, 1, 5, 8)]  # heads, d_head, context, examples


@pytest.mark.parametrize("contexts", CONTEXTS)
@pytest.mark.parametrize("d_model, task, arithmetic", [(5, "values", "fp64"), (11, "classes", "fp32"), (40, "values", "fp32")])
def test_a_layer_has_its_own_bits_in_any_company(contexts: str, d_model: int, task: str, arithmetic: str) -> None:
    """Of other H, d_h, n, T and instance."""
    runs = [
        layer_run(*sizes, k, d_model=d_model, contexts=contexts, task=task, arithmetic=arithmetic, batch=8)
        for k, sizes in enumerate(SIZES)
    ]
    assert_company_does_not_matter(runs, f"{contexts}{d_model}")


@pytest.mark.parametrize("calls", [3, 8])
def test_interruptions_change_no_bit(calls: int, tmp_path: Path) -> None:
    runs = [layer_run(*sizes, k, batch=8, steps=33) for k, sizes in enumerate(SIZES)]
    assert in_pieces(runs, tmp_path, itertools.repeat(calls, 500)) == train(runs)


def test_a_member_leaves_when_all_its_examples_are_right_and_is_judged_so() -> None:
    run = layer_run(8, 8, 6, 12, d_model=16, steps=2000, batch=12)
    run = replace(run, recipe=replace(run.recipe, phases=(Adam(steps=2000, peak=0.02),)))  # type: ignore[type-var]
    (finished,) = sail([run])
    assert finished.verdict.exact and finished.facts["steps"] < 2000 and finished.facts["steps"] % 7 == 0
    assert set(finished.facts) == FACTS and finished.facts["load"] == 12
    assert finished.verdict.scores["accuracy"] == 1.0 and finished.verdict.witness["right"] == 12


def test_the_best_weights_are_the_ones_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rate so high that the loss rises again: what leaves is what some look liked best, not what came last."""
    run = layer_run(4, 4, 5, 40, steps=140, batch=8)
    phases = (Adam(steps=140, peak=3.0, warmup=0.9, start=1e3),)
    wild = replace(run, recipe=replace(run.recipe, phases=phases))  # type: ignore[type-var]
    (kept,) = sail([wild])
    monkeypatch.setattr(LayerBucket, "kept", lambda self, params, memory: params)
    (last,) = sail([wild])
    assert kept.verdict.scores["loss"] < 0.9 * last.verdict.scores["loss"]


def test_a_member_that_diverges_is_no_number() -> None:
    run = layer_run(4, 4, 5, 40, steps=60)
    wild = replace(run, recipe=replace(run.recipe, phases=(Adam(steps=60, peak=1e30),)))  # type: ignore[type-var]
    (finished,) = sail([wild])
    assert finished.verdict.status is Status.DIVERGED


def test_who_may_share_a_crew() -> None:
    runs = [layer_run(*sizes, k) for k, sizes in enumerate(SIZES)]
    assert len({bucket_key(r) for r in runs}) == 1
    assert bucket_key(layer_run(5, 2, 5, 13)) != bucket_key(runs[0]) != bucket_key(layer_run(3, 9, 5, 13))
    assert bucket_key(layer_run(3, 2, 5, 13, d_value=2)) != bucket_key(runs[0])


def test_what_costs_more() -> None:
    base = layer_run(4, 8, 16, 400, d_model=32)
    more = [layer_run(8, 8, 16, 400, d_model=32), layer_run(4, 8, 32, 400, d_model=32), layer_run(4, 8, 16, 400, d_model=64)]
    assert all(cost(r).flops > cost(base).flops and cost(r).seconds > cost(base).seconds for r in more)
    assert cost(layer_run(4, 8, 16, 400, d_model=32, contexts="fixed")).flops < cost(base).flops
    assert cost(layer_run(4, 8, 16, 40000, d_model=32)).memory > 50 * 40000 * 16 * 32 / 16


# ------------------------------------------------------------------------------------------------------- the recipe


def test_the_papers_recipe_counts_epochs_and_steps() -> None:
    assert recipes.paper().with_load(500).steps == 50_000
    assert recipes.paper().with_load(100_000).steps == 500 * 100_000 // 256
    assert recipes.paper(steps=1001).with_load(100_000).steps == 1001
    assert recipes.paper("values").loss == "squared-error"
    assert recipes.gradient().with_load(7) == recipes.gradient()
    refused(lambda: Adam(steps=1, peak=1.0, rise="square"), "cosine|linear")
    refused(lambda: Adam(steps=1, peak=1.0, end=2.0), "end")
    refused(lambda: Recipe(name="x", revision=1, loss="bce", phases=(Adam(steps=1, peak=1.0),), batch=0), "batch")


def test_the_papers_rate() -> None:
    """A line from a hundredth over 5% of the steps, then a cosine to 0."""
    phase = recipes.paper(steps=1000).phases[0]
    assert isinstance(phase, Adam)
    assert one_cycle(phase, 0) == pytest.approx(1e-5) and one_cycle(phase, 50) == pytest.approx(1e-3)
    assert one_cycle(phase, 25) == pytest.approx((1e-5 + 1e-3) / 2)
    assert one_cycle(phase, 525) == pytest.approx(0.5e-3) and one_cycle(phase, 1000) == pytest.approx(0, abs=1e-12)
    falling = Adam(steps=100, peak=0.01, warmup=0.0, fall="linear", end=0.05)
    assert [one_cycle(falling, s) for s in (0, 50, 100)] == pytest.approx([0.01, 0.00525, 0.0005])


# -------------------------------------------------------------------------------------------------------- the judge


def test_the_judge_says_what_the_reference_says() -> None:
    run = layer_run(3, 4, 5, 90, d_model=7)
    instance = run.problem.instance(run.problem_id, NoContents())  # type: ignore[attr-defined]
    stream = Stream("judge", "layer")
    shapes = {"w_in": (7, 7), "b_in": (7,), "w_query": (3, 7, 4), "w_key": (3, 7, 4)}
    shapes |= {"w_value": (3, 7, 1), "w_out": (3, 1, 7), "w_label": (7, 7), "b_label": (7,)}
    weights = {name: stream.normal(shape) * 2 for name, shape in shapes.items()}
    verdict = judge(instance, weights, instrument=run.instrument)
    outputs = reference.labels_outputs(weights, instance.queries.astype(float), instance.contexts.astype(float))
    peak = reference.labels_attention(weights, instance.queries.astype(float), instance.contexts.astype(float)).max(axis=2)
    right = outputs.argmax(axis=1) == instance.labels
    assert verdict.scores["accuracy"] == right.mean() and verdict.witness["right"] == right.sum() and not verdict.exact
    assert verdict.scores["loss"] == pytest.approx(reference.cross_entropy(outputs, instance.labels))
    assert verdict.scores["saturated"] == (peak > 0.99).mean()
    assert verdict.scores["unsaturated_examples"] == (peak <= 0.99).any(axis=1).mean()
    said = verdict.witness["saturation"]
    assert np.allclose(said["heads"], (peak > 0.99).mean(axis=0), atol=1e-6)
    assert said["examples"] == np.bincount((peak > 0.99).sum(axis=1), minlength=4).tolist()
    assert sum(said["largest"]) == 270 and len(said["largest"]) == BINS
    assert np.allclose(said["first"], peak[:SHOWN], atol=1e-4)


@pytest.mark.parametrize("tile", [1, 1 << 13])
@pytest.mark.parametrize("contexts", CONTEXTS)
def test_tiles_change_nothing(tile: int, contexts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = layer_run(3, 4, 5, 30, d_model=7, task="values", contexts=contexts)
    finished = next(iter(sail([run])))
    monkeypatch.setattr("keyspan.lab.labels.TILE_BYTES", tile)
    assert finished.answers is not None
    again = judge(finished.instance, dict(finished.answers), instrument=run.instrument)
    assert again.witness == finished.verdict.witness
    assert again.scores == pytest.approx(dict(finished.verdict.scores), rel=1e-12)


def test_an_explicit_layer_goes_through_the_same_judge() -> None:
    problem = Labels(context=6, d_model=13, examples=theorem(4, 6, 5), contexts="fixed", task="values")
    instance = problem.instance("p-explicit", NoContents())
    queries, contexts = instance.queries.astype(float), instance.context(slice(0, 1)).astype(float)
    made = memorize(
        explicit_attention(Stream("p-explicit", "weights"), queries, contexts, 4, 5),
        queries,
        contexts,
        instance.labels[:, None].astype(float),
    )
    weights = {"w_query": made.attention.w_query, "w_key": made.attention.w_key, "w_value": made.readout}
    verdict = judge(instance, weights | {"w_out": np.ones((4, 1, 1))}, instrument=Layer(heads=4, d_key=5, embed=False))
    assert verdict.exact and verdict.scores["loss"] < 1e-18
    assert verdict.scores["saturated"] > 0.9  # 17 examples, 4 of each head's own; those have e^-12 elsewhere


def test_what_overflows_has_diverged_and_what_is_no_layer_is_refused() -> None:
    run = layer_run(3, 4, 5, 9, d_model=7)
    finished = next(iter(sail([run])))
    assert finished.answers is not None
    weights = {k: v * 1e200 for k, v in finished.answers.items()}
    assert judge(finished.instance, weights, instrument=run.instrument).status is Status.DIVERGED
    refused(lambda: judge(finished.instance, weights, instrument=LinearUnit()), "instrument")


def test_a_run_of_labels_is_a_run() -> None:
    run = layer_run(3, 4, 5, 9)
    assert Run.from_json(run.to_json()) == run and run.run_id == Run.from_json(run.to_json()).run_id
