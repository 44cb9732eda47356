"""What heads of low rank can hold, from the width of the set that their weights come from: no fitted constant.

Whether some M of a set K meets Gaussian constraints is decided by comparing two numbers (Gordon 1988): the width of K,
w(K) = E sup over M in K, |M| <= 1, of <G, M>, and how far a Gaussian vector lies from what the constraints allow, whose mean
square is P (`theory.gardner`). For h heads of rank d_k

    w^2 = h E [sum of the d_k largest squared singular values of a Gaussian d x d matrix] = h d^2 F(t),   t = d_k/d

by the quarter-circle law, with an angle phi between 0 and pi/2:

    t = (2/pi) (phi - sin(phi) cos(phi)),     F = (2/pi) (phi - sin(4 phi)/4)

F(t) is above 2t - t^2, the share of degrees of freedom, by a factor of 2 for thin heads and 1 for full ones: a thin head may
choose its subspace. Symbols as in `theory.bounds`.
"""

from __future__ import annotations

import math

from keyspan.theory.gardner import gardner_load
from keyspan.theory.solving import check_sizes, root


def top_share(rank: float) -> float:
    """F(t): the share of a square Gaussian matrix's squared singular values that the t d largest of them have.

    rank: t = d_k/d, from 0 to 1
    """
    return _share(root(_rank, rank, 0.0, math.pi / 2)) if rank < 1 else 1.0


def rank_needed(share: float) -> float | None:
    """t with F(t) = share; None above 1."""
    if share > 1:
        return None
    return _rank(root(_share, share, 0.0, math.pi / 2)) if share < 1 else 1.0


def width_budget(
    edges: int, items: int, d_model: int, heads: int, sources: int | None = None, excess: float = 1.0
) -> float | None:
    """D_K = h d t with h d^2 F(t) = excess P(m', h): what h heads need whose edges have owners (conjectured).

    None where the heads are too few at any width. excess: what a solver needs more than that    sources: as in
    `gardner_load`. That less than P cannot do is proven for constraints with independent Gaussian features; that x_i x_j^T
    may be taken for such, and that P is enough, are the conjectures (docs/law.md)
    """
    check_sizes(d_model=d_model)
    rank = rank_needed(excess * gardner_load(edges, items, heads, sources) / (heads * d_model**2))
    return None if rank is None else heads * d_model * rank


def width_floor(edges: int, items: int, d_model: int, heads: int) -> float | None:
    """What h heads need whichever of them holds which edge: D_K with w = sqrt(P) - sqrt(2 m' ln h) (conjectured).

    There are h^m' ways to give edges to heads, and how far a Gaussian vector lies from what one of them allows falls short of
    its mean by u with probability e^(-u^2/2) at most. None where even so the heads are too few at any width
    """
    check_sizes(d_model=d_model)
    left = math.sqrt(gardner_load(edges, items, heads)) - math.sqrt(2 * edges * math.log(heads))
    rank = rank_needed(max(0.0, left) ** 2 / (heads * d_model**2))
    return None if rank is None else heads * d_model * rank


def rho_of_width(rank: float) -> float:
    """rho(t) = (2t - t^2) / F(t): the share of P that degrees of freedom must make up for, from 1/2 to 1."""
    return (2 * rank - rank * rank) / top_share(rank)


def _rank(angle: float) -> float:
    return 2 / math.pi * (angle - math.sin(angle) * math.cos(angle))


def _share(angle: float) -> float:
    return 2 / math.pi * (angle - math.sin(4 * angle) / 4)
