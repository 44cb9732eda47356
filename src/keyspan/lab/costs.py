"""What a step of a member costs, and which sizes decide who may share a crew with it: one function a kind of instrument.

The model is coarse (it balances shards and answers `--dry-run`), its constants were timed on one core; it never enters
an identity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from keyspan.attention.shapes import Heads, Routed
from keyspan.decoders import Decoder, layout, parameters
from keyspan.problems.contexts import Labels
from keyspan.problems.in_context import InContext
from keyspan.problems.pairs import PairLayer, Pairs
from keyspan.problems.placed import Placed
from keyspan.problems.relations import Relations
from keyspan.problems.sequences import Sequences
from keyspan.problems.shown import Contexts
from keyspan.problems.typed import TypedChannel, TypedRelations
from keyspan.specs import Channel, Layer, Run

PER_SCORE = 1.3e-9  # seconds per head and pair: maximum, mask, product
PER_FLOP = 2.5e-11  # seconds per floating-point operation of the skinny products
DOUBLE = 2.0  # how much longer either takes in float64
PER_LAYER_FLOP = 1.2e-11  # the same for a layer's products, which are larger
PER_WEIGHT = 1.5e-9  # seconds per attention weight or output and pass: softmax, masks, products
PER_LAYER_STEP = 1.2e-4  # seconds that a step of a layer costs in any case
PER_PASS = 6e-10  # seconds per number that an elementwise operation reads and writes, forwards and backwards
PER_CREW = 2e-4  # seconds of a step that a member of a small crew pays for what is not arithmetic
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


def of_routed(run: Run) -> Cost:
    """Softmax attention in contexts: products by autograd, passes over the pairs of contexts, the read-out of all items."""
    problem, layer = run.problem, run.instrument
    assert isinstance(problem, InContext) and isinstance(layer, Routed)
    m, d = problem.relations.items, problem.relations.d_model
    rows = problem.groups * problem.length
    heads, d_key, d_value = (1 << (n - 1).bit_length() if n else 0 for n in (layer.heads, layer.d_key, layer.d_value))
    pairs = rows * problem.length * heads
    products = d * (2 * layer.key_budget + 2 * layer.value_budget + 2 * layer.hidden) + (m * d if layer.d_value else 0)
    flops = 6.0 * (rows * products + pairs * (d_key + d_value))
    passes = (20.0 if layer.d_value else 30.0) * pairs + (8.0 * rows * m if layer.d_value else 0.0) + 30.0 * rows * layer.hidden
    memory = 4.0 * (12 * pairs + 6 * rows * (d + heads * (2 * d_key + d_value)) + 4 * rows * m + 8 * layer.parameters(d))
    sizes = (heads, d_key, d_value, layer.hidden, layer.sink)
    return Cost(flops, flops * PER_FLOP + passes * PER_PASS + PER_CREW, memory, sizes)


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
    batch, length = getattr(run.recipe, "batch", None) or problem.sequences, problem.length
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


def of_layer(run: Run) -> Cost:
    """A layer on labelled contexts: the products of its weights, those with the tokens of a minibatch, and looks at all
    examples between them.

    Memory: the examples (contexts once each, unless they are shared), a minibatch's tokens and logits, weights with their
    moments and the best of them.
    """
    problem, layer = run.problem, run.instrument
    assert isinstance(problem, Labels) and isinstance(layer, Layer)
    examples, n, d, h = problem.examples or 1, problem.context, problem.d_model, layer.heads
    batch = getattr(run.recipe, "batch", None) or examples
    own = 0 if problem.contexts == "fixed" else 1
    weights = 6.0 * h * d * layer.d_key * (3 * d * own + 2 * d + 2 * n)
    there = 2.0 * batch * h * (d * n + own * (d * d + 2 * d * n)) + 2.0 * batch * problem.outputs * h
    looks = examples / batch / run.stopping.check_every
    flops = weights + (3.0 + looks) * there
    passes = (3.0 + looks) * batch * (n * h + problem.outputs)
    tokens = {"random": examples * n, "fixed": n, "perm": (problem.bag or examples) + 2 * examples * n / d}[problem.contexts]
    memory = 4.0 * (d * (examples + tokens + own * batch * n) + 6 * batch * n * h + 24 * h * d * layer.d_key)
    sizes = (-(-h // 4) * 4, -(-layer.d_key // 8) * 8, layer.d_value, layer.embed)
    return Cost(flops, flops * PER_LAYER_FLOP + passes * PER_WEIGHT + PER_LAYER_STEP, memory, sizes)


def of_pairs(run: Run) -> Cost:
    """A layer on pairs of tokens: products of a minibatch, passes over its outputs."""
    problem, layer = run.problem, run.instrument
    assert isinstance(problem, Pairs) and isinstance(layer, PairLayer)
    batch = getattr(run.recipe, "batch", None) or problem.samples
    flops = 6.0 * batch * layer.d_model * (7 * layer.heads * layer.d_key + problem.tokens)
    each = 32 // math.gcd(32, layer.d_key)
    heads = -(-layer.heads // each) * each
    passes = batch * (24.0 * heads * layer.d_key + 8.0 * problem.tokens)
    memory = 4.0 * (batch * (12 * heads * layer.d_key + 4 * problem.tokens) + 16 * 32 * (heads * layer.d_key + problem.tokens))
    sizes = (heads, layer.d_key, layer.d_model)
    return Cost(flops, flops * PER_FLOP + passes * PER_PASS + PER_CREW, memory, sizes)


def of_typed(run: Run) -> Cost:
    """A typed channel: scores once, and every type's passes over them."""
    problem, typed = run.problem, run.instrument
    assert isinstance(problem, TypedRelations) and isinstance(typed, TypedChannel)
    m, d, budget = problem.items, problem.d_model, typed.key_budget
    heads, d_key = (1 << (n - 1).bit_length() for n in (typed.heads, typed.d_key))
    flops = 6.0 * m * m * budget + 8.0 * m * d * budget
    memory = 4.0 * (2 * m * d + 4 * m * heads * max(16, d_key) + 8 * d * heads * d_key + 3 * m * m * heads)
    seconds = flops * PER_FLOP + problem.types * 3 * typed.heads * m * m * PER_SCORE
    return Cost(flops, seconds, memory, (heads, d_key, typed.sharing))


COSTS: dict[str, Callable[[Run], Cost]] = {
    "channel": of_channel,
    "decoder": of_decoder,
    "heads": of_heads,
    "layer": of_layer,
    "linear-unit": of_linear,
    "pair-layer": of_pairs,
    "routed": of_routed,
    "typed-channel": of_typed,
}


def cost(run: Run) -> Cost:
    """What a step of this member costs."""
    known = COSTS.get(run.instrument.family)
    return Cost(0.0, 0.0, 0.0) if known is None else known(run)
