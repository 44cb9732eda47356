"""What a layer knows of all pairs of tokens, beside what is published: the data of the figure, and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keyspan.evidence.intervals import student
from keyspan.papers.mahdavi_pairs import Associations
from keyspan.views.drawings import Data
from keyspan.views.figures import COLOURS, MARKERS, THEORY

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class PairsKnown(Data):
    """Accuracy on all pairs of tokens, by heads."""

    title: str
    found: Associations

    @property
    def alt_text(self) -> str:
        """The figure in words."""
        each = [
            f"{_plain(row['accuracy_seen'])} with {row['heads']} heads (published {_plain(row['published'])})"
            for row in self.rows()
        ]
        return f"{self.title}. Accuracy on the samples of training {', '.join(each)}."

    def rows(self) -> list[dict[str, Any]]:
        """The data of the figure, for the CSV beside it."""
        out = []
        for x in self.found.lines:
            mean, low, high = _share(x.accuracies)
            told = {"heads": x.heads, "seeds": len(x.accuracies), "accuracy": mean, "low": low, "high": high}
            mean, low, high = _share(x.seen)
            told |= {"accuracy_seen": mean, "seen_low": low, "seen_high": high}
            out.append(told | {"published": x.published, "bound": x.bound})
        return out

    def printed(self) -> tuple[str, list[str], list[list[Any]]]:
        """Ours, theirs and the bound."""
        lines: list[list[Any]] = [
            [x.heads, _interval(x.seen), _plain(x.published), _interval(x.accuracies), x.bound] for x in self.found.lines
        ]
        columns = ["heads", "on samples [low, high]", "published", "on all pairs [low, high]", "bound"]
        return self.title.lower(), columns, lines


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def pairs_info(found: Associations) -> PairsKnown:
    """As it was measured."""
    return PairsKnown(found.figure.title, found)


def draw_pairs(info: PairsKnown, axes: list[Axes]) -> None:
    """Accuracy on samples and on all pairs with its interval, what is published, and the bound."""
    (ax,) = axes
    rows = [row for row in info.rows() if row["accuracy"] is not None]
    x = [row["heads"] for row in rows]
    kinds = (("accuracy_seen", "seen_low", "seen_high", "on samples"), ("accuracy", "low", "high", "on all pairs"))
    for k, (name, low, high, label) in enumerate(kinds):
        y = [row[name] for row in rows]
        ends = [
            [max(0.0, row[name] - (row[low] if row[low] is not None else row[name])) for row in rows],
            [max(0.0, (row[high] if row[high] is not None else row[name]) - row[name]) for row in rows],
        ]
        ax.errorbar(
            x, y, yerr=ends, color=COLOURS[2 * k], marker=MARKERS[2 * k], markersize=4, capsize=2, linewidth=1, label=label
        )
    known = [(row["heads"], row["published"]) for row in rows if row["published"] is not None]
    if known:
        ax.plot(
            *zip(*known, strict=True), color=COLOURS[1], marker=MARKERS[1], markersize=4, linestyle="none", label="published"
        )
    ax.plot(x, [row["bound"] for row in rows], color="black", label="bound", **THEORY)
    ax.set_xlabel("heads $H$")
    ax.set_ylabel("accuracy")
    ax.legend(fontsize=7, frameon=False)


def _share(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    """Mean of shares, with Student's interval, which cannot leave [0, 1]."""
    if not values:
        return None, None, None
    mean, low, high = student(list(values))
    return mean, None if low is None else max(0.0, low), None if high is None else min(1.0, high)


def _interval(values: Sequence[float]) -> str:
    mean, low, high = _share(values)
    return _plain(mean) if low is None or high is None else f"{_plain(mean)} [{low:.3f}, {high:.3f}]"
