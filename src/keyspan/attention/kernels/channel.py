"""The fused channel: `value_and_grad` in a few Triton launches for all members, held to `reference` like every speed.

Memory: what grows with items^2 is one stripe's `slope` and `owner`, 3 to 5 bytes a pair, whatever the number of heads.
Members share it `SHARE_BYTES` at a time, and a member that would need more than `STRIPE_BYTES` takes its rows in stripes;
beyond that memory grows with items only. Block sizes follow from a member's own shape, so
its bits do not depend on who shares the launch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from keyspan.attention.channel import ChannelBucket
from keyspan.attention.instrument import Params, next_power_of_two
from keyspan.attention.kernels import item_programs, pair_programs
from keyspan.attention.kernels.launching import compiling, launch
from keyspan.problems import Batch
from keyspan.specs import Run

SHARE_BYTES = 512 << 20  # slopes and owners of the members that share a launch: many, so that no core waits at its end
STRIPE_BYTES = 2 << 30
CHUNK = 64  # widest piece of a head that one product takes
TALLY = 256
WIDTH = {"bf16": 256, "tf32": 128, "fp32": 128}  # heads * d_key that a program's registers hold as gradients


@dataclass(frozen=True)
class Shape:
    """Block sizes that were fastest where they were tried (docs/speed.md).

    tile, row, back: rows, columns, warps, stages    project, weigh: rows, columns, inner
    """

    tile: tuple[int, int, int, int] = (64, 64, 4, 3)
    row: tuple[int, int, int, int] = (64, 32, 4, 2)
    back: tuple[int, int, int, int] = (64, 64, 4, 2)
    project: tuple[int, int, int] = (128, 128, 64)
    weigh: tuple[int, int, int] = (128, 128, 64)


@dataclass
class Work:
    """Scratch of one crew, reused in every step. q, k, dq, dk: (members, heads, items, d_pad)"""

    q: torch.Tensor
    k: torch.Tensor
    dq: torch.Tensor
    dk: torch.Tensor
    slope: torch.Tensor
    owner: torch.Tensor
    parts: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    loss: torch.Tensor
    grads: Params


@dataclass(frozen=True)
class FusedBatch:
    """x: (members, items, d_model) in the type of the products    bits: (members, items, items / 32), edges as bits
    heads: (members,), true number of heads    ragged: some have fewer heads than there is room"""

    x: torch.Tensor
    bits: torch.Tensor
    heads: torch.Tensor
    ragged: bool
    work: Work


class FusedChannelBucket(ChannelBucket):
    """Channels of one shape through Triton."""

    kernel = "triton"
    device: torch.device

    def __init__(self, runs: Sequence[Run], loss: str, init_scale: float, bias: float, device: torch.device) -> None:
        super().__init__(runs, loss, init_scale, bias, device)
        wide = device.type == "cpu"  # Triton's interpreter, which multiplies no bf16
        self.arithmetic = runs[0].arithmetic
        self.program = "bf16-wide" if self.arithmetic == "bf16" and wide else self.arithmetic
        self.half = self.arithmetic == "bf16" and not wide
        self.loss = loss
        self.d_pad = max(16, self.d_key)
        self.shape = Shape()
        self.chunk = min(self.d_pad, CHUNK)
        self.tags = max(2, self.heads)
        pair = (2 if self.half else 4) + (1 if self.heads <= 128 else 2)
        self.stripe = min(self.items, max(64, STRIPE_BYTES // (pair * self.items) // 64 * 64))
        self.share = max(1, SHARE_BYTES // (pair * self.items * self.stripe))
        self.wide = self.arithmetic == "bf16" and self.heads * self.d_pad <= WIDTH["bf16"]

    @staticmethod
    def _dtype(arithmetic: str, device: torch.device) -> torch.dtype:
        """Weights and moments are fp32; `arithmetic` is that of the products."""
        return torch.float32

    def load(self, batch: Batch, runs: Sequence[Run]) -> FusedBatch:  # type: ignore[override]
        """Rows, and edges as bits, on the device."""
        rows, edges = batch["embeddings"], batch["edges"]
        x = np.zeros((len(runs), self.items, self.width), dtype=np.float32)
        x[:, : self.true_items, : self.d_model] = rows
        bits = np.zeros((len(runs), self.items, self.items // 32), dtype=np.uint32)
        for member, pairs in enumerate(edges):
            source, target = pairs.T
            np.bitwise_or.at(bits[member], (source, target // 32), np.uint32(1) << (target % 32).astype(np.uint32))
        heads = np.array([self._channel(run).heads for run in runs], dtype=np.int32)
        return self._batch(
            torch.from_numpy(x).to(device=self.device, dtype=torch.bfloat16 if self.half else torch.float32),
            torch.from_numpy(bits.view(np.int32)).to(self.device),
            torch.from_numpy(heads).to(self.device),
        )

    def _batch(self, x: torch.Tensor, bits: torch.Tensor, heads: torch.Tensor, *, ragged: bool | None = None) -> FusedBatch:
        ragged = bool((heads < self.heads).any()) if ragged is None else ragged
        return FusedBatch(x, bits, heads, ragged, self._work(len(x)))

    def compile(self, run: Run, steps: int) -> None:
        """Compile what a step and a look of members like this one launch. On tensors without memory; nothing runs.

        steps: of the phase, whose length is an argument of the update
        """
        twin = copy(self)
        twin.device = torch.device("meta")
        x = torch.empty(1, self.items, self.width, device="meta", dtype=torch.bfloat16 if self.half else torch.float32)
        bits = torch.empty(1, self.items, self.items // 32, device="meta", dtype=torch.int32)
        heads = torch.empty(1, device="meta", dtype=torch.int32)
        with compiling():
            batch = twin._batch(x, bits, heads, ragged=self._channel(run).heads < self.heads)
            params = {k: torch.empty_like(g) for k, g in batch.work.grads.items()}
            twin.value_and_grad(params, batch, value=True)
            twin.value_and_grad(params, batch, value=False)
            twin.clear(params, batch, 0.0)
            for name, w in params.items():
                table = torch.empty(steps, device="meta")
                clock = torch.empty(1, device="meta", dtype=torch.int64)
                fused_adam(w, batch.work.grads[name], w, w, clock=clock, rate=table, floor=table, beta1=0.0, beta2=0.0)

    def _work(self, members: int) -> Work:
        """Zeros wherever a launch leaves something out: padded heads and padded key dimensions."""
        product = torch.bfloat16 if self.half else torch.float32
        each = (members, self.heads, self.items, self.d_pad)
        share = min(self.share, members)
        tiles = max(self._tiles(self.stripe), -(-self.stripe // self.shape.row[0]))

        def zeros(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(size, dtype=dtype, device=self.device)

        weights = (members, self.heads, self.d_key, self.width)
        return Work(
            q=zeros(*each, dtype=product),
            k=zeros(*each, dtype=product),
            dq=zeros(*each, dtype=product if self.stripe == self.items else torch.float32),
            dk=zeros(*each, dtype=product if self.stripe == self.items else torch.float32),
            slope=zeros(share, self.stripe, self.items, dtype=product),
            owner=zeros(share, self.stripe, self.items, dtype=torch.int8 if self.heads <= 128 else torch.int16),
            parts=zeros(members, tiles, 2),
            low=zeros(members),
            high=zeros(members),
            loss=zeros(members),
            grads={"w_query": zeros(*weights), "w_key": zeros(*weights), "bias": zeros(members, 32)},
        )

    def select(self, batch: FusedBatch, keep: torch.Tensor) -> FusedBatch:  # type: ignore[override]
        """The loaded batch of some members only."""
        return self._batch(batch.x[keep], batch.bits[keep], batch.heads[keep])

    def join(self, batch: FusedBatch, other: FusedBatch) -> FusedBatch:  # type: ignore[override]
        """Two loaded batches as one."""
        return self._batch(*(torch.cat([getattr(b, name) for b in (batch, other)]) for name in ("x", "bits", "heads")))

    # ------------------------------------------------------------------------------------------- the step

    def value_and_grad(  # type: ignore[override]
        self, params: Params, batch: FusedBatch, *, value: bool = True
    ) -> tuple[torch.Tensor | None, Params]:
        """As the other speeds. The tensors that come back are used again by the next call."""
        work = batch.work
        self._project(params["w_query"], batch, work.q)
        self._project(params["w_key"], batch, work.k)
        self._pairs(params, batch, value=value)
        self._weigh(batch, work.dq, work.grads["w_query"])
        self._weigh(batch, work.dk, work.grads["w_key"])
        return (work.loss if value else None), work.grads

    def _tally(self, batch: FusedBatch, tiles: int, *, add: bool) -> None:
        work = batch.work
        bias = work.grads["bias"]
        launch(
            item_programs.tally, (len(batch.x),),
            work.parts, work.loss, bias, tiles, bias.stride(0), 1.0 / self.edges, BLOCK=TALLY, ADD=add,
        )  # fmt: skip

    def _pairs(self, params: Params, batch: FusedBatch, *, value: bool) -> None:
        """Everything of the size items^2: a stripe of rows of a few members at a time, from scores to dL/dq and dL/dk."""
        members = len(batch.x)
        for top in range(0, self.items, self.stripe):
            rows = min(self.stripe, self.items - top)
            for first in range(0, members, self.share):
                count = min(self.share, members - first)
                if self.wide:
                    self._by_row(params, batch, first, count, top, rows, value=value)
                else:
                    self._forward(params, batch, first, count, top, rows, value=value, test=False)
                    self._backward(batch, first, count, top, rows, by_row=True)
                self._backward(batch, first, count, top, rows, by_row=False)
            blocks = -(-rows // self.shape.row[0]) if self.wide else self._tiles(rows)
            self._tally(batch, blocks, add=top > 0)

    def _tiles(self, rows: int) -> int:
        return -(-rows // self.shape.tile[0]) * -(-self.items // self.shape.tile[1])

    def _by_row(self, params: Params, batch: FusedBatch, first: int, count: int, top: int, rows: int, *, value: bool) -> None:
        work = batch.work
        a, b, warps, stages = self.shape.row
        launch(
            pair_programs.by_row, (-(-rows // a), count),
            work.q, work.k, work.dq, batch.heads, params["bias"], batch.bits, work.slope, work.owner, work.parts,
            first, top, rows, self.items, self.true_items, params["bias"].stride(0), -self.tags, 1.0 / self.edges,
            HEADS=self.heads, D_PAD=self.d_pad, A=a, B=b, TAGS=self.tags, RAGGED=batch.ragged,
            EVEN=rows % a == 0 and self.items % b == 0, FULL=self.items == self.true_items,
            LOSS=self.loss, VALUE=value, ASSEMBLY=self.half, num_warps=warps, num_stages=stages,
        )  # fmt: skip

    def _project(self, w: torch.Tensor, batch: FusedBatch, out: torch.Tensor) -> None:  # type: ignore[override]
        columns = self.heads * self.d_key
        block_i, block_n, block_d = (
            self.shape.project[0],
            max(16, min(self.shape.project[1], columns)),
            math.gcd(self.shape.project[2], self.width),
        )
        grid = (-(-self.items // block_i), -(-columns // block_n), len(w))
        launch(
            item_programs.project, grid,
            batch.x, w, out, self.items, self.width, columns, self.d_key,
            D_PAD=self.d_pad, BLOCK_I=block_i, BLOCK_N=block_n, BLOCK_D=block_d, ARITHMETIC=self.program,
        )  # fmt: skip

    def _forward(
        self, params: Params, batch: FusedBatch, first: int, count: int, top: int, rows: int, *, value: bool, test: bool
    ) -> None:
        work, shape = batch.work, self.shape
        grid = (-(-self.items // shape.tile[1]), -(-rows // shape.tile[0]), count)
        launch(
            pair_programs.forward, grid,
            work.q, work.k, batch.heads, params["bias"], batch.bits, work.slope, work.owner, work.parts,
            first, top, rows, self.items, self.true_items, self.heads, params["bias"].stride(0),
            D_PAD=self.d_pad, CHUNK=self.chunk, BLOCK_I=shape.tile[0], BLOCK_J=shape.tile[1],
            LOSS=self.loss, VALUE=value, TEST=test, ARITHMETIC=self.program,
            num_warps=shape.tile[2], num_stages=shape.tile[3],
        )  # fmt: skip

    def _backward(self, batch: FusedBatch, first: int, count: int, top: int, rows: int, *, by_row: bool) -> None:
        work = batch.work
        a, b, warps, stages = self.shape.back
        group = min(self.heads, max(1, WIDTH[self.arithmetic] // self.chunk))
        groups = -(-self.heads // group) * (self.d_pad // self.chunk)
        fixed, looped = (rows, self.items) if by_row else (self.items, rows)
        mine, other, out = (work.q, work.k, work.dq) if by_row else (work.k, work.q, work.dk)
        launch(
            pair_programs.backward, (-(-fixed // a), groups, count),
            work.slope, work.owner, mine, other, out, batch.heads,
            first, top, rows, self.items, self.heads, 1.0 / self.edges,
            BY_ROW=by_row, GROUP=group, D_PAD=self.d_pad, CHUNK=self.chunk, A=a, B=b,
            ONE=self.heads == 1, EVEN=fixed % a == 0 and looped % b == 0, ADD=top > 0 and not by_row,
            ARITHMETIC=self.program, ASSEMBLY=self.half, num_warps=warps, num_stages=stages,
        )  # fmt: skip

    def _weigh(self, batch: FusedBatch, dq: torch.Tensor, out: torch.Tensor) -> None:
        columns = self.heads * self.d_key
        block_n, block_d = max(16, min(self.shape.weigh[0], columns)), min(self.shape.weigh[1], next_power_of_two(self.width))
        grid = (-(-columns // block_n), -(-self.width // block_d), len(out))
        launch(
            item_programs.weigh, grid,
            batch.x, dq, out, self.items, self.width, columns, self.d_key,
            D_PAD=self.d_pad, BLOCK_N=block_n, BLOCK_D=block_d, BLOCK_I=self.shape.weigh[2], ARITHMETIC=self.program,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------- tests and answers

    def clear(self, params: Params, batch: FusedBatch, slack: float) -> torch.Tensor:  # type: ignore[override]
        """Whether every edge scores above its threshold and every non-edge below, by `slack`. returns: (members,), bool"""
        work = batch.work
        self._project(params["w_query"], batch, work.q)
        self._project(params["w_key"], batch, work.k)
        members = len(batch.x)
        for top in range(0, self.items, self.stripe):
            rows = min(self.stripe, self.items - top)
            self._forward(params, batch, 0, members, top, rows, value=False, test=True)
            launch(
                item_programs.extremes, (members,),
                work.parts, work.low, work.high, self._tiles(rows), BLOCK=TALLY, ADD=top > 0,
            )  # fmt: skip
        return (work.low > slack) & (work.high < -slack)


def fused_adam(w: torch.Tensor, g: torch.Tensor, first: torch.Tensor, second: torch.Tensor, **tables: Any) -> None:
    """One update of one parameter of every member, in place. tables: clock, rate, floor, beta1, beta2"""
    size, block = w[0].numel(), 1024
    launch(
        item_programs.adam, (-(-size // block), len(w)),
        w, g, first, second, tables["clock"], tables["rate"], tables["floor"],
        len(tables["rate"]), size, tables["beta1"], tables["beta2"], BLOCK=block,
    )  # fmt: skip
