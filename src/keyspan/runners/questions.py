"""From what a user asks to a `Question`: defaults filled in, the bracket taken from theory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np

from keyspan.errors import BadInput, require
from keyspan.files.paths import shown
from keyspan.lab import recipes
from keyspan.lab.recipes import Recipe
from keyspan.problems.dichotomies import Dichotomies
from keyspan.problems.relations import Relations
from keyspan.problems.typed import SHARING, AnyRelations, TypedChannel, TypedRelations
from keyspan.specs import ARITHMETICS, WIDEST, Arm, Channel, LinearUnit, Question
from keyspan.theory.bounds import gardner_budget, law


@dataclass(frozen=True)
class Named:
    """A recipe that can be asked for by name, and what counts as held by default.

    make: the recipe, at its own number of steps or another    target, criterion: of F1 over the seeds
    share: about where it crosses that target, in multiples of the law (a guess, for estimates of cost)
    arithmetic: of training    starts: initial weights that an instance may try
    bracket: where to begin, in multiples of Gardner's budget, and to climb over the heads from its best (None: from the
    law, all heads side by side, and a level on each side of the crossing)
    """

    make: Callable[..., Recipe]
    target: float
    criterion: str
    share: float
    arithmetic: str = "fp32"
    starts: int = 1
    bracket: tuple[float, float] | None = None


RECIPES = {
    "gradient": Named(recipes.gradient, target=0.99, criterion="mean", share=1.3),
    "hinge": Named(recipes.hinge, target=1.0, criterion="all", share=0.65),  # F1 = 1 is exact: what a squared hinge is for
    "solver": Named(recipes.solver, target=1.0, criterion="all", share=0.6, arithmetic="fp64", starts=4, bracket=(0.75, 1.0)),
    "solver-fixed": Named(recipes.solver_fixed, target=1.0, criterion="all", share=0.8, arithmetic="fp64", bracket=(0.85, 1.1)),
}
MOST_STARTS = 1000
NEAR = 0.7  # f1_best of a start below which others were hardly ever seen to do better (docs/solver.md)
SEED_STRIDE = 1_000_000  # replicate i of `--seed s` is s * 1,000,000 + i, so that seeds never share instances
CRITERIA = ("mean", "all", "any")
THRESHOLDS = {"own": "f1", "best": "f1_best"}


def whole(value: object, flag: str, fix: str) -> int:
    """A whole number of any type, NumPy's and 3.0 too, as an int; `BadInput` in terms of the command line's flag."""
    number = value.item() if isinstance(value, np.generic) else value
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int):
        raise BadInput(f"`{flag}` must be a whole number, but got {shown(value)}. {fix}")
    return number


def wholes(value: object, flag: str, fix: str) -> list[int]:
    """Whole numbers, sorted, each once: from a list, a tuple, an array, a range or a set, or a single one."""
    if isinstance(value, np.ndarray):
        value = value.reshape(-1).tolist()
    many = value if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping) else [value]
    found = sorted({whole(number, flag, fix) for number in many})
    require(len(found) > 0, f"`{flag}` has a number in it", "none", fix)
    return found


def _named(value: object, names: Iterable[str], flag: str, fix: str) -> str:
    choice = "|".join(names)
    require(isinstance(value, str) and value in names, f"`{flag}` in {choice}", shown(value), fix)
    return str(value)


def replicates(seeds: int, seed: int) -> tuple[int, ...]:
    """The replicates of a question. seeds: how many; seed: which set of them"""
    seeds, seed = whole(seeds, "--seeds", "Try 3."), whole(seed, "--seed", "Seeds count from 0.")
    require(1 <= seeds <= SEED_STRIDE, "`1 <= --seeds <= 1000000`", seeds, "Try 3.")
    require(0 <= seed < 2**31, "`0 <= --seed < 2^31`", seed, "Seeds count from 0.")
    return tuple(seed * SEED_STRIDE + i for i in range(seeds))


def default_heads(items: int) -> tuple[int, ...]:
    """Powers of two up to items / 8."""
    out = [1]
    while 2 * out[-1] <= items // 8:
        out.append(2 * out[-1])
    return tuple(out)


def heads_tried(problem: AnyRelations, sharing: str) -> tuple[int, ...]:
    """The default heads of a problem: of each type, where types have heads of their own; of all together, where they share."""
    if isinstance(problem, Relations):
        return default_heads(problem.items)
    if sharing == "shared":
        return default_heads(problem.types * problem.items)
    return tuple(problem.types * h for h in default_heads(problem.items))


def relations_question(
    problem: AnyRelations,
    *,
    heads: Sequence[int] | int | None = None,
    key_budgets: Sequence[int] | int | None = None,
    seeds: int = 3,
    seed: int = 0,
    target: float | None = None,
    recipe: str = "gradient",
    criterion: str | None = None,
    threshold: str = "own",
    steps: int | None = None,
    contexts: int | None = None,
    batches: int | None = None,
    replay: bool = False,
    sharing: str | None = None,
    arithmetic: str | None = None,
    starts: int | None = None,
) -> Question:
    """The capacity D_K* of a cell: the smallest key budget, over the heads tried, whose F1 meets the target.

    target, criterion, arithmetic, starts: by default the recipe's own (`RECIPES`)    arithmetic: of training; judged in
    fp64 always    starts: initial weights that an instance may try, one after another, until one meets the target
    contexts: show a random context of so many items at every step, and not all    batches, replay: show rows in so many
    batches, one after another, without or with those before (`recipes.showing`); judged on all pairs always
    sharing: of heads among the types of typed relations (`problems.typed.TypedChannel`)
    """
    named = RECIPES[_named(recipe, RECIPES, "--recipe", "Use one of these.")]
    criterion = _named(named.criterion if criterion is None else criterion, CRITERIA, "--criterion", "Choose one.")
    threshold = _named(threshold, THRESHOLDS, "--threshold", "Choose one.")
    target = named.target if target is None else target
    number = isinstance(target, Real) and not isinstance(target, bool)
    require(number and 0 < target <= 1, "`0 < --target <= 1`", shown(target), "F1 is a fraction; try 0.99.")
    if steps is not None:
        steps = whole(steps, "--steps", "Try 2000.")
        require(1 <= steps <= 10**7, "`1 <= --steps <= 10000000`", steps, "Try 2000.")
    if contexts is not None:
        contexts = whole(contexts, "--contexts", "Leave it out to show all.")
        require(contexts <= problem.items, f"`--contexts <= {problem.items}`", contexts, "Leave it out to show all.")
    if batches is not None:
        batches = whole(batches, "--batches", "Leave it out to show all at once.")
        require(batches <= problem.items, f"`--batches <= {problem.items}`", batches, "Use fewer.")
    instrument = _instrument(problem, sharing, contexts is not None or batches is not None, solved=named.bracket is not None)
    fix = "Try 1,2,4, or leave it out."
    tried = heads_tried(problem, getattr(instrument, "sharing", ""))
    chosen = list(tried) if heads is None else wholes(heads, "--heads", fix)
    require(min(chosen) >= 1, "`--heads >= 1`", min(chosen), "Ask for at least one head.")
    require(max(chosen) <= WIDEST, f"`--heads <= {WIDEST}`", max(chosen), "Ask for fewer.")
    budgets = None if key_budgets is None else wholes(key_budgets, "--key-budgets", "Try 32,48, or leave it out.")
    if isinstance(instrument, TypedChannel) and isinstance(problem, TypedRelations):
        for count in chosen:
            replace(instrument, heads=count).check_types(problem.types)
    arms = tuple(_arm(problem, h, budgets, named.bracket) for h in chosen)
    starts = named.starts if starts is None else whole(starts, "--starts", "Try 3.")
    require(1 <= starts <= MOST_STARTS, f"`1 <= --starts <= {MOST_STARTS}`", starts, "Try 3.")
    arithmetic = named.arithmetic if arithmetic is None else arithmetic
    climbs = named.bracket is not None and budgets is None
    return Question(
        problem=problem,
        instrument=instrument,
        recipe=recipes.showing(named.make() if steps is None else named.make(steps=steps), contexts, batches, replay),
        stopping=recipes.DEFAULT_STOPPING,
        arithmetic=_named(arithmetic, ARITHMETICS, "--arithmetic", "Use fp32; tf32 and bf16 want a GPU."),
        knob="budget",
        arms=arms,
        replicates=replicates(seeds, seed),
        score=THRESHOLDS[threshold],
        target=target,
        criterion=criterion,
        search=key_budgets is None,
        guard=1 if named.bracket is None else 0,
        climb=_most_promising(problem, chosen) if climbs else None,
        starts=starts,
        near=NEAR if starts > 1 else 0.0,
    )


def _instrument(problem: AnyRelations, sharing: str | None, shown_in_part: bool, solved: bool) -> Channel | TypedChannel:
    """What is trained: a channel, or one with types; the question says with how many heads."""
    if isinstance(problem, Relations):
        require(sharing is None, "`--sharing` with `--types` only", shown(sharing), "Leave it out.")
        return Channel(heads=1, d_key=1)
    require(not shown_in_part, "`--contexts`, `--batches` without `--types`", "both", "Leave one out.")
    require(not solved, "`--recipe` of first order with `--types`", "a solver", "Use gradient or hinge.")
    sharing = _named("partitioned" if sharing is None else sharing, SHARING, "--sharing", "Choose one.")
    return TypedChannel(heads=1 if sharing == "shared" else problem.types, d_key=1, sharing=sharing)


def _most_promising(problem: AnyRelations, heads: Sequence[int]) -> int:
    """Which number of heads the Gardner budget puts first; the most heads, if it says that none will do."""
    budgets = [gardner_budget(problem.edges, problem.items, problem.d_model, h) for h in heads]
    known = [(budget, i) for i, budget in enumerate(budgets) if budget is not None]
    return min(known)[1] if known else len(heads) - 1


def _arm(problem: AnyRelations, heads: int, budgets: list[int] | None, bracket: tuple[float, float] | None) -> Arm:
    """One number of heads: all budgets with d_key <= d_model, and a bracket among them.

    bracket: in multiples of Gardner's budget; where there is none, it is [law / 2, 2 law]
    """
    if budgets is not None:
        require(min(budgets) >= 1, "`--key-budgets >= 1`", min(budgets), "Give at least one dimension.")
        for budget in budgets:
            Channel(heads=1, d_key=1).with_budget(heads, budget)
        return Arm(heads=heads, levels=tuple(budgets), low=budgets[0], high=budgets[-1])
    levels = tuple(heads * d_key for d_key in range(1, problem.d_model + 1))
    guess, factors = law(problem.edges, problem.d_model), (0.5, 2.0)
    predicted = gardner_budget(problem.edges, problem.items, problem.d_model, heads) if bracket else None
    if predicted is not None and bracket is not None:
        guess, factors = predicted, bracket
    low = max((level for level in levels if level <= factors[0] * guess), default=levels[0])
    high = min((level for level in levels if level >= factors[1] * guess), default=levels[-1])
    return Arm(heads=heads, levels=levels, low=low, high=high)


def calibration_questions(dimension: int, *, seeds: int = 200, seed: int = 0) -> list[Question]:
    """Cover's capacity twice: by the separator, which finds a plane or proves that there is none, and by `gradient`.

    The capacity is the number of random labels of which half the draws can be fitted. The gradient's is there to show
    its shortfall, so it takes half the seeds and no guard.
    """
    dimension = whole(dimension, "--dimension", "Try 16 or 50.")
    seeds = whole(seeds, "--seeds", "Try 200.")
    Dichotomies(dimension=dimension, examples=1)  # refuses a dimension that has no levels
    require(seeds >= 10, "`--seeds >= 10`", seeds, "A fraction needs draws; 200 gives 2d to about 4%.")
    levels = tuple(range(max(1, dimension // 4), 6 * dimension + 1))
    full = Question(
        problem=Dichotomies(dimension=dimension, examples=1),
        instrument=LinearUnit(),
        recipe=recipes.separator(),
        stopping=recipes.SEPARATOR_STOPPING,
        arithmetic="fp64",
        knob="load",
        arms=(Arm(heads=None, levels=levels, low=dimension, high=4 * dimension),),
        replicates=replicates(seeds, seed),
        score="fitted",
        target=0.5,
        criterion="mean",
        pilot=seeds,
        guard=3,
    )
    half = replicates(-(-seeds // 2), seed)
    gradient = replace(
        full,
        recipe=recipes.gradient(),
        stopping=recipes.DEFAULT_STOPPING,
        arithmetic="fp32",
        arms=(replace(full.arms[0], high=2 * dimension),),
        replicates=half,
        pilot=len(half),
        guard=1,
    )
    return [full, gradient]
