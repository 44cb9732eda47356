"""Questions answered by what a store holds, and by nothing else: nothing is trained here, ever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from keyspan.evidence.store import Store
from keyspan.lab.agenda import Agenda
from keyspan.runners.driver import Outcome
from keyspan.specs import Question, canonical
from keyspan.verdict import Verdict


class Recall:
    """The answers that a store can give. Every verdict is looked up once, every question answered once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Verdict] = {}
        self._gone: set[str] = set()
        self._answers: dict[str, Outcome | None] = {}

    def outcome(self, question: Question) -> Outcome | None:
        """The answer, or None where the store lacks a member on the question's path."""
        key = canonical(question.to_json())
        if key not in self._answers:
            self._answers[key] = self._answer(question)
        return self._answers[key]

    def outcomes(self, questions: Sequence[Question]) -> list[Outcome] | None:
        """The answers of all of them, or None as soon as one has none."""
        found = []
        for question in questions:
            outcome = self.outcome(question)
            if outcome is None:
                return None
            found.append(outcome)
        return found

    def _answer(self, question: Question) -> Outcome | None:
        agenda = Agenda([question], self._lookup)
        if agenda.wanted():
            return None
        (answer,) = agenda.answers
        return None if answer is None else Outcome(answer, (), {})

    def _lookup(self, ids: Sequence[str]) -> Mapping[str, Verdict]:
        new = [run_id for run_id in ids if run_id not in self._known and run_id not in self._gone]
        if new:
            found = self._store.get_many(new)
            self._known |= {run_id: record.verdict for run_id, record in found.items()}
            self._gone.update(run_id for run_id in new if run_id not in found)
        return {run_id: self._known[run_id] for run_id in ids if run_id in self._known}
