"""The path to a peak: which loads to measure next, given what was measured, where a score rises with the load and then falls.

How many sequences are recited, against the size of the library, is a tent: all of them, then fewer, soon none. Its top is
looked for by halving the gaps beside the best level, and then the largest level that was held whole. Pure, as `search`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FIRST = 5  # levels measured at first, evenly over the bracket
OUTWARDS = 1.5  # the next level, where the best one is the last


def following(levels: Sequence[int], low: int, high: int, means: Mapping[int, float]) -> list[int]:
    """The levels to measure next; none where both gaps beside the best are closed, and so is the one above the largest
    level that was held whole. means: of the score, by level measured; a level is held whole where its mean is itself"""
    if not means:
        first, last = levels.index(low), levels.index(high)
        step = (last - first) / (FIRST - 1)
        return sorted({levels[first + round(k * step)] for k in range(FIRST)})
    path = sorted(means)
    best = max(path, key=lambda level: (means[level], -level))
    near = _between(levels, path, best, -1) + _between(levels, path, best, +1)
    if near:
        return near
    whole = [level for level in path if means[level] >= level]
    if not whole:
        return _between(levels, path, path[0], -1)
    return _between(levels, path, max(whole), +1)


def _between(levels: Sequence[int], path: Sequence[int], level: int, direction: int) -> list[int]:
    """The middle of the gap beside a level, or further out where nothing was measured beyond it."""
    at, place = levels.index(level), path.index(level)
    beyond = place + direction
    if 0 <= beyond < len(path):
        middle = (at + levels.index(path[beyond])) // 2
        return [levels[middle]] if levels[middle] not in (level, path[beyond]) else []
    if direction > 0:
        out = next((n for n in levels if n >= OUTWARDS * level), levels[-1])
    else:
        out = next((n for n in reversed(levels) if OUTWARDS * n <= level), levels[0])
    return [out] if out != level else []
