"""What the hardware can do: the largest rate of a matrix product, and of a copy, as PyTorch reaches them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from keyspan.bench.steps import sync_of
from keyspan.bench.timing import Step, calls_in, rate

SIZES = {"cpu": (512, 1024, 2048), "cuda": (2048, 4096, 8192)}
DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}
SIZE_OF_ONE = 1024  # of a single thread's product: no larger one is faster
COPY_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31}  # far more than any cache holds


@contextmanager
def products_in(arithmetic: str) -> Iterator[None]:
    """Let float32 products on a GPU round their inputs to tf32, or forbid it."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = arithmetic == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def matrix(size: int, device: str, arithmetic: str) -> torch.Tensor:
    """Numbers of all sizes in (-1, 1): a GPU that multiplies zeros runs faster than it ever would. (size, size)"""
    return torch.arange(size * size, dtype=torch.float64).mul_(0.7390851).sin_().view(size, size).to(device, DTYPES[arithmetic])


def matmul(size: int, device: str, arithmetic: str) -> Step:
    """One `torch.matmul` of two square matrices."""
    a = matrix(size, device, arithmetic)
    b, out = a.t().contiguous(), torch.empty_like(a)
    return Step(lambda: torch.matmul(a, b, out=out), sync_of(device))


def onednn(size: int) -> Step | None:
    """The same product through oneDNN, which PyTorch ships for other layers; None where it is not there."""
    a = matrix(size, "cpu", "fp32")
    b = a.t().contiguous()
    try:
        linear = torch.ops.mkldnn._linear_pointwise
        linear(a, b, None, "none", [], "")
    except (AttributeError, NotImplementedError, RuntimeError):
        return None
    return Step(lambda: linear(a, b, None, "none", [], ""))


def copy_rate(device: str, seconds: float, size: int | None = None) -> float:
    """Bytes read and written a second by a copy of a large array."""
    source = torch.ones((size or COPY_BYTES[device]) // 4, device=device)
    target = torch.empty_like(source)
    step = Step(lambda: target.copy_(source), sync_of(device))
    return 2.0 * source.numel() * 4 * rate(step, calls_in(step, seconds))


def best_of(make: Callable[[int], Step | None], sizes: tuple[int, ...], seconds: float) -> tuple[int, dict[int, float]]:
    """The size with the largest rate, and the FLOP a second of every size."""
    found: dict[int, float] = {}
    for size in sizes:
        step = make(size)
        if step is not None:
            found[size] = 2.0 * size**3 * rate(step, calls_in(step, seconds))
    return (max(found, key=lambda n: found[n]) if found else 0), found


def ceilings(device: str, arithmetic: str, seconds: float, sizes: tuple[int, ...] | None = None) -> dict[str, Any]:
    """`matmul`: FLOP a second of `torch.matmul`, the largest over sizes; `onednn` likewise or null; `copy`: bytes a second."""
    sizes = sizes or SIZES[device]
    with products_in(arithmetic):
        size, found = best_of(lambda n: matmul(n, device, arithmetic), sizes, seconds)
    other: dict[int, float] = {}
    if device == "cpu" and arithmetic == "fp32":
        _, other = best_of(onednn, sizes, seconds)
    return {
        "matmul": {"flops": found[size], "size": size, "by_size": {str(n): v for n, v in found.items()}},
        "onednn": {"flops": max(other.values()), "by_size": {str(n): v for n, v in other.items()}} if other else None,
        "copy": {"bytes_per_second": copy_rate(device, seconds)},
    }
