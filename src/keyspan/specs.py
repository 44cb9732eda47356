"""What is asked and what is run: instruments, stopping rules, runs and questions, with their two ids (docs/identity.md):

    problem_id = hash(problem spec, replicate)
    run_id     = hash(problem_id, instrument, recipe, stopping rule, arithmetic, judge version)

A run is one member: one instance, one architecture, one training. What a user asks is a `Question`, a query over runs.
What a spec is, `keyspan.identity` says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from keyspan.errors import BadInput, require
from keyspan.identity import Spec as Spec
from keyspan.identity import canonical as canonical
from keyspan.identity import decode as decode
from keyspan.identity import digest as digest
from keyspan.identity import hashed
from keyspan.identity import is_known as is_known

JUDGE_VERSION = 1  # raised when the judge's numbers change; it is hashed into every run id
_HASHED = ("instrument", "recipe", "stopping", "arithmetic")  # with the problem id and the judge: the run id
ARITHMETICS = ("fp64", "fp32", "tf32", "bf16")
WIDEST = 2**24  # heads, and key dimensions of one: more would overflow sizes long before it fits any memory


# ---------------------------------------------------------------------------------------------------- instruments


@dataclass(frozen=True, kw_only=True)
class Channel(Spec, family="channel", version=1):
    """A key-query channel: `S_ij = max_k (x_i W_Q^k) . (x_j W_K^k)`, compared with one threshold.

    heads: h    d_key: d_k    key_budget: D_K = h d_k (Adler's symbols)
    """

    heads: int
    d_key: int

    def check(self) -> None:
        require(self.heads >= 1, "`heads >= 1`", self.heads, "Ask for at least one head.")
        require(self.heads <= WIDEST, f"`heads <= {WIDEST}`", self.heads, "Ask for fewer.")
        require(self.d_key >= 1, "`d_key >= 1`", self.d_key, "Give every head at least one key dimension.")
        require(self.d_key <= WIDEST, f"`d_key <= {WIDEST}`", self.d_key, "Ask for fewer dimensions.")

    @property
    def key_budget(self) -> int:
        """D_K = h d_k."""
        return self.heads * self.d_key

    def with_budget(self, heads: int, budget: int) -> Channel:
        """The channel with this many heads and this key budget."""
        require(heads >= 1, "`--heads >= 1`", heads, "Ask for at least one head.")
        require(heads <= WIDEST, f"`--heads <= {WIDEST}`", heads, "Ask for fewer.")
        require(budget >= 1, "`--key-budget >= 1`", budget, "Give every head at least one dimension.")
        most = heads * WIDEST
        require(budget <= most, f"`--key-budget <= {most}` with {heads} heads", budget, "Ask for fewer dimensions.")
        if budget % heads:
            down, up = budget - budget % heads, budget - budget % heads + heads
            nearest = f"{down} or {up}" if down else f"{up}"
            raise BadInput(
                f"`--heads` must divide `--key-budget`, but got heads={heads}, key-budget={budget}. Nearest budgets: {nearest}."
            )
        return Channel(heads=heads, d_key=budget // heads)


@dataclass(frozen=True, kw_only=True)
class LinearUnit(Spec, family="linear-unit", version=1):
    """A linear threshold unit `sign(x . w)`: the instrument whose capacity, 2d, is known exactly (Cover 1965)."""


@dataclass(frozen=True, kw_only=True)
class Layer(Spec, family="layer", version=1):
    """One layer of softmax attention, no residual, that answers at its query. heads: H    d_key: d_h    d_value: d_v

    embed: tokens pass a linear map and get positions first, logits are divided by sqrt(d_model), and a linear map reads the
    answer (Mahdavi et al. 2024, official code). If not, the layer alone.
    """

    heads: int
    d_key: int
    d_value: int = 1
    embed: bool = True

    def check(self) -> None:
        for name, size in (("--heads", self.heads), ("--d-head", self.d_key), ("d_value", self.d_value)):
            require(1 <= size <= WIDEST, f"`1 <= {name} <= {WIDEST}`", size, "Try 8.")


# ------------------------------------------------------------------------------------------------------------- runs


@dataclass(frozen=True, kw_only=True)
class Stopping(Spec, family="stopping", version=1):
    """When a member may leave early: never for a reason that could change its verdict.

    A member is looked at every `check_every` steps. It leaves when it holds the problem exactly with every decision
    `slack` clear of its threshold (nothing can be better), or when it has diverged.
    """

    check_every: int = 50
    retire_exact: bool = True
    slack: float = 1e-3

    def check(self) -> None:
        require(self.check_every >= 1, "`check_every >= 1`", self.check_every, "Look at least once in a while.")
        require(self.slack >= 0, "`slack >= 0`", self.slack, "Use a small positive number such as 0.001.")


@dataclass(frozen=True, kw_only=True)
class Run(Spec, family="run", version=1):
    """One member: one problem instance, one architecture, one training."""

    problem: Spec
    replicate: int
    instrument: Spec
    recipe: Spec
    stopping: Stopping
    arithmetic: str = "fp32"

    def check(self) -> None:
        require(self.replicate >= 0, "`seed >= 0`", self.replicate, "Seeds count from 0.")
        require(
            self.arithmetic in ARITHMETICS,
            f"`arithmetic` in {'|'.join(ARITHMETICS)}",
            repr(self.arithmetic),
            "Choose one of these.",
        )

    @property
    def problem_id(self) -> str:
        """Identity of the instance: the graph, the embeddings, the labels, the order of the data."""
        return self._ids[0]

    @property
    def weights_id(self) -> str:
        """What the initial weights draw from: the instance and the architecture, never the recipe or the device.

        (A recipe may say which of these draws it takes, and nothing else.)
        """
        return digest({"problem": self.problem_id, "instrument": self.instrument.to_json()}, "w")

    @property
    def run_id(self) -> str:
        """Identity of the member."""
        return self._ids[1]

    @cached_property
    def _ids(self) -> tuple[str, str]:
        """`ids_of` its JSON, made from the text of its parts."""
        problem = hashed(f'{{"problem":{self.problem.text},"replicate":{self.replicate}}}', "p")
        parts = f'"arithmetic":{json.dumps(self.arithmetic)},"instrument":{self.instrument.text},"judge":{JUDGE_VERSION}'
        rest = f'"problem":"{problem}","recipe":{self.recipe.text},"stopping":{self.stopping.text}'
        return problem, hashed(f"{{{parts},{rest}}}", "r")


def ids_of(run: Mapping[str, Any]) -> tuple[str, str]:
    """Problem id and run id of a run's JSON: hashes of what stands there, whether or not it can be decoded here."""
    missing = [name for name in ("problem", "replicate", *_HASHED) if name not in run]
    require(not missing, "a run has its parts", f"no {', '.join(missing)}", "Export it again.")
    problem_id = digest({"problem": run["problem"], "replicate": run["replicate"]}, "p")
    parts = {name: run[name] for name in _HASHED}
    return problem_id, digest({"problem": problem_id, "judge": JUDGE_VERSION} | parts, "r")


# -------------------------------------------------------------------------------------------------------- questions


@dataclass(frozen=True, kw_only=True)
class Arm(Spec, family="arm", version=1):
    """One line of a search: the knob's admissible levels, ascending, and the bracket [low, high] to begin with.

    For relations an arm is a number of heads and its levels are key budgets; for a load (examples) `heads` is None.
    """

    heads: int | None
    levels: tuple[int, ...]
    low: int
    high: int

    def check(self) -> None:
        require(len(self.levels) > 0, "an arm has levels", "none", "Allow at least one.")
        require(list(self.levels) == sorted(set(self.levels)), "levels ascend", self.levels[:5], "Sort them.")
        require(
            self.low in self.levels and self.high in self.levels and self.low <= self.high,
            "`low <= high`, both levels",
            f"low={self.low}, high={self.high}",
            "Take the bracket from the levels.",
        )


@dataclass(frozen=True, kw_only=True)
class Question(Spec, family="question", version=1):
    """Where does a score cross its target? A query over runs, answered from records; never an identity of a run.

    knob: `budget` (of the instrument; capacity is the smallest level that passes) or `load` (of the problem; capacity
    is where passing ends).    criterion: `mean` of the score over the replicates reaches the target, or `all` / `any`
    of them do.    pilot: how many replicates decide where to probe next, so that adding replicates to a question adds
    only their own runs.    guard: levels measured on each side of a crossing    search: if false, every level of every
    arm is measured and nothing is looked for    climb: the arm to begin with; others are tried outwards from there, and
    only as long as they beat it (None: all arms, side by side)    starts: initial weights that a replicate may try at a
    level, one after another, until one meets the target: the recipe's draw and the next ones    near: after a start
    whose `f1_best` is less, none is tried any more: it was not the start's fault (and if all must meet the target, none
    of the other replicates tries another, either)    goal: `crossing`, or `peak`: the largest mean of the score over the
    levels of a load (the target then decides nothing)    beyond: of a load, multiples of the crossing that are measured
    as well
    """

    problem: Spec
    instrument: Spec
    recipe: Spec
    stopping: Stopping
    arithmetic: str
    knob: str
    arms: tuple[Arm, ...]
    replicates: tuple[int, ...]
    score: str
    target: float
    criterion: str = "mean"
    pilot: int = 3
    guard: int = 1
    search: bool = True
    climb: int | None = field(default=None, metadata={"absent": None})
    starts: int = field(default=1, metadata={"absent": 1})
    near: float = field(default=0.0, metadata={"absent": 0.0})
    goal: str = field(default="crossing", metadata={"absent": "crossing"})
    beyond: tuple[float, ...] = field(default=(), metadata={"absent": ()})

    def check(self) -> None:
        require(self.knob in ("budget", "load"), "`knob` in budget|load", repr(self.knob), "Choose one.")
        require(self.criterion in ("mean", "all", "any"), "`criterion` in mean|all|any", repr(self.criterion), "Pick.")
        require(0 < self.target <= 1, "`0 < target <= 1`", self.target, "Scores are fractions.")
        require(self.goal in ("crossing", "peak"), "`goal` in crossing|peak", repr(self.goal), "Choose one.")
        require(len(self.replicates) >= 1, "`seeds >= 1`", len(self.replicates), "Measure at least one seed.")
        require(self.guard >= 0, "`guard >= 0`", self.guard, "Use 0 for none.")
        require(self.pilot >= 1, "`pilot >= 1`", self.pilot, "At least one replicate leads the search.")
        require(len(self.arms) >= 1, "a question has an arm", 0, "Allow at least one number of heads.")
        require(0 <= self.near <= 1, "`0 <= near <= 1`", self.near, "F1 is a fraction.")
        require(self.starts >= 1, "`starts >= 1`", self.starts, "Every replicate begins somewhere.")
        inside = self.climb is None or 0 <= self.climb < len(self.arms)
        require(inside, "`climb` is an arm", self.climb, f"There are {len(self.arms)}.")

    def run(self, arm: Arm, level: int, replicate: int, start: int = 0) -> Run:
        """The member at one point of the question. start: which of its `starts`"""
        problem, instrument, recipe = self.problem, self.instrument, self.recipe
        if self.knob == "budget":
            instrument = instrument.with_budget(arm.heads, level)  # type: ignore[attr-defined]
        else:
            problem = problem.with_load(level)  # type: ignore[attr-defined]
            recipe = recipe.with_load(level) if hasattr(recipe, "with_load") else recipe
        if start:
            recipe = replace(recipe, draw=getattr(recipe, "draw", 0) + start)  # type: ignore[type-var]
        return Run(
            problem=problem,
            replicate=replicate,
            instrument=instrument,
            recipe=recipe,
            stopping=self.stopping,
            arithmetic=self.arithmetic,
        )

    def runs(self, arm: Arm, level: int, start: int = 0) -> Iterator[Run]:
        """The members of one level, in the order of their replicates."""
        return (self.run(arm, level, replicate, start) for replicate in self.replicates)
