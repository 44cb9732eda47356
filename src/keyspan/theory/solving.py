"""What the bounds share: where a rising function passes a value, and sizes that make sense."""

from __future__ import annotations

from collections.abc import Callable

from keyspan.errors import require


def root(rising: Callable[[float], float], goal: float, low: float, high: float) -> float:
    """Where a rising function passes `goal`, to the last bit; the nearer end where it does not within [low, high]."""
    if rising(low) >= goal:
        return low
    while low < (middle := low + (high - low) / 2) < high:
        low, high = (low, middle) if rising(middle) >= goal else (middle, high)
    return high


def check_sizes(**sizes: int) -> None:
    """Refuse sizes below 1, and graphs without a non-edge."""
    for name, value in sizes.items():
        require(value >= 1, f"{name} >= 1", value, "Sizes are positive.")
    if "edges" in sizes and "items" in sizes:
        edges, items = sizes["edges"], sizes["items"]
        require(edges < items**2, f"edges < items^2 = {items**2}", edges, "Leave at least one non-edge.")
