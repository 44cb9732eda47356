"""The weights of one layer, read when they are asked for: maps of every head, exact scores, and factors of its form.

A head's score without positions and without what is normalised token by token is a bilinear form x M y with

    M = W_Q W_K^T            as the tensors stand (`factors`), rank at most d_key, never multiplied out
    M' = W'_Q W'_K^T         as the layer sees it (`folded`): W' = C diag(gain) W, and one more row for the biases

where C takes out the mean, if the layer's normalisation does, and the row is what a hidden state of zeros would give, so
that M' acts on (x, 1) with x of unit mean square.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from keyspan.advice.checkpoints.layout import Columns, EmbeddingPlan, LayerPlan, Layout, Norm, Projection
from keyspan.files.checkpoints import Checkpoint

Float = NDArray[np.float64]
Side = Literal["query", "key"]


@dataclass(frozen=True, eq=False)
class LoadedNorm:
    """A normalisation with its numbers. gain: (width,), the offset added    bias: (width,)"""

    plan: Norm
    gain: Float
    bias: Float

    def __call__(self, x: Float) -> Float:
        """Normalised along the last axis."""
        centred = x - x.mean(axis=-1, keepdims=True) if self.plan.kind == "layer" else x
        size = np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + self.plan.eps)
        return np.asarray(centred / np.where(size > 0, size, 1.0) * self.gain + self.bias)


@dataclass(frozen=True, eq=False)
class Part:
    """A projection with its numbers. maps: (heads, inputs, width)    bias: (heads, width)    latent: (d_model, inputs)"""

    maps: NDArray[Any]
    bias: Float | None
    latent: Float | None
    latent_bias: Float | None
    norm: LoadedNorm | None

    def __call__(self, x: Float) -> Float:
        """x: (n, d_model), normalised    returns: (n, heads, width)"""
        if self.latent is not None:
            x = x @ self.latent + (0.0 if self.latent_bias is None else self.latent_bias)
            x = self.norm(x) if self.norm is not None else x
        out = np.stack([x @ head.astype(np.float64) for head in self.maps], axis=1)
        return out if self.bias is None else out + self.bias

    def factor(self, head: int) -> Float:
        """The map of a head from hidden states. returns: (d_model, width)"""
        own = self.maps[head if len(self.maps) > 1 else 0].astype(np.float64)
        if self.latent is None:
            return np.asarray(own)
        return np.asarray(self.latent @ (own if self.norm is None else self.norm.gain[:, None] * own))

    def shift(self, head: int) -> Float:
        """What a head gives of a hidden state of zeros, but for biases inside of a latent. returns: (width,)"""
        return np.zeros(self.maps.shape[2]) if self.bias is None else self.bias[head if len(self.maps) > 1 else 0]


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """One layer, read. The parts of a side stand beside one another in a head."""

    plan: LayerPlan
    query: tuple[Part, ...]
    key: tuple[Part, ...]
    norm: LoadedNorm | None
    before: LoadedNorm | None
    query_norm: LoadedNorm | None
    key_norm: LoadedNorm | None

    def heads(self, side: Side) -> int:
        """How many heads a side has: keys may be shared."""
        return self.plan.heads if side == "query" else self.plan.kv_heads

    def factors(self, side: Side, head: int) -> Float:
        """W_Q or W_K of a head, as the tensors stand. returns: (d_model, d_key)"""
        parts = self.query if side == "query" else self.key
        return parts[0].factor(head) if len(parts) == 1 else np.concatenate([part.factor(head) for part in parts], axis=1)

    def folded(self, side: Side, head: int) -> Float:
        """The same with gains and centring in it, and a last row for the biases. returns: (d_model + 1, d_key)"""
        plain = self.factors(side, head)
        shift = np.concatenate([part.shift(head) for part in (self.query if side == "query" else self.key)])
        norm = self.norm or self.before
        if norm is not None:
            shift = shift + norm.bias @ plain
            plain = norm.gain[:, None] * plain
            if norm.plan.kind == "layer":
                plain = plain - plain.mean(axis=0)
        inner = self.query_norm if side == "query" else self.key_norm
        whole = np.concatenate([plain, shift[None]])
        if inner is None:
            return whole
        if inner.plan.kind == "layer":
            whole = whole - whole.mean(axis=1, keepdims=True)
        return np.asarray(whole * inner.gain)

    def projected(self, side: Side, states: Float) -> Float:
        """Queries or keys of hidden states, before they turn. states: (n, d_model)    returns: (n, heads, d_key)"""
        x = states if self.norm is None else self.norm(states)
        count = self.heads(side)
        made = [part(x) for part in (self.query if side == "query" else self.key)]
        out = np.concatenate([np.broadcast_to(m, (len(m), count, m.shape[2])) for m in made], axis=2)
        inner = self.query_norm if side == "query" else self.key_norm
        return out if inner is None else inner(out)

    def scores(self, states: Float, positions: NDArray[np.int64] | None = None) -> Float:
        """Scores before the softmax, of every pair of positions, masked or not. states: (n, d_model): what comes into the
        layer, before its own normalisation    positions: default 0 .. n - 1    returns: (heads, n, n)
        """
        q, k = self.projected("query", states), self.projected("key", states)
        if self.plan.rotary is not None:
            places = np.arange(len(states)) if positions is None else positions
            q, k = self.plan.rotary.turned(q, places), self.plan.rotary.turned(k, places)
        k = k[:, np.array(self.plan.kv_of_query)]
        return self.scaled(np.einsum("ihk,jhk->hij", q, k, optimize=True))

    def scaled(self, products: Float) -> Float:
        """Scores from products of queries and keys."""
        scores = self.plan.scale * products
        return scores if self.plan.softcap is None else self.plan.softcap * np.tanh(scores / self.plan.softcap)

    def inputs(self, tokens: Float) -> Float:
        """Token vectors as they would come into the layer if nothing were added to them on the way. tokens: (n, d_model)"""
        return tokens if self.before is None or self.plan.layer == 0 else self.before(tokens)


def read_layer(checkpoint: Checkpoint, plan: LayerPlan) -> LayerWeights:
    """Read one layer; nothing of it is kept."""
    kept: dict[str, NDArray[Any]] = {}  # fused matrices serve both sides
    return LayerWeights(
        plan=plan,
        query=tuple(_part(checkpoint, part, kept) for part in plan.query),
        key=tuple(_part(checkpoint, part, kept) for part in plan.key),
        norm=_norm(checkpoint, plan.norm),
        before=_norm(checkpoint, plan.before),
        query_norm=_norm(checkpoint, plan.query_norm),
        key_norm=_norm(checkpoint, plan.key_norm),
    )


def _part(checkpoint: Checkpoint, part: Projection, kept: dict[str, NDArray[Any]]) -> Part:
    maps = _maps(checkpoint, part.columns, kept)
    if part.latent is None:
        return Part(maps, _bias(checkpoint, part.columns), None, None, None)
    (latent,) = _maps(checkpoint, part.latent, kept)
    bias = _bias(checkpoint, part.latent)
    return Part(
        maps,
        _bias(checkpoint, part.columns),
        latent.astype(np.float64),
        None if bias is None else bias[0],
        _norm(checkpoint, part.norm),
    )


def _maps(checkpoint: Checkpoint, columns: Columns, kept: dict[str, NDArray[Any]]) -> NDArray[Any]:
    """The columns of every head. returns: (heads, inputs, width), views of what was read"""
    c = columns
    if c.stored == "out-in" and c.stride == c.width and c.tensor not in kept:
        rows = checkpoint.read(c.tensor, (c.first, c.last))
        return rows.reshape(c.heads, c.width, c.inputs).transpose(0, 2, 1)
    if c.tensor not in kept:
        whole = checkpoint.read(c.tensor)
        kept[c.tensor] = whole if c.stored == "in-out" else whole.T
    whole = kept[c.tensor]
    begins = [c.first + head * c.stride for head in range(c.heads)]
    return np.stack([whole[:, begin : begin + c.width] for begin in begins])


def _bias(checkpoint: Checkpoint, columns: Columns) -> Float | None:
    if columns.bias is None:
        return None
    whole = checkpoint.read(columns.bias).astype(np.float64)
    begins = [columns.first + head * columns.stride for head in range(columns.heads)]
    return np.stack([whole[begin : begin + columns.width] for begin in begins])


def _norm(checkpoint: Checkpoint, norm: Norm | None) -> LoadedNorm | None:
    if norm is None:
        return None
    gain = np.ones(norm.width) if norm.gain is None else norm.offset + checkpoint.read(norm.gain).astype(np.float64)
    bias = np.zeros(norm.width) if norm.bias is None else checkpoint.read(norm.bias).astype(np.float64)
    return LoadedNorm(norm, gain, bias)


def normalised(checkpoint: Checkpoint, layout: Layout, rows: Float) -> Float:
    """What the first layer's normalisation makes of its input, without gains and biases. rows: (n, d_model)"""
    first = layout.layers[0]
    if first.norm is not None:
        return LoadedNorm(first.norm, np.ones(layout.d_model), np.zeros(layout.d_model))(rows)
    made = _norm(checkpoint, first.before)
    if made is None:
        return rows
    return np.asarray((rows - made.bias) / np.where(made.gain == 0, 1.0, made.gain))


def token_vectors(checkpoint: Checkpoint, plan: EmbeddingPlan, ids: Iterable[int]) -> Float:
    """What comes into the first layer for single tokens: at the mean position and of the first type, where there are such.

    returns: (ids, d_model)
    """
    rows = np.concatenate([checkpoint.read(plan.tokens, (i, i + 1)) for i in ids]).astype(np.float64)
    return finished(checkpoint, plan, rows)


def finished(checkpoint: Checkpoint, plan: EmbeddingPlan, rows: Float) -> Float:
    """Rows of the table of tokens as they come into the first layer. rows: (n, width of the table)"""
    rows = plan.factor * rows
    if plan.project is not None:
        (project,) = _maps(checkpoint, plan.project, {})
        rows = rows @ project
    if plan.positions is not None:
        table = checkpoint.read(plan.positions).astype(np.float64)
        rows = rows + table[plan.skipped :].mean(axis=0)
    if plan.types is not None:
        rows = rows + checkpoint.read(plan.types, (0, 1))[0]
    norm = _norm(checkpoint, plan.norm)
    return rows if norm is None else norm(rows)
