"""Figure 1: do real data fulfil what theorem 1 asks, and are they in general position? Computed, nothing is trained.

Queries are what one random attention layer makes of a first token: softmax attention of `HEADS` Gaussian heads over all
tokens of an example, with residual. Their Kruskal rank is measured, and how often random sets of them are independent, as the
paper has it.

    images   32 x 32 crops of the photograph that comes with matplotlib: 64 patches of 4 x 4 x 3 through a Gaussian map to
             d = 192, a class token first, Gaussian positions: a vision transformer before training
    uniform  tokens uniform on [0, 1), as the paper trains on
    given    rows of a file, each of them with `GIVEN` others for a context
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.papers.figures import AsPlanned, Figure
from keyspan.problems.ranks import all_independent, context_ranks, default_tolerance, independent_fraction, kruskal_rank
from keyspan.runners.given import Rows
from keyspan.seeds import Stream

Float = NDArray[np.float64]
CROP, PATCH, WIDTH = 32, 4, 192
HEADS = 3
EXAMPLES = {"smoke": 200, "short": 400, "paper": 1000}
SEEDS = {"smoke": 2, "short": 5, "paper": 10}
GIVEN = 16
SAMPLES = 32  # sets of a size
SHARES = 12  # sizes of sets along a curve
PHOTOGRAPH = "grace_hopper.jpg"


@dataclass(frozen=True)
class Plan:
    """What is looked at. given: rows of a file, if there are any"""

    examples: int
    seeds: int
    data: tuple[str, ...] = ("images", "uniform")
    given: Rows | None = field(default=None, compare=False)

    def over(self, rows: Rows) -> Plan:
        """The same of vectors that a user has."""
        return replace(self, data=("given",), given=rows)


def plan(tier: str) -> Plan:
    """What a tier looks at."""
    return Plan(EXAMPLES[tier], SEEDS[tier])


@dataclass(frozen=True)
class Found1:
    """One kind of data after one random layer. low, high: the Kruskal rank lies between    sampled: by sets drawn at random

    usual: the largest size at which all sets drawn at random are independent in float32's terms, as the paper counts
    full: share of contexts of rank n    rank: of all queries    fractions: (size of a set, share of sets that are independent)
    """

    data: str
    seed: int
    context: int
    d_model: int
    examples: int
    low: int
    high: int
    sampled: int
    usual: int
    full: float
    rank: int
    fractions: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Ranks(AsPlanned):
    """Figure 1, computed (a `papers.figures.Found`)."""

    figure: Figure
    tier: str
    found: tuple[Found1, ...]

    @property
    def cells_asked(self) -> tuple[Hashable, ...]:
        """The kinds of data."""
        return tuple(self.figure.tiers[self.tier].data)

    @property
    def failed_cells(self) -> frozenset[Any]:
        """None: nothing is trained."""
        return frozenset()

    @property
    def run_ids(self) -> frozenset[str]:
        """None."""
        return frozenset()

    @property
    def trained(self) -> frozenset[str]:
        """None."""
        return frozenset()


def measured(figure: Figure, tier: str) -> Ranks:
    """All kinds of data after each random layer."""
    wanted: Plan = figure.tiers[tier]
    return Ranks(figure, tier, tuple(_one(kind, wanted, seed) for kind in wanted.data for seed in range(wanted.seeds)))


def _one(kind: str, wanted: Plan, seed: int) -> Found1:
    stream = Stream(f"ranks {kind}", "tokens", seed)
    tokens = {"images": image_tokens, "uniform": uniform_tokens}[kind](stream, wanted.examples) if kind != "given" else None
    if tokens is None:
        assert wanted.given is not None and wanted.given.rows is not None
        tokens = given_tokens(stream, wanted.given.rows, wanted.examples)
    queries, contexts = after_attention(stream, tokens).astype(np.float32), tokens.astype(np.float32)
    context, d_model = tokens.shape[1], tokens.shape[2]
    found = kruskal_rank(queries, stream=Stream(f"ranks {kind}", "sets", seed), sets=2000, samples=SAMPLES)
    most = min(d_model, len(queries))
    usual = usual_rank(queries, Stream(f"ranks {kind}", "usual", seed))
    sizes = sorted({max(1, round(most * (k + 1) / SHARES)) for k in range(SHARES)} | {min(most, context), usual})
    fractions = [
        (r, independent_fraction(queries, r, Stream(f"ranks {kind}", "fractions", seed), samples=SAMPLES)) for r in sizes
    ]
    some = contexts[: min(64, len(contexts))]
    singular = np.linalg.svd(queries.astype(np.float64), compute_uv=False)
    return Found1(
        data=kind,
        seed=seed,
        context=context,
        d_model=d_model,
        examples=len(queries),
        low=found.low,
        high=found.high,
        sampled=found.sampled,
        usual=usual,
        full=float((context_ranks(some) == context).mean()),
        rank=int((singular > default_tolerance(queries) * singular[0]).sum()),
        fractions=tuple(fractions),
    )


def usual_rank(queries: NDArray[np.float32], stream: Stream) -> int:
    """The largest size at which all sets drawn at random are independent in float32's terms, by bisection.

    Sizes below one that passes are taken to pass, since parts of independent sets are independent. queries: (T, d)
    """
    low, high = 1, min(queries.shape)
    while low < high:
        middle = (low + high + 1) // 2
        passes = all_independent(queries, middle, stream, samples=SAMPLES)
        low, high = (middle, high) if passes else (low, middle - 1)
    return low


def after_attention(stream: Stream, tokens: Float) -> Float:
    """The first token of every example after one random attention layer with residual. tokens: (T, n, d)    returns: (T, d)

    W_Q, W_K, W_V of a head: (d, d / HEADS), Gaussian of variance 1 / d, logits divided by sqrt(d / HEADS); W_O: (d, d)
    """
    count, _, d_model = tokens.shape
    width = max(1, d_model // HEADS)
    scale = tokens.std() or 1.0
    x = tokens / scale
    out = x[:, 0].copy()
    for _head in range(HEADS):
        w_query, w_key, w_value, w_out = (
            stream.normal(shape) / np.sqrt(d_model) for shape in ((d_model, width),) * 3 + ((width, d_model),)
        )
        logits = np.einsum("tw,tnw->tn", x[:, 0] @ w_query, x @ w_key, optimize=True) / np.sqrt(width)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        mixed = np.einsum("tn,tnd->td", weights, x)
        out += mixed @ w_value @ w_out
    assert out.shape == (count, d_model)
    return np.asarray(out)


def image_tokens(stream: Stream, count: int) -> Float:
    """Crops as a vision transformer sees them. returns: (count, 65, 192)"""
    photograph = _photograph()
    side = CROP // PATCH
    high, wide = (size - CROP for size in photograph.shape[:2])
    tops, lefts = np.divmod(stream.subsets(1, high * wide, count)[0], wide)  # no crop twice
    crops = np.stack([photograph[t : t + CROP, x : x + CROP] for t, x in zip(tops, lefts, strict=True)])
    cut = crops.reshape(count, side, PATCH, side, PATCH, 3).transpose(0, 1, 3, 2, 4, 5).reshape(count, side * side, -1)
    placed = cut @ (stream.normal((PATCH * PATCH * 3, WIDTH)) / PATCH) + stream.normal((side * side, WIDTH))
    first = np.broadcast_to(stream.normal((1, 1, WIDTH)), (count, 1, WIDTH))
    return np.concatenate([first, placed], axis=1)


@cache
def _photograph() -> Float:
    """Pixels in [-1, 1]. Pillow reads it, as it does for matplotlib, which takes long to import. returns: (rows, columns, 3)"""
    from PIL import Image

    found = find_spec("matplotlib")
    assert found is not None and found.origin is not None
    with Image.open(Path(found.origin).parent / "mpl-data" / "sample_data" / PHOTOGRAPH) as picture:
        return np.asarray(picture.convert("RGB"), dtype=np.float64) / 127.5 - 1.0


def uniform_tokens(stream: Stream, count: int) -> Float:
    """A query and a context of 32 tokens in R^64. returns: (count, 33, 64)"""
    return stream.fractions((count, 33, 64)).astype(np.float64)


def given_tokens(stream: Stream, rows: Float, count: int) -> Float:
    """Every row once, at most, each with some others. returns: (count, GIVEN + 1, d)"""
    require(len(rows) > GIVEN, f"more than {GIVEN} rows of `--embeddings`", len(rows), "Give a larger file.")
    first = stream.permutation(len(rows))[:count]
    others = stream.subsets(len(first), len(rows) - 1, GIVEN)
    others = others + (others >= first[:, None])  # never the row itself
    return np.asarray(rows[np.concatenate([first[:, None], others], axis=1)], dtype=np.float64)
