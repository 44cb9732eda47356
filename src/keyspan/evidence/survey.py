"""What a store holds, in one pass: how many runs of which kind, by which recipes, with which seeds, on which machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from keyspan.evidence.record import Record
from keyspan.specs import canonical

FACTS = ("device", "kernel", "machine", "python", "torch", "keyspan")  # of the provenance: what a machine is known by


@dataclass
class Survey:
    """Counts that grow as records come by. Memory: a number for every distinct recipe, machine and seed, none for a run.

    kinds: (problem, status) -> runs    recipes: canonical JSON -> runs    machines: facts -> runs, seconds
    replicates: of the problems, -> runs    arithmetics, stoppings: -> runs    first, last: when runs were recorded
    """

    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    recipes: dict[str, tuple[Mapping[str, Any], int]] = field(default_factory=dict)
    stoppings: dict[str, tuple[Mapping[str, Any], int]] = field(default_factory=dict)
    machines: Counter[tuple[str, ...]] = field(default_factory=Counter)
    seconds: Counter[tuple[str, ...]] = field(default_factory=Counter)
    replicates: Counter[int] = field(default_factory=Counter)
    arithmetics: Counter[str] = field(default_factory=Counter)
    first: str | None = None
    last: str | None = None

    def add(self, record: Record) -> None:
        """Take a record in."""
        run, facts = record.run, record.provenance
        self.kinds[record.kind, str(record.verdict.status)] += 1
        for book, part in ((self.recipes, run["recipe"]), (self.stoppings, run["stopping"])):
            key = canonical(part)
            book[key] = part, book[key][1] + 1 if key in book else 1
        machine = tuple(str(facts.get(name, "")) for name in FACTS)
        self.machines[machine] += 1
        seconds = facts.get("seconds")
        if isinstance(seconds, int | float) and not isinstance(seconds, bool):
            self.seconds[machine] += seconds  # type: ignore[assignment]
        self.replicates[int(run["replicate"])] += 1
        self.arithmetics[str(run["arithmetic"])] += 1
        created = facts.get("created")
        if isinstance(created, str):
            self.first = created if self.first is None else min(self.first, created)
            self.last = created if self.last is None else max(self.last, created)

    @property
    def runs(self) -> int:
        """How many records came by."""
        return sum(self.kinds.values())

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "runs": self.runs,
            "kinds": [{"problem": k, "status": s, "runs": n} for (k, s), n in sorted(self.kinds.items())],
            "recipes": [{"runs": n, "recipe": dict(part)} for part, n in self.recipes.values()],
            "stopping": [{"runs": n, "stopping": dict(part)} for part, n in self.stoppings.values()],
            "machines": [
                dict(zip(FACTS, machine, strict=True)) | {"runs": n, "seconds": float(self.seconds[machine])}
                for machine, n in self.machines.most_common()
            ],
            "seeds": {"distinct": len(self.replicates), "sets": seed_sets(self.replicates)},
            "arithmetics": dict(self.arithmetics.most_common()),
            "first": self.first,
            "last": self.last,
        }


def seed_sets(replicates: Iterable[int]) -> list[list[int]]:
    """Replicates as ranges [first, last] of numbers without a gap."""
    sets: list[list[int]] = []
    for number in sorted(replicates):
        if sets and number == sets[-1][1] + 1:
            sets[-1][1] = number
        else:
            sets.append([number, number])
    return sets


def survey(records: Iterable[Record]) -> Survey:
    """The survey of these records."""
    found = Survey()
    for record in records:
        found.add(record)
    return found


class Slim:
    """Records with what a table of them needs and no more: parts of runs that are alike are held once."""

    def __init__(self, facts: tuple[str, ...] = ("steps", "keyspan")) -> None:
        self._facts = facts
        self._parts: dict[str, Any] = {}

    def __call__(self, record: Record) -> Record:
        run = {name: self._shared(part) if isinstance(part, Mapping) else part for name, part in record.run.items()}
        verdict = type(record.verdict)(
            status=record.verdict.status,
            exact=record.verdict.exact,
            scores={"f1": record.verdict.scores["f1"]} if "f1" in record.verdict.scores else dict(record.verdict.scores),
        )
        facts = {name: record.provenance[name] for name in self._facts if name in record.provenance}
        return Record(run_id=record.run_id, problem_id=record.problem_id, run=run, verdict=verdict, provenance=facts)

    def _shared(self, part: Mapping[str, Any]) -> Any:
        return self._parts.setdefault(canonical(part), part)
