"""Weights in fewer bits: uniform grids and small floating-point formats, and the fewest bits with which a channel recovers.

Every format is emulated in float64, where its numbers are exact. The rows and the arithmetic stay float64: what is asked is
how much a weight must be able to say, not how fast it is multiplied.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.lab.channels import MANY
from keyspan.lab.proof import prove
from keyspan.lab.scorer import Scorer
from keyspan.lab.tiles import Tiles
from keyspan.problems.relations import RelationInstance

Float = NDArray[np.float64]
MOST_BITS = 16


@dataclass(frozen=True)
class Format:
    """A binary format. significand: bits, the hidden one included    least: exponent of the smallest normal number

    scaled: each matrix is divided by the scale that brings its largest entry to `largest`, and multiplied by it again
    """

    significand: int
    least: int
    largest: float
    scaled: bool

    def __call__(self, w: Float) -> Float:
        """The nearest numbers of the format, ties to even; what is too large becomes the largest. w: (heads, d_model, d_key)"""
        scale = _largest(w) / self.largest if self.scaled else np.ones((len(w), 1, 1))
        scale = np.where(scale > 0, scale, 1.0)
        values = w / scale
        _, exponent = np.frexp(values)  # |value| < 2^exponent
        place = np.maximum(exponent - self.significand, self.least - self.significand + 1)
        rounded = np.ldexp(np.rint(np.ldexp(values, -place)), place)
        return np.asarray(np.clip(rounded, -self.largest, self.largest) * scale)


FORMATS = {
    "bf16": Format(8, -126, 255 * 2.0**120, scaled=False),
    "fp16": Format(11, -14, 65504.0, scaled=False),
    "fp8_e4m3": Format(4, -6, 448.0, scaled=True),
    "fp8_e5m2": Format(3, -14, 57344.0, scaled=True),
}


def uniform(w: Float, bits: int) -> Float:
    """The nearest of 2^bits - 1 even steps, symmetric about 0, one scale per matrix W^k. w: (heads, d_model, d_key)"""
    require(2 <= bits <= 32, "2 <= bits <= 32", bits, "A symmetric grid has 0 and two neighbours at least.")
    levels = 2 ** (bits - 1) - 1
    step = _largest(w) / levels
    step = np.where(step > 0, step, 1.0)
    return np.asarray(np.rint(w / step) * step)


@dataclass(frozen=True, kw_only=True)
class Precision:
    """What weights of fewer bits still hold. fewest_bits: so many keep recovery and one less does not; None: not even 16

    Recovery is that some threshold is right on every pair, proven in exact arithmetic.
    """

    fewest_bits: int | None
    bf16_exact: bool
    fp16_exact: bool
    fp8_exact: bool
    fp8_e5m2_exact: bool


def precision(instance: RelationInstance, w_query: Float, w_key: Float) -> Precision:
    """Try the formats, and bisect the bits of a uniform grid. w_query, w_key: (heads, d_model, d_key)"""

    def held(change: Format) -> bool:
        return separates(instance, change(w_query), change(w_key))

    low, high = 1, MOST_BITS + 1  # nobody can, everybody can
    while high - low > 1:
        middle = (low + high) // 2
        ok = separates(instance, uniform(w_query, middle), uniform(w_key, middle))
        low, high = (low, middle) if ok else (middle, high)
    return Precision(
        fewest_bits=high if high <= MOST_BITS else None,
        bf16_exact=held(FORMATS["bf16"]),
        fp16_exact=held(FORMATS["fp16"]),
        fp8_exact=held(FORMATS["fp8_e4m3"]),
        fp8_e5m2_exact=held(FORMATS["fp8_e5m2"]),
    )


@np.errstate(over="ignore", invalid="ignore")
def separates(instance: RelationInstance, w_query: Float, w_key: Float) -> bool:
    """Whether some threshold is right on every pair, proven; as cheaply as that can be found out."""
    scorer = Scorer(Tiles(instance, w_query, w_key), low=instance.items >= MANY)
    return prove(scorer, math.inf, locate=False, give_up=True).separated is True


def _largest(w: Float) -> Float:
    """Largest magnitude of every matrix. returns: (heads, 1, 1)"""
    return np.asarray(np.abs(w).max(axis=(1, 2), keepdims=True))
