"""Weights made on a device, for certificates of sizes that no one trains: pseudo-inverse blocks that share one code.

Sources go into blocks V of B items, a head each. With one code s (B, d_key) of unit rows for all blocks,

    W_Q = X_V^+ s,   W_K = X_pi(V)^+ s      (rows of a block independent, B <= d: then q_i = s_i and k_pi(i) = s_i exactly)

Items of other blocks leak: |x_i X_V^+|^2 is about l = r / (1 - r), r = B/d, and their scores spread by sqrt(l/d_key) where one
item is the block's own, by l/sqrt(d_key) where neither is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from keyspan.errors import require

Int = NDArray[np.int64]
CODE_STEPS = 400


@dataclass(frozen=True)
class Made:
    """A permutation problem and its channel. x: (items, d_model)    w_query, w_key: (heads, d_model, d_key), float64"""

    x: torch.Tensor
    edges: Int
    w_query: torch.Tensor
    w_key: torch.Tensor


def failures(items: int, d_model: int, block: int, d_key: int, top: float) -> float:
    """How many non-edges are expected to score above `top`, at most, at gaussian rows (a heuristic, by tails).

    One of the pair in a head's block: normal with variance l/d_key. None: a product of two normal vectors, by Chernoff.
    """
    leak = block / max(d_model - block - 1, 1) * (1.0 + math.sqrt(0.5 / block))  # some items leak more than the mean
    each, heads = leak / d_key, math.ceil(items / block)
    one = items**2 * math.erfc(top / math.sqrt(2.0 * each))
    # E e^(lambda S) = (1 - (lambda each)^2)^(-d_key/2) for the product S of two vectors; the best lambda in closed form
    share = (math.sqrt((d_key * each) ** 2 + 4.0 * top**2) - d_key * each) / (2.0 * top)
    power = -share * top / each - 0.5 * d_key * math.log1p(-(share**2))
    return one + math.exp(min(700.0, 2.0 * math.log(items) + math.log(heads) + power))


def choose(items: int, d_model: int, top: float = 0.97, allowed: float = 0.02) -> tuple[int, int]:
    """Block and d_key of the smallest key budget that is expected to be exact."""
    best: tuple[int, int, int] | None = None
    for block in sorted({max(2, d_model * n // 64) for n in range(2, 33)}):
        for d_key in range(2, 129):
            budget = math.ceil(items / block) * d_key
            if best is not None and budget >= best[0]:
                break
            if failures(items, d_model, block, d_key, top) < allowed and _room(block, d_key, top):
                best = (budget, block, d_key)
                break
    require(best is not None, "a block and a d_key that suffice", f"items={items}, d_model={d_model}", "Widen d_model.")
    assert best is not None
    return best[1], best[2]


def _room(block: int, d_key: int, top: float) -> bool:
    """Whether so many code words keep well apart: two random ones rarely come within `top`, and the code is improved."""
    return block**2 * math.exp(-0.5 * (d_key - 1) * top**2) < 1.0


def make(items: int, d_model: int, block: int, d_key: int, device: str, seed: int) -> Made:
    """Gaussian unit rows, a random permutation and its blocks, drawn from torch's generator of the device (see `seed`)."""
    require(2 <= block <= d_model, f"2 <= block <= d_model ({d_model})", block, "Rows of a block must be independent.")
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.empty(items, d_model, device=device).normal_(generator=generator)
    x /= torch.linalg.vector_norm(x, dim=1, keepdim=True)
    target = torch.argsort(torch.empty(items, device=device, dtype=torch.float64).uniform_(generator=generator))
    heads = math.ceil(items / block)
    code = spherical_code(block, d_key, generator)
    weights = torch.empty(2, heads, d_model, d_key, dtype=torch.float64, device=device)
    for head in range(heads):
        mine = slice(head * block, min((head + 1) * block, items))
        for side, rows in enumerate((x[mine], x[target[mine]])):
            wide = rows.double()
            gram = torch.linalg.cholesky(wide @ wide.T)
            weights[side, head] = wide.T @ torch.cholesky_solve(code[: len(wide)], gram)
    edges = np.stack([np.arange(items), target.cpu().numpy()], axis=1)
    return Made(x, edges, weights[0], weights[1])


def spherical_code(words: int, width: int, generator: torch.Generator) -> torch.Tensor:
    """Unit rows that keep apart: sum exp(20 <s, s'>) is lowered by projected gradient steps. returns: (words, width)"""
    s = torch.empty(words, width, device=generator.device, dtype=torch.float64).normal_(generator=generator)
    for step in range(CODE_STEPS + 1):
        s = s / torch.linalg.vector_norm(s, dim=1, keepdim=True)
        if step < CODE_STEPS:
            pull = torch.softmax(20.0 * (s @ s.T).fill_diagonal_(-1.0), dim=1) @ s
            s = s - 0.3 * (1.0 - step / CODE_STEPS) * pull
    return s
