"""The figure of the kills: how much was stored at each of them, and that it never became less."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults import log

from keyspan.views.pictures import svg_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKS = {"all": ("x", "driver and workers"), "driver": ("+", "driver alone"), "worker": ("o", "a worker")}


@dataclass(frozen=True)
class Kills:
    """Points by what was killed: (number of the kill in its sweep, share of members stored). lines: sweeps, as they went on"""

    points: dict[str, list[tuple[int, float]]]
    lines: list[list[float]]

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        count = sum(map(len, self.points.values()))
        return (
            f"{count} kills at random moments of {len(self.lines)} sweeps. Across: which kill of its sweep it was. Up: the "
            "share of the members that were stored by then. Every line rises: nothing that was stored was lost."
        )

    def rows(self) -> list[dict[str, Any]]:
        return [{"what": what, "number": x, "stored": y} for what, points in self.points.items() for x, y in points]


def kills_info(path: Path) -> Kills:
    """What the log has."""
    points: dict[str, list[tuple[int, float]]] = {what: [] for what in MARKS}
    sweeps: dict[str, list[float]] = defaultdict(lambda: [0.0])
    for row in log.read(path):
        share = int(row["stored"]) / int(row["members"])
        points[row["what"]].append((len(sweeps[row["episode"]]), share))
        sweeps[row["episode"]].append(share)
    return Kills(points, list(sweeps.values()))


def kills_draw(info: Kills, axes: list[Axes]) -> None:
    """One panel."""
    for line in info.lines:
        axes[0].plot(range(len(line)), line, color="0.8", linewidth=0.8, zorder=1)
    for what, (mark, label) in MARKS.items():
        x, y = zip(*info.points[what], strict=True) if info.points[what] else ((), ())
        if mark == "o":
            axes[0].scatter(x, y, s=18, facecolors="none", edgecolors="C0", linewidths=0.8, label=label)
        else:
            axes[0].scatter(x, y, s=22, marker=mark, color="C1" if mark == "+" else "C3", linewidths=0.9, label=label)
    axes[0].set(xlabel="kills of this sweep so far", ylabel="members stored at the kill (share)", ylim=(-0.03, 1.03))
    axes[0].locator_params(axis="x", integer=True)
    axes[0].legend(title="killed", frameon=False, loc="lower right")


def draw(path: Path, out: Path) -> None:
    """Write the figure of a log."""
    out.write_text(svg_text(kills_info(path), kills_draw, size=(6.8, 3.0)))
