"""How a model's token vectors are spread: what stands for the d of a law that was measured on vectors without preference."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.advice.checkpoints.layout import Layout
from keyspan.advice.checkpoints.weights import finished, normalised
from keyspan.advice.spectra import effective_rank, stable_rank
from keyspan.files.checkpoints import Checkpoint
from keyspan.problems.spectrum import dimension_of

Float = NDArray[np.float64]
MOST_ROWS = 2**15  # of a larger vocabulary, so many rows in blocks spread over all of it
BLOCK = 2**10


@dataclass(frozen=True, kw_only=True)
class TokenSpread:
    """Token vectors as the first layer sees them, normalised, its gains left out.

    items: tokens    rows: those looked at, without rows of zeros    stable_rank: |X|_F^2 / |X|_2^2 of the rows less their
    mean (a channel can leave out what all items share, at the price of one dimension)    effective_rank: of the same singular
    values    common: share of the mean row in the rows' mean square    dimension: what the law is asked with, the d of Gaussian
    rows with this stable rank
    """

    items: int
    d_model: int
    rows: int
    stable_rank: float
    effective_rank: float
    common: float
    dimension: float

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON."""
        return asdict(self)


def token_spread(checkpoint: Checkpoint, layout: Layout) -> TokenSpread:
    """Look at a model's token vectors, block by block."""
    items = checkpoint.shape(layout.embeddings.tokens)[0]
    d_model = layout.d_model
    exact = np.float64 if d_model <= 4096 else np.float32  # the Gram matrix is d x d
    gram, total, square, count = np.zeros((d_model, d_model), exact), np.zeros(d_model), 0.0, 0
    for begin, end in _blocks(items):
        rows = checkpoint.read(layout.embeddings.tokens, (begin, end)).astype(np.float64)
        x = normalised(checkpoint, layout, finished(checkpoint, layout.embeddings, rows[rows.any(axis=1)]))
        total += x.sum(axis=0)
        square += float((x * x).sum())
        count += len(x)
        small = x.astype(np.float32)
        gram += small.T @ small
    if count == 0 or square == 0:
        nothing = {"stable_rank": 0.0, "effective_rank": 0.0, "common": 0.0, "dimension": 0.0}
        return TokenSpread(items=items, d_model=d_model, rows=0, **nothing)
    mean = total / count
    gram -= (count * np.outer(mean, mean)).astype(exact)
    values = np.sqrt(np.clip(np.linalg.eigvalsh(gram).astype(np.float64), 0.0, None))
    stable = float(stable_rank(values))
    return TokenSpread(
        items=items,
        d_model=d_model,
        rows=count,
        stable_rank=stable,
        effective_rank=float(effective_rank(values)),
        common=float(mean @ mean) * count / square,
        dimension=dimension_of(stable, count, d_model),
    )


def _blocks(items: int) -> list[tuple[int, int]]:
    """All rows of the table in blocks, or of a large one so many blocks that lie evenly in it."""
    blocks = [(begin, min(begin + BLOCK, items)) for begin in range(0, items, BLOCK)]
    most = MOST_ROWS // BLOCK
    if len(blocks) <= most:
        return blocks
    return [blocks[i * (len(blocks) - 1) // (most - 1)] for i in range(most)]
