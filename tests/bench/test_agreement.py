"""The check that both sides compute the same: it holds, and it catches a side that does not."""

import math

import pytest

from keyspan.attention.instrument import Arrays
from keyspan.bench import agreement as agreement_module
from keyspan.bench.agreement import Agreement, agreement, relative_error
from keyspan.bench.cases import case_of
from keyspan.bench.steps import Single, eager_step, initial
from keyspan.bench.timing import Step
from keyspan.specs import Run

CASE = case_of("24x12x3x5", "cpu")


def after_one(run: Run, device: str) -> tuple[Step, Single]:
    """A baseline that forgets a step."""
    step, model = eager_step(run, device)
    taken = iter(range(10**6))
    return Step(lambda: next(taken) and step.call()), model


def other_loss(run: Run, device: str) -> tuple[Step, Single]:
    """A baseline that weighs one edge as no edge."""
    step, model = eager_step(run, device)
    model.target.view(-1)[int(model.target.argmax())] = 0.0
    return step, model


def other_start(run: Run, device: str) -> tuple[Step, Single]:
    """A baseline that starts a little elsewhere."""
    step, model = eager_step(run, device)
    model.w_query.data[0, 0, 0] += 1e-3
    return step, model


@pytest.mark.parametrize("arithmetic", ["fp64", "fp32"])
def test_both_sides_agree(arithmetic: str) -> None:
    found = agreement(CASE, "cpu", arithmetic=arithmetic)
    assert found.agrees and found.steps == 20 and found.members == 2
    assert found.relative_error < (1e-12 if arithmetic == "fp64" else 0.05)


@pytest.mark.parametrize("wrong", [after_one, other_loss, other_start])
def test_a_wrong_side_is_caught(wrong: agreement_module.Baseline) -> None:
    found = agreement(CASE, "cpu", arithmetic="fp64", baseline=wrong, members=1)
    assert not found.agrees and found.to_dict()["agrees"] is False


def test_no_number_does_not_agree() -> None:
    nothing = Agreement(steps=1, members=1, arithmetic="fp32", relative_error=math.nan)
    assert not nothing.agrees and nothing.to_dict()["relative_error"] is None


def test_both_start_from_the_same_weights() -> None:
    run = CASE.run(arithmetic="fp64")
    _, model = eager_step(run, "cpu")
    start: Arrays = initial(run)
    assert relative_error(start, model.weights()) == 0.0
    assert {k: v.shape for k, v in start.items()} == {"w_query": (3, 12, 5), "w_key": (3, 12, 5), "bias": ()}
    assert float(model.target.sum()) == 24.0


def test_relative_error() -> None:
    import numpy as np

    theirs = {"a": np.array([3.0]), "b": np.array([4.0])}
    assert relative_error({"a": np.array([3.0]), "b": np.array([4.5])}, theirs) == pytest.approx(0.1)
