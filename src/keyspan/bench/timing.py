"""Calls per second, and what several repeats of a measurement say."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

Clock = Callable[[], float]


@dataclass(frozen=True)
class Step:
    """Something to be timed. call: one step    sync: waits until the device has done what it was given"""

    call: Callable[[], object]
    sync: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Repeats:
    """What several repeats gave."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return float(median(self.values))

    @property
    def spread(self) -> float:
        """(largest - smallest) / median"""
        return (max(self.values) - min(self.values)) / self.median if self.median else 0.0

    def over(self, others: Repeats) -> Repeats:
        """Ratios, repeat by repeat: what both sides suffered from in the same round cancels."""
        return Repeats(tuple(a / b for a, b in zip(self.values, others.values, strict=True)))


def calls_in(step: Step, seconds: float, clock: Clock = time.perf_counter) -> int:
    """How many calls take about `seconds`, after a warm-up."""
    step.call()
    step.sync()
    count, spent = 1, 0.0
    while True:
        began = clock()
        for _ in range(count):
            step.call()
        step.sync()
        spent = clock() - began
        if spent >= seconds / 10 or count >= 1 << 20:
            return max(1, round(count * seconds / max(spent, 1e-9)))
        count *= 4


def rate(step: Step, count: int, clock: Clock = time.perf_counter) -> float:
    """Calls per second over `count` calls."""
    step.sync()
    began = clock()
    for _ in range(count):
        step.call()
    step.sync()
    return count / max(clock() - began, 1e-12)


def timed_both(step: Step, count: int, wall: Clock = time.perf_counter, cpu: Clock = time.thread_time) -> tuple[float, float]:
    """Calls per second, and per second of this thread's own computing: the second knows nothing of what else runs."""
    began = cpu()
    by_wall = rate(step, count, wall)
    return by_wall, count / max(cpu() - began, 1e-12)


def rounds(sides: Sequence[Callable[[], float]], count: int) -> list[Repeats]:
    """Measure every side once, then all of them again, `count` times, so that a busy moment meets all sides."""
    seen = [[side() for side in sides] for _ in range(count)]
    return [Repeats(tuple(column)) for column in zip(*seen, strict=True)]


def seconds_of(step: Step, seconds: float, clock: Clock = time.perf_counter, repeats: int = 3) -> float:
    """Seconds of one call: the median of a few timings."""
    count = calls_in(step, seconds / repeats, clock)
    return 1.0 / Repeats(tuple(rate(step, count, clock) for _ in range(repeats))).median
