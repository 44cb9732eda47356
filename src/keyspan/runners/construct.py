"""A construction as a member: plan + channel + problem -> weights -> judge -> record. The same judge, the same store."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass

import numpy as np

from keyspan.evidence.record import Record, make_record
from keyspan.lab.judge import judge
from keyspan.problems import ContentSource
from keyspan.problems.relations import RelationInstance, Relations
from keyspan.specs import Channel, Run, Stopping
from keyspan.theory.constructions import Construction, Plan, build
from keyspan.theory.separation import gap
from keyspan.verdict import Verdict


@dataclass(frozen=True, eq=False)
class Constructed:
    """A member that was built and judged. threshold: the one it was judged at"""

    run: Run
    instance: RelationInstance
    construction: Construction
    threshold: float
    verdict: Verdict
    seconds: float

    @property
    def record(self) -> Record:
        """The record that a store keeps."""
        hashed = hashlib.sha256()
        for array in (self.construction.w_query, self.construction.w_key, np.array(0.0 - self.threshold)):
            hashed.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
        return make_record(
            self.run,
            self.verdict,
            steps=self.construction.rounds,
            seconds=round(self.seconds, 3),
            device="cpu",
            kernel="construction",
            instance=self.instance.digest,
            weights=hashed.hexdigest(),
            load=self.instance.load,
            bits=self.instance.bits,
            best_possible=self.instance.best,
        )


def run_of(problem: Relations, replicate: int, plan: Plan, heads: int, d_key: int) -> Run:
    """The member that a plan makes of a problem. Its arithmetic is float64; its stopping rule stops nothing."""
    return Run(
        problem=problem,
        replicate=replicate,
        instrument=Channel(heads=heads, d_key=d_key),
        recipe=plan,
        stopping=Stopping(),
        arithmetic="fp64",
    )


def carry_out(run: Run, contents: ContentSource, instance: RelationInstance | None = None) -> Constructed:
    """Build the weights of a run whose recipe is a plan, and judge them.

    The threshold is the construction's own where one is proven, else halfway between edges and non-edges, else (they
    overlap) the one of the best F1. instance: of this run, if it is at hand
    """
    problem, plan, channel = run.problem, run.recipe, run.instrument
    assert isinstance(problem, Relations) and isinstance(plan, Plan) and isinstance(channel, Channel)
    instance = problem.instance(run.problem_id, contents) if instance is None else instance
    began = time.monotonic()
    edges, rows = instance.edges, instance.embeddings
    built = build(plan, channel.heads, channel.d_key, edges, rows, run.problem_id)
    threshold = built.threshold if built.proven else None
    if threshold is None:
        threshold = gap(rows, edges, built.w_query, built.w_key).threshold
    seconds = time.monotonic() - began
    verdict = _judged(instance, built, threshold)
    if not verdict.exact and verdict.measured and verdict.scores["f1_best"] > verdict.scores["f1"]:
        threshold = float(verdict.witness["threshold_best"])
        verdict = _judged(instance, built, threshold)
    return Constructed(run, instance, built, threshold, verdict, seconds)


def _judged(instance: RelationInstance, built: Construction, threshold: float) -> Verdict:
    return judge(instance, {"w_query": built.w_query, "w_key": built.w_key, "bias": 0.0 - threshold})
