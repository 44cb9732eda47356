"""The Triton program of certificates: the largest score of every block of pairs, edges left out; no score is ever stored."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def peaks(
    q_ptr, k_ptr, targets_ptr, out_ptr, rows, columns, top, left, heads, d_key, q_head, k_head, degree,
    BLOCK: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """q: (heads, rows, d_key), k: (heads, columns, d_key), strides between heads given -> out: (row blocks, column blocks).

    targets: (items, degree), the targets of every item, -1 where it has fewer. top, left: first item of either side.
    """
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, CHUNK)
    best = tl.full((BLOCK, BLOCK), float("-inf"), dtype=tl.float32)
    for head in range(heads):
        q_here, k_here = q_ptr + tl.cast(head, tl.int64) * q_head, k_ptr + tl.cast(head, tl.int64) * k_head
        sums = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        for start in range(0, d_key, CHUNK):
            inner = start + c
            q = tl.load(
                q_here + i[:, None] * d_key + inner[None, :], mask=(i < rows)[:, None] & (inner < d_key)[None, :], other=0.0
            )
            k = tl.load(
                k_here + j[None, :] * d_key + inner[:, None], mask=(j < columns)[None, :] & (inner < d_key)[:, None], other=0.0
            )
            sums = tl.dot(q, k, sums)
        best = tl.maximum(best, sums)
    for n in range(degree):
        target = tl.load(targets_ptr + (top + i).to(tl.int64) * degree + n, mask=i < rows, other=-1)
        best = tl.where(target[:, None] == left + j[None, :], float("-inf"), best)
    best = tl.where((i < rows)[:, None] & (j < columns)[None, :], best, float("-inf"))
    tl.store(out_ptr + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), tl.max(tl.max(best, axis=1), axis=0))
