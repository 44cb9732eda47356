"""Which members share a batch, and what they cost.

Members share a batch when they have one padded shape and one recipe. The cost model is coarse (it balances shards and
answers `--dry-run`), its constants were timed on one core; it never enters an identity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from keyspan.lab.recipes import Recipe
from keyspan.problems.dichotomies import Dichotomies
from keyspan.problems.relations import Relations
from keyspan.specs import Channel, Run, canonical

WORTH = 0.5  # seconds of work below which a batch is not split: every batch pays its own overhead per step
PER_SCORE = 1.3e-9  # seconds per head and pair: maximum, mask, product
PER_FLOP = 2.5e-11  # seconds per floating-point operation of the skinny products
PER_SMALL_FLOP = 3e-10  # the same for a linear unit's products, which are bound by memory
TYPICAL_SHARE = {"lbfgs": 0.02}  # of its steps that a phase usually takes before it is done
SHARDS_PER_WORKER = 4
MEMORY_SHARE = 0.5  # of a device's free memory that a crew may take by this estimate: joining needs a second copy


def bucket_key(run: Run) -> str:
    """Members with one key share a batch: padded shape, recipe, stopping rule, arithmetic."""
    instrument: list[object] = [run.instrument.family]
    if isinstance(run.instrument, Channel):
        instrument += [1 << (n - 1).bit_length() for n in (run.instrument.heads, run.instrument.d_key)]
    shape = getattr(run.problem, "shape", ())
    same = [run.problem.family, list(shape), instrument, run.recipe.to_json(), run.stopping.to_json(), run.arithmetic]
    return canonical(same)


def flops(run: Run) -> float:
    """Floating-point operations of one step of one member, unpadded: the matrix products of scores and gradients."""
    if isinstance(run.problem, Relations) and isinstance(run.instrument, Channel):
        m, d, budget = run.problem.items, run.problem.d_model, run.instrument.key_budget
        return 6.0 * m * m * budget + 8.0 * m * d * budget
    if isinstance(run.problem, Dichotomies):
        return 4.0 * run.problem.examples * run.problem.dimension
    return 0.0


def seconds(run: Run) -> float:
    """Expected seconds of one member on one core, if it takes all its steps."""
    assert isinstance(run.recipe, Recipe)
    step = flops(run) * (PER_FLOP if isinstance(run.problem, Relations) else PER_SMALL_FLOP)
    if isinstance(run.problem, Relations) and isinstance(run.instrument, Channel):
        step += run.instrument.heads * run.problem.items**2 * PER_SCORE
    steps = sum(getattr(p, "steps", 0) * TYPICAL_SHARE.get(p.family, 1.0) for p in run.recipe.phases)
    return float(steps * (step + 2e-6)) + 1e-3


def memory(run: Run) -> float:
    """Bytes of one member: rows twice, edges as bits, queries and keys with their gradients, weights with their moments."""
    if isinstance(run.problem, Relations) and isinstance(run.instrument, Channel):
        m, d = run.problem.items, run.problem.d_model
        heads, d_key = (1 << (n - 1).bit_length() for n in (run.instrument.heads, run.instrument.d_key))
        return 4.0 * (2 * m * d + 4 * m * heads * max(16, d_key) + 8 * d * heads * d_key) + m * m / 8
    return 8.0 * float(getattr(run.problem, "examples", 1) * getattr(run.problem, "dimension", 1))


def capacity(run: Run, free: float | None) -> int:
    """Members like this one that fit in so many bytes at once. free: None where memory is no concern"""
    return 1 << 30 if free is None else max(1, int(MEMORY_SHARE * free / memory(run)))


def shards(runs: Sequence[Run], workers: int, *, split: bool = True) -> list[list[Run]]:
    """Split members into batches for this many workers, the costliest first. split: false keeps every bucket whole

    A bucket is split when it would keep one worker busy past its share; never below what makes a batch worth its
    overhead.
    """
    buckets: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        buckets[bucket_key(run)].append(run)
    total = sum(seconds(r) for r in runs)
    share = total / (workers * SHARDS_PER_WORKER)
    out: list[list[Run]] = []
    for members in buckets.values():
        if not split:
            out.append(members)
            continue
        worth = max(share, WORTH)
        each = max(1, round(worth / max(seconds(members[0]), 1e-9)))
        pieces = -(-len(members) // each)
        size = -(-len(members) // pieces)
        out += [members[i : i + size] for i in range(0, len(members), size)]
    return sorted(out, key=lambda shard: -sum(seconds(r) for r in shard))
