"""Golden ids and bits of labelled contexts: a store that knows them must go on knowing them (see `test_ids`)."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from keyspan.attention.layer import LayerBucket
from keyspan.lab import recipes
from keyspan.problems import NoContents
from keyspan.problems.contexts import Labels
from keyspan.specs import Layer, Run

RUN = Run(
    problem=Labels(context=8, d_model=24, examples=500),
    replicate=0,
    instrument=Layer(heads=4, d_key=8),
    recipe=recipes.paper().with_load(500),
    stopping=recipes.PAPER_STOPPING,
)


def test_the_ids_of_a_run() -> None:
    assert (RUN.problem_id, RUN.weights_id, RUN.run_id) == (
        "p3115beeaddbc3a4055f4907b",
        "w7393e0c9d7aec91f826ee07a",
        "ra4145f2f316a531330a7c8b7",
    )


@pytest.mark.parametrize(
    "contexts, task, digest",
    [
        ("random", "classes", "0d53a96ba702153f20e176eb9b4ba5d8c8a944bc24500382c6b6fa4d69ad63e3"),
        ("fixed", "values", "1493394eba5a07077d6e8de8be10b97d256fe05ab6feef009e53110b997645b6"),
        ("perm", "classes", "a6c02622fdd82ce990067e1c982cb1bd369c528d91adddbd728fae4823477e80"),
    ],
)
def test_the_bits_of_an_instance(contexts: str, task: str, digest: str) -> None:
    made = Labels(context=8, d_model=24, examples=500, contexts=contexts, task=task).instance("p-golden", NoContents())
    assert made.digest == digest
    assert hashlib.sha256(made.order(0, 2).tobytes()).hexdigest()[:16] == "6573ce37f175fea6"


def test_the_bits_of_the_initial_weights() -> None:
    bucket = LayerBucket([RUN], "cross-entropy", 1.0, 0.0, torch.device("cpu"))
    drawn, hashed = bucket.draw(RUN), hashlib.sha256()
    for name in sorted(drawn):
        hashed.update(np.ascontiguousarray(drawn[name]).tobytes())
    assert hashed.hexdigest()[:16] == "8dc80676ecc19dfd"
