"""Do both sides compute the same? The fleet's weights beside the baseline's after a few steps from the same start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from keyspan.attention.instrument import Arrays
from keyspan.bench.cases import BLOCK, Case
from keyspan.bench.steps import Single, eager_step
from keyspan.bench.timing import Step
from keyspan.lab.fleet import sail
from keyspan.specs import Run

STEPS = 20
# float64 says whether both sides compute the same thing. In fewer bits they part soon, and rightly: Adam divides by the size
# of the gradient, so a component that is zero but for rounding moves its weight by a whole step, in either direction, and
# which head attains a near tie changes with it.
TOLERANCE = {"fp64": 1e-9, "fp32": 0.05, "tf32": 0.1, "bf16": 0.2}

Baseline = Callable[[Run, str], tuple[Step, Single]]


@dataclass(frozen=True)
class Agreement:
    """relative_error: |ours - theirs| / |theirs| over all weights of a member, the worst of them"""

    steps: int
    members: int
    arithmetic: str
    relative_error: float

    @property
    def agrees(self) -> bool:
        """Within what the arithmetic allows; a NaN does not agree."""
        return self.relative_error <= TOLERANCE[self.arithmetic]

    def to_dict(self) -> dict[str, Any]:
        """For JSON; an error that is no number is null."""
        error = self.relative_error if np.isfinite(self.relative_error) else None
        return {
            "steps": self.steps,
            "members": self.members,
            "arithmetic": self.arithmetic,
            "relative_error": error,
            "tolerance": TOLERANCE[self.arithmetic],
            "agrees": self.agrees,
        }


def relative_error(mine: Arrays, theirs: Arrays) -> float:
    """|mine - theirs| / |theirs|, over all arrays together."""
    difference = sum(float(((mine[k] - theirs[k]) ** 2).sum()) for k in theirs)
    return float(np.sqrt(difference / sum(float((v**2).sum()) for v in theirs.values())))


def agreement(
    case: Case, device: str, *, seed: int = 0, arithmetic: str = "fp32", baseline: Baseline = eager_step, members: int = 2
) -> Agreement:
    """Train `members` by the fleet's own loop and one by one, `STEPS` steps of the same recipe, and compare."""
    runs = [case.run(seed * BLOCK + i, arithmetic=arithmetic, steps=STEPS) for i in range(members)]
    ours = {f.run.run_id: f.answers for f in sail(runs, device)}
    worst = 0.0
    for run in runs:
        step, model = baseline(run, device)
        for _ in range(STEPS):
            step.call()
        step.sync()
        answers = ours[run.run_id]
        error = relative_error(answers, model.weights()) if answers is not None else float("nan")
        worst = error if not error <= worst else worst
    return Agreement(STEPS, members, arithmetic, worst)
