"""Does the design law hold where it was not fitted? Its interval and its error on cells that it has not seen.

    python -m keyspan.studies.held_out --out benchmarks/design-held-out.csv

Nothing is trained: the cells are those that come with the package (`studies.design_cells` measures them). Two ways, in both of
which a law has seen no cell with the items, the d_model or the graph family of one that it is judged on:

    split     the law is fitted to the cells of the role `fit`, and judged on those held out; fixed before measuring
    blocks    every cell of both roles is judged by a law of its own, fitted to all cells that share none of the three with it

Columns: how; the cell, its measured D_K* with the interval of its seeds; the law's estimate with its 90% interval, whether
the measured one is inside, and the relative error.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path

import numpy as np

from keyspan.errors import KeyspanError
from keyspan.evidence.cells import Cell
from keyspan.evidence.design_law import DesignLaw, fit_design, size_of, usable
from keyspan.evidence.shipped import FITTED, cells_of, shipped_law
from keyspan.runners.measure import wilson


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A cell beside what the law says of it. inside: low <= measured <= high    error: estimate / measured - 1"""

    how: str
    items: int
    d_model: int
    edges: int
    graph: str
    measured: int
    measured_low: int | None
    measured_high: int | None
    heads: int
    estimate: int
    low: int
    high: int
    law_heads: int
    inside: bool
    error: float
    evidence: str


def by_split() -> tuple[Judged, ...]:
    """The cells held out, by the law of the others."""
    law = shipped_law(("fit",))
    return tuple(one for cell in cells_of("held-out") if (one := judge("split", law, cell)) is not None)


@lru_cache(maxsize=1)
def by_blocks() -> tuple[Judged, ...]:
    """Every cell, by the law of all cells that share neither items, nor d_model, nor family with it."""
    cells = [cell for cell in cells_of(*FITTED) if usable(cell) is None]
    laws: dict[tuple[int, int, str], DesignLaw] = {}
    found = []
    for cell in cells:
        block = (cell.items, cell.d_model, cell.graph)
        if block not in laws:
            others = [c for c in cells if (c.items != block[0]) and (c.d_model != block[1]) and (c.graph != block[2])]
            laws[block] = fit_design(others, "blocks")
        one = judge("blocks", laws[block], cell)
        assert one is not None
        found.append(one)
    return tuple(found)


def judge(how: str, law: DesignLaw, cell: Cell) -> Judged | None:
    """A law against a cell; None where D_K* was not reached, or the law says nothing."""
    if cell.key_budget is None or cell.heads is None or (said := law.expected(size_of(cell))) is None:
        return None
    return Judged(
        how=how,
        items=cell.items,
        d_model=cell.d_model,
        edges=cell.edges,
        graph=cell.graph,
        measured=cell.key_budget,
        measured_low=cell.low,
        measured_high=cell.high,
        heads=cell.heads,
        estimate=said.estimate,
        low=said.low,
        high=said.high,
        law_heads=said.heads,
        inside=said.low <= cell.key_budget <= said.high,
        error=said.estimate / cell.key_budget - 1,
        evidence=cell.evidence,
    )


@dataclass(frozen=True, kw_only=True)
class Summary:
    """covered: share inside, with Wilson's 95% interval    error, mean_error: median and mean of |error|"""

    cells: int
    covered: float
    covered_low: float
    covered_high: float
    error: float
    mean_error: float
    width: float


def summary(found: Sequence[Judged]) -> Summary:
    """Coverage and error of some cells. width: median of high / low"""
    inside = sum(one.inside for one in found)
    low, high = wilson(inside, len(found))
    return Summary(
        cells=len(found),
        covered=inside / len(found),
        covered_low=low,
        covered_high=high,
        error=float(np.median([abs(one.error) for one in found])),
        mean_error=float(np.mean([abs(one.error) for one in found])),
        width=float(np.median([one.high / one.low for one in found])),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `python -m keyspan.studies.held_out`."""
    parser = argparse.ArgumentParser(prog="python -m keyspan.studies.held_out", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=None, help="write the cells to this CSV file")
    args = parser.parse_args(argv)
    try:
        ways = {"split": by_split(), "blocks": by_blocks()}
    except KeyspanError as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return error.exit_code
    if args.out is not None:
        with args.out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [f.name for f in fields(Judged)], lineterminator="\n")
            writer.writeheader()
            for one in (one for found in ways.values() for one in found):
                writer.writerow(asdict(one) | {"error": f"{one.error:.4f}", "inside": str(one.inside).lower()})
    print("| how | cells | | inside the 90% interval | median error | mean error | interval, high / low |")
    print("| --- " * 7 + "|")
    for how, found in ways.items():
        groups = {"all": found} | {g: [one for one in found if one.graph == g] for g in sorted({one.graph for one in found})}
        for name, some in groups.items():
            s = summary(some)
            ends = f"{s.covered:.0%} [{s.covered_low:.0%}, {s.covered_high:.0%}]"
            print(f"| {how} | {name} | {s.cells} | {ends} | {s.error:.1%} | {s.mean_error:.1%} | {s.width:.2f} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
