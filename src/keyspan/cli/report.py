"""`keyspan report`: what a store comes to, in one HTML file."""

from __future__ import annotations

from pathlib import Path

import typer

from keyspan.cli.options import current


def report(out: Path = typer.Option(Path("report.html"), help="The file to write; it needs nothing else.")) -> int:
    """Summary, ledger, figures with their data, methods and records in one file. Nothing is trained."""
    from keyspan.cli import show
    from keyspan.views.report import report as write

    found = write(out, store=current.store, seed=current.seed)
    data = found.to_dict()
    if current.json:
        show.print_json(data)
        return 0
    figures = ", ".join(f"{f['figure']} at {f['tier']}" for f in data["figures"]) or "none"
    show.console().print(f"{data['runs']} runs; figures: {figures}")
    show.console().print("claims: " + ", ".join(f"{n} {status}" for status, n in data["counts"].items()))
    show.note(f"wrote {data['path']}")
    return 0
