"""A construction as a member: its ids, its threshold, its record; and a fit that leaves it alone."""

import dataclasses

import pytest

from keyspan.evidence.store import open_store
from keyspan.problems import NoContents, graphs
from keyspan.problems.embeddings import one_hot
from keyspan.problems.relations import Relations
from keyspan.runners.cells import load_cells
from keyspan.runners.construct import carry_out, run_of
from keyspan.specs import Run
from keyspan.theory.constructions import Plan, plan
from keyspan.verdict import Status

CELL = Relations(items=61, d_model=67)


def test_the_instance_is_the_one_that_training_meets() -> None:
    run = run_of(CELL, 3, plan("pinv"), 7, 11)
    made = carry_out(run, NoContents())
    again = carry_out(run, NoContents(), made.instance)
    assert made.record.content == again.record.content
    assert made.record.provenance["weights"] == again.record.provenance["weights"]
    assert made.instance.digest == CELL.instance(run.problem_id, NoContents()).digest
    assert made.record.provenance["instance"] == made.instance.digest
    assert Run.from_json(made.record.run) == run and made.record.run_id == run.run_id


def test_every_part_of_a_plan_is_in_the_id() -> None:
    base = run_of(CELL, 0, plan("repair"), 2, 3)
    others = [
        dataclasses.replace(base, recipe=dataclasses.replace(plan("repair"), **change))
        for change in ({"ridge": 0.1}, {"quiet": 2.0}, {"rounds": 7}, {"draw": 1}, {"name": "quiet"})
    ]
    assert len({run.run_id for run in [base, *others]}) == 6
    assert len({run.problem_id for run in [base, *others]}) == 1


def test_thresholds_by_what_is_known() -> None:
    one = Relations(items=29, d_model=31, embeddings=one_hot())
    proven = carry_out(run_of(one, 0, plan("circle"), 1, 2), NoContents())
    assert proven.construction.proven and proven.threshold == proven.construction.threshold and proven.verdict.exact
    between = carry_out(run_of(CELL, 0, plan("repair"), 1, 13), NoContents())
    assert between.construction.threshold is None and between.verdict.exact
    edge, other = between.verdict.witness["min_edge"]["score"], between.verdict.witness["max_nonedge"]["score"]
    assert between.threshold == pytest.approx((edge + other) / 2)
    failing = carry_out(run_of(Relations(items=61, d_model=11), 0, plan("outer"), 5, 3), NoContents())
    assert not failing.verdict.exact and failing.verdict.scores["f1"] == failing.verdict.scores["f1_best"] > 0


def test_a_proof_that_fails_still_gets_a_threshold() -> None:
    run = run_of(Relations(items=29, d_model=31, embeddings=one_hot()), 0, Plan(name="random-signs", draw=1), 1, 5)
    made = carry_out(run, NoContents())
    assert not made.construction.proven and made.verdict.status is Status.MEASURED
    assert 0 < made.verdict.scores["f1"] < 1


def test_the_store_keeps_it_and_a_fit_of_trained_cells_does_not_use_it(own_store: str) -> None:
    made = carry_out(run_of(Relations(items=31, d_model=37, graph=graphs.permutation()), 0, plan("pinv"), 1, 11), NoContents())
    with open_store(own_store) as store:
        assert store.put(made.record) and not store.put(made.record)
        assert store.get_many([made.run.run_id])[made.run.run_id].verdict == made.verdict
    assert load_cells(None, own_store, 0.99) == ([], [])
