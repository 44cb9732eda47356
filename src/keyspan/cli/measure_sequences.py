"""`keyspan measure sequences`: how many sequences a decoder recites."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from keyspan.cli.measure import app
from keyspan.cli.options import current


@app.command("sequences")
def sequences(
    heads: int = typer.Option(..., help="H, the number of heads."),
    length: int = typer.Option(..., help="N, tokens of a sequence."),
    d_model: int = typer.Option(..., help="B, the width of token vectors."),
    d_head: int = typer.Option(0, help="Width of a head (default d_model / heads, rounded up)."),
    vocab: int | None = typer.Option(None, help="V, tokens there are (default 64; a file's own)."),
    file: Path | None = typer.Option(None, help="Recite this: a text, or a .tsv/.csv with a sequence a line."),
    tokenizer: str | None = typer.Option(None, help="Of a file: chars|bytes|words|ids."),
    library: int = typer.Option(0, help="L, sequences in the library, or the most (default three times what may be held)."),
    prompt: int = typer.Option(2, help="k, tokens that are given."),
    source: str = typer.Option("uniform", help="uniform|negbin|zipf|markov|triplets|walks."),
    prefixes: str = typer.Option("", help="distinct|drawn: whether prompts may repeat (default: the source's)."),
    exponent: float | None = typer.Option(None, help="Of zipf (default 1), or of a power-law graph."),
    spread: float | None = typer.Option(None, help="Of markov (default 2): how uneven its rows are."),
    relations: int | None = typer.Option(None, help="Kinds of edges of triplets (default 1)."),
    graph: str | None = typer.Option(None, help="Of triplets and walks: a family, or a file of source,target."),
    edges: int | None = typer.Option(None, help="Edges of the graph, where its family leaves that open."),
    degree: int | None = typer.Option(None, help="Degree of a regular or out-regular graph (default 2)."),
    measure: str | None = typer.Option(None, help="ride|ladder|literal (default: ride; ladder where budgeted)."),
    regime: str = typer.Option("saturated", help="saturated|budgeted: steps enough, or one budget for all widths."),
    layers: int = typer.Option(1, help="Blocks."),
    attention: str = typer.Option("softmax", help="softmax|linear|window|sparse."),
    window: int | None = typer.Option(None, help="Tokens that window and sparse attention see at once."),
    activation: str = typer.Option("gelu", help="Of the feed-forward: gelu|relu|silu|tanh|softmax."),
    ff: str = typer.Option("trained", help="The feed-forward: trained|frozen|absent."),
    positions: str = typer.Option("learned", help="learned|sinusoidal|rotary."),
    norm: str = typer.Option("pre", help="none|pre|post|final."),
    tied: bool = typer.Option(False, help="One table for tokens and output."),
    seeds: int = typer.Option(3, help="Libraries measured."),
    steps: int | None = typer.Option(None, help="Training steps (default: saturated 4000 and twice that, budgeted 400)."),
    doublings: int = typer.Option(1, help="Of the steps, at most, while that moves the capacity by 2% (saturated)."),
    batch: int | None = typer.Option(None, help="Sequences a step (default: a fifth of what may be held; budgeted 32)."),
    arithmetic: str = typer.Option("fp32", help="Of training: fp32|fp64, on a GPU also tf32. Judged in fp64 always."),
    jobs: int | None = typer.Option(None, help="Worker processes (default: one a core, one for a GPU)."),
    hand_out: Path | None = typer.Option(None, help="Write the questions here for keyspan.lab.worker; train nothing."),
) -> int:
    """The number of sequences that a decoder recites (MAC), and how sure that is."""
    from keyspan.cli import asking, show
    from keyspan.errors import require
    from keyspan.files.contents import Contents
    from keyspan.runners import inputs
    from keyspan.runners.sequences import answered, ask_sequences

    require(1 <= doublings <= 8, "`1 <= --doublings <= 8`", doublings, "Try 2.")
    if hand_out is not None and not current.dry_run:
        contents = Contents(hand_out.parent / "files")
    else:
        contents = Contents(None) if current.dry_run else asking.lab().contents
    problem = inputs.sequences_from(
        contents,
        file=file,
        tokenizer=tokenizer,
        length=length,
        vocabulary=vocab,
        prompt=prompt,
        library=library,
        source=source,
        prefixes=prefixes,
        exponent=exponent,
        spread=spread,
        relations=relations,
        graph=graph,
        edges=edges,
        degree=degree,
    )
    given: dict[str, Any] = {
        "heads": heads,
        "d_model": d_model,
        "d_head": d_head,
        "layers": layers,
        "attention": attention,
        "window": window,
        "activation": activation,
        "ff": ff,
        "positions": positions,
        "norm": norm,
        "tied": tied,
        "measure": measure,
        "regime": regime,
        "seeds": seeds,
        "seed": current.seed,
        "steps": steps,
        "batch": batch,
        "arithmetic": arithmetic,
    }
    asked = ask_sequences(problem, contents=contents, **given)
    if current.dry_run:
        return asking.dry_run(list(asked.questions), jobs)
    if hand_out is not None:
        return asking.hand_out(list(asked.questions), hand_out)
    with asking.bars() as bars:
        result = answered(asked, asking.lab(jobs, watcher=bars), doublings, given)
    data = result.to_dict()
    if current.json:
        show.print_json(data)
    else:
        _print(data)
    return 3 if result.failed else 0


def _print(data: dict[str, Any]) -> None:
    from keyspan.cli import show

    out = show.console()
    names = ("library", "seed", "steps", "recited", "shown", "stored_bits", "data_ceiling", "status")
    rows = [[p[name] for name in names] for p in data["probes"]]
    problem, decoder = data["problem"], data["instrument"]
    what = f"N {problem['length']}, V {problem['vocabulary']}, prompt {problem['prompt']}, {problem['source']['name']}"
    how = f"H {decoder['heads']}, B {decoder['d_model']}, {show.counted(decoder['layers'], 'layer')}"
    out.print(show.table(f"Recited: {what}; {how}; {data['measure']}, {data['regime']}", names, rows, left=0))
    capacity = data["capacity"]
    interval = {"estimate": capacity["mac"], "low": capacity["low"], "high": capacity["high"]}
    out.print(
        f"capacity   {show.interval(interval, 1)} sequences (MAC), {show.number(capacity['mls'], 0)} without an error (MLS)"
    )
    if data["moved"] is not None:
        out.print(f"steps      {data['steps']}; twice the steps moved it by {data['moved']:+.1%}: {data['status']}")
    out.print(f"ceiling    {data['data_ceiling']:.0f} of the data" + (", which limits it" if data["limited_by"] else ""))
    stored, recited = (show.number(data[k], 2) for k in ("bits_per_parameter", "recited_bits_per_parameter"))
    out.print(f"bits       {stored} stored per parameter, {recited} recited; {data['parameters']} parameters")
    out.print(f"interval   {data['interval_method']}")
    if data["failed"]:
        out.print(f"{show.counted(data['failed'], 'member')} failed; see their status with --json")
    out.print(f"trained now {data['trained_now']} of {len(data['run_ids'])} members")
