"""What block heads with random sign signatures will score, before they are built: F1 and P(exact) for a permutation.

h heads of B = m/h edges each, gaussian unit rows in d dimensions, words of d_k signs. Let j' be the item that points to j.
A pair (i, j) meets a head in one of four ways, and the second moment of what that head adds is exact up to O(1/d):

    its edge            mean 1,  var_e
    A  i, j' inside     var_A                m (B - 1) pairs, all other heads are D
    B  one of them      var_B                all other pairs: two heads B, h - 2 heads D
    D  neither          var_D

(docs/constructions.md, "Moments".) Given the query, a score is nearly normal, with a variance that follows the query's
norm (`outer_spread`). Mixing over that norm gives the heavy tails which decide where narrow heads fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require

Float = NDArray[np.float64]
NODES = 160  # of the mixture over a query's norm
THRESHOLDS = 200


@dataclass(frozen=True)
class Moments:
    """Second moments of one head's score. edge: about its mean 1    same, cross, far: pairs A, B and D"""

    edge: float
    same: float
    cross: float
    far: float


@dataclass(frozen=True)
class Prediction:
    """f1: at the best threshold    exact: probability of exact recovery, at its best threshold"""

    f1: float
    exact: float


def outer_moments(block: float, d_model: int, d_key: int) -> Moments:
    """The moments of outer-product heads (W_Q = X_V^T s). block: B"""
    B, d, k = block, float(d_model), float(d_key)
    return Moments(
        edge=2 * (B - 1) / (d * k) + (B - 1) / d**2 + max((B - 1) * (B - 2), 0.0) / (d**2 * k),
        same=1 / k + 2 / d + 2 * (B - 2) / (d * k) + (B - 2) / d**2 + ((B - 1) ** 2 - (B - 2)) / (d**2 * k),
        cross=1 / d + (B - 1) / (d * k) + (B - 1) / d**2 + (B - 1) ** 2 / (d**2 * k),
        far=B / d**2 + B * (B - 1) / (d**2 * k),
    )


def outer_prediction(items: int, d_model: int, heads: int, d_key: int) -> Prediction:
    """F1 and P(exact) of outer-product blocks on a permutation of gaussian unit rows."""
    require(1 <= heads <= items, "1 <= heads <= items", heads, "A block has an edge.")
    moments = outer_moments(items / heads, d_model, d_key)
    spread = outer_spread(items / heads, d_model, d_key)
    same, cross, far = (_gamma(getattr(moments, name), getattr(spread, name)) for name in ("same", "cross", "far"))
    return _predict(items, heads, math.sqrt(moments.edge), lambda t: _above(t, same), cross, far)


def outer_spread(block: float, d_model: int, d_key: int) -> Moments:
    """Relative variance of a score's variance, once the query is known: 0 for a normal score, more for heavier tails.

    A score of an outside pair is g^T A g', with A = s s^T, and g, g' normal with covariance P = X_V X_V^T / d. Given g
    its variance is g^T A P A g / d, a quadratic form in a normal g, so its relative variance is 2 tr C^2 / (tr C)^2 with
    C = P A P' A. For free Wishart P, P' (ratio r = B/d) and A (ratio c = B/d_k) the traces are

        y1 = (1/B) tr A P A = 1 + c        y2 = (1/B) tr (A P A)^2 = 1 + 6c + 6c^2 + c^3 + r (1 + c)^2

    Inside a block g becomes e_a + g: the fixed part does not spread, the mixed one adds 4 y2 / d (conjectured: free
    independence is exact for large B, d, d_k only).
    """
    B, d, k = block, float(d_model), float(d_key)
    r, c = (B - 1) / d, (B - 1) / k
    y1 = 1 + c
    y2 = 1 + 6 * c + 6 * c**2 + c**3 + r * y1**2
    far = 2 * (y2 / y1**2 + r) / B
    fixed = (4 * B / (d * k) + 2 * B / k**2) / y1**2
    cross = (fixed + 4 / d * y2 / y1**2 + r * r * far) / (1 + r) ** 2
    return Moments(edge=0.0, same=2 * (r * r / k + 2 * r / k) / (1 + r) ** 2, cross=cross, far=far)


def inverse_moments(block: float, d_model: int, d_key: int) -> Moments:
    """The moments of pseudo-inverse heads (W_Q = X_V^+ s). block: B, at most d - 2

    Edges score 1. With l = B/(d - B - 1), the mean squared query of an outside item, and A = s s^T:

        var_B = (1/d) tr(A (X X^T)^-1 A) / B = (l/B) (1 + (B - 1)/d_k)        var_D = (l^2/B) (1 + (B - 1)/d_k)
    """
    leak = block / (d_model - block - 1)
    words = (1 + (block - 1) / d_key) / block
    return Moments(edge=0.0, same=1 / d_key, cross=leak * words, far=leak * leak * words)


def inverse_prediction(items: int, d_model: int, heads: int, d_key: int) -> Prediction | None:
    """F1 and P(exact) of pseudo-inverse blocks. None where B > d - 2.

    Two words of signs agree in k of d_k places like tossed coins, and coincide with probability 2^-d_k: that is what
    type A adds, exactly. The spread is as for outer products, with B/d there the ratio l here, for (X X^T)^-1 spreads so.
    """
    require(1 <= heads <= items, "1 <= heads <= items", heads, "A block has an edge.")
    B = items / heads
    if d_model - 2 < B:
        return None
    moments, leak, c = inverse_moments(B, d_model, d_key), B / (d_model - B - 1), (B - 1) / d_key
    y1 = 1 + c
    y2 = 1 + 6 * c + 6 * c**2 + c**3 + leak * y1**2
    cross = (4 * c / (d_model - B) + 2 * c / d_key) / y1**2 + 2 / (d_model - B)
    agree = np.arange(d_key + 1)
    logs = [math.lgamma(d_key + 1) - math.lgamma(k + 1) - math.lgamma(d_key - k + 1) - d_key * math.log(2) for k in agree]
    coins = (2 * agree / d_key - 1, np.exp(logs))
    far = _gamma(moments.far, 2 * (y2 / y1**2 + leak) / B)
    return _predict(items, heads, 0.0, lambda t: _reached(t, coins), _gamma(moments.cross, cross), far)


def _reached(threshold: Float, values: tuple[Float, Float]) -> Float:
    """P(score > t) for a score that takes given values with given probabilities. returns: (t,)"""
    return np.asarray((values[0][None, :] > threshold[:, None]) @ values[1])


def _gamma(mean: float, spread: float) -> tuple[Float, Float]:
    """Nodes and weights of the gamma distribution with this mean and relative variance."""
    if spread <= 0:
        return np.array([mean]), np.ones(1)
    shape = 1 / spread
    wide = math.sqrt(spread)
    logs = np.linspace(-9 * wide - 2 * min(wide, 2.0), min(6 * wide, 3.0) + wide, NODES)  # of x / mean
    density = shape * (logs - np.exp(logs))  # of the logarithm, but for a constant
    weights = np.exp(density - density.max())
    weights /= weights.sum()
    values = np.exp(logs)
    return mean * values / float(values @ weights), weights


_erfc = np.frompyfunc(math.erfc, 1, 1)


def _above(threshold: Float, mixture: tuple[Float, Float]) -> Float:
    """P(score > t) for a normal score whose variance is mixed. threshold: (t,)    returns: (t,)"""
    variance, weights = mixture
    scaled = threshold[:, None] / np.sqrt(2 * np.maximum(variance, 1e-300))[None, :]
    return np.asarray(np.asarray(_erfc(scaled), dtype=np.float64) / 2 @ weights)


def _predict(
    items: int,
    heads: int,
    edge: float,
    same: Callable[[Float], Float],
    cross: tuple[Float, Float],
    far: tuple[Float, Float],
) -> Prediction:
    """Best F1 and best exp(-errors expected) over thresholds.

    edge: standard deviation of an edge's score in its own head    same: P(score > t) of type A    cross, far: variances
    """
    m, block = float(items), items / heads
    t = np.linspace(0.02, 1.5, THRESHOLDS)
    with np.errstate(divide="ignore", over="ignore"):
        a, b, d = (np.log1p(-np.minimum(above, 1.0)) for above in (same(t), _above(t, cross), _above(t, far)))
        own = np.log(np.where(t < 1, 0.0, 1.0)) if edge == 0 else np.log(_below(t, edge))
        missed = np.exp(own + (heads - 1) * d)
        same_false = -np.expm1(a + (heads - 1) * d)
        cross_false = -np.expm1(2 * b + max(heads - 2, 0) * d) if heads > 1 else np.zeros_like(t)
    hits = m * (1 - missed)
    false = m * max(block - 1, 0.0) * same_false + m * (m - block) * cross_false
    f1 = 2 * hits / (hits + false + m)
    return Prediction(f1=float(f1.max()), exact=float(np.exp(-(false + m - hits)).max()))


def _below(threshold: Float, deviation: float) -> Float:
    """P(1 + z * deviation <= t)."""
    return np.asarray(_erfc((1 - threshold) / (math.sqrt(2) * deviation)), dtype=np.float64) / 2
