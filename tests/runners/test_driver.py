"""The driver: it trains what is missing, stores what finishes, and starting it again is the resume."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from keyspan.evidence.record import Record, make_record
from keyspan.evidence.store import open_store
from keyspan.problems.relations import Relations
from keyspan.runners import driver
from keyspan.runners.driver import More, Progress
from keyspan.runners.questions import calibration_questions, relations_question
from keyspan.specs import Channel, Question, Run
from keyspan.verdict import Status, Verdict


class FakeRunner:
    """Answers at once: a channel holds its graph from a budget of 40 on. Counts, and can be interrupted."""

    def __init__(self, interrupt_after: int | None = None) -> None:
        self.ran: list[str] = []
        self.left: list[Record] = []
        self.closed = False
        self.interrupt_after = interrupt_after

    def run(self, runs: Sequence[Run], progress: Progress = lambda i, a, b: None, more: More = lambda: ()) -> Iterator[Record]:
        for i, run in enumerate(runs):
            if self.interrupt_after is not None and len(self.ran) >= self.interrupt_after:
                self.left = [self._record(runs[i])]  # this one finishes while the workers are told to stop
                raise KeyboardInterrupt
            self.ran.append(run.run_id)
            yield self._record(run)

    def close(self) -> list[Record]:
        self.closed = True
        return self.left

    @staticmethod
    def _record(run: Run) -> Record:
        good = isinstance(run.instrument, Channel) and run.instrument.key_budget >= 40
        scores = {"f1": 1.0 if good else 0.5, "fitted": float(good)}
        return make_record(run, Verdict(status=Status.MEASURED, exact=good, scores=scores), steps=7)


def question(seeds: int = 2) -> Question:
    return relations_question(Relations(items=64, d_model=16), heads=[4, 8], seeds=seeds)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


def test_it_answers_and_a_second_call_makes_no_runner(url: str) -> None:
    runner = FakeRunner()
    with open_store(url) as store:
        (first,) = driver.answer([question()], store, lambda: runner)

        def none() -> FakeRunner:
            raise AssertionError("nothing is to be trained")

        (second,) = driver.answer([question()], store, none)
    assert first.answer == second.answer
    assert first.answer.crossing.estimate == 40
    assert sorted(first.trained) == sorted(runner.ran)
    assert second.trained == ()
    assert runner.closed
    assert all(facts["steps"] == 7 for facts in second.provenance.values())


def test_an_interrupted_search_keeps_what_finished_and_goes_on(url: str) -> None:
    runner = FakeRunner(interrupt_after=5)
    with open_store(url) as store:
        with pytest.raises(KeyboardInterrupt):
            driver.answer([question()], store, lambda: runner)
        assert runner.closed
        assert store.count() == 6  # five, and the one that finished on the way out
        again = FakeRunner()
        (outcome,) = driver.answer([question()], store, lambda: again)
        assert not set(again.ran) & set(runner.ran)
        assert store.count() == 6 + len(again.ran)
    with open_store(url.replace("store.db", "other.db")) as store:
        (undisturbed,) = driver.answer([question()], store, FakeRunner)
    assert outcome.answer == undisturbed.answer


def test_records_of_another_process_are_used(url: str) -> None:
    """What appears in the store between two rounds is not trained again."""
    with open_store(url) as store:
        other = FakeRunner()

        class Sharing(FakeRunner):
            def run(
                self, runs: Sequence[Run], progress: Progress = lambda i, a, b: None, more: More = lambda: ()
            ) -> Iterator[Record]:
                yield from super().run(runs)
                with open_store(url) as mine:  # the other process has answered everything meanwhile
                    driver.answer([question()], mine, lambda: other)

        runner = Sharing()
        driver.answer([question()], store, lambda: runner)
        assert other.ran
        assert not set(other.ran) & set(runner.ran)


def test_several_questions_share_their_rounds(url: str) -> None:
    rounds: list[int] = []

    class Watch(driver.Watcher):
        def round(self, number: int, runs: Sequence[Run], measured: int) -> None:
            rounds.append(len({run.problem.family for run in runs}))

    with open_store(url) as store:
        asked = [question(), *calibration_questions(5, seeds=10)]
        outcomes = driver.answer(asked, store, FakeRunner, Watch())
    assert len(outcomes) == 3
    assert rounds[0] == 2


def test_a_question_does_not_wait_for_another(url: str) -> None:
    """One question's rounds go on while a member of another is still under way."""

    class Slow(FakeRunner):
        """Whatever has 13 items takes until nothing else is left."""

        def run(
            self, runs: Sequence[Run], progress: Progress = lambda i, a, b: None, more: More = lambda: ()
        ) -> Iterator[Record]:
            waiting = list(runs)
            while waiting:
                waiting.sort(key=lambda run: getattr(run.problem, "items", 0) == 13)
                run = waiting.pop(0)
                self.ran.append(run.run_id)
                yield self._record(run)
                waiting += more()

    slow = relations_question(Relations(items=13, d_model=5), heads=[1], seeds=1)
    runner = Slow()
    with open_store(url) as store:
        first, second = driver.answer([slow, question()], store, lambda: runner)
    quick = {probe.run.run_id for probe in second.answer.probes}
    assert set(runner.ran[: len(quick)]) == quick
    assert len(runner.ran) == len(set(runner.ran)) == len(quick) + len(first.answer.probes)
    with open_store(url.replace("store.db", "other.db")) as store:
        (alone,) = driver.answer([question()], store, FakeRunner)
    assert alone.answer == second.answer
