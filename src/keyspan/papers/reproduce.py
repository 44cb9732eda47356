"""Reproduce figures of a paper: ask all their questions together, read the data off the answers, judge the claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keyspan
from keyspan.display import Displayed
from keyspan.errors import BadInput, shown
from keyspan.papers import adler, claims, harma_measured, mahdavi, modern
from keyspan.papers.figures import Figure, Found, Paper, choose
from keyspan.runners.driver import Outcome
from keyspan.runners.given import Rows
from keyspan.specs import Question, canonical

SCHEMA = 1
PAPERS: Mapping[str, Callable[[], Paper]] = {p.PAPER: p.paper for p in (adler, mahdavi, harma_measured, modern)}
Answerer = Callable[[list[Question]], Sequence[Outcome]]


@dataclass(frozen=True)
class Plan:
    """Figures chosen, with the questions of each and all of them together, each once."""

    name: str
    paper: Paper
    tier: str
    figures: tuple[tuple[Figure, tuple[Question, ...]], ...]

    @property
    def questions(self) -> list[Question]:
        """Every question once, in the order of the figures."""
        return list({canonical(q.to_json()): q for _, asked in self.figures for q in asked}.values())


def plan(name: str, tier: str, seed: int = 0, rows: Rows | None = None) -> Plan:
    """What `adler`, `adler:fig3` or `adler:beyond` asks at a tier.

    seed: which set of instances    rows: item vectors that were given, where a figure can be asked of others than its own
    """
    wanted = name.partition(":")[0] if isinstance(name, str) else ""
    if wanted not in PAPERS:
        known = f"one of {', '.join(PAPERS)}, or a figure such as adler:fig1 or adler:map"
        raise BadInput(f"What to reproduce must be {known}, but got {shown(name)}. `keyspan reproduce adler:` lists adler's.")
    paper = PAPERS[wanted]()
    chosen = choose(paper.name, paper.figures, name, tier)
    if rows is not None:
        chosen = [_over(figure, tier, rows) for figure in chosen]
    return Plan(name, paper, tier, tuple((f, tuple(paper.questions(f, tier, seed))) for f in chosen))


def _over(figure: Figure, tier: str, rows: Rows) -> Figure:
    """The figure, of item vectors that were given."""
    over = getattr(figure.tiers[tier], "over", None)
    if over is None:
        got = f"{shown(rows.name)}. adler:block and mahdavi:fig1 take them."
        raise BadInput(f"`--embeddings` must be left out of {figure.name}, but got {got}")
    return replace(figure, tiers={tier: over(rows)})


@dataclass(frozen=True)
class Reproduced(Displayed):
    """Figures measured and their claims judged.

    shown: by figure, the data drawn, its summary, and the files    infos: by figure, the data as objects
    """

    plan: Plan
    figures: tuple[Found, ...]
    shown: Mapping[str, Mapping[str, Any]]
    infos: Mapping[str, Any]

    @property
    def failed(self) -> int:
        """Cells with a member that has no number; a cell of several figures counts once."""
        return len(set[Any]().union(*(figure.failed_cells for figure in self.figures)))

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan reproduce`: totals over the figures, then each of them."""
        each = [self._figure(found) for found in self.figures]
        cells = len({cell for found in self.figures for cell in found.cells_asked})
        totals = {"cells": cells, "done": cells - self.failed, "failed": self.failed}
        run_ids = sorted(set[str]().union(*(found.run_ids for found in self.figures)))
        trained = set[str]().union(*(found.trained for found in self.figures))
        head = {"schema": SCHEMA, "keyspan": keyspan.__version__, "figure": self.plan.name, "tier": self.plan.tier}
        judged = {claim["id"]: claim for one in reversed(each) for claim in one["claims"]}
        once = [judged[claim.id] for claim in claims.load(self.plan.paper) if claim.id in judged]
        return head | totals | {"claims": once, "figures": each, "run_ids": run_ids, "trained_now": len(trained)}

    def _figure(self, found: Found) -> dict[str, Any]:
        cells, failed = len(found.cells_asked), len(found.failed_cells)
        return {
            "figure": f"{self.plan.paper.name}:{found.figure.name}",
            "title": found.figure.title,
            "cells": cells,
            "done": cells - failed,
            "failed": failed,
            "claims": [judged.to_dict() for judged in claims.judge(found, self.plan.paper)],
            "left_out": [dict(gone) for gone in found.left_out],
        } | dict(self.shown.get(found.figure.name, {}))


def carry_out(chosen: Plan, answer: Answerer) -> tuple[Found, ...]:
    """Answer all questions of a plan together and read every figure's data off them."""
    asked = chosen.questions
    outcomes = dict(zip((canonical(q.to_json()) for q in asked), answer(asked), strict=True))
    read = chosen.paper.measured
    return tuple(read(figure, chosen.tier, qs, [outcomes[canonical(q.to_json())] for q in qs]) for figure, qs in chosen.figures)
