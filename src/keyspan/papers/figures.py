"""What every paper's figures share: a figure with its sweep at each tier, what it came to, and the paper that owns it.

A paper is one object of data and pure functions. Which questions a figure asks, how its data are read off the outcomes, and
the statistics that its claims are tested on are the paper's; asking, judging, drawing and resuming are everybody's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from keyspan.errors import BadInput, shown
from keyspan.runners.driver import Outcome
from keyspan.specs import Question

TIERS = ("smoke", "short", "paper")


@dataclass(frozen=True)
class Figure:
    """A figure of a paper: what it shows, and its sweep at every tier (data that its paper understands).

    group: figures that the paper's bare name does not mean; they are asked for by name, or all together by the group's
    """

    name: str
    title: str
    tiers: Mapping[str, Any]
    group: str = ""


class Found(Protocol):
    """A figure at a tier, measured.

    seeds: instances a point    cells: what was asked for, one name or tuple of sizes each    failed_cells: those with a
    member that has no number    left_out: cells that are not measured, as their sizes and a `reason`
    run_ids: the members it rests on    trained: by this call
    """

    @property
    def figure(self) -> Figure: ...
    @property
    def tier(self) -> str: ...
    @property
    def seeds(self) -> int: ...
    @property
    def cells_asked(self) -> Sequence[Hashable]: ...
    @property
    def failed_cells(self) -> frozenset[Any]: ...
    @property
    def left_out(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def run_ids(self) -> frozenset[str]: ...
    @property
    def trained(self) -> frozenset[str]: ...


class AsPlanned:
    """What most of them share: as many seeds as their tier's plan says, and no cell left out."""

    figure: Figure
    tier: str

    @property
    def seeds(self) -> int:
        """Instances a point."""
        return int(self.figure.tiers[self.tier].seeds)

    @property
    def left_out(self) -> Sequence[Mapping[str, Any]]:
        """Nothing."""
        return ()


Statistic = Callable[[Any], float | None]
Interval = Callable[[Any], tuple[float, float] | None]
Check = Callable[[], float]


@dataclass(frozen=True)
class Paper:
    """A paper as the laboratory knows it.

    figures: by name, in the paper's order    questions: what a figure asks at a tier, for one set of instances
    measured: its data, read off the outcomes of these questions (a figure may ask none, and compute)
    statistics: by name, of what a figure came to; None where too little was measured to say
    intervals: by the name of the statistic, its 95% interval; None where it has none
    checks: statistics that theory alone computes, by name, within a second and from no measurement
    """

    name: str
    figures: Mapping[str, Figure]
    questions: Callable[[Figure, str, int], list[Question]]
    measured: Callable[[Figure, str, Sequence[Question], Sequence[Outcome]], Found]
    statistics: Mapping[str, Statistic]
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    checks: Mapping[str, Check] = field(default_factory=dict)


def names(paper: str, figures: Mapping[str, Figure]) -> list[str]:
    """Everything of a paper that can be asked for: itself, its figures, its groups of figures."""
    groups = dict.fromkeys(f.group for f in figures.values() if f.group)
    return [paper, *(f"{paper}:{name}" for name in (*figures, *groups))]


def choose(paper: str, figures: Mapping[str, Figure], name: str, tier: str) -> list[Figure]:
    """The figures that `adler`, `adler:fig1` or `adler:beyond` names, or `BadInput` with the list of those there are."""
    if name not in names(paper, figures):
        raise BadInput(f"What to reproduce must be one of {', '.join(names(paper, figures))}, but got {name!r}. Choose one.")
    if tier not in TIERS:
        raise BadInput(f"`--tier` must be {'|'.join(TIERS)}, but got {shown(tier)}. Choose one.")
    figure = name.partition(":")[2]
    return [figures[figure]] if figure in figures else [f for f in figures.values() if f.group == figure]
