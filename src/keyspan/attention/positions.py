"""Rotary positions in torch: pairs of dimensions turned by an angle that grows with the position (`reference_heads.turned`)."""

from __future__ import annotations

import torch


def rates(dimensions: int, width: int, base: float) -> torch.Tensor:
    """Radians a place of every pair of `width` dimensions, 0 for those that stay. dimensions: R    returns: (width // 2,)"""
    out = torch.zeros(max(1, width // 2), dtype=torch.float64)
    turning = torch.arange(0, dimensions, 2, dtype=torch.float64)
    out[: len(turning)] = base ** (-turning / max(dimensions, 1))
    return out


def turn(v: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The pair (v_2t, v_2t+1) of every item, turned by the angle with this cosine and sine.

    v: (members, heads, d_key, items)    cos, sin: (members, d_key / 2, items)
    """
    pairs = v.unflatten(2, (-1, 2))
    even, odd, c, s = pairs[:, :, :, 0], pairs[:, :, :, 1], cos.unsqueeze(1), sin.unsqueeze(1)
    return torch.stack([even * c - odd * s, even * s + odd * c], dim=3).flatten(2, 3)
