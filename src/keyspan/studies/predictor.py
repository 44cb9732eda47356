"""Does the prediction of outer-product blocks hold? The grid of docs/constructions.md: predicted and judged F1.

    python -m keyspan.studies.predictor --out predictor.csv

A permutation of gaussian rows, over items, d_model, edges of a head and head widths that span the fall of F1.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from keyspan.errors import KeyspanError
from keyspan.problems import NoContents
from keyspan.problems.relations import Relations
from keyspan.runners.construct import carry_out, run_of
from keyspan.theory.constructions import plan

CELLS = ((256, 32), (256, 64), (256, 128), (512, 32), (512, 64), (512, 128), (1024, 64), (1024, 128), (1024, 256))
SHARES = (0.25, 0.5, 1.0)  # edges of a head, over d_model
WIDTHS = (0.3, 0.6, 1.0)  # key budget, over 20 m ln m / d, about where F1 reaches 0.99
COLUMNS = ("items", "d_model", "heads", "d_key", "key_budget", "f1", "predicted", "error")
Row = dict[str, int | float]


@dataclass(frozen=True)
class Point:
    """One size of the construction."""

    items: int
    d_model: int
    heads: int
    d_key: int


def grid() -> Iterator[Point]:
    """All points, in order."""
    for items, d_model in CELLS:
        for share in SHARES:
            heads = max(2, round(items / (share * d_model)))
            for width in WIDTHS:
                budget = width * 20 * items * math.log(items) / d_model
                yield Point(items, d_model, heads, max(2, round(budget / heads)))


def measure(point: Point) -> Row:
    """Build it, judge it, compare."""
    run = run_of(Relations(items=point.items, d_model=point.d_model), 0, plan("outer"), point.heads, point.d_key)
    made = carry_out(run, NoContents())
    predicted = made.construction.f1
    assert predicted is not None
    f1 = made.verdict.scores["f1_best"]
    return {
        "items": point.items,
        "d_model": point.d_model,
        "heads": point.heads,
        "d_key": point.d_key,
        "key_budget": point.heads * point.d_key,
        "f1": round(f1, 5),
        "predicted": round(predicted, 5),
        "error": round(predicted - f1, 5),
    }


def summary(rows: Sequence[Row]) -> tuple[float, float, float]:
    """Root of the mean squared error, mean error, largest error."""
    errors = [float(row["error"]) for row in rows]
    return math.sqrt(math.fsum(e * e for e in errors) / len(errors)), math.fsum(errors) / len(errors), max(map(abs, errors))


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `python -m keyspan.studies.predictor`."""
    parser = argparse.ArgumentParser(prog="python -m keyspan.studies.predictor", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=None, help="write the rows to this CSV file")
    args = parser.parse_args(argv)
    try:
        rows = [measure(point) for point in grid()]
    except KeyspanError as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return error.exit_code
    if args.out is not None:
        with args.out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    rms, mean, largest = summary(rows)
    print(f"{len(rows)} points: rms error {rms:.4f}, mean {mean:+.4f}, largest {largest:.4f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
