"""The empirical capacity model (Haermae et al. 2024), its rivals, and its inverse. Formulas only: no data, nothing fitted here.

C sequences of N tokens out of V are recited by a decoder with H heads, width B = d_model and P trained parameters, given
prompts of k tokens. `e = (N - k) log2 V` bits of a uniform sequence (`sequence_bits`). A law is a function of its constants
and of architectures; who fits it is `evidence.fits_ecm`. docs/ecm.md says where each comes from.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyspan.decoders import Decoder, parameters
from keyspan.errors import require

Float = NDArray[np.float64]
PER_PARAMETER = 2.2  # bits of a library that is about as large as can be recited: sets scales of searches, nothing else
DEGREE = 5  # of the polynomial of the paper
UNITS = (4.0, 32.0, 32.0)  # of H, N and B in polynomials, so that no power is large


class Architectures(NamedTuple):
    """Of some cells: arrays of one length. bits: of a sequence given its prompt"""

    heads: Float
    length: Float
    d_model: Float
    parameters: Float
    bits: Float

    def pick(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Architectures:
        """Some of them."""
        return Architectures(*(column[index] for column in self))

    @property
    def asked(self) -> Float:
        """P / e: sequences, if a parameter held a bit."""
        return self.parameters / self.bits


def sequence_bits(vocabulary: int, length: int, prompt: int) -> float:
    """`e = (N - k) log2 V`: bits of a uniform sequence, its prompt being known."""
    return (length - prompt) * math.log2(vocabulary)


def scale(decoder: Decoder, vocabulary: int, length: int, bits: float) -> float:
    """About as many sequences as the decoder could be made to recite: `2.2 P / e`. A guess that searches begin at."""
    return PER_PARAMETER * parameters(decoder, vocabulary, length) / bits


# ------------------------------------------------------------------------------------------------------ the laws

Curve = Callable[[Float, Architectures], Float]


@dataclass(frozen=True)
class Law:
    """A law `C = curve(constants, architectures)`.

    constants: names, each with the range that a fit may begin in; `log` ranges are positive and sampled as logarithms
    columns: of a law that is linear in its constants (a polynomial), instead of ranges    source: where it is from
    """

    name: str
    formula: str
    source: str
    constants: tuple[tuple[str, float, float, str], ...]
    curve: Curve
    columns: Callable[[Architectures], Float] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Of the constants."""
        return tuple(name for name, *_ in self.constants)


def slope(constants: Float, at: Architectures) -> Float:
    """`f(H, N) = a / (N^(b H + c) + d) + e`. constants: a, b, c, d, e"""
    a, b, c, d, e = constants[:5]
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return np.asarray(a / (at.length ** (b * at.heads + c) + d) + e)


def published_max(constants: Float, at: Architectures) -> Float:
    """`C = max(f(H, N) B, alpha H + beta)`, as printed."""
    return np.asarray(np.maximum(slope(constants, at) * at.d_model, constants[5] * at.heads + constants[6]))


def published_min(constants: Float, at: Architectures) -> Float:
    """`C = min(f(H, N) B, alpha H + beta)`: a linear rise, then a bound, as the paper's text has it."""
    return np.asarray(np.minimum(slope(constants, at) * at.d_model, constants[5] * at.heads + constants[6]))


def linear_rise(constants: Float, at: Architectures) -> Float:
    """`C = f(H, N) B`"""
    return np.asarray(slope(constants, at) * at.d_model)


def power_rise(constants: Float, at: Architectures) -> Float:
    """`C = f(H, N) B^g`"""
    return np.asarray(slope(constants, at) * at.d_model ** constants[5])


def per_parameter(constants: Float, at: Architectures) -> Float:
    """`C = rho P / e`: every parameter holds rho bits."""
    return np.asarray(constants[0] * at.asked)


def per_parameter_heads(constants: Float, at: Architectures) -> Float:
    """`C = rho (1 - h / H) P / e`: the bits per parameter rise with the heads to rho."""
    return np.asarray(constants[0] * (1.0 - constants[1] / at.heads) * at.asked)


def powers(constants: Float, at: Architectures) -> Float:
    """`C = c P^p H^q / e^n`"""
    c, p, q, n = constants
    return np.asarray(c * at.parameters**p * at.heads**q / at.bits**n)


def budgeted_parameter(constants: Float, at: Architectures) -> Float:
    """`C = R / (1 + R / S)` with `R = rho (1 - h / H) P / e`: parameters, then the training budget, bound what is held."""
    free = per_parameter_heads(constants[:2], at)
    return np.asarray(free / (1.0 + free / constants[2]))


def monomials(at: Architectures) -> Float:
    """All products of powers of H, N and B up to the fifth degree: 56 columns. returns: (cells, 56)"""
    sizes = [column / unit for column, unit in zip((at.heads, at.length, at.d_model), UNITS, strict=True)]
    exponents = [e for e in itertools.product(range(DEGREE + 1), repeat=3) if sum(e) <= DEGREE]
    return np.stack([sizes[0] ** i * sizes[1] ** j * sizes[2] ** k for i, j, k in exponents], axis=1)


def polynomial(constants: Float, at: Architectures) -> Float:
    """The fifth-order polynomial in (H, N, B)."""
    return np.asarray(monomials(at) @ constants)


_SLOPE = (
    ("a", 1.0, 1e5, "log"),
    ("b", -0.2, 0.3, "linear"),
    ("c", 0.2, 2.0, "linear"),
    ("d", 0.01, 50.0, "log"),
    ("e", -2.0, 2.0, "linear"),
)
_BOUND = (("alpha", 0.1, 500.0, "log"), ("beta", 1.0, 2000.0, "log"))
_RHO = ("rho", 0.1, 5.0, "log")
_F = "f(H, N) = a / (N^(b H + c) + d) + e"
LAWS = (
    Law("ecm-max", f"max(f B, alpha H + beta), {_F}", "Haermae et al. 2024, as printed", (*_SLOPE, *_BOUND), published_max),
    Law("ecm-min", f"min(f B, alpha H + beta), {_F}", "Haermae et al. 2024, its text", (*_SLOPE, *_BOUND), published_min),
    Law("linear", f"f B, {_F}", "Haermae et al. 2024, without the bound", _SLOPE, linear_rise),
    Law("poly-5", "fifth-order polynomial in H, N, B", "Haermae et al. 2024, the rival", (), polynomial, monomials),
    Law("power-B", f"f B^g, {_F}", "ours", (*_SLOPE, ("g", 0.5, 2.5, "linear")), power_rise),
    Law("per-parameter", "rho P / e", "ours, after Morris et al. 2025", (_RHO,), per_parameter),
    Law("per-parameter-H", "rho (1 - h / H) P / e", "ours", (_RHO, ("h", 0.0, 0.8, "linear")), per_parameter_heads),
    Law(
        "powers",
        "c P^p H^q / e^n",
        "ours",
        (("c", 0.1, 10.0, "log"), ("p", 0.3, 1.5, "linear"), ("q", -0.3, 0.5, "linear"), ("n", 0.3, 1.5, "linear")),
        powers,
    ),
    Law(
        "budget",
        "R / (1 + R / S), R = rho (1 - h / H) P / e",
        "ours",
        (_RHO, ("h", 0.0, 0.8, "linear"), ("S", 30.0, 1e5, "log")),
        budgeted_parameter,
    ),
)


def law_named(name: str) -> Law:
    """A law by its name."""
    known = {law.name: law for law in LAWS}
    require(name in known, f"a law in {'|'.join(known)}", repr(name), "Choose one.")
    return known[name]


# --------------------------------------------------------------------------------------------------- the inverse


@dataclass(frozen=True, kw_only=True)
class Choice:
    """An architecture that is predicted to hold what is wanted. capacity: predicted"""

    heads: int
    d_model: int
    length: int
    parameters: int
    capacity: float


def architectures(decoders: Sequence[tuple[Decoder, int]], vocabulary: int, prompt: int) -> Architectures:
    """Decoders, each with its length N, as arrays; on uniform tokens."""
    rows = [(d.heads, n, d.d_model, parameters(d, vocabulary, n), sequence_bits(vocabulary, n, prompt)) for d, n in decoders]
    return Architectures(*np.array(rows, dtype=np.float64).T)


def cheapest(
    predict: Callable[[Architectures], Float],
    capacity: float,
    *,
    lengths: Sequence[int],
    heads: Sequence[int] = (1, 2, 3, 4, 5, 8),
    widest: int = 1024,
    vocabulary: int = 64,
    prompt: int = 2,
    budget: int | None = None,
    like: Decoder | None = None,
) -> list[Choice]:
    """The fewest parameters that are predicted to recite `capacity` sequences, for every number of heads and length.

    predict: a law with its constants    widest: the largest d_model tried    budget: most parameters    like: everything but
    heads and width    returns: what was found, the cheapest first; empty where nothing within the budget does it. Width is
    found by bisection: more of it never holds less by any law that is worth using.
    """
    require(capacity > 0, "`--capacity > 0`", capacity, "Ask for one sequence at least.")
    require(min(lengths) > prompt, "`--length > --prompt`", f"{min(lengths)}, {prompt}", "Ask for longer sequences.")
    like = like or Decoder(heads=1, d_model=1)
    found = [
        choice
        for length in lengths
        for h in heads
        for choice in _narrowest(predict, capacity, replace(like, heads=h, d_head=0), length, widest, vocabulary, prompt)
    ]
    within = [c for c in found if budget is None or c.parameters <= budget]
    return sorted(within, key=lambda c: (c.parameters, c.heads, c.length))


def _narrowest(
    predict: Callable[[Architectures], Float],
    capacity: float,
    like: Decoder,
    length: int,
    widest: int,
    vocabulary: int,
    prompt: int,
) -> Iterator[Choice]:
    def of(width: int) -> Choice:
        decoder = replace(like, d_model=width, d_head=0)
        at = architectures([(decoder, length)], vocabulary, prompt)
        held = float(predict(at)[0])
        return Choice(heads=like.heads, d_model=width, length=length, parameters=int(at.parameters[0]), capacity=held)

    low, high = 1, widest
    if not of(high).capacity >= capacity:
        return
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if of(middle).capacity >= capacity else (middle + 1, high)
    yield of(low)
