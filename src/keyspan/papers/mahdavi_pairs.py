"""A neighbour of Mahdavi et al.: Dana, Pydi and Chevaleyre 2025, what one layer knows of all pairs of N = 50 tokens, by heads.

Their published data (experiment 1, d = d_h = 10, 4096 steps, means of five runs) stand beside ours and their bound. They count
a pair as often as training draws it; their bound, like our accuracy on all pairs, counts each once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keyspan.evidence.intervals import student
from keyspan.papers.figures import AsPlanned, Figure, Interval, Statistic
from keyspan.problems.pairs import PairLayer
from keyspan.runners.driver import Outcome
from keyspan.runners.pairs import pairs_question
from keyspan.specs import Question
from keyspan.theory.memorization import dana_accuracy

PUBLISHED = {1: 0.130, 6: 0.324, 11: 0.506, 16: 0.685, 21: 0.861, 26: 0.963, 31: 0.998}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is measured at a tier. tokens: N    width: d = d_h    steps: None for those of the recipe"""

    heads: tuple[int, ...]
    seeds: int
    tokens: int = 50
    width: int = 10
    steps: int | None = None


PLANS = {
    "smoke": Plan(heads=(1, 6), seeds=2, tokens=8, steps=100),
    "short": Plan(heads=tuple(PUBLISHED), seeds=3),
    "paper": Plan(heads=tuple(PUBLISHED), seeds=5),
}


def questions(plan: Plan, seed: int) -> list[Question]:
    """One for every number of heads."""
    sizes: dict[str, Any] = {"d_key": plan.width, "d_model": plan.width}
    return [pairs_question(plan.tokens, heads=h, seeds=plan.seeds, seed=seed, steps=plan.steps, **sizes) for h in plan.heads]


@dataclass(frozen=True)
class Known:
    """What one number of heads came to. accuracies: on all pairs, of every seed    seen: on the samples of training
    published: by Dana et al., on samples; None at other sizes"""

    heads: int
    accuracies: tuple[float, ...]
    seen: tuple[float, ...]
    bound: float
    published: float | None
    failed: int

    @property
    def mean(self) -> float | None:
        """Over seeds, on all pairs."""
        return float(np.mean(self.accuracies)) if self.accuracies else None

    @property
    def distance(self) -> float | None:
        """Of the mean on samples from what is published."""
        return None if not self.seen or self.published is None else abs(float(np.mean(self.seen)) - self.published)


@dataclass(frozen=True, eq=False)
class Associations(AsPlanned):
    """The figure at a tier, measured (a `papers.figures.Found`)."""

    figure: Figure
    tier: str
    lines: tuple[Known, ...]
    run_ids: frozenset[str]
    trained: frozenset[str]

    @property
    def cells_asked(self) -> tuple[Hashable, ...]:
        """The numbers of heads."""
        return tuple(x.heads for x in self.lines)

    @property
    def failed_cells(self) -> frozenset[Any]:
        """Those with a member that has no number."""
        return frozenset(x.heads for x in self.lines if x.failed)


def measured(figure: Figure, tier: str, asked: Sequence[Question], outcomes: Sequence[Outcome]) -> Associations:
    """Read accuracies off the outcomes, which come in the order of the questions."""
    plan: Plan = figure.tiers[tier]
    lines = []
    for question, outcome in zip(asked, outcomes, strict=True):
        layer, answer = question.instrument, outcome.answer
        assert isinstance(layer, PairLayer)
        known = [p.verdict for p in answer.probes if p.verdict.measured]
        accuracies, seen = (tuple(v.score(name) for v in known) for name in ("accuracy", "accuracy_seen"))
        bound = dana_accuracy(plan.tokens, layer.heads, layer.d_key, layer.d_model)
        published = PUBLISHED.get(layer.heads) if (plan.tokens, plan.width) == (50, 10) else None
        lines.append(Known(layer.heads, accuracies, seen, bound, published, answer.failed))
    run_ids = frozenset(p.run.run_id for o in outcomes for p in o.answer.probes)
    return Associations(figure, tier, tuple(lines), run_ids, frozenset(run_id for o in outcomes for run_id in o.trained))


def _worst(found: Associations) -> Known | None:
    """Where ours lies farthest from what is published."""
    return max((x for x in found.lines if x.distance is not None), key=lambda x: x.distance or 0.0, default=None)


def published_distance(found: Associations) -> float | None:
    """The largest distance of our mean accuracies from the published ones."""
    worst = _worst(found)
    return None if worst is None or len(found.lines) < len(PUBLISHED) else worst.distance


def published_ends(found: Associations) -> tuple[float, float] | None:
    """Of that one, by Student's interval of our mean."""
    worst = _worst(found)
    if worst is None or published_distance(found) is None or worst.published is None:
        return None
    _, low, high = student(list(worst.seen))
    if low is None or high is None:
        return None
    ends = sorted(abs(end - worst.published) for end in (low, high))
    return (0.0 if low <= worst.published <= high else ends[0]), ends[1]


def association_over_bound(found: Associations) -> float | None:
    """The least mean accuracy over the bound."""
    ratios = [x.mean / x.bound for x in found.lines if x.mean is not None]
    return min(ratios) if ratios and len(ratios) == len(found.lines) else None


def over_bound_ends(found: Associations) -> tuple[float, float] | None:
    """Student's interval where the ratio is least."""
    if association_over_bound(found) is None:
        return None
    worst = min(found.lines, key=lambda x: (x.mean or 0.0) / x.bound)
    _, low, high = student(list(worst.accuracies))
    return None if low is None or high is None else (low / worst.bound, high / worst.bound)


STATISTICS: Mapping[str, Statistic] = {
    "published_distance": published_distance,
    "association_over_bound": association_over_bound,
}
INTERVALS: Mapping[str, Interval] = {"published_distance": published_ends, "association_over_bound": over_bound_ends}
