"""Cells recovered from records, and laws fitted to them: `keyspan fit`.

A store holds members, not questions. So the question that a capacity measurement would have asked is asked again of
every (problem, recipe) found among the records, over the seeds found there, and answered from the records alone. A
cell whose question is not answered in full is left out, by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keyspan
from keyspan.display import Displayed
from keyspan.errors import BadInput, require
from keyspan.evidence.cells import Cell, cell_of, read_cells, recipe_name
from keyspan.evidence.fits import LawFit, fit_law
from keyspan.evidence.record import Record
from keyspan.evidence.store import open_store
from keyspan.files.paths import name_of, shown
from keyspan.lab.recipes import Recipe
from keyspan.lab.search import Answer, propose
from keyspan.problems.relations import Relations
from keyspan.runners.lab import default_store
from keyspan.runners.questions import RECIPES, SEED_STRIDE, default_heads, relations_question
from keyspan.specs import Channel, Question, Run, canonical, is_known
from keyspan.verdict import Verdict

if TYPE_CHECKING:
    from keyspan.runners.sequence_fits import EcmResult

MODELS = ("law", "ecm")
LeftOut = tuple[str, str]  # a cell's name, and why it is not used


@dataclass(frozen=True)
class FitResult(Displayed):
    """A law fitted to measured cells. source: where the cells came from"""

    source: str
    recipe: str
    target: float
    law: LawFit

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan fit law`."""
        head = {"schema": 1, "keyspan": keyspan.__version__, "source": self.source}
        return head | {"recipe": self.recipe, "target": self.target} | self.law.to_dict()


def fit(
    model: str = "law",
    *,
    source: str | Path | None = None,
    store: str | None = None,
    recipe: str = "gradient",
    target: float = 0.99,
    graph: str | None = None,
    embeddings: str | None = None,
    regime: str = "saturated",
) -> FitResult | EcmResult:
    """Fit a model to measured cells: the law of key budgets, `D_K* = c m' ln m' / d`, or the empirical capacity model.

    model: `law`, or `ecm` for sequences    source: a CSV of cells (as the figures write) or a JSONL of records (default:
    the store)    store: URL (default: KEYSPAN_STORE, else a file in the current folder)    recipe, target: of `law`, only
    cells measured so; recipes are never mixed    graph, embeddings: only this family    regime: of `ecm`
    """
    require(isinstance(model, str) and model in MODELS, f"`model` in {'|'.join(MODELS)}", shown(model), "Choose one.")
    if model == "ecm":
        from keyspan.runners.sequence_fits import fit_sequences

        return fit_sequences(source=source, store=store, regime=regime)
    number = isinstance(target, Real) and not isinstance(target, bool)
    require(number and 0 < target <= 1, "`0 < --target <= 1`", shown(target), "F1 is a fraction; try 0.99.")
    if source is not None and not isinstance(source, str | PathLike):
        raise BadInput(f"`source` must be the path of a file, but got {shown(source)}. Give a str or a Path.")
    cells, left_out = load_cells(source, store, target)
    matches = [
        cell
        for cell in cells
        if cell.target == target and graph in (None, cell.graph) and embeddings in (None, cell.embeddings)
    ]
    chosen = [cell for cell in matches if cell.recipe == recipe]
    if not chosen and matches:
        others = ", ".join(sorted({cell.recipe for cell in matches}))
        raise BadInput(f"`--recipe` must be one that was measured, but got {recipe!r}. There is: {others}.")
    left_out += [(f"{cell.name}, {cell.recipe}", "measured with another recipe") for cell in matches if cell.recipe != recipe]
    where = str(source) if source is not None else (store or default_store())
    return FitResult(where, recipe, target, fit_law(chosen, left_out))


def load_cells(source: str | Path | None, store: str | None, target: float) -> tuple[list[Cell], list[LeftOut]]:
    """Cells of a CSV file, of a JSONL export, or of a store, and the ones that could not be used."""
    if source is None:
        with open_store(store or default_store(), read_only=True, missing_ok=True) as opened:
            return recover(opened.records(kind="relations"), target)
    if Path(source).suffix.lower() == ".csv":
        return read_cells(source), []
    if Path(source).suffix.lower() == ".jsonl":
        return recover(read_records(Path(source)), target)
    raise BadInput(f"`--from` must be a .csv of cells or a .jsonl of records, but got {name_of(source)!r}. Name one.")


def read_records(path: Path) -> Iterator[Record]:
    """The records of a JSONL file, one a line."""
    if not path.is_file():
        raise BadInput(f"`--from` must be a file that exists, but got {name_of(path)!r}. Check the path.")
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield Record.from_line(line)
                except BadInput as error:
                    raise BadInput(f"{name_of(path)}:{number}: {error}") from None


# --------------------------------------------------------------------------------------------- from records


@dataclass
class _Group:
    """What there is of one problem under one recipe."""

    example: Run
    verdicts: dict[str, Verdict]
    replicates: set[int]
    heads: set[int]


def recover(records: Iterable[Record], target: float = 0.99) -> tuple[list[Cell], list[LeftOut]]:
    """The cells whose question these records answer in full, and the others with the reason."""
    cells: list[Cell] = []
    left_out: list[LeftOut] = []
    for group in _groups(records).values():
        found = _cell(group, target)
        if isinstance(found, Cell):
            cells.append(found)
        else:
            problem, recipe = group.example.problem, group.example.recipe
            assert isinstance(problem, Relations) and isinstance(recipe, Recipe)
            name = Cell(
                items=problem.items,
                d_model=problem.d_model,
                edges=problem.edges,
                graph=problem.graph.name,
                embeddings=problem.embeddings.name,
            ).name
            left_out.append((f"{name}, {recipe_name(recipe, group.example.arithmetic)}", found))
    return cells, left_out


def _groups(records: Iterable[Record]) -> dict[str, _Group]:
    """Records by problem, recipe (whichever its draw), stopping rule and arithmetic; what cannot be decoded here, or is no
    channel, is skipped."""
    groups: dict[str, _Group] = {}
    for record in records:
        run = record.run
        if not _decodable(run):
            continue
        first = {**run, "recipe": {k: v for k, v in run["recipe"].items() if k != "draw"}}
        key = canonical({name: first[name] for name in ("problem", "recipe", "stopping", "arithmetic")})
        if key not in groups:
            groups[key] = _Group(Run.from_json(first), {}, set(), set())
        group = groups[key]
        group.verdicts[record.run_id] = record.verdict
        group.replicates.add(int(run["replicate"]))
        group.heads.add(int(run["instrument"]["heads"]))
    return groups


def _decodable(run: Mapping[str, Any]) -> bool:
    """Whether a record is of a channel trained on relations (not constructed), and every spec in it is known here."""
    families = Relations.family, Channel.family, Recipe.family
    if tuple(run[part].get("family") for part in ("problem", "instrument", "recipe")) != families:
        return False
    recipe = run["recipe"]
    parts = [run["problem"], run["instrument"], recipe, *recipe.get("phases", ()), *filter(None, [recipe.get("show")])]
    return all(is_known(str(part.get("family")), part.get("version")) for part in parts)


def _cell(group: _Group, target: float) -> Cell | str:
    """The cell of the most seeds and the most head counts that are answered in full, or why there is none.

    Head counts are powers of two from 1 up to items/8, as in the default question. A shorter list was asked where more
    heads are dear; a fit leaves the cell out if the most heads tried are the best (`Cell.cut_short`).
    """
    problem = group.example.problem
    assert isinstance(problem, Relations)
    full = default_heads(problem.items)
    climbs = _named(group.example) is not None  # then most head counts were left alone
    for heads in (full[:n] for n in range(len(full), 0, -1) if climbs or set(full[:n]) <= group.heads):
        for seeds in seed_sets(group.replicates):
            question = _question(group.example, problem, heads, seeds, target)
            answer = propose(question, group.verdicts)
            if isinstance(answer, Answer):
                return cell_of(question, answer)
    return "its question is not answered in full by the records there are"


def seed_sets(found: set[int]) -> Iterator[tuple[int, ...]]:
    """Runs of seeds that a question could have asked: 0, 1, 2 ... of one `--seed`, the longest first."""
    bases = sorted({i - i % SEED_STRIDE for i in found})
    sets = []
    for base in bases:
        count = 0
        while base + count in found:
            count += 1
        sets += [tuple(range(base, base + n)) for n in range(1, count + 1)]
    yield from sorted(sets, key=lambda s: (-len(s), s))


def _question(example: Run, problem: Relations, heads: Sequence[int], seeds: tuple[int, ...], target: float) -> Question:
    recipe = _named(example) or "gradient"
    asked = relations_question(problem, heads=heads, seeds=len(seeds), target=target, recipe=recipe)
    asked = replace(asked, recipe=example.recipe, stopping=example.stopping, arithmetic=example.arithmetic)
    return replace(asked, replicates=seeds)


def _named(example: Run) -> str | None:
    """The name of a recipe whose search is its own (it climbs), if the run's is one."""
    recipe = example.recipe
    assert isinstance(recipe, Recipe)
    named = RECIPES.get(recipe.name)
    return recipe.name if named and named.bracket and named.make(steps=recipe.steps) == recipe else None
