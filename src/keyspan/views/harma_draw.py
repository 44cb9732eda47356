"""Haermae et al.'s figures drawn: every function here takes a figure's data and axes, and computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from keyspan.evidence.sequence_cells import SequenceCell
from keyspan.views.drawings import Drawing
from keyspan.views.figures import COLOURS, MARKERS
from keyspan.views.harma import ALLEN_ZHU, MORRIS, Bits, Laws, Points, Residuals, Tents

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLES = ("-", "--", ":", "-.")
BESIDE: dict[str, Any] = {"fontsize": 6.5, "frameon": False, "loc": "center left", "bbox_to_anchor": (1.01, 0.5)}


def _bars(cells: Sequence[SequenceCell]) -> list[list[float]]:
    held = [float(c.capacity or 0.0) for c in cells]
    low = [max(0.0, v - (c.low if c.low is not None else v)) for c, v in zip(cells, held, strict=True)]
    high = [max(0.0, (c.high if c.high is not None else v) - v) for c, v in zip(cells, held, strict=True)]
    return [low, high]


def _points(ax: Axes, cells: Sequence[SequenceCell], x: Sequence[float], k: int, label: str, line: str = "") -> None:
    held = [float(c.capacity or 0.0) for c in cells]
    style: dict[str, Any] = {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)], "markersize": 3.5}
    ax.errorbar(x, held, yerr=_bars(cells), linestyle=line, linewidth=1, capsize=2, elinewidth=0.7, label=label, **style)


def draw_capacity(info: Laws, axes: list[Axes]) -> None:
    """C against B: a panel for each regime, a colour for each H, a marker's place for each N; the laws over the points."""
    for ax, regime in zip(axes, info.series, strict=True):
        cells = [p.cell for p in info.points if p.ask.series == regime]
        heads = sorted({c.heads for c in cells})
        for k, h in enumerate(heads):
            mine = [c for c in cells if c.heads == h and c.capacity]
            apart = 1 + 0.03 * (k - (len(heads) - 1) / 2)
            _points(ax, mine, [c.d_model * apart for c in mine], k, f"H {h}")
        fit = info.fits.get(regime)
        if fit is not None:
            _laws(ax, info, regime, heads)
        ax.set(xscale="log", yscale="log", xlabel="B", ylabel="sequences recited", title=regime)
    axes[-1].legend(**BESIDE)


def _laws(ax: Axes, info: Laws, regime: str, heads: Sequence[int]) -> None:
    """The published law and the best one, at the largest number of heads, for every length."""
    fit = info.fits[regime]
    widths = sorted({c.d_model for c in fit.used})
    along = [widths[0] * (widths[-1] / widths[0]) ** (i / 24) for i in range(25)] if len(widths) > 1 else [float(widths[0])]
    laws = list(dict.fromkeys(["ecm-max", fit.best.model]))
    for length in sorted({c.length for c in fit.used}):
        for law, style in zip(laws, STYLES, strict=False):
            held = info.curve(regime, law, heads[-1], length, along)
            first = length == min(c.length for c in fit.used)
            ax.plot(along, held, style, color="black", linewidth=0.8, label=f"{law}, H {heads[-1]}" if first else None)


def draw_lines(info: Points, axes: list[Axes]) -> None:
    """Capacity against the axis, a line for each series."""
    (ax,) = axes
    for k, name in enumerate(info.series):
        points = info.found.series(name)
        _points(ax, [p.cell for p in points], [p.ask.x for p in points], k, name, "-")
    ax.set(xlabel=info.found.sweep.axis, ylabel="sequences recited", ylim=(0, None))
    if all(p.ask.x > 0 for p in info.points):
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.legend(**BESIDE)


def draw_names(info: Points, axes: list[Axes]) -> None:
    """Capacity of named variants, one below the other."""
    (ax,) = axes
    names = info.series
    cells = [info.found.series(name)[0].cell for name in names]
    held = [float(c.capacity or 0.0) for c in cells]
    ax.errorbar(held, range(len(names)), xerr=_bars(cells), linestyle="", marker="o", markersize=4, capsize=2, color=COLOURS[0])
    ax.set_yticks(range(len(names)), names)
    ax.set(xlabel="sequences recited", xlim=(0, None))
    ax.invert_yaxis()


def draw_frozen(info: Points, axes: list[Axes]) -> None:
    """Capacity by heads, lengths apart: a line for what becomes of the feed-forward."""
    (ax,) = axes
    cells = sorted({(p.cell.length, p.cell.d_model, p.cell.heads) for p in info.points})
    for k, name in enumerate(info.series):
        points = {(p.cell.length, p.cell.d_model, p.cell.heads): p.cell for p in info.found.series(name)}
        mine = [points[c] for c in cells if c in points]
        _points(ax, mine, [cells.index((c.length, c.d_model, c.heads)) for c in mine], k, name)
    ax.set_xticks(range(len(cells)), [f"N {n}\nB {b}\nH {h}" for n, b, h in cells])
    ax.set(ylabel="sequences recited", ylim=(0, None))
    ax.legend(**BESIDE)


def draw_tent(info: Tents, axes: list[Axes]) -> None:
    """Recited over the peak against the library over the peak: a tent for every cell, with the ride and the literal count."""
    (ax,) = axes
    tops = [p for p in info.points if p.ask.measure == "ladder" and p.cell.capacity]
    for k, top in enumerate(tops):
        peak = float(top.cell.capacity or 1.0)
        same = [p for p in info.points if (p.ask.decoder, p.ask.problem) == (top.ask.decoder, top.ask.problem)]
        colour = COLOURS[k % len(COLOURS)]
        known = {rung.library: rung.mean for p in same if p.ask.measure != "ride" for rung in p.rungs}
        x = sorted(known)
        label = f"H {top.cell.heads}, N {top.cell.length}, B {top.cell.d_model}"
        ax.plot([n / peak for n in x], [known[n] / peak for n in x], color=colour, linewidth=1, marker=".", label=label)
        for p in same:
            if p.ask.measure == "ride" and p.cell.capacity:
                ax.plot([1.0], [p.cell.capacity / peak], marker="*", color=colour, markersize=7, linestyle="")
    ax.plot([0, 1.2], [0, 1.2], color="grey", linewidth=0.8, linestyle="--", label="all of the library")
    ax.set(xlabel="library / peak", ylabel="recited / peak (stars: ride)", ylim=(0, 1.25))
    ax.legend(**BESIDE)


def draw_residuals(info: Residuals, axes: list[Axes]) -> None:
    """Residuals against B, a panel for each regime, a colour for each law drawn."""
    for ax, regime in zip(axes, info.series, strict=True):
        if regime in info.fits:
            for k, law in enumerate(info.shown):
                pairs = info.residuals(regime, law)
                apart = 1 + 0.05 * (k - (len(info.shown) - 1) / 2)
                style: dict[str, Any] = {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)]}
                ax.plot(
                    [c.d_model * apart for c, _ in pairs], [r for _, r in pairs], linestyle="", markersize=3, label=law, **style
                )
        ax.axhline(0, color="grey", linewidth=0.8)
        ax.set(xscale="log", xlabel="B", ylabel="measured / predicted - 1", title=regime, ylim=(-1.05, 1.55))
    axes[0].legend(**BESIDE)


def draw_bits(info: Bits, axes: list[Axes]) -> None:
    """Bits per parameter against parameters, stored and recited, a panel for each regime."""
    for ax, regime in zip(axes, info.series, strict=True):
        cells = [p.cell for p in info.found.series(regime) if p.cell.parameters]
        for k, name in enumerate(("stored", "recited")):
            pairs = [(c.parameters, v) for c in cells if (v := getattr(c, f"{name}_per_parameter")) is not None]
            style: dict[str, Any] = {"color": COLOURS[k], "marker": MARKERS[k], "markersize": 3}
            ax.plot([x for x, _ in pairs], [y for _, y in pairs], linestyle="", label=name, **style)
        for value, who, style_of in ((MORRIS, "Morris et al.", "--"), (ALLEN_ZHU, "Allen-Zhu and Li", ":")):
            ax.axhline(value, color="grey", linewidth=0.8, linestyle=style_of, label=who)
        ax.set(xscale="log", xlabel="parameters", ylabel="bits per parameter", title=regime, ylim=(0, 4))
    axes[-1].legend(**BESIDE)


def _two(info: Points) -> int:
    return len(info.series)


WIDE = (6.8, 3.2)
LINES = Drawing(Points, draw_lines)
NAMES = Drawing(Points, draw_names, size=lambda info: (6.8, 1.2 + 0.25 * len(info.points)))
DRAWINGS = {
    "capacity": Drawing(Laws, draw_capacity, size=lambda info: WIDE, panels=_two),
    "tent": Drawing(Tents, draw_tent),
    "batch": LINES,
    "frozen": Drawing(Points, draw_frozen),
    "layers": LINES,
    "residuals": Drawing(Residuals, draw_residuals, size=lambda info: WIDE, panels=_two),
    "per-parameter": Drawing(Bits, draw_bits, size=lambda info: WIDE, panels=_two),
    "vocabulary": LINES,
    "activations": NAMES,
    "optimizers": NAMES,
    "sources": NAMES,
    "attention": NAMES,
    "skewed": Drawing(Laws, draw_capacity, size=lambda info: WIDE, panels=_two),
}
