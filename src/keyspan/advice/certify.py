"""Certify weights: the judge's verdict on a file, against the graph and the vectors in it or given beside it."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from keyspan.errors import BadInput
from keyspan.evidence.record import head
from keyspan.files.arrays import read_array
from keyspan.files.graphs import read_graph
from keyspan.files.paths import name_of, shown
from keyspan.files.weights import read_weights
from keyspan.lab.judge import judge_channel
from keyspan.problems.graphs import check_edges
from keyspan.problems.relations import RelationInstance
from keyspan.verdict import Status, Verdict


@dataclass(frozen=True)
class Certificate:
    """A verdict on weights. context_robust: exact on all items means exact in every context (Adler 2025, lemma 4.1)."""

    verdict: Verdict
    heads: int
    d_key: int
    items: int
    edges: int

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan certify`."""
        scores, witness = self.verdict.scores, self.verdict.witness
        return head() | {
            "exact": self.verdict.exact,
            "f1": scores["f1"],
            "f1_best": scores["f1_best"],
            "threshold": scores["threshold"],
            "threshold_best": witness["threshold_best"],
            "margin": scores.get("margin"),
            "min_edge": witness["min_edge"],
            "max_nonedge": witness["max_nonedge"],
            "context_robust": self.verdict.exact,
            "true_positives": witness["true_positives"],
            "false_positives": witness["false_positives"],
            "false_negatives": witness["false_negatives"],
            "heads": self.heads,
            "d_key": self.d_key,
            "key_budget": self.heads * self.d_key,
            "items": self.items,
            "edges": self.edges,
        }


def certify(weights: str | Path, *, graph: str | Path | None = None, embeddings: str | Path | None = None) -> Certificate:
    """Judge a weights file. graph, embeddings: files that replace what the weights file holds or lacks"""
    for name, value in (("weights", weights), ("graph", graph), ("embeddings", embeddings)):
        if not isinstance(value, str | PathLike) and (value is not None or name == "weights"):
            raise BadInput(f"`{name}` must be the path of a file, but got {shown(value)}. Give a str or a Path.")
    w = read_weights(weights)
    edges = w.edges if graph is None else read_graph(graph)
    rows = w.embeddings if embeddings is None else read_array(embeddings)
    if edges is None:
        raise BadInput(f"A graph must be known, but {weights} holds no `edges`. Give --graph FILE.")
    if rows is None:
        raise BadInput(f"Item vectors must be known, but {weights} holds no `embeddings`. Give --embeddings FILE.")
    check_edges(edges, len(rows), loops=True)
    d_model = w.w_query.shape[1]
    if rows.shape[1] != d_model:
        got = f"{rows.shape[1]} in {name_of(embeddings or weights)}"
        raise BadInput(f"Item vectors must be {d_model} wide, as {name_of(weights)} has it, but got {got}. Give others.")
    verdict = judge_channel(RelationInstance(None, edges, rows), w.w_query, w.w_key, w.bias)
    if verdict.status is not Status.MEASURED:
        raise BadInput(f"Scores must be finite, but {weights} gives some that are not. Scale the weights down.")
    return Certificate(verdict, w.w_query.shape[0], w.w_query.shape[2], len(rows), len(edges))
