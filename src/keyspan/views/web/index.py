"""What the page knows of a store: cells with their points, kept up to date while others write to the store.

A cell is a problem but for its load, an instrument but for its size, a recipe and an arithmetic. Its points are levels (a key
budget for a number of heads, a number of examples, a library) with a score for every seed. Memory: for every run a score and
a number, some 200 bytes; records are read from the store again when they are shown.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from keyspan.evidence.following import Position, position, since
from keyspan.evidence.intervals import student
from keyspan.evidence.record import Record
from keyspan.evidence.store import Store
from keyspan.problems import graphs
from keyspan.problems.relations import Relations
from keyspan.specs import digest
from keyspan.theory.bounds import law, trivial_budget, warren_budget

Level = tuple[int, int]  # (line, x): the number of heads, or 0, and what is varied


@dataclass(frozen=True)
class Axes:
    """How a family of problems is drawn. load: the field of the problem that is varied; None: the instrument's size is"""

    x: str
    y: str
    score: str
    load: str | None


AXES: Mapping[str, Axes] = {
    "relations": Axes("total key dimension D_K = h d_k", "F1", "f1", None),
    "dichotomies": Axes("examples T", "share of seeds that fit all", "fitted", "examples"),
    "labels": Axes("examples T", "accuracy", "accuracy", "examples"),
    "sequences": Axes("library L", "share recited", "share", "library"),
}


@dataclass
class Cell:
    """One cell: what its runs share, and their scores by level and seed. unusual: what it has beside a permutation of gaussian
    rows and plain heads    seqs: numbers of its runs in the store"""

    id: str
    kind: str
    title: str
    recipe: str
    arithmetic: str
    problem: Mapping[str, Any]
    unusual: str = ""
    levels: dict[Level, dict[int, float]] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    seqs: list[int] = field(default_factory=list)

    @property
    def runs(self) -> int:
        """How many runs it has."""
        return len(self.seqs)

    def lines(self) -> dict[int, list[tuple[int, list[float]]]]:
        """By number of heads (0 where that is not varied): levels ascending with their scores."""
        out: dict[int, list[tuple[int, list[float]]]] = {}
        for (line, x), seeds in sorted(self.levels.items()):
            out.setdefault(line, []).append((x, list(seeds.values())))
        return out

    def capacity(self, target: float) -> dict[str, Any]:
        """Where the mean score over seeds crosses the target, with the bracket that was measured around it.

        Of a budget: the smallest from which every larger one measured meets it, over heads. Of a load: the largest up to
        which every smaller one does. low, high: between the last level on the wrong side and the first on the right one
        """
        load = AXES[self.kind].load if self.kind in AXES else None
        found = [_crossing(points, target, load is not None) for points in self.lines().values()]
        known = [(best, bound, heads) for heads, (best, bound) in zip(self.lines(), found, strict=True) if best is not None]
        if not known:
            return {"estimate": None, "low": None, "high": None, "heads": None}
        best, bound, heads = (max if load else min)(known, key=lambda entry: entry[0])
        low, high = (best, bound) if load else (bound, best)
        return {"estimate": best, "low": low, "high": high, "heads": heads or None}

    def brief(self) -> dict[str, Any]:
        """The cell in a list."""
        told = {"id": self.id, "kind": self.kind, "title": self.title, "recipe": self.recipe, "arithmetic": self.arithmetic}
        last = self.seqs[-1] if self.seqs else 0
        return told | {"runs": self.runs, "statuses": dict(self.statuses), "last": last, "capacity": self.capacity(0.99)}

    def whole(self) -> dict[str, Any]:
        """The cell with its curve."""
        axes = AXES.get(self.kind)
        lines = [
            {"line": line, "name": f"{line} head{'s' if line > 1 else ''}" if line else self.recipe, "points": _points(points)}
            for line, points in self.lines().items()
        ]
        labels = {"x_label": axes.x if axes else "", "y_label": axes.y if axes else ""}
        return self.brief() | labels | {"lines": lines, "marks": self.marks()}

    def marks(self) -> list[dict[str, Any]]:
        """What theory says, as vertical lines of the curve. style: dashed (theory) or dotted (explicit weights)"""
        if self.kind == "dichotomies":
            return [{"name": "2d, known", "value": 2.0 * int(self.problem["dimension"]), "style": "dashed"}]
        try:
            cell = Relations.from_json(self.problem) if self.kind == "relations" else None
        except ValueError:
            cell = None
        if cell is None:
            return []
        heads = max((line for line, _ in self.levels), default=1) or 1
        bits = graphs.entropy(cell.graph, cell.items).value
        return [
            {"name": "law m′ ln m′ / d", "value": law(cell.edges, cell.d_model), "style": "dashed"},
            {"name": "lower bound, proven", "value": warren_budget(bits, cell.items, cell.d_model, heads), "style": "dashed"},
            {"name": "explicit weights, certain", "value": float(trivial_budget(cell.edges)), "style": "dotted"},
        ]


def _points(points: list[tuple[int, list[float]]]) -> list[dict[str, Any]]:
    out = []
    for x, scores in points:
        mean, low, high = student(scores)
        ends = {"low": None if low is None else max(0.0, low), "high": None if high is None else min(1.0, high)}
        out.append({"x": x, "y": mean, **ends, "seeds": len(scores)})
    return out


def _crossing(points: list[tuple[int, list[float]]], target: float, load: bool) -> tuple[int | None, int | None]:
    """(the level of the crossing, the nearest one on the wrong side of it)"""
    best: int | None = None
    for x, scores in points if load else reversed(points):
        if sum(scores) / len(scores) < target:
            return best, x if best is not None else None
        best = x
    return best, None


# ---------------------------------------------------------------------------------------------------------- the index


class Index:
    """The cells of a store, read once and then followed. Safe to ask from many threads."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, threading.Lock()
        self._position = Position(0, 0, 0)
        self._cells: dict[str, Cell] = {}
        self._read = 0
        self.version = 0  # grows whenever something has changed

    def refresh(self) -> bool:
        """Take in what is new. Anything removed, or a row that came late, makes it begin again. returns: whether it changed"""
        with self._lock:
            now = position(self._store)
            if now == self._position:
                return False
            grown = now.removed == self._position.removed and now.rows - self._position.rows == now.last - self._position.last
            if not grown:
                self._cells, self._read = {}, 0
                self._position = Position(0, 0, now.removed)
            for seq, record in since(self._store, self._position.last):
                self._add(seq, record)
                self.version += 1
                if seq >= now.last:
                    break
            self._position = now
            self.version += 1
            return True

    @property
    def progress(self) -> tuple[int, int]:
        """Runs read, and rows that the store has."""
        return self._read, max(self._position.rows, self._read)

    def _add(self, seq: int, record: Record) -> None:
        self._read += 1
        try:
            cell, level, score = _place(record, self._cells)
        except (KeyError, TypeError, ValueError):
            return  # of a version that is unknown here
        cell.seqs.append(seq)
        cell.statuses[str(record.verdict.status)] += 1
        if level is not None and score is not None:
            cell.levels.setdefault(level, {}).setdefault(int(record.run["replicate"]), score)

    def cells(self) -> list[Cell]:
        """All cells, the one that changed last first."""
        return sorted(self._cells.values(), key=lambda cell: -cell.seqs[-1])

    def cell(self, cell_id: str) -> Cell | None:
        """A cell by its id."""
        return self._cells.get(cell_id)

    def relations(self) -> Iterator[Cell]:
        """The cells of relations."""
        return (cell for cell in list(self._cells.values()) if cell.kind == "relations")


def _place(record: Record, cells: dict[str, Cell]) -> tuple[Cell, Level | None, float | None]:
    """The cell of a record (made if it is new), its level, and its score."""
    run, kind = record.run, record.kind
    axes = AXES.get(kind)
    problem, instrument = dict(run["problem"]), dict(run["instrument"])
    level: Level | None = None
    if axes is not None and axes.load is not None:
        level = (0, int(problem.pop(axes.load)))
    elif axes is not None and "d_key" in instrument:
        heads, d_key = int(instrument.pop("heads")), int(instrument.pop("d_key"))
        level = (heads, heads * d_key)
    shared = {"problem": problem, "instrument": instrument, "recipe": run["recipe"], "arithmetic": run["arithmetic"]}
    cell_id = digest(shared, "c")
    if cell_id not in cells:
        recipe = str(run["recipe"].get("name", run["recipe"].get("family")))
        title, unusual = _title(kind, problem, instrument)
        cells[cell_id] = Cell(cell_id, kind, title, recipe, str(run["arithmetic"]), run["problem"], unusual)
    verdict = record.verdict
    score = verdict.scores.get(axes.score) if axes is not None and verdict.measured else None
    return cells[cell_id], level, score


SILENT = ("family", "version")


def _title(kind: str, problem: Mapping[str, Any], instrument: Mapping[str, Any]) -> tuple[str, str]:
    """A cell in words: its sizes and what is not usual; and the latter alone."""
    if kind == "relations":
        graph, rows = _graph(problem["graph"]), _rows(problem["embeddings"])
        words = [f"{graph} on {problem['items']} items, d_model {problem['d_model']}", rows]
        unusual = [word for word, usual in ((graph, "permutation"), (rows, "gaussian")) if word != usual]
        extra = {k: v for k, v in problem.items() if k not in (*SILENT, "items", "d_model", "graph", "embeddings")}
    else:
        words, unusual, extra = [kind], [], {k: v for k, v in problem.items() if k not in SILENT}
    extra |= {k: v for k, v in instrument.items() if k not in SILENT}
    plain = [f"{k} {v}" for k, v in extra.items() if isinstance(v, int | float | str) and not isinstance(v, bool)]
    return ", ".join([*words, *plain]), ", ".join([*unusual, *plain])


def _graph(graph: Mapping[str, Any]) -> str:
    told = (f"{graph[name]} {word}" for name, word in (("degree", "a row"), ("edges", "edges")) if graph.get(name))
    exponent = f" of exponent {graph['exponent']:g}" if graph.get("exponent") is not None else ""
    sizes = ", ".join(told)
    return f"{graph['name']}{exponent}{f' ({sizes})' if sizes else ''}{'' if graph.get('loops', True) else ' without loops'}"


def _rows(rows: Mapping[str, Any]) -> str:
    ones = f" {rows['ones']}" if rows.get("ones") else ""
    clusters = f" ({rows['clusters']} of cosine {rows['correlation']:g})" if rows.get("clusters") else ""
    return f"{rows['name']}{ones}{clusters}"
