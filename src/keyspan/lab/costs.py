"""What a step of a member costs, and which sizes decide who may share a crew with it: one function a kind of instrument.

The model is coarse (it balances shards and answers `--dry-run`), its constants were timed on one core; it never enters
an identity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from keyspan.decoders import Decoder, layout, parameters
from keyspan.problems.relations import Relations
from keyspan.problems.sequences import Sequences
from keyspan.specs import Channel, Run

PER_SCORE = 1.3e-9  # seconds per head and pair: maximum, mask, product
PER_FLOP = 2.5e-11  # seconds per floating-point operation of the skinny products
PER_TOKEN_FLOP = 2.2e-11  # of a decoder's products, softmaxes and activations together
PER_CALL = 2.5e-4  # seconds of a decoder's step that are calls, shared by members that step together
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

    Memory: rows twice, edges as bits, queries and keys with their gradients, weights with their moments.
    """
    problem, channel = run.problem, run.instrument
    assert isinstance(problem, Relations) and isinstance(channel, Channel)
    m, d, budget = problem.items, problem.d_model, channel.key_budget
    heads, d_key = (1 << (n - 1).bit_length() for n in (channel.heads, channel.d_key))
    flops = 6.0 * m * m * budget + 8.0 * m * d * budget
    memory = 4.0 * (2 * m * d + 4 * m * heads * max(16, d_key) + 8 * d * heads * d_key) + m * m / 8
    return Cost(flops, flops * PER_FLOP + channel.heads * m * m * PER_SCORE, memory, (heads, d_key))


def of_linear(run: Run) -> Cost:
    """A linear unit on random labels."""
    size = float(getattr(run.problem, "examples", 1) * getattr(run.problem, "dimension", 1))
    return Cost(4.0 * size, 4.0 * size * PER_SMALL_FLOP, 8.0 * size)


def of_decoder(run: Run) -> Cost:
    """A decoder on sequences: three passes through all matrices for every token, and the attention among tokens.

    Memory: what a step keeps for its way back, weights with their moments, the library.
    """
    problem, decoder = run.problem, run.instrument
    assert isinstance(problem, Sequences) and isinstance(decoder, Decoder)
    feed = getattr(run.recipe, "feed", None)
    batch, length = getattr(feed, "batch", 32), problem.length
    tables = (problem.vocabulary + length) * decoder.d_model
    weights = sum(w.size for w in layout(decoder, problem.vocabulary, length)) - tables
    if decoder.tied:
        weights += problem.vocabulary * decoder.d_model
    tokens = float(batch * length)
    flops = 6.0 * tokens * (weights + 2.0 * decoder.layers * length * decoder.width)
    kept = decoder.layers * (10 * decoder.d_model + 3 * decoder.hidden + 8 * decoder.width + 3 * decoder.heads * length)
    memory = 4.0 * tokens * (kept + 3 * problem.vocabulary) + 20.0 * parameters(decoder, problem.vocabulary, length)
    memory += 8.0 * problem.places * (length + 2)
    sizes = tuple(str(value) for value in decoder.to_json().values())
    return Cost(flops, flops * PER_TOKEN_FLOP + PER_CALL, memory, sizes)


COSTS: dict[str, Callable[[Run], Cost]] = {"channel": of_channel, "decoder": of_decoder, "linear-unit": of_linear}


def cost(run: Run) -> Cost:
    """What a step of this member costs."""
    known = COSTS.get(run.instrument.family)
    return Cost(0.0, 0.0, 0.0) if known is None else known(run)
