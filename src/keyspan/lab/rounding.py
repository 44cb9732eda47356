"""How far a computed score can lie from the true one, and bounds that are themselves rounded outwards.

A product of n terms computed with unit roundoff u, in any order, fused or not, obeys (Higham 2002, section 3.1)

    |fl(a . b) - a . b| <= gamma_n |a| . |b|,   gamma_n = n u / (1 - n u)

Rows of Q = X W_Q are such products, and so are scores of rows. With |q| the norm of a row and e its error (both bounds),

    |fl(q . k) - S| <= gamma_dk |q| |k|  +  e_q |k|  +  |q| e_k

Everything here is a bound from above: sums are inflated by `UP`, and `TINY` covers what underflows. A bound that overflows
is infinite or no number, and no comparison with it proves anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

UNIT = {"fp64": 2.0**-53, "fp32": 2.0**-24}
UP = 1.0 + 2.0**-20  # more than every sum of squares below can lose in float64 (2^30 terms)
TINY = 1e-140  # more than all underflow in a norm: 2^24 squares below 2^-1022 have a root below 1e-150
SMALLEST = {"fp64": 2.0**-1022, "fp32": 2.0**-126}  # smallest normal numbers: what a flushed product can lose


def gamma(terms: int, unit: float) -> float:
    """gamma_n, with two terms to spare; infinite where it says nothing."""
    share = (terms + 2) * unit
    return share / (1.0 - share) * UP if share < 0.5 else np.inf


@dataclass(frozen=True)
class Spans:
    """A set of rows, per head: a bound on the norm of true and computed rows, and on what one lies off. (heads,) each"""

    norm: Float
    error: Float

    @classmethod
    def of(cls, norms: Float, errors: Float) -> Spans:
        """From the largest computed norm, and a bound on the error, per head."""
        error = np.asarray(errors * UP + TINY)
        return cls(np.asarray(norms * UP + TINY + error), error)

    def rounded(self, moved: Float) -> Spans:
        """The same rows after rounding has moved each by at most `moved`."""
        error = self.error + moved * UP + TINY
        return Spans((self.norm + error) * UP, error * UP)

    def scaled(self, power: int) -> Spans:
        """The rows times 2^power."""
        return Spans(np.ldexp(self.norm, power) + TINY, np.ldexp(self.error, power) + TINY)

    def join(self, other: Spans) -> Spans:
        """Both sets."""
        return Spans(np.maximum(self.norm, other.norm), np.maximum(self.error, other.error))


def forming_error(x_norm: float, w_norms: Float, d_model: int, unit: float = UNIT["fp64"]) -> Float:
    """|fl(x W) - x W| <= gamma_d |x| |W|_F, row by row. w_norms: (heads,), of Frobenius    returns: (heads,)"""
    return gamma(d_model, unit) * (x_norm * UP + TINY) * (w_norms * UP + TINY) * UP


def largest(q: Spans, k: Spans) -> Float:
    """Cauchy and Schwarz: no score of these rows is larger. returns: (heads,)"""
    return q.norm * k.norm * UP


def product_error(q: Spans, k: Spans, d_key: int, share: float, smallest: float) -> float:
    """How far max_k fl(q_k . k_k) can lie from max_k S^k. share: gamma of the product    smallest: what a term may lose

    A maximum of heads moves by no more than the head that moves most.
    """
    each = share * q.norm * k.norm + q.error * k.norm + q.norm * k.error
    return float(each.max() * UP + 4.0 * d_key * smallest + TINY)
