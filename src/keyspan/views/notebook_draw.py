"""The small figures of results in a notebook: data, and functions that only draw them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keyspan.views.figures import COLOURS, CONSTRUCTION, THEORY

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Range:
    """Numbers on one logarithmic axis. points: name, value, kind (theory, construction or design)    low, high: an interval"""

    points: tuple[tuple[str, float, str], ...]
    low: float | None
    high: float | None
    label: str

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        return f"{self.label}: {', '.join(f'{name} {value:.4g}' for name, value, _ in self.points)}."

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure."""
        return [{"name": name, "value": value} for name, value, _ in self.points]


def draw_range(info: Range, axes: list[Axes]) -> None:
    """Theory dashed, explicit weights dotted, the design a marker with its interval."""
    (ax,) = axes
    for k, (name, value, kind) in enumerate(info.points):
        if kind == "design":
            ax.plot([value], [0.5], marker="o", color=COLOURS[0], linestyle="none", label=f"{name} {value:.4g}")
            if info.low is not None and info.high is not None:
                ax.plot([info.low, info.high], [0.5, 0.5], color=COLOURS[0], linewidth=2, alpha=0.6)
        else:
            style = CONSTRUCTION if kind == "construction" else THEORY
            ax.axvline(value, color=COLOURS[(k + 1) % len(COLOURS)], **style, label=f"{name} {value:.4g}")
    ax.set_xscale("log")
    ax.set_ylim(0, 1)
    ax.set_yticks([])
    ax.set_xlabel(info.label)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    ax.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))


@dataclass(frozen=True)
class Scores:
    """The two pairs that set the margin, and the threshold between them, if it is."""

    pairs: tuple[tuple[str, float], ...]
    threshold: float | None

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        said = ", ".join(f"{name} {score:.4g}" for name, score in self.pairs)
        return f"Scores: {said}" + ("." if self.threshold is None else f"; threshold {self.threshold:.4g}.")

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure."""
        return [{"name": name, "value": score} for name, score in (*self.pairs, ("threshold", self.threshold))]


def draw_scores(info: Scores, axes: list[Axes]) -> None:
    """A marker for each pair; where a threshold is known, as far from it as the pairs are."""
    (ax,) = axes
    zero = info.threshold or 0.0
    for k, (name, score) in enumerate(info.pairs):
        label = f"{name} {score - zero:+.3g}"
        ax.plot([score - zero], [0.5], marker="^v"[k], color=COLOURS[k], linestyle="none", markersize=7, label=label)
    if info.threshold is not None:
        ax.axvline(0.0, color="black", linewidth=1, label=f"threshold {info.threshold:.4g}")
    ax.set_ylim(0, 1)
    ax.set_yticks([])
    ax.set_xlabel("score" if info.threshold is None else "score less the threshold")
    ax.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))


@dataclass(frozen=True)
class Fractions:
    """Share of random labelings that are fitted, beside Cover's exact share."""

    rows_: tuple[Mapping[str, Any], ...]
    known: float

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        return f"Share of random labelings fitted against their number, with Cover's exact share; half at {self.known:g}."

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure."""
        return [dict(row) for row in self.rows_]


def draw_fractions(info: Fractions, axes: list[Axes]) -> None:
    """Measured with Wilson's interval, exact dashed."""
    (ax,) = axes
    for k, recipe in enumerate(dict.fromkeys(r["recipe"] for r in info.rows_)):
        rows = [r for r in info.rows_ if r["recipe"] == recipe and r["fraction"] is not None]
        y = [r["fraction"] for r in rows]
        ends = [[v - r["low"] for v, r in zip(y, rows, strict=True)], [r["high"] - v for v, r in zip(y, rows, strict=True)]]
        style: Any = {
            "marker": "os"[k % 2],
            "color": COLOURS[k],
            "markersize": 4,
            "capsize": 2,
            "linewidth": 1,
            "label": recipe,
        }
        ax.errorbar([r["examples"] for r in rows], y, yerr=ends, **style)
    exact = sorted({(r["examples"], r["exact"]) for r in info.rows_})
    ax.plot([t for t, _ in exact], [p for _, p in exact], color="black", **THEORY, label="Cover, exact")
    ax.axvline(info.known, color="grey", **THEORY, label="2d")
    ax.set_xlabel("examples T")
    ax.set_ylabel("share fitted")
    ax.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))


@dataclass(frozen=True)
class Loads:
    """A score against how much was asked for. points: (load, mean, low, high, seeds)    known: name -> load, from theory"""

    points: tuple[tuple[float, float, float | None, float | None, int], ...]
    label: str
    score: str
    known: tuple[tuple[str, float], ...] = ()

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        known = "".join(f"; {name} at {load:g}" for name, load in self.known)
        return f"{self.score} against {self.label}, means over seeds with their 95% intervals{known}."

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure."""
        names = (self.label, self.score, "low", "high", "seeds")
        return [dict(zip(names, point, strict=True)) for point in self.points]


def draw_loads(info: Loads, axes: list[Axes]) -> None:
    """Measured solid with intervals, what theory knows dashed."""
    (ax,) = axes
    x, y = [p[0] for p in info.points], [p[1] for p in info.points]
    below = [p[1] - (p[1] if p[2] is None else p[2]) for p in info.points]
    above = [(p[1] if p[3] is None else p[3]) - p[1] for p in info.points]
    style: Any = {"marker": "o", "color": COLOURS[0], "markersize": 4, "capsize": 2, "linewidth": 1, "label": "measured"}
    ax.errorbar(x, y, yerr=[below, above], **style)
    for k, (name, load) in enumerate(info.known):
        ax.axvline(load, color=COLOURS[6 - k], **THEORY, label=name)
    ax.set_xlabel(info.label)
    ax.set_ylabel(info.score)
    ax.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
