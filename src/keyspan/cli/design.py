"""`keyspan design`: how many heads, what d_key. Instant, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from keyspan.cli.options import current

if TYPE_CHECKING:
    from keyspan.advice.choosing import Limits
    from keyspan.advice.rows import Rows
    from keyspan.evidence.design_law import DesignLaw


def design(
    items: int | None = typer.Option(None, help="m, the number of items."),
    d_model: int | None = typer.Option(None, help="Width of the item vectors."),
    edges: int | None = typer.Option(None, help="m' (default: as many as items)."),
    graph: str | None = typer.Option(None, help="Family, or a .csv/.tsv/.npz file of source,target, instead of --edges."),
    degree: int | None = typer.Option(None, help="Degree of a regular or out-regular graph (default 2)."),
    embeddings: str | None = typer.Option(
        None, help="Item vectors: a family, .npy or .safetensors; how they are spread counts."
    ),
    target: float = typer.Option(0.99, help="F1 that counts as held."),
    heads_multiple_of: int = typer.Option(1, help="Heads in multiples of this."),
    d_keys: str | None = typer.Option(None, help="Widths to choose from, as 32,64,128."),
    d_key_multiple_of: int = typer.Option(1, help="d_key in multiples of this: 8 or 16 suit matrix units."),
    max_parameters: int | None = typer.Option(None, help="Of W_Q and W_K, at most."),
    cache_bytes: int | None = typer.Option(None, help="Of one item's keys, at most."),
    key_bytes: int = typer.Option(2, help="Bytes of one cached number."),
    gqa_group: int = typer.Option(1, help="Query heads that read one key head."),
    examples: int | None = typer.Option(None, help="T labelled examples, instead of items: a layer that memorises them."),
    context: int | None = typer.Option(None, help="n, tokens of a context, with --examples."),
    classes: int = typer.Option(100, help="Labels there are, with --examples."),
    d_key: int | None = typer.Option(None, help="Width of a head, with --examples (default: the context's length)."),
    contexts: str = typer.Option("random", help="random|fixed|perm, with --examples."),
    sequences: float | None = typer.Option(None, help="C sequences, instead of items: a decoder that recites them."),
    length: int | None = typer.Option(None, help="N, tokens of a sequence, with --sequences or --recite."),
    vocab: int = typer.Option(64, help="Tokens there are, with --sequences."),
    prompt: int = typer.Option(2, help="Tokens that are given, with --sequences."),
    recite: float | None = typer.Option(None, help="Instead: the cheapest decoders that recite so many sequences."),
    law: Path | None = typer.Option(None, help="A law of `keyspan fit design` (default: the store's, else keyspan's own)."),
) -> int:
    """How many heads and what d_key a layer needs to hold a graph: what is likely, what is certain, what is necessary."""
    from keyspan.advice.choosing import Limits
    from keyspan.errors import require

    asked = [name for name, n in (("items", items), ("examples", examples), ("sequences", sequences)) if n is not None]
    require(len(asked) <= 1, "only one of `--items`, `--examples`, `--sequences`", ", ".join(asked), "Ask one by one.")
    if examples is not None:
        from keyspan.cli.design_others import labels

        require(context is not None, "`--context` with `--examples`", None, "Say how many tokens a context has.")
        require(d_model is not None, "`--d-model` with `--examples`", None, "Say how wide tokens are.")
        given = {"examples": examples, "context": context, "d_model": d_model, "classes": classes}
        return labels(given | {"d_key": d_key, "contexts": contexts})
    if sequences is not None:
        from keyspan.cli.design_others import sequences as recited

        require(length is not None, "`--length` with `--sequences`", None, "Say how many tokens a sequence has.")
        return recited(sequences, length or 0, vocab, prompt, max_parameters)
    if recite is not None or length is not None:
        require(recite is not None and length is not None, "`--recite` with `--length`", "one of them", "Give both.")
        require(items is None and d_model is None, "`--recite` without `--items`, `--d-model`", "both", "Ask for one thing.")
        assert recite is not None and length is not None
        return _recital(recite, length, max_parameters)
    fix = "Say how many items, in how many dimensions."
    require(items is not None, "`--items` is given", None, fix)
    require(d_model is not None, "`--d-model` is given", None, fix)
    limits = Limits(
        heads_multiple_of=heads_multiple_of,
        d_keys=_widths(d_keys),
        d_key_multiple_of=d_key_multiple_of,
        parameters=max_parameters,
        cache_bytes=cache_bytes,
        key_bytes=key_bytes,
        gqa_group=gqa_group,
    )
    assert items is not None and d_model is not None
    return _relations(items, d_model, edges, graph, degree, embeddings, target, limits, _law(law))


def _recital(sequences: float, length: int, most: int | None) -> int:
    """Decoders for so many sequences, as `predict ecm --capacity` finds them."""
    from keyspan.cli import predict, show
    from keyspan.runners.sequence_fits import predict_sequences

    data = predict_sequences(capacity=sequences, length=length, budget=most, store=current.store).to_dict()
    if current.json:
        show.print_json(data)
    else:
        predict.show_prediction(data, sequences)
    return 0


def _law(path: Path | None) -> DesignLaw | None:
    """The law of a file, or of the store if one was fitted there; None: keyspan's own."""
    from keyspan.runners import design_law

    return design_law.law_beside(current.store) if path is None else design_law.read_law(path)


def _widths(text: str | None) -> tuple[int, ...]:
    from keyspan.errors import BadInput

    try:
        return () if text is None else tuple(int(part) for part in text.split(","))
    except ValueError:
        raise BadInput(f"`--d-keys` must be whole numbers, as 32,64, but got {text!r:.40}. Correct them.") from None


def _relations(
    items: int,
    d_model: int,
    edges: int | None,
    graph: str | None,
    degree: int | None,
    embeddings: str | None,
    target: float,
    limits: Limits,
    law: DesignLaw | None,
) -> int:
    from keyspan.advice.design import design as advise
    from keyspan.cli import show
    from keyspan.errors import require
    from keyspan.files.contents import Contents
    from keyspan.files.graphs import read_graph
    from keyspan.runners import inputs

    is_file = bool(graph) and inputs.looks_like_file(str(graph))
    require(degree is None or (bool(graph) and not is_file), "`--degree` with a graph family only", degree, "Drop --degree.")
    given: dict[str, Any] = {"items": items, "d_model": d_model, "target": target, "limits": limits, "law": law}
    given["rows"] = None if embeddings is None else _rows(embeddings, items, d_model)
    if graph and is_file:
        require(edges is None, "only one of `--edges` and a graph file", "both", "Drop --edges.")
        given["edge_list"] = read_graph(graph)
    elif graph:
        given["graph"] = inputs.graph_from(graph, Contents(None), items=items, edges=edges, degree=degree)
    else:
        given["edges"] = edges
    data = advise(**given).to_dict()
    if current.json:
        show.print_json(data)
    else:
        _print(data)
    return 0


def _rows(name: str, items: int, d_model: int) -> Rows:
    """A file's vectors, or one draw of a family's."""
    from keyspan.advice.rows import rows_of
    from keyspan.files.arrays import read_array
    from keyspan.files.contents import Contents
    from keyspan.problems import embeddings
    from keyspan.problems.relations import Relations
    from keyspan.runners import inputs

    if inputs.looks_like_file(name):
        return rows_of(read_array(name), d_model)
    spec = inputs.embeddings_from(name, Contents(None), items=items, d_model=d_model)
    problem = Relations(items=items, d_model=d_model, embeddings=spec)
    return rows_of(embeddings.make(problem.embeddings, items, d_model, "p-design", Contents(None)), d_model)


def _print(data: dict[str, Any]) -> None:
    from keyspan.cli import show

    out = show.console()
    budget, cost, law = data["key_budget"], data["cost"], data["law"]
    shared = "" if data["kv_heads"] == data["heads"] else f" on {data['kv_heads']} key heads"
    out.print(
        f"use        {data['heads']} heads{shared} x d_key {data['d_key']} = D_K {cost['key_budget']}  (basis: {data['basis']})"
    )
    out.print(f"likely     D_K {budget['low']} to {budget['high']}, best guess {budget['estimate']}: {data['interval_basis']}")
    out.print(
        f"certain    D_K {budget['construction']}: one head per edge, for unit rows of which no two are equal or opposite; "
        "`keyspan construct` certifies less"
    )
    out.print(f"necessary  D_K {show.number(budget['lower_bound'], 2)} at least, to hold every such graph exactly (Warren)")
    out.print(
        f"cost       {data['parameters']} parameters, {show.number(data['bits_per_parameter'], 3)} bits in each; "
        f"{cost['cache_bytes']} bytes of keys an item; {cost['flops_per_item']} FLOPs an item, {cost['flops_per_pair']} a pair"
    )
    if data["measured"]:
        here = data["measured"]
        ends = f"[{here['low'] or '-'}, {here['high'] or '-'}]"
        out.print(f"measured   D_K* {here['key_budget']} {ends} of this very size ({here['graph']}, {here['seeds']} seeds)")
    out.print(
        f"law        {law['cells']} cells of {law['sizes']} sizes; unseen ones missed by {law['error']:.1%} (median); "
        f"{law['source']}"
    )
    said = [[b["name"], _amount(b), b["status"], b["validity"]] for b in data["bounds"]]
    out.print(show.table("What theory says", ["bound", "says", "status", "where it holds"], said, left=4))
    keys = ("why", "heads", "d_key", "key_budget", "needed", "parameters", "cache_bytes", "solver_capacity")
    rows = [[a[k] for k in keys] for a in data["alternatives"]]
    columns = ["alternative", "heads", "d_key", "D_K", "such heads need D_K", "parameters", "cache bytes", "a solver needs D_K"]
    out.print(show.table("Alternatives (a solver's need is conjectured)", columns, rows, left=1))
    for text in data["notes"]:
        out.print(f"note       {text}")


def _amount(bound: dict[str, Any]) -> str:
    """`D_K 120.2`, `4 heads`, or that none will do."""
    value = bound["value"]
    if bound["about"] == "heads":
        return "no number of heads" if value is None else f"{value:.0f} head{'s' * (value != 1)}"
    return "no D_K" if value is None else f"D_K {value:.1f}"
