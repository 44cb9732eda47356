"""How item vectors are spread, and what that costs a design: their rank takes the place of d, their stable rank adds a
factor."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.evidence.shipped import Factor, rows_effect
from keyspan.problems import spectrum

MOST_ROWS = 2**14  # of a larger table, so many rows spread evenly over it


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Item vectors, as a design sees them.

    rank: dimensions that they span, which is all that a channel can use    stable_rank: |X|_F^2 / |X|_2^2, of the rows less
    their
    mean    dimension: the d of Gaussian rows with this stable rank    factor: (rank / dimension)^kappa, what trained
    channels needed beyond Gaussian rows of this rank
    """

    items: int
    d_model: int
    rank: int
    stable_rank: float
    effective_rank: float
    dimension: float
    factor: Factor = field(default_factory=lambda: Factor(1.0, 0.0))

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON."""
        return asdict(self)


def rows_of(vectors: NDArray[np.floating[Any]], d_model: int | None = None) -> Rows:
    """Look at item vectors. vectors: (items, d_model)"""
    require(vectors.ndim == 2 and min(vectors.shape) >= 1, "embeddings are (items, d_model)", vectors.shape, "Check the file.")
    items, width = vectors.shape
    require(d_model in (None, width), f"`--d-model` is that of the embeddings, {width}", d_model, f"Use --d-model {width}.")
    require(bool(np.isfinite(vectors).all()), "embeddings are finite numbers", "nan or inf", "Check the file.")
    step = -(-items // MOST_ROWS)
    some = np.asarray(vectors[::step], dtype=np.float64)
    require(bool(some.any()), "embeddings are not all zero", "zeros", "Check the file.")
    centred = spectrum.centred(some)
    apart = centred if np.abs(centred).max() > 1e-12 * np.abs(some).max() else some
    stable = spectrum.stable_rank(apart)
    rank = spectrum.rank(some)
    dimension = spectrum.dimension_of(stable, len(some), rank)
    return Rows(
        items=items,
        d_model=width,
        rank=rank,
        stable_rank=stable,
        effective_rank=spectrum.effective_rank(some),
        dimension=dimension,
        factor=rows_effect().factor(rank, dimension),
    )
