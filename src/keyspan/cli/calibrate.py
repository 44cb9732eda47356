"""`keyspan calibrate`: the laboratory measures a capacity that is known exactly."""

from __future__ import annotations

from typing import Any

import typer

from keyspan.cli.options import current


def calibrate(
    dimension: int = typer.Option(16, help="d; Cover's capacity is 2d."),
    seeds: int = typer.Option(200, help="Random labelings at every number of examples."),
    jobs: int | None = typer.Option(None, help="Worker processes (default: one a core, one for a GPU)."),
) -> int:
    """Cover's capacity of a linear unit, 2d, by the same fleet, search, judge, store and interval as every other."""
    from keyspan.cli import asking, show
    from keyspan.runners.measure import CalibrateResult
    from keyspan.runners.questions import calibration_questions

    questions = calibration_questions(dimension, seeds=seeds, seed=current.seed)
    if current.dry_run:
        return asking.dry_run(questions, jobs)
    solver, gradient = asking.ask(questions, jobs)
    result = CalibrateResult(dimension, questions[0], solver, gradient)
    data = result.to_dict()
    if current.json:
        show.print_json(data)
    else:
        _print(data)
    return 3 if data["failed"] else 0


def shortfall(part: float) -> str:
    """The gradient's shortfall in words. It fits nothing that the solver cannot, so above it only chance can put it."""
    if part < 0:
        return f"comes out {-part:.0%} higher, by chance: it has half the labelings, so raise --seeds"
    return f"falls short by {part:.0%}"


def _print(data: dict[str, Any]) -> None:
    from keyspan.cli import show

    out = show.console()
    rows = [
        [p["recipe"], p["examples"], p["fraction"], p["low"], p["high"], p["exact"], p["of"], p["status"]]
        for p in data["probes"]
    ]
    title = f"Fraction of random labelings fitted by a linear unit in {data['dimension']} dimensions ({data['seeds']} seeds)"
    out.print(show.table(title, ["recipe", "examples", "fitted", "low", "high", "Cover", "of", "status"], rows))
    measured = {"estimate": data["measured"], "low": data["low"], "high": data["high"]}
    out.print(f"known     {data['known']:.0f}  (2d, Cover 1965)")
    verdict = "covers it" if data["covered"] else "DOES NOT COVER IT (chance, once in 20?): ask again with another --seed"
    out.print(f"measured  {show.interval(measured, 2)}  which {verdict}")
    out.print(f"interval  {data['interval_method']}")
    if data["gradient_shortfall"] is not None:
        out.print(f"gradient  {show.interval(data['gradient'], 2)}  {shortfall(data['gradient_shortfall'])}")
    out.print(f"trained now {data['trained_now']} of {len(data['run_ids'])} members")
