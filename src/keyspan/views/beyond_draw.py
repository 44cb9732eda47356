"""The figures beyond Adler's drawn: every function here takes a figure's data and axes, and computes nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from keyspan.views import beyond
from keyspan.views.drawings import Drawing
from keyspan.views.figures import COLOURS, MARKERS, THEORY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALL: dict[str, Any] = {"fontsize": 6.5, "frameon": False, "loc": "center left", "bbox_to_anchor": (1.01, 0.5)}


def _kind(label: str) -> str:
    """The family of a graph without its number of edges: `2-regular` and `4-regular` are of one."""
    return re.sub(r"^\d+-| x\d+$", "", label)


def draw_graphs(info: beyond.GraphScatter, axes: list[Axes]) -> None:
    """graphs: D_K* against the law; a colour for every family, a larger marker for more edges."""
    (ax,) = axes
    kinds = list(dict.fromkeys(_kind(label) for label in info.labels))
    drawn: list[float] = []
    for k, label in enumerate(info.labels):
        lines = info.of(label)
        if not lines:
            continue
        kind = kinds.index(_kind(label))
        apart = 1.025 ** (kind - (len(kinds) - 1) / 2)  # families with as many edges are drawn side by side
        x = [line.cell.law * apart for line in lines]
        y = [float(line.cell.key_budget or 0) for line in lines]
        low = [here - (line.cell.low or here) for here, line in zip(y, lines, strict=True)]
        high = [(line.cell.high or here) - here for here, line in zip(y, lines, strict=True)]
        style: dict[str, Any] = {"color": COLOURS[kind % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)], "markersize": 4}
        ax.errorbar(x, y, yerr=[low, high], linestyle="none", capsize=2, elinewidth=0.7, label=label, **style)
        drawn += x
    if drawn:
        ends = [min(drawn) / 1.3, max(drawn) * 1.3]
        ax.plot(ends, ends, color="grey", **THEORY, label="law, constant 1")
        if info.fits:
            c = info.fits["law"].parameters["c"].estimate
            ax.plot(ends, [c * e for e in ends], color="black", linewidth=1, label="fitted")
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.set_xlabel(r"law $m'\,\ln m' / d$")
    ax.set_ylabel(r"measured $D_K^*$")
    ax.text(0.02, 0.98, "\n".join(info.summary), transform=ax.transAxes, va="top", fontsize=6.5)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(**SMALL)


def draw_ratios(info: beyond.Ratios, axes: list[Axes]) -> None:
    """A row for every label: D_K* over the base's, with its interval, a marker for every size."""
    (ax,) = axes
    for k, size in enumerate(info.sizes):
        shift = 0.14 * (k - (len(info.sizes) - 1) / 2)
        known = [(y, s) for y, label in enumerate(info.labels) if (s := info.scaled(label, size)) is not None]
        style: dict[str, Any] = {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)]}
        ax.errorbar(
            [s[0] for _, s in known],
            [y + shift for y, _ in known],
            xerr=[[s[0] - s[1] for _, s in known], [s[2] - s[0] for _, s in known]],
            linestyle="none",
            markersize=4,
            capsize=2,
            elinewidth=0.7,
            label=f"m {size[0]}, d {size[1]}",
            **style,
        )
        for y, label in enumerate(info.labels):
            line = info.at(label, size)
            if line is not None and info.scaled(label, size) is None:
                ax.annotate("not reached", (1.0, y + shift), fontsize=6, color=style["color"], va="center")
    ax.axvline(1, color="black", linewidth=0.8)
    ax.set_yticks(range(len(info.labels)), list(info.labels))
    ax.set_ylim(len(info.labels) - 0.5, -0.5)
    ax.set_xlabel(rf"$D_K^*$ over that of {info.base}")
    ax.set_xlim(left=0)
    ax.legend(**SMALL)


def tall(info: beyond.Ratios) -> tuple[float, float]:
    """As high as there are labels."""
    return 6.2, 0.9 + 0.26 * len(info.labels)


def draw_forgetting(info: beyond.Forgetting, axes: list[Axes]) -> None:
    """continual: for every size F1 on all pairs against D_K, and beside it what was forgotten."""
    for k, size in enumerate(info.sizes):
        for ax, name, label in ((axes[2 * k], "f1", "F1 on all pairs"), (axes[2 * k + 1], "forgotten", "forgotten, of F1")):
            for n, curve in enumerate(info.of(size)):
                line = info.line(curve, name)
                style: dict[str, Any] = {"color": COLOURS[n % len(COLOURS)], "marker": MARKERS[n % len(MARKERS)]}
                x, y = [p[0] for p in line], [p[1] for p in line]
                spread = [[p[1] - p[2] for p in line], [p[3] - p[1] for p in line]]
                ax.errorbar(
                    x, y, yerr=spread, markersize=3.5, linewidth=1, capsize=2, elinewidth=0.7, label=curve.label, **style
                )
            ax.set_ylim(-0.05, 1.05)
            ax.set_xlabel(r"key budget $D_K$")
            ax.set_ylabel(label)
            ax.set_title(f"m = {size[0]}, d = {size[1]}", fontsize=8)
    axes[-1].legend(*axes[0].get_legend_handles_labels(), **SMALL)


DRAWINGS: dict[str, Drawing] = {
    "graphs": Drawing(beyond.graphs_info, draw_graphs, lambda info: (6.8, 4.2)),
    "embeddings": Drawing(beyond.embeddings_info, draw_ratios, tall),
    "contexts": Drawing(beyond.contexts_info, draw_ratios, tall),
    "typed": Drawing(beyond.typed_info, draw_ratios, tall),
    "continual": Drawing(
        beyond.continual_info,
        draw_forgetting,
        lambda info: (1.4 + 4.0 * len(info.sizes), 2.7),
        lambda info: 2 * len(info.sizes),
    ),
}
