"""`keyspan measure relations`: the capacity of a cell. (`measure labels` is in `cli.labels`.)"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from keyspan.cli import labels
from keyspan.cli.options import current

app = typer.Typer(help="Measure a capacity.")
app.command("labels")(labels.labels)


def numbers(text: str | None, flag: str) -> list[int] | None:
    """`1,2,4` -> [1, 2, 4]"""
    from keyspan.errors import BadInput, shown

    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"`{flag}` must be whole numbers with commas between, but got {shown(text)}. Try 1,2,4.") from None


@app.command("relations")
def relations(
    items: int = typer.Option(..., help="m, the number of items."),
    d_model: int = typer.Option(..., help="Width of the item vectors."),
    graph: str = typer.Option("permutation", help="Family, or a .csv/.tsv/.npz file of source,target."),
    edges: int | None = typer.Option(None, help="m', for families that leave it open (default: as many as items)."),
    degree: int | None = typer.Option(None, help="Degree of a regular or out-regular graph (default 2)."),
    exponent: float | None = typer.Option(None, help="Of a power-law graph (default 1)."),
    loops: bool = typer.Option(True, help="Whether an item may point to itself."),
    embeddings: str = typer.Option("gaussian", help="one-hot|gaussian|sign|sparse|clustered, or a .npy/.safetensors file."),
    ones: int | None = typer.Option(None, help="Ones per sparse row (default d_model / 8)."),
    clusters: int | None = typer.Option(None, help="Centres of clustered rows (default items / 8)."),
    correlation: float | None = typer.Option(None, help="Mean cosine within a cluster (default 0.5)."),
    types: int | None = typer.Option(None, help="So many relations on the same items, each a graph of the family."),
    sharing: str | None = typer.Option(None, help="With --types: partitioned (heads of their own), shared or leaning (gated)."),
    heads: str | None = typer.Option(None, help="Numbers of heads to try, as 1,2,4 (default: powers of 2 to items/8)."),
    key_budgets: str | None = typer.Option(None, help="Measure just these D_K, as 32,48, instead of searching."),
    seeds: int = typer.Option(3, help="How many instances a point is measured on."),
    target: float | None = typer.Option(None, help="F1 that counts as held (default: gradient 0.99, others 1)."),
    recipe: str = typer.Option("gradient", help="How members are trained: gradient|hinge|solver|solver-fixed."),
    criterion: str | None = typer.Option(
        None, help="mean|all|any of the seeds must meet the target (default: gradient mean, others all)."
    ),
    threshold: str = typer.Option("own", help="own|best: the learned threshold, or the best one in hindsight."),
    steps: int | None = typer.Option(None, help="Most training steps (default: gradient 2000, hinge 6000, solvers 1000)."),
    starts: int | None = typer.Option(None, help="Initial weights tried per instance, until one holds (default 1, solver 4)."),
    contexts: int | None = typer.Option(None, help="Show a random context of so many items at every step, not all."),
    batches: int | None = typer.Option(None, help="Show the rows in so many batches, one after another."),
    replay: bool = typer.Option(False, "--replay", help="With --batches: those before stay in view."),
    arithmetic: str | None = typer.Option(
        None, help="Of training: fp32|fp64, on a GPU also tf32|bf16 (default: solvers fp64, others fp32). Judged in fp64."
    ),
    jobs: int | None = typer.Option(None, help="Worker processes (default: one a core, one for a GPU)."),
    figure: Path | None = typer.Option(None, help="Draw F1 against D_K to FIGURE.svg, .png and .csv."),
    weights: Path | None = typer.Option(None, help="Keep the weights of what is trained now in this folder."),
    hand_out: Path | None = typer.Option(None, help="Write the question here for keyspan.lab.worker; train nothing."),
) -> int:
    """The smallest key budget D_K* = heads x d_key that recovers a graph's edges, and how sure that is."""
    from keyspan.cli import asking, show
    from keyspan.files.contents import Contents
    from keyspan.files.paths import check_writable
    from keyspan.problems.relations import Relations
    from keyspan.problems.typed import TypedRelations
    from keyspan.runners import inputs
    from keyspan.runners.measure import RelationsResult
    from keyspan.runners.questions import relations_question

    check_figure(figure)
    asking.check_weights(weights)
    if hand_out is not None and not current.dry_run:  # the worker looks beside the question for what files held
        contents = Contents(hand_out.parent / "files")
    else:
        contents = Contents(None) if current.dry_run else asking.lab().contents  # a dry run writes nothing
    asked_graph = inputs.graph_from(graph, contents, items=items, edges=edges, degree=degree, exponent=exponent, loops=loops)
    rows = inputs.embeddings_from(
        embeddings, contents, items=items, d_model=d_model, ones=ones, clusters=clusters, correlation=correlation
    )
    cell: dict[str, Any] = {"items": items, "d_model": d_model, "graph": asked_graph, "embeddings": rows}
    question = relations_question(
        Relations(**cell) if types is None else TypedRelations(types=types, **cell),
        heads=numbers(heads, "--heads"),
        key_budgets=numbers(key_budgets, "--key-budgets"),
        seeds=seeds,
        seed=current.seed,
        target=target,
        recipe=recipe,
        criterion=criterion,
        threshold=threshold,
        steps=steps,
        contexts=contexts,
        batches=batches,
        replay=replay,
        sharing=sharing,
        arithmetic=arithmetic,
        starts=starts,
    )
    if current.dry_run:
        return asking.dry_run([question], jobs)
    if hand_out is not None:
        return asking.hand_out([question], hand_out)
    if figure is not None:
        check_writable(figure.parent, "--figure")
    (outcome,) = asking.ask([question], jobs, weights)
    result = RelationsResult(question, outcome)
    data = result.to_dict()
    if current.json:
        show.print_json(data)
    else:
        print_relations(data)
    if figure is not None:
        _draw(result, figure)
    return 3 if result.failed else 0


def check_figure(path: Path | None) -> None:
    """Refuse a figure that cannot be drawn before anything is trained for it."""
    from keyspan.errors import BadInput

    if path is not None and (path.is_dir() or path.with_suffix("").is_dir()):
        raise BadInput(f"`--figure` must be a file name, but got the folder {path}. Name a file in it.")


def print_relations(data: dict[str, Any]) -> None:
    """D_K x heads -> F1, then D_K*, the law and the lower bound."""
    from keyspan.cli import show

    out = show.console()
    arms = data["arms"]
    means = {(arm["heads"], s["key_budget"]): s["score"] for arm in arms for s in arm["scores"]}
    rows = [[b, *[means.get((arm["heads"], b), "") for arm in arms]] for b in sorted({budget for _, budget in means})]
    last = ["D_K* [low, high]", *[show.interval(arm["key_budget"], 0) for arm in arms]]
    problem = data["problem"]
    types = f" graphs ({problem['types']} types, heads {data['sharing']})" if data["sharing"] else " graph"
    which = f"{problem['graph']['name']}{types} on {problem['items']} items, d_model {problem['d_model']}"
    title = f"Mean F1 ({data['threshold']} threshold, {show.counted(data['seeds'], 'seed')}): {which}"
    columns = ["D_K", *[show.counted(arm["heads"], "head") for arm in arms]]
    out.print(show.table(title, columns, rows, last=last))
    if data["heads"]:
        found = f"{show.counted(data['heads'], 'head')} x d_key {data['d_key']}"
        out.print(f"D_K*         {show.interval(data['key_budget'], 0)}  ({found}, recipe {data['recipe']})")
    else:
        out.print("D_K*         not reached by any number of heads tried, up to d_key = d_model")
    out.print(
        f"law          {data['law']:.1f}  (m' ln m' / d)" + (f", D_K* / law {data['ratio']:.2f}" if data["ratio"] else "")
    )
    out.print(f"lower bound  {data['lower_bound']:.2f}  (Warren: with less, not every such graph can be held exactly)")
    out.print(f"interval     {data['interval_method']}")
    if data["shown"]:
        said = ", ".join(f"{k} {v}" for k, v in data["shown"].items())
        out.print(f"shown        {said}; judged on all pairs")
    for odd in data["non_monotone"]:
        out.print(f"not monotone: {odd['heads']} heads pass at {odd['passes']} and fail at {odd['fails']}")
    if data["failed"]:
        out.print(f"{show.counted(data['failed'], 'member')} failed; see their status with --json")
    out.print(f"trained now  {data['trained_now']} of {len(data['run_ids'])} members")


def _draw(result: Any, path: Path) -> None:
    from keyspan.cli import show
    from keyspan.views.figures import draw_threshold_curves, save, threshold_curves_info

    info = threshold_curves_info(result.to_dict())
    for written in save(info, draw_threshold_curves, path):
        show.note(f"wrote {written}")
