"""Which tensor is what: a checkpoint's attention as data, the same for every family of models.

A query head h of a layer scores a pair of hidden states x (asking) and y (asked) by

    q = n_q(N(x) W_Q^h + b_Q^h),   k = n_k(N(y) W_K^g + b_K^g),   g = kv_of_query[h]
    s_h(x, y) = scale * (q R_i) . (k R_j)

with N the layer's own normalisation, n_q and n_k those of queries and keys, and R_i the rotation of position i. A family
says where each of these is kept; `weights` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from keyspan.advice.checkpoints.rotary import Rotary


@dataclass(frozen=True, kw_only=True)
class Columns:
    """A stored linear map, and which of its outputs belong to which head: `width` of them from `first + head * stride` on.

    stored: "out-in" (outputs, inputs), as torch.nn.Linear has it, or "in-out", as GPT-2's Conv1D    inputs: width of what it
    takes    outputs: all that it gives; None: not known
    """

    tensor: str
    inputs: int
    first: int
    stride: int
    width: int
    heads: int = 1
    outputs: int | None = None
    bias: str | None = None
    stored: Literal["out-in", "in-out"] = "out-in"

    @property
    def last(self) -> int:
        """One past the last output that is used."""
        return self.first + (self.heads - 1) * self.stride + self.width


@dataclass(frozen=True, kw_only=True)
class Norm:
    """x -> x / rms(x) * (offset + gain), or (x - mean(x)) / std(x) * (offset + gain) + bias.

    gain, bias: tensors, None where there are none    offset: 1 where the gain is kept as its distance from 1
    """

    kind: Literal["rms", "layer"]
    width: int
    eps: float
    gain: str | None = None
    bias: str | None = None
    offset: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Projection:
    """Hidden states to queries or keys: a map, or two with a normalisation between them (a latent, as in MLA)."""

    columns: Columns
    latent: Columns | None = None
    norm: Norm | None = None


@dataclass(frozen=True, kw_only=True)
class LayerPlan:
    """Attention of one layer.

    query, key: parts whose outputs stand beside one another in a head    kv_heads: of the keys; a part with one head is
    shared by all    norm: what the layer does to its input first    before: the normalisation that its input comes out
    of, where `norm` is None    window: how far it looks back, None for everything    d_key: width of a head's query and key
    """

    layer: int
    heads: int
    kv_heads: int
    d_key: int
    query: tuple[Projection, ...]
    key: tuple[Projection, ...]
    scale: float
    norm: Norm | None = None
    before: Norm | None = None
    query_norm: Norm | None = None
    key_norm: Norm | None = None
    rotary: Rotary | None = None
    softcap: float | None = None
    window: int | None = None

    @property
    def kv_of_query(self) -> tuple[int, ...]:
        """Which key head each query head asks."""
        return head_map(self.heads, self.kv_heads)


@dataclass(frozen=True, kw_only=True)
class EmbeddingPlan:
    """Token vectors: `factor * tokens[id]`, projected where they are narrower, plus the mean position and the first type, then
    normalised, where a model has these.

    skipped: rows at the head of `positions` that stand for no position
    """

    tokens: str
    factor: float = 1.0
    project: Columns | None = None
    positions: str | None = None
    skipped: int = 0
    types: str | None = None
    norm: Norm | None = None


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A checkpoint's attention. longest: positions that it was made for    notes: what a reader of the numbers should know"""

    family: str
    model_type: str
    d_model: int
    embeddings: EmbeddingPlan
    layers: tuple[LayerPlan, ...]
    longest: int | None = None
    notes: tuple[str, ...] = field(default=())


def head_map(heads: int, kv_heads: int) -> tuple[int, ...]:
    """Which key head each query head asks: groups of neighbours share one, as torch.repeat_interleave lays them out."""
    return tuple(head // (heads // kv_heads) for head in range(heads))
