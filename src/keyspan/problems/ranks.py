"""What the theorems of memorisation ask of data: ranks of contexts, Kruskal rank and general position of queries.

The Kruskal rank of vectors is the largest r of which every r are independent; vectors in R^d are in general position
when it is d (or their number). Counting all sets is out of the question for many vectors, so what is said is a bracket,
and how each end of it was found.

Vectors are scaled to unit length, and a set counts as independent when its least singular value exceeds `tolerance`. So
defined, every part of an independent set is independent, and more singular values above `tolerance` than the whole has no
set can have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.seeds import Stream

Float = NDArray[np.float64]
Ints = NDArray[np.int64]
SETS = 100_000  # sets that are looked at one by one, at most
GRAM_IS_ENOUGH = 1e-6  # relative: squares of larger ratios are far above what rounds off in float64
SAMPLES = 200
CHUNK = 4096  # sets whose singular values are computed together


def numerical_rank(rows: Float, tolerance: float | None = None) -> int:
    """Singular values above `tolerance` times the largest. tolerance: default (size) 2^-52, as in LAPACK's users

    rows: (..., rows, d)
    """
    values = np.linalg.svd(np.asarray(rows, dtype=np.float64), compute_uv=False)
    limit = max(rows.shape[-2:]) * 2.0**-52 if tolerance is None else tolerance
    return int((values > limit * values.max(initial=0.0)).sum())


def default_tolerance(rows: NDArray[np.floating]) -> float:
    """1e-6 for numbers that a float32 held, 1e-9 for others: some way above what rounding can make of zero."""
    return 1e-6 if rows.dtype.itemsize <= 4 else 1e-9


def context_ranks(contexts: NDArray[np.floating], tolerance: float | None = None) -> Ints:
    """The rank of every context, relative to its largest singular value. contexts: (count, n, d)    returns: (count,)"""
    tolerance = default_tolerance(contexts) if tolerance is None else tolerance
    parts = []
    for start in range(0, len(contexts), CHUNK):
        values = np.linalg.svd(np.asarray(contexts[start : start + CHUNK], dtype=np.float64), compute_uv=False)
        parts.append((values > tolerance * values[:, :1]).sum(axis=1))
    return np.concatenate(parts).astype(np.int64)


@dataclass(frozen=True)
class Kruskal:
    """low <= Kruskal rank <= high, both certain (up to rounding); sampled: every set of so many that was drawn at random
    was independent (at least low, at most high; no proof)

    low_by, high_by: how each end was found    samples: sets drawn at a size
    """

    low: int
    high: int
    sampled: int
    low_by: str
    high_by: str
    samples: int

    @property
    def exact(self) -> bool:
        """Whether it is known."""
        return self.low == self.high


def kruskal_rank(
    vectors: NDArray[np.floating],
    *,
    tolerance: float | None = None,
    sets: int = SETS,
    samples: int = SAMPLES,
    stream: Stream | None = None,
) -> Kruskal:
    """A bracket of the Kruskal rank. vectors: (T, d)    sets: looked at one by one, at most    samples: drawn at each size

    1. No more than the rank of them all; with a zero among them, 0.
    2. From below by coherence: any r unit vectors are independent while the r - 1 largest |x_i . x_j| of every i add up
       to less than 1 (Gershgorin; Tropp's Babel function). It is tried on the vectors as they are and whitened.
    3. Where all sets of a size can be looked at, they are. So the answer is exact for few vectors.
    4. From above by sampled sets. A dependent one is a proof, and is thinned out until no vector of it can be spared.
    """
    require(vectors.ndim == 2 and len(vectors) > 0, "vectors are (T, d), T >= 1", vectors.shape, "Give at least one.")
    tolerance = default_tolerance(vectors) if tolerance is None else tolerance
    rows = np.asarray(vectors, dtype=np.float64)
    norms = np.linalg.norm(rows, axis=1)
    if not (norms > 0).all():
        return Kruskal(0, 0, 0, "a vector is zero", "a vector is zero", 0)
    unit = rows / norms[:, None]
    rank = int((np.linalg.svd(unit, compute_uv=False) > tolerance).sum())
    if rank == len(rows):
        return Kruskal(rank, rank, rank, "all are independent", "all are independent", 0)
    bracket = _Bracket(unit, tolerance, high=rank, high_by="rank of all vectors")
    bracket.raise_to(min(rank, _babel(unit, tolerance)), "coherence")
    bracket.look_at_all(sets)
    sampled = bracket.sample(samples, stream or Stream("kruskal-rank", "samples"))
    return Kruskal(bracket.low, bracket.high, sampled, bracket.low_by, bracket.high_by, samples)


@dataclass
class _Bracket:
    """low <= Kruskal rank <= high, and why."""

    unit: Float
    tolerance: float
    high: int
    high_by: str
    low: int = 1
    low_by: str = "no vector is zero"

    def raise_to(self, low: int, why: str) -> None:
        if low > self.low:
            self.low, self.low_by = low, why

    def lower_by(self, dependent: Ints) -> None:
        """A dependent set has been found."""
        thin = _thinned(self.unit, dependent, self.tolerance)
        if len(thin) - 1 < self.high:
            self.high, self.high_by = len(thin) - 1, f"{len(thin)} dependent vectors found"

    def look_at_all(self, sets: int) -> None:
        """All sets of a size, for the sizes between whose sets are few enough."""
        count = len(self.unit)
        while sizes := [r for r in range(self.low + 1, self.high + 1) if math.comb(count, r) <= sets]:
            size = sizes[len(sizes) // 2]
            looked = (_first_dependent(self.unit, chosen, self.tolerance) for chosen in _chunks(count, size))
            bad = next((found for found in looked if found is not None), None)
            if bad is None:
                self.raise_to(size, f"all sets of {size} looked at")
            else:
                self.lower_by(bad)

    def sample(self, samples: int, stream: Stream) -> int:
        """The largest size at which all samples are independent, by bisection."""
        low, high = self.low, self.high
        while low < high:
            middle, bad = (low + high + 1) // 2, None
            for start in range(0, samples, 32):
                drawn = range(min(32, samples - start))
                chosen = np.stack([stream.permutation(len(self.unit))[:middle] for _ in drawn])
                bad = _first_dependent(self.unit, chosen, self.tolerance)
                if bad is not None:
                    self.lower_by(bad)
                    break
            low, high = (middle, high) if bad is None else (low, min(middle - 1, self.high))
        return min(low, self.high)


@dataclass(frozen=True)
class Hypotheses:
    """What theorem 1 asks of data, measured. full: contexts of rank n, of `contexts`    kruskal: of the queries

    holds: every context has rank n and the queries have Kruskal rank n at least; None where the bracket leaves it open
    general_position: of the queries; likewise
    """

    context: int
    contexts: int
    full: int
    kruskal: Kruskal
    d_model: int
    examples: int

    @property
    def holds(self) -> bool | None:
        """Theorem 1's hypotheses."""
        return False if self.full < self.contexts else _at_least(self.kruskal, min(self.context, self.examples))

    @property
    def general_position(self) -> bool | None:
        """Every d of the queries (all of them, if they are fewer) are independent."""
        return _at_least(self.kruskal, min(self.d_model, self.examples))


def hypotheses(queries: NDArray[np.floating], contexts: NDArray[np.floating], tolerance: float | None = None) -> Hypotheses:
    """Measure the hypotheses on any data. queries: (T, d)    contexts: (contexts, n, d)"""
    require(
        contexts.ndim == 3 and contexts.shape[2] == queries.shape[1], "contexts are (count, n, d)", contexts.shape, "Check."
    )
    full = int((context_ranks(contexts, tolerance) == contexts.shape[1]).sum())
    found = kruskal_rank(queries, tolerance=tolerance)
    return Hypotheses(contexts.shape[1], len(contexts), full, found, queries.shape[1], len(queries))


def independent_fraction(
    vectors: NDArray[np.floating], size: int, stream: Stream, *, samples: int = SAMPLES, unit: float = 2.0**-23
) -> float:
    """The fraction of random sets of `size` vectors with full rank, as figure 1 of the paper has it.

    Singular values count above max(size, d) `unit` times the largest: 2^-23 is float32's, in which the paper computed
    """
    return sum(int(passed.sum()) for passed in _passed(vectors, size, stream, samples, unit)) / samples


def all_independent(
    vectors: NDArray[np.floating], size: int, stream: Stream, *, samples: int = SAMPLES, unit: float = 2.0**-23
) -> bool:
    """Whether `independent_fraction` is 1. The first set that fails ends it."""
    return all(passed.all() for passed in _passed(vectors, size, stream, samples, unit))


def _passed(vectors: NDArray[np.floating], size: int, stream: Stream, samples: int, unit: float) -> Iterator[NDArray[np.bool_]]:
    """Which of the sets drawn have full rank, some sets at a time."""
    require(1 <= size <= len(vectors), f"1 <= size <= {len(vectors)}", size, "Take fewer.")
    rows = np.asarray(vectors, dtype=np.float64)
    chosen = np.stack([stream.permutation(len(rows))[:size] for _ in range(samples)])
    least = max(size, rows.shape[1]) * unit
    for start in range(0, samples, 8):
        sets = rows[chosen[start : start + 8]]
        if size > rows.shape[1]:
            yield np.zeros(len(sets), dtype=bool)
        elif least > GRAM_IS_ENOUGH:
            yield _gram_passes(sets @ sets.transpose(0, 2, 1), least**2)
        else:
            values = np.linalg.svd(sets, compute_uv=False)
            yield values[:, -1] > least * values[:, 0]


def _gram_passes(gram: Float, least: float) -> NDArray[np.bool_]:
    """Which of these have a smallest eigenvalue above `least` times the largest. gram: (sets, size, size)"""
    bound = least * np.abs(gram).sum(axis=2).max(axis=1)  # of the largest eigenvalue, from above
    try:  # what is positive definite after that much is taken off passes for certain, and this is quick
        np.linalg.cholesky(gram - bound[:, None, None] * np.eye(gram.shape[1]))
        return np.ones(len(gram), dtype=bool)
    except np.linalg.LinAlgError:
        values = np.linalg.eigvalsh(gram)
        return np.asarray(values[:, 0] > least * values[:, -1])


def _at_least(kruskal: Kruskal, wanted: int) -> bool | None:
    return True if kruskal.low >= wanted else False if kruskal.high < wanted else None


def _first_dependent(unit: Float, chosen: Ints, tolerance: float) -> Ints | None:
    """The first dependent one of these sets. chosen: (sets, size)    returns: (size,), or None"""
    if chosen.shape[1] > unit.shape[1]:
        return np.asarray(chosen[0])
    dependent = np.linalg.svd(unit[chosen], compute_uv=False)[:, -1] <= tolerance
    return np.asarray(chosen[int(dependent.argmax())]) if dependent.any() else None


def _chunks(count: int, size: int) -> Iterator[Ints]:
    every = combinations(range(count), size)
    while chosen := list(islice(every, max(1, CHUNK // size))):
        yield np.array(chosen, dtype=np.int64)


def _babel(unit: Float, tolerance: float) -> int:
    """Certain from below: the better of the vectors as they are and whitened, where independence is asked for what is left
    of `tolerance` after the map back."""
    plain = _independent_up_to(unit, tolerance**2)
    values, directions = np.linalg.eigh(unit.T @ unit / len(unit))
    if values[0] <= 1e-12 * values[-1]:
        return plain  # nothing to divide by
    white = (unit @ directions) / np.sqrt(values)
    norms = np.linalg.norm(white, axis=1)
    # unit = diag(norms) (white / norms) sqrt(values) directions^T: least singular values shrink by no more than this
    shrink = float(norms.min() * math.sqrt(values[0]))
    return max(plain, _independent_up_to(white / norms[:, None], (tolerance / shrink) ** 2))


def _independent_up_to(unit: Float, least: float) -> int:
    """The largest r with (sum of the r - 1 largest |x_i . x_j|) < 1 - least for every i: then every r are independent."""
    worst = np.zeros(min(len(unit) - 1, unit.shape[1]))
    for start in range(0, len(unit), 1024):
        gram = np.abs(unit[start : start + 1024] @ unit.T)
        gram[np.arange(len(gram)), np.arange(start, start + len(gram))] = 0.0
        largest = -np.sort(-np.partition(gram, -len(worst), axis=1)[:, -len(worst) :], axis=1)
        np.maximum(worst, largest.cumsum(axis=1).max(axis=0), out=worst)
    return 1 + int((worst < 1.0 - least - 1e-9).sum()) if len(worst) else 1


def _thinned(unit: Float, chosen: Ints, tolerance: float) -> Ints:
    """A dependent set from which no vector can be spared, inside a dependent set."""
    keep = chosen
    for one in chosen:
        less = keep[keep != one]
        if len(less) > 1 and _first_dependent(unit, less[None], tolerance) is not None:
            keep = less
    return keep
