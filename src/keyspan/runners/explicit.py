"""Layers that are computed, not trained, as members: the explicit layer, and random attention with a solved readout.

    explicit   attention weights of theorem 1 for T <= H (min(n, d_h) - 1) + 1 examples, then one linear solve
    random     Gaussian W_Q and W_K, then one linear solve: as many as the features' rank, for labels of any kind

The same instances as trained layers meet, the same judge, the same store. Computed in float64.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput, require
from keyspan.evidence.record import Record, make_record
from keyspan.evidence.store import open_store
from keyspan.lab.judge import judge
from keyspan.problems import ContentSource
from keyspan.problems.contexts import LabelInstance, Labels
from keyspan.runners import driver
from keyspan.runners.driver import Outcome
from keyspan.runners.lab import Lab
from keyspan.runners.labels import levels_of
from keyspan.runners.questions import replicates, whole, wholes
from keyspan.seeds import Stream
from keyspan.specs import Arm, Layer, Question, Run, Spec, Stopping
from keyspan.theory.memorization import feature_cap, theorem
from keyspan.theory.memorizing import Memorizer, explicit_attention, memorize, random_attention

RECIPES = ("explicit", "random")
SPREADS = {"one": 10.0, "more": 3.0}  # of logits, the best conditioned: heads of width 1, and wider ones
Float = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Computed(Spec, family="computed-layer", version=1):
    """How a layer is computed. spread: standard deviation of random logits within a context, None for the explicit layer"""

    name: str
    spread: float | None = None
    draw: int = field(default=0, metadata={"absent": 0})

    def check(self) -> None:
        require(self.name in RECIPES, f"`--recipe` in {'|'.join(RECIPES)}", repr(self.name), "Choose one.")
        require((self.spread is None) == (self.name == "explicit"), "a spread with random only", self.spread, "Leave it out.")
        require(self.spread is None or self.spread > 0, "`spread > 0`", self.spread, "Try 3.")

    @property
    def steps(self) -> int:
        """None are taken."""
        return 0


def question(
    problem: Labels,
    *,
    heads: int,
    d_head: int,
    recipe: str,
    examples: Sequence[int] | int | None = None,
    seeds: int = 3,
    seed: int = 0,
    rows: int | None = None,
    spread: float | None = None,
) -> Question:
    """How many examples a computed layer holds, every one of them, in half of the seeds at least.

    explicit: at T = H (min(n, d_h) - 1) + 1, or at the T given    random: searched up to one more than the cap of its rank
    """
    heads, d_head = whole(heads, "--heads", "Try 4."), whole(d_head, "--d-head", "Try 24.")
    layer = Layer(heads=heads, d_key=d_head, d_value=problem.outputs, embed=False)
    most = theorem(heads, problem.context, d_head)
    given = wholes(examples, "--examples", "Try 500, or 500,1000.") if examples is not None else None
    if recipe == "explicit":
        require(problem.context <= problem.d_model, "`--context <= --d-model`", problem.context, "Contexts must have rank n.")
        given = given or [most]
        rule = f"`--examples <= {most}`, H (min(n, d_h) - 1) + 1, with --recipe explicit"
        require(given[-1] <= most, rule, given[-1], "Ask for fewer, or for more heads.")
        arm = Arm(heads=None, levels=tuple(given), low=given[0], high=given[-1])
    elif given is not None:
        arm = Arm(heads=None, levels=tuple(given), low=given[0], high=given[-1])
    else:
        cap = feature_cap(heads, problem.context, problem.d_model, problem.contexts)
        end = cap + 1 if rows is None else min(cap + 1, rows - problem.context)
        levels = tuple(sorted({level for level in levels_of(problem, rows) if level < end} | {max(1, end - 1), end}))
        arm = Arm(heads=None, levels=levels, low=levels[-min(2, len(levels))], high=levels[-1])
    if recipe == "random" and spread is None:
        spread = SPREADS["one" if d_head == 1 else "more"]
    return Question(
        problem=problem.with_load(arm.levels[0]),
        instrument=layer,
        recipe=Computed(name=recipe, spread=spread),
        stopping=Stopping(),
        arithmetic="fp64",
        knob="load",
        arms=(arm,),
        replicates=replicates(seeds, seed),
        score="exact",
        target=0.5,
        guard=0,
        search=given is None,
    )


def check(asked: dict[str, Any], **given: Any) -> dict[str, Any]:
    """Refuse what only training has. returns: the keywords of `question`"""
    named = {"--weights": given.get("weights"), "--hand-out": given.get("hand_out"), "--steps": asked.get("steps")}
    for flag, value in named.items():
        if value is not None:
            raise BadInput(f"`{flag}` must be left out with --recipe {asked['recipe']}, but got {value}. Leave it out.")
    return {name: asked[name] for name in ("heads", "d_head", "examples", "seeds", "seed", "recipe")}


@dataclass(frozen=True, eq=False)
class Solved:
    """A computed layer with the instance that it was computed for."""

    instance: LabelInstance
    made: Memorizer

    @property
    def answers(self) -> dict[str, Float]:
        """Weights as the judge takes them: d_v is the number of outputs, which W_O hands on."""
        outputs = self.made.readout.shape[2]
        out = np.broadcast_to(np.eye(outputs), (self.made.attention.heads, outputs, outputs))
        attention = self.made.attention
        return {"w_query": attention.w_query, "w_key": attention.w_key, "w_value": self.made.readout, "w_out": out}


def solve(run: Run, contents: ContentSource) -> Solved:
    """The layer of a run whose recipe is `Computed`."""
    problem, layer, recipe = run.problem, run.instrument, run.recipe
    assert isinstance(problem, Labels) and isinstance(layer, Layer) and isinstance(recipe, Computed)
    instance = problem.instance(run.problem_id, contents)
    queries = instance.queries.astype(np.float64)
    contexts = instance.context(slice(None)).astype(np.float64)
    stream = Stream(run.weights_id, "weights", recipe.draw)
    if recipe.spread is None:
        attention = explicit_attention(stream, queries, contexts, layer.heads, layer.d_key)
    else:
        attention = random_attention(stream, queries, contexts, layer.heads, layer.d_key, recipe.spread)
    return Solved(instance, memorize(attention, queries, contexts, wanted(instance)))


def wanted(instance: LabelInstance) -> Float:
    """What outputs should be: the value, or 1 at the label's class and 0 elsewhere. returns: (T, outputs)"""
    if instance.classes is None:
        return np.asarray(instance.labels, dtype=np.float64)[:, None]
    return np.asarray(np.eye(instance.classes)[instance.labels])


def carry_out(run: Run, contents: ContentSource) -> Record:
    """Compute a layer, judge it, and make its record. Beside the judge's scores: rank and condition of the features, and the
    largest error of an output."""
    began = time.monotonic()
    found = solve(run, contents)
    seconds, instance, made = time.monotonic() - began, found.instance, found.made
    verdict = judge(instance, found.answers, instrument=run.instrument)
    if verdict.measured:
        more = {"rank": float(made.rank), "condition": made.condition, "error": made.error}
        verdict = replace(verdict, scores={**verdict.scores, **more})
    hashed = hashlib.sha256()
    for array in found.answers.values():
        hashed.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    facts: dict[str, Any] = {"instance": instance.digest, "weights": hashed.hexdigest(), "load": instance.load}
    facts |= {"bits": instance.bits, "best_possible": instance.best, "steps": 0, "seconds": round(seconds, 3)}
    return make_record(run, verdict, device="cpu", kernel="construction", **facts)


@dataclass
class Computing:
    """A runner that computes members one by one, here."""

    contents: ContentSource

    def run(
        self,
        runs: Sequence[Run],
        progress: Callable[[list[str], int, int], None] = lambda ids, step, steps: None,
        more: Callable[[], Sequence[Run]] = lambda: (),
    ) -> Iterator[Record]:
        """A record for every member."""
        for run in runs:
            yield carry_out(run, self.contents)

    def close(self) -> list[Record]:
        """Nothing is left in work."""
        return []


def answer(questions: Sequence[Question], lab: Lab) -> list[Outcome]:
    """Answer questions about computed layers; what the store holds is not computed again."""
    with open_store(lab.url) as store:
        return driver.answer(questions, store, lambda: Computing(lab.contents), lab.watcher)
