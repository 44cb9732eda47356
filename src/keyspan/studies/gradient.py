"""What closes the gap between gradient training and what a channel can hold? The trials of docs/gradient-training.md.

    python -m keyspan.studies.gradient --store sqlite:///.keyspan/study.db --out study.csv

Every trial is a recipe, asked on a few small cells, at a fixed number of heads, for the smallest key budget that is exact
in all of 3 seeds. What the store holds is not trained again, so a study that was stopped goes on.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from keyspan.errors import BadInput, KeyspanError
from keyspan.lab import recipes
from keyspan.lab.recipes import Adam, Muon, Recipe
from keyspan.problems.relations import Relations
from keyspan.runners.driver import Outcome
from keyspan.runners.lab import Lab
from keyspan.runners.questions import relations_question
from keyspan.specs import Question, Spec

STEPS = 2000  # of every trial whose name does not say otherwise: what `gradient` takes
COLUMNS = (
    "group",
    "trial",
    "items",
    "d_model",
    "heads",
    "key_budget",
    "low",
    "high",
    "seeds",
    "steps",
    "steps_taken",
    "probes",
)


@dataclass(frozen=True)
class Cell:
    """A permutation of `items` gaussian rows in d_model dimensions, and the number of heads that suits it."""

    items: int
    d_model: int
    heads: int


@dataclass(frozen=True)
class Trial:
    """One recipe of the study. group: what it varies    name: how it differs from what it varies"""

    group: str
    name: str
    recipe: Recipe


CELLS = (Cell(128, 32, 2), Cell(256, 64, 2), Cell(128, 16, 8))


def adam(
    *,
    loss: str = "squared-hinge",
    steps: int = STEPS,
    peak: float = 0.3,
    warmup: float = 0.1,
    betas: tuple[float, float] = (0.99, 0.95),
    cycles: int = 1,
    bias: float = -3.0,
    init_scale: float = 1.0,
    draw: int = 0,
) -> Recipe:
    """The recipe `hinge` with something changed. cycles: one-cycle phases that share the steps (warm restarts)"""
    phase = Adam(steps=steps // cycles, peak=peak, warmup=warmup, beta1=betas[0], beta2=betas[1])
    return _trial(loss, (phase,) * cycles, init_scale, bias, draw)


def muon(*, peak: float, momentum: float) -> Recipe:
    """Squared hinge by Muon."""
    return _trial("squared-hinge", (Muon(steps=STEPS, peak=peak, momentum=momentum),), 1.0, -3.0, 0)


def _trial(loss: str, phases: tuple[Spec, ...], init_scale: float, bias: float, draw: int) -> Recipe:
    return Recipe(name="trial", revision=1, loss=loss, phases=phases, init_scale=init_scale, bias=bias, draw=draw)


PLAIN = (0.9, 0.999)
TRIALS = (
    Trial("plain", "gradient: bce, peak 0.06, betas 0.9 0.999", recipes.gradient()),
    Trial("plain", "gradient, 8000 steps", recipes.gradient(steps=8000)),
    Trial("plain", "bce, peak 0.15", adam(loss="bce", peak=0.15, betas=PLAIN)),
    Trial("plain", "bce, peak 0.3", adam(loss="bce", peak=0.3, betas=PLAIN)),
    Trial("loss", "squared hinge, peak 0.06, betas 0.9 0.999", adam(peak=0.06, betas=PLAIN)),
    Trial("loss", "squared hinge, peak 0.15", adam(peak=0.15, betas=PLAIN)),
    Trial("loss", "squared hinge, peak 0.3", adam(peak=0.3, betas=PLAIN)),
    Trial("momentum", "bce, peak 0.3, betas 0.99 0.95", adam(loss="bce")),
    Trial("momentum", "squared hinge, betas 0.9 0.95", adam(betas=(0.9, 0.95))),
    Trial("momentum", "betas 0.95 0.95", adam(betas=(0.95, 0.95))),
    Trial("momentum", "betas 0.98 0.95", adam(betas=(0.98, 0.95))),
    Trial("momentum", "betas 0.99 0.95: the recipe hinge, 2000 steps", adam()),
    Trial("momentum", "betas 0.995 0.95", adam(betas=(0.995, 0.95))),
    Trial("momentum", "betas 0.99 0.9", adam(betas=(0.99, 0.9))),
    Trial("momentum", "betas 0.99 0.99", adam(betas=(0.99, 0.99))),
    Trial("momentum", "betas 0.99 0.999", adam(betas=(0.99, 0.999))),
    Trial("schedule", "hinge, peak 0.15", adam(peak=0.15)),
    Trial("schedule", "hinge, peak 0.6", adam(peak=0.6)),
    Trial("schedule", "hinge, warm-up 0.03", adam(warmup=0.03)),
    Trial("schedule", "hinge, warm-up 0.3", adam(warmup=0.3)),
    Trial("schedule", "hinge, 4 cycles of 500 steps", adam(cycles=4)),
    Trial("schedule", "hinge, 500 steps", adam(steps=500)),
    Trial("schedule", "hinge, 6000 steps", adam(steps=6000)),
    Trial("start", "hinge, initial variance x 0.1", adam(init_scale=0.1)),
    Trial("start", "hinge, initial variance x 10", adam(init_scale=10.0)),
    Trial("start", "hinge, bias from 0", adam(bias=0.0)),
    Trial("start", "hinge, another draw (1)", adam(draw=1)),
    Trial("start", "hinge, another draw (2)", adam(draw=2)),
    Trial("start", "hinge, another draw (3)", adam(draw=3)),
    Trial("optimiser", "squared hinge, Muon, peak 0.2, momentum 0.95", muon(peak=0.2, momentum=0.95)),
    Trial("optimiser", "squared hinge, Muon, peak 0.5, momentum 0.9", muon(peak=0.5, momentum=0.9)),
    Trial("optimiser", "squared hinge, Muon, peak 0.5, momentum 0.98", muon(peak=0.5, momentum=0.98)),
)


def question(trial: Trial, cell: Cell, seeds: int = 3) -> Question:
    """The smallest key budget at which every seed is exact under the trial's recipe, at the cell's number of heads."""
    problem = Relations(items=cell.items, d_model=cell.d_model)
    asked = relations_question(problem, heads=[cell.heads], seeds=seeds, target=1.0, criterion="all")
    return replace(asked, recipe=trial.recipe, guard=0)


Row = dict[str, str | int | float | None]


def row(trial: Trial, cell: Cell, asked: Question, outcome: Outcome) -> Row:
    """One line of the study. steps_taken: of the slowest seed at the key budget found"""
    crossing = outcome.answer.crossing
    probes = outcome.answer.probes
    taken = [outcome.provenance[p.run.run_id].get("steps") for p in probes if p.level == crossing.estimate]
    return {
        "group": trial.group,
        "trial": trial.name,
        "items": cell.items,
        "d_model": cell.d_model,
        "heads": cell.heads,
        "key_budget": _whole(crossing.estimate),
        "low": _whole(crossing.low),
        "high": _whole(crossing.high),
        "seeds": len(asked.replicates),
        "steps": trial.recipe.steps,
        "steps_taken": max((int(t) for t in taken if t is not None), default=None),
        "probes": len(probes),
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def carry_out(lab: Lab, trials: Sequence[Trial], cells: Sequence[Cell], seeds: int = 3) -> list[Row]:
    """Ask every trial on every cell, training what the store does not hold; all together, so that no core waits."""
    points = [(trial, cell) for trial in trials for cell in cells]
    questions = [question(trial, cell, seeds) for trial, cell in points]
    outcomes = lab.answer(questions)
    return [row(t, c, q, o) for (t, c), q, o in zip(points, questions, outcomes, strict=True)]


def markdown(rows: Sequence[Row]) -> str:
    """The table of the documents: a line per trial, a column per cell; key budget, and (steps that the slowest seed took)."""
    cells = list(dict.fromkeys((r["items"], r["d_model"], r["heads"]) for r in rows))
    head = ["what", "trial", *[f"({m}, {d}), {h} heads" for m, d, h in cells]]
    lines = [head, ["---"] * len(head)]
    for group, name in dict.fromkeys((r["group"], r["trial"]) for r in rows):
        found = {(r["items"], r["d_model"], r["heads"]): r for r in rows if r["trial"] == name}
        lines.append([str(group), str(name), *[_shown(found.get(c)) for c in cells]])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _shown(row: Row | None) -> str:
    return "-" if row is None or row["key_budget"] is None else f"{row['key_budget']} ({row['steps_taken']})"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `python -m keyspan.studies.gradient`."""
    parser = argparse.ArgumentParser(prog="python -m keyspan.studies.gradient", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", default="sqlite:///.keyspan/study.db", help="where records lie")
    parser.add_argument("--out", type=Path, default=None, help="write the rows to this CSV file")
    parser.add_argument(
        "--groups", default=None, help="only these, as plain,loss: plain|loss|momentum|schedule|start|optimiser"
    )
    parser.add_argument("--device", default="auto", help="auto|cpu|cuda")
    parser.add_argument("--jobs", type=int, default=None, help="worker processes (default: one a core)")
    parser.add_argument("--seeds", type=int, default=3, help="instances per point")
    args = parser.parse_args(argv)
    try:
        rows = carry_out(Lab(args.store, args.device, args.jobs), chosen(args.groups), CELLS, args.seeds)
    except KeyspanError as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return error.exit_code
    if args.out is not None:
        with args.out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    print(markdown(rows))
    return 0


def chosen(groups: str | None) -> list[Trial]:
    """The trials of these groups."""
    known = list(dict.fromkeys(t.group for t in TRIALS))
    wanted = known if groups is None else groups.split(",")
    if not set(wanted) <= set(known):
        raise BadInput(f"`--groups` must be among {'|'.join(known)}, but got {groups!r}. Choose some of these.")
    return [t for t in TRIALS if t.group in wanted]


if __name__ == "__main__":
    raise SystemExit(main())
