"""Lower bounds by counting: graphs that must be told apart, against what so many weights can tell apart (proven)."""

from __future__ import annotations

import math

from keyspan.errors import require
from keyspan.theory.solving import check_sizes, root


def warren_budget(bits: float, items: int, d_model: int, heads: int, sources: int | None = None) -> float:
    """The smallest real D_K whose channels can tell 2^bits graphs apart (proven, for weights of any precision).

    The graph is read off the signs of N = h m^2 quadratic polynomials in p = 2 d D_K + 1 variables (the weights and the
    threshold), so there are at most (8eN/p)^p graphs while p <= N (Warren 1968): p log2(8eN/p) >= bits is solved for p.
    Of a family of 2^bits graphs, then, not all can be held below it. It falls as h grows.

    sources: how many rows ask, if not the m items; m^2 is then sources times m
    """
    sources = items if sources is None else sources
    check_sizes(items=items, d_model=d_model, heads=heads, sources=sources)
    require(0 <= bits <= sources * items, "0 <= bits <= items^2", bits, "Give the entropy of a graph on these items.")
    polynomials = float(heads) * (sources * items)
    p = root(lambda p: p * math.log2(8 * math.e * polynomials / p), float(bits), 1.0, polynomials)
    return (p - 1) / (2 * d_model)


def description_budget(bits: float, d_model: int, relative_margin: float) -> float:
    """D_K >= bits / (2 d b_eff), b_eff = log2(1 + 2/(sqrt(1+g) - 1)): what a margin costs (proven).

    g = gamma/R^2 is the half-margin over the largest |W_Q W_K^T|_op, for rows of norm at most 1: weights that move by
    less than sqrt(R^2 + gamma) - R decide alike, so each graph needs a point of a net of its own (docs/mathematics.md,
    "Covering"). It holds
    for a family whose graphs have equally many edges. b_eff is about log2(1 + 4/g) bits per parameter.
    """
    check_sizes(d_model=d_model)
    require(bits >= 0, "bits >= 0", bits, "Give the entropy of a graph.")
    require(0 < relative_margin <= 1, "0 < relative_margin <= 1", relative_margin, "Scores lie within R^2 of 0.")
    step = relative_margin / (math.sqrt(1 + relative_margin) + 1)  # sqrt(1+g) - 1, without the cancellation
    return bits / (2 * d_model * math.log2(1 + 2 / step))


def hub_heads(degree: int, items: int, d_model: int) -> int:
    """Fewest heads that can hold every choice of one item's `degree` targets, whatever d_k (proven).

    Item i meets a key x_j in h numbers u_k . x_j with u_k = M_k^T x_i in R^d, so its targets are the signs of N = m h
    linear forms in p = h d + 1 variables (the u_k and the threshold). Such forms, all through the origin, cut space into
    at most 2 sum_(k<p) C(N-1, k) cells (Schlaefli; Cover 1965), so log2 of that must reach log2 C(m, degree). Of the sets of
    targets, then, some cannot be held by fewer heads. (With loops; without, m is m - 1.)
    """
    check_sizes(degree=degree, items=items, d_model=d_model)
    require(degree <= items, f"degree <= items = {items}", degree, "An item points to each item once at most.")
    bits = _log2_choose(items, degree)
    low, high = 1, items
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _log2_cells(items * middle, middle * d_model + 1) >= bits else (middle + 1, high)
    return low


def _log2_cells(forms: int, variables: int) -> float:
    """log2 of 2 sum_(k<p) C(N-1, k), from above: all 2^N signs, or p times the largest term."""
    if 2 * variables >= forms:
        return float(forms)  # at least half of all; too near to matter
    largest = _log2_choose(forms - 1, variables - 1)
    ratio = (variables - 1) / (forms - variables + 1)  # of each term to the next larger one, at most
    return 1.0 + largest - math.log2(1.0 - ratio) if ratio < 1 else float(forms)


def _log2_choose(n: int, k: int) -> float:
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)
