"""The capacity of a perceptron, applied to heads: what a solver needs, and how many heads at least (conjectured).

Gardner 1988; docs/mathematics.md, "Gardner". Symbols as in `theory.bounds`.
"""

from __future__ import annotations

import math
from functools import lru_cache

from keyspan.errors import require
from keyspan.theory.solving import check_sizes, root

RHO_THIN, RHO_WIDE = 0.72, 0.28  # rho = .72 + .28 d_k/d, what heads of low rank need of P (fitted)
MOST_HEADS = 2**12  # heads that a search for the best number of them tries


def gardner_load(edges: int, items: int, heads: int, sources: int | None = None) -> float:
    """P(m', h) = min_b { m' up(b) + h (m^2 - m') dn(b) }: the parameters that m' edges use up in h full-rank heads.

    up(b) = (1+b^2) Phi(b) + b phi(b), dn(b) = up(-b): the mean squared shortfall of an edge and of a non-edge at
    threshold b; an edge is claimed by one head, a non-edge is refused by all h (replica capacity of a perceptron;
    docs/mathematics.md, "Gardner"; conjectured). The sum is convex
    in b, so the root of its slope is the minimum; b is found to the last
    bit, P to about 1e-12 relative. sources: how many rows ask, if not the m items; m^2 is then sources times m
    """
    sources = items if sources is None else sources
    check_sizes(edges=edges, heads=heads, sources=sources)
    require(edges < sources * items, f"edges < items^2 = {sources * items}", edges, "Leave at least one non-edge.")
    refusals = float(heads) * (sources * items - edges)
    b = root(lambda b: edges * _half_slope(b) - refusals * _half_slope(-b), 0.0, -40.0, 40.0)
    return edges * _shortfall(b) + refusals * _shortfall(-b)


@lru_cache(maxsize=4096)
def heads_needed(edges: int, items: int, d_model: int) -> int | None:
    """h_min, the smallest h with P(m', h) <= h d^2: fewer heads cannot hold the graph at any width (conjectured).

    P/h falls as h grows, so it is found by bisection. None where not even h = m would do; the argument takes the d^2
    products of coordinates for many and independent, so it says nothing where d is below about 8.
    """
    check_sizes(edges=edges, items=items, d_model=d_model)

    def fits(heads: int) -> bool:
        return gardner_load(edges, items, heads) <= heads * d_model**2

    if not fits(items):
        return None
    low, high = 1, items
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle + 1, high)
    return low


def gardner_budget(edges: int, items: int, d_model: int, heads: int, sources: int | None = None) -> float | None:
    """D_K = h (d - sqrt(d^2 - rho P/h)), rho = .72 + .28 d_k/d: what h heads of low rank need (conjectured).

    h heads of width d_k have 2 d D_K - D_K^2/h degrees of freedom, of which rho P(m', h) are used up (rho is
    fitted). With t = d_k/d and q = P/(h d^2) that reads 2t - t^2 = (.72 + .28t) q, whose smaller root is taken: it
    grows from .36 q to .72 at q = 1. (The larger root is t = 1 at q = 1: rho = 1 at full rank.) None where q > 1, below
    h_min heads. sources: as in `gardner_load`
    """
    check_sizes(d_model=d_model)
    q = gardner_load(edges, items, heads, sources) / (heads * d_model**2)
    if q > 1:
        return None
    half = 1 - RHO_WIDE * q / 2
    return heads * d_model * RHO_THIN * q / (half + math.sqrt(half * half - RHO_THIN * q))


def gardner_best(edges: int, items: int, d_model: int) -> tuple[int, int] | None:
    """The heads and d_key, in whole numbers, of the smallest predicted D_K; fewer heads where two are equal (conjectured).

    Few heads waste the gauge, -D_K^2/h, and many pay for the non-edges that each must refuse, so there is a best number.
    Every number of heads up to four times h_min is tried, and powers of two beyond. None where no number of heads will do.
    """
    least = heads_needed(edges, items, d_model)
    if least is None:
        return None
    tried = {*range(least, min(4 * least, least + 256) + 1), *(1 << k for k in range(MOST_HEADS.bit_length()))}
    found = []
    for heads in sorted(h for h in tried if least <= h <= max(least, min(items, MOST_HEADS))):
        budget = gardner_budget(edges, items, d_model, heads)
        if budget is not None:
            d_key = max(1, math.ceil(budget / heads))
            found.append((heads * d_key, heads, d_key))
    _, heads, d_key = min(found)
    return heads, d_key


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
