"""The losses of a channel, pair by pair: functions of `z = S + b` and of whether the pair is an edge, and nothing else.

Every loss of a channel is `L = (1/m') [ sum_edges edge(z) + sum_non-edges other(z) ]`. Whatever computes a channel (tiles
here, fused kernels elsewhere) takes the four scalar functions of this table, each times 1/m':

| loss | `other(z)` | its slope | `edge(z)` | its slope |
|---|---|---|---|---|
| bce | softplus(z) | sigmoid(z) | softplus(z) - z | sigmoid(z) - 1 |
| squared-hinge | max(0, 1 + z)^2 | 2 max(0, 1 + z) | max(0, 1 - z)^2 | -2 max(0, 1 - z) |
"""

from __future__ import annotations

from typing import Protocol

import torch


class PairLoss(Protocol):
    """z: (block, rows, items)    edges: (block, edges), positions in the flattened tile"""

    def slope(self, z: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """`m' dL/dz` of every pair of a tile. returns: as z"""
        ...

    def others(self, z: torch.Tensor) -> torch.Tensor:
        """`other(z)` of every pair, edge or not. returns: as z"""
        ...

    def turn(self, z: torch.Tensor) -> torch.Tensor:
        """`edge(z) - other(z)`: what a pair adds by being an edge. z, returns: (block, edges)"""
        ...


class Bce:
    """Binary cross-entropy: `reference.bce`."""

    def slope(self, z: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """An edge's slope is that of a non-edge less 1."""
        g = torch.sigmoid(z).flatten(1)
        return g.scatter_add_(1, edges, torch.full_like(edges, -1, dtype=g.dtype)).view_as(z)

    def others(self, z: torch.Tensor) -> torch.Tensor:
        """softplus(z)"""
        return torch.nn.functional.softplus(z, threshold=40.0)

    def turn(self, z: torch.Tensor) -> torch.Tensor:
        """softplus(-z) = softplus(z) - z"""
        return -z


class SquaredHinge:
    """Squared hinge of margin 1: `reference.channel_hinge`. Pairs that are right by the margin have no gradient at all."""

    def slope(self, z: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Twice the shortfall, upwards for an edge."""
        there = z.flatten(1).gather(1, edges)
        g = (z + 1.0).clamp_(min=0.0).mul_(2.0).flatten(1)
        return g.scatter_(1, edges, (1.0 - there).clamp_(min=0.0).mul_(-2.0)).view_as(z)

    def others(self, z: torch.Tensor) -> torch.Tensor:
        """max(0, 1 + z)^2"""
        return (z + 1.0).clamp_(min=0.0).square_()

    def turn(self, z: torch.Tensor) -> torch.Tensor:
        """max(0, 1 - z)^2 - max(0, 1 + z)^2"""
        return (1.0 - z).clamp_(min=0.0).square_() - (z + 1.0).clamp_(min=0.0).square_()


PAIR_LOSSES: dict[str, PairLoss] = {"bce": Bce(), "squared-hinge": SquaredHinge()}
