"""The figures of labels: their data, and their pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from keyspan.evidence.intervals import student
from keyspan.papers.mahdavi_measured import Heads, Lines, Looked, MeasuredLine, Point
from keyspan.papers.mahdavi_ranks import Found1, Ranks
from keyspan.views.drawings import Data, Drawing
from keyspan.views.figures import COLOURS, MARKERS, THEORY
from keyspan.views.mahdavi_pairs import draw_pairs, pairs_info

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {"heads": "heads $H$", "context": "tokens of a context $n$", "width": "width of a head $d_h$"}


def _said(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


# ---------------------------------------------------------------------------------------------------------- lines


@dataclass(frozen=True, eq=False)
class Capacities(Data):
    """Examples memorised along every line of a figure."""

    title: str
    lines: tuple[MeasuredLine, ...]

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        return f"{self.title}. {'; '.join(f'{_of(x)}: {_words(x)}' for x in self.lines)}."

    def facts(self) -> dict[str, Any]:
        """By line: which criterion its capacities are of, and the capacities."""
        return {
            "lines": [
                {
                    **_about(x),
                    "criterion": x.criterion,
                    "capacities": {str(p.value): c for p, c in zip(x.points, x.capacities(), strict=True)},
                }
                for x in self.lines
            ]
        }

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it: a row for every layer and T."""
        return [row for x in self.lines for p in x.points for row in _rows(x, p)]

    def printed(self) -> tuple[str, list[str], list[list[Any]]]:
        """Both capacities of every layer."""
        columns = ["line", "value", "theorem", "largest [low, high]", "yield [low, high]", "cap"]
        lines: list[list[Any]] = []
        for x in self.lines:
            for p in x.points:
                most = "-" if p.yielded is None else f"{p.yielded[1]:.0f} [{p.yielded[0]:.0f}, {p.yielded[2]:.0f}]"
                largest = f"{_said(p.largest.estimate)} [{_said(p.largest.low)}, {_said(p.largest.high)}]"
                lines.append([_of(x), p.value, p.theorem, largest, most, p.cap])
        return self.title.lower(), columns, lines


def _about(line: MeasuredLine) -> dict[str, Any]:
    return {"axis": line.line.axis, "contexts": line.line.contexts, "task": line.line.task, "recipe": line.line.recipe}


def _of(line: MeasuredLine) -> str:
    return f"{line.line.axis}, {line.line.contexts} contexts, {line.line.task}"


def _words(line: MeasuredLine) -> str:
    each = [f"{_said(c)} at {p.value}" for p, c in zip(line.points, line.capacities(), strict=True)]
    return f"{line.criterion} {', '.join(each)}"


def _rows(line: MeasuredLine, point: Point) -> Iterator[dict[str, Any]]:
    low, most, high = point.yielded or (None, None, None)
    about = {"axis": line.line.axis, "contexts": line.line.contexts, "task": line.line.task, "heads": point.heads}
    about |= {"context": point.context, "d_head": point.width, "d_model": line.line.d_model, "recipe": line.line.recipe}
    known = {"theorem": point.theorem, "cap": point.cap, "largest": point.largest.estimate}
    known |= {"largest_low": point.largest.low, "largest_high": point.largest.high}
    known |= {"yield": most, "yield_low": low, "yield_high": high}
    for level, values in point.accuracies.items():
        mean, below, above = student(list(values))
        told = {"examples": level, "seeds": len(values), "accuracy": mean, "low": below, "high": above}
        yield about | told | known


def lines_info(found: Lines) -> Capacities:
    """The lines as they were measured."""
    return Capacities(found.figure.title, found.lines)


def draw_lines(info: Capacities, axes: list[Axes]) -> None:
    """Capacities with their intervals above the theorem's line; where T was given, accuracy, a line for every T."""
    for ax, line in zip(axes, info.lines, strict=True):
        if line.line.examples is None:
            _capacities(ax, line)
        else:
            _accuracies(ax, line)
        ax.set_xlabel(NAMES[line.line.axis])
        ax.set_title(f"{line.line.contexts} contexts, {line.line.task}", fontsize=8)
    axes[0].set_ylabel("examples memorised" if info.lines[0].line.examples is None else "accuracy")


def _capacities(ax: Axes, line: MeasuredLine) -> None:
    kinds: tuple[tuple[str, list[tuple[Any, ...]]], ...] = (
        ("largest", [(p.value, p.largest.low, p.largest.estimate, p.largest.high) for p in line.points]),
        ("yield", [(p.value, *p.yielded) for p in line.points if p.yielded is not None]),
    )
    for k, (name, points) in enumerate(kinds):
        known = [(x, a if a is not None else y, y, b if b is not None else y) for x, a, y, b in points if y is not None]
        if known:
            x, low, y, high = (np.array(column, dtype=float) for column in zip(*known, strict=True))
            ends = np.stack([np.maximum(0.0, y - low), np.maximum(0.0, high - y)])
            ax.errorbar(x, y, yerr=ends, color=COLOURS[k], marker=MARKERS[k], markersize=4, capsize=2, linewidth=1, label=name)
    ax.plot([p.value for p in line.points], [p.theorem for p in line.points], color="black", label="theorem", **THEORY)
    ax.set_ylim(bottom=0)
    ax.legend(fontsize=6, frameon=False)


def _accuracies(ax: Axes, line: MeasuredLine) -> None:
    for k, level in enumerate(line.line.examples):
        known = [(p.value, float(np.mean(p.accuracies[level]))) for p in line.points if level in p.accuracies]
        if known:
            x, y = zip(*known, strict=True)
            style: dict[str, Any] = {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)]}
            ax.plot(x, y, markersize=3, linewidth=1, label=f"T {level}", **style)
    ax.set_ylim(0, 1.02)
    ax.legend(fontsize=6, frameon=False)


# ----------------------------------------------------------------------------------------------------- saturation


@dataclass(frozen=True, eq=False)
class Saturation(Data):
    """Largest attention weights of layers, trained and explicit."""

    title: str
    found: Heads

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        each = [f"H {x.case.heads}, T {x.case.examples}: {_mean(x.shares)} of all pairs of head and example are saturated, "
                f"{_mean(x.unsaturated)} of examples have an unsaturated head, accuracy {_mean(x.accuracies)}"
                for x in self.found.cases]  # fmt: skip
        built = [f"explicit, H {b.heads}, T {b.examples}: {b.share:.3f} and {b.unsaturated:.3f}" for b in self.found.built]
        return f"{self.title}. {'; '.join([*each, *built])}."

    def facts(self) -> dict[str, Any]:
        """Shares of every layer, with Student's intervals over seeds."""
        return {"layers": [_case(x) for x in self.found.cases]}

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it: a row for every layer and bin."""
        out = []
        for x in self.found.cases:
            for k, count in enumerate(x.histogram):
                out.append({"layer": "trained", **_case(x), **_bin(k, len(x.histogram), count)})
            for heads, count in enumerate(x.saturated):
                out.append({"layer": "trained", **_case(x), "saturated_heads": heads, "examples_with_it": count})
        for b in self.found.built:
            about = {"heads": b.heads, "examples": b.examples, "saturated": b.share, "unsaturated_examples": b.unsaturated}
            out += [{"layer": "explicit", **about, **_bin(k, len(b.histogram), n)} for k, n in enumerate(b.histogram)]
        return _even(out)

    def printed(self) -> tuple[str, list[str], list[list[Any]]]:
        """Every layer's shares."""
        columns = ["layer", "heads", "T", "accuracy", "loss", "saturated", "examples with an unsaturated head"]
        lines: list[list[Any]] = []
        for x in self.found.cases:
            told = [_mean(x.accuracies), _mean(x.losses), _interval(x.shares), _interval(x.unsaturated)]
            lines.append([f"{len(x.shares)} trained", x.case.heads, x.case.examples, *told])
        for b in self.found.built:
            lines.append(["explicit", b.heads, b.examples, "1.000", "-", f"{b.share:.3f}", f"{b.unsaturated:.3f}"])
        return self.title.lower(), columns, lines


def _mean(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f}" if values else "-"


def _interval(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean, low, high = student(list(values))
    return f"{mean:.3f}" if low is None or high is None else f"{mean:.3f} [{max(0.0, low):.3f}, {min(1.0, high):.3f}]"


def _case(x: Looked) -> dict[str, Any]:
    out: dict[str, Any] = {"heads": x.case.heads, "examples": x.case.examples, "seeds": len(x.shares)}
    for name, values in (
        ("accuracy", x.accuracies),
        ("loss", x.losses),
        ("saturated", x.shares),
        ("unsaturated_examples", x.unsaturated),
    ):
        mean, low, high = student(list(values)) if values else (None, None, None)
        out |= {name: mean, f"{name}_low": low, f"{name}_high": high}
    return out


def _bin(k: int, bins: int, count: int) -> dict[str, Any]:
    return {"from": k / bins, "to": (k + 1) / bins, "pairs": count}


def _even(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All columns in all rows."""
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]


def heads_info(found: Heads) -> Saturation:
    """The layers as they were measured."""
    return Saturation(found.figure.title, found)


def draw_heads(info: Saturation, axes: list[Axes]) -> None:
    """Largest weights of the first examples head by head; how many heads an example saturates; all largest weights."""
    for x, ax in zip(info.found.cases, axes, strict=False):
        if x.first:
            ax.imshow(np.array(x.first).T, aspect="auto", vmin=0, vmax=1, cmap="viridis", interpolation="nearest")
        ax.set_title(f"H {x.case.heads}, T {x.case.examples}: largest weights", fontsize=8)
        ax.set_xlabel("example")
        ax.set_ylabel("head")
    counts, histogram = axes[-2], axes[-1]
    for k, x in enumerate(info.found.cases):
        style: dict[str, Any] = {"color": COLOURS[k], "marker": MARKERS[k], "markersize": 3, "linewidth": 1}
        label = f"H {x.case.heads}"
        if sum(x.saturated):
            counts.plot(range(len(x.saturated)), np.array(x.saturated) / sum(x.saturated), label=label, **style)
        if sum(x.histogram):
            middles = (np.arange(len(x.histogram)) + 0.5) / len(x.histogram)
            histogram.plot(middles, np.array(x.histogram) / sum(x.histogram), label=label, **style)
    for k, b in enumerate(info.found.built):
        middles = (np.arange(len(b.histogram)) + 0.5) / len(b.histogram)
        shares = np.array(b.histogram) / sum(b.histogram)
        histogram.plot(middles, shares, color=COLOURS[k], linestyle=":", linewidth=1.2, label=f"H {b.heads}, explicit")
    counts.set_xlabel("saturated heads of an example")
    counts.set_ylabel("share of examples")
    histogram.set_xlabel("largest weight")
    histogram.set_ylabel("share of heads and examples")
    for ax in (counts, histogram):
        ax.legend(fontsize=6, frameon=False)


# ---------------------------------------------------------------------------------------------------------- ranks


@dataclass(frozen=True)
class Independence(Data):
    """How often sets of queries are independent, by their size."""

    title: str
    found: tuple[Found1, ...]

    @property
    def kinds(self) -> dict[str, list[Found1]]:
        """By kind of data."""
        return {kind: [x for x in self.found if x.data == kind] for kind in dict.fromkeys(x.data for x in self.found)}

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        return f"{self.title}. {'; '.join(f'{kind}: {_ranks(mine)}' for kind, mine in self.kinds.items())}."

    def facts(self) -> dict[str, Any]:
        """Ranks by kind of data, the mean over random layers."""
        names = ("usual", "low", "high", "sampled", "rank", "full")
        each = {
            kind: {"context": mine[0].context, "d_model": mine[0].d_model}
            | {name: float(np.mean([getattr(x, name) for x in mine])) for name in names}
            for kind, mine in self.kinds.items()
        }
        return {"data": each}

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it."""
        names = ("data", "seed", "context", "d_model", "examples", "usual", "low", "high", "sampled", "rank", "full")
        return [
            {name: getattr(x, name) for name in names} | {"size": r, "independent": share}
            for x in self.found
            for r, share in x.fractions
        ]

    def printed(self) -> tuple[str, list[str], list[list[Any]]]:
        """Ranks by kind of data."""
        columns = [
            "data",
            "n",
            "d",
            "Kruskal rank, as the paper counts",
            "certain bracket",
            "all queries",
            "contexts of rank n",
        ]
        lines: list[list[Any]] = []
        for kind, mine in self.kinds.items():
            low, high = min(x.low for x in mine), max(x.high for x in mine)
            usual = [x.usual for x in mine]
            told = [f"{min(usual)} to {max(usual)}", f"{low} to {high}", _mean([float(x.rank) for x in mine])]
            lines.append([kind, mine[0].context, mine[0].d_model, *told, _mean([x.full for x in mine])])
        return self.title.lower(), columns, lines


def _ranks(mine: list[Found1]) -> str:
    usual = [x.usual for x in mine]
    x = mine[0]
    return f"every set of up to {min(usual)} to {max(usual)} queries drawn is independent; n {x.context}, d {x.d_model}"


def ranks_info(found: Ranks) -> Independence:
    """As it was computed."""
    return Independence(found.figure.title, found.found)


def draw_ranks(info: Independence, axes: list[Axes]) -> None:
    """The share of independent sets against their size, a line for every random layer; n and d marked."""
    for ax, (kind, mine) in zip(axes, info.kinds.items(), strict=True):
        for x in mine:
            size, share = zip(*x.fractions, strict=True)
            ax.plot(size, share, color=COLOURS[0], marker=MARKERS[0], markersize=3, linewidth=0.8)
        ax.axvline(mine[0].context, color=COLOURS[1], label=f"n = {mine[0].context}", **THEORY)
        ax.axvline(mine[0].d_model, color=COLOURS[2], label=f"d = {mine[0].d_model}", **THEORY)
        ax.set_title(kind, fontsize=8)
        ax.set_ylim(-0.03, 1.05)
        ax.set_xlabel("queries in a set")
        ax.legend(fontsize=6, frameon=False)
    axes[0].set_ylabel("share of sets that are independent")


_LINES = Drawing(lines_info, draw_lines, size=lambda info: (6.8, 2.6), panels=lambda info: len(info.lines))
_HEADS = Drawing(heads_info, draw_heads, size=lambda info: (6.8, 2.4), panels=lambda info: len(info.found.cases) + 2)
DRAWINGS = {
    "fig1": Drawing(ranks_info, draw_ranks, size=lambda info: (6.8, 2.8), panels=lambda info: len(info.kinds)),
    "fig2": _LINES,
    "fig3": _HEADS,
    "fig4": _LINES,
    "fig5": _LINES,
    "pairs": Drawing(pairs_info, draw_pairs),
    "parity": _HEADS,
}
