"""Labelled examples on the device: each instance once, whoever uses it; minibatches by index, in the order of training.

Queries and labels of all instances lie in one pool. Contexts lie beside them (`random`), once for an instance (`fixed`),
or as rows of a bag with their places in it (`perm`). So members of different T, n and instance share a crew, and what a
step moves is a table of indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from keyspan.problems.contexts import LabelInstance, epochs_at_once

Ints = NDArray[np.int64]
KEPT = 0.5  # of a pool's rows must be somebody's, or the others are thrown out


@dataclass(frozen=True)
class Sizes:
    """What examples are padded to, and how they are kept.

    batch: examples of a step    context: tokens    width: of a token    shared: one context an instance
    """

    batch: int
    context: int
    width: int
    shared: bool
    device: torch.device
    dtype: torch.dtype


@dataclass
class _Orders:
    """The orders of training of one instance, a group of epochs at a time."""

    instance: LabelInstance
    group: int = -1
    rows: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))

    def of(self, epoch: int) -> Ints:
        """The permutation of an epoch. returns: (T,)"""
        size = epochs_at_once(self.instance.load)
        if epoch // size != self.group:
            self.group = epoch // size
            self.rows = self.instance.order(self.group * size, size)
        return np.asarray(self.rows[epoch % size])


class Examples:
    """What a crew of layers looks at.

    queries: (rows, width)    labels: (rows,)    contexts: (rows, n, width); or None, and (instances, n, width) in `shared`;
    or None, and places in `bag` (tokens, width) in `index` (rows, n)
    Per member: `closed` (members, n), -inf at padded tokens; `place` (members, batch), its examples of this step;
    `weight` (members, batch), what each counts; `right`, whether all of them were right when last looked at
    """

    def __init__(self, instances: Sequence[LabelInstance], which: Sequence[int], tokens: Sequence[int], sizes: Sizes) -> None:
        self.sizes, self.instances = sizes, list(instances)
        self.which, self.tokens = list(which), list(tokens)
        self.orders = [_Orders(i) for i in self.instances]
        self._pool()
        self._members()

    # -------------------------------------------------------------------------------------------------- the pool

    def _pool(self) -> None:
        """Everything that does not depend on the members."""
        first = self.instances[0]
        self.start = np.cumsum([0, *(i.load for i in self.instances)]).tolist()
        self.queries = self._on_device([i.queries for i in self.instances])
        labels = np.concatenate([i.labels for i in self.instances])
        exact = first.classes is not None
        self.labels = torch.from_numpy(labels).to(self.sizes.device, torch.int64 if exact else self.sizes.dtype)
        self.contexts = self.shared = self.bag = self.index = None
        if first.bag is not None:
            bags = [i.bag for i in self.instances if i.bag is not None]
            shift = np.cumsum([0, *(len(b) for b in bags)])
            index = np.zeros((self.start[-1], self.sizes.context), dtype=np.int64)
            for k, i in enumerate(self.instances):
                assert i.index is not None
                index[self.start[k] : self.start[k + 1], : i.index.shape[1]] = i.index + shift[k]
            self.bag, self.index = self._on_device(bags), torch.from_numpy(index).to(self.sizes.device)
            return
        contexts = self._on_device([i.contexts for i in self.instances if i.contexts is not None])
        if self.sizes.shared:
            self.shared = contexts
        else:
            self.contexts = contexts

    def _on_device(self, parts: Sequence[NDArray[np.float32]]) -> torch.Tensor:
        """Arrays with a leading axis of rows, joined and padded: width, and tokens where there are such."""
        shape = (self.sizes.context, self.sizes.width)[2 - (parts[0].ndim - 1) :]
        if len(parts) == 1 and parts[0].shape[1:] == shape:
            whole = parts[0]  # as it lies
        else:
            whole = np.zeros((sum(map(len, parts)), *shape), dtype=np.float32)
            start = 0
            for part in parts:
                whole[(slice(start, start + len(part)), *(slice(0, s) for s in part.shape[1:]))] = part
                start += len(part)
        return torch.from_numpy(whole).to(device=self.sizes.device, dtype=self.sizes.dtype)

    # ------------------------------------------------------------------------------------------------ the members

    def _members(self) -> None:
        members, s = len(self.which), self.sizes
        self.counts = [self.instances[k].load for k in self.which]
        closed = np.zeros((members, s.context))
        for m, n in enumerate(self.tokens):
            closed[m, n:] = -np.inf
        self.closed = torch.from_numpy(closed).to(device=s.device, dtype=s.dtype)
        self.dataset = torch.tensor(self.which, dtype=torch.int64, device=s.device)
        self.place = torch.zeros((members, s.batch), dtype=torch.int64, device=s.device)
        self.weight = torch.zeros((members, s.batch), dtype=s.dtype, device=s.device)
        self.right = torch.zeros(members, dtype=torch.bool, device=s.device)
        self.show([0] * members)

    def show(self, steps: Sequence[int]) -> None:
        """Put before every member its examples at its own step: the next ones of its epoch's permutation.

        The last step of an epoch has what is left, so that every example is seen once an epoch.
        """
        batch = self.sizes.batch
        places, counts = np.zeros((len(steps), batch), dtype=np.int64), np.zeros(len(steps), dtype=np.int64)
        for m, (step, k) in enumerate(zip(steps, self.which, strict=True)):
            epoch, position = divmod(step, -(-self.counts[m] // batch))
            mine = self.orders[k].of(epoch)[position * batch : (position + 1) * batch]
            places[m, : len(mine)] = mine
            places[m] += self.start[k]
            counts[m] = len(mine)
        self._put(places, counts)

    def part(self, first: int) -> None:
        """Put before every member its examples `first` .. `first` + batch, in their own order; beyond its last, none."""
        counts = np.clip(np.array(self.counts) - first, 0, self.sizes.batch)
        offsets = np.arange(self.sizes.batch)[None]
        places = (
            np.where(offsets < counts[:, None], first + offsets, 0) + np.array([self.start[k] for k in self.which])[:, None]
        )
        self._put(places, counts)

    def _put(self, places: Ints, counts: Ints) -> None:
        weight = (np.arange(self.sizes.batch)[None] < counts[:, None]) / np.maximum(counts, 1)[:, None]
        self.place.copy_(torch.from_numpy(places))
        self.weight.copy_(torch.from_numpy(weight))

    # -------------------------------------------------------------------------------------- leaving and joining

    def select(self, keep: Sequence[int]) -> Examples:
        """Those of some members. The pool stays whole until half of it is nobody's."""
        out = object.__new__(Examples)
        out.__dict__.update(self.__dict__)
        out.which, out.tokens = [self.which[m] for m in keep], [self.tokens[m] for m in keep]
        used = sorted(set(out.which))
        rows = sum(self.instances[k].load for k in used)
        if rows < KEPT * self.start[-1]:
            instances = [self.instances[k] for k in used]
            return Examples(instances, [used.index(k) for k in out.which], out.tokens, self.sizes)
        out._members()
        return out

    def join(self, other: Examples) -> Examples:
        """Those of both, the members of `other` last; an instance that both have is kept once."""
        instances = list({id(i): i for i in (*self.instances, *other.instances)}.values())
        place = {id(i): k for k, i in enumerate(instances)}
        which = [place[id(e.instances[k])] for e in (self, other) for k in e.which]
        return Examples(instances, which, self.tokens + other.tokens, self.sizes)
