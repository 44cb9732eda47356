"""What a question would cost, before anything is trained: `--dry-run`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from keyspan.evidence.store import Store
from keyspan.lab import pack
from keyspan.lab.search import Answer, propose
from keyspan.problems.contexts import Labels
from keyspan.problems.dichotomies import Dichotomies
from keyspan.problems.relations import Relations
from keyspan.problems.sequences import Sequences
from keyspan.problems.typed import TypedRelations
from keyspan.runners.labels import guess
from keyspan.runners.local import workers_on
from keyspan.runners.questions import RECIPES
from keyspan.specs import Layer, Question, Run
from keyspan.theory.bounds import law
from keyspan.verdict import Status, Verdict


@dataclass(frozen=True)
class Estimate:
    """members: still to train, on the path that the law predicts    stored: on that path and there already
    steps, flops: if no member leaves early    memory_bytes: largest member    seconds: on this many cores"""

    members: int
    stored: int
    steps: int
    flops: float
    memory_bytes: float
    seconds: float
    cores: int

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def estimate(questions: list[Question], store: Store, jobs: int | None = None, device: str = "auto") -> Estimate:
    """Walk each search with verdicts as the law predicts them, and add up what is not stored."""
    runs = {run.run_id: run for question in questions for run in _path(question)}
    stored = store.get_many(list(runs))
    left = [run for run_id, run in runs.items() if run_id not in stored]
    jobs = jobs or workers_on(device) or 1  # a GPU that is there is taken, by one worker
    steps = [int(run.recipe.steps) for run in left]  # type: ignore[attr-defined]
    return Estimate(
        members=len(left),
        stored=len(stored),
        steps=sum(steps),
        flops=sum(pack.flops(run) * n for run, n in zip(left, steps, strict=True)),
        memory_bytes=max((pack.memory(run) for run in left), default=0.0),
        seconds=sum(pack.seconds(run) for run in left) / jobs + (2.0 if left else 0.0),
        cores=jobs,
    )


def _path(question: Question) -> list[Run]:
    """The members that the search would want if every verdict were as predicted."""
    verdicts: dict[str, Verdict] = {}
    runs: list[Run] = []
    while True:
        step = propose(question, verdicts)
        if isinstance(step, Answer):
            return runs
        for run in step.runs:
            runs.append(run)
            verdicts[run.run_id] = predicted(run, question)


def predicted(run: Run, question: Question) -> Verdict:
    """What the law expects of a member, as far as a question asks for it."""
    score = 0.0
    relations, budget = getattr(run.problem, "relations", run.problem), getattr(run.instrument, "key_budget", None)
    if isinstance(relations, Relations | TypedRelations) and budget is not None:
        named = RECIPES.get(run.recipe.name)  # type: ignore[attr-defined]
        share = named.share if named else 1.3
        score = float(budget >= share * law(relations.edges, relations.d_model))
    elif isinstance(run.problem, Labels) and isinstance(run.instrument, Layer):
        score = float((run.problem.examples or 0) <= guess(run.problem, run.instrument.heads, run.instrument.d_key))
    elif isinstance(run.problem, Dichotomies):
        score = float(run.problem.examples < 2 * run.problem.dimension)
    elif isinstance(run.problem, Sequences):
        arm = question.arms[0]
        score = float(run.problem.library) if run.problem.library <= (arm.low + arm.high) / 2 else 0.0
    return Verdict(status=Status.MEASURED, exact=bool(score), scores={question.score: score})
