"""The Triton programs of the fused step that touch items and weights: projections, gradients of weights, sums, updates.

See `pair_programs` for what grows with items^2, and for the words and types used here.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def operand(t, ARITHMETIC: tl.constexpr):
    """A product's operand in its type."""
    if ARITHMETIC == "bf16":
        return t.to(tl.bfloat16)
    elif ARITHMETIC == "bf16-wide":
        return t.to(tl.bfloat16).to(tl.float32)
    else:
        return t.to(tl.float32)


@triton.jit
def dot(a, b, sums, ARITHMETIC: tl.constexpr):
    """`sums + a @ b`, summed in fp32."""
    if ARITHMETIC == "tf32":
        return tl.dot(a, b, sums, input_precision="tf32")
    elif ARITHMETIC == "fp32":
        return tl.dot(a, b, sums, input_precision="tf32x3")
    else:
        return tl.dot(a, b, sums)


@triton.jit
def project(
    x_ptr, w_ptr, out_ptr, items, width, columns, d_key,
    D_PAD: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, ARITHMETIC: tl.constexpr,
):  # fmt: skip
    """x: (items, width), w: (columns = heads * d_key, width) -> out: (heads, items, D_PAD), of one member."""
    member = tl.program_id(2).to(tl.int64)
    i = tl.program_id(0) * BLOCK_I + tl.arange(0, BLOCK_I)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x_ptr += member * items * width
    w_ptr += member * columns * width
    sums = tl.zeros((BLOCK_I, BLOCK_N), dtype=tl.float32)
    for start in range(0, width, BLOCK_D):
        d = start + tl.arange(0, BLOCK_D)
        x = tl.load(x_ptr + i[:, None] * width + d[None, :], mask=(i < items)[:, None], other=0.0)
        w = tl.load(w_ptr + n[None, :] * width + d[:, None], mask=(n < columns)[None, :], other=0.0)
        sums = dot(operand(x, ARITHMETIC), operand(w, ARITHMETIC), sums, ARITHMETIC)
    head, inner = n // d_key, n % d_key
    out_ptr += member * (columns // d_key) * items * D_PAD
    where = (head[None, :] * items + i[:, None]) * D_PAD + inner[None, :]
    tl.store(out_ptr + where, operand(sums, ARITHMETIC), mask=(i < items)[:, None] & (n < columns)[None, :])


@triton.jit
def weigh(
    x_ptr, dq_ptr, out_ptr, items, width, columns, d_key,
    D_PAD: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_I: tl.constexpr, ARITHMETIC: tl.constexpr,
):  # fmt: skip
    """dq: (heads, items, D_PAD), x: (items, width) -> out: (columns = heads * d_key, width), of one member."""
    member = tl.program_id(2).to(tl.int64)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    head, inner = n // d_key, n % d_key
    x_ptr += member * items * width
    dq_ptr += member * (columns // d_key) * items * D_PAD
    sums = tl.zeros((BLOCK_N, BLOCK_D), dtype=tl.float32)
    for start in range(0, items, BLOCK_I):
        i = start + tl.arange(0, BLOCK_I)
        where = (head[:, None] * items + i[None, :]) * D_PAD + inner[:, None]
        dq = tl.load(dq_ptr + where, mask=(n < columns)[:, None] & (i < items)[None, :], other=0.0)
        x = tl.load(x_ptr + i[:, None] * width + d[None, :], mask=(i < items)[:, None] & (d < width)[None, :], other=0.0)
        sums = dot(operand(dq, ARITHMETIC), operand(x, ARITHMETIC), sums, ARITHMETIC)
    where = (member * columns + n[:, None]) * width + d[None, :]
    tl.store(out_ptr + where, sums, mask=(n < columns)[:, None] & (d < width)[None, :])


@triton.jit(do_not_specialize=["tiles"])
def tally(parts_ptr, loss_ptr, slope_ptr, tiles, slope_stride, scale, BLOCK: tl.constexpr, ADD: tl.constexpr):
    """Sum the parts of one member's tiles, in one order. parts: (members, tiles, 2) -> loss, dL/db"""
    member = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    loss = tl.zeros((BLOCK,), dtype=tl.float32)
    slope = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, tiles, BLOCK):
        t = start + lane
        loss += tl.load(parts_ptr + (member * tiles + t) * 2, mask=t < tiles, other=0.0)
        slope += tl.load(parts_ptr + (member * tiles + t) * 2 + 1, mask=t < tiles, other=0.0)
    total = tl.sum(loss) * scale
    lean = tl.sum(slope) * scale
    if ADD:
        total += tl.load(loss_ptr + member)
        lean += tl.load(slope_ptr + member * slope_stride)
    tl.store(loss_ptr + member, total)
    tl.store(slope_ptr + member * slope_stride, lean)


@triton.jit(do_not_specialize=["tiles"])
def extremes(parts_ptr, low_ptr, high_ptr, tiles, BLOCK: tl.constexpr, ADD: tl.constexpr):
    """Lowest edge and highest non-edge over one member's tiles. parts: (members, tiles, 2)"""
    member = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    low = tl.full((BLOCK,), float("inf"), dtype=tl.float32)
    high = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for start in range(0, tiles, BLOCK):
        t = start + lane
        low = tl.minimum(low, tl.load(parts_ptr + (member * tiles + t) * 2, mask=t < tiles, other=float("inf")))
        high = tl.maximum(high, tl.load(parts_ptr + (member * tiles + t) * 2 + 1, mask=t < tiles, other=float("-inf")))
    lowest = tl.min(low)
    highest = tl.max(high)
    if ADD:
        lowest = tl.minimum(lowest, tl.load(low_ptr + member))
        highest = tl.maximum(highest, tl.load(high_ptr + member))
    tl.store(low_ptr + member, lowest)
    tl.store(high_ptr + member, highest)


@triton.jit
def adam(
    w_ptr, g_ptr, first_ptr, second_ptr, clock_ptr, rate_ptr, floor_ptr, steps, size, beta1, beta2,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One update of Adam (Kingma and Ba 2015); rate and epsilon of each member's own step are looked up in tables.

    w, gradient, first, second: (members, size)    clock: (members,), updates before this one    rate, floor: (steps,)
    """
    member = tl.program_id(1).to(tl.int64)
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = lane < size
    step = tl.minimum(tl.load(clock_ptr + member), steps - 1)
    rate = tl.load(rate_ptr + step)
    floor = tl.load(floor_ptr + step)
    at = member * size + lane
    g = tl.load(g_ptr + at, mask=inside, other=0.0)
    first = tl.load(first_ptr + at, mask=inside, other=0.0) * beta1 + g * (1 - beta1)
    second = tl.load(second_ptr + at, mask=inside, other=0.0) * beta2 + g * g * (1 - beta2)
    tl.store(first_ptr + at, first, mask=inside)
    tl.store(second_ptr + at, second, mask=inside)
    w = tl.load(w_ptr + at, mask=inside, other=0.0)
    tl.store(w_ptr + at, w - rate * first / (tl.sqrt(second) + floor), mask=inside)
