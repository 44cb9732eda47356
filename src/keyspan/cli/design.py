"""`keyspan design`: how many heads, what d_key. Instant, without torch."""

from __future__ import annotations

from typing import Any

import typer

from keyspan.cli.options import current


def design(
    items: int = typer.Option(..., help="m, the number of items."),
    d_model: int = typer.Option(..., help="Width of the item vectors."),
    edges: int | None = typer.Option(None, help="m' (default: as many as items)."),
    graph: str | None = typer.Option(None, help="Family, or a .csv/.tsv/.npz file of source,target, instead of --edges."),
    degree: int | None = typer.Option(None, help="Degree of a regular or out-regular graph (default 2)."),
    target: float = typer.Option(0.99, help="F1 that counts as held."),
) -> int:
    """How many heads and what d_key a layer needs to hold a graph. So far from the law and the lower bound alone."""
    from keyspan.advice.design import design as advise
    from keyspan.cli import show
    from keyspan.errors import require
    from keyspan.files.contents import Contents
    from keyspan.files.graphs import read_graph
    from keyspan.runners import inputs

    is_file = bool(graph) and inputs.looks_like_file(str(graph))
    require(degree is None or (bool(graph) and not is_file), "`--degree` with a graph family only", degree, "Drop --degree.")
    if graph and is_file:
        require(edges is None, "only one of `--edges` and a graph file", "both", "Drop --edges.")
        answer = advise(items=items, d_model=d_model, edge_list=read_graph(graph), target=target)
    elif graph:
        family = inputs.graph_from(graph, Contents(None), items=items, edges=edges, degree=degree)
        answer = advise(items=items, d_model=d_model, graph=family, target=target)
    else:
        answer = advise(items=items, d_model=d_model, edges=edges, target=target)
    data = answer.to_dict()
    if current.json:
        show.print_json(data)
    else:
        _print(data)
    return 0


def _print(data: dict[str, Any]) -> None:
    from keyspan.cli import show

    out = show.console()
    budget = data["key_budget"]
    out.print(f"use        {data['heads']} heads x d_key {data['d_key']} = D_K {budget['estimate']}  (basis: {data['basis']})")
    out.print(f"likely     D_K {budget['low']} to {budget['high']}: {data['interval_basis']}")
    out.print(
        f"certain    D_K {budget['construction']}: one head per edge, for unit rows of which no two are equal or opposite"
    )
    out.print(f"necessary  D_K {show.number(budget['lower_bound'], 2)} at least, to hold every such graph exactly (Warren)")
    out.print(f"cost       {data['parameters']} parameters, {show.number(data['bits_per_parameter'], 3)} bits in each")
    said = [[b["name"], _amount(b), b["status"], b["validity"]] for b in data["bounds"]]
    out.print(show.table("What theory says", ["bound", "says", "status", "where it holds"], said, left=4))
    keys = ("heads", "d_key", "key_budget", "parameters", "solver_capacity", "feasible")
    rows = [[a[k] for k in keys] for a in data["alternatives"]]
    columns = ["heads", "d_key", "D_K", "parameters", "a solver needs D_K", "enough for it"]
    out.print(show.table("Alternatives at the law's budget (the solver's need is conjectured)", columns, rows, left=0))
    for text in data["notes"]:
        out.print(f"note       {text}")


def _amount(bound: dict[str, Any]) -> str:
    """`D_K 120.2`, `4 heads`, or that none will do."""
    value = bound["value"]
    if bound["about"] == "heads":
        return "no number of heads" if value is None else f"{value:.0f} head{'s' * (value != 1)}"
    return "no D_K" if value is None else f"D_K {value:.1f}"
