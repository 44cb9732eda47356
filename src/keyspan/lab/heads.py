"""Heads of today judged, in float64: queries and keys as `attention.reference_heads` means them, pairs by a channel's tiles.

Keys are judged as a cache holds them. Where the cache is full (`keys` fp32) the same weights are judged again with keys rounded
after training: `f1_bf16`, `f1_fp8`, `f1_int8`, `f1_int4`, each F1 at the member's own threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.attention import reference_heads
from keyspan.attention.shapes import CACHES, Heads
from keyspan.errors import BadInput, require
from keyspan.lab.channels import counted_verdict
from keyspan.lab.tiles import BLOCK, TILE, Projected, Tiles
from keyspan.problems.relations import RelationInstance
from keyspan.verdict import Status, Verdict

Float = NDArray[np.float64]
AFTER = tuple(name for name in CACHES if name != "fp32")  # formats that keys are rounded to after training


class Ready(Projected):
    """Queries or keys that are there already. rows: (heads, items, d_key)"""

    def __init__(self, rows: Float, size: int) -> None:
        self.x, self.w, self.size = rows[0], np.empty((len(rows), 0, rows.shape[2])), size
        missing = -rows.shape[1] % BLOCK
        self.held = np.ascontiguousarray(np.pad(rows, ((0, 0), (0, missing), (0, 0))))


class HeadTiles(Tiles):
    """Scores `max_k c(q_i . k_j)` by tiles, of queries and keys that are made. cap: 0 for none"""

    def __init__(self, instance: RelationInstance, queries: Float, keys: Float, cap: float, tile: int = TILE) -> None:
        self.sources = self.items = instance.items
        self.edges, self.cap = instance.edges, cap
        self.size = -(-tile // BLOCK) * BLOCK
        self.heads, _, self.d_key = queries.shape
        self.q, self.k = Ready(queries, self.size), Ready(keys, self.size)
        self._key, self._query = (-1, np.empty(0)), (-1, np.empty(0))

    def level(self, best: Float) -> Float:
        """A soft cap, which keeps the order."""
        return reference_heads.capped(best, self.cap)


@np.errstate(over="ignore", invalid="ignore")
def judge_heads(instance: RelationInstance, heads: Heads, answers: Mapping[str, Any], tile: int = TILE) -> Verdict:
    """Judge heads whose items all stand in one place."""
    w = checked(instance, heads, answers)
    verdict = _judged(instance, heads, w, heads.keys, tile)
    if not verdict.measured or heads.keys != "fp32":
        return verdict
    after = {f"f1_{kept}": _judged(instance, heads, w, kept, tile) for kept in AFTER}
    scores = {name: v.scores["f1"] for name, v in after.items() if v.measured}
    return replace(verdict, scores={**verdict.scores, **scores})


def _judged(instance: RelationInstance, heads: Heads, w: dict[str, Float], kept: str, tile: int) -> Verdict:
    here = np.zeros(instance.items, dtype=np.int64)
    x = instance.embeddings
    queries, keys = reference_heads.queries(heads, x, w, here), reference_heads.keys(heads, x, w, here, kept)
    tiles = HeadTiles(instance, queries, keys, heads.cap, tile)
    bias = float(w["bias"])
    if not (np.isfinite(2.0 * tiles.largest()) and np.isfinite(bias)):
        return Verdict(status=Status.DIVERGED)
    return counted_verdict(instance, tiles, bias)


def checked(instance: RelationInstance, heads: Heads, answers: Mapping[str, Any]) -> dict[str, Float]:
    """The weights as float64, if they are all there in their shapes."""
    d, h, width, turned = instance.embeddings.shape[1], heads.heads, heads.d_key, heads.turned
    shapes: dict[str, tuple[int, ...]] = {"w_query": (h, d, width), "bias": ()}
    if heads.latent:
        shapes |= {"w_down": (d, heads.latent), "w_turned": (d, turned), "w_up": (h, heads.latent, width - turned)}
    else:
        shapes |= {"w_key": (heads.key_heads, d, width)}
    if heads.norm:
        shapes |= {"gain": (width,)}
    if not set(shapes) <= set(answers):
        raise BadInput(f"Heads must have {', '.join(shapes)}, but got {', '.join(answers)}. Check the weights.")
    found = {name: np.asarray(answers[name], dtype=np.float64) for name in shapes}
    for name, shape in shapes.items():
        require(found[name].shape == shape, f"`{name}` is {shape}", found[name].shape, "Check the weights.")
    return found
