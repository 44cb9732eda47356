"""Decoders: the instrument that recites sequences (Haermae et al. 2024), as a spec, and what its weights are. No torch.

`layout` is the one list of a decoder's weights. The reference, the batched speed, the count of parameters and the initial
draw all read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from keyspan.errors import require
from keyspan.specs import Spec

ATTENTIONS = ("softmax", "linear", "window", "sparse")
ACTIVATIONS = ("gelu", "relu", "silu", "tanh", "softmax")
FEED_FORWARDS = ("trained", "frozen", "absent")
POSITIONS = ("learned", "sinusoidal", "rotary")
NORMS = ("none", "pre", "post", "final")
LOCAL = ("window", "sparse")  # attentions that have a `window`
TABLE_STD = 0.3  # of the token and position tables
TIED_STD = 0.25  # of a token table that is the output's as well
WIDEST = 2**16


@dataclass(frozen=True, kw_only=True)
class Decoder(Spec, family="decoder", version=1):
    """A causal transformer that predicts the next token.

    heads: H    d_model: B (Haermae's symbols)    d_head: width of a head (default ceil(B / H))    layers: blocks
    attention: softmax; linear (elu + 1 features); window (softmax over the last `window` tokens); sparse (softmax over the
    last `window` tokens and every `window`-th one before)    activation: of the feed-forward
    ff: trained, frozen (at its initial weights) or absent    ff_factor: its width over d_model
    positions: learned, sinusoidal (added) or rotary    norm: none, pre (no norm at the end), post, final (pre, and one
    norm before the output)    tied: the output's matrix is the token table's
    """

    heads: int
    d_model: int
    d_head: int = 0
    layers: int = 1
    attention: str = "softmax"
    window: int | None = None
    activation: str = "gelu"
    ff: str = "trained"
    ff_factor: int = 4
    positions: str = "learned"
    norm: str = "pre"
    tied: bool = False

    def check(self) -> None:
        for name, least in (("heads", 1), ("d_model", 1), ("layers", 1), ("ff_factor", 1)):
            value = getattr(self, name)
            flag = name.replace("_", "-")
            require(least <= value <= WIDEST, f"`{least} <= --{flag} <= {WIDEST}`", value, "Choose another number.")
        if self.d_head == 0:
            object.__setattr__(self, "d_head", -(-self.d_model // self.heads))
        require(1 <= self.d_head <= WIDEST, f"`1 <= --d-head <= {WIDEST}`", self.d_head, "Leave it out for d_model / heads.")
        for name, known in (
            ("attention", ATTENTIONS),
            ("activation", ACTIVATIONS),
            ("ff", FEED_FORWARDS),
            ("positions", POSITIONS),
            ("norm", NORMS),
        ):
            require(getattr(self, name) in known, f"`--{name}` in {'|'.join(known)}", repr(getattr(self, name)), "Choose one.")
        local = self.attention in LOCAL
        require(
            (self.window is not None) == local,
            f"`--window` with `--attention {'|'.join(LOCAL)}` only, and always there",
            f"attention={self.attention}, window={self.window}",
            "Give it there, leave it out elsewhere.",
        )
        require(self.window is None or self.window >= 1, "`--window >= 1`", self.window, "A token sees itself at least.")
        if self.ff == "absent":  # what is not there must not tell two decoders apart
            object.__setattr__(self, "activation", "gelu")
            object.__setattr__(self, "ff_factor", 4)

    @property
    def width(self) -> int:
        """Of all heads together."""
        return self.heads * self.d_head

    @property
    def hidden(self) -> int:
        """Width of the feed-forward."""
        return self.ff_factor * self.d_model


class Weight(NamedTuple):
    """One array of a decoder. std: of its normal initial values; 0 means that it starts at `start`"""

    name: str
    shape: tuple[int, ...]
    std: float
    start: float = 0.0
    trained: bool = True

    @property
    def size(self) -> int:
        """Numbers in it."""
        return math.prod(self.shape)


def layout(decoder: Decoder, vocabulary: int, length: int) -> list[Weight]:
    """Every array of a decoder for sequences of `length` tokens out of `vocabulary`, in a fixed order.

    Matrices act from the right, `y = x W + b`: (in, out). Their initial values are `N(0, 1 / in)`, those of tables
    `N(0, 0.3^2)`; biases start at 0, gains at 1.
    """
    d = decoder.d_model
    weights = [Weight("tokens", (vocabulary, d), TIED_STD if decoder.tied else TABLE_STD)]
    if decoder.positions == "learned":
        weights.append(Weight("positions", (length, d), TABLE_STD))
    for layer in range(decoder.layers):
        weights += _block(decoder, f"{layer}.")
    if decoder.norm == "final":
        weights += _norm("norm", d)
    if not decoder.tied:
        weights.append(Weight("output", (d, vocabulary), d**-0.5))
    weights.append(Weight("output.bias", (vocabulary,), 0.0))
    return weights


def _block(decoder: Decoder, layer: str) -> Iterator[Weight]:
    d, width, hidden = decoder.d_model, decoder.width, decoder.hidden
    if decoder.norm != "none":
        yield from _norm(f"{layer}attention.norm", d)
    yield from _linear(f"{layer}qkv", d, 3 * width)
    yield from _linear(f"{layer}mix", width, d)
    if decoder.ff == "absent":
        return
    if decoder.norm != "none":
        yield from _norm(f"{layer}ff.norm", d)
    trained = decoder.ff == "trained"
    yield from _linear(f"{layer}up", d, hidden, trained)
    yield from _linear(f"{layer}down", hidden, d, trained)


def _linear(name: str, rows: int, columns: int, trained: bool = True) -> Iterator[Weight]:
    yield Weight(name, (rows, columns), rows**-0.5, 0.0, trained)
    yield Weight(f"{name}.bias", (columns,), 0.0, 0.0, trained)


def _norm(name: str, width: int) -> list[Weight]:
    return [Weight(f"{name}.gain", (width,), 0.0, 1.0), Weight(f"{name}.bias", (width,), 0.0)]


def parameters(decoder: Decoder, vocabulary: int, length: int) -> int:
    """P: trained parameters, tables and biases included."""
    return sum(weight.size for weight in layout(decoder, vocabulary, length) if weight.trained)
