"""Sweeps of relations as data: which cells a figure measures at a tier, and the questions they turn into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from keyspan.problems.relations import Relations
from keyspan.runners.questions import default_heads, relations_question, replicates
from keyspan.specs import Arm, Question
from keyspan.theory.bounds import heads_needed, law

Size = tuple[int, int]  # (items, d_model), Adler's (m, d)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What one figure measures at one tier.

    cells: (m, d) of permutations on gaussian rows    seeds: instances a point    targets: F1 whose D_K* is looked for
    curves: F1 at these multiples of the law instead, nothing is looked for    near: head counts up to 8 times those
    needed, instead of all powers of two up to m/8    arithmetic: of training
    left_out: cells of the grid that are not measured, and why
    """

    cells: tuple[Size, ...]
    seeds: int
    targets: tuple[float, ...] = (0.99,)
    curves: tuple[float, ...] = ()
    near: bool = False
    arithmetic: str = "fp32"
    left_out: tuple[tuple[Size, str], ...] = ()


def grid(items: Sequence[int], ratios: Sequence[int]) -> tuple[Size, ...]:
    """All (m, m / r) that are in reach."""
    return tuple(size for size in _grid(items, ratios) if _reach(size) is None)


def beyond_reach(items: Sequence[int], ratios: Sequence[int]) -> tuple[tuple[Size, str], ...]:
    """The (m, m / r) that no head count tried could hold, with the reason."""
    return tuple((size, why) for size in _grid(items, ratios) if (why := _reach(size)) is not None)


def _grid(items: Sequence[int], ratios: Sequence[int]) -> Iterator[Size]:
    return ((m, m // r) for m in items for r in ratios)


def _reach(size: Size) -> str | None:
    """Why a cell is beyond reach: it needs more heads at any width than are tried (Gardner, conjectured)."""
    items, d_model = size
    needed, most = heads_needed(items, items, d_model), default_heads(items)[-1]
    if needed is None or needed > most:
        return f"needs {needed or 'more than ' + str(items)} heads at any width (conjectured), {most} are tried"
    return None


def heads_near(items: int, d_model: int) -> tuple[int, ...]:
    """Powers of two up to 8 times the heads needed (conjectured), and up to items / 8."""
    needed = heads_needed(items, items, d_model) or items
    most = 8 * (1 << (needed - 1).bit_length())
    return tuple(h for h in default_heads(items) if h <= most)


def questions(sweep: Sweep, seed: int = 0) -> list[Question]:
    """The questions of a sweep, one for every cell and target, or one for every cell's curves."""
    replicates(sweep.seeds, seed)  # refuses a seed that is none, before it is looked up
    return list(_questions(sweep, seed))


@lru_cache(maxsize=64)  # figures share sweeps, and a question names every budget it allows
def _questions(sweep: Sweep, seed: int) -> tuple[Question, ...]:
    ask = _curves if sweep.curves else _searches
    return tuple(q for size in sweep.cells for q in ask(sweep, size, seed))


def _searches(sweep: Sweep, size: Size, seed: int) -> list[Question]:
    problem = Relations(items=size[0], d_model=size[1])
    heads = heads_near(*size) if sweep.near else None
    asked = partial(relations_question, problem, heads=heads, seeds=sweep.seeds, seed=seed, arithmetic=sweep.arithmetic)
    return [asked(target=t) for t in sweep.targets]


def _curves(sweep: Sweep, size: Size, seed: int) -> list[Question]:
    """F1 at multiples of the law: each head count at its own multiples, one head at the others' budgets too."""
    problem = Relations(items=size[0], d_model=size[1])
    heads = heads_near(*size) if sweep.near else default_heads(problem.items)
    wanted = [factor * law(problem.edges, problem.d_model) for factor in sweep.curves]
    levels = {h: sorted({h * d_k for w in wanted if 1 <= (d_k := round(w / h)) <= problem.d_model}) for h in heads}
    every = {level for found in levels.values() for level in found}
    levels[heads[0]] = sorted(level for level in every | set(levels[heads[0]]) if level <= problem.d_model)
    arms = tuple(Arm(heads=h, levels=tuple(v), low=v[0], high=v[-1]) for h, v in levels.items() if v)
    asked = relations_question(problem, heads=heads, seeds=sweep.seeds, seed=seed, arithmetic=sweep.arithmetic)
    return [replace(asked, arms=arms, search=False)]
