"""Adler's figures drawn: every function here takes a figure's data and axes, and computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keyspan.evidence.cells import Cell
from keyspan.views import adler, beyond_draw, stages
from keyspan.views.drawings import Drawing
from keyspan.views.figures import COLOURS, MARKERS, THEORY, draw_threshold_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RIGHT: Mapping[str, Any] = {"fontsize": 7, "frameon": False, "loc": "center left", "bbox_to_anchor": (1.01, 0.5)}


def _shades(count: int) -> list[Any]:
    """Colours of an order: dark to light, told apart by colour-blind readers too."""
    from matplotlib import colormaps

    return [colormaps["viridis"](0.82 * k / max(count - 1, 1)) for k in range(count)]


def _errors(cells: Sequence[Cell]) -> list[list[float]]:
    """D_K*'s interval as error bars; an open end has none."""
    below = [float((c.key_budget or 0) - (c.low or c.key_budget or 0)) for c in cells]
    above = [float((c.high or c.key_budget or 0) - (c.key_budget or 0)) for c in cells]
    return [below, above]


def _powers(axis: Any, values: Sequence[int], rotate: bool = False) -> None:
    """An axis in powers of two, with plain numbers."""
    from matplotlib.ticker import FixedLocator, NullLocator

    axis.set_major_locator(FixedLocator(sorted(set(values))))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    if rotate:
        axis.set_tick_params(labelrotation=60)


def _legend(axes: Axes) -> None:
    """What is drawn, to the right of it; nothing where there is nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(handles, labels, **RIGHT)


def draw_curves(info: adler.CurvePanels | stages.StageCurves, axes: list[Axes]) -> None:
    """fig1: a panel for every cell, one legend of all lines: first those of theory, then by their number of heads."""
    entries: dict[str, Any] = {}
    for k, (panel, ax) in enumerate(zip(info.panels, axes, strict=True)):
        draw_threshold_curves(panel, ax)
        entries |= {label: handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        legend = ax.get_legend()
        if legend is not None:
            legend.remove()
        if k:
            ax.set_ylabel("")
        first = info.first(k)
        if first is not None:
            ax.axvline(first, color="grey", linewidth=0.8, zorder=0)
            ax.annotate(f"{first}", (first, -0.02), xytext=(-2, 0), textcoords="offset points", ha="right", fontsize=7)
    heads = {label: int(label.split()[0]) if label.split()[0].isdigit() else 0 for label in entries}
    labels = sorted(entries, key=lambda label: heads[label])
    axes[-1].legend([entries[label] for label in labels], labels, **RIGHT)


def draw_head_counts(info: adler.HeadCounts, axes: list[Axes]) -> None:
    """fig2: heads against m, a line for every d; and against d, a line for every m."""
    for ax, along, line, label in (
        (axes[0], "items", "d_model", "d"),
        (axes[1], "d_model", "items", "m"),
    ):
        groups = sorted({getattr(c, line) for c in info.cells})
        for k, (value, colour) in enumerate(zip(groups, _shades(len(groups)), strict=True)):
            cells = sorted((c for c in info.cells if getattr(c, line) == value), key=lambda c: int(getattr(c, along)))
            apart = 2 ** (0.05 * (k - (len(groups) - 1) / 2))  # lines that coincide are drawn side by side
            x = [getattr(c, along) * apart for c in cells]
            heads = [float(c.heads or 0) for c in cells]
            low = [h - (c.heads_low or h) for h, c in zip(heads, cells, strict=True)]
            high = [(c.heads_high or h) - h for h, c in zip(heads, cells, strict=True)]
            ax.errorbar(
                x,
                heads,
                yerr=[low, high],
                color=colour,
                marker=MARKERS[k % len(MARKERS)],
                markersize=4,
                linewidth=1,
                capsize=2,
                elinewidth=0.7,
                label=f"{label} = {value}",
            )
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
        _powers(ax.xaxis, [getattr(c, along) for c in info.cells], rotate=True)
        most = max((c.heads_high or 1 for c in info.cells), default=1)
        _powers(ax.yaxis, [1 << k for k in range(most.bit_length())])
        ax.set_ylim(0.85, 1.2 * most)
        ax.set_xlabel("items m" if along == "items" else "width d")
        _legend(ax)
    axes[0].set_ylabel(r"heads that attain $D_K^*$ (bar: within its interval)")


def draw_law_scatter(info: adler.LawScatter, axes: list[Axes]) -> None:
    """fig3: D_K* against the law, the fitted line, the interval of its slope."""
    (ax,) = axes
    items = sorted({c.items for c in info.cells})
    for k, (m, colour) in enumerate(zip(items, _shades(len(items)), strict=True)):
        cells = [c for c in info.cells if c.items == m]
        ax.errorbar(
            [c.law for c in cells],
            [float(c.key_budget or 0) for c in cells],
            yerr=_errors(cells),
            color=colour,
            marker=MARKERS[k % len(MARKERS)],
            markersize=5,
            linestyle="none",
            capsize=2,
            elinewidth=0.8,
            label=f"m = {m}",
        )
    if info.cells:
        ends = [0.8 * min(c.law for c in info.cells), 1.25 * max(c.law for c in info.cells)]
        ax.plot(ends, ends, color="grey", **THEORY, label="the law, slope 1")
        if info.fit is not None:
            c = info.fit.fit.parameters["c"]
            ax.plot(ends, [c.estimate * e for e in ends], color="black", linewidth=1, label="fitted")
            if c.low is not None and c.high is not None:
                low, high = c.low, c.high
                ax.fill_between(ends, [low * e for e in ends], [high * e for e in ends], color="grey", alpha=0.2, linewidth=0)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
        _powers(ax.xaxis, [1 << k for k in range(1, 12) if ends[0] <= 1 << k <= ends[1]])
        top = max(c.high or c.key_budget or 1 for c in info.cells)
        low_end = min(c.low or c.key_budget or 1 for c in info.cells)
        _powers(ax.yaxis, [1 << k for k in range(14) if low_end / 2 <= 1 << k <= 2 * top])
    ax.set_xlabel(r"law $m\,\ln m / d$")
    ax.set_ylabel(r"measured $D_K^*$")
    ax.text(0.02, 0.98, "\n".join(info.summary), transform=ax.transAxes, va="top", fontsize=7)
    _legend(ax)


def draw_diagonal(info: adler.Diagonal, axes: list[Axes]) -> None:
    """fig4: D_K* as a line, the heads that reach it as bars."""
    (ax,) = axes
    bars = ax.twinx()
    place = list(range(len(info.cells)))
    there = [(x, c) for x, c in zip(place, info.cells, strict=True) if c.key_budget is not None]
    bars.bar([x for x, _ in there], [c.heads or 0 for _, c in there], width=0.5, color=COLOURS[5], alpha=0.5, label="heads")
    for x, c in there:
        bars.annotate(f"{c.heads}", (x, 0), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=7)
    cells = [c for _, c in there]
    ax.errorbar(
        [x for x, _ in there],
        [float(c.key_budget or 0) for c in cells],
        yerr=_errors(cells),
        color=COLOURS[0],
        marker="o",
        markersize=5,
        capsize=2,
        label=r"$D_K^*$",
    )
    ax.plot(place, [c.law for c in info.cells], color="black", **THEORY, label=r"law $m\,\ln m/d$")
    for x, c in zip(place, info.cells, strict=True):
        if c.key_budget is None:
            ax.annotate("not reached", (x, c.law), xytext=(0, 4), textcoords="offset points", ha="center", fontsize=7)
    ax.set_zorder(bars.get_zorder() + 1)
    ax.patch.set_visible(False)
    bars.spines["right"].set_visible(True)
    bars.set_ylabel(r"heads at $D_K^*$")
    bars.set_ylim(0, 1.6 * max([1, *(c.heads or 0 for c in info.cells)]))
    bars.yaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    ax.set_xticks(place, [f"{c.items}\n({c.d_model})" for c in info.cells])
    ax.set_xlim(-0.6, len(place) - 0.4)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("items m, below it the width d = m/8")
    ax.set_ylabel(r"key budget $D_K$")
    first, second = ax.get_legend_handles_labels(), bars.get_legend_handles_labels()
    above: Mapping[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1.0), "ncols": 3}
    ax.legend(first[0] + second[0], first[1] + second[1], fontsize=7, frameon=False, **above)


def draw_cell_table(info: adler.CellTable, axes: list[Axes]) -> None:
    """fig5: rows m, columns d; the colour is D_K* over the law."""
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    (ax,) = axes
    ratios = [c.ratio for c in info.cells if c.ratio is not None]
    low, high = min(ratios, default=0.0), max(ratios, default=1.0)
    for y, m in enumerate(info.items):
        for x, d in enumerate(info.widths):
            cell, lines = info.at(m, d), info.text(m, d)
            ratio = cell.ratio if cell else None
            share = 0.5 if high == low or ratio is None else (ratio - low) / (high - low)
            face = "white" if cell is None else "gainsboro" if ratio is None else colormaps["YlGnBu"](0.05 + 0.45 * share)
            ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=face, edgecolor="white", linewidth=1.5))
            ax.text(x, y, lines[0] + "\n" * (len(lines) > 1) + "\n".join(lines[1:]), ha="center", va="center", fontsize=6.5)
    ax.set_xlim(-0.5, len(info.widths) - 0.5)
    ax.set_ylim(len(info.items) - 0.5, -0.5)
    ax.set_xticks(range(len(info.widths)), [str(d) for d in info.widths])
    ax.set_yticks(range(len(info.items)), [str(m) for m in info.items])
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    ax.set_xlabel(
        "width d" + ("      ·  left out of this tier" if any("·" in info.text(m, d) for m, d in _pairs(info)) else "")
    )
    ax.set_ylabel("items m")
    scale = f"\n(darker: more times the law, {low:.2f} to {high:.2f})" if ratios else ""
    ax.set_title(r"$D_K^*$, its 95% range, the heads that attain it" + scale, fontsize=8)


def _pairs(info: adler.CellTable) -> list[tuple[int, int]]:
    return [(m, d) for m in info.items for d in info.widths]


def draw_head_map(info: adler.HeadMap, axes: list[Axes]) -> None:
    """map: which cells several heads win, the lines m = d and P(m, 1) = d^2."""
    (ax,) = axes
    kinds: tuple[tuple[str, Callable[[Cell], bool], dict[str, Any]], ...] = (
        ("several heads win", lambda c: bool(c.several_beat_one) and c.clear, {"marker": "o", "color": COLOURS[1]}),
        (
            "several win, within the intervals",
            lambda c: bool(c.several_beat_one) and not c.clear,
            {"marker": "o", "facecolor": "white", "edgecolor": COLOURS[1]},
        ),
        ("one head is as good", lambda c: c.several_beat_one is False, {"marker": "s", "color": COLOURS[0]}),
        ("not reached", lambda c: c.several_beat_one is None, {"marker": "x", "color": "grey"}),
    )
    for label, belongs, style in kinds:
        cells = [c for c in info.cells if belongs(c)]
        if cells:
            ax.scatter([c.items for c in cells], [c.d_model for c in cells], s=34, label=label, zorder=3, **style)
    for c in info.cells:
        if c.heads is not None:
            ax.annotate(f"{c.heads}", (c.items, c.d_model), xytext=(5, 4), textcoords="offset points", fontsize=6.5)
    ends = [info.line[0][0], info.line[-1][0]]
    ax.plot(*zip(*info.line, strict=True), color="black", **THEORY, label=r"$P(m, 1) = d^2$ (predicted)")
    ax.plot(ends, ends, color="grey", **THEORY, label=r"$m = d$")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xlim(*ends)
    widths = [c.d_model for c in info.cells]
    ax.set_ylim(min(widths) / 1.5, max(widths) * 1.5)
    _powers(ax.xaxis, [c.items for c in info.cells], rotate=True)
    _powers(ax.yaxis, widths)
    ax.set_xlabel("items m")
    ax.set_ylabel("width d")
    n = info.counts
    ax.set_title(
        f"Several heads beat one in {n['several_beat_one']} of {n['cells']} cells (number: heads at $D_K^*$)", fontsize=8
    )
    _legend(ax)


def draw_target_costs(info: adler.TargetCosts, axes: list[Axes]) -> None:
    """targets: D_K at every target over D_K for exact recovery, cell by cell."""
    (ax,) = axes
    place = range(len(info.sizes))
    for k, target in enumerate(info.targets[:-1]):
        points = [(x + 0.12 * (k - 1), info.ratio(size, target)) for x, size in zip(place, info.sizes, strict=True)]
        known = [(x, r) for x, r in points if r is not None]
        middle = info.median_ratio(target)
        said = "" if middle is None else f", median {middle:.2f}"
        style: Mapping[str, Any] = {"marker": MARKERS[k], "color": COLOURS[k], "linestyle": "none", "markersize": 5}
        ax.plot([x for x, _ in known], [r for _, r in known], label=f"F1 {target:g}{said}", **style)
    ax.axhline(1, color="black", linewidth=0.8, label="exact in all seeds")
    ax.set_xticks(list(place), [f"{m}\n{d}" for m, d in info.sizes])
    ax.set_xlim(-0.6, len(info.sizes) - 0.4)
    most_ratio = max((info.ratio(size, t) or 1.0 for size in info.sizes for t in info.targets), default=1.0)
    ax.set_ylim(0, 1.08 * max(1.0, most_ratio))
    ax.set_xlabel("items m, below it the width d")
    ax.set_ylabel(r"$D_K$ at the target / $D_K$ when exact")
    _legend(ax)


# ------------------------------------------------------------------------------------------------------ all of them


DRAWINGS: dict[str, Drawing] = {
    "fig1": Drawing(
        adler.curve_panels_info,
        draw_curves,
        lambda info: (1.6 + 2.9 * max(1, len(info.panels)), 2.9),
        lambda info: max(1, len(info.panels)),
    ),
    "fig2": Drawing(adler.head_counts_info, draw_head_counts, lambda info: (8.2, 3.2), lambda info: 2),
    "fig3": Drawing(adler.law_scatter_info, draw_law_scatter),
    "fig4": Drawing(adler.diagonal_info, draw_diagonal, lambda info: (5.2, 3.2)),
    "fig5": Drawing(
        adler.cell_table_info,
        draw_cell_table,
        lambda info: (max(5.2, 1.0 + 0.78 * len(info.widths)), 0.9 + 0.56 * len(info.items)),
    ),
    "map": Drawing(adler.head_map_info, draw_head_map, lambda info: (6.8, 3.8)),
    "targets": Drawing(adler.target_costs_info, draw_target_costs, lambda info: (max(5.2, 2.4 + 0.55 * len(info.sizes)), 3.0)),
    **beyond_draw.DRAWINGS,
    **{
        name: Drawing(
            stages.stage_info,
            draw_curves,
            lambda info: (1.6 + 2.9 * max(1, len(info.panels)), 2.9),
            lambda info: max(1, len(info.panels)),
        )
        for name in ("softmax", "values", "block")
    },
}
