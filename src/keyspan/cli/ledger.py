"""`keyspan ledger`: every claim of the papers, measured or not, holds or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from keyspan.cli.options import current
from keyspan.errors import BadInput

BEST = 3  # cells of a problem that are printed; --json has all


def ledger(
    paper: str | None = typer.Option(None, help="Only this paper: adler, mahdavi, harma."),
    claim: str | None = typer.Option(None, help="Only this claim, by its id."),
    out: list[Path] = typer.Option([], help="Write the ledger: FILE.csv, or FILE.md, between its marks if it exists."),
    figure: Path | None = typer.Option(None, help="Draw the bits of all problems on one axis: NAME.svg, .png, .csv, .pdf."),
) -> int:
    """Every claim of the papers with what the store says of it. Nothing is trained."""
    from keyspan.cli import show
    from keyspan.papers.ledger import ledger as kept

    if figure is not None and claim is not None:
        raise BadInput("`--figure` must go with the whole ledger, but got `--claim` too. Drop one.")
    if out:
        from keyspan.views.ledger_table import check_out

        for path in out:
            check_out(path)
    found = kept(store=current.store, paper=paper, claim=claim, seed=current.seed)
    data = found.to_dict()
    if current.json:
        show.print_json(data)
    elif claim is not None:
        _print_one(data["claims"][0])
    else:
        _print(data)
    if out:
        from keyspan.views.ledger_table import save_table

        for path in out:
            show.note(f"wrote {save_table(data, path)}")
    if figure is not None:
        from keyspan.views.bits import save_bits

        for path in save_bits(found.bits, figure):
            show.note(f"wrote {path}")
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
    _print_bits(data["bits"])
    counts = ", ".join(f"{n} {status}" for status, n in data["counts"].items())
    out.print(f"{len(data['claims'])} claims: {counts}; from {data['store']}, {len(data['run_ids'])} runs")
    out.print("`keyspan ledger --claim ID` says how one is decided, and by which command it is measured")


def _print_bits(rows: list[dict[str, Any]]) -> None:
    """The best cells of every problem."""
    from keyspan.cli import show

    if not rows:
        return
    kinds = list(dict.fromkeys(row["problem"] for row in rows))
    best = [row for kind in kinds for row in [r for r in rows if r["problem"] == kind][:BEST]]
    cells = [[r["cell"], r["recipe"], r["level"], _per(r), show.number(r["bound"], 1), r["seeds"]] for r in best]
    title = f"Bits per parameter: the best {BEST} cells of every problem, of {len(rows)}"
    columns = ["cell", "recipe", "level", "bits per parameter [95%]", "bound", "seeds"]
    show.console().print(show.table(title, columns, cells, left=3))


def _per(row: dict[str, Any]) -> str:
    from keyspan.cli import show

    names = ("per_parameter", "low", "high")
    return "{} [{}, {}]".format(*(show.number(row[name], 2) for name in names))


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
