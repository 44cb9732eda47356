"""Numbers of a key cache in torch, rounded to a format, the gradient straight through (`reference_heads.rounded`)."""

from __future__ import annotations

import torch

from keyspan.attention.reference_heads import LARGEST

STEPS = {"fp8": LARGEST, "int8": 127.0, "int4": 7.0}  # what the largest number of a channel becomes
FLOATS = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}


def rounded(v: torch.Tensor, keys: str) -> torch.Tensor:
    """The nearest numbers of a format; in fp8, int8 and int4 every channel has a scale. v: (..., channels, items)

    (From float64 torch converts by way of float32: one number in some ten thousand that lies at a tie may go the other way.)
    """
    if keys == "fp32":
        return v
    there = v.detach()
    if keys in STEPS:
        top = there.abs().amax(-1, keepdim=True)
        scale = torch.where(top > 0, top, torch.ones_like(top)) / STEPS[keys]
        near = (_as(there / scale, FLOATS[keys]) if keys in FLOATS else torch.round(there / scale)) * scale
    else:
        near = _as(there, FLOATS[keys])
    return near + (v - there)  # exactly `near`, with the slope of v


def _as(v: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    return v.to(kind).to(v.dtype)
