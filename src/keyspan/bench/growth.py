"""How time grows: one knob at a time is turned, and the exponent of the curve is fitted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from keyspan.bench.cases import Case
from keyspan.bench.steps import eager_step, fleet_step
from keyspan.bench.timing import seconds_of
from keyspan.lab.fleet import one_thread

BASE = Case(items=128, d_model=32, heads=4, d_key=8, members=8)
AXES: dict[str, tuple[int, ...]] = {
    "items": (64, 128, 256, 512),
    "d_model": (32, 64, 128, 256),
    "heads": (2, 4, 8, 16),
    "members": (1, 2, 4, 8, 16, 32),
}
QUICK = 3  # points per axis when there is little time


def exponent(values: Sequence[float], seconds: Sequence[float]) -> float:
    """Slope of log seconds against log value, by least squares: 2 means four times the time for twice the value."""
    x, y = [math.log(v) for v in values], [math.log(s) for s in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread


def curve(
    axis: str, values: Sequence[int], device: str, seconds: float, *, seed: int, arithmetic: str, base: Case = BASE
) -> dict[str, Any]:
    """Seconds of a fleet's step, and of a step of as many eager models, at every value of one knob; one thread each."""
    ours: list[float] = []
    theirs: list[float] = []
    for value in values:
        case = replace(base, **{axis: value})
        with one_thread():
            ours.append(seconds_of(fleet_step(case.runs(seed, arithmetic=arithmetic), device), seconds))
            step, _ = eager_step(case.run(arithmetic=arithmetic), device)
            theirs.append(seconds_of(step, seconds) * case.members)
    return {
        "axis": axis,
        "values": list(values),
        "seconds": ours,
        "exponent": exponent(values, ours),
        "baseline_seconds": theirs,
        "baseline_exponent": exponent(values, theirs),
    }


def growth(
    device: str,
    seconds: float,
    *,
    seed: int = 0,
    arithmetic: str = "fp32",
    points: int | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """A curve for items, d_model, heads and members. points: only so many of the largest values"""
    out = []
    for axis, values in AXES.items():
        tell(f"growth with {axis}")
        out.append(curve(axis, values[-points:] if points else values, device, seconds, seed=seed, arithmetic=arithmetic))
    return out
