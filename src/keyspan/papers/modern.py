"""Attention in use today, against plain heads: a question of our own, declared as a paper's (figures, tiers, claims).

It stands among the papers because it is declared as they are: a sweep a figure, claims with tests that were fixed before
measuring, one registry. A study is a program of its own, and rooms of studies and papers do not know each other.

Every kind of heads is searched for its D_K* at every number of heads, each in a question of its own, so that the smallest
key budget, the fewest parameters and the smallest key cache are all found, each where it is attained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from keyspan.attention.shapes import Heads
from keyspan.lab.crossing import Crossing
from keyspan.papers.figures import TIERS, AsPlanned, Figure, Interval, Paper, Statistic
from keyspan.problems import graphs
from keyspan.problems.placed import Placed
from keyspan.problems.relations import Relations
from keyspan.runners.driver import Outcome
from keyspan.runners.questions import relations_question
from keyspan.specs import Arm, Question
from keyspan.theory.bounds import law

PAPER = "modern"
Ends = tuple[float, float, float]  # low, estimate, high
Size = tuple[int, int, int]  # (items, d_model, targets of an item)
KEYS = ("plain", "GQA", "MQA", "MLA")  # how lines begin that say how keys are made: what several targets may change


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A line of the table. heads: a pattern, whose sizes are those of the smallest there is    fewest: heads that it takes

    positions: places that items may stand at    score: what must meet the target    kept: rounded to this after training
    """

    name: str
    heads: Heads
    fewest: int = 1
    positions: int = 1
    score: str = "f1"
    kept: str | None = None


def kinds(positions: int) -> tuple[Kind, ...]:
    """All lines of the table. positions: of those that are placed"""
    plain = Heads(heads=1, d_key=1)
    turned = partial(Kind, positions=positions)
    window = max(2, positions // 8)
    formats = ("bf16", "fp8", "int8", "int4")
    return (
        Kind(name="plain", heads=plain),
        Kind(name="GQA, 2 a key head", heads=replace(plain, heads=2, share=2), fewest=2),
        Kind(name="GQA, 4 a key head", heads=replace(plain, heads=4, share=4), fewest=4),
        Kind(name="MQA", heads=replace(plain, share=0), fewest=2),
        Kind(name="MLA, latent of 2 d_key", heads=replace(plain, latent=2), fewest=2),
        Kind(name="MLA, latent of 4 d_key", heads=replace(plain, latent=4), fewest=4),
        Kind(name="QK-norm", heads=replace(plain, norm=True)),
        Kind(name="soft cap 50", heads=replace(plain, cap=50.0)),
        Kind(name="soft cap 10", heads=replace(plain, cap=10.0)),
        turned(name="rotary", heads=replace(plain, rotary=1.0)),
        turned(name="rotary, base 500000", heads=replace(plain, rotary=1.0, base=500000.0)),
        turned(name="rotary, half", heads=replace(plain, rotary=0.5)),
        turned(name=f"rotary, window {window}", heads=replace(plain, rotary=1.0, window=window), score="f1_seen"),
        *(Kind(name=f"keys {f} after training", heads=plain, score=f"f1_{f}", kept=f) for f in formats),
        *(Kind(name=f"keys {f} in training", heads=replace(plain, keys=f)) for f in formats),
        turned(
            name="GQA 4, QK-norm, rotary, int8 in training",
            heads=replace(plain, heads=4, share=4, norm=True, rotary=1.0, keys="int8"),
            fewest=4,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is measured at a tier.

    cells: (m, d, targets of an item); with one target the graph is a permutation, else a regular one, and only lines that
    say how keys are made are measured    least, most: heads    seeds: instances a point    only: names of lines, or all
    """

    cells: tuple[Size, ...]
    most: int
    seeds: int
    positions: int
    least: int = 1
    arithmetic: str = "fp32"
    only: tuple[str, ...] = ()

    @property
    def lines(self) -> list[tuple[Size, Kind]]:
        """The lines of the table, cell by cell."""
        chosen = [kind for kind in kinds(self.positions) if not self.only or kind.name in self.only]
        return [
            (size, kind)
            for size in self.cells
            for kind in chosen
            if size[2] == 1 or (kind.name.startswith(KEYS) and kind.positions == 1)
        ]

    def heads(self, kind: Kind) -> list[int]:
        """Powers of two that a line is tried with."""
        return [h for h in (1 << k for k in range(self.most.bit_length())) if max(self.least, kind.fewest) <= h <= self.most]


SHORT = (  # what two cores measure: of low precision in training the coarsest, of turned heads the usual
    "plain",
    "GQA, 2 a key head",
    "GQA, 4 a key head",
    "MQA",
    "MLA, latent of 2 d_key",
    "MLA, latent of 4 d_key",
    "QK-norm",
    "soft cap 50",
    "rotary",
    "rotary, window 8",
    "keys bf16 after training",
    "keys fp8 after training",
    "keys int8 after training",
    "keys int4 after training",
    "keys int4 in training",
    "GQA 4, QK-norm, rotary, int8 in training",
)
SMOKE = ("plain", "GQA, 2 a key head", "MQA", "MLA, latent of 2 d_key", "QK-norm", "rotary", "keys int4 after training")
PLANS = {
    "smoke": Plan(cells=((32, 16, 1),), most=2, seeds=2, positions=8, only=SMOKE),
    "short": Plan(cells=((64, 16, 1),), least=4, most=4, seeds=5, positions=64, only=SHORT),
    "paper": Plan(cells=((512, 64, 1), (1024, 128, 1), (256, 64, 4)), most=32, seeds=10, positions=256),
}


def questions(figure: Figure, tier: str, seed: int = 0) -> list[Question]:
    """One question for every cell, line and number of heads."""
    plan: Plan = figure.tiers[tier]
    return [_question(kind, size, h, plan, seed) for size, kind in plan.lines for h in plan.heads(kind)]


def relations_of(size: Size) -> Relations:
    """The problem of a cell."""
    items, d_model, targets = size
    graph = graphs.permutation() if targets == 1 else graphs.regular(targets)
    return Relations(items=items, d_model=d_model, graph=graph)


def _question(kind: Kind, size: Size, heads: int, plan: Plan, seed: int) -> Question:
    relations = relations_of(size)
    asked = relations_question(relations, heads=heads, seeds=plan.seeds, seed=seed, arithmetic=plan.arithmetic)
    problem = relations if kind.positions == 1 else Placed(relations=relations, positions=kind.positions)
    return replace(asked, problem=problem, instrument=kind.heads, arms=(_arm(kind, relations, heads),), score=kind.score)


def _arm(kind: Kind, relations: Relations, heads: int) -> Arm:
    """Key budgets whose heads, and latent, are no wider than the items; of turned heads: in pairs of dimensions."""
    step = 2 if kind.heads.rotary else 1
    widest = relations.d_model // max(1, kind.heads.latent)
    levels = tuple(heads * d_key for d_key in range(step, widest + 1, step))
    guess = law(relations.edges, relations.d_model)
    low = max((level for level in levels if 2 * level <= guess), default=levels[0])
    high = min((level for level in levels if level >= 2 * guess), default=levels[-1])
    return Arm(heads=heads, levels=levels, low=low, high=max(low, high))


# --------------------------------------------------------------------------------------------------- what came out


@dataclass(frozen=True)
class Point:
    """What one number of heads needs. budget: D_K*, None where it was not reached    low, high: its interval

    cached: numbers of an item in the key cache    cache_bits: of it, per relation
    """

    heads: int
    budget: int | None
    low: int | None
    high: int | None
    cached: int | None
    parameters: int | None
    cache_bits: float | None


@dataclass(frozen=True)
class Line:
    """One kind of heads in one cell, at every number of heads tried."""

    kind: Kind
    size: Size
    seeds: int
    points: tuple[Point, ...]
    failed: int

    def best(self, what: str) -> Point | None:
        """Where `budget`, `parameters` or `cache_bits` is smallest; fewer heads where two are equal."""
        reached = [p for p in self.points if p.budget is not None]
        return min(reached, key=lambda p: (getattr(p, what), p.heads), default=None)

    def least(self, what: str) -> float | None:
        """The smallest `budget`, `parameters` or `cache_bits`."""
        ends = self.ends(what)
        return None if ends is None else ends[1]

    def ends(self, what: str) -> Ends | None:
        """That, between the ends of its interval: all three grow as the budget does. An open end is the estimate."""
        best = self.best(what)
        if best is None or best.budget is None:
            return None
        value = float(getattr(best, what))
        low, high = (value if end is None else value * end / best.budget for end in (best.low, best.high))
        return low, value, high


@dataclass(frozen=True)
class Table(AsPlanned):
    """The figure at a tier, measured (a `papers.figures.Found`)."""

    figure: Figure
    tier: str
    lines: tuple[Line, ...]
    run_ids: frozenset[str]
    trained: frozenset[str]

    @property
    def plan(self) -> Plan:
        """What was asked."""
        plan: Plan = self.figure.tiers[self.tier]
        return plan

    @property
    def seeds(self) -> int:
        """Instances a point."""
        return self.plan.seeds

    @property
    def cells_asked(self) -> tuple[tuple[str, Size], ...]:
        """The lines, cell by cell."""
        return tuple((line.kind.name, line.size) for line in self.lines)

    @property
    def failed_cells(self) -> frozenset[Any]:
        """Lines with a member that has no number."""
        return frozenset(asked for asked, line in zip(self.cells_asked, self.lines, strict=True) if line.failed)

    def line(self, name: str, size: Size) -> Line | None:
        """The line of a kind in a cell."""
        return next((x for x in self.lines if x.kind.name == name and x.size == size), None)

    def ratio(self, name: str, what: str) -> float | None:
        """The smallest `what` of a kind over that of plain heads, the largest over cells; None where it was not reached.

        Only cells with one target an item count: the others are there to be looked at.
        """
        pairs = self._pairs(name, what)
        return None if pairs is None else max(mine[1] / plain[1] for mine, plain in pairs)

    def ratio_ends(self, name: str, what: str) -> tuple[float, float] | None:
        """That ratio from the ends of the intervals, whichever way they make it smallest and largest; over cells, as it is."""
        pairs = self._pairs(name, what)
        if pairs is None:
            return None
        return max(mine[0] / plain[2] for mine, plain in pairs), max(mine[2] / plain[0] for mine, plain in pairs)

    def _pairs(self, name: str, what: str) -> list[tuple[Ends, Ends]] | None:
        """What a kind and plain heads need at least, with the ends of their intervals, cell by cell."""
        pairs = []
        for size in (size for size in self.plan.cells if size[2] == 1):
            mine, plain = self.line(name, size), self.line("plain", size)
            one, other = (None if line is None else line.ends(what) for line in (mine, plain))
            if one is None or other is None:
                return None
            pairs.append((one, other))
        return pairs or None


def measured(figure: Figure, tier: str, asked: Sequence[Question], outcomes: Sequence[Outcome]) -> Table:
    """Read the table off the outcomes, which come in the order of the questions."""
    plan: Plan = figure.tiers[tier]
    answers = iter(outcomes)
    lines = []
    for size, kind in plan.lines:
        each = [(h, next(answers).answer) for h in plan.heads(kind)]
        points = tuple(_point(kind, size, h, found.arms[0].crossing) for h, found in each)
        lines.append(Line(kind, size, plan.seeds, points, sum(found.failed for _, found in each)))
    return Table(
        figure=figure,
        tier=tier,
        lines=tuple(lines),
        run_ids=frozenset(p.run.run_id for o in outcomes for p in o.answer.probes),
        trained=frozenset(run_id for o in outcomes for run_id in o.trained),
    )


def _point(kind: Kind, size: Size, heads: int, crossing: Crossing) -> Point:
    low, high = (None if end is None else int(end) for end in (crossing.low, crossing.high))
    if crossing.estimate is None:
        return Point(heads, None, low, high, None, None, None)
    made = kind.heads.with_budget(heads, int(crossing.estimate))
    made = made if kind.kept is None else replace(made, keys=kind.kept)
    items, d_model, _ = size
    return Point(
        heads=heads,
        budget=int(crossing.estimate),
        low=low,
        high=high,
        cached=made.cached,
        parameters=made.parameters(d_model),
        cache_bits=made.cache_bits(items) * items / relations_of(size).edges,
    )


# ------------------------------------------------------------------------------------------------------ statistics


COSTS = {  # by statistic: the smallest `what` of a kind over that of plain heads; over cells, the largest
    "norm_budget": ("QK-norm", "budget"),
    "cap_budget": ("soft cap 50", "budget"),
    "shared_cache": ("MQA", "cache_bits"),
    "grouped_cache": ("GQA, 4 a key head", "cache_bits"),
    "latent_cache": ("MLA, latent of 4 d_key", "cache_bits"),
    "rotary_budget": ("rotary", "budget"),
    "int8_budget": ("keys int8 after training", "budget"),
    "int4_cache": ("keys int4 in training", "cache_bits"),
}


def _cost(name: str, what: str) -> Statistic:
    return lambda found: found.ratio(name, what)


def _ends(name: str, what: str) -> Interval:
    return lambda found: found.ratio_ends(name, what)


STATISTICS: Mapping[str, Statistic] = {statistic: _cost(*cost) for statistic, cost in COSTS.items()}
INTERVALS: Mapping[str, Interval] = {statistic: _ends(*cost) for statistic, cost in COSTS.items()}


def paper() -> Paper:
    """Our own question, as the laboratory knows it."""
    figure = Figure("heads", "What attention in use today needs, against plain heads", {tier: PLANS[tier] for tier in TIERS})
    return Paper(
        name=PAPER,
        figures={figure.name: figure},
        questions=questions,
        measured=measured,
        statistics=STATISTICS,
        intervals=INTERVALS,
    )
