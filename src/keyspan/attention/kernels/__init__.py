"""Fused Triton forms of the instrument, behind the same `value_and_grad`. Triton is imported at first use only."""

from __future__ import annotations

import importlib.util

import torch

ARITHMETICS = ("fp32", "tf32", "bf16")


def available(device: torch.device, arithmetic: str) -> bool:
    """Whether the fused channel can run here: a CUDA device of compute capability 8.0 or more, and Triton."""
    if device.type != "cuda" or arithmetic not in ARITHMETICS or not torch.cuda.is_available():
        return False
    return importlib.util.find_spec("triton") is not None and torch.cuda.get_device_capability(device) >= (8, 0)
