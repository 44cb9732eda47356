"""Audit a trained checkpoint: what its attention has, uses and wastes, layer by layer. NumPy alone; one layer in memory.

    keyspan audit FOLDER            folder with config.json and safetensors, sharded or not

A head scores pairs of tokens by a bilinear form W_Q W_K^T of rank d_key at most. The audit takes that form apart from its
factors (`spectra`), asks how alike heads are, how many relations the layer has room for (`capacity`), and, given pairs of
tokens, whether it scores them above others (`recovery`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.advice.audit_layer import LayerAudit, LayerRelations, merges
from keyspan.advice.audit_relations import read_relation
from keyspan.advice.capacity import Capacity, capacity
from keyspan.advice.checkpoints.finding import Match, matches, plan
from keyspan.advice.checkpoints.layout import LayerPlan, Layout
from keyspan.advice.checkpoints.weights import LayerWeights, read_layer, token_vectors
from keyspan.advice.recovery import Recoverer, Recovery, Relation
from keyspan.advice.spectra import measure
from keyspan.advice.token_spread import TokenSpread, token_spread
from keyspan.display import Displayed
from keyspan.errors import BadInput, require
from keyspan.evidence.record import head
from keyspan.files.checkpoints import open_checkpoint
from keyspan.files.paths import shown

Float = NDArray[np.float64]
REACH = 4096  # distances that rotary positions are averaged over, where a layer looks back as far
MERGE_LOSS = 0.1


@dataclass(frozen=True, kw_only=True, eq=False)
class Audit(Displayed):
    """What a checkpoint's attention has, uses and wastes.

    folder: as it was named    layout: which tensor is what    embeddings: how token vectors are spread    relation: the
    pairs that were looked for    bar: the F1 above which a head is `found`    explained: every tensor read, if asked for
    """

    folder: str
    layout: Layout
    layers: tuple[LayerAudit, ...]
    embeddings: TokenSpread
    relation: Relation | None = None
    bar: float | None = None
    explained: tuple[Match, ...] | None = None
    merge_loss: float = MERGE_LOSS

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers should know of this model."""
        return (*self.layout.notes, *_notes(self.layout, self.layers))

    @property
    def found(self) -> tuple[tuple[int, int], ...]:
        """(layer, head) of all heads that recover the pairs better than chance."""
        return tuple((a.plan.layer, h) for a in self.layers if a.relations for h in a.relations.found)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan audit`."""
        return head() | {
            "folder": self.folder,
            "family": self.layout.family,
            "model_type": self.layout.model_type,
            "d_model": self.layout.d_model,
            "layers": [layer.to_dict() for layer in self.layers],
            "embeddings": self.embeddings.to_dict(),
            "relations": self._relations(),
            "summary": self._summary(),
            "notes": list(self.notes),
            "explain": None if self.explained is None else [match.to_dict() for match in self.explained],
        }

    def with_spectra(self) -> Audit:
        """The same, with every singular value in its JSON."""
        return replace(self, layers=tuple(replace(layer, with_spectra=True) for layer in self.layers))

    def _relations(self) -> dict[str, Any] | None:
        if self.relation is None:
            return None
        best = max(self.layers, key=lambda a: a.relations.maximum.f1 if a.relations else 0.0)
        return {
            "items": len(self.relation.tokens),
            "edges": len(self.relation.edges),
            "left_out": self.relation.left_out,
            "self_pairs": self.relation.loops,
            "bar": self.bar,
            "found": [list(place) for place in self.found],
            "best_layer": best.plan.layer,
        }

    def _summary(self) -> dict[str, Any]:
        had = sum(layer.key_budget for layer in self.layers)
        used = sum(layer.used for layer in self.layers)
        least = min(self.layers, key=lambda a: a.used / a.key_budget)
        return {
            "layers": len(self.layers),
            "of_layers": len(self.layout.layers),
            "heads": sum(layer.plan.heads for layer in self.layers),
            "kv_heads": sum(layer.plan.kv_heads for layer in self.layers),
            "key_budget": had,
            "used": used,
            "used_fraction": used / had,
            "least_used_layer": least.plan.layer,
            "distinct_heads": sum(layer.distinct_heads for layer in self.layers),
            "heads_after_merging": sum(layer.plan.heads - len(layer.merged) for layer in self.layers),
            "merge_loss": self.merge_loss,
        }


def audit(
    folder: str | Path,
    *,
    mapping: str | Path | None = None,
    relations: str | Path | None = None,
    layers: Iterable[int] | None = None,
    merge_loss: float = MERGE_LOSS,
    reach: int = REACH,
    seed: int = 0,
    explain: bool = False,
    spectra: bool = False,
    told: Callable[[int, int], None] = lambda done, of: None,
) -> Audit:
    """Audit the checkpoint in a folder.

    mapping: a TOML file that says which tensor is what, for models of other families    relations: a file of token pairs,
    ids or words, to be looked for    layers: only these    merge_loss: the share of a head's scores that a merge may lose
    reach: distances that rotary positions are averaged over, at most    seed: other shuffles of the pairs    explain,
    spectra: put every matched tensor, every singular value into the answer    told: layers done, and how many there are
    """
    for name, value in (("folder", folder), ("mapping", mapping), ("relations", relations)):
        if not isinstance(value, str | PathLike) and (value is not None or name == "folder"):
            raise BadInput(f"`{name}` must be a path, but got {shown(value)}. Give a str or a Path.")
    number = isinstance(merge_loss, int | float) and not isinstance(merge_loss, bool)
    require(number and 0 <= merge_loss < 1, "`0 <= --merge-loss < 1`", shown(merge_loss), "Try 0.1.")
    require(type(reach) is int and 1 <= reach <= 2**24, "`1 <= --reach <= 16777216`", shown(reach), "Try 4096.")
    checkpoint = open_checkpoint(folder)
    layout = plan(checkpoint, mapping)
    chosen = _chosen(layout, layers)
    relation = None if relations is None else read_relation(checkpoint, layout, relations)
    spread = token_spread(checkpoint, layout)
    looker = None if relation is None else Recoverer(relation, seed)
    tokens = None if relation is None else token_vectors(checkpoint, layout.embeddings, relation.tokens)
    done: list[LayerAudit] = []
    for one in chosen:
        told(len(done), len(chosen))
        weights = read_layer(checkpoint, one)
        audited = _layer(layout, weights, spread, merge_loss, reach, spectra)
        if looker is not None and tokens is not None:
            audited = replace(audited, relations=_looked_for(weights, tokens, looker, audited.reach))
        done.append(audited)
    told(len(done), len(chosen))
    return Audit(
        folder=str(folder),
        layout=layout,
        layers=tuple(done if looker is None else [_with_found(layer, looker.bar()) for layer in done]),
        embeddings=spread,
        relation=relation,
        bar=None if looker is None else looker.bar(),
        explained=tuple(matches(checkpoint, layout)) if explain else None,
        merge_loss=float(merge_loss),
    )


def _chosen(layout: Layout, layers: Iterable[int] | None) -> list[LayerPlan]:
    """The layers asked for, in order."""
    if layers is None:
        return list(layout.layers)
    wanted = list(layers) if isinstance(layers, Iterable) and not isinstance(layers, str) else [layers]
    rule = f"`--layers` are numbers from 0 to {len(layout.layers) - 1}"
    for layer in wanted:
        whole = isinstance(layer, int | np.integer) and not isinstance(layer, bool)
        require(whole and 0 <= layer < len(layout.layers), rule, shown(layer), "Leave it out.")
    require(bool(wanted), rule, "none", "Name one.")
    return [layout.layers[layer] for layer in sorted(set(map(int, wanted)))]


def _layer(
    layout: Layout, weights: LayerWeights, spread: TokenSpread, merge_loss: float, reach: int, with_spectra: bool
) -> LayerAudit:
    one = weights.plan
    reach = min([reach, *(n for n in (layout.longest, one.window) if n)])
    found = measure(weights, reach)
    return LayerAudit(
        d_model=layout.d_model,
        plan=one,
        spectra=found,
        capacity=_capacity(one.heads, one.d_key, spread.dimension, layout.d_model),
        reach=reach,
        merges=merges(found.similarity, merge_loss),
        with_spectra=with_spectra,
    )


@lru_cache(maxsize=64)  # layers of one model are of one size
def _capacity(heads: int, d_key: int, dimension: float, d_model: int) -> Capacity:
    return capacity(heads=heads, d_key=d_key, dimension=dimension, d_model=d_model)


def _looked_for(weights: LayerWeights, tokens: Float, looker: Recoverer, reach: int) -> LayerRelations:
    """Score all pairs of the tokens, head by head; the direct path, at relative position 0 and on average."""
    one = weights.plan
    states = weights.inputs(tokens)
    query, key = weights.projected("query", states), weights.projected("key", states)
    heads, maximum = _recovered(weights, query, key, looker, counted=True)
    averaged: list[Recovery] = []
    if one.rotary is not None:
        between = one.rotary.average(one.d_key, reach)
        each, most = _recovered(weights, query @ between, key, looker, counted=False)
        averaged = [*each, most]
    return LayerRelations(heads=tuple(heads), maximum=maximum, averaged=tuple(averaged))


def _recovered(
    weights: LayerWeights, query: Float, key: Float, looker: Recoverer, *, counted: bool
) -> tuple[list[Recovery], Recovery]:
    """What each head recovers, and what the largest score over heads does. query, key: (items, heads, d_key)"""
    heads: list[Recovery] = []
    most = np.full((len(query), len(query)), -np.inf)
    for h, group in enumerate(weights.plan.kv_of_query):
        scores = weights.scaled(query[:, h] @ key[:, group].T)
        heads.append(looker.look(scores, counted=counted))
        most = np.maximum(most, scores)
    return heads, looker.look(most, counted=False)


def _with_found(layer: LayerAudit, bar: float) -> LayerAudit:
    """The layer, with its heads named that are above the bar."""
    assert layer.relations is not None
    found = tuple(h for h, one in enumerate(layer.relations.heads) if one.f1 > bar)
    return replace(layer, relations=replace(layer.relations, found=found))


def _notes(layout: Layout, layers: tuple[LayerAudit, ...]) -> list[str]:
    """What of the scores the ranks do not see, and how positions were treated."""
    notes = []
    plans = [layer.plan for layer in layers]
    turning = next((p.rotary for p in plans if p.rotary is not None), None)
    if turning is not None:
        d_key = plans[0].d_key
        part = f"{turning.width} of {d_key} dimensions of a head" if turning.width < d_key else "all dimensions of a head"
        notes.append(
            f"{part} turn with the position (rotary, {turning.kind}): ranks are those at relative position 0, "
            "`rotary` has those averaged over distances; directions and overlaps do not depend on positions"
        )
    if layout.embeddings.positions is not None:
        notes.append("learned positions are added to token vectors at their mean; scores between positions are not audited")
    if any(p.kv_heads < p.heads for p in plans):
        notes.append("query heads share keys in groups (kv_of_query): the key cache holds kv_heads of them, the forms are all")
    if any(p.query_norm is not None for p in plans):
        notes.append("queries and keys are normalised head by head: `folded` has the gains; their sizes are left out")
    if any(p.softcap is not None for p in plans):
        notes.append("scores are capped; that keeps their order, and ranks are those before it")
    if any(p.before is not None for p in plans):
        notes.append("layers take what the layer before has normalised; `folded` has its gains and biases")
    return notes
