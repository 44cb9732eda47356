"""The figures of docs/law.md, from the tables in `benchmarks/`: what is computed, then what is drawn.

python -m keyspan.views.law --tables benchmarks --out docs/figures
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keyspan.errors import KeyspanError
from keyspan.theory.gardner import RHO_THIN, RHO_WIDE, gardner_load
from keyspan.theory.width import rho_of_width
from keyspan.views.figures import COLOURS, MARKERS, save_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Table = Sequence[Mapping[str, str]]
CLOSE = 0.75  # the largest that fails over the smallest that holds, of the points on the right


@dataclass(frozen=True)
class Threshold:
    """A point that is closed: more than `fails`, no more than `holds`. width: what the width of its heads predicts"""

    items: int
    d_model: int
    heads: int
    fails: int
    holds: int
    width: float
    load: float

    @property
    def ranks(self) -> tuple[float, float]:
        """d_k/d at both ends."""
        return self.fails / (self.heads * self.d_model), self.holds / (self.heads * self.d_model)

    @property
    def rhos(self) -> tuple[float, float]:
        """Degrees of freedom over P, at both ends."""
        low, high = ((2 * t - t * t) * self.heads * self.d_model**2 / self.load for t in self.ranks)
        return low, high


@dataclass(frozen=True)
class LawFigure:
    """Thresholds of permutations of gaussian rows, beside the prediction. owned, chosen: by recipe"""

    owned: tuple[Threshold, ...]
    chosen: tuple[Threshold, ...]

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        inside = sum(t.fails < t.width <= t.holds for t in self.owned)
        return (
            f"Smallest exact key budget against the width of the heads, {len(self.owned)} points whose edges have owners and "
            f"{len(self.chosen)} whose heads choose, as bars from the largest that fails to the smallest that holds. "
            f"{inside} bars of the former contain the prediction, the others begin above it, farther where many heads have few "
            "dimensions each."
        )

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it."""
        groups = (("owned", self.owned), ("chosen", self.chosen))
        return [
            {"edges": name, **vars(t), "rho_low": round(t.rhos[0], 4), "rho_high": round(t.rhos[1], 4)}
            for name, points in groups
            for t in points
        ]


def law_info(table: Table) -> LawFigure:
    """The permutations of gaussian rows among the rows of benchmarks/law.csv."""
    groups: dict[str, list[Threshold]] = {"solver-fixed": [], "solver": []}
    for row in table:
        plain = (row["graph"], row["embeddings"]) == ("permutation", "gaussian")
        if plain and row["key_budget"] and row["width"]:
            groups[row["recipe"]].append(_threshold(row))
    owned, chosen = (tuple(sorted(points, key=lambda t: t.width)) for points in groups.values())
    return LawFigure(owned, chosen)


def _threshold(row: Mapping[str, str]) -> Threshold:
    items, d_model, heads, edges = (int(row[name]) for name in ("items", "d_model", "heads", "edges"))
    load = gardner_load(edges, items, heads)
    return Threshold(items, d_model, heads, int(row["fails"]), int(row["key_budget"]), float(row["width"]), load)


def draw_law(info: LawFigure, axes: list[Axes]) -> None:
    """Left: thresholds against the prediction. Right: what rho they mean, against the rank of the heads."""
    budget, rho = axes
    groups = (("edges have owners", info.owned), ("heads choose", info.chosen))
    for k, (name, points) in enumerate(g for g in groups if g[1]):
        style: dict[str, Any] = {"color": COLOURS[k], "linewidth": 1.1, "alpha": 0.85}
        for t in points:
            budget.plot([t.width, t.width], [max(t.fails, 0.8), t.holds], **style)
        budget.plot([t.width for t in points], [t.holds for t in points], MARKERS[k], ms=2.5, color=COLOURS[k], label=name)
    ends = [1.0, max(t.holds for t in (*info.owned, *info.chosen)) * 1.1]
    budget.plot(ends, ends, "--", color="black", linewidth=0.8, label="prediction, no constant")
    for scale in (budget.set_xscale, budget.set_yscale):
        scale("log")
    budget.set_xlabel("predicted $D_K$, width of the heads")
    budget.set_ylabel("$D_K$: largest that fails to smallest that holds")
    budget.legend(fontsize=7, frameon=False)
    for t in info.owned:
        if t.holds >= 8 and t.fails >= CLOSE * t.holds:  # else a step of d_k is too coarse to tell
            rho.plot([t.ranks[1]] * 2, t.rhos, color=COLOURS[0], linewidth=1.1, alpha=0.85)
            rho.plot([t.ranks[1]], [t.rhos[1]], MARKERS[0], ms=2.5, color=COLOURS[0])
    ranks = [k / 200 for k in range(1, 201)]
    rho.plot(ranks, [rho_of_width(t) for t in ranks], "--", color="black", linewidth=1, label="width of the heads")
    fitted = [RHO_THIN + RHO_WIDE * t for t in ranks]
    rho.plot(ranks, fitted, ":", color=COLOURS[1], linewidth=1, label="0.72 + 0.28 $d_k/d$, fitted before")
    rho.axhline(1.0, color="grey", linewidth=0.6, label="counting degrees of freedom")
    rho.set_xlabel("rank of a head, $d_k/d$")
    rho.set_ylabel(r"$\rho$: degrees of freedom over $P$")
    rho.set_ylim(0.4, 1.15)
    rho.legend(fontsize=7, frameon=False, loc="lower right")


@dataclass(frozen=True)
class OneHeadFigure:
    """Fractions of instances that one head of full width holds; all others are proven to be impossible.

    points: (d_model, items over the critical number, fraction held)    heads: (h over the predicted number, fraction held)
    """

    points: tuple[tuple[int, float, float], ...]
    heads: tuple[tuple[float, float], ...]

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        widths = sorted({d for d, _, _ in self.points})
        return (
            f"Fraction of permutations that one head of full width holds, against items over the critical number, for d_model "
            f"{widths[0]} to {widths[-1]}: it falls from 1 to 0 around 1, more steeply the larger d_model is. Beside it the "
            f"same for {len(self.heads)} numbers of heads whose edges have owners, against the predicted fewest heads."
        )

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it."""
        one = [{"panel": "one head", "d_model": d, "at": round(x, 4), "held": f} for d, x, f in self.points]
        return one + [{"panel": "heads", "d_model": "", "at": round(x, 4), "held": f} for x, f in self.heads]


def one_head_info(one: Table, several: Table) -> OneHeadFigure:
    """From benchmarks/one-head.csv and benchmarks/heads.csv."""
    points = tuple(
        (int(r["d_model"]), int(r["items"]) / float(r["critical"]), int(r["held"]) / int(r["instances"])) for r in one
    )
    heads = [(int(r["heads"]) / float(r["predicted"]), int(r["held"]) / int(r["instances"])) for r in several]
    return OneHeadFigure(points, tuple(sorted(heads)))


def draw_one_head(info: OneHeadFigure, axes: list[Axes]) -> None:
    """Left: one head, by d_model. Right: several heads."""
    one, several = axes
    for k, d_model in enumerate(sorted({d for d, _, _ in info.points})):
        line = sorted((x, f) for d, x, f in info.points if d == d_model)
        xs, fs = [x for x, _ in line], [f for _, f in line]
        one.plot(xs, fs, marker=MARKERS[k], ms=3, color=COLOURS[k], linewidth=1, label=f"d = {d_model}")
    several.plot([x for x, _ in info.heads], [f for _, f in info.heads], MARKERS[0], ms=3.5, color=COLOURS[0], alpha=0.7)
    for panel, label in ((one, "items, over $m$ with $P(m, 1) = d^2$"), (several, "heads, over $h$ with $P(m, h) = h d^2$")):
        panel.axvline(1.0, color="black", linestyle="--", linewidth=0.8)
        panel.set_xlabel(label)
        panel.set_ylim(-0.05, 1.05)
    one.set_ylabel("fraction held; the rest proven impossible")
    one.legend(fontsize=7, frameon=False)


def read(path: Path) -> list[dict[str, str]]:
    """A table of the benchmarks."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `python -m keyspan.views.law`."""
    parser = argparse.ArgumentParser(prog="python -m keyspan.views.law", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=Path, default=Path("benchmarks"), help="where law.csv, one-head.csv, heads.csv lie")
    parser.add_argument("--out", type=Path, default=Path("docs/figures"), help="folder for the figures")
    args = parser.parse_args(argv)
    try:
        law = law_info(read(args.tables / "law.csv"))
        one = one_head_info(read(args.tables / "one-head.csv"), read(args.tables / "heads.csv"))
        save_panels(law, draw_law, args.out / "law", size=(6.8, 3.2), panels=2)
        save_panels(one, draw_one_head, args.out / "law-one-head", size=(6.8, 2.8), panels=2)
    except (KeyspanError, OSError) as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
