"""Bounds on the key budget D_K = h d_k of a channel that holds a graph, and predictions of it.

Symbols (Adler 2025): m items, d_model d, m' edges, h heads of width d_k. Every number says whether it is proven,
measured or conjectured; docs/mathematics.md has the arguments, under the names used below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from keyspan.errors import require

RHO_THIN, RHO_WIDE = 0.72, 0.28  # rho = .72 + .28 d_k/d, what heads of low rank need of P (fitted)
TRAINED_OVER_LAW = (0.80, 2.10)  # D_K* of trained channels over the law: least and most of nine measured cells


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One statement about D_K. `value` is None where the statement is that no D_K will do."""

    name: str
    value: float | None
    status: Literal["proven", "measured", "conjectured"]
    source: str
    note: str


def key_budget_bounds(*, edges: int, bits: float, items: int, d_model: int, heads: int) -> tuple[Bound, ...]:
    """What is known of D_K for m' edges that take `bits` to name, on m items in R^d, with h heads."""
    least, most = TRAINED_OVER_LAW
    return (
        Bound(
            name="warren",
            value=warren_budget(bits, items, d_model, heads),
            status="proven",
            source="Warren 1968 (sign patterns of polynomials); docs/mathematics.md#warren",
            note="below it, whatever the training and the precision, some graph of the family cannot be held",
        ),
        Bound(
            name="gardner",
            value=gardner_budget(edges, items, d_model, heads),
            status="conjectured",
            source="Gardner 1988 (capacity of a perceptron); docs/mathematics.md#gardner",
            note="what a second-order solver reaches, to about 10%; none: these heads are too few at any width",
        ),
        Bound(
            name="law",
            value=law(edges, d_model),
            status="measured",
            source="Adler 2025: D_K = Theta(m' ln m' / d)",
            note=f"the order is proven, the constant 1 is not: trained channels needed {least:.2f} to {most:.2f} of it",
        ),
        Bound(
            name="one head per edge",
            value=float(trivial_budget(edges)),
            status="proven",
            source="docs/mathematics.md#one-head-per-edge",
            note="d_k = 1, exact for unit rows none of which are equal or opposite, with margin 1 - coherence",
        ),
    )


def law(edges: int, d_model: int) -> float:
    """m' ln m' / d, the law D_K = Theta(m' log m' / d) with constant 1 (Adler 2025).

    The theorem fixes the order, not the constant; channels trained by gradient were seen to need about 1
    (`TRAINED_OVER_LAW`).
    """
    _sizes(edges=edges, d_model=d_model)
    return edges * math.log(edges) / d_model


def gardner_load(edges: int, items: int, heads: int) -> float:
    """P(m', h) = min_b { m' up(b) + h (m^2 - m') dn(b) }: the parameters that m' edges use up in h full-rank heads.

    up(b) = (1+b^2) Phi(b) + b phi(b), dn(b) = up(-b): the mean squared shortfall of an edge and of a non-edge at
    threshold b; an edge is claimed by one head, a non-edge is refused by all h (replica capacity of a perceptron;
    docs/mathematics.md, "Gardner"; conjectured). The sum is convex
    in b, so the root of its slope is the minimum; b is found to the last
    bit, P to about 1e-12 relative.
    """
    _sizes(edges=edges, items=items, heads=heads)
    refusals = float(heads) * (items * items - edges)
    b = _root(lambda b: edges * _half_slope(b) - refusals * _half_slope(-b), 0.0, -40.0, 40.0)
    return edges * _shortfall(b) + refusals * _shortfall(-b)


def heads_needed(edges: int, items: int, d_model: int) -> int | None:
    """h_min, the smallest h with P(m', h) <= h d^2: fewer heads cannot hold the graph at any width (conjectured).

    P/h falls as h grows, so it is found by bisection. None where not even h = m would do; the argument takes the d^2
    products of coordinates for many and independent, so it says nothing where d is below about 8.
    """
    _sizes(edges=edges, items=items, d_model=d_model)

    def fits(heads: int) -> bool:
        return gardner_load(edges, items, heads) <= heads * d_model**2

    if not fits(items):
        return None
    low, high = 1, items
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return low


def gardner_budget(edges: int, items: int, d_model: int, heads: int) -> float | None:
    """D_K = h (d - sqrt(d^2 - rho P/h)), rho = .72 + .28 d_k/d: what h heads of low rank need (conjectured).

    h heads of width d_k have 2 d D_K - D_K^2/h degrees of freedom, of which rho P(m', h) are used up (rho is
    fitted). With t = d_k/d and q = P/(h d^2) that reads 2t - t^2 = (.72 + .28t) q, whose smaller root is taken: it
    grows from .36 q to .72 at q = 1. (The larger root is t = 1 at q = 1: rho = 1 at full rank.) None where q > 1, below
    h_min heads.
    """
    _sizes(d_model=d_model)
    q = gardner_load(edges, items, heads) / (heads * d_model**2)
    if q > 1:
        return None
    half = 1 - RHO_WIDE * q / 2
    return heads * d_model * RHO_THIN * q / (half + math.sqrt(half * half - RHO_THIN * q))


def warren_budget(bits: float, items: int, d_model: int, heads: int) -> float:
    """The smallest real D_K whose channels can tell 2^bits graphs apart (proven, for weights of any precision).

    The graph is read off the signs of N = h m^2 quadratic polynomials in p = 2 d D_K + 1 variables (the weights and the
    threshold), so there are at most (8eN/p)^p graphs while p <= N (Warren 1968): p log2(8eN/p) >= bits is solved for p.
    Of a family of 2^bits graphs, then, not all can be held below it. It falls as h grows.
    """
    _sizes(items=items, d_model=d_model, heads=heads)
    require(0 <= bits <= items**2, "0 <= bits <= items^2", bits, "Give the entropy of a graph on these items.")
    polynomials = float(heads) * items**2
    p = _root(lambda p: p * math.log2(8 * math.e * polynomials / p), float(bits), 1.0, polynomials)
    return (p - 1) / (2 * d_model)


def description_budget(bits: float, d_model: int, relative_margin: float) -> float:
    """D_K >= bits / (2 d b_eff), b_eff = log2(1 + 2/(sqrt(1+g) - 1)): what a margin costs (proven).

    g = gamma/R^2 is the half-margin over the largest |W_Q W_K^T|_op, for rows of norm at most 1: weights that move by
    less than sqrt(R^2 + gamma) - R decide alike, so each graph needs a point of a net of its own (docs/mathematics.md,
    "Covering"). It holds
    for a family whose graphs have equally many edges. b_eff is about log2(1 + 4/g) bits per parameter.
    """
    _sizes(d_model=d_model)
    require(bits >= 0, "bits >= 0", bits, "Give the entropy of a graph.")
    require(0 < relative_margin <= 1, "0 < relative_margin <= 1", relative_margin, "Scores lie within R^2 of 0.")
    step = relative_margin / (math.sqrt(1 + relative_margin) + 1)  # sqrt(1+g) - 1, without the cancellation
    return bits / (2 * d_model * math.log2(1 + 2 / step))


def trivial_budget(edges: int) -> int:
    """D_K = m': head a is x_i x_j^T for the a-th edge i -> j, of rank 1 (proven).

    With unit rows an edge scores 1 and a non-edge at most the coherence, the largest |x_i . x_j|: exact, with
    min edge - max non-edge >= 1 - coherence, where no two rows are equal or opposite. (Distinct is not enough:
    -x_i -> -x_j also scores 1, and sign rows of few dimensions do come in such pairs.)
    """
    _sizes(edges=edges)
    return edges


def _shortfall(b: float) -> float:
    """up(b) = E[max(0, z + b)^2] for a standard normal z."""
    return (1 + b * b) * _normal_cdf(b) + b * _normal_density(b)


def _half_slope(b: float) -> float:
    """up'(b) / 2 = b Phi(b) + phi(b) = E[max(0, z + b)]."""
    return b * _normal_cdf(b) + _normal_density(b)


def _normal_cdf(b: float) -> float:
    return math.erfc(-b / math.sqrt(2)) / 2


def _normal_density(b: float) -> float:
    return math.exp(-b * b / 2) / math.sqrt(2 * math.pi)


def _root(rising: Callable[[float], float], goal: float, low: float, high: float) -> float:
    """Where a rising function passes `goal`, to the last bit; the nearer end where it does not within [low, high]."""
    if rising(low) >= goal:
        return low
    while low < (middle := low + (high - low) / 2) < high:
        low, high = (low, middle) if rising(middle) >= goal else (middle, high)
    return high


def _sizes(**sizes: int) -> None:
    for name, value in sizes.items():
        require(value >= 1, f"{name} >= 1", value, "Sizes are positive.")
    if "edges" in sizes and "items" in sizes:
        edges, items = sizes["edges"], sizes["items"]
        require(edges < items**2, f"edges < items^2 = {items**2}", edges, "Leave at least one non-edge.")
