"""What of item vectors decides D_K*: their dimension, their rank, or their spectrum? The tables of docs/model.md.

    python -m keyspan.studies.rows --store sqlite:///.keyspan/rows.db --out rows.csv
    python -m keyspan.studies.rows --embeddings model.safetensors#embeddings.word_embeddings.weight --out given.csv

The hypothesis: what the architecture holds depends on the rank of the rows alone, since a linear map undoes the rest and
W_Q, W_K can carry it; what training by gradient reaches depends on their spectrum; whitening (a linear map) closes the gap.

Without a file: gaussian rows with a spectrum t^-a, and of smaller rank, as they are and whitened. With one: some of its rows,
as they are, centred, whitened. Every line is asked for its D_K* by every recipe there is, over permutations. What the store
holds is not trained again, so a study that was stopped goes on.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import KeyspanError
from keyspan.files.contents import Contents
from keyspan.problems import spectrum
from keyspan.problems.embeddings import Embeddings
from keyspan.problems.relations import Relations
from keyspan.runners.driver import Outcome
from keyspan.runners.given import some_rows
from keyspan.runners.lab import Lab
from keyspan.runners.questions import RECIPES, relations_question
from keyspan.seeds import Stream
from keyspan.specs import Question
from keyspan.theory.bounds import law

Float = NDArray[np.float64]
ITEMS, D_MODEL = 128, 32
SLOPES = (0.25, 0.5, 1.0)  # a of singular values t^-a
RANKS = (0.75, 0.5)  # of d_model
PREDICTORS: dict[str, Callable[[Float], float]] = {
    "d_model": lambda rows: float(rows.shape[1]),
    "rank": lambda rows: float(spectrum.rank(rows)),
    "stable_rank": spectrum.stable_rank,
    "effective_rank": spectrum.effective_rank,
}
Value = str | int | float | None


@dataclass(frozen=True, eq=False)
class Line:
    """Item vectors. heads: numbers of heads tried    most: the largest key budget tried"""

    name: str
    treatment: str
    rows: Float
    heads: tuple[int, ...]
    most: int


def made(items: int = ITEMS, d_model: int = D_MODEL) -> list[Line]:
    """Gaussian rows with spectra of our choice: flat, falling, cut off; those that fall also whitened."""
    places = np.arange(1.0, d_model + 1)
    spectra = {"flat": places**0, **{f"t^-{slope:g}": places**-slope for slope in SLOPES}}
    spectra |= {f"flat, rank {round(share * d_model)}": (places <= round(share * d_model)) * 1.0 for share in RANKS}
    lines = []
    for index, (name, values) in enumerate(spectra.items()):
        drawn = Stream("rows study", "gaussian", index).normal((items, d_model))
        left, _, right = np.linalg.svd(drawn, full_matrices=False)
        for treatment in ("raw", "whitened") if name.startswith("t") else ("raw",):
            rows = spectrum.TREATMENTS[treatment](left * values @ right)
            lines.append(Line(name, treatment, rows, (1, 2, 4, 8), 8 * d_model))
    return lines


def given(path: str, items: int | None = None) -> list[Line]:
    """Some rows of a file, in every treatment."""
    rows = some_rows(path, items)
    most = max(32, 1 << math.ceil(math.log2(4 * law(len(rows), rows.shape[1]))))
    return [Line(Path(path.split("#")[0]).stem, name, treat(rows), (1, 2), most) for name, treat in spectrum.TREATMENTS.items()]


def question(line: Line, recipe: str, contents: Contents, seeds: int) -> Question:
    """D_K* of a permutation on these rows."""
    items, d_model = line.rows.shape
    embeddings = Embeddings(name="file", content=contents.put(line.rows))
    asked = relations_question(
        Relations(items=items, d_model=d_model, embeddings=embeddings), heads=line.heads, seeds=seeds, recipe=recipe
    )
    arms = []
    for arm in asked.arms:
        levels = tuple(level for level in arm.levels if level <= line.most)
        arms.append(replace(arm, levels=levels, low=min(arm.low, levels[-1]), high=min(arm.high, levels[-1])))
    return replace(asked, arms=tuple(arms))


def row(line: Line, recipe: str, asked: Question, outcome: Outcome) -> dict[str, Value]:
    """A line's numbers, and the law with each of what might stand for d."""
    answer, items = outcome.answer, len(line.rows)
    best = None if answer.best is None else answer.arms[answer.best].heads
    found: dict[str, Value] = {"rows": line.name, "treatment": line.treatment, "recipe": recipe, "items": items}
    found |= {name: round(of(line.rows), 3) for name, of in PREDICTORS.items()}
    crossing = answer.crossing
    ends = {"key_budget": crossing.estimate, "low": crossing.low, "high": crossing.high}
    found |= {name: None if end is None else int(end) for name, end in ends.items()}
    found |= {"heads": best, "most": line.most, "seeds": len(asked.replicates), "failed": answer.failed}
    return found


def carry_out(lab: Lab, lines: Sequence[Line], recipes: Sequence[str], seeds: int = 3) -> list[dict[str, Value]]:
    """Ask every line by every recipe, all together, so that no core waits."""
    contents = lab.contents
    points = [(line, recipe) for line in lines for recipe in recipes]
    questions = [question(line, recipe, contents, seeds) for line, recipe in points]
    outcomes = lab.answer(questions)
    return [row(line, recipe, q, o) for (line, recipe), q, o in zip(points, questions, outcomes, strict=True)]


def spread(rows: Sequence[dict[str, Value]], recipe: str, predictor: str) -> float | None:
    """How badly `c m ln m / predictor` describes D_K* of a recipe: the largest ratio over the smallest; None: too few."""
    ratios = [
        float(r["key_budget"]) * float(r[predictor])  # type: ignore[arg-type]
        for r in rows
        if r["recipe"] == recipe and r["key_budget"] is not None
    ]
    return max(ratios) / min(ratios) if len(ratios) > 1 else None


def markdown(rows: Sequence[dict[str, Value]]) -> str:
    """The tables of the documents."""
    recipes = list(dict.fromkeys(str(r["recipe"]) for r in rows))
    head = ["rows", "treatment", "rank", "stable rank", "effective rank", *recipes]
    lines = [head, ["---"] * len(head)]
    for name, treatment in dict.fromkeys((r["rows"], r["treatment"]) for r in rows):
        here = {r["recipe"]: r for r in rows if (r["rows"], r["treatment"]) == (name, treatment)}
        first = next(iter(here.values()))
        ranks = [f"{first['rank']:.0f}", f"{first['stable_rank']:.1f}", f"{first['effective_rank']:.1f}"]
        lines.append([str(name), str(treatment), *ranks, *(_shown(here[r]) for r in recipes)])
    table = ["| " + " | ".join(line) + " |" for line in lines]
    table += ["", "largest over smallest of D_K* times:", ""]
    table += ["| recipe | " + " | ".join(PREDICTORS) + " |", "| --- " * (1 + len(PREDICTORS)) + "|"]
    for recipe in recipes:
        spreads = [spread(rows, recipe, name) for name in PREDICTORS]
        table.append(f"| {recipe} | " + " | ".join("-" if s is None else f"{s:.2f}" for s in spreads) + " |")
    return "\n".join(table)


def _shown(found: dict[str, Value]) -> str:
    if found["key_budget"] is None:
        return f"not up to {found['most']}"
    ends = ("-" if found[end] is None else str(found[end]) for end in ("low", "high"))
    return f"{found['key_budget']} [{', '.join(ends)}], h {found['heads']}"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `python -m keyspan.studies.rows`."""
    parser = argparse.ArgumentParser(prog="python -m keyspan.studies.rows", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", default="sqlite:///.keyspan/rows.db", help="where records lie")
    parser.add_argument("--embeddings", default=None, help="rows of this file (.npy, .safetensors, .safetensors#tensor)")
    parser.add_argument("--items", type=int, default=None, help=f"so many of them (512, or all); without a file {ITEMS}")
    parser.add_argument("--d-model", type=int, default=D_MODEL, help=f"without a file: dimensions (default {D_MODEL})")
    parser.add_argument("--recipes", default=None, help=f"only these, as gradient,hinge (default: {', '.join(RECIPES)})")
    parser.add_argument("--seeds", type=int, default=3, help="instances per point")
    parser.add_argument("--device", default="auto", help="auto|cpu|cuda")
    parser.add_argument("--jobs", type=int, default=None, help="worker processes (default: one a core)")
    parser.add_argument("--out", type=Path, default=None, help="write the rows to this CSV file")
    args = parser.parse_args(argv)
    try:
        if args.embeddings is None:
            lines = made(ITEMS if args.items is None else args.items, args.d_model)
        else:
            lines = given(args.embeddings, args.items)
        recipes = list(RECIPES) if args.recipes is None else args.recipes.split(",")
        found = carry_out(Lab(args.store, args.device, args.jobs), lines, recipes, args.seeds)
    except KeyspanError as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return error.exit_code
    if args.out is not None:
        with args.out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)
    print(markdown(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
