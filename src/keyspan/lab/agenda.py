"""Several questions at once. Each goes on to its next round as soon as its own members are in, whatever the others wait for.

No torch, no store: verdicts are heard as members finish, and looked up where they may be known already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from keyspan.lab.search import Answer, Memo, Wanted, propose
from keyspan.specs import Question, Run
from keyspan.verdict import Verdict

Lookup = Callable[[Sequence[str]], Mapping[str, Verdict]]


@dataclass(eq=False)
class _Item:
    """A question and what its round still waits for. An answered one waits for nothing more."""

    number: int
    question: Question
    waits: set[str] = field(default_factory=set)
    answer: Answer | None = None
    measured: int = 0
    memo: Memo = field(default_factory=dict)


class Agenda:
    """What to train next. lookup: verdicts by run id, of those that are known elsewhere (a store, a file of records)

    A member that finishes touches the questions that wait for it, and no others: there may be ten thousand of them.
    """

    def __init__(self, questions: Sequence[Question], lookup: Lookup = lambda ids: {}) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self._items = [_Item(number, question) for number, question in enumerate(questions)]
        self._ready = deque(self._items)
        self._answered: deque[_Item] = deque()
        self._waiting: dict[str, list[_Item]] = {}
        self._lookup = lookup
        self._handed: set[str] = set()
        self.measured = 0  # members on the paths of the open questions that are measured already

    def hear(self, run_id: str, verdict: Verdict) -> None:
        """A member has finished."""
        self.verdicts[run_id] = verdict
        for item in self._waiting.pop(run_id, ()):
            item.waits.discard(run_id)
            if not item.waits:
                self._ready.append(item)

    def wanted(self, enough: int | None = None) -> list[Run]:
        """Members to begin now: the next round of every question that waits for nothing. Each is named once.

        enough: of so many, the questions that are left may be asked next time
        """
        fresh: dict[str, Run] = {}
        while self._ready and (enough is None or len(fresh) < enough):
            new = self._next(self._ready.popleft())
            fresh |= {run_id: run for run_id, run in new.items() if run_id not in self._handed}
        self._handed |= fresh.keys()
        return list(fresh.values())

    def _next(self, item: _Item) -> dict[str, Run]:
        """What a question lacks after everything that can be looked up; nothing, once it is answered."""
        while True:
            step = propose(item.question, self.verdicts, item.memo)
            if isinstance(step, Answer):
                self.measured -= item.measured
                item.answer, item.measured, item.memo = step, 0, {}
                self._answered.append(item)
                return {}
            assert isinstance(step, Wanted)
            runs = {run.run_id: run for run in step.runs}
            self.verdicts |= self._lookup(list(runs))
            left = {run_id: run for run_id, run in runs.items() if run_id not in self.verdicts}
            if left:
                self.measured += step.measured - item.measured
                item.measured, item.waits = step.measured, set(left)
                for run_id in left:
                    self._waiting.setdefault(run_id, []).append(item)
                return left

    def pop_answered(self) -> tuple[int, Answer] | None:
        """The number of a question that has been answered, and its answer; each once, and then forgotten here."""
        if not self._answered:
            return None
        item = self._answered.popleft()
        answer, item.answer = item.answer, None
        assert answer is not None
        return item.number, answer

    def forget(self, run_ids: Iterable[str]) -> None:
        """Verdicts that may be looked up again if they are needed."""
        for run_id in run_ids:
            self.verdicts.pop(run_id, None)

    @property
    def answers(self) -> list[Answer | None]:
        """In the order of the questions; None where members are missing."""
        return [item.answer for item in self._items]

    @property
    def left(self) -> int:
        """Members that open questions wait for, as far as they are known yet."""
        return len(self._waiting)
