"""One layer audited: what its heads have, use and share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.advice.capacity import Capacity
from keyspan.advice.checkpoints.layout import LayerPlan
from keyspan.advice.recovery import Recovery
from keyspan.advice.spectra import LayerSpectra, effective_rank, stable_rank

Float = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Merge:
    """Two heads of which one could ask with the other's queries and keys. loss: share of its scores that this would lose"""

    heads: tuple[int, int]
    loss: float


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerRelations:
    """How well a layer recovers given pairs. heads: at relative position 0    maximum: of the largest score over heads
    averaged: the same of scores averaged over distances (heads, then the maximum), empty where nothing turns    found: heads
    whose F1 is above what chance gives the best of all heads
    """

    heads: tuple[Recovery, ...]
    maximum: Recovery
    averaged: tuple[Recovery, ...] = ()
    found: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON."""
        averaged = None
        if self.averaged:
            averaged = {"heads": [r.to_dict() for r in self.averaged[:-1]], "maximum": self.averaged[-1].to_dict()}
        return {
            "heads": [r.to_dict() for r in self.heads],
            "maximum": self.maximum.to_dict(),
            "averaged": averaged,
            "found": list(self.found),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerAudit:
    """One layer. plan: where it is kept and how it scores    reach: distances that positions were averaged over
    merges: pairs of heads that could merge, the cheapest first
    """

    d_model: int
    plan: LayerPlan
    spectra: LayerSpectra
    capacity: Capacity
    reach: int
    merges: tuple[Merge, ...]
    relations: LayerRelations | None = None
    with_spectra: bool = False

    @property
    def key_budget(self) -> int:
        """D_K = h d_k, what the layer has."""
        return self.plan.heads * self.plan.d_key

    @property
    def effective_rank(self) -> Float:
        """Of W_Q W_K^T, for every query head."""
        return effective_rank(self.spectra.values)

    @property
    def used(self) -> float:
        """What the layer uses of its key budget: the sum of its heads' effective ranks."""
        return float(self.effective_rank.sum())

    @property
    def distinct_heads(self) -> float:
        """exp of the entropy of the eigenvalues of the heads' similarities: h where no two are alike, 1 where all are."""
        return float(effective_rank(np.clip(np.linalg.eigvalsh(self.spectra.similarity), 0.0, None)))

    @property
    def merged(self) -> tuple[Merge, ...]:
        """Merges that can be had together: each head in one of them, the cheapest first."""
        taken: set[int] = set()
        kept = []
        for merge in self.merges:
            if taken.isdisjoint(merge.heads):
                taken.update(merge.heads)
                kept.append(merge)
        return tuple(kept)

    def to_dict(self) -> dict[str, Any]:
        """A layer of the JSON."""
        plan, s = self.plan, self.spectra
        return {
            "layer": plan.layer,
            "heads": plan.heads,
            "kv_heads": plan.kv_heads,
            "d_key": plan.d_key,
            "key_budget": self.key_budget,
            "kv_of_query": list(plan.kv_of_query),
            "effective_rank": self.effective_rank.tolist(),
            "stable_rank": stable_rank(s.values).tolist(),
            "used": self.used,
            "used_fraction": self.used / self.key_budget,
            "folded": {
                "effective_rank": effective_rank(s.folded).tolist(),
                "stable_rank": stable_rank(s.folded).tolist(),
            },
            "symmetry": s.symmetry.tolist(),
            "overlap": self._overlap(),
            "distinct_heads": self.distinct_heads,
            "redundancy": 1 - self.distinct_heads / plan.heads,
            "mergeable": [{"heads": list(m.heads), "loss": m.loss} for m in self.merges],
            "heads_after_merging": plan.heads - len(self.merged),
            "capacity": self.capacity.to_dict(),
            "scores": {
                "scale": plan.scale,
                "softcap": plan.softcap,
                "normalised": plan.query_norm is not None,
                "window": plan.window,
            },
            "rotary": self._rotary(),
            "relations": None if self.relations is None else self.relations.to_dict(),
            "spectrum": s.values.tolist() if self.with_spectra else None,
        }

    def _overlap(self) -> dict[str, Any]:
        """Between the directions of heads; two random ones would overlap by `expected`."""
        s, plan = self.spectra, self.plan
        cosine = np.clip(s.nearest[:, 0], 0.0, 1.0)
        return {
            "query": off_diagonal(s.overlap_query),
            "key": off_diagonal(s.overlap_key),
            "expected": min(1.0, plan.d_key / self.d_model),
            "nearest": s.nearest[:, 1].astype(int).tolist() if plan.heads > 1 else [],
            "smallest_angle": np.degrees(np.arccos(cosine)).tolist() if plan.heads > 1 else [],
        }

    def _rotary(self) -> dict[str, Any] | None:
        """What depends on positions, and what is left of it on average."""
        turning, averaged = self.plan.rotary, self.spectra.averaged
        if turning is None or averaged is None:
            return None
        whole = np.sqrt((self.spectra.values**2).sum(axis=1))
        left = np.sqrt((averaged**2).sum(axis=1))
        return {
            "dimensions": turning.width,
            "of": self.plan.d_key,
            "pairs": turning.pairs,
            "rule": turning.kind,
            "theta": turning.theta,
            "reach": self.reach,
            "averaged_effective_rank": effective_rank(averaged).tolist(),
            "kept": (left / np.where(whole > 0, whole, 1.0)).tolist(),
        }


def off_diagonal(matrix: Float) -> float | None:
    """The mean over pairs of different heads; None where there is one head."""
    n = len(matrix)
    return None if n < 2 else float((matrix.sum() - np.trace(matrix)) / (n * (n - 1)))


def merges(similarity: Float, most_loss: float) -> tuple[Merge, ...]:
    """Pairs of heads of which one could do with the other's queries and keys, rescaled, at a loss of 1 - similarity^2.

    That is the share of its scores' mean square (over pairs of vectors that point everywhere alike, and over distances)
    that no scaling of the other's brings back.
    """
    found = []
    for a in range(len(similarity)):
        for b in range(a + 1, len(similarity)):
            alike = float(similarity[a, b])
            loss = max(0.0, 1 - alike * alike)
            if alike > 0 and loss <= most_loss:
                found.append(Merge(heads=(a, b), loss=loss))
    return tuple(sorted(found, key=lambda merge: (merge.loss, merge.heads)))
