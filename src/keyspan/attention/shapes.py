"""Attention as models of today have it, as specs: what is chosen, how many parameters that is, and what its key cache holds.

No torch here: questions are made of these. `heads` has what they compute, `reference_heads` what that means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from keyspan.errors import require
from keyspan.specs import Channel, Spec

CACHES = {"fp32": 32, "bf16": 16, "fp8": 8, "int8": 8, "int4": 4}  # bits of a cached number
SCALED = ("fp8", "int8", "int4")  # formats with a scale for every channel of the cache
SCALE_BITS = 32  # of one such scale, shared by all items


@dataclass(frozen=True, kw_only=True)
class Heads(Spec, family="heads", version=1):
    """A key-query channel whose keys are made, placed, normalised, capped or rounded as in models of today.

    `S_ij = max_k c(s^k_ij)`, `s^k_ij = q_i^k . k_j^{g(k)}`, compared with one threshold; c(s) = s, or cap tanh(s / cap)

    heads: h    d_key: d_k    key_budget: D_K = h d_k, of the queries, whatever the keys share
    share: so many heads in a row have one key head, g(k) = k // share (Ainslie and others 2023: GQA); 1: each has its own,
    0: all have one (Shazeer 2019: MQA)
    latent: the keys of all heads are made from one vector of so many dimensions, which is what a cache holds (DeepSeek-AI
    2024: MLA); 0: they are made from the item
    rotary: this share of a head's dimensions, in pairs, is turned by the position (Su and others 2021), the t-th of R / 2
    pairs by `base^(-2t/R)` a place. With `latent` they have a key of their own, one for all heads
    window: how many positions an item sees, itself among them; 0: all
    norm: queries and keys are divided by their root mean square, and one gain a dimension is learned (QK-norm)
    cap: soft cap of scores; 0: none
    keys: what cached numbers are rounded to, in training too (the gradient goes straight through)
    """

    heads: int
    d_key: int
    share: int = 1
    latent: int = 0
    rotary: float = 0.0
    base: float = 10000.0
    window: int = 0
    norm: bool = False
    cap: float = 0.0
    keys: str = "fp32"

    def check(self) -> None:
        Channel(heads=self.heads, d_key=self.d_key)
        share = self.heads if self.share == 0 else self.share
        require(
            self.share >= 0 and self.heads % share == 0,
            "`share` divides `heads`",
            f"share={self.share}, heads={self.heads}",
            "Use 1 for a key head each, 0 for one key head in all.",
        )
        require(self.latent >= 0, "`latent >= 0`", self.latent, "Use 0 for keys made from the item.")
        require(self.latent == 0 or self.share == 1, "`share = 1` with `latent`", self.share, "A latent serves all heads.")
        require(0 <= self.rotary <= 1, "`0 <= rotary <= 1`", self.rotary, "It is a share of a head's dimensions.")
        require(self.base > 1, "`base > 1`", self.base, "Use 10000.")
        require(self.window >= 0, "`window >= 0`", self.window, "Use 0 for no window.")
        require(not (self.norm and self.latent), "no `norm` with `latent`", "both", "A latent is not normalised by heads.")
        require(self.cap >= 0, "`cap >= 0`", self.cap, "Use 0 for no cap.")
        require(self.keys in CACHES, f"`keys` in {'|'.join(CACHES)}", repr(self.keys), "Choose a format.")

    @property
    def key_budget(self) -> int:
        """D_K = h d_k, the dimensions of all queries."""
        return self.heads * self.d_key

    @property
    def key_heads(self) -> int:
        """How many key heads there are; of latent keys: one for each head, made anew from the cache."""
        return 1 if self.share == 0 else self.heads // self.share

    @property
    def turned(self) -> int:
        """R, the dimensions of a head that are turned."""
        return 2 * math.floor(self.rotary * self.d_key / 2)

    @property
    def cached(self) -> int:
        """Numbers that the key cache holds of an item."""
        return self.latent + self.turned if self.latent else self.key_heads * self.d_key

    def cache_bits(self, items: int) -> float:
        """Bits that the key cache holds of an item; the scales of all items together are shared among them."""
        scales = SCALE_BITS / items if self.keys in SCALED else 0.0
        return self.cached * (CACHES[self.keys] + scales)

    def parameters(self, d_model: int) -> int:
        """Weights of queries and keys, and gains; the threshold is not counted."""
        queries = d_model * self.key_budget
        if self.latent:
            keys = d_model * (self.latent + self.turned) + self.heads * self.latent * (self.d_key - self.turned)
        else:
            keys = d_model * self.key_heads * self.d_key
        return queries + keys + (self.d_key if self.norm else 0)

    def with_budget(self, heads: int, budget: int) -> Heads:
        """The same kind of heads, so many of them, with this key budget; a latent keeps its ratio to d_key."""
        d_key = Channel(heads=1, d_key=1).with_budget(heads, budget).d_key
        return replace(self, heads=heads, d_key=d_key, latent=self.latent * d_key // self.d_key)


@dataclass(frozen=True, kw_only=True)
class Routed(Spec, family="routed", version=1):
    """Softmax attention that routes: every head a softmax over the context, values, and a whole block around it.

    `a^k_ij = exp(S^k_ij / T) / (exp(s_k) + sum_l exp(S^k_il / T))`, `S^k_ij = (x_i W_Q^k) . (x_j W_K^k)`

    heads: h    d_key: d_k    sink: whether every head has a null key, of a learned logit s_k and value 0
    temperature: T; None: sqrt(d_k)    d_value: of every head; 0: no values, the attention itself is read: i -> j when some head
    gives j more than half of its attention. With values `o_i = sum_k sum_j a^k_ij x_j W_V^k W_O^k`, and i -> j when of all
    items, in the context or not, j has the largest o_i . x_j, and that is above the threshold
    hidden: 0, or the width of a feed-forward layer: then a whole block, pre-norm (RMS), `u = x + o(norm x)`,
    `y = u + W_2 gelu(W_1 norm u)`, read out as norm y is
    """

    heads: int
    d_key: int
    d_value: int = 0
    hidden: int = 0
    sink: bool = True
    temperature: float | None = None

    def check(self) -> None:
        Channel(heads=self.heads, d_key=self.d_key)
        require(self.d_value >= 0, "`d_value >= 0`", self.d_value, "Use 0 for no values.")
        require(self.hidden >= 0, "`hidden >= 0`", self.hidden, "Use 0 for no block.")
        require(self.hidden == 0 or self.d_value > 0, "`d_value > 0` with `hidden`", self.d_value, "A block has values.")
        hot = self.temperature
        require(hot is None or hot > 0, "`temperature > 0`", hot, "Leave it out for sqrt(d_key).")

    @property
    def key_budget(self) -> int:
        """D_K = h d_k."""
        return self.heads * self.d_key

    @property
    def value_budget(self) -> int:
        """D_V = h d_v."""
        return self.heads * self.d_value

    @property
    def scale(self) -> float:
        """1 / T, what scores are multiplied by."""
        return 1.0 / (math.sqrt(self.d_key) if self.temperature is None else self.temperature)

    def parameters(self, d_model: int) -> int:
        """Weights of queries, keys, sinks, values, outputs and the block; the threshold is not counted."""
        attention = 2 * d_model * (self.key_budget + self.value_budget) + (self.heads if self.sink else 0)
        return attention + (2 * d_model * self.hidden + self.hidden + 4 * d_model if self.hidden else 0)

    def with_budget(self, heads: int, budget: int) -> Routed:
        """So many heads, with this key budget and the value budget that there is."""
        d_key = Channel(heads=1, d_key=1).with_budget(heads, budget).d_key
        rule = "`heads` divides the value budget"
        require(self.value_budget % heads == 0, rule, f"heads={heads}, {self.value_budget}", "Change one of them.")
        return replace(self, heads=heads, d_key=d_key, d_value=self.value_budget // heads)
