"""`keyspan certify`: the exact verdict on any weights."""

from __future__ import annotations

from pathlib import Path

import typer

from keyspan.cli.options import current


def certify(
    weights: Path = typer.Argument(..., help="safetensors with w_query, w_key, bias and perhaps embeddings, edges."),
    graph: str | None = typer.Option(None, help="A .csv/.tsv/.npz file of source,target."),
    embeddings: str | None = typer.Option(None, help="A .npy/.safetensors file of item vectors."),
) -> int:
    """What these weights hold, exactly: F1, the best threshold, the margin, the worst edge and the worst non-edge."""
    from keyspan.advice.certify import certify as judge_weights
    from keyspan.cli import show

    data = judge_weights(weights, graph=graph, embeddings=embeddings).to_dict()
    if current.json:
        show.print_json(data)
        return 0
    out = show.console()
    for key in ("exact", "context_robust", "f1", "f1_best", "threshold", "threshold_best", "margin"):
        out.print(f"{key:15}{show.number(data[key], 6)}")
    for key in ("min_edge", "max_nonedge"):
        if data[key]:
            out.print(f"{key:15}{data[key]['score']:.6f}  at {data[key]['source']} -> {data[key]['target']}")
    return 0
