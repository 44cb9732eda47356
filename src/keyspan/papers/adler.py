"""Adler 2025, the capacity of the key-query channel: the sweep behind every figure, at three tiers.

Cells are (m, d): permutations of m items on gaussian unit rows of d dimensions, trained by the recipe `gradient`. All
figures but fig1 read D_K* off the same searches, so what one of them has measured the others find in the store.

smoke: does everything work? two seeds of small cells    short: m 64 to 512, m/d 1 to 16, within an hour of two cores
paper: m 128 to 4096, m/d 1 to 32, for a GPU, trained in bf16 (cells measured in fp32, tf32 and bf16 agree)
"""

from __future__ import annotations

from collections.abc import Sequence

from keyspan.papers import (
    adler_intervals,
    adler_statistics,
    beyond,
    beyond_intervals,
    beyond_statistics,
    stages,
    stages_measured,
)
from keyspan.papers.adler_checks import CHECKS
from keyspan.papers.compared import Comparison, compared
from keyspan.papers.compared import questions as compared_questions
from keyspan.papers.figures import TIERS, Figure, Found, Paper
from keyspan.papers.measured import measured
from keyspan.papers.sweeps import Size, Sweep, beyond_reach, grid, questions
from keyspan.runners.driver import Outcome
from keyspan.specs import Question

PAPER = "adler"
DIAGONAL = 8  # m / d of fig4
MULTIPLES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5)  # of the law, where fig1 measures F1
TARGETS = (0.9, 0.95, 0.99, 1.0)  # F1 = 1 in all seeds is exact recovery

ITEMS = {"short": (64, 128, 256, 512), "paper": (128, 256, 512, 1024, 2048, 4096)}
RATIOS = {"short": (1, 2, 4, 8, 16), "paper": (1, 2, 4, 8, 16, 32)}
SEEDS = {"smoke": 2, "short": 5, "paper": 10}
ARITHMETIC = {"smoke": "fp32", "short": "fp32", "paper": "bf16"}
SMOKE: tuple[Size, ...] = ((32, 32), (32, 16), (32, 8), (64, 64), (64, 32), (64, 16), (96, 12), (128, 16))
TOO_LONG: tuple[Size, ...] = ((512, 512), (512, 256), (512, 32))  # six minutes of two cores or more, each
CURVES: dict[str, tuple[Size, ...]] = {
    "smoke": ((64, 16),),
    "short": ((128, 32), (128, 16), (256, 32)),
    "paper": ((512, 64), (1024, 64), (2048, 128)),
}
CHEAPER: dict[str, tuple[Size, ...]] = {  # the cells of `targets`: the searches for other targets are new runs
    "smoke": ((32, 32), (32, 16), (64, 16)),
    "short": ((128, 128), (128, 64), (128, 32), (128, 16), (256, 128), (256, 64), (256, 32)),
    "paper": ((512, 256), (512, 128), (512, 64), (1024, 256), (1024, 128), (1024, 64), (2048, 256), (2048, 128)),
}


def _whole_grid(tier: str) -> Sweep:
    """The cells of fig2, fig3, fig5 and the map."""
    if tier == "smoke":
        return Sweep(cells=SMOKE, seeds=SEEDS[tier], arithmetic=ARITHMETIC[tier])
    items, ratios = ITEMS[tier], RATIOS[tier]
    cells, left_out = grid(items, ratios), beyond_reach(items, ratios)
    if tier == "short":
        left_out += tuple((size, "takes too long for this tier; the tier `paper` has it") for size in TOO_LONG)
        cells = tuple(size for size in cells if size not in TOO_LONG)
    return Sweep(cells=cells, seeds=SEEDS[tier], near=tier == "paper", arithmetic=ARITHMETIC[tier], left_out=left_out)


def _diagonal(tier: str) -> Sweep:
    """The cells of the grid with m = 8 d."""
    whole = _whole_grid(tier)
    cells = tuple(size for size in whole.cells if size[0] == DIAGONAL * size[1] and (tier != "smoke" or size[0] > 64))
    left_out = tuple((size, why) for size, why in whole.left_out if size[0] == DIAGONAL * size[1])
    return Sweep(cells=cells, seeds=whole.seeds, near=whole.near, arithmetic=whole.arithmetic, left_out=left_out)


def _curves(tier: str) -> Sweep:
    return Sweep(cells=CURVES[tier], seeds=SEEDS[tier], curves=MULTIPLES, near=tier == "paper", arithmetic=ARITHMETIC[tier])


def _targets(tier: str) -> Sweep:
    return Sweep(cells=CHEAPER[tier], seeds=SEEDS[tier], targets=TARGETS, near=tier == "paper", arithmetic=ARITHMETIC[tier])


def figures() -> dict[str, Figure]:
    """Every figure by name, in the order of the paper; `map`, `targets` and the group `beyond` are ours.

    The group `model` is of the paper's third version: softmax, values, a whole block.
    """
    kinds = (
        ("fig1", "F1 against the key budget, a line per number of heads", _curves),
        ("fig2", "The best number of heads against m and against d", _whole_grid),
        ("fig3", "The measured key budget against m ln m / d", _whole_grid),
        ("fig4", f"The diagonal m = {DIAGONAL} d: key budget and heads", _diagonal),
        ("fig5", "The key budget of every cell, with its interval", _whole_grid),
        ("map", "Where several heads beat one", _whole_grid),
        ("targets", "What less than exact recovery saves", _targets),
    )
    mine = {name: Figure(name, title, {tier: sweep(tier) for tier in TIERS}) for name, title, sweep in kinds}
    return mine | beyond.figures() | stages.figures()


def _asked(figure: Figure, tier: str, seed: int) -> list[Question]:
    sweep = figure.tiers[tier]
    if isinstance(sweep, stages.Stage):
        return stages.questions(sweep, seed)
    return compared_questions(sweep, seed) if isinstance(sweep, Comparison) else questions(sweep, seed)


def _read(figure: Figure, tier: str, asked: Sequence[Question], outcomes: Sequence[Outcome]) -> Found:
    sweep = figure.tiers[tier]
    if isinstance(sweep, stages.Stage):
        return stages_measured.measured(figure, tier, asked, outcomes)
    return (compared if isinstance(sweep, Comparison) else measured)(figure, tier, asked, outcomes)


def paper() -> Paper:
    """The paper as the laboratory knows it."""
    statistics = {**adler_statistics.STATISTICS, **beyond_statistics.STATISTICS, **stages_measured.STATISTICS}
    intervals = {**adler_intervals.INTERVALS, **beyond_intervals.INTERVALS, **stages_measured.INTERVALS}
    return Paper(PAPER, figures(), _asked, _read, statistics, intervals, CHECKS)
