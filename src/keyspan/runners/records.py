"""The record table: the smallest key budget with exact recovery, per cell and recipe, each row with the command that makes it.

A row is drawn from what a store holds. It needs exact recovery by every seed measured at that point, three at least, which
are the seeds that `--seeds N` asks for; a recipe that has a name; and a graph and vectors that the command line can name.
"""

from __future__ import annotations

import csv
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from keyspan.errors import BadInput
from keyspan.evidence.record import Record
from keyspan.lab.recipes import DEFAULT_STOPPING, Recipe
from keyspan.problems.embeddings import Embeddings
from keyspan.problems.graphs import Graph
from keyspan.problems.relations import Relations
from keyspan.runners.questions import RECIPES
from keyspan.specs import Channel, Run, is_known

LEAST_SEEDS = 3
COLUMNS = (
    *("items", "d_model", "graph", "embeddings", "recipe"),
    *("heads", "d_key", "key_budget", "seeds", "exact", "starts", "steps", "steps_taken", "keyspan", "command"),
)
Row = dict[str, Any]
_Point = tuple[Relations, str, int, Channel]  # the cell, the recipe's name, its steps, the channel


def record_rows(records: Iterable[Record]) -> list[Row]:
    """The table, by cell and recipe.

    Among points that are exact the smallest key budget wins, then the one with fewest steps, then with fewest heads.
    starts: initial weights that the unluckiest seed needed    steps: most that the recipe takes from one start
    steps_taken: by the slowest of the seeds, from the start that held    keyspan: version that measured
    """
    points: dict[_Point, dict[int, Record]] = defaultdict(dict)
    for record in sorted(records, key=_draw):
        point = _point(record)
        if point is not None:
            here, seed = points[point], int(record.run["replicate"])
            if record.verdict.exact and not here.setdefault(seed, record).verdict.exact:
                here[seed] = record
            here.setdefault(seed, record)
    best: dict[tuple[Relations, str], tuple[tuple[int, int, int], Row]] = {}
    for (problem, recipe, steps, channel), found in points.items():
        seeds = next(i for i in range(len(found) + 1) if i not in found)  # 0, 1, 2 ... without a gap
        measured = [found[i] for i in range(seeds)]
        if seeds < LEAST_SEEDS or not all(r.verdict.exact for r in measured):
            continue
        order = (channel.key_budget, steps, channel.heads)
        known = best.get((problem, recipe))
        if known is None or order < known[0]:
            best[problem, recipe] = order, _row(problem, recipe, steps, channel, measured)
    rows = [row for _, row in best.values()]
    return sorted(rows, key=lambda row: [row[c] for c in ("items", "d_model", "graph", "embeddings", "recipe")])


def _draw(record: Record) -> int:
    return int(record.run["recipe"].get("draw", 0)) if isinstance(record.run.get("recipe"), Mapping) else 0


def _point(record: Record) -> _Point | None:
    """What a record is a seed of, if one command can measure it again."""
    parts = [record.run[name] for name in ("problem", "instrument", "recipe")]
    if record.kind != Relations.family or not all(is_known(str(p["family"]), p["version"]) for p in parts):
        return None
    run = Run.from_json(record.run)
    problem, channel, recipe = run.problem, run.instrument, run.recipe
    if not (isinstance(problem, Relations) and isinstance(channel, Channel) and isinstance(recipe, Recipe)):
        return None
    named = RECIPES.get(recipe.name)
    as_asked = (
        named is not None
        and named.make(steps=recipe.steps) == replace(recipe, draw=0)
        and (recipe.draw == 0 or named.starts > 1)
        and (run.stopping, run.arithmetic) == (DEFAULT_STOPPING, named.arithmetic)
        and "file" not in (problem.graph.name, problem.embeddings.name)
    )
    return (problem, recipe.name, recipe.steps, channel) if as_asked else None


def _row(problem: Relations, recipe: str, steps: int, channel: Channel, measured: list[Record]) -> Row:
    return {
        "items": problem.items,
        "d_model": problem.d_model,
        "graph": " ".join([problem.graph.name, *_graph_options(problem.graph)]),
        "embeddings": " ".join([problem.embeddings.name, *_row_options(problem.embeddings)]),
        "recipe": recipe,
        "heads": channel.heads,
        "d_key": channel.d_key,
        "key_budget": channel.key_budget,
        "seeds": len(measured),
        "exact": sum(bool(r.verdict.exact) for r in measured),
        "starts": 1 + max(map(_draw, measured)),
        "steps": steps,
        "steps_taken": max(int(r.provenance.get("steps", steps)) for r in measured),
        "keyspan": max(str(r.provenance.get("keyspan", "")) for r in measured),
        "command": shlex.join(command(problem, recipe, steps, channel, len(measured), 1 + max(map(_draw, measured)))),
    }


def command(problem: Relations, recipe: str, steps: int, channel: Channel, seeds: int, starts: int = 1) -> list[str]:
    """The command that measures one point, held to exactness in all seeds."""
    words = ["keyspan", "measure", "relations", "--items", str(problem.items), "--d-model", str(problem.d_model)]
    if problem.graph != Relations(items=problem.items, d_model=problem.d_model).graph:
        words += ["--graph", problem.graph.name, *_graph_options(problem.graph)]
    if problem.embeddings != Embeddings():
        words += ["--embeddings", problem.embeddings.name, *_row_options(problem.embeddings)]
    words += ["--heads", str(channel.heads), "--key-budgets", str(channel.key_budget), "--seeds", str(seeds)]
    words += ["--recipe", recipe]
    named = RECIPES[recipe]
    if steps != named.make().steps:
        words += ["--steps", str(steps)]
    if starts > named.starts:
        words += ["--starts", str(starts)]
    if (named.target, named.criterion) != (1.0, "all"):
        words += ["--target", "1", "--criterion", "all"]
    return words


def _graph_options(graph: Graph) -> list[str]:
    given = (("--edges", graph.edges), ("--degree", graph.degree), ("--exponent", graph.exponent))
    words = [word for flag, value in given if value is not None for word in (flag, str(value))]
    return words if graph.loops else [*words, "--no-loops"]


def _row_options(rows: Embeddings) -> list[str]:
    given = (("--ones", rows.ones), ("--clusters", rows.clusters), ("--correlation", rows.correlation))
    return [word for flag, value in given if value is not None for word in (flag, str(value))]


def write_rows(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """The table as CSV."""
    if path.suffix.lower() != ".csv":
        raise BadInput(f"A record table must be a `.csv` file, but got {str(path)!r}. Change its ending.")
    if not path.parent.is_dir():
        raise BadInput(f"A record table must lie in a folder that exists, but got {str(path)!r}. Make the folder.")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
