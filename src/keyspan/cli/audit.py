"""`keyspan audit`: what a trained checkpoint has, uses and wastes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from keyspan.cli.options import current


def audit(
    folder: Path = typer.Argument(..., help="A folder with config.json and safetensors, sharded or not."),
    relations: Path | None = typer.Option(None, help="Pairs of tokens to look for: CSV/TSV of ids, or of words."),
    mapping: Path | None = typer.Option(None, help="A TOML file that says which tensor is what (docs/audit.md)."),
    layers: str | None = typer.Option(None, help="Only these layers, e.g. 0,5,11 or 0-3 (default: all)."),
    merge_loss: float = typer.Option(0.1, help="Share of a head's scores that merging it may lose."),
    reach: int = typer.Option(4096, help="Distances that rotary positions are averaged over, at most."),
    explain: bool = typer.Option(False, "--explain", help="Say which tensor matched what."),
    spectra: bool = typer.Option(False, "--spectra", help="Put every singular value into the JSON."),
    out: Path | None = typer.Option(None, help="Write figures and a one-page HTML audit into this folder."),
) -> int:
    """What a trained checkpoint has, uses and wastes, layer by layer. Weights are read one layer at a time, without torch."""
    from keyspan.advice.audit import audit as take_apart
    from keyspan.cli import show
    from keyspan.views.audit_page import check_folder, write_audit

    if out is not None:
        check_folder(out)
    found = take_apart(
        folder,
        mapping=mapping,
        relations=relations,
        layers=None if layers is None else _numbers(layers),
        merge_loss=merge_loss,
        reach=reach,
        seed=current.seed,
        explain=explain,
        spectra=spectra,
        told=lambda done, of: show.note(f"layer {done + 1} of {of}") if done < of else None,
    )
    data = found.to_dict()
    if out is not None:
        for path in write_audit(found.with_spectra().to_dict(), out):
            show.note(f"wrote {path}")
    if current.json:
        show.print_json(data)
    else:
        _print(data)
    return 0


def _numbers(text: str) -> list[int]:
    """`0,5,11` or `0-3`."""
    from keyspan.errors import BadInput, shown

    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = first, last if dash else first
        if not all(end.isascii() and end.isdecimal() and len(end) < 6 for end in ends) or int(ends[1]) < int(ends[0]):
            raise BadInput(f"`--layers` must be numbers such as 0,5,11 or 0-3, but got {shown(text)}. Count from 0.")
        found += range(int(ends[0]), int(ends[1]) + 1)
    return found


def _print(data: dict[str, Any]) -> None:
    from keyspan.cli import show

    out, s, e = show.console(), data["summary"], data["embeddings"]
    for m in data["explain"] or ():
        place = "-" if m["layer"] is None else m["layer"]
        said = f"{m['role']} = {m['tensor']} {tuple(m['shape'])} {m['dtype']}"
        out.print(f"layer {place}: {said}" + (f"; {m['columns']}" if m["columns"] else ""), soft_wrap=True)
    out.print(
        f"model      {data['family']} ({data['model_type']}), d_model {data['d_model']}, "
        f"{s['layers']} of {s['of_layers']} layers"
    )
    out.print(f"key budget has {s['key_budget']}, uses {s['used']:.0f} ({100 * s['used_fraction']:.0f}%, by effective rank)")
    out.print(
        f"heads      {s['heads']}, as many as {s['distinct_heads']:.1f} wholly unlike ones; {s['heads_after_merging']} after "
        f"merges that lose at most {100 * s['merge_loss']:.0f}%"
    )
    out.print(
        f"tokens     {e['items']}, spread like {e['dimension']:.0f} of {e['d_model']} dimensions "
        f"(stable rank {e['stable_rank']:.1f}, {100 * e['common']:.0f}% common to all)"
    )
    out.print(_layers(data))
    if data["relations"] is not None:
        _print_relations(data, out)
    for text in data["notes"]:
        out.print(f"note       {text}")


def _layers(data: dict[str, Any]) -> Any:
    """The table of layers."""
    from keyspan.cli import show

    related = data["relations"] is not None
    rows = []
    for layer in data["layers"]:
        c = layer["capacity"]
        rows.append(
            [
                layer["layer"], layer["heads"], layer["kv_heads"], layer["d_key"], layer["key_budget"], f"{layer['used']:.0f}",
                layer["used_fraction"], f"{layer['distinct_heads']:.1f}", layer["overlap"]["query"],
                f"{c['estimate']:.0f}" + ("*" if c["out_of_range"] else ""), f"{c['low']:.0f}-{c['high']:.0f}",
                *([layer["relations"]["maximum"]["f1"], layer["relations"]["maximum"]["f1_high"]] if related else []),
            ]
        )  # fmt: skip
    columns = ["layer", "heads", "kv", "d_key", "has", "uses", "share", "unlike", "overlap", "capacity", "low-high"]
    title = "Layers (capacity in relations, by the design law; *: beyond the sizes it was measured on)"
    return show.table(title, columns + (["F1 of pairs", "chance <"] if related else []), rows, left=0)


def _print_relations(data: dict[str, Any], out: Any) -> None:
    """Which heads recover the given pairs."""
    r = data["relations"]
    left = f", {r['left_out']} left out" if r["left_out"] else ""
    out.print(f"pairs      {r['edges']} of {r['items']} tokens{left}; a head is found above F1 {r['bar']:.3f}")
    for layer, head in r["found"]:
        one = data["layers"][[x["layer"] for x in data["layers"]].index(layer)]["relations"]["heads"][head]
        chance = f"[{one['f1_low']:.3f}, {one['f1_high']:.3f}]"
        out.print(
            f"found      layer {layer} head {head}: F1 {one['f1']:.3f}, by chance {chance}; precision {one['precision']:.3f}"
        )
    if not r["found"]:
        out.print("found      no head recovers them above chance")
