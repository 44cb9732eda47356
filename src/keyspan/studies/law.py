"""Does theory say how large a key budget must be? Thresholds of the solvers, each closed from both sides (docs/law.md).

    python -m keyspan.studies.law --groups small,middle --store sqlite:///.keyspan/law.db --out law.csv

A point is a cell (items, d_model, a graph, vectors) at one number of heads; what is asked of it is the smallest key budget that
is exact in all of 3 seeds, and the largest that is not. What the store holds is not trained again, so a study that was
stopped goes on, and points that are not closed yet are left out of the table.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from keyspan.errors import BadInput, KeyspanError
from keyspan.evidence.store import Store, open_store
from keyspan.files.arrays import read_array
from keyspan.files.contents import Contents
from keyspan.lab.search import Answer, propose
from keyspan.problems import embeddings, graphs
from keyspan.problems.embeddings import Embeddings
from keyspan.problems.graphs import Graph
from keyspan.problems.relations import Relations
from keyspan.runners.lab import Lab
from keyspan.runners.questions import relations_question
from keyspan.seeds import Stream
from keyspan.specs import Arm, Question, canonical
from keyspan.theory.bounds import gardner_budget
from keyspan.theory.width import width_budget
from keyspan.verdict import Verdict

SEEDS = 3
OWNED, FREE = "solver-fixed", "solver"
COLUMNS = (
    *("group", "items", "d_model", "edges", "graph", "embeddings", "recipe", "heads"),
    *("fails", "key_budget", "seeds", "starts", "members", "width", "gardner"),
)
BRACKETS = {OWNED: (0.98, 1.15), FREE: (0.85, 1.1)}  # where a threshold is looked for first, in multiples of `width_budget`
Row = dict[str, str | int | float | None]


@dataclass(frozen=True)
class Point:
    """A cell at one number of heads. edges: None where the graph decides    ones: of sparse vectors    rows: a file's"""

    group: str
    items: int
    d_model: int
    heads: int
    recipe: str = OWNED
    graph: Graph = Graph()
    embeddings: Embeddings = Embeddings()

    @property
    def problem(self) -> Relations:
        """The cell."""
        return Relations(items=self.items, d_model=self.d_model, graph=self.graph, embeddings=self.embeddings)

    @property
    def width(self) -> float | None:
        """What `theory.width` predicts."""
        return width_budget(self.problem.edges, self.items, self.d_model, self.heads)

    def question(self) -> Question:
        """The smallest key budget with so many heads; looked for near what theory says."""
        asked = relations_question(self.problem, heads=[self.heads], seeds=SEEDS, recipe=self.recipe)
        (arm,) = asked.arms
        return replace(asked, arms=(self._bracketed(arm),), climb=None)

    def _bracketed(self, arm: Arm) -> Arm:
        width = self.width
        if width is None:
            return arm
        below, above = BRACKETS[self.recipe]
        low = max((level for level in arm.levels if level <= below * width), default=arm.levels[0])
        high = min((level for level in arm.levels if level >= above * width), default=arm.levels[-1])
        return replace(arm, low=low, high=high)


# ------------------------------------------------------------------------------------------------------- the points

SMALL = {64: (64, 32, 16, 8), 128: (128, 64, 32, 24, 16, 12, 8), 256: (256, 128, 64, 48, 32, 24, 20, 16)}
MIDDLE = {512: (512, 256, 128, 96, 64, 48, 40, 32)}
LARGE = {1024: (512, 256, 128, 96, 80, 64), 2048: (256, 128)}
MANY_HEADS = {512: (16,), 1024: (32,)}
ON_A_GPU = {2048: (2048, 1024, 512, 256, 128, 96, 64), 4096: (4096, 2048, 1024, 512, 256, 192, 128)}


def families(items: int) -> tuple[Graph, ...]:
    """Graphs with as many edges as items, or twice as many."""
    twice = 2 * items
    return (
        *(graphs.functional(), graphs.regular(2)),
        *(graphs.erdos_renyi(twice), graphs.power_law(edges=twice), graphs.bipartite(twice)),
    )


def vectors(d_model: int) -> tuple[Embeddings, ...]:
    """Item vectors that are not gaussian."""
    return embeddings.sign(), embeddings.sparse(d_model // 8), embeddings.sparse(2)


def best_heads(items: int, d_model: int, edges: int | None = None) -> int:
    """The power of two of heads, at most items/4, whose width budget is least."""
    powers = [1 << k for k in range(max(1, items // 4).bit_length())]
    budgets = [(width_budget(edges or items, items, d_model, h), h) for h in powers]
    known = [(b, h) for b, h in budgets if b is not None]
    return min(known)[1] if known else powers[-1]


def around(group: str, items: int, d_model: int, recipe: str = OWNED) -> Iterator[Point]:
    """The best number of heads, half of it and twice it, where theory says that they are enough."""
    best = best_heads(items, d_model)
    for heads in sorted({max(1, best // 2), best, 2 * best}):
        point = Point(group, items, d_model, heads, recipe)
        if point.width is not None:
            yield point


def points() -> Iterator[Point]:
    """All points but those of real vectors, the cheap groups first."""
    for group, cells in (("small", SMALL), ("middle", MIDDLE), ("large", LARGE)):
        for items, widths in cells.items():
            for d_model in widths:
                yield from around(group, items, d_model)
    for items, widths in (SMALL | MIDDLE).items():
        for d_model in widths:
            yield Point("free", items, d_model, best_heads(items, d_model), FREE)
    for items, widths in MANY_HEADS.items():
        for d_model in widths:
            yield Point("many-heads", items, d_model, best_heads(items, d_model) // 2)
    yield from _kinds()
    for items, widths in ON_A_GPU.items():
        for d_model in widths:
            for recipe in (OWNED, FREE):
                yield from around("gpu", items, d_model, recipe)
    yield Point("gpu", 16384, 256, 16)


def _kinds() -> Iterator[Point]:
    """One thing changed at a time: the graph, the vectors."""
    for items, d_model in ((256, 32), (512, 64)):
        for recipe in (OWNED, FREE):
            for graph in families(items):
                heads = best_heads(items, d_model, Relations(items=items, d_model=d_model, graph=graph).edges)
                yield Point("graphs", items, d_model, heads, recipe, graph=graph)
            for rows in vectors(d_model):
                yield Point("vectors", items, d_model, best_heads(items, d_model), recipe, embeddings=rows)
            yield Point("vectors", items, items, 1, recipe, embeddings=embeddings.one_hot())


# ------------------------------------------------------------------------------------------------------- real vectors

REAL = ((256, 384), (1024, 384), (512, 64))  # items; all coordinates, or as many leading principal ones


def real_rows(path: str, items: int, d_model: int, contents: Contents) -> Embeddings:
    """Rows of a matrix of real vectors, drawn without repetition, in their own or in their leading principal coordinates.

    path: as `--embeddings` takes it, such as model.safetensors#embeddings.word_embeddings.weight
    """
    matrix = np.asarray(read_array(path), dtype=np.float64)
    if len(matrix) < items or matrix.shape[1] < d_model:
        raise BadInput(f"`--rows` must have {items} rows of {d_model} numbers, but got {matrix.shape}. Name another matrix.")
    rows = matrix[np.sort(Stream(f"rows {items}", "law").permutation(len(matrix))[:items])]
    if d_model < matrix.shape[1]:
        centred = matrix - matrix.mean(axis=0)
        _, axes = np.linalg.eigh(centred.T @ centred)
        rows = (rows - matrix.mean(axis=0)) @ axes[:, ::-1][:, :d_model]
    rows = rows / np.sqrt(np.einsum("ia,ia->i", rows, rows).mean())  # of mean squared length 1; lengths stay different
    return Embeddings(name="file", content=contents.put(np.ascontiguousarray(rows), source=path))


def real_points(path: str, contents: Contents) -> Iterator[Point]:
    """Permutations of real vectors."""
    for items, d_model in REAL:
        rows = real_rows(path, items, d_model, contents)
        for recipe in (OWNED, FREE):
            yield Point("real", items, d_model, best_heads(items, d_model), recipe, embeddings=rows)


# ------------------------------------------------------------------------------------------------------- the table


def row(point: Point, answer: Answer) -> Row:
    """One line of the table. fails: the largest budget that some seed did not hold    starts: that the unluckiest seed took"""
    arm = answer.arms[0]
    held = [level for level, score in zip(arm.levels, arm.means, strict=True) if score == 1.0]
    estimate = arm.crossing.estimate
    short = [level for level in arm.levels if estimate is None or level < estimate]
    at = [p for p in answer.probes if p.level == estimate and p.verdict.exact]
    drawn = [int(getattr(p.run.recipe, "draw", 0)) for p in at]
    assert estimate is None or int(estimate) in held
    return {
        "group": point.group,
        "items": point.items,
        "d_model": point.d_model,
        "edges": point.problem.edges,
        "graph": point.graph.name,
        "embeddings": " ".join(str(v) for v in (point.embeddings.name, point.embeddings.ones) if v is not None),
        "recipe": point.recipe,
        "heads": point.heads,
        "fails": max(short, default=0),
        "key_budget": None if estimate is None else int(estimate),
        "seeds": SEEDS,
        "starts": 1 + max(drawn, default=0),
        "members": len(answer.probes),
        "width": _rounded(point.width),
        "gardner": _rounded(gardner_budget(point.problem.edges, point.items, point.d_model, point.heads)),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def closed(chosen: Iterable[Point], store: Store) -> list[Row]:
    """The rows of the points whose question the store answers in full."""
    rows = []
    for point in chosen:
        verdicts: dict[str, Verdict] = {}
        while not isinstance(step := propose(point.question(), verdicts), Answer):
            known = store.get_many([run.run_id for run in step.runs])
            if len(known) < len(step.runs):
                break
            verdicts |= {run_id: record.verdict for run_id, record in known.items()}
        else:
            rows.append(row(point, step))
    return rows


def write(rows: Sequence[Row], path: Path) -> None:
    """The table as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


GROUPS = ("small", "middle", "large", "free", "many-heads", "graphs", "vectors", "real", "gpu")


def chosen(groups: str | None, rows: str | None, contents: Contents) -> list[Point]:
    """The points of these groups, by name; every group but `gpu` where none is named."""
    wanted = GROUPS[:-1] if groups is None else groups.split(",")
    if not set(wanted) <= set(GROUPS):
        raise BadInput(f"`--groups` must be among {'|'.join(GROUPS)}, but got {groups!r}. Choose some of these.")
    everything = [*points(), *(real_points(rows, contents) if rows is not None else ())]
    return [p for p in everything if p.group in wanted]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `python -m keyspan.studies.law`."""
    parser = argparse.ArgumentParser(prog="python -m keyspan.studies.law", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", default="sqlite:///.keyspan/law.db", help="where records lie")
    parser.add_argument("--out", type=Path, default=None, help="write the rows that are closed to this CSV file")
    parser.add_argument("--groups", default=None, help="only these, as small,free: " + "|".join(GROUPS))
    parser.add_argument("--rows", default=None, help="real vectors: a .npy or .safetensors file, as model.safetensors#name")
    parser.add_argument("--device", default="auto", help="auto|cpu|cuda")
    parser.add_argument("--jobs", type=int, default=None, help="worker processes (default: one a core)")
    parser.add_argument("--hand-out", type=Path, default=None, help="write the questions for keyspan.lab.worker; train nothing")
    parser.add_argument("--dry", action="store_true", help="train nothing: write what the store closes")
    args = parser.parse_args(argv)
    try:
        lab = Lab(args.store, args.device, args.jobs)
        contents = Contents(args.hand_out.parent / "files") if args.hand_out else lab.contents
        some = chosen(args.groups, args.rows, contents)
        if args.hand_out is not None:
            args.hand_out.parent.mkdir(parents=True, exist_ok=True)
            args.hand_out.write_text("".join(canonical(p.question().to_json()) + "\n" for p in some), encoding="utf-8")
            return 0
        try:
            if not args.dry:
                lab.answer([p.question() for p in some])
        finally:  # when it is stopped, too
            with open_store(args.store, read_only=True) as store:
                rows = closed(some, store)
            if args.out is not None:
                write(rows, args.out)
            print(f"{len(rows)} of {len(some)} points are closed")
    except KeyspanError as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
