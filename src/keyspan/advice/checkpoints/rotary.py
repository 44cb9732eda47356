"""Rotary positions: how fast each pair of dimensions turns, by any of the usual rules, and what is left on average.

A pair of dimensions z (as a complex number) at position i becomes z exp(1j * i * f), so a score depends on positions
through the distance alone: q . k = Re sum_p z_q conj(z_k) exp(1j * (i - j) * f_p). (Su and others 2021; position
interpolation: Chen and others 2023; YaRN: Peng and others 2023; LongRoPE: Ding and others 2024.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from keyspan.advice.checkpoints.settings import Settings
from keyspan.errors import BadInput
from keyspan.files.paths import shown

Float = NDArray[np.float64]
KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


@dataclass(frozen=True)
class Rotary:
    """Dimensions [start, start + width) of a head turn; the others do not.

    frequencies: (width / 2,), radians a position    pairs: "half": dimension p turns with p + width/2; "interleaved": 2p with
    2p + 1    factor: what queries and keys are multiplied with where they turn    kind: the rule the frequencies follow
    """

    start: int
    frequencies: tuple[float, ...]
    pairs: Literal["half", "interleaved"] = "half"
    factor: float = 1.0
    kind: str = "default"
    theta: float = 10000.0

    @property
    def width(self) -> int:
        """How many dimensions of a head turn."""
        return 2 * len(self.frequencies)

    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first and the second dimension of every pair."""
        half = len(self.frequencies)
        p = np.arange(half)
        if self.pairs == "half":
            return self.start + p, self.start + half + p
        return self.start + 2 * p, self.start + 2 * p + 1

    def turned(self, vectors: Float, positions: NDArray[Any]) -> Float:
        """Vectors at their positions. vectors: (n, ..., d_key)    positions: (n,)"""
        first, second = self.places()
        angle = np.multiply.outer(positions.astype(np.float64), np.array(self.frequencies))
        angle = angle.reshape(len(positions), *[1] * (vectors.ndim - 2), -1)
        cos, sin = self.factor * np.cos(angle), self.factor * np.sin(angle)
        out = vectors.copy()
        a, b = vectors[..., first], vectors[..., second]
        out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
        return out

    def between(self, d_key: int, weight: NDArray[np.complex128]) -> Float:
        """B (d_key, d_key) so that q B k^T is the score of pairs that turn by `weight` (width / 2,), others as they are.

        Re(z_q conj(z_k) w) = (a c + b d) Re w + (a d - b c) Im w for z_q = a + 1j b, z_k = c + 1j d.
        """
        first, second = self.places()
        out = np.eye(d_key)
        real, imaginary = self.factor**2 * weight.real, self.factor**2 * weight.imag
        out[first, first], out[second, second] = real, real
        out[first, second], out[second, first] = imaginary, -imaginary
        return out

    def at(self, d_key: int, distance: int) -> Float:
        """B for a query that stands `distance` positions after its key."""
        return self.between(d_key, np.exp(1j * distance * np.array(self.frequencies)))

    def average(self, d_key: int, reach: int) -> Float:
        """B averaged over the distances 0 .. reach - 1, each alike."""
        return self.between(d_key, self.mean_turn(reach))

    def mean_turn(self, reach: int) -> NDArray[np.complex128]:
        """(1/L) sum over distances below L of exp(1j * distance * f), in closed form. returns: (width / 2,)"""
        half = np.array(self.frequencies) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.sin(reach * half) / (reach * np.sin(half))
        size = np.where(np.abs(np.sin(half)) < 1e-12, np.cos(reach * half) / np.cos(half), size)
        return np.asarray(size * np.exp(1j * (reach - 1) * half))


def rotary(
    settings: Settings,
    *,
    width: int,
    start: int = 0,
    pairs: Literal["half", "interleaved"] = "half",
    rule: Mapping[str, Any] | None = None,
    theta: float | None = None,
) -> Rotary:
    """Rotary positions as a config has them, old spelling (`rope_theta`, `rope_scaling`) or new (`rope_parameters`).

    width: dimensions that turn    rule: in place of the config's own    theta: where neither says one
    """
    given = rope_rule(settings) if rule is None else Settings(rule, settings.name)
    base = given.number("rope_theta", settings.number("rope_theta", 10000.0 if theta is None else theta), least=1.001)
    kind = given.text("rope_type", given.text("type", "default"))
    if kind in ("su", "longrope"):
        kind = "longrope"
    if kind not in KINDS:
        known = "|".join(KINDS)
        raise BadInput(f"`rope_type` in `{settings.name}` must be {known}, but got {shown(kind)}. Use --mapping with a theta.")
    if width < 2 or width % 2:
        raise BadInput(f"Rotary positions in `{settings.name}` must turn pairs, but got width {width}. Check head_dim.")
    plain = base ** -(np.arange(0, width, 2) / width)
    frequencies, factor = _ruled(kind, plain, base, given, settings)
    return Rotary(start, tuple(map(float, frequencies)), pairs, factor, kind, base)


def rope_rule(settings: Settings, layer_type: str | None = None) -> Settings:
    """The part of a config that says how positions turn; of layers of one type where they differ."""
    rule = settings.table("rope_parameters")
    if layer_type is not None and isinstance(rule.get(layer_type), Mapping):
        rule = rule[layer_type]
    return Settings({**settings.table("rope_scaling"), **rule}, settings.name)


def _ruled(kind: str, plain: Float, base: float, given: Settings, settings: Settings) -> tuple[Float, float]:
    """Frequencies by the rule, and the factor on queries and keys."""
    if kind in ("default", "dynamic"):  # dynamic: as by default up to the length that it was made for
        return plain, 1.0
    longest = settings.whole("max_position_embeddings", 2048)
    old = settings.whole("original_max_position_embeddings", given.whole("original_max_position_embeddings", longest))
    if kind == "longrope":
        return _longrope(plain, given, longest, old)
    factor = given.number("factor", longest / old, least=1e-6)
    if kind == "linear":
        return plain / factor, 1.0
    if kind == "llama3":
        return _llama3(plain, given, factor, old), 1.0
    return _yarn(plain, base, given, factor, old)


def _llama3(plain: Float, given: Settings, factor: float, old: int) -> Float:
    """Slow pairs are slowed further, fast ones are left, those between are mixed."""
    low, high = given.number("low_freq_factor", 1.0), given.number("high_freq_factor", 4.0)
    turns = old * plain / (2 * math.pi)  # in the old context
    mix = np.clip((turns - low) / (high - low), 0.0, 1.0) if high > low else (turns > low).astype(np.float64)
    return np.asarray(plain * (mix + (1 - mix) / factor))


def _yarn(plain: Float, base: float, given: Settings, factor: float, old: int) -> tuple[Float, float]:
    """Pairs that turn often in the old context are left, rare ones are slowed by the factor, with a ramp over dimensions."""
    width = 2 * len(plain)

    def place(turns: float) -> float:
        return width * math.log(old / (turns * 2 * math.pi)) / (2 * math.log(base))

    fast, slow = (place(given.number(key, turns, least=1e-3)) for key, turns in (("beta_fast", 32.0), ("beta_slow", 1.0)))
    if given.flag("truncate", True):
        fast, slow = math.floor(fast), math.ceil(slow)
    fast, slow = max(fast, 0), min(slow, width - 1)
    slow = slow + 0.001 if slow == fast else slow
    ramp = np.clip((np.arange(len(plain)) - fast) / (slow - fast), 0.0, 1.0)
    frequencies = plain / factor * ramp + plain * (1 - ramp)
    top, below = given.number("mscale", 0.0), given.number("mscale_all_dim", 0.0)
    size = yarn_size(factor, top) / yarn_size(factor, below) if top and below else yarn_size(factor, 1.0)
    return frequencies, given.number("attention_factor", size) or size


def yarn_size(factor: float, weight: float) -> float:
    """1 + 0.1 weight ln(factor): how much larger scores are made where the context is longer by the factor."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _longrope(plain: Float, given: Settings, longest: int, old: int) -> tuple[Float, float]:
    """A divisor for every pair; those for short texts, up to the length of the first training."""
    short = given.numbers("short_factor", len(plain))
    ratio = given.number("factor", longest / old, least=1e-6)
    size = 1.0 if ratio <= 1 else math.sqrt(1 + math.log(ratio) / math.log(max(2, old)))
    return plain / np.array(short), given.number("attention_factor", size) or size
