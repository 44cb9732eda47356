"""The smallest size at which a construction is exact: which head counts are tried, and bisection over d_key in each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from keyspan.errors import BadInput
from keyspan.problems.relations import RelationInstance, Relations
from keyspan.runners.construct import run_of
from keyspan.theory.bounds import gardner_budget, heads_needed, trivial_budget
from keyspan.theory.constructions import BLOCKS, SINGLE, Plan, build, plan
from keyspan.theory.matchings import max_degree
from keyspan.theory.separation import gap

SHARES = (1 / 4, 1 / 2, 1 / 8, 3 / 8, 3 / 16, 3 / 4, 1 / 16, 1.0)  # edges of a head over d_model, in the order tried
SLOW = ("outer", "pinv", "ridge")  # need far more than the others: left out of `best` from LARGE items on
LARGE = 2048
DEAR = ("repair",)  # looks at all pairs in every round: left out of `best` from HUGE items on
HUGE = 8192
TRIED: dict[
    str, tuple[dict[str, Any], ...]
] = {  # parameters that the search goes through, where there is more than the usual plan
    "ridge": ({"ridge": 0.25}, {"ridge": 0.7}),
    "ridge+code": ({"ridge": 0.1}, {"ridge": 0.25}),
    "quiet": ({"quiet": 4.0}, {"quiet": 1.0}, {"quiet": 0.3}),
    "cca": ({"ridge": 0.3}, {"ridge": 1.0}),
}
CLEAR = 1e-9  # the gap that the cheap look must show, over the largest score, so that the judge will agree


@dataclass(frozen=True)
class Found:
    """What a method needed. key_budget: the smallest exact one found, None where there was none    margin, proven: of it
    tried: sizes built    plan: with which parameters    note: why there is none, or how it was looked for"""

    method: str
    heads: int | None = None
    d_key: int | None = None
    key_budget: int | None = None
    margin: float | None = None
    proven: bool = False
    tried: int = 0
    seconds: float = 0.0
    note: str = ""
    plan: Plan | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        data = asdict(self)
        return data | {"plan": None if self.plan is None else self.plan.to_json()}


def search(
    problem: Relations,
    replicate: int,
    names: Sequence[str],
    instance: RelationInstance,
    *,
    heads: int | None = None,
    d_key: int | None = None,
    told: Callable[[Found], None] = lambda found: None,
) -> tuple[Found, ...]:
    """The smallest exact key budget of every method.

    heads, d_key: held fixed where given    told: of each method, where there are several, when it is done
    A single method that does not apply is refused; one among several says so in its note.
    """
    identity = run_of(problem, replicate, plan("trivial"), 1, 1).problem_id
    all_found = []
    for name in names:
        all_found.append(_Hunt(name, instance, identity, heads, d_key, len(names) > 1).found())
        if len(names) > 1:
            told(all_found[-1])
    return tuple(all_found)


class _Hunt:
    """One method's search: budgets below the best so far are tried, so each success narrows what follows."""

    def __init__(
        self, name: str, instance: RelationInstance, identity: str, heads: int | None, d_key: int | None, among: bool
    ) -> None:
        self.name, self.instance, self.identity = name, instance, identity
        self.heads, self.d_key, self.among = heads, d_key, among
        self.edges, self.rows = instance.edges, instance.embeddings
        self.tried, self.refused, self.why = 0, 0, ""
        self.best: Found | None = None

    def found(self) -> Found:
        """The smallest exact budget, or why there is none."""
        began = time.monotonic()
        for names, most, why in ((SLOW, LARGE, "others need less"), (DEAR, HUGE, "it takes hours; ask for it by name")):
            if self.among and self.name in names and self.instance.items > most:
                return Found(self.name, note=f"not tried above {most} items: {why}")
        if self.name in SINGLE:
            self._single()
        elif self.name == "trivial":
            self._try(plan("trivial"), trivial_budget(len(self.edges)), 1)
        else:
            for chosen in self._plans():
                for count in self._head_counts():
                    self._bisect(chosen, count)
        seconds = round(time.monotonic() - began, 3)
        if self.best is None:
            no_use = self.refused == self.tried > 0
            if no_use and not self.among:
                raise BadInput(self.why)
            why = self.why if no_use else f"none below one head per edge, D_K {len(self.edges)}, or at d_key up to d_model"
            return Found(self.name, tried=self.tried, seconds=seconds, note=why)
        b = self.best
        return Found(self.name, b.heads, b.d_key, b.key_budget, b.margin, b.proven, self.tried, seconds, b.note, b.plan)

    def _single(self) -> None:
        if self.name == "circle":
            self._try(plan("circle"), 1, 2)
            return
        kinds = min(len(np.unique(self.edges[:, 0])), len(np.unique(self.edges[:, 1])))
        least = max(1, (kinds - 1).bit_length())
        for width in range(least, least + 64):  # random words may repeat at any width: the first without a repeat is taken
            if self._try(plan(self.name), 1, width) or self.refused:
                return

    def _plans(self) -> Iterator[Plan]:
        for change in TRIED.get(self.name, ({},)):
            yield replace(plan(self.name), **change)

    def _head_counts(self) -> list[int]:
        """Head counts to try: blocks of a share of d_model, or for `repair` from what a solver needs upwards."""
        items, d_model = self.rows.shape
        edges, degree = len(self.edges), max_degree(self.edges, items)
        if self.heads is not None:
            return [self.heads]
        if self.name == "repair":
            fewest = heads_needed(edges, items, d_model) or 1
            counts = [fewest * 2**n for n in (1, 0, 2, 3)]
        elif self.name == "cca":
            counts = [max(degree, round(edges / (share * d_model))) for share in (1.0, 0.75, 1.5, 2.0)]
        else:
            counts = [max(degree, math.ceil(edges / max(1, round(share * d_model)))) for share in SHARES]
        return list(dict.fromkeys(min(count, edges) for count in counts))

    def _bisect(self, chosen: Plan, heads: int) -> None:
        """The smallest exact d_key at this head count, if it would beat the best so far (exactness taken as monotone)."""
        top = trivial_budget(len(self.edges)) if self.best is None else (self.best.key_budget or 0) - 1
        high = min(top // heads, self.rows.shape[1])
        if self.d_key is not None:
            if self.d_key <= high:
                self._try(chosen, heads, self.d_key)
            return
        low = 0  # fails
        if high < 1:
            return
        expected = 0
        if self.name == "repair":
            expected, low, high = self._bracket(chosen, heads, high)
        elif not self._try(chosen, heads, high):
            return
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._try(chosen, heads, middle) else (middle, high)
        while 0 < low == expected and self._try(chosen, heads, low):  # it was expected to fail, and not tried
            low = expected = low - 1

    def _bracket(self, chosen: Plan, heads: int, limit: int) -> tuple[int, int, int]:
        """A d_key expected to fail, one that fails (or the same) and an exact one; zeros where there is none up to `limit`.

        What a solver is expected to need lies between: far below it, rounds are dear and of no use.
        """
        items, d_model = self.rows.shape
        expected = gardner_budget(len(self.edges), items, d_model, heads) or d_model * heads
        low, high = max(0, math.floor(0.9 * expected / heads)), min(limit, math.ceil(1.5 * expected / heads))
        expected_to_fail = low
        if low >= limit:
            return 0, 0, 0
        while not self._try(chosen, heads, high):
            if high >= limit:
                return 0, 0, 0
            low, high = high, min(limit, math.ceil(1.5 * high))
        return expected_to_fail, low, high

    def _try(self, chosen: Plan, heads: int, d_key: int) -> bool:
        """Build one size and look whether it separates."""
        self.tried += 1
        try:
            built = build(chosen, heads, d_key, self.edges, self.rows, self.identity)
        except BadInput as error:
            self.refused, self.why = self.refused + 1, str(error)
            return False
        if built.proven:  # no look at the pairs is needed
            return self._keep(chosen, heads, d_key, float(built.margin or 0.0), True)
        seen = gap(self.rows, self.edges, built.w_query, built.w_key)
        clear = CLEAR * max(abs(seen.min_edge), abs(seen.max_nonedge), 1e-300)
        if not seen.min_edge - seen.max_nonedge > clear:
            return False
        return self._keep(chosen, heads, d_key, seen.min_edge - seen.max_nonedge, False)

    def _keep(self, chosen: Plan, heads: int, d_key: int, margin: float, proven: bool) -> bool:
        """Remember an exact size, if it is the smallest so far."""
        note = "bisection over d_key at each number of heads" if self.name in BLOCKS else ""
        if self.best is None or heads * d_key < (self.best.key_budget or 0):
            self.best = Found(self.name, heads, d_key, heads * d_key, margin, proven, note=note, plan=chosen)
        return True
