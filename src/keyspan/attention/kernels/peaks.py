"""The largest score of every block of pairs, in one launch."""

from __future__ import annotations

import torch

from keyspan.attention.kernels import peak_programs

BLOCK = 128
CHUNKS = (16, 32, 64)  # how much of a key one product takes
MOST_TARGETS = 64  # of an item: more are compared one after another for too long


def block_peaks(
    q: torch.Tensor, k: torch.Tensor, targets: torch.Tensor, top: int, left: int, block: int = BLOCK
) -> torch.Tensor:
    """max over heads and over a block of non-edges of q_i . k_j, summed in float32.

    q: (heads, rows, d_key) of items top ..    k: (heads, columns, d_key) of items left ..    both of one type, bf16 or
    fp32 (whose products are tf32), each row contiguous    targets: (items, degree), int32
    returns: (row blocks, column blocks)
    """
    heads, rows, d_key = q.shape
    columns = k.shape[1]
    out = torch.empty(-(-rows // block), -(-columns // block), dtype=torch.float32, device=q.device)
    chunk = min(CHUNKS, key=lambda size: (-(-d_key // size) * size, -size))  # as little padding as can be, then as few products
    peak_programs.peaks[(len(out), out.shape[1])](
        q, k, targets, out, rows, columns, top, left, heads, d_key, q.stride(0), k.stride(0), targets.shape[1],
        BLOCK=block, CHUNK=chunk, num_warps=8 if block >= 128 else 4,
    )  # fmt: skip
    return out
