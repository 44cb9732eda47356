"""`keyspan certify`: the exact verdict on any weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from keyspan.cli.options import current


def certify(
    weights: Path = typer.Argument(..., help="safetensors with w_query, w_key, bias and perhaps embeddings, edges."),
    graph: str | None = typer.Option(None, help="A .csv/.tsv/.npz file of source,target."),
    embeddings: str | None = typer.Option(None, help="A .npy/.safetensors file of item vectors."),
    context: int | None = typer.Option(None, help="Keys in a context: asks for the inverse temperature of a softmax."),
    eps: float = typer.Option(0.01, help="With --context, --beta: the share of attention that may go astray."),
    beta: float | None = typer.Option(None, help="An inverse temperature: asks for the longest contexts it is certain for."),
    precision: bool = typer.Option(False, "--precision", help="Ask how few bits a weight may have."),
    one_head: bool = typer.Option(
        False, "--one-head", help="Ask whether any single head, however wide, could hold the graph (d_model up to 24)."
    ),
) -> int:
    """What these weights hold, exactly: F1, margin, worst edge, worst non-edge, and whether that is proved of real numbers."""
    from keyspan.advice.certify import certify as judge_weights
    from keyspan.cli import show

    found = judge_weights(
        weights,
        graph=graph,
        embeddings=embeddings,
        context=context,
        eps=eps,
        beta=beta,
        precision=precision,
        one_head=one_head,
        device=current.device,
    )
    data = found.to_dict()
    if current.json:
        show.print_json(data)
        return 0
    _print(data, asked=context is not None or beta is not None)
    return 0


def _print(data: dict[str, Any], *, asked: bool) -> None:
    from keyspan.cli import show

    out = show.console()
    for key in ("exact", "proved", "context_robust", "f1", "f1_best", "threshold", "threshold_best", "margin"):
        out.print(f"{key:15}{show.number(data[key], 6)}")
    for key in ("min_edge", "max_nonedge"):
        if data[key]:
            bounds = [str(data["proof"][key][bound] or "-") for bound in ("at_least", "at_most")]
            place = f"{data[key]['score']:.6f}  at {data[key]['source']} -> {data[key]['target']}"
            out.print(f"{key:15}{place}, in exact arithmetic within [{', '.join(bounds)}]")
    found = data["softmax"]
    if found:
        out.print(
            f"softmax        beta {found['aggregate_beta']:.4g} puts {found['aggregate_mass']:.6f} of the attention on the "
            f"targets among {found['context']} keys"
        )
        out.print(
            f"per head       beta {found['per_head_beta']:.4g}, with a null key at the threshold halfway: values arrive to "
            f"within {found['routed_error']:.6f}"
        )
    longest = data["longest_contexts"]
    if longest:
        one, each = ("any" if n is None else f"{n}" for n in (longest["aggregate"], longest["per_head"]))
        out.print(
            f"contexts       at beta {longest['beta']:.4g} an error of {longest['eps']:g} is certain up to {one} keys; "
            f"per head, with a null key, up to {each}"
        )
    elif asked and not found:
        out.print("softmax        no temperature is certain: edges and non-edges are not proven to be apart")
    single = data["one_head"]
    if single:
        bound = show.number(single["gap_at_most"], 3)
        said = "holds the graph, if it is as wide as the model" if single["held"] else "was not found to hold the graph"
        if single["impossible"]:
            said = f"can hold the graph, whatever its width: no gap above {bound} of |W_Q W_K^T|_F ({single['pairs']} pairs)"
        out.print(f"one head       {'none' if single['impossible'] else 'one'} {said}")
    if data["bf16_exact"] is not None:
        few = data["fewest_bits"]
        out.print(f"bits           {'not even 16' if few is None else few} for each weight on a uniform grid")
        for key in ("bf16_exact", "fp16_exact", "fp8_exact", "fp8_e5m2_exact"):
            out.print(f"{key:15}{show.number(data[key])}")
