"""The table of attention in use today: its data, and its picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keyspan.papers.modern import Line, Point, Table
from keyspan.views.drawings import Data, Drawing
from keyspan.views.figures import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WHATS = ("budget", "parameters", "cache_bits")


@dataclass(frozen=True)
class HeadsTable(Data):
    """What every kind of heads needs, in every cell."""

    lines: tuple[Line, ...]

    def plain(self, line: Line) -> Line | None:
        """The line of plain heads in the same cell."""
        return next((x for x in self.lines if x.size == line.size and x.kind.name == "plain"), None)

    def ratio(self, line: Line, what: str) -> float | None:
        """Its smallest `what` over that of plain heads."""
        plain = self.plain(line)
        one, other = line.least(what), plain and plain.least(what)
        return one / other if one and other else None

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        each = [f"{x.kind.name} ({_cell(x)}): {_words(x)}" for x in self.lines]
        return f"What kinds of heads need for F1 of 0.99. {'; '.join(each)}."

    def facts(self) -> dict[str, Any]:
        """Every kind's smallest budget, parameters and key cache, over those of plain heads."""
        return {
            "over_plain": [
                {"kind": x.kind.name} | _sizes(x) | {what: self.ratio(x, what) for what in WHATS} for x in self.lines
            ]
        }

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it: a row for every number of heads."""
        return [
            {"kind": x.kind.name}
            | _sizes(x)
            | {
                "positions": x.kind.positions,
                "score": x.kind.score,
                "seeds": x.seeds,
                "heads": p.heads,
                "key_budget": p.budget,
                "low": p.low,
                "high": p.high,
                "parameters": p.parameters,
                "cached_numbers": p.cached,
                "cache_bits_per_relation": p.cache_bits,
                "failed": x.failed,
            }
            for x in self.lines
            for p in x.points
        ]

    def printed(self) -> tuple[str, list[str], list[list[Any]]]:
        """The table: the best number of heads for each of the three."""
        columns = ["kind", "cell", "D_K* [low, high]", "h", "over plain", "parameters", "h", "over plain"]
        columns += ["cache bits per relation", "h", "over plain"]
        rows = []
        for x in self.lines:
            row: list[Any] = [x.kind.name, _cell(x), _words(x)]
            for what in WHATS:
                best, ratio = x.best(what), self.ratio(x, what)
                if what != "budget":
                    row.append("-" if best is None else f"{getattr(best, what):.0f}")
                row += ["-" if best is None else best.heads, "-" if ratio is None else f"{ratio:.2f}"]
            rows.append(row)
        return "what F1 of 0.99 needs, each at its best number of heads h", columns, rows


def _sizes(line: Line) -> dict[str, int]:
    return dict(zip(("items", "d_model", "targets"), line.size, strict=True))


def _cell(line: Line) -> str:
    items, d_model, targets = line.size
    return f"m {items}, d {d_model}" + (f", {targets} targets" if targets > 1 else "")


def _words(line: Line) -> str:
    best = line.best("budget")
    return "not reached" if best is None else f"{best.budget} [{_end(best.low)}, {_end(best.high)}]"


def _end(value: int | None) -> str:
    return "-" if value is None else str(value)


def heads_table_info(found: Table) -> HeadsTable:
    """The lines as they were measured."""
    return HeadsTable(found.lines)


def draw_heads_table(info: HeadsTable, axes: list[Axes]) -> None:
    """D_K* with its interval, and the smallest key cache, a line for every kind and cell."""
    left, right = axes
    names = [f"{x.kind.name}; {_cell(x)}" for x in info.lines]
    places = list(range(len(names), 0, -1))
    for y, line in zip(places, info.lines, strict=True):
        _dot(left, y, line.best("budget"), "budget", COLOURS[0])
        _dot(right, y, line.best("cache_bits"), "cache_bits", COLOURS[1])
    left.set_yticks(places, names, fontsize=7)
    right.set_yticks(places, [""] * len(names))
    left.set_xlabel(r"$D_K^*$, with its 95% interval")
    right.set_xlabel("key cache: bits per relation")
    right.set_xscale("log", base=2)
    for ax in axes:
        ax.set_ylim(0.3, len(names) + 0.7)
        ax.grid(axis="y", linewidth=0.3)


def _dot(ax: Axes, y: int, best: Point | None, what: str, colour: str) -> None:
    """A point with the interval of its budget, and the heads beside it."""
    if best is None or not best.budget:
        ax.annotate("not reached", (0.02, y), xycoords=("axes fraction", "data"), va="center", fontsize=7)
        return
    value, each = float(getattr(best, what)), float(getattr(best, what)) / best.budget  # all of them grow with d_key
    low, high = (value if end is None else each * end for end in (best.low, best.high))
    ax.errorbar([value], [y], xerr=[[max(0.0, value - low)], [max(0.0, high - value)]], color=colour, marker="o", markersize=4,
                capsize=2, linewidth=1)  # fmt: skip
    ax.annotate(f"h {best.heads}", (value, y), xytext=(5, 4), textcoords="offset points", fontsize=6)


DRAWINGS = {
    "heads": Drawing(
        heads_table_info,
        draw_heads_table,
        size=lambda info: (6.8, 1.2 + 0.2 * len(info.lines)),
        panels=lambda info: 2,
    )
}
