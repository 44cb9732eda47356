"""The parts of batched decoders in torch, each as a pair: forwards, and the gradient backwards. No autograd.

Arrays have a leading member axis; rows are all tokens of all of a member's sequences: x: (members, rows, width). A part is
called with x and gives y and its `Back`, which takes dL/dy, writes the gradients of the part's weights where they belong
and gives dL/dx. No operation mixes members, and none mixes a member's sequences but the sums of gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as fn

from keyspan.attention import reference_decoder as reference
from keyspan.attention.instrument import ALIGN, Params
from keyspan.decoders import Decoder

Tensor = torch.Tensor
Back = Callable[[Tensor], Tensor]
Part = Callable[[Tensor], tuple[Tensor, Back]]
aten = torch.ops.aten


class Pass:
    """One pass of decoders through sequences, and back.

    w: weights by the names of `decoders.layout`, with a leading member axis    g: where gradients are written; what has no
    place there is frozen    tokens: per sequence, a multiple of 8 so that slots are whole cache lines (`instrument.ALIGN`)
    """

    def __init__(self, decoder: Decoder, w: Params, g: Params, tables: Params) -> None:
        self.decoder, self.w, self.g, self.tables = decoder, w, g, tables
        self._undo: Callable[[Tensor], None] | None = None

    # ------------------------------------------------------------------------------------------- whole passes

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of every next token. tokens: (members, sequences, tokens)    returns: (members, rows, V)"""
        members, self.sequences, self.length = tokens.shape
        self.rows = self.sequences * self.length
        which = tokens.reshape(members, self.rows)
        x = self._embedded(which)
        backs: list[Back] = []
        for part in self._parts():
            x, back = part(x)
            backs.append(back)
        scores, last = self._output(x)

        def undo(d: Tensor) -> None:
            d = last(d)
            for back in reversed(backs):
                d = back(d)
            self._embed_back(which, d)

        self._undo = undo
        return scores

    def backward(self, d: Tensor) -> None:
        """From the gradient of the scores to those of all weights that are trained."""
        assert self._undo is not None
        self._undo(d)
        self._undo = None

    def _parts(self) -> list[Part]:
        out: list[Part] = []
        for layer in (f"{n}." for n in range(self.decoder.layers)):
            out.append(self._residual(self._attention(layer), f"{layer}attention.norm"))
            if self.decoder.ff != "absent":
                out.append(self._residual(self._feed_forward(layer), f"{layer}ff.norm"))
        if self.decoder.norm == "final":
            out.append(self._norm("norm"))
        return out

    def _residual(self, inner: Part, name: str) -> Part:
        """`x + inner(x)`, with a norm before `inner`, after the sum, or none."""
        kind = self.decoder.norm
        norm = self._norm(name)

        def part(x: Tensor) -> tuple[Tensor, Back]:
            if kind in ("pre", "final"):
                n, back_norm = norm(x)
                y, back = inner(n)
                return y.add_(x), lambda d: back_norm(back(d)).add_(d)
            y, back = inner(x)
            if kind == "none":
                return y.add_(x), lambda d: back(d).add_(d)
            z, back_norm = norm(y.add_(x))

            def after(d: Tensor) -> Tensor:
                d = back_norm(d)
                return back(d).add_(d)

            return z, after

        return part

    # ------------------------------------------------------------------------------------------- tables

    def _embedded(self, which: Tensor) -> Tensor:
        """Rows of the token table, and positions added. which: (members, rows)"""
        table = self.w["tokens"]
        x = table.gather(1, which[:, :, None].expand(-1, -1, table.shape[2]))
        if self.decoder.positions != "rotary":
            learned = self.decoder.positions == "learned"
            rows = self.w["positions"] if learned else self.tables["sinusoids"][None]
            places = x.view(len(x), self.sequences, self.length, -1)
            places[:, :, : rows.shape[1]].add_(rows[:, None, : self.length])
        return x

    def _embed_back(self, which: Tensor, d: Tensor) -> None:
        """Gradients of the tables. On a GPU by a product with one-hot rows: adding with atomics knows no order."""
        members, rows, width = d.shape
        if self.decoder.positions == "learned":
            at = self.g["positions"]
            torch.sum(d.view(members, self.sequences, self.length, width)[:, :, : at.shape[1]], 1, out=at[:, : self.length])
        table = self.g["tokens"]
        if not self.decoder.tied:
            table.zero_()
        if d.device.type == "cpu":
            table.scatter_add_(1, which[:, :, None].expand(-1, -1, width), d)
            return
        one_hot = torch.zeros(members, rows, table.shape[1], dtype=d.dtype, device=d.device)
        one_hot.scatter_(2, which[:, :, None], 1.0)
        table.add_(torch.bmm(one_hot.transpose(1, 2), d))

    def _output(self, x: Tensor) -> tuple[Tensor, Back]:
        """Scores, from the output's matrix or the token table."""
        if not self.decoder.tied:
            return self._linear("output")(x)
        table = self.w["tokens"]

        def back(d: Tensor) -> Tensor:
            product(d, x, self.g["tokens"])
            torch.sum(d, 1, out=self.g["output.bias"])
            return torch.bmm(d, table)

        return torch.baddbmm(self.w["output.bias"][:, None], x, table.transpose(1, 2)), back

    # ------------------------------------------------------------------------------------------- parts

    def _linear(self, name: str) -> Part:
        """`x W + b`"""
        matrix, bias = self.w[name], self.w[f"{name}.bias"]

        def part(x: Tensor) -> tuple[Tensor, Back]:
            def back(d: Tensor) -> Tensor:
                if name in self.g:
                    product(x, d, self.g[name])
                    torch.sum(d, 1, out=self.g[f"{name}.bias"])
                return torch.bmm(d, matrix.transpose(1, 2))

            return torch.baddbmm(bias[:, None], x, matrix), back

        return part

    def _norm(self, name: str) -> Part:
        """`(x - mean) / deviation * gain + bias`"""

        def part(x: Tensor) -> tuple[Tensor, Back]:
            gain, bias = self.w[f"{name}.gain"][:, None], self.w[f"{name}.bias"][:, None]
            width = (x.shape[-1],)
            y, mean, scale = torch.native_layer_norm(x, width, None, None, reference.EPSILON)

            def back(d: Tensor) -> Tensor:
                torch.sum(d, 1, out=self.g[f"{name}.bias"])
                torch.sum(d * y, 1, out=self.g[f"{name}.gain"])
                want = (True, False, False)
                out: Tensor = aten.native_layer_norm_backward(d * gain, x, width, mean, scale, None, None, want)[0]
                return out

            return torch.addcmul(bias, y, gain), back

        return part

    def _feed_forward(self, layer: str) -> Part:
        up, down = self._linear(f"{layer}up"), self._linear(f"{layer}down")

        def part(x: Tensor) -> tuple[Tensor, Back]:
            hidden, back_up = up(x)
            active, back_activation = activate(self.decoder.activation, hidden)
            y, back_down = down(active)
            return y, lambda d: back_up(back_activation(back_down(d)))

        return part

    def _attention(self, layer: str) -> Part:
        """Multi-head attention within each sequence."""
        project, mix = self._linear(f"{layer}qkv"), self._linear(f"{layer}mix")
        heads, width = self.decoder.heads, self.decoder.d_head

        def part(x: Tensor) -> tuple[Tensor, Back]:
            members, rows, _ = x.shape
            many = members * self.sequences
            qkv, back_project = project(x)
            apart = qkv.view(many, self.length, 3, heads, width).permute(2, 0, 3, 1, 4).reshape(3, -1, self.length, width)
            q, k, v = self._turned(apart, 1.0)
            weights, back_weights = self._weights(q, k)
            together = torch.bmm(weights, v).view(many, heads, self.length, width).transpose(1, 2)
            y, back_mix = mix(together.reshape(members, rows, heads * width))

            def back(d: Tensor) -> Tensor:
                d = back_mix(d).view(many, self.length, heads, width).transpose(1, 2).reshape(-1, self.length, width)
                slope = torch.empty_like(apart)
                torch.bmm(weights.transpose(1, 2), d, out=slope[2])
                back_weights(torch.bmm(d, v.transpose(1, 2)), slope)
                slope = self._turned(slope, -1.0).view(3, many, heads, self.length, width)
                return back_project(slope.permute(1, 3, 0, 2, 4).reshape(members, rows, 3 * heads * width))

            return y, back

        return part

    def _turned(self, qkv: Tensor, sign: float) -> Tensor:
        """Queries and keys turned by their position, values as they are, where positions are rotary."""
        if self.decoder.positions != "rotary" or self.decoder.d_head < 2:
            return qkv
        half = self.decoder.d_head // 2
        cosine, sine = self.tables["cosine"][: self.length], sign * self.tables["sine"][: self.length]
        a, b = qkv[:2, ..., :half], qkv[:2, ..., half : 2 * half]
        out = qkv.clone()
        out[:2, ..., :half] = a * cosine - b * sine
        out[:2, ..., half : 2 * half] = b * cosine + a * sine
        return out

    def _weights(self, q: Tensor, k: Tensor) -> tuple[Tensor, Callable[[Tensor, Tensor], None]]:
        """What every token takes from every other; backwards into slope[0] and slope[1]. q, k: (many heads, tokens, d_head)"""
        if self.decoder.attention == "linear":
            return self._linear_weights(q, k)
        scale = 1.0 / math.sqrt(self.decoder.d_head)
        hidden = self.tables["hidden"][: self.length, : self.length]
        weights = torch.softmax(torch.baddbmm(hidden, q, k.transpose(1, 2), alpha=scale), -1)

        def back(d: Tensor, slope: Tensor) -> None:
            d = soft_back(weights, d).mul_(scale)
            torch.bmm(d, k, out=slope[0])
            torch.bmm(d.transpose(1, 2), q, out=slope[1])

        return weights, back

    def _linear_weights(self, q: Tensor, k: Tensor) -> tuple[Tensor, Callable[[Tensor, Tensor], None]]:
        """`f(q) f(k)^T` over its row sum, among visible tokens, with `f = elu + 1`, whose slope is min(f, 1)."""
        fq, fk = (fn.elu(z).add_(1.0) for z in (q, k))
        seen = (self.tables["hidden"][: self.length, : self.length] == 0).to(q.dtype)
        raw = torch.bmm(fq, fk.transpose(1, 2)).mul_(seen)
        total = raw.sum(-1, keepdim=True)
        weights = raw.div_(total)

        def back(d: Tensor, slope: Tensor) -> None:
            d = (d - (d * weights).sum(-1, keepdim=True)).div_(total).mul_(seen)
            torch.bmm(d, fk, out=slope[0]).mul_(fq.clamp(max=1.0))
            torch.bmm(d.transpose(1, 2), fq, out=slope[1]).mul_(fk.clamp(max=1.0))

        return weights, back


def product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """`a^T b` of every member, into a view. a: (members, rows, in)    b: (members, rows, out)    out: (members, in, out)

    Products of whole slots go to a place of their own first, since into a view they would be one call a member. Others do
    need a call each: a batch's products would begin at other alignments than a single member's.
    """
    if out.shape[1] * out.shape[2] % ALIGN == 0:
        out.copy_(torch.bmm(a.transpose(1, 2), b))
        return
    for member in range(len(out)):
        torch.mm(a[member].t(), b[member], out=out[member])


def soft_back(y: Tensor, d: Tensor) -> Tensor:
    """Through a softmax over the last axis that gave y."""
    pulled = d * y
    return pulled.addcmul_(y, pulled.sum(-1, keepdim=True), value=-1.0)


def activate(name: str, x: Tensor) -> tuple[Tensor, Back]:
    """The feed-forward's activation: `reference_decoder.activate`."""
    if name == "gelu":
        return fn.gelu(x), lambda d: aten.gelu_backward(d, x)
    if name == "silu":
        return fn.silu(x), lambda d: aten.silu_backward(d, x)
    if name == "relu":
        return fn.relu(x), lambda d: aten.threshold_backward(d, x, 0.0)
    y = torch.tanh(x) if name == "tanh" else torch.softmax(x, -1)
    return y, (lambda d: aten.tanh_backward(d, y)) if name == "tanh" else (lambda d: soft_back(y, d))


def tables_of(decoder: Decoder, length: int, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
    """What is looked up and never trained: hidden tokens as -inf, sinusoids, the rotary angles. length: padded tokens"""
    hidden = torch.zeros(length, length, dtype=dtype)
    hidden[torch.from_numpy(~reference.visible(decoder, length))] = -math.inf
    out = {"hidden": hidden}
    if decoder.positions == "sinusoidal":
        out["sinusoids"] = torch.from_numpy(reference.sinusoids(length, decoder.d_model))
    if decoder.positions == "rotary":
        theta = torch.from_numpy(reference.angles(length, 2 * (decoder.d_head // 2)))
        out |= {"cosine": theta.cos(), "sine": theta.sin()}
    return {name: table.to(device=device, dtype=dtype) for name, table in out.items()}
