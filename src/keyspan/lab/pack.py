"""Which members share a batch, and what they cost.

Members share a batch when they have one padded shape and one recipe. What a step costs, `costs` says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from keyspan.lab.costs import cost
from keyspan.lab.recipes import Recipe
from keyspan.specs import Run, Spec, canonical

WORTH = 0.5  # seconds of work below which a batch is not split: every batch pays its own overhead per step
TYPICAL_SHARE = {"lbfgs": 0.02}  # of its steps that a phase usually takes before it is done,
PATIENT_SHARE = 0.5  # and one that gives up where it gets nowhere
SHARDS_PER_WORKER = 4
MEMORY_SHARE = 0.5  # of a device's free memory that a crew may take by this estimate: joining needs a second copy


def bucket_key(run: Run) -> str:
    """Members with one key share a batch: padded shape, recipe, stopping rule, arithmetic."""
    instrument = [run.instrument.family, *cost(run).sizes]
    shape = getattr(run.problem, "shape", ())
    same = [run.problem.family, list(shape), instrument, run.recipe.to_json(), run.stopping.to_json(), run.arithmetic]
    return canonical(same)


def flops(run: Run) -> float:
    """Floating-point operations of one step of one member, unpadded."""
    return cost(run).flops


def seconds(run: Run) -> float:
    """Expected seconds of one member on one core, if it takes all its steps; one that is computed takes none."""
    if not isinstance(run.recipe, Recipe):
        return 1e-3
    steps = sum(getattr(p, "steps", 0) * _share(p) for p in run.recipe.phases)
    return float(steps * (cost(run).seconds + 2e-6)) + 1e-3


def _share(phase: Spec) -> float:
    return PATIENT_SHARE if getattr(phase, "patience", 0) else TYPICAL_SHARE.get(phase.family, 1.0)


def memory(run: Run) -> float:
    """Bytes of one member."""
    return cost(run).memory


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
