"""`keyspan reproduce`: the figures of a paper, and what they say of its claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from keyspan.cli.options import current


def reproduce(
    name: str = typer.Argument(
        ..., help="A paper, or one of its figures: adler, adler:fig1 ..., mahdavi:fig1 ..., modern.", metavar="PAPER[:FIGURE]"
    ),
    tier: str = typer.Option("smoke", help="smoke (minutes), short (an hour of two cores), paper (a GPU)."),
    out: Path = typer.Option(Path("figures"), help="Folder for the pictures and their data."),
    width: str = typer.Option("page", help="Of the pictures: page (6.8 inches) or column (3.3 inches)."),
    jobs: int | None = typer.Option(None, help="Worker processes (default: one a core)."),
    embeddings: str | None = typer.Option(
        None, help="Vectors for adler:block or mahdavi:fig1: .npy, .safetensors or .safetensors#tensor.", metavar="FILE"
    ),
    hand_out: Path | None = typer.Option(None, help="Write the questions here for keyspan.lab.worker; train nothing."),
) -> int:
    """Measure a figure as its authors define it, draw it, and judge the claims that it can decide."""
    from keyspan.cli import asking, show
    from keyspan.papers.reproduce import plan
    from keyspan.runners.given import given_rows
    from keyspan.views.reproduce import carry_out_and_draw, check_folder, check_width

    rows = None if embeddings is None else given_rows(embeddings, asking.contents(hand_out))
    chosen = plan(name, tier, current.seed, rows)
    folder = check_folder(out)
    check_width(width)
    if hand_out is not None:
        return asking.hand_out(chosen.questions, hand_out)
    if current.dry_run:
        return asking.dry_run(chosen.questions, jobs)
    result = carry_out_and_draw(chosen, lambda questions: asking.ask(questions, jobs), folder, width)
    data = result.to_dict()
    if current.json:
        show.print_json(data)
    else:
        _print(data, result)
    for one in data["figures"]:
        for path in one["files"]:
            show.note(f"wrote {path}")
    return 3 if result.failed else 0


def _print(data: dict[str, Any], result: Any) -> None:
    from keyspan.cli import show

    out = show.console()
    for one in result.figures:
        printed = result.infos[one.figure.name].printed()
        if printed is None:
            out.print(f"{one.figure.name}: {result.shown[one.figure.name]['words']}")
        else:
            title, columns, rows = printed
            out.print(show.table(f"{one.figure.name}: {title}", columns, rows, left=0))
    marks = {True: "holds", False: "fails", None: "cannot be said"}
    rows = [
        [c["id"], show.number(c["measured"], 2), f"{c['test']} {show.bound(c['threshold'])}", marks[c["holds"]], c["claim"]]
        for c in data["claims"]
    ]
    if rows:
        out.print(show.table("Claims", ["id", "measured", "holds if", "verdict", "claim"], rows, left=5))
    for reason in dict.fromkeys(c["reason"] for c in data["claims"] if c["reason"]):
        out.print(f"cannot be said: {reason}")
    gone = {", ".join(f"{k} {v}" for k, v in left.items() if k != "reason"): left["reason"] for left in _left_out(data)}
    for cell, why in gone.items():
        show.note(f"left out: {cell}: {why}")
    counted = f"{data['done']} of {data['cells']} cells done, {data['failed']} with failed members"
    out.print(
        f"{data['figure']} at tier {data['tier']}: {counted}; trained now {data['trained_now']} of {len(data['run_ids'])}"
    )


def _left_out(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [left for one in data["figures"] for left in one["left_out"]]
