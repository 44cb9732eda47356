"""Several questions at once. Each goes on to its next round as soon as its own members are in, whatever the others wait for.

No torch, no store: verdicts are heard as members finish, and looked up where they may be known already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from keyspan.lab.search import Answer, Wanted, propose
from keyspan.specs import Question, Run
from keyspan.verdict import Verdict

Lookup = Callable[[Sequence[str]], Mapping[str, Verdict]]


@dataclass
class _Item:
    """A question and what its round still waits for. An answered one waits for nothing more."""

    question: Question
    waits: set[str] = field(default_factory=set)
    answer: Answer | None = None
    measured: int = 0


class Agenda:
    """What to train next. lookup: verdicts by run id, of those that are known elsewhere (a store, a file of records)"""

    def __init__(self, questions: Sequence[Question], lookup: Lookup = lambda ids: {}) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self._items = [_Item(question) for question in questions]
        self._lookup = lookup
        self._handed: set[str] = set()

    def hear(self, run_id: str, verdict: Verdict) -> None:
        """A member has finished."""
        self.verdicts[run_id] = verdict
        for item in self._items:
            item.waits.discard(run_id)

    def wanted(self) -> list[Run]:
        """Members to begin now: the next round of every question that waits for nothing. Each is named once."""
        new: dict[str, Run] = {}
        for item in self._items:
            if item.answer is None and not item.waits:
                new |= {run.run_id: run for run in self._next(item)}
        fresh = {run_id: run for run_id, run in new.items() if run_id not in self._handed}
        self._handed |= fresh.keys()
        return list(fresh.values())

    def _next(self, item: _Item) -> list[Run]:
        """What a question lacks after everything that can be looked up, or its answer."""
        while True:
            step = propose(item.question, self.verdicts)
            if isinstance(step, Answer):
                item.answer = step
                return []
            assert isinstance(step, Wanted)
            ids = [run.run_id for run in step.runs]
            self.verdicts |= self._lookup(ids)
            left = [run for run, run_id in zip(step.runs, ids, strict=True) if run_id not in self.verdicts]
            if left:
                item.measured = step.measured
                item.waits = {run.run_id for run in left}
                return left

    @property
    def measured(self) -> int:
        """Members on the paths of the open questions that are measured already."""
        return sum(item.measured for item in self._items if item.answer is None)

    @property
    def answers(self) -> list[Answer | None]:
        """In the order of the questions; None where members are missing."""
        return [item.answer for item in self._items]

    @property
    def left(self) -> int:
        """Members that open questions wait for, as far as they are known yet."""
        return len({run_id for item in self._items for run_id in item.waits})
