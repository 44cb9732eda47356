"""An audit's figures drawn: every function here takes a figure's data and axes, and computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keyspan.views import audit
from keyspan.views.figures import COLOURS, save_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHADES = {"symmetry": "RdBu_r", "smallest_angle": "viridis_r"}


def draw_map(info: audit.HeadLayerMap, axes: list[Axes]) -> None:
    """Layers down, heads across; what is marked has a frame."""
    from matplotlib.patches import Rectangle

    (ax,) = axes
    width = max(map(len, info.values))
    table = [[*row, *[float("nan")] * (width - len(row))] for row in info.values]
    edges = [n - 0.5 for n in range(width + 1)], [n - 0.5 for n in range(len(table) + 1)]
    shown = ax.pcolormesh(*edges, table, cmap=SHADES.get(info.field, "viridis"), vmin=info.low, vmax=info.high)
    ax.invert_yaxis()
    places = {layer: row for row, layer in enumerate(info.layers)}
    for layer, head in info.marked:
        ax.add_patch(Rectangle((head - 0.5, places[layer] - 0.5), 1, 1, fill=False, edgecolor=COLOURS[1], linewidth=1.5))
    step = max(1, -(-len(info.layers) // 16))
    ax.set_yticks(range(0, len(info.layers), step), [str(layer) for layer in info.layers[::step]])
    ax.xaxis.set_major_locator(_whole())
    ax.set_xlabel("query head" + (" (framed: above chance)" if info.marked else ""))
    ax.set_ylabel("layer")
    ax.set_title(info.title, fontsize=9)
    bar = ax.figure.colorbar(shown, ax=ax, fraction=0.05, pad=0.02)
    bar.set_label(info.label, fontsize=7)


def _whole() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(integer=True)


def draw_spectra(info: audit.Spectra, axes: list[Axes]) -> None:
    """A line for every layer, from dark to light, with its ends over heads."""
    from matplotlib import colormaps

    (ax,) = axes
    for k, one in enumerate(info.layers):
        colour = colormaps["viridis"](0.9 * k / max(1, len(info.layers) - 1))
        few = len(info.layers) <= 12
        name = f"layer {one.layer}" if few or k in (0, len(info.layers) - 1) else None
        ax.fill_between(one.place, one.low, one.high, color=colour, alpha=0.12 if few else 0.04, linewidth=0)
        ax.plot(one.place, one.middle, color=colour, linewidth=1.1, label=name)
    ax.set_xlabel(r"index / $d_k$")
    ax.set_ylabel(r"singular value of $W_Q W_K^T$ / largest")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1.02)
    ax.set_title("Spectra: the median head, and all heads between their ends", fontsize=9)
    if info.layers:
        ax.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))


@dataclass(frozen=True)
class Drawing:
    """How a figure is made: its data (None: there is nothing to show) and its picture."""

    info: Callable[[Mapping[str, Any]], Any]
    draw: Callable[[Any, list[Axes]], None]


DRAWINGS: dict[str, Drawing] = {
    "used": Drawing(audit.used_info, draw_map),
    "stable": Drawing(audit.stable_info, draw_map),
    "spectra": Drawing(audit.spectra_info, draw_spectra),
    "overlap": Drawing(audit.overlap_info, draw_map),
    "symmetry": Drawing(audit.symmetry_info, draw_map),
    "relations": Drawing(audit.relations_info, draw_map),
}


def size_of(info: Any) -> tuple[float, float]:
    """In inches: a map grows with its layers."""
    rows = len(info.layers) if isinstance(info, audit.HeadLayerMap) else 0
    return 6.4, min(9.0, max(2.6, 1.2 + 0.16 * rows))


def draw_figures(answer: Mapping[str, Any], folder: Path) -> dict[str, tuple[Any, list[Path]]]:
    """Draw every figure that there is something for. returns: by name, its data and its files (svg, png, csv, pdf)"""
    out = {}
    for name, drawing in DRAWINGS.items():
        info = drawing.info(answer)
        if info is not None:
            out[name] = info, save_panels(info, drawing.draw, folder / f"audit-{name}", size=size_of(info))
    return out
