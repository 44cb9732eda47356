"""`keyspan design --examples` and `--sequences`: how large a layer for labels, how large a decoder for sequences."""

from __future__ import annotations

from typing import Any

from keyspan.cli.options import current


def labels(given: dict[str, Any]) -> int:
    """A layer for so many labelled examples."""
    from keyspan.advice.design_labels import design_labels
    from keyspan.cli import show

    data = design_labels(**given).to_dict()
    if current.json:
        show.print_json(data)
        return 0
    out = show.console()
    size = f"{data['parameters']} parameters, {data['bits_per_parameter']:.3f} bits in each"
    out.print(f"use        {data['heads']} heads x d_key {data['d_key']}, {size}  (basis: {data['basis']})")
    out.print("certain    whatever the labels: theorem 1 of Mahdavi and others, with explicit weights")
    out.print(f"given      {data['given_attention']} heads, where attention does not depend on the labels (cap of features)")
    out.print(f"necessary  {data['necessary']} heads, whose numbers have as many bits as the labels, {data['bits']:.0f}")
    columns = ["heads", "d_key", "parameters", "theorem", "cap"]
    rows = [[a[c] for c in columns] for a in data["alternatives"]]
    out.print(show.table("Other widths", columns, rows, left=0))
    for text in data["notes"]:
        out.print(f"note       {text}")
    return 0


def sequences(count: float, length: int, vocabulary: int, prompt: int, budget: int | None) -> int:
    """The cheapest decoders for so many sequences, by the law that `keyspan predict ecm` answers from."""
    from keyspan.advice.design_sequences import design_sequences
    from keyspan.cli import show

    given = {"length": length, "vocabulary": vocabulary, "prompt": prompt, "budget": budget}
    data = design_sequences(sequences=count, store=current.store, **given).to_dict()  # type: ignore[arg-type]
    if current.json:
        show.print_json(data)
        return 0
    out, found, law = show.console(), data["capacity"], data["law"]
    size = f"{data['parameters']} parameters, {data['bits_per_parameter']:.2f} bits in each"
    out.print(f"use        {data['heads']} heads, d_model {data['d_model']}: {size}  (basis: {data['basis']})")
    ends = f"{found['low']:.0f} to {found['high']:.0f}"
    out.print(f"likely     {found['estimate']:.0f} sequences, {ends} by the residuals of the law")
    needed = data["necessary_parameters"]
    out.print(f"necessary  {needed} parameters, which have as many bits as the library, {data['bits']:.0f}")
    keys = ("heads", "d_model", "parameters", "capacity")
    rows = [[a[c] for c in keys] for a in data["alternatives"]]
    out.print(show.table("Alternatives", ["heads", "d_model", "parameters", "sequences"], rows, left=0))
    out.print(f"law        {law['model']}, fit {law['fit_id']} from {law['source']}")
    for text in data["notes"]:
        out.print(f"note       {text}")
    return 0
