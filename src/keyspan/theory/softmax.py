"""What a margin is worth under softmax: inverse temperatures that guarantee where attention goes.

docs/mathematics.md, "Softmax" has the arguments.

A channel separates by `gap` = min_edge - max_nonedge of its scores S_ij = max_k S^k_ij. gamma is the half-gap: edges score
at least tau + gamma and non-edges at most tau - gamma, for the threshold tau halfway. L keys are in the context.

*Aggregate*: one softmax over beta S_ij. *Per head*: every head has its own softmax over beta S^k_ij and one null key, of
logit beta tau and value 0; the heads' values are summed. Everything here is proven; the functions invert each other.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from keyspan.errors import require

UP = 1.0 + 1e-12  # an inverse temperature is rounded up, so that the mass it promises survives its own rounding
MOST = 700  # e to more than that is no float64


@dataclass(frozen=True, kw_only=True)
class SoftmaxGuarantee:
    """Inverse temperatures that suffice for L keys and error eps, and what they guarantee.

    aggregate_beta: one softmax over the largest scores puts `aggregate_mass` on the targets
    per_head_beta: with a null key in each of `heads` heads, values summed, an item with one target receives its target's
    value to within `routed_error` of the largest value, if one head claims it; that head gives its targets `owner_mass`, and
    every other head gives non-targets no more than `idle_leak`
    """

    context: int
    eps: float
    targets: int
    heads: int
    gap: float
    aggregate_beta: float
    aggregate_mass: float
    per_head_beta: float
    owner_mass: float
    idle_leak: float
    routed_error: float

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def guarantee(*, gap: float, context: int, eps: float, heads: int = 1, targets: int = 1) -> SoftmaxGuarantee:
    """What a gap guarantees in contexts of L keys. gap: min_edge - max_nonedge    targets: fewest of an item that has any"""
    one = aggregate_beta(gap, context, eps, targets)
    each = routed_beta(gap / 2, context, eps, heads)
    return SoftmaxGuarantee(
        context=context,
        eps=eps,
        targets=targets,
        heads=heads,
        gap=gap,
        aggregate_beta=one,
        aggregate_mass=aggregate_mass(gap, context, one, targets),
        per_head_beta=each,
        owner_mass=owner_mass(gap / 2, context, each),
        idle_leak=idle_leak(gap / 2, context, each),
        routed_error=routed_error(gap / 2, context, each, heads),
    )


@dataclass(frozen=True, kw_only=True)
class LongestContexts:
    """The same the other way round: at inverse temperature `beta`, the longest contexts whose error is certain to be eps.

    aggregate: of one softmax    per_head: of a softmax in each of `heads` heads with a null key; 0: none. None: any that fits
    a machine
    """

    beta: float
    eps: float
    heads: int
    gap: float
    aggregate: int | None
    per_head: int | None

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)


def longest_contexts(*, gap: float, beta: float, eps: float, heads: int = 1) -> LongestContexts:
    """How long contexts may be at a given inverse temperature. gap: min_edge - max_nonedge"""
    one = aggregate_context(gap, beta, eps) if beta * gap < MOST else None
    each = routed_context(gap / 2, beta, eps, heads) if beta * gap / 2 < MOST else None
    return LongestContexts(beta=beta, eps=eps, heads=heads, gap=gap, aggregate=one, per_head=each)


def aggregate_mass(gap: float, context: int, beta: float, targets: int = 1) -> float:
    """Attention on an item's t targets among L keys, at least: 1 / (1 + ((L-t)/t) e^(-beta gap)). beta: inverse temperature"""
    _check(gap, context, targets)
    _beta(beta)
    return 1.0 / (1.0 + (context - targets) / targets * math.exp(-beta * gap))


def aggregate_beta(gap: float, context: int, eps: float, targets: int = 1) -> float:
    """beta = ln( ((L-t)/t) (1-eps)/eps ) / gap: all but eps of the attention is on the targets. 0 where any beta will do"""
    _check(gap, context, targets)
    _eps(eps)
    if context == targets:
        return 0.0
    odds = (context - targets) / targets * ((1.0 - eps) / eps)
    return max(0.0, math.log(odds)) / gap * UP


def aggregate_context(gap: float, beta: float, eps: float, targets: int = 1) -> int:
    """The largest L at which beta still leaves no more than eps beside the targets: floor(t + t eps/(1-eps) e^(beta gap))"""
    _check(gap, targets, targets)
    _beta(beta)
    _eps(eps)
    power = beta * gap
    require(power < MOST, f"beta * gap < {MOST}", power, "Every context that fits a machine is guaranteed there.")
    return targets + math.floor(targets * eps / (1.0 - eps) * math.exp(power) / UP)


def owner_mass(half_gap: float, context: int, beta: float) -> float:
    """Attention of a head on the targets that it claims, at least: 1 / (1 + x + (L-1) x^2), x = e^(-beta gamma).

    x is the null key's share against a target, x^2 a non-edge's. More targets only add to it.
    """
    _check(half_gap, context, 1)
    _beta(beta)
    x = math.exp(-beta * half_gap)
    return 1.0 / (1.0 + x + (context - 1) * x * x)


def idle_leak(half_gap: float, context: int, beta: float) -> float:
    """Attention of a head that claims nothing on anything but its null key, at most: y / (1 + y), y = L e^(-beta gamma)."""
    _check(half_gap, context, 1)
    _beta(beta)
    y = context * math.exp(-beta * half_gap)
    return y / (1.0 + y)


def routed_error(half_gap: float, context: int, beta: float, heads: int = 1) -> float:
    """|sum of the heads' outputs - value of the target| / largest |value|, at most: (hL + 1) e^(-beta gamma).

    For an item with one target that one head claims: it scores at least tau + gamma there, and at most tau - gamma in the
    other heads. Non-targets take at most h (L-1) x in all; the owner gives the target 1 - x - (L-1) x^2 or more, and the
    other heads add at most (h-1) x to it. That sums to (hL + 1) x where (L-1) x <= h; beyond it nothing is claimed, and the
    bound is infinite. (Where several heads claim the target, its value comes as often, plus this error.)
    """
    _check(half_gap, context, 1)
    _beta(beta)
    require(heads >= 1, "heads >= 1", heads, "A channel has heads.")
    x = math.exp(-beta * half_gap)
    return (heads * context + 1) * x if (context - 1) * x <= heads else math.inf


def routed_beta(half_gap: float, context: int, eps: float, heads: int = 1) -> float:
    """beta = ln( (hL + 1)/eps ) / gamma: the target's value arrives to within eps of the largest value."""
    _check(half_gap, context, 1)
    _eps(eps)
    require(heads >= 1, "heads >= 1", heads, "A channel has heads.")
    return math.log((heads * context + 1) / eps) / half_gap * UP


def routed_context(half_gap: float, beta: float, eps: float, heads: int = 1) -> int:
    """The largest L at which beta still routes to within eps: floor( (eps e^(beta gamma) - 1) / h ). 0: none"""
    _check(half_gap, 1, 1)
    _beta(beta)
    _eps(eps)
    power = beta * half_gap
    require(power < MOST, f"beta * half_gap < {MOST}", power, "Every context that fits a machine is guaranteed there.")
    return max(0, math.floor((eps * math.exp(power) / UP - 1.0) / heads))


def null_key(tau: float) -> tuple[float, float]:
    """The extra dimension of a head that carries its null key: what to append to every query, and to the null key.

    Their product is tau; item keys get 0 there, and the null key is 0 elsewhere. It costs D_K + h in all.
    """
    root = math.sqrt(abs(tau))
    return root, math.copysign(root, tau)


def _check(gap: float, context: int, targets: int) -> None:
    require(gap > 0 and math.isfinite(gap), "gap > 0", gap, "Only a channel that separates guarantees anything.")
    require(targets >= 1, "targets >= 1", targets, "Attention needs a target.")
    require(context >= targets, f"context >= targets ({targets})", context, "The targets are in the context.")


def _beta(beta: float) -> None:
    require(beta >= 0 and math.isfinite(beta), "beta >= 0", beta, "An inverse temperature is no smaller than 0.")


def _eps(eps: float) -> None:
    require(0 < eps < 1, "0 < eps < 1", eps, "It is a share of the attention, or of the largest value.")
