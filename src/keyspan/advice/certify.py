"""Certify weights: the judge's verdict on a file, against the graph and the vectors in it or given beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

from keyspan.display import Displayed
from keyspan.errors import BadInput, require
from keyspan.evidence.record import head
from keyspan.files.arrays import read_array
from keyspan.files.graphs import read_graph
from keyspan.files.paths import name_of, shown
from keyspan.files.weights import read_weights
from keyspan.lab.channels import MANY, certify_channel, scale
from keyspan.lab.one_head import MOST_ITEMS, WIDEST, OneHead, applies
from keyspan.lab.one_head import one_head as find_one_head
from keyspan.lab.proof import Proof
from keyspan.lab.quantize import Precision
from keyspan.lab.quantize import precision as measure_precision
from keyspan.problems.graphs import check_edges
from keyspan.problems.relations import RelationInstance
from keyspan.theory.softmax import LongestContexts, SoftmaxGuarantee, guarantee, longest_contexts
from keyspan.verdict import Status, Verdict

PRECISION = tuple(field.name for field in fields(Precision))


@dataclass(frozen=True)
class Certificate(Displayed):
    """A verdict on weights, and what of it is proven in exact arithmetic.

    context_robust: exact on all items means exact in every context (Adler 2025, lemma 4.1)    proof: of what is exact, or is
    not    scale: the largest that a score could be    softmax: what the proven gap guarantees in contexts of a given length
    longest: the contexts for which a given inverse temperature suffices    precision: fewest bits, formats    one_head:
    whether any single head, however wide, holds the graph
    """

    verdict: Verdict
    heads: int
    d_key: int
    items: int
    edges: int
    proof: Proof
    scale: float
    softmax: SoftmaxGuarantee | None = None
    longest: LongestContexts | None = None
    precision: Precision | None = None
    one_head: OneHead | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan certify`."""
        scores, witness = self.verdict.scores, self.verdict.witness
        return head() | {
            "exact": self.verdict.exact,
            "proved": self.proof.exact is not None and self.proof.exact == self.verdict.exact,
            "f1": scores["f1"],
            "f1_best": scores["f1_best"],
            "threshold": scores["threshold"],
            "threshold_best": witness["threshold_best"],
            "margin": scores.get("margin"),
            "relative_margin": scores["margin"] / 2 / self.scale if "margin" in scores and self.scale > 0 else None,
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
            "proof": self.proof.to_json(),
            "softmax": None if self.softmax is None else self.softmax.to_json(),
            "one_head": None if self.one_head is None else self.one_head.to_json(),
            "longest_contexts": None if self.longest is None else self.longest.to_json(),
            **{name: getattr(self.precision, name, None) for name in PRECISION},
        }


def certify(
    weights: str | Path,
    *,
    graph: str | Path | None = None,
    embeddings: str | Path | None = None,
    context: int | None = None,
    eps: float = 0.01,
    beta: float | None = None,
    precision: bool = False,
    one_head: bool = False,
    device: str = "cpu",
) -> Certificate:
    """Judge a weights file, and prove what can be proven.

    graph, embeddings: files that replace what the weights file holds or lacks    context, eps: keys in a context, and the
    share of attention that may go astray: asks for the inverse temperatures that guarantee it    beta: an inverse
    temperature: asks for the longest contexts that it is certain for    precision: ask how few bits a weight may have
    one_head: ask whether any single head could hold the graph    device: cpu, cuda, or auto: where many items are proven
    (the numbers are float64 anywhere)
    """
    for name, value in (("weights", weights), ("graph", graph), ("embeddings", embeddings)):
        if not isinstance(value, str | PathLike) and (value is not None or name == "weights"):
            raise BadInput(f"`{name}` must be the path of a file, but got {shown(value)}. Give a str or a Path.")
    whole = isinstance(context, int) and not isinstance(context, bool)
    require(context is None or (whole and context >= 1), "`--context >= 1`", shown(context), "A context has keys.")
    number = isinstance(eps, int | float) and not isinstance(eps, bool)
    require(number and 0 < eps < 1, "`0 < --eps < 1`", shown(eps), "It is a share of the attention; try 0.01.")
    given = isinstance(beta, int | float) and not isinstance(beta, bool) and 0 < beta < math.inf
    require(beta is None or given, "`--beta > 0`", shown(beta), "It is an inverse temperature: what scores are multiplied by.")
    require(device in ("cpu", "cuda", "auto"), "`--device` in auto|cpu|cuda", shown(device), "Choose one.")
    w = read_weights(weights)
    edges = w.edges if graph is None else read_graph(graph)
    rows = w.embeddings if embeddings is None else read_array(embeddings)
    if edges is None:
        raise BadInput(f"A graph must be known, but {weights} holds no `edges`. Give --graph FILE.")
    if rows is None:
        raise BadInput(f"Item vectors must be known, but {weights} holds no `embeddings`. Give --embeddings FILE.")
    check_edges(edges, len(rows), loops=True)
    d_model = w.d_model
    if rows.shape[1] != d_model:
        got = f"{rows.shape[1]} in {name_of(embeddings or weights)}"
        raise BadInput(f"Item vectors must be {d_model} wide, as {name_of(weights)} has it, but got {got}. Give others.")
    instance = RelationInstance(None, edges, rows)
    verdict, proof = certify_channel(instance, w.w_query, w.w_key, w.bias, device=_device(device, len(rows)))
    if verdict.status is not Status.MEASURED or proof is None:
        raise BadInput(f"Scores must be finite, but {weights} gives some that are not. Scale the weights down.")
    return Certificate(
        verdict,
        heads=w.heads,
        d_key=w.d_key,
        items=len(rows),
        edges=len(edges),
        proof=proof,
        scale=scale(instance, w.w_query, w.w_key),
        softmax=None if context is None else _guarantee(proof, context, eps, w.heads),
        longest=None if beta is None else _longest(proof, beta, eps, w.heads),
        precision=measure_precision(instance, w.w_query, w.w_key) if precision else None,
        one_head=_single(instance) if one_head else None,
    )


def _single(instance: RelationInstance) -> OneHead:
    items, d_model = instance.embeddings.shape
    limits = f"d_model <= {WIDEST} and items <= {MOST_ITEMS} for `--one-head`, and a non-edge"
    require(applies(instance), limits, f"d_model={d_model}, items={items}, edges={len(instance.edges)}", "Leave it out.")
    return find_one_head(instance)


def _device(asked: str, items: int) -> str:
    """cuda only where it is there; `auto` takes it for many items."""
    if asked == "cpu" or (asked == "auto" and items < MANY):
        return "cpu"
    import torch

    there = torch.cuda.is_available()
    require(there or asked == "auto", "a CUDA device for `--device cuda`", "none", "Use --device cpu.")
    return "cuda" if there else "cpu"


def _guarantee(proof: Proof, context: int, eps: float, heads: int) -> SoftmaxGuarantee | None:
    """For any context of so many keys, one target of an item among them at least. None without a proven finite gap."""
    if not (0 < proof.gap < math.inf):
        return None
    return guarantee(gap=proof.gap, context=context, eps=eps, heads=heads)


def _longest(proof: Proof, beta: float, eps: float, heads: int) -> LongestContexts | None:
    """The other way round."""
    if not (0 < proof.gap < math.inf):
        return None
    return longest_contexts(gap=proof.gap, beta=beta, eps=eps, heads=heads)
