"""Members that are shown a part of their problem at a time, in the fleet: bits, company, kills, and what was kept."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.lab.test_fleet import alone, channel_run, in_pieces, train

from keyspan.attention import reference
from keyspan.lab.fleet import sail
from keyspan.lab.judge import judge
from keyspan.lab.recipes import Recipe, gradient, showing
from keyspan.lab.retention import f1_by_batch
from keyspan.problems.shown import batch_of
from keyspan.specs import Run, Stopping

KINDS = {
    "contexts": showing(gradient(steps=60), contexts=7),
    "batches": showing(gradient(steps=40), batches=2),
    "replay": showing(gradient(steps=40), batches=2, replay=True),
}


def runs(kind: str) -> list[Run]:
    """Members of one bucket, two of them on one instance."""
    stopping = Stopping(check_every=10)
    made = [
        channel_run(h, k, seed, items=13, recipe=KINDS[kind]) for h, k, seed in [(3, 2, 0), (4, 2, 1), (3, 2, 2), (4, 2, 0)]
    ]
    return [replace(r, stopping=stopping) for r in made]


@pytest.mark.parametrize("kind", KINDS)
def test_company_changes_no_bit(kind: str) -> None:
    assert alone(runs(kind)) == train(runs(kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("calls", [5, 12])
def test_a_kill_changes_no_bit(kind: str, calls: int, tmp_path: Path) -> None:
    assert in_pieces(runs(kind), tmp_path, itertools.repeat(calls, 900)) == train(runs(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_another_view_is_another_run_on_the_same_instance(kind: str) -> None:
    run = runs(kind)[0]
    assert isinstance(run.recipe, Recipe)
    plain = replace(run, recipe=replace(run.recipe, show=None))
    assert plain.problem_id == run.problem_id and plain.weights_id == run.weights_id and plain.run_id != run.run_id
    assert "show" not in plain.recipe.to_json() and Run.from_json(run.to_json()) == run


def test_a_context_of_all_items_is_all_pairs() -> None:
    """The same sums in another order, so the same weights but for rounding."""
    whole = channel_run(3, 2, 0, items=13, recipe=gradient(steps=9))
    parts = replace(whole, recipe=showing(gradient(steps=9), contexts=13))
    (one,), (two,) = (list(sail([replace(run, arithmetic="fp64")])) for run in (whole, parts))
    assert one.answers is not None and two.answers is not None
    assert all(np.allclose(one.answers[k], two.answers[k], rtol=1e-9, atol=1e-12) for k in one.answers)


# --- what was learned and what was kept -----------------------------------------------------------------------------


def test_the_weights_of_every_phase_are_judged() -> None:
    """The first phase of a member is a member of one batch; the judge's matrix is that of the reference."""
    (finished,) = sail([runs("batches")[0]])
    answers, instance, verdict = finished.answers, finished.instance, finished.verdict
    assert answers is not None and answers["after_w_query"].shape == (2, 3, 5, 2)
    assert np.array_equal(answers["after_w_query"][-1], answers["w_query"])
    assert not np.array_equal(answers["after_w_query"][0], answers["w_query"])
    owner = batch_of(finished.run.problem_id, 13, 2)
    assert np.array_equal(answers["batch"], owner)
    for phase in range(2):
        w = [answers[f"after_{name}"][phase] for name in ("w_query", "w_key", "bias")]
        said = reference.decisions(instance.embeddings, *w)
        for b in range(2):
            rows = instance.edges[owner[instance.edges[:, 0]] == b]
            only = said & (owner == b)[:, None]
            assert verdict.witness["after"][phase][b] == pytest.approx(reference.f1(only, rows))
    after = np.array(verdict.witness["after"])
    assert verdict.scores["learned"] == pytest.approx(np.diagonal(after).mean())
    assert verdict.scores["retained"] == pytest.approx(after[-1].mean())
    assert verdict.scores["forgotten"] == pytest.approx(after[0, 0] - after[1, 0])
    assert set(verdict.scores) >= {"f1", "f1_best", "margin"} and verdict.exact is not None


def test_replay_keeps_what_is_forgotten_without() -> None:
    """At a budget that holds all, the first batch is forgotten unless it stays in view."""
    wide = channel_run(2, 8, 0, items=29, d_model=19)
    kept = {}
    for replay in (False, True):
        recipe = showing(gradient(steps=800), batches=2, replay=replay)
        (finished,) = sail([replace(wide, recipe=recipe, stopping=Stopping())])
        kept[replay] = finished.verdict
    assert kept[True].scores["f1"] > 0.95 and kept[False].scores["learned"] > 0.95
    assert kept[False].scores["forgotten"] > 0.2 > kept[True].scores["forgotten"]


def test_a_batch_without_edges_counts_as_right() -> None:
    (finished,) = sail([runs("batches")[0]])
    answers, instance = finished.answers, finished.instance
    assert answers is not None
    lonely = np.where(np.arange(13) == instance.edges[0, 0], 0, 1)
    bare = replace(instance, edges=instance.edges[1:])
    silent = f1_by_batch(bare, answers["w_query"], answers["w_key"], -1e9, lonely)
    assert silent.tolist() == [1.0, 0.0]
    verdict = judge(instance, {k: v for k, v in answers.items() if not k.startswith(("after_", "batch"))})
    assert "learned" not in verdict.scores
