"""Cells: what one capacity measurement came to, flat enough to be fitted, drawn, and kept in a CSV file.

A cell is a problem of one size (Adler's m, d and m') under one recipe. Its D_K* is None where no budget that was
admissible reached the target: the cell is *censored*, which is a finding and not a number.

CSV columns, one row a cell and target:
    items, d_model, edges, graph, embeddings    m, d, m', the families
    recipe, target, seeds                       how it was measured
    key_budget, low, high                       D_K* and its 95% interval; empty where it was not reached, or is open
    heads, heads_low, heads_high                what attains it; the head counts that do within the interval
    one_head, one_head_low                      D_K* of a single head, or what it is known to exceed
    most_heads                                  the most heads tried
    failed                                      members without a number
    law, ratio                                  m' ln m' / d, and D_K* over it
    evidence                                    hash of the run ids the row rests on
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from keyspan.errors import BadInput
from keyspan.files.paths import name_of, reading
from keyspan.lab.recipes import Recipe, gradient, solver, solver_fixed
from keyspan.lab.search import Answer
from keyspan.problems.relations import Relations
from keyspan.problems.shown import Batches, Contexts
from keyspan.problems.typed import TypedRelations
from keyspan.specs import Question, digest
from keyspan.theory.bounds import law

STANDARD = ((gradient(), "fp32"), (solver(), "fp64"), (solver_fixed(), "fp64"))  # recipes known by their name alone
LARGEST_FILE = 2**26  # bytes of a CSV of cells
NUMBERS = ("items", "d_model", "edges", "seeds", "failed")
OPTIONAL = ("key_budget", "low", "high", "heads", "heads_low", "heads_high", "one_head", "one_head_low", "most_heads")
COLUMNS = (
    *("items", "d_model", "edges", "graph", "embeddings", "recipe", "target", "seeds"),
    *OPTIONAL,
    *("failed", "law", "ratio", "evidence"),
)
DEFAULTS: dict[str, Any] = {"graph": "permutation", "embeddings": "gaussian", "recipe": "gradient", "target": 0.99}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """D_K* of one cell. items: m    d_model: d    edges: m'    key_budget: D_K*, None where it was not reached

    heads: attains D_K*    heads_low, heads_high: the fewest and the most heads that reach the target within D_K*'s
    interval    one_head: D_K* of a single head    one_head_low: the lower end of its interval, known even where the
    search left one head alone    most_heads: the most that were tried    evidence: hash of the run ids
    """

    items: int
    d_model: int
    edges: int
    graph: str = "permutation"
    embeddings: str = "gaussian"
    recipe: str = "gradient"
    target: float = 0.99
    seeds: int = 1
    key_budget: int | None = None
    low: int | None = None
    high: int | None = None
    heads: int | None = None
    heads_low: int | None = None
    heads_high: int | None = None
    one_head: int | None = None
    one_head_low: int | None = None
    most_heads: int | None = None
    failed: int = 0
    evidence: str = ""
    run_ids: tuple[str, ...] = ()

    @property
    def law(self) -> float:
        """m' ln m' / d"""
        return law(self.edges, self.d_model)

    @property
    def ratio(self) -> float | None:
        """D_K* over the law."""
        return None if self.key_budget is None or self.law == 0 else self.key_budget / self.law

    @property
    def name(self) -> str:
        """The cell in words: what distinguishes it."""
        plain = f"{self.items} items, d_model {self.d_model}"
        kinds = [k for k in (self.graph, self.embeddings) if k not in ("permutation", "gaussian")]
        return ", ".join([plain, *kinds])

    @property
    def cut_short(self) -> bool:
        """Whether the most heads tried attain D_K* although more are usual (powers of two up to items / 8)."""
        return self.heads is not None and self.heads == self.most_heads and 16 * self.heads <= self.items

    @property
    def several_beat_one(self) -> bool | None:
        """Whether several heads reach the target at a strictly smaller D_K than one does; None: none does."""
        return None if self.heads is None else self.heads > 1

    @property
    def clear(self) -> bool:
        """Whether `several_beat_one` is beyond the intervals: a single head's begins where D_K*'s has ended.

        A single head that fails at its widest, d_key = d_model, has no interval: it never gets there.
        """
        if self.heads is None:
            return False
        if self.heads == 1:
            return self.heads_high == 1
        if self.one_head is None and self.one_head_low is None:
            return self.most_heads is not None
        return self.one_head_low is not None and self.high is not None and self.one_head_low > self.high

    def to_row(self) -> dict[str, Any]:
        """The cell as the columns of a CSV file."""
        return {name: getattr(self, name) for name in COLUMNS}


def recipe_name(recipe: Recipe, arithmetic: str = "fp32") -> str:
    """`gradient` for the recipe as it stands, `gradient@300` for one with other steps, `gradient+bf16` for one in other
    arithmetic than is usual for it, `gradient/contexts64` and `gradient@2000/batches4` for one that is not shown all pairs at
    every step: they must not be mixed."""
    usual = next((there for made, there in STANDARD if made == replace(recipe, show=None)), None)
    name = recipe.name if usual else f"{recipe.name}@{recipe.steps}"
    if isinstance(recipe.show, Contexts):
        name += f"/contexts{recipe.show.items}"
    elif isinstance(recipe.show, Batches):
        name += f"/batches{recipe.show.count}" + "+replay" * recipe.show.replay
    return name if arithmetic == (usual or "fp32") else f"{name}+{arithmetic}"


def cell_of(question: Question, answer: Answer) -> Cell:
    """A cell from a question that asked for its D_K*, and the answer."""
    problem, recipe = question.problem, question.recipe
    assert isinstance(problem, Relations | TypedRelations) and isinstance(recipe, Recipe)
    types = f"{problem.types} x " if isinstance(problem, TypedRelations) else ""
    crossing, run_ids = answer.crossing, tuple(sorted({p.run.run_id for p in answer.probes}))
    best = None if answer.best is None else answer.arms[answer.best].heads
    end = crossing.high if crossing.high is not None else crossing.estimate
    good = [a.heads for a in answer.arms if a.heads and a.crossing.estimate is not None and a.crossing.estimate <= (end or 0)]
    one = next((a.crossing for a in answer.arms if a.heads == 1), None)
    return Cell(
        items=problem.items,
        d_model=problem.d_model,
        edges=problem.edges,
        graph=types + problem.graph.name,
        embeddings=problem.embeddings.name,
        recipe=recipe_name(recipe, question.arithmetic),
        target=question.target,
        seeds=len(question.replicates),
        key_budget=_whole(crossing.estimate),
        low=_whole(crossing.low),
        high=_whole(crossing.high),
        heads=best,
        heads_low=min(good, default=None),
        heads_high=max(good, default=None),
        one_head=_whole(one.estimate) if one else None,
        one_head_low=_whole(one.low) if one else None,
        most_heads=max((a.heads for a in answer.arms if a.heads), default=None),
        failed=answer.failed,
        evidence=digest(list(run_ids), "e"),
        run_ids=run_ids,
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


# ------------------------------------------------------------------------------------------------------- files


def cells_csv(cells: Sequence[Cell]) -> str:
    """Cells as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(cell.to_row() for cell in cells)
    return text.getvalue()


def read_cells(path: str | Path) -> list[Cell]:
    """Cells from a CSV file; only `items`, `d_model` and `key_budget` must be there, columns not named above are skipped.

    Without `edges` the graph is a permutation's size, m' = m. A row without `evidence` is known by its content.
    """
    with reading(path, LARGEST_FILE) as (handle, _):
        raw = handle.read()
    try:
        rows = list(csv.DictReader(io.StringIO(raw.decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"`{name_of(path)}` must be a CSV file, but got {error}. Write it as fig5 does.") from None
    missing = {"items", "d_model", "key_budget"} - set(rows[0] if rows else ())
    if missing:
        raise BadInput(
            f"`{name_of(path)}` must have columns items, d_model, key_budget, but got none named {', '.join(sorted(missing))}. "
            "Write it as fig5 does."
        )
    return cells_from(rows, name_of(path))


def cells_from(rows: Sequence[dict[str, Any]], name: str) -> list[Cell]:
    """Cells from rows of text by column, as a CSV has them. name: of the file, for errors"""
    return [_cell(row, f"{name}:{number}") for number, row in enumerate(rows, 2)]


def _cell(row: dict[str, Any], place: str) -> Cell:
    given = {k: v.strip() for k, v in row.items() if isinstance(k, str) and isinstance(v, str) and v.strip()}
    fields: dict[str, Any] = DEFAULTS | {k: given[k] for k in (*DEFAULTS, "evidence") if k in given}
    fields |= {name: _number(given[name], name, place) for name in (*NUMBERS, *OPTIONAL) if name in given}
    for name in ("items", "d_model"):
        if name not in fields:
            raise BadInput(f"{place}: `{name}` must be a whole number, but got nothing. Fill it in.")
    fields.setdefault("edges", fields["items"])
    try:
        fields["target"] = float(fields["target"])
    except ValueError:
        raise BadInput(f"{place}: `target` must be a number, but got {fields['target']!r}. F1 is a fraction.") from None
    if not 0 < fields["target"] <= 1:
        raise BadInput(f"{place}: `0 < target <= 1` must hold, but got {fields['target']}. F1 is a fraction.")
    if not fields["edges"] < fields["items"] ** 2:
        raise BadInput(f"{place}: `edges < items^2` must hold, but got {fields['edges']}. Leave at least one non-edge.")
    fields.setdefault("evidence", digest(json.loads(json.dumps(given)), "e"))
    return Cell(**fields)


def _number(text: str, name: str, place: str) -> int:
    least = 0 if name == "failed" else 1
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not (number.is_integer() and least <= number < 2**53):
        raise BadInput(f"{place}: `{name}` must be a whole number, at least {least}, but got {text!r:.40}. Correct it.")
    return int(number)
