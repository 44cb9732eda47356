"""Golden ids: they never change, or every store in the world forgets what it knows.

If one of these fails, the identity of something was changed. Put it back: give a new field `metadata={"absent": ...}`,
or raise the version of the one component whose meaning changed. Never edit an id here.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from keyspan.specs import Arm, Channel, LinearUnit, Question, Run, Spec, Stopping, canonical, digest


@dataclass(frozen=True, kw_only=True)
class Part(Spec, family="test-golden-part", version=2):
    """A part of the problem of this module."""

    size: int = 17
    scale: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Task(Spec, family="test-golden-task", version=1):
    """The problem of this module: a field of every kind."""

    items: int = 128
    ratio: float = 1.0
    name: str = "gaussian é"
    given: bool = False
    file: str | None = None
    rates: tuple[float, ...] = (0.5, 1e-7, 3.0)
    part: Part = Part()


@dataclass(frozen=True, kw_only=True)
class Method(Spec, family="test-golden-method", version=1):
    """The recipe of this module."""

    steps: int = 2000
    rate: float = 0.06


CHANNEL = Run(problem=Task(), replicate=0, instrument=Channel(heads=4, d_key=12), recipe=Method(), stopping=Stopping())
UNIT = Run(
    problem=Part(size=2**40, scale=5e-324),
    replicate=41,
    instrument=LinearUnit(),
    recipe=Method(rate=1e22),
    stopping=Stopping(check_every=7, retire_exact=False, slack=0.0),
    arithmetic="fp64",
)


def test_the_canonical_json_of_a_run() -> None:
    assert canonical(CHANNEL.to_json()) == (
        '{"arithmetic":"fp32","family":"run",'
        '"instrument":{"d_key":12,"family":"channel","heads":4,"version":1},'
        '"problem":{"family":"test-golden-task","file":null,"given":false,"items":128,"name":"gaussian \\u00e9",'
        '"part":{"family":"test-golden-part","scale":0.1,"size":17,"version":2},'
        '"rates":[0.5,1e-07,3.0],"ratio":1.0,"version":1},'
        '"recipe":{"family":"test-golden-method","rate":0.06,"steps":2000,"version":1},'
        '"replicate":0,'
        '"stopping":{"check_every":50,"family":"stopping","retire_exact":true,"slack":0.001,"version":1},'
        '"version":1}'
    )


@pytest.mark.parametrize(
    "run, problem_id, weights_id, run_id",
    [
        (CHANNEL, "pd5d94c377b483dd54a64a0e1", "we03c01abf4142ea06076a771", "r9aa1b52a2bc0eae496c4e3e4"),
        (UNIT, "pd50900c58fce0e3867775eca", "w834389a7a93ba80d77455619", "r5047e651bc7075b40f2021b7"),
    ],
)
def test_the_ids_of_a_run(run: Run, problem_id: str, weights_id: str, run_id: str) -> None:
    assert run.problem_id == problem_id
    assert run.weights_id == weights_id
    assert run.run_id == run_id


@pytest.mark.parametrize(
    "spec, identity",
    [
        (Channel(heads=4, d_key=12), "x3d4d0115bb7b718ac4c3b44e"),
        (LinearUnit(), "x73b69608266f0afcffc08383"),
        (Stopping(), "x24a7d661618546806b090cc1"),
    ],
)
def test_the_hashes_of_components(spec: Spec, identity: str) -> None:
    assert digest(spec.to_json(), "x") == identity


def test_the_runs_of_a_question() -> None:
    arm = Arm(heads=4, levels=(44, 48, 52), low=44, high=52)
    question = Question(
        problem=Task(),
        instrument=Channel(heads=1, d_key=1),
        recipe=Method(),
        stopping=Stopping(),
        arithmetic="fp32",
        knob="budget",
        arms=(arm,),
        replicates=(0, 1),
        score="f1",
        target=0.99,
    )
    assert [run.run_id for run in question.runs(arm, 48)] == [CHANNEL.run_id, "rd34ab4a73b30d6aebb845259"]
