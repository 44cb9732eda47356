"""Libraries on the device: which sequences every member is shown at a step, and how a library grows (`problems.shown`).

Sequences come in an order that is shuffled anew each time round. The order is an affine map: position p of round r shows the
active sequence `(a_r p + c_r) mod active`, with a_r a prime larger than any library and c_r random, both from the member's
own stream. So an order costs nothing, needs no memory, and follows a set that grows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from keyspan.attention.instrument import Params
from keyspan.problems.shown import Ride
from keyspan.seeds import Stream
from keyspan.specs import Run

Tensor = torch.Tensor
ROUNDS = 1024  # shuffles that are drawn; then the first comes again
LARGEST = 2**21  # sequences in a library: below the primes


@cache
def _primes(count: int = 256) -> NDArray[np.int64]:
    """The first so many primes above `LARGEST`: prime to the size of any library."""
    candidates = np.arange(LARGEST + 1, LARGEST + 40 * count, 2, dtype=np.int64)
    small = [n for n in range(3, 1460, 2) if all(n % d for d in range(3, int(n**0.5) + 1, 2))]
    prime = np.ones(candidates.size, dtype=bool)
    for n in small:
        prime &= candidates % n != 0
    return candidates[prime][:count]


@dataclass(frozen=True)
class Shelf:
    """The libraries of some members. tokens: (members, most sequences, N)    count: (members,), of each
    entropy: (members,), nats of a sequence given its prompt    shuffles: (members, rounds, 2), a_r and c_r
    """

    tokens: Tensor
    count: Tensor
    entropy: Tensor
    shuffles: Tensor

    def select(self, keep: Tensor) -> Shelf:
        """Some members only."""
        return Shelf(self.tokens[keep], self.count[keep], self.entropy[keep], self.shuffles[keep])

    def join(self, other: Shelf) -> Shelf:
        """Members of both."""
        mine, theirs = vars(self).values(), vars(other).values()
        return Shelf(*(torch.cat([a, b]) for a, b in zip(mine, theirs, strict=True)))


def shuffles(run: Run) -> NDArray[np.int64]:
    """The order of a member's data, from its problem's id. returns: (rounds, 2)"""
    stream = Stream(run.problem_id, "order")
    primes = _primes()
    return np.stack([primes[stream.integers(len(primes), ROUNDS)], stream.integers(LARGEST, ROUNDS)], axis=1)


def memory(riding: Ride | None, counts: Sequence[int], most: int, device: torch.device) -> Params:
    """What members carry along. counts: sequences in each library    most: places in every one

    at, round: where they are in the order    active: how many sequences they are shown    rank: the library's sequences,
    the active ones first    grew, looked: the steps of the last growth and of the last look (a member that was stopped right
    after a look is looked at again when it goes on)
    """
    members = len(counts)

    def of(values: Sequence[int]) -> Tensor:
        return torch.tensor(list(values), dtype=torch.int64, device=device)

    if riding is None:
        return {"at": of([0] * members), "round": of([0] * members), "active": of(counts)}
    rank = torch.arange(most, device=device).repeat(members, 1)
    start = [min(riding.start, count) for count in counts]
    zeros = {name: of([0] * members) for name in ("at", "round", "grew", "looked")}
    return zeros | {"active": of(start), "rank": rank}


def show(shelf: Shelf, memory: Params, out: Tensor) -> None:
    """The next batch of every member, into `out`, and the place in the order moved on. out: (members, batch, N)"""
    batch = out.shape[1]
    active = memory["active"][:, None]
    place = memory["at"][:, None] + torch.arange(batch, device=out.device)
    turn = (memory["round"][:, None] + place // active) % ROUNDS
    key = shelf.shuffles.gather(1, turn[:, :, None].expand(-1, -1, 2))
    which = (key[..., 0] * (place % active) + key[..., 1]) % active
    if "rank" in memory:
        which = memory["rank"].gather(1, which)
    torch.gather(shelf.tokens, 1, which[:, :, None].expand(-1, -1, shelf.tokens.shape[2]), out=out)
    after = memory["at"] + batch
    memory["round"] += after // memory["active"]
    memory["at"].copy_(after % memory["active"])


def ride(riding: Ride, memory: Params, surprise: Callable[[], Tensor], shelf: Shelf, steps: Sequence[int]) -> None:
    """Grow or shed every member's active set, in place, by its own surprise.

    surprise: of every sequence, in the order of the rank, in nats. returns (members, at least the most active)
    """
    if all(step >= riding.settle for step in steps):
        return
    each = surprise()
    for member, step in enumerate(steps):
        if step == int(memory["looked"][member]):
            continue
        memory["looked"][member] = step
        active, count = int(memory["active"][member]), int(shelf.count[member])
        own = each[member, :active]
        relative = float(own.double().mean() / shelf.entropy[member])
        if step < riding.hold and relative <= riding.theta and active < count:
            _set(memory, member, min(count, active + max(1, round(riding.growth * active))))
            memory["grew"][member] = step
        elif riding.hold <= step < riding.settle:
            left = (riding.steps - step) / (riding.steps - riding.hold)
            line = (riding.theta * left + riding.floor) * float(shelf.entropy[member])
            order = torch.argsort(own, stable=True)
            mean = own[order].double().cumsum(0) / torch.arange(1, active + 1, device=own.device)
            fits = int((mean <= line).sum())  # the means rise, so these are the first ones
            stay = max(1, fits, active - max(1, round(riding.shed * active)))
            if stay < active:
                memory["rank"][member, :active] = memory["rank"][member, :active][order]
                _set(memory, member, stay)


def _set(memory: Params, member: int, active: int) -> None:
    """Another number of active sequences; the order begins a new round."""
    memory["active"][member] = active
    memory["at"][member] = 0
    memory["round"][member] += 1
