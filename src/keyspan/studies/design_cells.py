"""The cells that `keyspan design` answers from: which are measured, which of them its law is fitted to, and the CSV of them.

    python -m keyspan.studies.design_cells --store sqlite:///.keyspan/design.db --out src/keyspan/evidence/design_cells.csv

The split was fixed before anything was measured: no number of items, no d_model and no graph family of a held-out cell is one
of
a cell that is fitted. Cells of the role `rows` are permutations on other item vectors, beside gaussian ones of the same size.
What the store holds is not trained again, so a study that was stopped goes on; `--read` trains
nothing and writes the cells that the store answers in full.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keyspan
from keyspan.errors import BadInput, KeyspanError
from keyspan.evidence.cells import COLUMNS, cell_of
from keyspan.evidence.store import Store, open_store
from keyspan.files.contents import Contents
from keyspan.lab.search import Answer, propose
from keyspan.problems import embeddings, graphs, spectrum
from keyspan.problems.graphs import Graph
from keyspan.problems.relations import Relations
from keyspan.runners.lab import Lab
from keyspan.runners.questions import relations_question
from keyspan.specs import Question
from keyspan.verdict import Verdict

SEEDS = 3
TOGETHER = 14  # cells that are asked together
ROLES = ("fit", "held-out", "test", "rows")
TARGETS = (0.5, 0.8, 0.9, 0.95, 1.0)  # other F1, read off the levels that were measured for 0.99
PROVENANCE = (
    "role",
    "degree",
    "dimension",
    *(f"at_{t:g}" for t in TARGETS),
    "replicates",
    "members",
    "device",
    "keyspan",
    "command",
)
Sizes = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Planned:
    """One cell to be measured, and what it is for."""

    role: str
    problem: Relations


def _fitted(items: int) -> list[Graph]:
    """The families of the fit: as many edges as items, twice and four times as many."""
    found = [graphs.permutation(), graphs.erdos_renyi(items), graphs.power_law(items)]
    for k in (2, 4):
        found += [graphs.regular(k), graphs.erdos_renyi(k * items), graphs.power_law(k * items)]
    return found


def _held_out(items: int) -> list[Graph]:
    """The families held out, with one to three edges an item."""
    found = [graphs.functional(), graphs.out_regular(2), graphs.out_regular(3)]
    return [*found, graphs.bipartite(items), graphs.bipartite(2 * items)]


FIT_ALL: Sizes = ((32, 16), (32, 32), (64, 32), (64, 64), (128, 32), (128, 64))
FIT_THIN: Sizes = ((64, 16),)  # not the densest: more heads would be needed than are tried
FIT_ONE: Sizes = ((128, 16), (256, 128), (256, 64), (256, 32), (256, 16), (512, 128))  # a permutation each
HELD_ALL: Sizes = (
    *((40, 20), (40, 24), (48, 20), (48, 24), (48, 40), (56, 20), (56, 24), (56, 28)),
    *((80, 24), (80, 28), (80, 40)),
)
HELD_SOME: Sizes = ((96, 28), (96, 40), (96, 48), (112, 40), (112, 48))  # three of the five graphs


ROWS: Sizes = ((128, 32), (128, 64))
CORRELATIONS = (0.25, 0.5, 0.75, 0.9)
CLUSTER = 8  # items of a cluster


TEST: Sizes = (
    *((36, 18), (36, 26), (44, 18), (44, 30), (52, 18), (52, 26), (60, 22), (60, 36)),
    *((72, 22), (72, 30), (72, 44), (88, 26), (88, 36), (104, 30)),
)


def _tested(items: int) -> list[Graph]:
    """The graphs of the test: of families held out, one to four edges an item."""
    found = [graphs.functional(), graphs.out_regular(2), graphs.out_regular(4)]
    return [*found, graphs.bipartite(items), graphs.bipartite(3 * items)]


def plan() -> tuple[Planned, ...]:
    """Every cell, the cheapest first within its role."""
    return tuple(_plan())


def _plan() -> Iterator[Planned]:
    for role, sizes in (("fit", sorted(FIT_ALL + FIT_THIN)), ("held-out", HELD_ALL), ("held-out", HELD_SOME)):
        for items, d_model in sizes:
            made = _fitted(items) if role == "fit" else _held_out(items)
            if (items, d_model) in FIT_THIN:
                made = made[:6]
            elif (items, d_model) in HELD_SOME:
                made = [made[0], made[2], made[4]]
            for graph in made:
                yield Planned(role, Relations(items=items, d_model=d_model, graph=graph))
    for items, d_model in TEST:
        for graph in _tested(items):
            yield Planned("test", Relations(items=items, d_model=d_model, graph=graph))
    for items, d_model in FIT_ONE:
        yield Planned("fit", Relations(items=items, d_model=d_model))
    for items, d_model in ROWS:
        made_of = [embeddings.sign(), embeddings.sparse(d_model // 8)]
        for rows in [*made_of, *(embeddings.clustered(items // CLUSTER, c) for c in CORRELATIONS)]:
            yield Planned("rows", Relations(items=items, d_model=d_model, embeddings=rows))


def question(planned: Planned) -> Question:
    """D_K* of a cell as `keyspan measure relations` asks for it."""
    return relations_question(planned.problem, seeds=SEEDS)


def command(problem: Relations) -> str:
    """The command that measures a cell by itself."""
    graph = problem.graph
    parts = ["keyspan measure relations", f"--items {problem.items}", f"--d-model {problem.d_model}", f"--graph {graph.name}"]
    parts += [] if graph.edges is None else [f"--edges {graph.edges}"]
    parts += [] if graph.degree is None else [f"--degree {graph.degree}"]
    rows = problem.embeddings
    if rows.name != "gaussian":
        given = {"ones": rows.ones, "clusters": rows.clusters, "correlation": rows.correlation}
        parts += [f"--embeddings {rows.name}", *(f"--{k} {v}" for k, v in given.items() if v is not None)]
    return " ".join([*parts, f"--seeds {SEEDS}"])


def answered(store: Store, planned: Sequence[Planned]) -> list[dict[str, Any]]:
    """The rows of those cells whose question the store answers in full; nothing is trained."""
    rows = []
    for one in planned:
        asked, verdicts, provenance = question(one), dict[str, Verdict](), dict[str, Any]()
        found = propose(asked, verdicts)
        while not isinstance(found, Answer):
            records = store.get_many([run.run_id for run in found.runs])
            if len(records) < len({run.run_id for run in found.runs}):
                break
            verdicts |= {run_id: record.verdict for run_id, record in records.items()}
            provenance |= {run_id: record.provenance for run_id, record in records.items()}
            found = propose(asked, verdicts)
        if isinstance(found, Answer):
            rows.append(row(one, found, provenance))
    return rows


def row(planned: Planned, found: Answer, provenance: dict[str, Any]) -> dict[str, Any]:
    """A cell with what else its members say, and where it comes from."""
    asked = question(planned)
    cell = cell_of(asked, found)
    about = [provenance[run_id] for run_id in cell.run_ids]

    def distinct(name: str) -> str:
        return "; ".join(sorted({str(p.get(name, "")) for p in about}))

    others = {f"at_{t:g}": reached(found, t) for t in TARGETS}
    return cell.to_row() | {
        "role": planned.role,
        "degree": planned.problem.graph.degree,
        "dimension": dimension(planned.problem),
        **{name: None if level is None else round(level, 2) for name, level in others.items()},
        "replicates": " ".join(str(r) for r in asked.replicates),
        "members": len(about),
        "device": distinct("device"),
        "keyspan": distinct("keyspan"),
        "command": command(planned.problem),
    }


def reached(found: Answer, target: float) -> float | None:
    """Where F1 passes another target, with the heads that attain D_K*: the geometric mean of the largest budget measured that
    does not reach it and the next one; None where the levels measured do not say."""
    if found.best is None:
        return None
    arm = found.arms[found.best]
    short = [i for i, mean in enumerate(arm.means) if mean is None or mean < target]
    last = max(short, default=-1)
    if last < 0 or last + 1 >= len(arm.levels):
        return None
    return math.sqrt(arm.levels[last] * arm.levels[last + 1])


def dimension(problem: Relations) -> float:
    """What stands for d of the first replicate's rows: `spectrum.dimension_of` of their stable rank, centred."""
    if problem.embeddings.name == "gaussian":
        return float(problem.d_model)
    asked = relations_question(problem, seeds=1)
    (run, *_) = asked.runs(asked.arms[0], asked.arms[0].low)
    made = embeddings.make(problem.embeddings, problem.items, problem.d_model, run.problem_id, Contents(None))
    return round(spectrum.dimension_of(spectrum.stable_rank(spectrum.centred(made)), problem.items, problem.d_model), 2)


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as the text of the file that the package ships."""
    text = io.StringIO()
    writer = csv.DictWriter(text, (*COLUMNS, *PROVENANCE), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `python -m keyspan.studies.design_cells`."""
    parser = argparse.ArgumentParser(prog="python -m keyspan.studies.design_cells", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", default="sqlite:///.keyspan/design.db", help="where records lie")
    parser.add_argument("--read", action="store_true", help="train nothing")
    parser.add_argument("--most-items", type=int, default=None, help="only cells of at most so many items")
    parser.add_argument("--roles", default=",".join(ROLES), help="only these, as fit,held-out,rows")
    parser.add_argument("--device", default="auto", help="auto|cpu|cuda")
    parser.add_argument("--jobs", type=int, default=None, help="worker processes (default: one a core)")
    parser.add_argument("--out", type=Path, default=None, help="write the cells to this CSV file")
    args = parser.parse_args(argv)
    try:
        roles = args.roles.split(",")
        if not set(roles) <= set(ROLES):
            raise BadInput(f"`--roles` must be among {', '.join(ROLES)}, but got {args.roles}. Choose.")
        planned = [p for p in plan() if p.role in roles and p.problem.items <= (args.most_items or p.problem.items)]
        if not args.read:
            lab = Lab(args.store, args.device, args.jobs)
            for begin in range(0, len(planned), TOGETHER):  # a study that is stopped has most of its cells whole
                lab.answer([question(p) for p in planned[begin : begin + TOGETHER]])
        with open_store(args.store) as store:
            rows = answered(store, planned)
    except KeyspanError as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return error.exit_code
    if args.out is not None:
        args.out.write_text(to_csv(rows), "utf-8")
    print(f"{len(rows)} of {len(planned)} cells; keyspan {keyspan.__version__}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
