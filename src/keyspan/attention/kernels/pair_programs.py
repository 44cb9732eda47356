"""The Triton programs of the fused channel step. Each program owns what it writes: no atomics, so equal bits every time.

One step of a member, with q = x W_Q and k = x W_K (items: m, heads: h, d_key: d_k):

    project    q, k                                                      (heads, items, d_key)
    by_row     z_ij = max_k q_i . k_j + b, a block of rows against all columns: the loss, dL/dz as `slope`, the head that
               attains the maximum as `owner`, and at once dL/dq; in bf16, for as many heads as registers hold
    forward    the same without dL/dq, by tiles of pairs, for any number of heads and any arithmetic
    backward   dL/dq of rows, dL/dk of columns, from `slope` and `owner`, several heads at a time
    weigh      dL/dW = x^T dL/dq
    tally      loss and dL/db from the parts, in one fixed order

`slope` and `owner` are the only things that grow with items^2, whatever the number of heads; they hold a stripe of rows
at a time.

ARITHMETIC: `bf16` (operands bf16, sums fp32), `tf32`, `fp32` (three TF32 products), or `bf16-wide`, which Triton's
interpreter needs: operands rounded to bf16, multiplied as fp32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from keyspan.attention.kernels.item_programs import dot, operand


@triton.jit
def _bce(z, edge, VALUE: tl.constexpr, ASSEMBLY: tl.constexpr):
    """dL/dz and L of every pair, times m'. A non-edge: sigmoid(z), softplus(z); an edge: -sigmoid(-z), softplus(-z).

    The assembly takes the device's own exponential and reciprocal, whose last bits bf16 does not see.
    """
    signed = tl.where(edge, -z, z)
    small = tl.exp(-tl.abs(signed))
    if ASSEMBLY:
        chance = tl.inline_asm_elementwise(
            "{ .reg .f32 e; mul.ftz.f32 e, $1, 0fBFB8AA3B; ex2.approx.ftz.f32 e, e; add.ftz.f32 e, e, 0f3F800000;"
            " rcp.approx.ftz.f32 $0, e; }",
            "=f,f",
            [signed],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    else:
        chance = tl.where(signed >= 0, 1.0, small) / (1.0 + small)
    slope = tl.where(edge, -chance, chance)
    if VALUE:
        return slope, tl.maximum(signed, 0.0) + tl.log(1.0 + small)
    else:
        return slope, signed


@triton.jit
def _squared_hinge(z, edge):
    """dL/dz and L of every pair, times m': relu(1 + z)^2 of a non-edge, relu(1 - z)^2 of an edge."""
    short = tl.maximum(1.0 + tl.where(edge, -z, z), 0.0)
    return tl.where(edge, -2.0 * short, 2.0 * short), short * short


@triton.jit(do_not_specialize=["first_member", "top", "rows"])
def forward(
    q_ptr, k_ptr, heads_ptr, bias_ptr, bits_ptr, slope_ptr, owner_ptr, parts_ptr,
    first_member, top, rows, items, true_items, heads_stored, bias_stride,
    D_PAD: tl.constexpr, CHUNK: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr,
    LOSS: tl.constexpr, VALUE: tl.constexpr, TEST: tl.constexpr, ARITHMETIC: tl.constexpr,
):  # fmt: skip
    """One tile of pairs: the maximum over heads, then the loss. q, k: (heads, items, D_PAD) of every member.

    slope, owner: (members of this launch, rows of this stripe, items)    bits: (items, items / 32), edges
    parts: (members, tiles, 2): loss and dL/db of the tile; or, for the test, lowest edge and highest non-edge
    """
    local = tl.program_id(2).to(tl.int64)
    member = first_member + local
    column_tiles = tl.num_programs(0)
    row = tl.program_id(1) * BLOCK_I + tl.arange(0, BLOCK_I)
    i = top + row
    j = tl.program_id(0) * BLOCK_J + tl.arange(0, BLOCK_J)
    inside = (row < rows) & (i < items)
    inner = tl.arange(0, CHUNK)
    q_ptr += member * heads_stored * items * D_PAD
    k_ptr += member * heads_stored * items * D_PAD
    best = tl.full((BLOCK_I, BLOCK_J), float("-inf"), dtype=tl.float32)
    owner = tl.zeros((BLOCK_I, BLOCK_J), dtype=tl.int32)
    for head in range(0, tl.load(heads_ptr + member)):
        score = tl.zeros((BLOCK_I, BLOCK_J), dtype=tl.float32)
        for start in tl.static_range(0, D_PAD, CHUNK):
            c = start + inner
            q = tl.load(q_ptr + (head * items + i[:, None]) * D_PAD + c[None, :], mask=inside[:, None], other=0.0)
            k = tl.load(k_ptr + (head * items + j[None, :]) * D_PAD + c[:, None], mask=(j < items)[None, :], other=0.0)
            score = dot(q, k, score, ARITHMETIC)
        owner = tl.where(score > best, head, owner)
        best = tl.maximum(best, score)
    z = best + tl.load(bias_ptr + member * bias_stride)
    words = items // 32
    word = tl.load(
        bits_ptr + (member * items + i[:, None]) * words + (j // 32)[None, :],
        mask=inside[:, None] & (j < items)[None, :],
        other=0,
    )
    edge = ((word >> (j % 32)[None, :]) & 1) != 0
    real = (inside & (i < true_items))[:, None] & (j < true_items)[None, :]
    tile = (member * tl.num_programs(1) + tl.program_id(1)) * column_tiles + tl.program_id(0)
    if TEST:
        low = tl.min(tl.where(real & edge, z, float("inf")))
        high = tl.max(tl.where(real & (edge == 0), z, float("-inf")))
        tl.store(parts_ptr + tile * 2, low)
        tl.store(parts_ptr + tile * 2 + 1, high)
    else:
        if LOSS == "bce":
            slope, value = _bce(z, edge, VALUE, False)
        else:
            slope, value = _squared_hinge(z, edge)
        slope = tl.where(real, slope, 0.0)
        if VALUE:
            tl.store(parts_ptr + tile * 2, tl.sum(tl.where(real, value, 0.0)))
        tl.store(parts_ptr + tile * 2 + 1, tl.sum(slope))
        where = (local * rows + row[:, None]) * items + j[None, :]
        kept = inside[:, None] & (j < items)[None, :]
        tl.store(slope_ptr + where, slope.to(slope_ptr.dtype.element_ty), mask=kept)
        tl.store(owner_ptr + where, owner.to(owner_ptr.dtype.element_ty), mask=kept)


@triton.jit
def _own(owner, slope, u: tl.constexpr, ASSEMBLY: tl.constexpr):
    """The slopes of the pairs that head u owns, zero elsewhere. owner: small integers, as bf16

    The assembly compares and multiplies two numbers at a time, which Triton does one by one.
    """
    if ASSEMBLY:
        return tl.inline_asm_elementwise(
            "{ .reg .b32 m; set.eq.bf16x2.bf16x2 m, $2, $3; mul.bf16x2 $0, m, $1; }",
            "=r,r,r,r",
            [slope, owner, tl.full(owner.shape, u, dtype=tl.float32).to(tl.bfloat16)],
            dtype=tl.bfloat16,
            is_pure=True,
            pack=2,
        )
    else:
        return tl.where(owner == u, slope, 0.0)


@triton.jit(do_not_specialize=["first_member", "top"])
def backward(
    slope_ptr, owner_ptr, mine_ptr, other_ptr, out_ptr, heads_ptr,
    first_member, top, rows, items, heads_stored, scale,
    BY_ROW: tl.constexpr, GROUP: tl.constexpr, D_PAD: tl.constexpr, CHUNK: tl.constexpr, A: tl.constexpr, B: tl.constexpr,
    ONE: tl.constexpr, EVEN: tl.constexpr, ADD: tl.constexpr, ARITHMETIC: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """dL/dq of a block of rows (BY_ROW: mine is q, other is k), or dL/dk of a block of columns, of GROUP heads.

    A pair's slope goes to the head that owns the pair, so each head sees the slopes masked by their owner.
    out: (heads, items, D_PAD)    ONE: there is one head, which owns all    ADD: add to what stands there (the stripes of
    rows before this one)
    """
    local = tl.program_id(2).to(tl.int64)
    member = first_member + local
    group = tl.program_id(1) // (D_PAD // CHUNK) * GROUP
    c = tl.program_id(1) % (D_PAD // CHUNK) * CHUNK + tl.arange(0, CHUNK)
    if group < tl.load(heads_ptr + member):
        a = tl.program_id(0) * A + tl.arange(0, A)
        slope_ptr += local * rows * items
        owner_ptr += local * rows * items
        mine_ptr += (member * heads_stored + group) * items * D_PAD
        other_ptr += (member * heads_stored + group) * items * D_PAD
        out_ptr += (member * heads_stored + group) * items * D_PAD
        limit_a = rows if BY_ROW else items
        limit_b = items if BY_ROW else rows
        item_a = top + a if BY_ROW else a
        anchor = tl.load(mine_ptr + item_a[:, None] * D_PAD + c[None, :], mask=(a < limit_a)[:, None], other=0.0)
        sums = ()
        for _ in tl.static_range(GROUP):
            sums = sums + (tl.zeros((A, CHUNK), dtype=tl.float32),)
        for start in range(0, limit_b, B):
            b = start + tl.arange(0, B)
            item = b if BY_ROW else top + b
            where = (a[:, None] * items + b[None, :]) if BY_ROW else (b[None, :] * items + a[:, None])
            if EVEN:
                slope = tl.load(slope_ptr + where)
            else:
                slope = tl.load(slope_ptr + where, mask=(a < limit_a)[:, None] & (b < limit_b)[None, :], other=0.0)
            others = ()
            for u in tl.static_range(GROUP):
                there = other_ptr + (u * items + item[:, None]) * D_PAD + c[None, :]
                if EVEN:
                    others = others + (tl.load(there),)
                else:
                    others = others + (tl.load(there, mask=(b < limit_b)[:, None], other=0.0),)
            # A product that adds nothing: it brings slope and owner into the registers as products want them, once, where
            # every head's masked copy would otherwise be carried there through shared memory.
            nothing = dot(anchor, tl.trans(others[0]), tl.zeros((A, B), dtype=tl.float32), ARITHMETIC) * 0.0
            slope = operand(slope.to(tl.float32) + nothing, ARITHMETIC)
            more = ()
            if ONE:
                more = more + (dot(slope, others[0], sums[0], ARITHMETIC),)
            else:
                if EVEN:
                    tag = tl.load(owner_ptr + where)
                else:
                    tag = tl.load(owner_ptr + where, mask=(a < limit_a)[:, None] & (b < limit_b)[None, :], other=-1)
                owner = operand(tag.to(tl.float32) - group + nothing, ARITHMETIC)
                for u in tl.static_range(GROUP):
                    more = more + (dot(_own(owner, slope, u, ASSEMBLY), others[u], sums[u], ARITHMETIC),)
            sums = more
        for u in tl.static_range(GROUP):
            place = out_ptr + (u * items + item_a[:, None]) * D_PAD + c[None, :]
            keep = (a < limit_a)[:, None] & (group + u < heads_stored)
            total = sums[u] * scale
            if ADD:
                total += tl.load(place, mask=keep, other=0.0)
            tl.store(place, total.to(out_ptr.dtype.element_ty), mask=keep)


@triton.jit(do_not_specialize=["first_member", "top"])
def by_row(
    q_ptr, k_ptr, out_ptr, heads_ptr, bias_ptr, bits_ptr, slope_ptr, owner_ptr, parts_ptr,
    first_member, top, rows, items, true_items, bias_stride, keep_bits, scale,
    HEADS: tl.constexpr, D_PAD: tl.constexpr, A: tl.constexpr, B: tl.constexpr, TAGS: tl.constexpr, RAGGED: tl.constexpr,
    EVEN: tl.constexpr, FULL: tl.constexpr, LOSS: tl.constexpr, VALUE: tl.constexpr, ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Forward of a block of rows, and dL/dq at once, in bf16: `forward` and `backward` by row in one.

    The head that attains a maximum is written into the lowest bits of the score (`keep_bits` clears them), so that one
    maximum finds both. A score then has 23 bits of mantissa less the tag's, still far more than its factors have.
    parts: (members, blocks, 2), loss and dL/db of the block
    """
    local = tl.program_id(1).to(tl.int64)
    member = first_member + local
    q_ptr += member * HEADS * items * D_PAD
    k_ptr += member * HEADS * items * D_PAD
    out_ptr += member * HEADS * items * D_PAD
    bits_ptr += member * items * (items // 32)
    slope_ptr += local * rows * items
    owner_ptr += local * rows * items
    c = tl.arange(0, D_PAD)
    row = tl.program_id(0) * A + tl.arange(0, A)
    a = top + row
    inside = (row < rows) & (a < items)
    mine = ()
    sums = ()
    for u in tl.static_range(HEADS):
        place = q_ptr + (u * items + a[:, None]) * D_PAD + c[None, :]
        if EVEN:
            mine = mine + (tl.load(place),)
        else:
            mine = mine + (tl.load(place, mask=inside[:, None], other=0.0),)
        sums = sums + (tl.zeros((A, D_PAD), dtype=tl.float32),)
    bias = tl.load(bias_ptr + member * bias_stride)
    heads = tl.load(heads_ptr + member)
    loss = tl.zeros((A,), dtype=tl.float32)
    lean = tl.zeros((A,), dtype=tl.float32)
    for start in range(0, items, B):
        b = start + tl.arange(0, B)
        w = start // 32 + tl.arange(0, B // 32)
        words = bits_ptr + a[:, None] * (items // 32) + w[None, :]
        if EVEN:
            word = tl.load(words)
        else:
            word = tl.load(words, mask=inside[:, None] & (w < items // 32)[None, :], other=0)
        others = ()
        for u in tl.static_range(HEADS):
            there = k_ptr + (u * items + b[:, None]) * D_PAD + c[None, :]
            if EVEN:
                others = others + (tl.load(there),)
            else:
                others = others + (tl.load(there, mask=(b < items)[:, None], other=0.0),)
        best = tl.full((A, B), float("-inf"), dtype=tl.float32)
        for u in tl.static_range(HEADS):
            score = tl.dot(mine[u], tl.trans(others[u]))
            if HEADS > 1:
                score = ((score.to(tl.int32, bitcast=True) & keep_bits) | u).to(tl.float32, bitcast=True)
                if RAGGED:
                    score = tl.where(u < heads, score, float("-inf"))
                if u == 0:
                    best = score
                else:
                    best = tl.maximum(best, score)
            else:
                best = score
        z = best + bias
        spread = tl.reshape(tl.broadcast_to(word[:, :, None], (A, B // 32, 32)), (A, B))
        edge = ((spread >> (b % 32)[None, :]) & 1) != 0
        if LOSS == "bce":
            slope, value = _bce(z, edge, VALUE, ASSEMBLY)
        else:
            slope, value = _squared_hinge(z, edge)
        if not FULL:
            real = (inside & (a < true_items))[:, None] & (b < true_items)[None, :]
            slope = tl.where(real, slope, 0.0)
            value = tl.where(real, value, 0.0)
        lean += tl.sum(slope, 1)
        if VALUE:
            loss += tl.sum(value, 1)
        half = slope.to(q_ptr.dtype.element_ty)
        where = row[:, None] * items + b[None, :]
        if EVEN:
            tl.store(slope_ptr + where, half)
        else:
            tl.store(slope_ptr + where, half, mask=inside[:, None] & (b < items)[None, :])
        more = ()
        if HEADS > 1:
            tag = best.to(tl.int32, bitcast=True) & (TAGS - 1)
            if EVEN:
                tl.store(owner_ptr + where, tag.to(owner_ptr.dtype.element_ty))
            else:
                tl.store(owner_ptr + where, tag.to(owner_ptr.dtype.element_ty), mask=inside[:, None] & (b < items)[None, :])
            owner = tag.to(tl.float32).to(q_ptr.dtype.element_ty)
            for u in tl.static_range(HEADS):
                more = more + (tl.dot(_own(owner, half, u, ASSEMBLY), others[u], sums[u]),)
        else:
            more = more + (tl.dot(half, others[0], sums[0]),)
        sums = more
    for u in tl.static_range(HEADS):
        place = out_ptr + (u * items + a[:, None]) * D_PAD + c[None, :]
        tl.store(place, (sums[u] * scale).to(out_ptr.dtype.element_ty), mask=inside[:, None])
    part = parts_ptr + (member * tl.num_programs(0) + tl.program_id(0)) * 2
    if VALUE:
        tl.store(part, tl.sum(loss))
    tl.store(part + 1, tl.sum(lean))
