"""Intervals of a mean over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence


def student(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Mean and its 95% Student interval; no interval for a single value."""
    from scipy.special import stdtrit

    n = len(values)
    mean = sum(values) / n
    if n < 2:
        return mean, None, None
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)
    half = float(stdtrit(n - 1, 0.975)) * deviation
    return mean, mean - half, mean + half
