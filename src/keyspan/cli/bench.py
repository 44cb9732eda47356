"""`keyspan bench`: side-by-side speeds, as ratios."""

from __future__ import annotations

from typing import Any

import typer

from keyspan.cli.options import current


def bench(
    quick: bool = typer.Option(False, "--quick", help="About a minute on two cores."),
    case: list[str] = typer.Option([], help="ITEMSxD_MODELxHEADSxD_KEY, as often as you like; default four standard cells."),
    seconds: float | None = typer.Option(None, help="Of one measurement (default 2, quick 0.4)."),
    rounds: int | None = typer.Option(None, help="How often all sides are measured in turns (default 9, quick 3)."),
    workers: int | None = typer.Option(None, help="Processes of the fleet's side on a CPU (default: one a core)."),
    members: int | None = typer.Option(None, help="Members in a fleet (default: as many as keep the device busy)."),
    growth: bool = typer.Option(True, help="Measure how time grows with items, d_model, heads and members."),
    arithmetic: str = typer.Option("fp32", help="fp32, fp64; on a GPU also tf32, bf16."),
) -> int:
    """The fleet beside one model at a time in PyTorch, with the machine's ceiling measured in the same run."""
    from keyspan.bench import suite
    from keyspan.cli import show

    plan = suite.plan(
        case,
        current.device,
        quick=quick,
        seconds=seconds,
        rounds=rounds,
        workers=workers,
        members=members,
        growth=growth,
        seed=current.seed,
        arithmetic=arithmetic,
    )
    data = suite.dry(plan) if current.dry_run else suite.bench(plan, tell=show.note)
    if current.json:
        show.print_json(data)
    elif current.dry_run:
        show.console().print(f"{', '.join(data['cases'])}: {data['members']} members, about {data['seconds']:.0f} s")
    else:
        _print(data)
    return 0 if data.get("agrees", True) else 1


def _print(data: dict[str, Any]) -> None:
    from keyspan.bench.show import lines
    from keyspan.cli import show

    out = show.console()
    for line in lines(data):
        out.print(line, soft_wrap=True)
