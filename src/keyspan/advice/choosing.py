"""Of all numbers of heads and widths that obey some limits, the cheapest that reach the law's budget; and others near it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from keyspan.advice.costs import Cost, cost
from keyspan.errors import BadInput, require
from keyspan.evidence.design_law import DesignLaw, Size, heads_tried
from keyspan.evidence.shipped import Factor
from keyspan.theory import bounds

ALONE = (
    0.65  # P(m', 1) / d^2 from which a single head was measured to need a quarter more than several, and up to twice as much
)
HARDWARE = (8, 16)  # multiples of d_key that matrix units like
MOST_MULTIPLES = 64  # of `heads_multiple_of` that are tried


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a design must obey; by default nothing.

    heads_multiple_of: for tensor parallelism and the like    d_keys: widths to choose from    d_key_multiple_of: 8 or 16 for
    matrix units    parameters: of queries and keys, at most    cache_bytes: of one item's keys, at most    key_bytes: of one
    cached number    gqa_group: query heads that read one key head
    """

    heads_multiple_of: int = 1
    d_keys: tuple[int, ...] = ()
    d_key_multiple_of: int = 1
    parameters: int | None = None
    cache_bytes: int | None = None
    key_bytes: int = 2
    gqa_group: int = 1

    def __post_init__(self) -> None:
        for name in ("heads_multiple_of", "d_key_multiple_of", "key_bytes", "gqa_group"):
            _positive(getattr(self, name), name)
        for name in ("parameters", "cache_bytes"):
            if getattr(self, name) is not None:
                _positive(getattr(self, name), name)
        for d_key in self.d_keys:
            _positive(d_key, "d_keys")
        object.__setattr__(self, "d_keys", tuple(sorted(set(self.d_keys))))

    @property
    def unit(self) -> int:
        """Heads come in multiples of it."""
        return math.lcm(self.heads_multiple_of, self.gqa_group)

    @property
    def sharing(self) -> Factor:
        """2g / (g + 1): a head that shares its key matrix among g has (1 + 1/g) d d_k free parameters, not 2 d d_k
        (conjectured);
        the slack reaches down to no effect at all."""
        factor = 2 * self.gqa_group / (self.gqa_group + 1)
        return Factor(factor, math.log(factor))

    def width(self, least: float) -> int | None:
        """The smallest d_key allowed that is at least so wide; None: all are narrower."""
        if self.d_keys:
            fits = (d for d in self.d_keys if d >= least - 1e-9 and d % self.d_key_multiple_of == 0)
            return next(fits, None)
        step = self.d_key_multiple_of
        return step * max(1, math.ceil(least / step - 1e-9))

    def broken(self, spent: Cost) -> str | None:
        """Which limit a cost breaks."""
        if self.parameters is not None and spent.parameters > self.parameters:
            return f"`--max-parameters` must be at least {spent.parameters} to hold this graph, but got {self.parameters}"
        if self.cache_bytes is not None and spent.cache_bytes > self.cache_bytes:
            return f"`--cache-bytes` must be at least {spent.cache_bytes} to hold this graph, but got {self.cache_bytes}"
        return None


def _positive(value: object, name: str) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    require(whole and value >= 1, f"`--{name.replace('_', '-')}` is a whole number >= 1", value, "Leave it out.")  # type: ignore[operator]


@dataclass(frozen=True)
class Choice:
    """What to build. constructed: it is one head per edge"""

    heads: int
    d_key: int
    constructed: bool = False


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """Another design. why: what it is for    needed: the law's budget with so many heads, None where they cannot hold the graph
    (conjectured)    solver_capacity: D_K that a second-order solver needs with so many heads (conjectured)    feasible: whether
    `key_budget` is at least that    low, high: 90% interval of the budget that these heads need"""

    why: str
    heads: int
    d_key: int
    key_budget: int
    parameters: int
    bits_per_parameter: float
    cache_bytes: int
    flops_per_pair: int
    lower_bound: float
    needed: int | None
    low: int | None
    high: int | None
    solver_capacity: float | None
    feasible: bool


def choose(law: DesignLaw, size: Size, scale: float, limits: Limits, d_model: int, bits: float) -> Choice:
    """The smallest budget that reaches the law's for its heads; one head per edge where that costs no more, or where nothing
    else
    will do."""
    found = sorted(_candidates(law, size, scale, limits, d_model, bits))
    plain = limits == Limits(key_bytes=limits.key_bytes)
    if plain and (not found or found[0][0] >= size.edges):
        return Choice(size.edges, 1, constructed=True)
    if not found:
        widths = list(limits.d_keys) or f"multiples of {limits.d_key_multiple_of}"
        raise BadInput(
            f"`--d-keys` must have a width that holds this graph on a multiple of {limits.unit} heads, but got {widths}. "
            "Allow wider ones, or other numbers of heads."
        )
    fits = [(h, d) for _, _, h, d in found if limits.broken(cost(h, d, d_model, limits)) is None]
    if not fits:
        cheapest = min((cost(h, d, d_model, limits) for _, _, h, d in found), key=lambda c: (c.parameters, c.cache_bytes))
        raise BadInput(f"{limits.broken(cheapest)}. Allow more, or hold fewer edges.")
    return Choice(*fits[0])


def _candidates(
    law: DesignLaw, size: Size, scale: float, limits: Limits, d_model: int, bits: float
) -> Iterator[tuple[int, float, int, int]]:
    """(budget, need, heads, d_key) of what reaches the law's budget: of equal budgets, the one with most to spare comes
    first."""
    for heads in _heads(size, limits):
        need = law.need(size, heads)
        if need is None or (heads == 1 and size.items >= 16 and size.measures["load"] > ALONE):
            continue
        if need * scale > heads * size.d_model:
            continue  # a head wider than what it looks at holds nothing more
        proven = bounds.warren_budget(bits, size.items, d_model, heads)  # where the law is far from what was measured
        d_key = limits.width(max(need * scale, proven) / heads)
        if d_key is not None:
            yield heads * d_key, need, heads, d_key


def _heads(size: Size, limits: Limits) -> list[int]:
    """Powers of two up to m/8 where any number will do; else multiples of the unit, up to the same or a few of them."""
    tried = heads_tried(size.items)
    if limits.unit == 1 and not limits.d_keys:
        return list(tried)
    most = max(tried[-1], 4 * limits.unit)
    multiples = [limits.unit * k for k in range(1, MOST_MULTIPLES + 1) if limits.unit * k <= most]
    doubled = [limits.unit << k for k in range((most // limits.unit).bit_length()) if limits.unit << k <= most]
    return sorted({*multiples, *doubled})


# ------------------------------------------------------------------------------------------------------- alternatives


def alternatives(
    law: DesignLaw, size: Size, scale: float, limits: Limits, d_model: int, choice: Choice, bits: float, high: int
) -> tuple[Alternative, ...]:
    """Other head counts from a quarter to four times the design's, widths that matrix units like, and the interval's upper end;
    those that obey the limits."""
    wanted: list[tuple[str, int, int]] = []
    for heads in _around(choice, size, limits):
        need = law.need(size, heads)
        d_key = limits.width(size.d_model if need is None else need * scale / heads)
        if d_key is not None:
            wanted.append((f"{heads} head{'s' * (heads != 1)}", heads, d_key))
    for step in HARDWARE:
        if step % limits.d_key_multiple_of == 0 and not limits.d_keys:
            wide = replace(limits, d_key_multiple_of=step)
            best = min(_candidates(law, size, scale, wide, d_model, bits), default=None)
            if best is not None:
                wanted.append((f"d_key a multiple of {step}", *best[2:]))
    safe = limits.width(high / choice.heads)
    if safe is not None and not choice.constructed:
        wanted.append(("the interval's upper end", choice.heads, safe))
    found, seen = [], {(choice.heads, choice.d_key)}
    for why, heads, d_key in wanted:
        spent = cost(heads, d_key, d_model, limits)
        if (heads, d_key) not in seen and limits.broken(spent) is None:
            seen.add((heads, d_key))
            found.append(_alternative(why, law, size, scale, heads, d_key, spent, bits))
    return tuple(found)


def _around(choice: Choice, size: Size, limits: Limits) -> list[int]:
    near = [h for h in _heads(size, limits) if choice.heads <= 4 * h and h <= 4 * choice.heads and h != choice.heads]
    return [h for h in near if h.bit_count() == 1 or limits.unit > 1][:8]


def _alternative(
    why: str, law: DesignLaw, size: Size, scale: float, heads: int, d_key: int, spent: Cost, bits: float
) -> Alternative:
    need = law.need(size, heads)
    ends = None if need is None else law.interval(size, heads, need * scale)
    solver = bounds.gardner_budget(size.edges, size.items, size.d_model, heads)
    return Alternative(
        why=why,
        heads=heads,
        d_key=d_key,
        key_budget=spent.key_budget,
        parameters=spent.parameters,
        bits_per_parameter=bits / spent.parameters,
        cache_bytes=spent.cache_bytes,
        flops_per_pair=spent.flops_per_pair,
        lower_bound=bounds.warren_budget(bits, size.items, size.d_model, heads),
        needed=None if ends is None else ends[1],
        low=None if ends is None else ends[0],
        high=None if ends is None else ends[2],
        solver_capacity=solver,
        feasible=solver is not None and solver <= spent.key_budget,
    )
