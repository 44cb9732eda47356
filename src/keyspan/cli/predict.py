"""`keyspan predict`: capacities expected, from laws fitted to what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from keyspan.cli.options import current

app = typer.Typer(help="Predict a capacity from a fitted law.")


@app.callback()
def root() -> None:
    """Predict a capacity from a fitted law."""


@app.command("ecm")
def ecm(
    length: int = typer.Option(..., help="N, tokens of a sequence."),
    heads: int | None = typer.Option(None, help="H, the number of heads."),
    d_model: int | None = typer.Option(None, help="B, the width of token vectors."),
    capacity: float | None = typer.Option(None, help="Look for the cheapest decoder that recites so many, instead."),
    budget: int | None = typer.Option(None, help="Most parameters, with --capacity."),
    vocab: int = typer.Option(64, help="V, tokens there are."),
    prompt: int = typer.Option(2, help="k, tokens that are given."),
    layers: int = typer.Option(1, help="Blocks."),
    ff: str = typer.Option("trained", help="The feed-forward: trained|frozen|absent."),
    tied: bool = typer.Option(False, help="One table for tokens and output."),
    regime: str = typer.Option("saturated", help="saturated|budgeted."),
    source: Path | None = typer.Option(None, "--from", help="Fit these cells: .csv, .jsonl (default: the store's)."),
    model: str | None = typer.Option(None, help="A law (default: the one with the least held-out error)."),
) -> int:
    """Sequences that a decoder is expected to recite, or the cheapest decoder for a wanted number of them."""
    from keyspan.cli import show
    from keyspan.runners.sequence_fits import predict_sequences

    result = predict_sequences(
        length=length,
        heads=heads,
        d_model=d_model,
        capacity=capacity,
        budget=budget,
        vocabulary=vocab,
        prompt=prompt,
        regime=regime,
        model=model,
        source=source,
        store=current.store,
        layers=layers,
        ff=ff,
        tied=tied,
    )
    data = result.to_dict()
    if current.json:
        show.print_json(data)
    else:
        show_prediction(data, capacity)
    return 0


def show_prediction(data: dict[str, Any], capacity: float | None) -> None:
    """A prediction for readers. capacity: that was wanted, if one was"""
    from keyspan.cli import show

    out = show.console()
    if data["capacity"]:
        out.print(f"capacity    {show.interval(data['capacity'], 1)} sequences, {data['parameters']} parameters")
    columns = ("heads", "d_model", "length", "parameters", "capacity")
    if capacity is not None:
        rows = [[choice[c] for c in columns] for choice in data["cheapest"]]
        title = (
            f"Decoders for {capacity:g} sequences" if rows else f"No decoder within the budget recites {capacity:g} sequences"
        )
        out.print(show.table(title, columns, rows, left=0))
    constants = ", ".join(f"{name} {value:.4g}" for name, value in data["constants"].items())
    out.print(f"law         {data['model']} ({data['regime']}): {constants}")
    out.print(f"fit         {data['fit_id']} from {data['source']}")
    if data["outside"]:
        out.print(f"outside     the cells of the fit have no such {', '.join(data['outside'])}: take it with care")
