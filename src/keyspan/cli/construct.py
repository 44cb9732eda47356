"""`keyspan construct`: explicit weights for a graph, certified at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from keyspan.cli.options import current


def construct(
    items: int = typer.Option(..., help="m, the number of items."),
    d_model: int = typer.Option(..., help="Width of the item vectors."),
    method: str = typer.Option("best", help="best, or a construction by name (docs/constructions.md lists them)."),
    heads: int | None = typer.Option(None, help="Number of heads; without it, the best number is looked for."),
    d_key: int | None = typer.Option(None, help="Width of a head; without it, the smallest that is exact is looked for."),
    graph: str = typer.Option("permutation", help="Family, or a .csv/.tsv/.npz file of source,target."),
    edges: int | None = typer.Option(None, help="m', for families that leave it open (default: as many as items)."),
    degree: int | None = typer.Option(None, help="Degree of a regular or out-regular graph (default 2)."),
    exponent: float | None = typer.Option(None, help="Of a power-law graph (default 1)."),
    loops: bool = typer.Option(True, help="Whether an item may point to itself."),
    embeddings: str = typer.Option("gaussian", help="one-hot|gaussian|sign|sparse|clustered, or a .npy/.safetensors file."),
    ones: int | None = typer.Option(None, help="Ones per sparse row (default d_model / 8)."),
    clusters: int | None = typer.Option(None, help="Centres of clustered rows (default items / 8)."),
    correlation: float | None = typer.Option(None, help="Mean cosine within a cluster (default 0.5)."),
    out: Path | None = typer.Option(None, help="Write the weights to this .safetensors file."),
) -> int:
    """Explicit weights for a graph, without training: the smallest key budget that is exact, or one size, judged."""
    from keyspan.advice.construct import construct as build
    from keyspan.cli import asking, show
    from keyspan.problems.relations import Relations
    from keyspan.runners import inputs
    from keyspan.runners.construct_search import Found

    lab = asking.lab()
    asked = inputs.graph_from(graph, lab.contents, items=items, edges=edges, degree=degree, exponent=exponent, loops=loops)
    rows = inputs.embeddings_from(
        embeddings, lab.contents, items=items, d_model=d_model, ones=ones, clusters=clusters, correlation=correlation
    )
    problem = Relations(items=items, d_model=d_model, graph=asked, embeddings=rows)

    def told(found: Found) -> None:
        needs = "none" if found.key_budget is None else f"D_K {found.key_budget}"
        show.note(f"{found.method}: {needs} (sizes tried: {found.tried}, {found.seconds:.1f} s)")

    built = build(problem, method=method, heads=heads, d_key=d_key, seed=current.seed, out=out, lab=lab, told=told)
    data = built.to_dict()
    if current.json:
        show.print_json(data)
    else:
        _print(data)
    return 0


def _print(data: dict[str, Any]) -> None:
    from keyspan.cli import show

    out = show.console()
    if len(data["needed"]) > 1:
        keys = ("method", "key_budget", "heads", "d_key", "margin", "proven", "tried", "seconds")
        rows = [[n[k] for k in keys] for n in data["needed"] if n["key_budget"] is not None]
        columns = ["method", "D_K", "heads", "d_key", "margin", "proven", "sizes tried", "seconds"]
        out.print(show.table("Smallest exact key budget", columns, rows))
        for n in data["needed"]:
            if n["key_budget"] is None:
                out.print(f"no {n['method']}: {n['note']}")
    heads = f"{data['heads']} head{'s' if data['heads'] > 1 else ''}"
    out.print(f"method     {data['method']}: {heads} x d_key {data['d_key']} = D_K {data['key_budget']}")
    how = "proven, and computed" if data["proven"] and data["exact"] else "computed"
    out.print(f"exact      {show.number(data['exact'])} ({how}), margin {show.number(data['margin'], 6)}")
    out.print(f"F1         {show.number(data['f1'], 6)} at threshold {show.number(data['threshold'], 6)}")
    for name, value in data["predicted"].items():
        if value is not None:
            out.print(f"predicted  {name} {show.number(value, 6)}")
    for condition in data["conditions"]:
        out.print(f"{'holds' if condition['holds'] else 'fails':11}{condition['what']}: {show.number(condition['value'], 6)}")
    out.print(f"beside it  law {data['law']:.1f} (m' ln m' / d), lower bound {data['lower_bound']:.2f} (Warren)")
    if data["path"]:
        out.print(f"wrote      {data['path']}")
