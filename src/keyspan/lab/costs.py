"""What a step of a member costs, and which sizes decide who may share a crew with it: one function a kind of instrument.

The model is coarse (it balances shards and answers `--dry-run`), its constants were timed on one core; it never enters
an identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from keyspan.attention.shapes import Heads
from keyspan.problems.placed import Placed
from keyspan.problems.relations import Relations
from keyspan.problems.shown import Contexts
from keyspan.specs import Channel, Run

PER_SCORE = 1.3e-9  # seconds per head and pair: maximum, mask, product
PER_FLOP = 2.5e-11  # seconds per floating-point operation of the skinny products
DOUBLE = 2.0  # how much longer either takes in float64
PER_SMALL_FLOP = 3e-10  # the same for a linear unit's products, which are bound by memory


@dataclass(frozen=True)
class Cost:
    """Of one member. flops: floating-point operations of a step, unpadded    seconds: of a step, on one core

    memory: bytes    sizes: the instrument's padded sizes; members that share a crew have equal ones
    """

    flops: float
    seconds: float
    memory: float
    sizes: tuple[Any, ...] = ()


def of_channel(run: Run) -> Cost:
    """A key-query channel on relations: the matrix products of scores and gradients, and passes over the pairs.

    Memory: rows twice, edges as bits, queries and keys with their gradients, weights with their moments, or with the pairs
    that L-BFGS remembers (twice, for they are moved by copying).
    """
    problem, channel = run.problem, run.instrument
    assert isinstance(problem, Relations) and isinstance(channel, Channel)
    m, d, budget = problem.items, problem.d_model, channel.key_budget
    heads, d_key = (1 << (n - 1).bit_length() for n in (channel.heads, channel.d_key))
    show = getattr(run.recipe, "show", None)
    m = show.items if isinstance(show, Contexts) else m  # of the items that a step looks at
    flops = 6.0 * m * m * budget + 8.0 * m * d * budget
    double = run.arithmetic == "fp64"
    pairs = max((getattr(phase, "memory", 0) for phase in getattr(run.recipe, "phases", ())), default=0)  # of L-BFGS
    weights = (8 + 8 * pairs) * d * heads * d_key
    memory = (8.0 if double else 4.0) * (2 * m * d + 4 * m * heads * max(16, d_key) + weights) + m * m / 8
    seconds = (flops * PER_FLOP + channel.heads * m * m * PER_SCORE) * (DOUBLE if double else 1.0)
    return Cost(flops, seconds, memory, (heads, d_key))


def of_heads(run: Run) -> Cost:
    """Heads of today: the pairs of a channel, and a front that goes both ways through autograd."""
    heads = run.instrument
    assert isinstance(heads, Heads)
    problem = run.problem.relations if isinstance(run.problem, Placed) else run.problem
    plain = of_channel(replace(run, problem=problem, instrument=Channel(heads=heads.heads, d_key=heads.d_key)))
    front = 60.0 * problem.items * heads.key_budget * PER_SCORE  # type: ignore[attr-defined]
    kind = (heads.share, -(-heads.latent // 32), heads.rotary, heads.base, heads.window, heads.norm, heads.cap, heads.keys)
    key_heads = 1 << (heads.key_heads - 1).bit_length()
    return replace(plain, seconds=plain.seconds + front, memory=2 * plain.memory, sizes=(*plain.sizes, key_heads, *kind))


def of_linear(run: Run) -> Cost:
    """A linear unit on random labels."""
    size = float(getattr(run.problem, "examples", 1) * getattr(run.problem, "dimension", 1))
    return Cost(4.0 * size, 4.0 * size * PER_SMALL_FLOP, 8.0 * size)


COSTS: dict[str, Callable[[Run], Cost]] = {"channel": of_channel, "heads": of_heads, "linear-unit": of_linear}


def cost(run: Run) -> Cost:
    """What a step of this member costs."""
    known = COSTS.get(run.instrument.family)
    return Cost(0.0, 0.0, 0.0) if known is None else known(run)
