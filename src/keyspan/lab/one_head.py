"""Can one head hold a graph, however wide it is? Decided, where d is small: by weights that do, or by a proof that none do.

A head scores `s_ij = x_i M x_j` with M = W_Q W_K^T, a linear function of M, so a full-rank head is a perceptron in d^2
products of coordinates and its squared hinge is convex. At its minimum the shortfalls are weights

    a_e >= 0 on edges, a_n >= 0 on non-edges,   alpha = sum a_e,  beta = sum a_n,   R = sum a_e x_i x_j^T - sum a_n x_i x_j^T

that prove how large a gap can be (Gordan 1873). For every M, and so for every W_Q and W_K of any width,

    |R| |M| >= <R, M> >= alpha min_edge - beta max_nonedge >= alpha (min_edge - max_nonedge) - |alpha - beta| |x|^2 |M|
    (min_edge - max_nonedge) / |M| <= (|R| + |alpha - beta| |x|^2) / alpha

in Frobenius norms, with |x| the largest norm of a row. That holds for any a; the bound is computed from above, with what
rounding may have done to R.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.lab.rounding import TINY, UNIT, UP, gamma
from keyspan.problems.relations import RelationInstance

Float = NDArray[np.float64]

WIDEST = 24  # d up to which it is tried: a step solves for d^2 + 1 unknowns
MOST_ITEMS = 1024
STEPS = 100  # of Newton; about 15 are usual
NEGLIGIBLE = 1e-9  # a gap that is proven to be less than this share of |M| |x|^2 counts as none


@dataclass(frozen=True)
class OneHead:
    """What was found. gap: of these weights, over |M|_F    at_most: proven bound on it, for any M; infinite: nothing proven

    weights: M, (d, d)    pairs: how many carry the proof
    """

    gap: float
    at_most: float
    pairs: int
    weights: Float
    rows: float  # the largest |x|^2, which scores are measured by

    @property
    def held(self) -> bool:
        """Whether these weights separate edges from non-edges."""
        return self.gap > 0

    @property
    def impossible(self) -> bool:
        """Whether no weights do, but by a negligible gap."""
        return not self.held and self.at_most <= NEGLIGIBLE * self.rows

    def to_json(self) -> dict[str, Any]:
        """What was decided, without the weights. gap_at_most: null where nothing is proven"""
        bound = self.at_most if math.isfinite(self.at_most) else None
        return {"held": self.held, "impossible": self.impossible, "gap": self.gap, "gap_at_most": bound, "pairs": self.pairs}


def applies(instance: RelationInstance) -> bool:
    """Whether a proof is tried for problems of this size."""
    items, d_model = instance.embeddings.shape
    return bool(d_model <= WIDEST and items <= MOST_ITEMS and len(instance.edges) < items * items)


def one_head(instance: RelationInstance) -> OneHead:
    """Weights that hold the graph in one head, or a proof that none do, or neither (on the brink)."""
    require(applies(instance), f"d_model <= {WIDEST}, items <= {MOST_ITEMS}", instance.embeddings.shape, "Take less.")
    signs = -np.ones((instance.items, instance.items))
    signs[instance.edges[:, 0], instance.edges[:, 1]] = 1.0
    return decide(np.asarray(instance.embeddings, dtype=np.float64), signs)


def decide(x: Float, signs: Float) -> OneHead:
    """The same of any pairs. signs: (items, items), 1 on edges, -1 on pairs that are none, 0 where it does not matter"""
    largest = float(np.einsum("ia,ia->i", x, x).max())
    power = -round(math.log2(largest) / 2) if largest > 0 else 0
    near_unit = np.ldexp(x, power)  # rows of length about 1, without rounding
    weights, threshold = _newton(near_unit, signs)
    shortfall = _shortfall(near_unit, signs, np.append(weights, threshold))
    found = _gap(x, signs, weights)
    at_most = math.inf if found > 0 else gap_bound(x, signs * shortfall)
    return OneHead(found, at_most, int((shortfall > 0).sum()), np.ldexp(weights, 2 * power), largest)


def gap_bound(x: Float, multipliers: Float) -> float:
    """(|R| + |alpha - beta| |x|^2) / alpha, rounded up. multipliers: (items, items), a_e on edges and -a_n on non-edges

    Bounds (min_edge - max_nonedge) / |M|_F for every M. Infinite where alpha is 0.
    """
    on, off = multipliers[multipliers > 0], -multipliers[multipliers < 0]
    alpha = math.fsum(on) * (1.0 - 2.0**-50)
    apart = abs(math.fsum([*on, *-off])) * UP + TINY
    if alpha <= TINY:
        return math.inf
    share = gamma(2 * len(x), UNIT["fp64"])
    moment = float(np.linalg.norm(x.T @ multipliers @ x)) * UP
    lost = share * float(np.linalg.norm(np.abs(x).T @ np.abs(multipliers) @ np.abs(x))) * (1.0 + 2.0 * share) * UP
    longest = float(np.einsum("ia,ia->i", x, x).max()) * UP
    return (moment + lost + apart * longest + TINY) / alpha * UP


def _gap(x: Float, signs: Float, weights: Float) -> float:
    """(min_edge - max_nonedge) / |M|_F, of these weights."""
    scores = x @ weights @ x.T
    size = float(np.linalg.norm(weights))
    return (float(scores[signs > 0].min()) - float(scores[signs < 0].max())) / size if size > 0 else 0.0


def _newton(x: Float, signs: Float) -> tuple[Float, float]:
    """The minimum of `sum max(0, 1 - y (s - tau))^2 / 2` over M and tau, by Newton's method. returns: M, tau

    The loss is piecewise quadratic: once the pairs that fall short are the right ones, one step is exact. A small multiple
    of the gradient's size is added to the Hessian's diagonal, for directions along which no pair falls short.
    """
    d = x.shape[1]
    w, value = np.zeros(d * d + 1), math.inf
    for _ in range(STEPS):
        short = _shortfall(x, signs, w)
        if short.max() < 1.0:
            break  # it holds
        slope = _pull(x, -signs * short)
        value = float((short * short).sum()) / 2
        size = float(np.linalg.norm(slope))
        if size <= 1e-13 * (1.0 + math.sqrt(value)):
            break
        hessian = _hessian(x, short > 0)
        hessian[np.diag_indices_from(hessian)] += 1e-10 * np.trace(hessian) / len(hessian) * min(1.0, size)
        step = np.asarray(np.linalg.solve(hessian, -slope), dtype=np.float64)
        w, moved = _down(x, signs, w, step, value, float(slope @ step))
        if not moved:
            break
    return w[:-1].reshape(d, d), float(w[-1])


def _scores(x: Float, w: Float) -> Float:
    """s - tau of every pair. w: M and tau in one"""
    d = x.shape[1]
    return np.asarray(x @ w[:-1].reshape(d, d) @ x.T - w[-1])


def _shortfall(x: Float, signs: Float, w: Float) -> Float:
    """max(0, 1 - y (s - tau)) of every pair that matters."""
    return np.asarray(np.maximum(0.0, np.abs(signs) - signs * _scores(x, w)))


def _pull(x: Float, on_pairs: Float) -> Float:
    """A gradient on pairs -> on M and tau."""
    return np.append((x.T @ on_pairs @ x).reshape(-1), -on_pairs.sum())


def _hessian(x: Float, short: NDArray[np.bool_]) -> Float:
    """Sum over the pairs that fall short of the outer product of their features (x_i x_j^T, -1) with themselves."""
    items, d = x.shape
    mask = short.astype(np.float64)
    targets = mask @ x  # sum of the x_j that i falls short on
    squares = np.stack([(x * row[:, None]).T @ x for row in mask]).reshape(items, d * d)
    sources = np.einsum("ia,ib->iab", x, x).reshape(items, d * d)
    both = (sources.T @ squares).reshape(d, d, d, d).transpose(0, 2, 1, 3).reshape(d * d, d * d)
    cross = -(x.T @ targets).reshape(-1)
    return np.block([[both, cross[:, None]], [cross[None, :], mask.sum()[None, None]]])


def _down(x: Float, signs: Float, w: Float, step: Float, value: float, slope: float) -> tuple[Float, bool]:
    """The first of w + step, w + step/2 ... that lowers the loss enough."""
    length = 1.0
    for _ in range(40):
        new = w + length * step
        short = _shortfall(x, signs, new)
        if float((short * short).sum()) / 2 <= value + 1e-4 * length * slope:
            return new, True
        length /= 2
    return w, False
