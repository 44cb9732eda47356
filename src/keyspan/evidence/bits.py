"""Records to bits: for every cell of every problem, the most bits per parameter that its members were seen to store.

A cell is a problem but for its load, an instrument but for its size, a recipe and an arithmetic. Its members are grouped by
level: a key budget, a number of examples, a library. The bits of a level are the mean over its seeds, with Student's
interval; a cell's are those of its best level, of three seeds or more. (The best of several noisy levels is a little too
good; levels lie close, and the intervals say how noisy they are.)

A family of problems is read by a function in `READERS`, from the JSON of the run and the scores alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from keyspan.decoders import Decoder, parameters
from keyspan.evidence.intervals import student
from keyspan.evidence.record import Record
from keyspan.problems import graphs
from keyspan.problems.graphs import Graph
from keyspan.specs import canonical
from keyspan.theory import bits

LEAST_SEEDS = 3
PLAIN_CHANNEL = {"family", "version", "heads", "d_key"}
Scores = Mapping[str, float]


@dataclass(frozen=True)
class Held:
    """What one member stores. level: what is varied within a cell    bound: bits per parameter, and where it is from"""

    cell: str
    level: tuple[int, ...]
    level_name: str
    bits: float
    parameters: int
    bound: float
    bound_source: str


@dataclass(frozen=True)
class BitsRow:
    """A cell at its best level. bits: mean over seeds    per_parameter, low, high: with its 95% interval"""

    problem: str
    cell: str
    recipe: str
    arithmetic: str
    level: str
    seeds: int
    bits: float
    parameters: int
    per_parameter: float
    low: float | None
    high: float | None
    bound: float
    bound_source: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


Reader = Callable[[Mapping[str, Any], Scores], Held | None]


# ----------------------------------------------------------------------------------------------------------- families


def read_relations(run: Mapping[str, Any], scores: Scores) -> Held | None:
    """Relations held by a key-query channel: 2 d D_K weights."""
    problem, channel = run["problem"], run["instrument"]
    if set(channel) != PLAIN_CHANNEL or channel["family"] != "channel" or not {"precision", "recall"} <= set(scores):
        return None  # heads that share keys or are turned have other weights
    graph = canonical(problem["graph"])
    items, d_model = int(problem["items"]), int(problem["d_model"])
    edges, entropy, name = _graph(graph, items)
    heads, d_key = int(channel["heads"]), int(channel["d_key"])
    parameters = 2 * d_model * heads * d_key
    stored = bits.relation_bits(entropy, edges, items * items, scores["precision"], scores["recall"])
    own, weights = bits.graph_bound(parameters, items, heads), bits.weight_bits(str(run["arithmetic"]))
    rows = problem["embeddings"]
    kind = " ".join(str(v) for v in (rows["name"], rows.get("ones")) if v is not None)
    bound, source = (own, "Warren 1968, any precision") if own <= weights else (weights, "bits of a weight")
    cell = f"{name} on {items} items, d_model {d_model}, {kind}"
    return Held(cell, (heads, d_key), f"{heads} x d_key {d_key}", stored, parameters, bound, source)


@lru_cache(maxsize=4096)
def _graph(text: str, items: int) -> tuple[int, float, str]:
    """m', the entropy and the name of a graph. text: canonical JSON"""
    graph = Graph.from_json(json.loads(text))
    return graphs.edge_count(graph, items), graphs.entropy(graph, items).value, graph.name


def read_dichotomies(run: Mapping[str, Any], scores: Scores) -> Held | None:
    """Random labels of a linear unit: a bit a label where all are fitted."""
    problem = run["problem"]
    examples, dimension = int(problem["examples"]), int(problem["dimension"])
    stored = float(examples) if scores["fitted"] else 0.0
    bound = _cover(examples, dimension)
    cell = f"random labels, dimension {dimension}"
    return Held(cell, (examples,), f"{examples} examples", stored, dimension, bound, "Cover 1965, dichotomies")


@lru_cache(maxsize=4096)
def _cover(examples: int, dimension: int) -> float:
    return bits.label_bound(examples, dimension)


def read_labels(run: Mapping[str, Any], scores: Scores) -> Held | None:
    """Labelled contexts held by a trained layer: all its numbers, with the maps before and after it. Classes only: what a value
    that is nearly right stores is another question."""
    problem, layer = run["problem"], run["instrument"]
    if problem["task"] != "classes" or layer["family"] != "layer" or not layer["embed"]:
        return None
    examples, classes, d = int(problem["examples"]), int(problem["classes"]), int(problem["d_model"])
    heads, d_key, d_value = int(layer["heads"]), int(layer["d_key"]), int(layer["d_value"])
    size = d * (d + 1) + 2 * heads * d * (d_key + d_value) + (d + 1) * classes
    stored = bits.label_bits(examples, classes, scores["accuracy"])
    kind = f"{problem['contexts']} contexts of {problem['context']}, d_model {d}, {heads} x d_head {d_key}"
    bound = bits.weight_bits(str(run["arithmetic"]))
    return Held(f"labels, {kind}", (examples,), f"{examples} examples", stored, size, bound, "bits of a weight")


def read_sequences(run: Mapping[str, Any], scores: Scores) -> Held | None:
    """Sequences recited by a decoder: the library's entropy less its negative log-likelihood, over all that is trained."""
    problem, decoder = run["problem"], Decoder.from_json(run["instrument"])
    library, length, vocabulary = int(problem["library"]), int(problem["length"]), int(problem["vocabulary"])
    shape = f"{decoder.heads} heads, d_model {decoder.d_model}, {decoder.layers} layer{'s' * (decoder.layers != 1)}"
    size = parameters(decoder, vocabulary, length)
    bound, source = bits.weight_bits(str(run["arithmetic"])), "bits of a weight"
    name = f"sequences of {length} out of {vocabulary}, {shape}"
    return Held(name, (library,), f"{library} sequences", max(0.0, scores["stored_bits"]), size, bound, source)


READERS: dict[str, Reader] = {
    "relations": read_relations,
    "dichotomies": read_dichotomies,
    "labels": read_labels,
    "sequences": read_sequences,
}


# -------------------------------------------------------------------------------------------------------------- table


class BitsTable:
    """Cells as records come by. Memory: a few numbers for every member."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, ...], dict[tuple[int, ...], tuple[Held, dict[int, float]]]] = {}

    def add(self, record: Record) -> None:
        """Take a record in; one that stores nothing known here is passed over. The first of a member's copies counts."""
        held = _held(record)
        if held is None:
            return
        run = record.run
        recipe = run["recipe"]
        name = str(recipe.get("name", recipe.get("family")))
        key = (record.kind, held.cell, name, str(run["arithmetic"]), canonical(recipe))
        _, seeds = self._cells.setdefault(key, {}).setdefault(held.level, (held, {}))
        seeds.setdefault(int(run["replicate"]), held.bits)

    def rows(self) -> list[BitsRow]:
        """The cells, by problem and bits per parameter."""
        found = [row for key, levels in self._cells.items() if (row := _best(key, levels)) is not None]
        return sorted(found, key=lambda row: (row.problem, -row.per_parameter, row.cell, row.recipe, row.level))


def bits_table(records: Iterable[Record]) -> list[BitsRow]:
    """The cells of these records."""
    table = BitsTable()
    for record in records:
        table.add(record)
    return table.rows()


def _held(record: Record) -> Held | None:
    reader = READERS.get(record.kind)
    if reader is None or not record.verdict.measured:
        return None
    try:
        return reader(record.run, record.verdict.scores)
    except (KeyError, TypeError, ValueError):
        return None  # of a version that is unknown here


def _best(key: tuple[str, ...], levels: Mapping[tuple[int, ...], tuple[Held, dict[int, float]]]) -> BitsRow | None:
    """The level with the most bits per parameter; of equal ones the smallest. None: none has enough seeds, or any bits"""
    problem, _, recipe, arithmetic, _ = key
    best: BitsRow | None = None
    for level in sorted(levels):
        held, seeds = levels[level]
        if len(seeds) < LEAST_SEEDS:
            continue
        mean, low, high = student(list(seeds.values()))
        if mean <= 0 or (best is not None and mean / held.parameters <= best.per_parameter):
            continue
        best = BitsRow(
            problem=problem,
            cell=held.cell,
            recipe=recipe,
            arithmetic=arithmetic,
            level=held.level_name,
            seeds=len(seeds),
            bits=mean,
            parameters=held.parameters,
            per_parameter=mean / held.parameters,
            low=None if low is None else max(0.0, low) / held.parameters,
            high=None if high is None else high / held.parameters,
            bound=held.bound,
            bound_source=held.bound_source,
        )
    return best
