"""Golden ids of sequences: a store that knows them must go on knowing them (see `test_ids`)."""

from __future__ import annotations

import pytest

from keyspan.problems.sequences import Sequences
from keyspan.runners.sequences import ask_sequences
from keyspan.specs import Run

CELL = {"heads": 2, "d_model": 16}


def run_of(**asked: str) -> Run:
    """The first member of a cell's first question."""
    question = ask_sequences(Sequences(length=16), **CELL, **asked).questions[0]  # type: ignore[arg-type]
    return question.run(question.arms[0], question.arms[0].low, 0)


@pytest.mark.parametrize(
    "asked, ids",
    [
        ({}, ("pad20d518cb0811c99cc49ecc", "wcf91b94915043a9791a1b744", "r7093e88f438d1f741c58a034")),
        ({"regime": "budgeted"}, ("p40b784d0bf078e9444b49d4a", "w3d98171763693a344b2a6577", "rf65a228747867545f565c321")),
        ({"measure": "literal"}, ("pad20d518cb0811c99cc49ecc", "wcf91b94915043a9791a1b744", "r148ba830964b9355c01a4cee")),
    ],
)
def test_the_ids_of_runs(asked: dict[str, str], ids: tuple[str, str, str]) -> None:
    run = run_of(**asked)
    assert (run.problem_id, run.weights_id, run.run_id) == ids
