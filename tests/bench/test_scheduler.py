"""The model of the scheduler: what it must say of workers that are simple, and what it says of one that is real."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from keyspan.bench import scheduler
from keyspan.bench.cases import Case
from keyspan.bench.scaling import POINTS, Shard, measure, questions_of
from keyspan.bench.scheduler import as_measured, on_h200, simulate
from keyspan.lab.pack import seconds
from keyspan.problems.relations import Relations
from keyspan.runners.questions import relations_question
from keyspan.specs import Question, Run


def asked() -> list[Question]:
    return [relations_question(Relations(items=items, d_model=8), heads=[1, 2], seeds=2) for items in (16, 24, 32, 48)]


def a_second(shard: Sequence[Run]) -> float:
    return 1.0 * len(shard)


def test_one_worker_does_one_thing_after_another() -> None:
    alone = simulate(asked(), 1, a_second, start=3.0, record=0.0)
    assert alone.members >= 50 and alone.seconds == pytest.approx(3.0 + alone.members)
    slow = simulate(asked(), 1, a_second, start=3.0, record=0.5)
    assert slow.driver == pytest.approx(0.5 * slow.members / slow.seconds)
    assert slow == simulate(asked(), 1, a_second, start=3.0, record=0.5)


def test_more_workers_are_quicker_until_rounds_wait_for_each_other() -> None:
    found = {jobs: simulate(asked(), jobs, as_expected, start=0.0, record=0.0) for jobs in (1, 2, 4, 64, 512)}
    assert len({one.members for one in found.values()}) == 1, "the same members whoever trains them"
    times = [one.seconds for one in found.values()]
    assert times == sorted(times, reverse=True)
    assert found[2].seconds < found[1].seconds / 1.6 and found[2].busy > 0.8
    for one in found.values():
        assert one.seconds >= one.path * (1 - 1e-9) and one.seconds >= found[1].seconds / one.jobs * (1 - 1e-9)
    assert found[512].seconds > 4 * found[1].seconds / 512, "it does not go on for ever"


def as_expected(shard: Sequence[Run]) -> float:
    return sum(seconds(run) for run in shard)


def test_a_driver_that_is_slow_is_the_limit() -> None:
    many = simulate(asked(), 64, lambda shard: 1e-6, start=0.0, record=0.1)
    assert many.driver > 0.95 and many.seconds == pytest.approx(0.1 * many.members, rel=0.01)


def test_gpus_share_a_sweep_too() -> None:
    one, eight = (simulate(asked(), jobs, on_h200(), start=15.0, gpu=True) for jobs in (1, 8))
    assert one.members == eight.members and 15.0 < eight.seconds <= one.seconds < 60


def test_measured_shards_set_the_pace() -> None:
    shards = [Shard(3, 0.1, 0.3, 0.3)] * 8 + [Shard(3, 10.0, 15.0, 15.0)] * 8
    takes = as_measured(shards)
    run = next(iter(asked()[0].runs(asked()[0].arms[0], asked()[0].arms[0].levels[0])))
    small = [run] * max(1, round(0.1 / seconds(run)))
    assert takes(small) == pytest.approx(3 * as_expected(small))
    assert takes(small * 100) == pytest.approx(1.5 * as_expected(small * 100))


def test_sizes_in_between_are_in_between() -> None:
    """At the sizes that were measured the model says what was measured."""
    for size, gpu in scheduler.H200.items():
        run = Case(*size, 1).run(steps=2000)
        steps = seconds(run) / scheduler._core_seconds(size)
        assert on_h200()([run] * 4096) == pytest.approx(4096 * steps * gpu, rel=1e-9)


def test_a_real_sweep_is_as_long_as_its_shards_say(tmp_path: Path) -> None:
    questions = questions_of(POINTS, 8)
    real = measure(questions, 1, tmp_path)
    assert real.members == 8 == sum(shard.members for shard in real.shards) and 0 < real.overhead < 0.5
    made = simulate(
        questions, 1, as_measured(real.shards), verdicts=real.verdicts, start=real.starts[0], record=real.driver / real.members
    )
    assert made.members == 8 and 0.5 < made.seconds / real.seconds < 1.5
    json.dumps(real.to_dict())
