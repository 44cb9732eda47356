"""Recipes are data: plain, frozen, checked, and part of a run's identity down to the last field."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from keyspan.errors import BadInput
from keyspan.lab import recipes
from keyspan.lab.recipes import SHAPES, Adam, Lbfgs, Muon, Recipe
from keyspan.problems.relations import Relations
from keyspan.specs import Channel, Run, Spec, Stopping, decode

PHASES: list[Spec] = [Adam(steps=7, peak=0.5), Lbfgs(steps=11, memory=3), Muon(steps=13, peak=0.25)]
RECIPES = [
    recipes.gradient(),
    recipes.separator(),
    Recipe(name="all", revision=2, loss="bce", phases=tuple(PHASES)),
    recipes.hinge(),
    recipes.solver(),
    recipes.solver_fixed(),
]


def run_id(recipe: Recipe, stopping: Stopping = recipes.DEFAULT_STOPPING) -> str:
    problem = Relations(items=7, d_model=5)
    return Run(problem=problem, replicate=0, instrument=Channel(heads=2, d_key=3), recipe=recipe, stopping=stopping).run_id


def changed(value: Any) -> Any:
    """Another value of the same kind, which the field allows."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 0.5 if value else 0.25
    if value in SHAPES:
        return SHAPES[1 - SHAPES.index(value)]
    if isinstance(value, str):
        return value + "x"
    return (*value[:-1], Adam(steps=3, peak=0.25))


def variants(spec: Any) -> list[Any]:
    """The spec with each field changed; what does not apply (None) stays, and is changed in tests of its own."""
    given = {f.name: getattr(spec, f.name) for f in fields(spec)}
    return [replace(spec, **{name: changed(value)}) for name, value in given.items() if value is not None]


def test_the_gradient_recipe_is_the_one_that_was_settled() -> None:
    """docs/measure.md, "The recipe": Adam, one cycle with peak 0.06 and 10% warm-up, N(0, 1/d_k), b from -3, 2000 steps."""
    recipe = recipes.gradient()
    (phase,) = recipe.phases
    assert isinstance(phase, Adam)
    assert (phase.steps, phase.peak, phase.warmup) == (2000, 0.06, 0.1)
    assert (phase.beta1, phase.beta2, phase.epsilon) == (0.9, 0.999, 1e-8)
    assert (recipe.name, recipe.loss, recipe.init_scale, recipe.bias) == ("gradient", "bce", 1.0, -3.0)
    assert not recipe.certify and recipe.steps == 2000
    assert recipes.gradient(steps=17, peak=0.5).phases == (Adam(steps=17, peak=0.5),)


def test_the_hinge_recipe_is_the_one_of_the_study() -> None:
    """docs/gradient-training.md, "The recipe hinge"."""
    recipe = recipes.hinge()
    (phase,) = recipe.phases
    assert isinstance(phase, Adam)
    assert (phase.steps, phase.peak, phase.warmup, phase.beta1, phase.beta2) == (6000, 0.3, 0.1, 0.99, 0.95)
    assert (recipe.name, recipe.loss, recipe.init_scale, recipe.bias) == ("hinge", "squared-hinge", 1.0, -3.0)
    assert not recipe.certify and recipes.hinge(steps=17).steps == 17


def test_the_solvers_are_those_of_the_documents() -> None:
    """docs/solver.md: first momentum, then L-BFGS; and L-BFGS alone where every edge has its owner."""
    recipe = recipes.solver()
    explore, close = recipe.phases
    assert isinstance(explore, Adam) and isinstance(close, Lbfgs)
    assert (explore.steps, explore.peak, explore.beta1, explore.beta2) == (400, 0.3, 0.99, 0.95)
    assert (close.steps, close.memory, close.patience, close.progress) == (600, 20, 100, 0.03)
    assert (recipe.name, recipe.loss, recipe.bias) == ("solver", "squared-hinge", -3.0)
    fixed = recipes.solver_fixed()
    (only,) = fixed.phases
    assert isinstance(only, Lbfgs) and (only.steps, only.memory, only.patience) == (1000, 20, 100)
    assert (fixed.name, fixed.loss) == ("solver-fixed", "owned-hinge")
    for steps in (2, 3, 500, 1000, 1001):
        assert recipes.solver(steps=steps).steps == recipes.solver_fixed(steps=steps).steps == steps


def test_patience_leaves_no_trace_where_there_is_none() -> None:
    assert not {"patience", "progress"} & set(Lbfgs(steps=5).to_json())
    assert Lbfgs(steps=5, patience=3).to_json()["patience"] == 3


def test_the_first_draw_leaves_no_trace() -> None:
    """Ids from before there were draws stay."""
    assert "draw" not in recipes.gradient().to_json() and replace(recipes.gradient(), draw=2).to_json()["draw"] == 2
    with pytest.raises(BadInput, match="draw >= 0"):
        replace(recipes.gradient(), draw=-1)


def test_what_labels_added_leaves_no_trace_and_counts() -> None:
    """Minibatches, epochs and other shapes of the rate: absent at their old values, another run at any other."""
    plain = recipes.gradient()
    added = {"batch", "start", "end", "rise", "fall", "epochs"}
    assert not added & set(plain.to_json()) and not added & set(plain.phases[0].to_json())
    others = [replace(plain, batch=256), replace(plain, phases=(Adam(steps=2000, peak=0.06, epochs=5),))]
    assert len({run_id(r) for r in (plain, *others)}) == 3


def test_the_separator_proves_its_failures() -> None:
    recipe = recipes.separator()
    assert recipe.name == "separator" and recipe.loss == "squared-hinge" and recipe.certify
    assert [type(p) for p in recipe.phases] == [Lbfgs] and recipe.steps > 0


def test_steps_add_up_over_phases() -> None:
    assert RECIPES[2].steps == 31


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: r.name)
def test_a_recipe_is_json_and_back(recipe: Recipe) -> None:
    assert decode(json.loads(json.dumps(recipe.to_json()))) == recipe
    with pytest.raises(FrozenInstanceError):
        recipe.loss = "other"  # type: ignore[misc]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: r.name)
def test_any_field_changed_is_another_run(recipe: Recipe) -> None:
    others = variants(recipe)
    for k, phase in enumerate(recipe.phases):
        others += [replace(recipe, phases=(*recipe.phases[:k], p, *recipe.phases[k + 1 :])) for p in variants(phase)]
    ids = [run_id(r) for r in [recipe, *others]]
    assert len(set(ids)) == len(ids) >= 8
    assert run_id(recipe) == run_id(replace(recipe))


def test_phases_in_another_order_are_another_run() -> None:
    backwards = replace(RECIPES[2], phases=tuple(reversed(PHASES)))
    assert run_id(backwards) != run_id(RECIPES[2])


def test_any_stopping_field_changed_is_another_run() -> None:
    ids = {run_id(RECIPES[0], s) for s in [recipes.DEFAULT_STOPPING, *variants(recipes.DEFAULT_STOPPING)]}
    assert len(ids) == 1 + len(fields(Stopping))
    assert recipes.SEPARATOR_STOPPING.slack < 1e-6 < recipes.DEFAULT_STOPPING.slack


@pytest.mark.parametrize(
    "phase, given, mentions",
    [
        (Adam, {"steps": 0, "peak": 0.1}, ("`steps >= 1`", "0")),
        (Adam, {"steps": 5, "peak": 0.0}, ("`peak > 0`", "0.0")),
        (Adam, {"steps": 5, "peak": -1}, ("`peak > 0`", "-1")),
        (Adam, {"steps": 5, "peak": float("nan")}, ("finite", "nan")),
        (Adam, {"steps": 5, "peak": 0.1, "warmup": 1.0}, ("warmup", "1.0")),
        (Adam, {"steps": 5, "peak": 0.1, "warmup": -0.1}, ("warmup", "-0.1")),
        (Adam, {"steps": 2.5, "peak": 0.1}, ("adam.steps", "2.5")),
        (Muon, {"steps": 0, "peak": 0.1}, ("`steps >= 1`", "0")),
        (Muon, {"steps": 5, "peak": 0.0}, ("`peak > 0`", "0.0")),
        (Muon, {"steps": 5, "peak": 0.1, "bias_peak": 0.0}, ("`peak > 0`", "0.0")),
        (Muon, {"steps": 5, "peak": 0.1, "warmup": 1.0}, ("warmup", "1.0")),
        (Muon, {"steps": 5, "peak": 0.1, "momentum": 1.0}, ("momentum", "1.0")),
        (Muon, {"steps": 5, "peak": 0.1, "iterations": 0}, ("iterations", "0")),
        (Lbfgs, {"steps": 0}, ("`steps >= 1`", "0")),
        (Lbfgs, {"steps": 5, "memory": 0}, ("`memory >= 1`", "0")),
        (Lbfgs, {"steps": 5, "patience": -1}, ("`patience >= 0`", "-1")),
        (Lbfgs, {"steps": 5, "progress": 1.0}, ("`0 <= progress < 1`", "1.0")),
        (Stopping, {"check_every": 0}, ("`check_every >= 1`", "0")),
        (Stopping, {"slack": -1e-3}, ("`slack >= 0`", "-0.001")),
    ],
)
def test_phases_that_make_no_sense_are_refused(phase: type[Spec], given: dict[str, Any], mentions: tuple[str, ...]) -> None:
    with pytest.raises(BadInput) as refusal:
        phase(**given)
    assert all(m in str(refusal.value) for m in mentions), refusal.value
