"""Identity of the specs that there are: every field of every family counts, and reads back.

The properties for any spec are in `test_specs_properties`; a family can still break them by itself, in its `check`.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, FrozenInstanceError, fields, replace
from typing import Any

import pytest

from keyspan import specs
from keyspan.attention import shapes
from keyspan.attention.shapes import Heads, Routed
from keyspan.lab import recipes
from keyspan.lab.recipes import Adam, Lbfgs, Muon, Recipe
from keyspan.problems import dichotomies, embeddings, graphs, in_context, placed, relations, shown, typed
from keyspan.problems.dichotomies import Dichotomies
from keyspan.problems.embeddings import Embeddings
from keyspan.problems.graphs import Graph
from keyspan.problems.in_context import InContext
from keyspan.problems.placed import Placed
from keyspan.problems.relations import Relations
from keyspan.problems.shown import Batches, Contexts, Ride
from keyspan.problems.typed import TypedChannel, TypedRelations
from keyspan.specs import Arm, Channel, Layer, LinearUnit, Question, Run, Spec, Stopping, canonical, decode, digest

SHA, OTHER = "a" * 64, "b" * 64
ARM = Arm(heads=2, levels=(2, 4, 6), low=2, high=4)
RUN: dict[str, Any] = {"problem": Relations(items=7, d_model=5), "recipe": recipes.gradient(), "stopping": Stopping()}

# One example or more of every family, and for every field another value that this example may have.
EXAMPLES: list[tuple[Spec, dict[str, Any]]] = [
    (Channel(heads=2, d_key=3), {"heads": 5, "d_key": 7}),
    (LinearUnit(), {}),
    (
        Heads(heads=4, d_key=4),
        {
            "heads": 5,
            "d_key": 7,
            "share": 2,
            "latent": 3,
            "rotary": 0.5,
            "base": 100.0,
            "window": 9,
            "norm": True,
            "cap": 30.0,
            "keys": "int4",
        },
    ),
    (
        Routed(heads=4, d_key=4, d_value=2),
        {"heads": 5, "d_key": 7, "d_value": 3, "hidden": 9, "sink": False, "temperature": 2.0},
    ),
    (
        InContext(relations=Relations(items=7, d_model=5), length=4),
        {"relations": Relations(items=8, d_model=5), "length": 6},
    ),
    (
        Placed(relations=Relations(items=7, d_model=5), positions=3),
        {"relations": Relations(items=8, d_model=5), "positions": 4},
    ),
    (Layer(heads=2, d_key=3), {"heads": 5, "d_key": 7, "d_value": 3, "embed": False}),
    (Stopping(), {"check_every": 49, "retire_exact": False, "slack": 0.002}),
    (ARM, {"heads": 1, "levels": (2, 4, 8), "low": 4, "high": 6}),
    (
        Run(**RUN, replicate=0, instrument=Channel(heads=1, d_key=1)),
        {
            "problem": Relations(items=7, d_model=11),
            "replicate": 1,
            "instrument": LinearUnit(),
            "recipe": recipes.hinge(),
            "stopping": Stopping(check_every=3),
            "arithmetic": "bf16",
        },
    ),
    (
        Question(
            **RUN,
            instrument=Channel(heads=1, d_key=1),
            arithmetic="fp32",
            knob="budget",
            arms=(ARM,),
            replicates=(0,),
            score="f1",
            target=0.5,
        ),
        {
            "problem": Relations(items=8, d_model=5),
            "instrument": LinearUnit(),
            "recipe": recipes.separator(),
            "stopping": Stopping(slack=1.0),
            "arithmetic": "fp64",
            "knob": "load",
            "arms": (ARM, ARM),
            "replicates": (0, 1),
            "score": "f1_best",
            "target": 0.25,
            "criterion": "any",
            "pilot": 2,
            "guard": 0,
            "search": False,
            "climb": 0,
            "starts": 2,
            "near": 0.5,
            "beyond": (1.5,),
            "goal": "peak",
        },
    ),
    (Relations(items=7, d_model=5), {"items": 11, "d_model": 13, "graph": Graph(loops=False), "embeddings": embeddings.sign()}),
    (Dichotomies(dimension=3, examples=5), {"dimension": 7, "examples": 11}),
    (Graph(), {"name": "functional", "loops": False}),
    (Graph(name="power-law", edges=5, exponent=1.0), {"name": "power-law", "edges": 7, "exponent": 2.0, "loops": False}),
    (Graph(name="regular", degree=2), {"name": "out-regular", "degree": 3, "loops": False}),
    (Graph(name="file", edges=3, content=SHA), {"edges": 5, "content": OTHER}),
    (Embeddings(), {"name": "sign"}),
    (Embeddings(name="sparse", ones=2), {"ones": 3}),
    (Embeddings(name="clustered", clusters=2, correlation=0.5), {"clusters": 3, "correlation": 0.25}),
    (Embeddings(name="file", content=SHA), {"content": OTHER}),
    (Contexts(items=5), {"items": 7}),
    (
        Ride(start=3, steps=40, hold=20, settle=30),
        {"start": 5, "steps": 50, "hold": 10, "settle": 35, "growth": 0.5, "theta": 0.5, "shed": 0.5, "floor": 0.5},
    ),
    (Batches(count=2), {"count": 3, "replay": True}),
    (
        TypedRelations(items=7, d_model=5, types=2),
        {"items": 11, "d_model": 13, "types": 3, "graph": Graph(loops=False), "embeddings": embeddings.sign()},
    ),
    (TypedChannel(heads=2, d_key=3), {"heads": 4, "d_key": 7, "sharing": "shared"}),
    (
        Adam(steps=5, peak=0.5),
        {"steps": 7, "peak": 0.25, "warmup": 0.5, "beta1": 0.5, "beta2": 0.5, "epsilon": 1e-4}
        | {"start": 10.0, "end": 0.5, "rise": "linear", "fall": "linear", "epochs": 3, "tail": 0.5, "decay": 0.5},
    ),
    (
        Muon(steps=5, peak=0.5),
        {"steps": 7, "peak": 0.25, "bias_peak": 0.5, "warmup": 0.5, "momentum": 0.5, "iterations": 3},
    ),
    (Lbfgs(steps=5), {"steps": 7, "memory": 3, "tolerance": 1e-3, "patience": 10, "progress": 0.5}),
    (
        Recipe(name="a", revision=1, loss="bce", phases=(Adam(steps=5, peak=0.5),)),
        {
            "name": "b",
            "revision": 2,
            "loss": "squared-hinge",
            "phases": (Lbfgs(steps=5),),
            "init_scale": 2.0,
            "bias": -1.0,
            "certify": True,
            "draw": 1,
            "show": Contexts(items=3),
            "batch": 8,
        },
    ),
]
EACH = [pytest.param(spec, others, id=f"{spec.family}-{k}") for k, (spec, others) in enumerate(EXAMPLES)]
MODULES = (specs, recipes, shapes, in_context, dichotomies, embeddings, graphs, placed, relations, shown, typed)


def identity(spec: Spec) -> str:
    return digest(spec.to_json(), "x")


def names(kind: type[Spec]) -> set[str]:
    return {f.name for f in fields(kind)}  # type: ignore[arg-type]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_field_of_every_family_has_another_value_above(module: Any) -> None:
    here = {kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Spec) and kind is not Spec}
    for kind in here:
        tried = [set(others) for spec, others in EXAMPLES if type(spec) is kind]
        assert tried, f"{kind.__name__} needs an example above"
        assert set().union(*tried) == names(kind), f"{kind.__name__}: a field of it is never changed above"


@pytest.mark.parametrize(("spec", "others"), EACH)
def test_any_field_changed_changes_the_id(spec: Any, others: dict[str, Any]) -> None:
    seen = {identity(spec)}
    for name, value in others.items():
        changed = replace(spec, **{name: value})
        assert identity(changed) not in seen or changed == spec, name
        seen.add(identity(changed))
    different = sum(value != getattr(spec, name) for name, value in others.items())
    assert len(seen) == 1 + different and different >= min(1, len(others))


@pytest.mark.parametrize(("spec", "others"), EACH)
def test_they_read_back_and_stay_as_they_are(spec: Any, others: dict[str, Any]) -> None:
    for one in (spec, *(replace(spec, **{name: value}) for name, value in others.items())):
        back = decode(json.loads(canonical(one.to_json())))
        assert back == one and identity(back) == identity(one) and hash(back) == hash(one)
        for name in names(type(one)):
            with pytest.raises(FrozenInstanceError):
                setattr(one, name, getattr(one, name))


@pytest.mark.parametrize("kind", {type(spec): None for spec, _ in EXAMPLES}, ids=lambda kind: kind.family)
def test_a_field_may_be_absent_only_at_its_default(kind: type[Spec]) -> None:
    """Else a spec that says nothing of the field would not be the spec from before there was one."""
    for f in fields(kind):  # type: ignore[arg-type]
        if "absent" in f.metadata:
            assert f.default is not MISSING and f.default == f.metadata["absent"], f.name
