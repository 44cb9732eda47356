"""Several questions at once: each walks its own path, asks for nothing twice, and waits for nobody."""

from __future__ import annotations

import pytest

from keyspan.lab.agenda import Agenda
from keyspan.lab.search import Answer, Wanted, propose
from keyspan.problems.relations import Relations
from keyspan.runners.questions import relations_question
from keyspan.specs import Channel, Question, Run
from keyspan.verdict import Status, Verdict


def verdict(run: Run) -> Verdict:
    """A channel holds its graph from a budget of twice its heads and half its items on."""
    assert isinstance(run.instrument, Channel) and isinstance(run.problem, Relations)
    good = run.instrument.key_budget >= run.problem.items // 2 + 2 * run.instrument.heads
    return Verdict(status=Status.MEASURED, exact=good, scores={"f1": 1.0 if good else 0.3})


def question(items: int, seeds: int = 2) -> Question:
    return relations_question(Relations(items=items, d_model=items // 2), heads=[1, 2, 4], seeds=seeds)


def alone(asked: Question) -> Answer:
    known: dict[str, Verdict] = {}
    while isinstance(step := propose(asked, known), Wanted):
        known |= {run.run_id: verdict(run) for run in step.runs}
    return step


@pytest.mark.parametrize("last_first", [False, True])
def test_every_question_gets_the_answer_that_it_gets_alone(last_first: bool) -> None:
    asked = [question(32), question(48), question(64)]
    agenda = Agenda(asked)
    waiting, handed = agenda.wanted(), 0
    assert agenda.wanted() == []  # nothing is asked for twice
    while waiting:
        handed += 1
        run = waiting.pop(-1 if last_first else 0)
        agenda.hear(run.run_id, verdict(run))
        waiting += agenda.wanted()
    assert agenda.answers == [alone(q) for q in asked]
    assert agenda.left == 0
    assert handed == len({p.run.run_id for a in agenda.answers if a for p in a.probes})


def test_a_question_goes_on_while_another_waits() -> None:
    agenda = Agenda([question(32), question(48)])
    first = agenda.wanted()
    for run in first:
        if getattr(run.problem, "items", 0) == 48:
            agenda.hear(run.run_id, verdict(run))
    more = agenda.wanted()
    assert more and {getattr(run.problem, "items", 0) for run in more} == {48}
    assert agenda.answers == [None, None]
    assert agenda.left == len([r for r in first if getattr(r.problem, "items", 0) == 32]) + len(more)


def test_what_can_be_looked_up_is_not_wanted() -> None:
    known: dict[str, Verdict] = {}
    asked = question(32)
    while isinstance(step := propose(asked, known), Wanted):
        known |= {run.run_id: verdict(run) for run in step.runs}
    looked: list[str] = []

    def lookup(ids: list[str]) -> dict[str, Verdict]:
        looked.extend(ids)
        return {run_id: known[run_id] for run_id in ids}

    agenda = Agenda([asked], lookup)  # type: ignore[arg-type]
    assert agenda.wanted() == []
    assert agenda.answers == [step] and len(looked) == len(set(looked))


def test_two_questions_share_their_members() -> None:
    agenda = Agenda([question(32), question(32, seeds=3)])
    runs = agenda.wanted()
    assert len(runs) == len({run.run_id for run in runs})
    while runs:
        for run in runs:
            agenda.hear(run.run_id, verdict(run))
        runs = agenda.wanted()
    assert agenda.answers == [alone(question(32)), alone(question(32, seeds=3))]
