"""Where do so many heads stop being enough? Instances decided both ways, by weights or by proof (docs/law.md).

    python -m keyspan.studies.one_head --out one-head.csv --heads-out heads.csv

Permutations of gaussian rows and heads as wide as the rows. One head: sizes about the one where theory puts P(m, 1) = d^2.
Several, whose edges have owners: numbers of heads about h_min. `open` counts what was neither held nor proven impossible.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keyspan.errors import KeyspanError
from keyspan.lab.one_head import decide, one_head
from keyspan.problems import NoContents
from keyspan.problems.relations import Relations
from keyspan.seeds import Stream
from keyspan.specs import digest
from keyspan.theory.gardner import gardner_load, heads_needed

WIDTHS = (6, 8, 12, 16, 20, 24)
SHARES = (0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2)  # of the critical number of items
INSTANCES = 20
COLUMNS = ("d_model", "critical", "items", "instances", "held", "impossible", "open", "largest_bound")
CELLS = (
    *((64, 12), (64, 16), (128, 12), (128, 16), (128, 20), (128, 24), (256, 16), (256, 20), (256, 24), (512, 24)),
    *((256, 32), (512, 32), (1024, 64)),
)
HEADS_INSTANCES = 5
DEAR, FEW = 2**20, 2  # from so many pairs on, so many instances
HEADS_COLUMNS = ("items", "d_model", "predicted", "h_min", "heads", "instances", "held", "impossible", "open")
Row = dict[str, int | float]


def critical_items(d_model: int) -> float:
    """m with P(m, 1) = d^2, between two whole numbers on a line."""
    items = 2
    while gardner_load(items + 1, items + 1, 1) <= d_model**2:
        items += 1
    below, above = (gardner_load(m, m, 1) for m in (items, items + 1))
    return items + (d_model**2 - below) / (above - below)


def measure(d_model: int, items: int, instances: int = INSTANCES) -> Row:
    """How many instances one head holds, and of how many it is proven that none does."""
    problem = Relations(items=items, d_model=d_model)
    found = []
    for replicate in range(instances):
        identity = digest({"problem": problem.to_json(), "replicate": replicate}, "p")
        found.append(one_head(problem.instance(identity, NoContents())))
    bounds = [f.at_most for f in found if f.impossible]
    return {
        "d_model": d_model,
        "critical": round(critical_items(d_model), 2),
        "items": items,
        "instances": instances,
        "held": sum(f.held for f in found),
        "impossible": len(bounds),
        "open": sum(not f.held and not f.impossible for f in found),
        "largest_bound": float(f"{max(bounds, default=0.0):.2e}"),
    }


def sizes(d_model: int) -> list[int]:
    """Numbers of items about the critical one."""
    return sorted({round(share * critical_items(d_model)) for share in SHARES})


def crossing(rows: Sequence[Row]) -> float | None:
    """Items at which half of the instances are held: on a line between the two sizes where the fraction crosses."""
    points = sorted((float(r["items"]), float(r["held"]) / float(r["instances"])) for r in rows)
    for (m, f), (n, g) in itertools.pairwise(points):
        if f >= 0.5 > g:
            return m + (f - 0.5) / (f - g) * (n - m)
    return None


def instances_of(items: int, d_model: int) -> int:
    """How many instances a cell of several heads gets."""
    return FEW if items**2 >= DEAR else HEADS_INSTANCES


def measure_heads(items: int, d_model: int, heads: int, instances: int | None = None) -> Row:
    """How many instances are held by full-rank heads whose edges have owners, and of how many it is proven that they are not.

    Every head is decided by itself: its own edges against the pairs that are none, the other heads' edges left out.
    """
    outcomes = []
    instances = instances_of(items, d_model) if instances is None else instances
    for replicate in range(instances):
        problem = Relations(items=items, d_model=d_model)
        identity = digest({"problem": problem.to_json(), "replicate": replicate}, "p")
        instance = problem.instance(identity, NoContents())
        order = Stream(identity, "owners", heads).permutation(items)
        found = []
        for head in range(heads):
            signs = -np.ones((items, items))
            signs[instance.edges[:, 0], instance.edges[:, 1]] = 0.0
            own = instance.edges[order[head::heads]]
            signs[own[:, 0], own[:, 1]] = 1.0
            found.append(decide(instance.embeddings, signs))
            if found[-1].impossible:
                break
        outcomes.append((all(f.held for f in found), found[-1].impossible))
    return {
        "items": items,
        "d_model": d_model,
        "predicted": round(fractional_heads(items, d_model), 2),
        "h_min": heads_needed(items, items, d_model) or 0,
        "heads": heads,
        "instances": instances,
        "held": sum(held for held, _ in outcomes),
        "impossible": sum(impossible for _, impossible in outcomes),
        "open": sum(not held and not impossible for held, impossible in outcomes),
    }


def fractional_heads(items: int, d_model: int) -> float:
    """Where P(m, h) = h d^2, between two whole numbers of heads on a line."""
    least = heads_needed(items, items, d_model) or 1
    if least == 1:
        return gardner_load(items, items, 1) / d_model**2
    spare = [gardner_load(items, items, h) - h * d_model**2 for h in (least - 1, least)]
    return least - 1 + spare[0] / (spare[0] - spare[1])


def head_counts(items: int, d_model: int) -> list[int]:
    """From below h_min to above it."""
    least = heads_needed(items, items, d_model) or 1
    around = (-1, 0, 1) if items >= 1024 else (-2, -1, 0, 1, 2)
    step = max(1, round(0.08 * least))
    return sorted({max(1, least + k * step) for k in around})


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `python -m keyspan.studies.one_head`."""
    parser = argparse.ArgumentParser(prog="python -m keyspan.studies.one_head", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=None, help="write the rows to this CSV file")
    parser.add_argument(
        "--heads-out", type=Path, default=None, help="also decide several heads; rows in this CSV file are kept"
    )
    parser.add_argument("--only-heads", action="store_true", help="leave one head out")
    parser.add_argument("--instances", type=int, default=INSTANCES, help="of each size")
    args = parser.parse_args(argv)
    rows: list[Row] = []
    try:
        for d_model in () if args.only_heads else WIDTHS:
            mine = [measure(d_model, items, args.instances) for items in sizes(d_model)]
            half = crossing(mine)
            said = "not reached" if half is None else f"{half:.1f}"
            print(f"d_model {d_model}: predicted {critical_items(d_model):.1f}, half of the instances at {said}", flush=True)
            rows += mine
        if args.out is not None:
            with args.out.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
        if args.heads_out is not None:
            extend(args.heads_out)
    except KeyspanError as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def extend(path: Path) -> None:
    """Add the rows of several heads that the file does not have."""
    there: set[tuple[str, ...]] = set()
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            there = {(row["items"], row["d_model"], row["heads"]) for row in csv.DictReader(file)}
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, HEADS_COLUMNS, lineterminator="\n")
        if not there:
            writer.writeheader()
        for items, d_model in CELLS:
            for heads in head_counts(items, d_model):
                if (str(items), str(d_model), str(heads)) not in there:
                    found = measure_heads(items, d_model, heads)
                    writer.writerow(found)
                    file.flush()
                    print(*(f"{k}={v}" for k, v in found.items()), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
