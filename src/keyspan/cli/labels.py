"""`keyspan measure labels`: how many labelled examples a layer memorises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from keyspan.cli.options import current


def labels(
    heads: int = typer.Option(..., help="H."),
    d_head: int = typer.Option(..., help="Width of a head's queries and keys."),
    context: int = typer.Option(..., help="n, tokens of a context."),
    d_model: int = typer.Option(..., help="Width of the tokens."),
    examples: str | None = typer.Option(None, help="Measure just these T, as 500 or 500,1000, instead of searching."),
    contexts: str = typer.Option("random", help="random (fresh for each), fixed (one for all), perm (of 500 tokens)."),
    task: str = typer.Option("classes", help="classes (cross-entropy) or values (squared error)."),
    classes: int | None = typer.Option(None, help="Of the task classes (default 100)."),
    tokens: str = typer.Option("uniform", help="uniform|gaussian, or a .npy/.safetensors file of rows."),
    recipe: str = typer.Option("fast", help="fast|paper are trained; explicit|random are computed."),
    seeds: int = typer.Option(3, help="How many instances a T is measured on."),
    target: float = typer.Option(0.99, help="Accuracy that counts as memorised; 1: every example, by half of the seeds."),
    steps: int | None = typer.Option(None, help="Training steps (default: those of the recipe)."),
    arithmetic: str = typer.Option("fp32", help="Of training: fp32|fp64. Judged in fp64 always."),
    jobs: int | None = typer.Option(None, help="Worker processes (default: one a core, one for a GPU)."),
    weights: Path | None = typer.Option(None, help="Keep the weights of what is trained now in this folder."),
    hand_out: Path | None = typer.Option(None, help="Write the question here for keyspan.lab.worker; train nothing."),
) -> int:
    """How many labelled examples a multi-head layer memorises: `largest` and `yield`, and how sure that is."""
    from keyspan.cli import asking, show
    from keyspan.cli.measure import numbers
    from keyspan.problems.contexts import Labels
    from keyspan.runners import explicit
    from keyspan.runners.inputs import tokens_from
    from keyspan.runners.labels import LabelsResult, labels_question

    asking.check_weights(weights)
    made, rows = tokens_from(tokens, asking.contents(hand_out), d_model=d_model)
    problem = Labels(context=context, d_model=d_model, contexts=contexts, task=task, classes=classes, tokens=made)
    asked: dict[str, Any] = {"heads": heads, "d_head": d_head, "examples": numbers(examples, "--examples")}
    asked |= {"seeds": seeds, "seed": current.seed, "target": target, "recipe": recipe, "steps": steps}
    limit = rows if contexts == "fixed" else None
    if recipe in explicit.RECIPES:
        asked = explicit.check(asked, weights=weights, hand_out=hand_out)
        question = explicit.question(problem, rows=limit, **asked)
    else:
        question = labels_question(problem, arithmetic=arithmetic, rows=limit, **asked)
    if current.dry_run:
        return asking.dry_run([question], jobs)
    if hand_out is not None:
        return asking.hand_out([question], hand_out)
    if recipe in explicit.RECIPES:
        (outcome,) = explicit.answer([question], asking.lab())
    else:
        (outcome,) = asking.ask([question], jobs, weights)
    result = LabelsResult(question, outcome)
    data = result.to_dict()
    if current.json:
        show.print_json(data)
    else:
        print_labels(data)
    return 3 if result.failed else 0


def print_labels(data: dict[str, Any]) -> None:
    """T -> accuracy, then both capacities, the theorem and the cap, and how saturated heads are."""
    from keyspan.cli import show

    out, problem, found = show.console(), data["problem"], data["capacity"]
    rows = [[s["examples"], s["accuracy"], s["held"]] for s in data["scores"]]
    heads = show.counted(data["heads"], "head")
    which = f"{heads} of width {data['d_head']}, {problem['contexts']} contexts of {problem['context']} tokens"
    title = f"Mean accuracy ({show.counted(data['seeds'], 'seed')}, {problem['task']}): {which}, d_model {problem['d_model']}"
    out.print(show.table(title, ["T", "accuracy", "accuracy x T"], rows, left=0))
    what = "every example right, in half of the seeds" if data["target"] == 1 else f"accuracy {data['target']:g}"
    largest = {"estimate": found["largest"], "low": found["low"], "high": found["high"]}
    most = {"estimate": found["yield"], "low": found["yield_low"], "high": found["yield_high"]}
    out.print(f"largest      {show.interval(largest, 0)}  ({what}; recipe {data['recipe']})")
    out.print(f"yield        {show.interval(most, 0)}  (the largest accuracy x T)")
    out.print(f"theorem      {data['theorem']}  (H (min(n, d_h) - 1) + 1: some weights hold any labels of so many)")
    out.print(f"cap          {data['cap']}  (of the features' rank, for attention that does not know the labels)")
    if data["saturation"]:
        s = data["saturation"]
        share = f"{s['saturated']:.0%} of heads on examples; {s['unsaturated_examples']:.0%} of examples have one that is not"
        out.print(f"saturated    {share}  (at T = {s['examples']})")
    if data["failed"]:
        out.print(f"{show.counted(data['failed'], 'member')} failed; see their status with --json")
    out.print(f"trained now  {data['trained_now']} of {len(data['run_ids'])} members")
