"""`keyspan ledger`: every claim of the papers, measured or not, holds or not."""

from __future__ import annotations

from typing import Any

import typer

from keyspan.cli.options import current


def ledger(
    paper: str | None = typer.Option(None, help="Only this paper: adler, mahdavi, harma."),
    claim: str | None = typer.Option(None, help="Only this claim, by its id."),
) -> int:
    """Every claim of the papers with what the store says of it. Nothing is trained."""
    from keyspan.cli import show
    from keyspan.papers.ledger import ledger as kept

    data = kept(store=current.store, paper=paper, claim=claim, seed=current.seed).to_dict()
    if current.json:
        show.print_json(data)
    elif claim is not None:
        _print_one(data["claims"][0])
    else:
        _print(data)
    return 0


def _print(data: dict[str, Any]) -> None:
    from keyspan.cli import show

    out = show.console()
    for name in dict.fromkeys(c["paper"] for c in data["claims"]):
        rows = [
            [c["id"], f"{c['test']} {show.bound(c['threshold'])}", _measured(c), c["status"], c["figure"] and _by(c)]
            for c in data["claims"]
            if c["paper"] == name
        ]
        out.print(show.table(f"Claims of {name}", ["id", "holds if", "measured [95%]", "status", "by"], rows, left=5))
    counts = ", ".join(f"{n} {status}" for status, n in data["counts"].items())
    out.print(f"{len(data['claims'])} claims: {counts}; from {data['store']}, {len(data['run_ids'])} runs")
    out.print("`keyspan ledger --claim ID` says how one is decided, and by which command it is measured")


def _measured(claim: dict[str, Any]) -> str:
    from keyspan.cli import show

    if claim["measured"] is None:
        return "-"
    if claim["low"] is None or claim["low"] == claim["high"] == claim["measured"]:
        return show.number(claim["measured"], 2)
    return f"{show.number(claim['measured'], 2)} [{show.number(claim['low'], 2)}, {show.number(claim['high'], 2)}]"


def _by(claim: dict[str, Any]) -> str:
    return " at ".join(part for part in (claim["figure"], claim["tier"]) if part)


def _print_one(claim: dict[str, Any]) -> None:
    from keyspan.cli import show

    out = show.console()
    lines = {
        "claim": claim["claim"],
        "says": f"{claim['paper']}, {claim['source']}; expected: {claim['expected']}",
        "check": f"{claim['statistic']} {claim['test']} {show.bound(claim['threshold'])}",
        "interval": claim["interval"],
        "power": claim["power"],
        "measured": _measured(claim),
        "by": _by(claim),
        "rests on": f"{len(claim['run_ids'])} runs" if claim["run_ids"] else "",
        "status": claim["status"],
        "reason": claim["reason"],
        "proxy": claim["proxy"],
        "command": claim["command"],
    }
    for name, text in lines.items():
        if text:
            out.print(f"{name:9} {text}", soft_wrap=True)
