"""From the channel to the model: F1 against D_K by heads under softmax, with values, and in a whole block (Adler v3).

Relations are recalled in contexts (`problems.in_context`) by `routed` attention. Figures `adler:softmax`, `adler:values` and
`adler:block`, all together `adler:model`. Each has panels that decide its claim, and others that are there to be looked at.

Budgets are a fixed grid, every head count at all of them; nothing is searched for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from keyspan.attention.shapes import Routed
from keyspan.errors import BadInput, shown
from keyspan.lab import recipes
from keyspan.papers.figures import TIERS, Figure
from keyspan.papers.sweeps import Size
from keyspan.problems.in_context import InContext
from keyspan.problems.relations import Relations
from keyspan.runners.given import Rows
from keyspan.runners.questions import replicates
from keyspan.specs import Arm, Question

GROUP = "model"
LENGTH = {"smoke": 8, "short": 32, "paper": 64}  # items of a context
STEPS = 2000
PEAKS = {"softmax": 0.06, "values": 0.06, "block": 0.01}  # of the learning rate; tried: 0.003 to 0.12
ARITHMETIC = "fp32"
WIDER = 4  # the feed-forward layer's width, over d_model


@dataclass(frozen=True)
class Grid:
    """What is measured of a cell. budgets: D_K    heads: powers of two    seeds: instances a point"""

    size: Size
    heads: tuple[int, ...]
    budgets: tuple[int, ...]
    seeds: int


GRIDS = {
    "smoke": (Grid((32, 16), (1, 2), (4, 8, 16), 2),),
    "short": (
        Grid((128, 32), (1, 2, 4, 8), (8, 12, 16, 32), 5),
        Grid((512, 64), (1, 2, 4), (16, 32, 64), 3),
    ),
    "paper": (
        Grid((128, 32), (1, 2, 4, 8, 16), (8, 12, 16, 20, 24, 32, 40, 48, 64), 10),
        Grid((512, 64), (1, 2, 4, 8, 16), (16, 24, 32, 40, 48, 56, 64, 80, 96, 128), 10),
        Grid((2048, 128), (1, 2, 4, 8, 16, 32), (64, 96, 128, 192, 256), 10),
    ),
}
SMALLER = {  # of whole steps that cost more, with values and in a block: the small cell alone
    "values": GRIDS["short"][:1],
    "block": (Grid((128, 32), (1, 2, 4), (8, 16, 32), 3),),
}
VALUES = {"smoke": (8,), "short": (8, 16, 64), "paper": (8, 16, 64, 128)}  # D_V beside d, at one D_K of the first cell
AT = {"smoke": 8, "short": 32, "paper": 32}  # that D_K


@dataclass(frozen=True, kw_only=True)
class Panel:
    """F1 against D_K in one cell. layer: a pattern with one head    decides: whether the figure's claim rests on it"""

    label: str
    problem: InContext
    layer: Routed
    heads: tuple[int, ...]
    budgets: tuple[int, ...]
    seeds: int
    peak: float
    decides: bool = True

    @property
    def size(self) -> Size:
        """(m, d)"""
        return self.problem.relations.items, self.problem.relations.d_model

    def arms(self) -> tuple[Arm, ...]:
        """Every number of heads at the budgets that it divides, no head wider than the items."""
        found = []
        for h in self.heads:
            levels = tuple(b for b in self.budgets if b % h == 0 and b // h <= self.size[1])
            if levels and self.layer.value_budget % h == 0:
                found.append(Arm(heads=h, levels=levels, low=levels[0], high=levels[-1]))
        return tuple(found)

    def question(self, seed: int) -> Question:
        """All its points."""
        return Question(
            problem=self.problem,
            instrument=self.layer,
            recipe=recipes.recall(steps=STEPS, peak=self.peak),
            stopping=recipes.DEFAULT_STOPPING,
            arithmetic=ARITHMETIC,
            knob="budget",
            arms=self.arms(),
            replicates=replicates(self.seeds, seed),
            score="f1",
            target=0.99,
            search=False,
        )


@dataclass(frozen=True)
class Stage:
    """What a figure measures at a tier. stage: softmax, values or block"""

    stage: str
    tier: str
    panels: tuple[Panel, ...]

    def over(self, rows: Rows) -> Stage:
        """The same question of given item vectors, of the block: one panel for each treatment of them."""
        if self.stage != "block":
            raise BadInput(
                f"`--embeddings` must be left out of {self.stage}, but got {shown(rows.name)}. The block takes them."
            )
        (first, *_) = self.panels
        heads, d = (1, 2, 4, 8), rows.d_model
        budgets: tuple[int, ...] = {"smoke": (16,), "short": (16, 32, 64), "paper": (16, 24, 32, 48, 64, 96)}[self.tier]
        length = min(first.problem.length, 2 * (rows.items // 2))
        layer = Routed(heads=1, d_key=1, d_value=64, hidden=128)
        return replace(
            self,
            panels=tuple(
                Panel(
                    label=f"{rows.name}, {label}",
                    problem=InContext(relations=Relations(items=rows.items, d_model=d, embeddings=embeddings), length=length),
                    layer=layer,
                    heads=heads,
                    budgets=budgets,
                    seeds=first.seeds if self.tier == "smoke" else 3,
                    peak=first.peak,
                    decides=False,  # the claims are about other rows
                )
                for label, embeddings in rows.made
            ),
        )


def questions(stage: Stage, seed: int) -> list[Question]:
    """One for every panel."""
    return [panel.question(seed) for panel in stage.panels]


def _layer(stage: str, d_model: int) -> Routed:
    values = {"softmax": 0, "values": d_model, "block": d_model}[stage]
    return Routed(heads=1, d_key=1, d_value=values, hidden=WIDER * d_model if stage == "block" else 0)


def _panels(stage: str, tier: str) -> tuple[Panel, ...]:
    main = [
        Panel(
            label="",
            problem=InContext(relations=Relations(items=grid.size[0], d_model=grid.size[1]), length=LENGTH[tier]),
            layer=_layer(stage, grid.size[1]),
            heads=grid.heads,
            budgets=grid.budgets,
            seeds=grid.seeds,
            peak=PEAKS[stage],
        )
        for grid in (SMALLER.get(stage, GRIDS[tier]) if tier == "short" else GRIDS[tier])
    ]
    return (*main, *_beside(stage, tier, main[0]))


def _beside(stage: str, tier: str, first: Panel) -> Sequence[Panel]:
    """Under softmax: the same without sinks. With values: other value budgets, at one key budget."""
    few = tuple(h for h in (1, 4) if h in first.heads) or first.heads
    if stage == "softmax":
        bare = replace(first.layer, sink=False)
        return [replace(first, label="no sink", layer=bare, heads=few, decides=False)]
    if stage == "values":
        return [
            replace(
                first,
                label=f"D_V {budget}",
                layer=replace(first.layer, d_value=budget),
                heads=few,
                budgets=(AT[tier],),
                decides=False,
            )
            for budget in VALUES[tier]
        ]
    return []


def figures() -> dict[str, Figure]:
    """The figures by name."""
    kinds = (
        ("softmax", "Recalled in contexts by softmax attention: F1 against the key budget"),
        ("values", "Recalled through values: F1 against the key budget, and what keys and values spoil"),
        ("block", "Recalled by a whole transformer block over frozen rows: F1 against the key budget"),
    )
    return {
        name: Figure(name, title, {tier: Stage(name, tier, _panels(name, tier)) for tier in TIERS}, GROUP)
        for name, title in kinds
    }
