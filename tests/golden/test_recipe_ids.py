"""Golden ids of the named recipes' members: a store that knows them must go on knowing them (see `test_ids`)."""

import pytest

from keyspan.lab import recipes
from keyspan.lab.recipes import Recipe
from keyspan.problems.relations import Relations
from keyspan.specs import Channel, Run


@pytest.mark.parametrize(
    "recipe, run_id",
    [
        (recipes.gradient(), "rbcd8dcfe3129c2eeaf0ad26d"),
        (recipes.separator(), "rbbb8599aeead002e0904cddb"),
        (recipes.hinge(), "rbfb90065b12e0d310cd2c16d"),
        (recipes.solver(), "r79248ff630ca7a9f9af100de"),
        (recipes.solver_fixed(), "r8d5b59a4ceabe6e29e629bb4"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_id_of_a_member(recipe: Recipe, run_id: str) -> None:
    problem, channel = Relations(items=128, d_model=32), Channel(heads=4, d_key=8)
    run = Run(problem=problem, replicate=0, instrument=channel, recipe=recipe, stopping=recipes.DEFAULT_STOPPING)
    assert run.run_id == run_id
