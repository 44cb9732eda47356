"""How small is each construction? The tables of docs/constructions.md: smallest exact key budgets by search.

    python -m keyspan.studies.constructions --out constructions.csv

Three groups: all methods on permutations of gaussian rows; the best ones on other graphs; and on other vectors. What is
in the file already is not searched again, so a study that was stopped goes on.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from keyspan.errors import KeyspanError
from keyspan.problems import NoContents, embeddings, graphs
from keyspan.problems.relations import Relations
from keyspan.runners.construct import carry_out, run_of
from keyspan.runners.construct_search import search
from keyspan.theory.constructions import BLOCKS, plan

COLUMNS = (
    *("group", "name", "items", "d_model", "edges", "seed", "method"),
    *("heads", "d_key", "key_budget", "margin", "proven", "exact", "tried", "seconds"),
)
SEEDS = (0, 1)
CELLS = ((256, 64), (512, 64), (512, 32), (1024, 64), (1024, 128))
SHORT = ("ridge+code", "quiet", "repair")
Row = dict[str, str | int | float | bool | None]


@dataclass(frozen=True)
class Trial:
    """A problem, and the methods tried on it."""

    group: str
    name: str
    problem: Relations
    methods: tuple[str, ...]


def trials() -> Iterator[Trial]:
    """All of them, in order."""
    for items, d_model in CELLS:
        name = f"{items}, {d_model}"
        yield Trial("method", name, Relations(items=items, d_model=d_model), ("trivial", *BLOCKS))
    graph = {
        "regular, degree 2": graphs.regular(2),
        "erdos-renyi, 512 edges": graphs.erdos_renyi(512),
        "bipartite, 512 edges": graphs.bipartite(512),
        "functional": graphs.functional(),
        "power-law, 584 edges": graphs.power_law(584),
        "power-law, 584 edges, exponent 2": graphs.power_law(584, exponent=2.0),
    }
    for name, family in graph.items():
        yield Trial("graph", name, Relations(items=256, d_model=64, graph=family), SHORT)
    rows = {"gaussian": embeddings.gaussian(), "sign": embeddings.sign()}
    rows |= {f"sparse, {ones} ones": embeddings.sparse(ones) for ones in (2, 4, 8, 16, 32)}
    for name, family_of_rows in rows.items():
        yield Trial("vectors", name, Relations(items=512, d_model=64, embeddings=family_of_rows), SHORT)


def carry_out_trial(trial: Trial, seed: int, method: str) -> Row:
    """The smallest exact size of one method on one instance, judged."""
    problem = trial.problem
    run = run_of(problem, seed, plan("trivial"), 1, 1)
    instance = problem.instance(run.problem_id, NoContents())
    (found,) = search(problem, seed, (method,), instance)
    row: Row = dict.fromkeys(COLUMNS)
    row |= {"group": trial.group, "name": trial.name, "items": problem.items, "d_model": problem.d_model}
    row |= {"edges": problem.edges, "seed": seed, "method": method, "tried": found.tried, "seconds": found.seconds}
    if found.plan is not None and found.heads is not None and found.d_key is not None:
        made = carry_out(run_of(problem, seed, found.plan, found.heads, found.d_key), NoContents(), instance)
        row |= {"heads": found.heads, "d_key": found.d_key, "key_budget": found.key_budget, "proven": found.proven}
        row |= {"exact": made.verdict.exact, "margin": round(made.verdict.scores["margin"], 6)}
    return row


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """The tables of docs/constructions.md: smallest exact budgets, seeds apart; a dash where there was none."""
    tables = []
    for group in dict.fromkeys(row["group"] for row in rows):
        mine = [row for row in rows if row["group"] == group]
        names, methods = (list(dict.fromkeys(row[key] for row in mine)) for key in ("name", "method"))
        across, down, title = (names, methods, "method") if group == "method" else (methods, names, group)
        lines = [[title, *across], ["---"] * (len(across) + 1)]
        for one in down:
            cells = [(one, other) if group == "method" else (other, one) for other in across]
            lines.append([one, *[_shown(mine, method, name) for method, name in cells]])
        tables.append("\n".join("| " + " | ".join(line) + " |" for line in lines))
    return "\n\n".join(tables)


def _shown(rows: Sequence[Mapping[str, str]], method: str, name: str) -> str:
    found = sorted((row["seed"], row) for row in rows if (row["method"], row["name"]) == (method, name))
    return ", ".join(f"{row['key_budget']} ({row['heads']})" if row["key_budget"] else "-" for _, row in found)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `python -m keyspan.studies.constructions`."""
    parser = argparse.ArgumentParser(
        prog="python -m keyspan.studies.constructions", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="the CSV file; rows in it are kept")
    args = parser.parse_args(argv)
    try:
        extend(args.out)
        with args.out.open(encoding="utf-8", newline="") as file:
            print(markdown(list(csv.DictReader(file))))
    except KeyspanError as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def extend(path: Path) -> None:
    """Add the rows that the file does not have."""
    there: set[tuple[str, ...]] = set()
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            there = {tuple(row[c] for c in ("group", "name", "seed", "method")) for row in csv.DictReader(file)}
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not there:
            writer.writeheader()
        for trial in trials():
            for seed in SEEDS:
                for method in trial.methods:
                    if (trial.group, trial.name, str(seed), method) not in there:
                        row = carry_out_trial(trial, seed, method)
                        writer.writerow(row)
                        file.flush()
                        print(*(f"{k}={v}" for k, v in row.items() if v is not None), file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
