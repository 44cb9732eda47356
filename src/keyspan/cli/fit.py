"""`keyspan fit`: laws fitted to what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from keyspan.cli.options import current

app = typer.Typer(help="Fit a law to measured cells.")


@app.command("law")
def law(
    source: Path | None = typer.Option(None, "--from", help="A .csv of cells, or a .jsonl of records (default: the store)."),
    recipe: str = typer.Option("gradient", help="Only cells measured with this recipe."),
    target: float = typer.Option(0.99, help="Only cells of this target F1."),
    graph: str | None = typer.Option(None, help="Only this graph family."),
    embeddings: str | None = typer.Option(None, help="Only these embeddings."),
) -> int:
    """D_K* = c m' ln m' / d and its rivals, on the cells that reached their target."""
    from keyspan.cli import show
    from keyspan.runners.cells import fit

    result = fit("law", source=source, store=current.store, recipe=recipe, target=target, graph=graph, embeddings=embeddings)
    data = result.to_dict()
    if current.json:
        show.print_json(data)
    else:
        _print(data)
    return 0


@app.command("design")
def design(
    source: Path | None = typer.Option(None, "--from", help="A .csv of cells, or a .jsonl of records (default: the store)."),
    recipe: str = typer.Option("gradient", help="Only cells measured with this recipe."),
    target: float = typer.Option(0.99, help="Only cells of this target F1."),
    out: Path | None = typer.Option(None, help="Write the law here (default: beside the store, where `keyspan design` looks)."),
) -> int:
    """The law that `keyspan design` answers from, fitted to the store's cells and to those that come with keyspan."""
    from keyspan.cli import show
    from keyspan.runners import design_law

    found = design_law.fit_design_law(source=source, store=current.store, recipe=recipe, target=target)
    data = design_law.write_law(found, out or design_law.path_beside(current.store)).to_dict()
    if current.json:
        show.print_json(data)
        return 0
    console = show.console()
    console.print(f"law        {found.law.formula}")
    console.print(f"cells      {data['cells']} of {data['sizes']} sizes, {data['own']} of them from {data['source']}")
    console.print(
        f"unseen     sizes: median error {data['error']:.1%}; {data['covered']:.0%} of their cells inside their 90% interval"
    )
    for gone in data["left_out"]:
        console.print(f"left out   {gone['cell']}: {gone['reason']}")
    console.print(f"fit        {data['fit_id']}, written to {data['path']}")
    return 0


@app.command("ecm")
def ecm(
    source: Path | None = typer.Option(None, "--from", help="A .csv of cells, or a .jsonl of records (default: the store)."),
    regime: str = typer.Option("saturated", help="saturated|budgeted: they are never mixed."),
) -> int:
    """How many sequences a decoder recites, as a law of its heads, width and length: the published one and its rivals."""
    from keyspan.cli import show
    from keyspan.runners.sequence_fits import fit_sequences

    data = fit_sequences(source=source, store=current.store, regime=regime).to_dict()
    if current.json:
        show.print_json(data)
    else:
        _print_ecm(data)
    return 0


def _print_ecm(data: dict[str, Any]) -> None:
    from keyspan.cli import show

    out = show.console()
    models = [data, *data["rivals"]]
    rows = []
    for m in models:
        splits = {split["what"]: show.interval(split["mape"], 3) for split in m["held_out"]}
        held = [splits.get(what, "-") for what in ("heads", "d_model", "length")]
        rows.append([m["model"], _parameters(m), show.number(m["mape"]), show.number(m["mape_held_out"]), *held])
    title = (
        f"Laws of {data['regime']} cells, {data['cells_used']} of them, the best on unseen ones first (errors are fractions)"
    )
    columns = ["law", "constants [95%]", "error", "held out", "most heads", "widest", "longest"]
    out.print(show.table(title, columns, rows, left=2))
    for m in models:
        out.print(f"{m['model']}: C = {m['formula']} ({m['origin']})" + (f"; {m['note']}" if m["note"] else ""))
    for gone in data["left_out"]:
        out.print(f"left out   {gone['cell']}: {gone['reason']}")
    out.print(f"fit        {data['fit_id']}")


def _print(data: dict[str, Any]) -> None:
    from keyspan.cli import show

    out = show.console()
    cells = [[c[k] for k in ("items", "d_model", "edges", "graph", "key_budget", "predicted")] for c in data["cells"]]
    shares = [f"{c['residual']:+.0%}" for c in data["cells"]]
    columns = ["items", "d_model", "edges", "graph", "D_K*", "fitted", "D_K* / fitted - 1"]
    rows = [[*row[:5], show.number(row[5], 1), share] for row, share in zip(cells, shares, strict=True)]
    out.print(show.table(f"Cells of {data['source']}, recipe {data['recipe']}, F1 {data['target']:g}", columns, rows, left=0))
    models = [data, *data["rivals"]]
    table = [
        [m["formula"], _parameters(m), *(show.number(m[k]) for k in ("mape", "mape_held_out", "r2", "aic"))] for m in models
    ]
    titles = ["D_K* =", "parameters [95%]", "error", "held out", "R² of ln D_K*", "AIC"]
    out.print(show.table("The law and its rivals (errors are fractions)", titles, table, left=2))
    for model in models:
        if model["note"]:
            out.print(f"{model['model']}: {model['note']}")
    if data["exponent"]:
        out.print(f"exponent   {show.interval(data['exponent'], 2)}  of the law itself; 1 where D_K* is proportional to it")
    for gone in data["left_out"]:
        out.print(f"left out   {gone['cell']}: {gone['reason']}")
    out.print(f"fit        {data['fit_id']}")


def _parameters(model: dict[str, Any]) -> str:
    from keyspan.cli import show

    return "\n".join(f"{name} {show.interval(value, 2)}" for name, value in model["parameters"].items()) or "-"
