"""Golden ids of members that are shown a part at a time, or that have types; and what they are shown (see `test_ids`)."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from keyspan.lab import recipes
from keyspan.problems import NoContents
from keyspan.problems.relations import Relations
from keyspan.problems.shown import batch_of, contexts
from keyspan.problems.typed import TypedChannel, TypedRelations
from keyspan.specs import Channel, Run


@pytest.mark.parametrize(
    "show, run_id",
    [
        ({"contexts": 31}, "rb7cc35ef2cb79a0e1deeef71"),
        ({"batches": 4}, "r6ab079323dbf24b8c504e485"),
        ({"batches": 4, "replay": True}, "re7828f424305ff0a46a8bda7"),
    ],
)
def test_the_id_of_a_member_that_is_shown_a_part(show: dict[str, Any], run_id: str) -> None:
    recipe = recipes.showing(recipes.gradient(), **show)
    problem, channel = Relations(items=64, d_model=16), Channel(heads=4, d_key=8)
    run = Run(problem=problem, replicate=0, instrument=channel, recipe=recipe, stopping=recipes.DEFAULT_STOPPING)
    assert (run.problem_id, run.run_id) == ("p4eee314b258ad6a522e5cc23", run_id)


def test_the_id_and_the_instance_of_types() -> None:
    problem = TypedRelations(items=61, d_model=17, types=3)
    channel = TypedChannel(heads=6, d_key=4, sharing="leaning")
    recipe, stopping = recipes.gradient(), recipes.DEFAULT_STOPPING
    run = Run(problem=problem, replicate=1, instrument=channel, recipe=recipe, stopping=stopping)
    assert (run.problem_id, run.run_id) == ("p827bf5d350956983f7fd14c8", "r1d155a71bc63d78e9a5345b1")
    instance = problem.instance(run.problem_id, NoContents())
    assert instance.digest == "c5e70f526a4364939ae7683e0eb461c9c3745635fc0bc6408a13ee248fe055fe"


def test_what_is_shown() -> None:
    assert sha(contexts("p", 3, 61, 17)) == "c662e637e9ee507550affbf00049a37f9ad66d283e6880b1672e0a072a9d2f8f"
    assert sha(batch_of("p", 61, 4)) == "70b2feda1f7f914d0fa9cb973f856573798dfd475dc6ee34ad47bb5fed063b2e"


def sha(numbers: NDArray[np.int64]) -> str:
    return hashlib.sha256(numbers.astype("<i8").tobytes()).hexdigest()
