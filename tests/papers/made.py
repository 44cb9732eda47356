"""Measurements made by hand, for tests of claims and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from keyspan.evidence.cells import Cell
from keyspan.lab.search import Wanted, propose
from keyspan.papers.figures import Figure
from keyspan.papers.measured import Curves, Measured, Point
from keyspan.papers.sweeps import Size, Sweep
from keyspan.runners.driver import Outcome
from keyspan.specs import Question, Run
from keyspan.verdict import Verdict


def answered(question: Question, knows: Callable[[Run], Verdict]) -> Outcome:
    """What a question comes to where every member's verdict is known beforehand. Nothing is trained or stored."""
    verdicts: dict[str, Verdict] = {}
    while isinstance(step := propose(question, verdicts), Wanted):
        verdicts |= {run.run_id: knows(run) for run in step.runs}
    return Outcome(step, (), {})


def cell(items: int, d_model: int, key_budget: int | None, heads: int = 1, **more: Any) -> Cell:
    """A cell with a tight interval."""
    reached = key_budget is not None
    given: dict[str, Any] = {"heads": heads, "heads_low": heads, "heads_high": heads, "low": key_budget, "high": key_budget}
    about: dict[str, Any] = {"seeds": 5, "evidence": f"{items}x{d_model}", "most_heads": max(1, items // 8)}
    return Cell(items=items, d_model=d_model, edges=items, key_budget=key_budget, **(about | (given if reached else {}) | more))


def curves(items: int, d_model: int, lines: dict[int, dict[int, float]], seeds: int = 5) -> Curves:
    """heads -> key budget -> F1, the same for every seed."""
    points = [Point(h, budget, (f1,) * seeds) for h, line in lines.items() for budget, f1 in line.items()]
    return Curves(items, d_model, 0.99, tuple(points))


def found(
    figure: str,
    cells: Sequence[Cell] = (),
    lines: Sequence[Curves] = (),
    *,
    seeds: int = 5,
    failed: Sequence[Size] = (),
    left_out: tuple[tuple[Size, str], ...] = (),
) -> Measured:
    """A figure that came to these cells and curves."""
    sizes = tuple(dict.fromkeys([*((c.items, c.d_model) for c in cells), *((c.items, c.d_model) for c in lines)]))
    sweep = Sweep(cells=sizes, seeds=seeds, left_out=left_out)
    return Measured(
        figure=Figure(figure, f"Title of {figure}", {"short": sweep}),
        tier="short",
        sweep=sweep,
        cells=tuple(cells),
        curves=tuple(lines),
        failed_cells=frozenset(failed),
        run_ids=frozenset({"r1", "r2"}),
        trained=frozenset({"r2"}),
    )
