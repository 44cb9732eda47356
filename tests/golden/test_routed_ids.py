"""Ids and contexts of routing, printed once: a change here is a change of identity (see test_ids.py)."""

import hashlib

from keyspan.attention.shapes import Routed
from keyspan.lab.recipes import recall
from keyspan.problems import NoContents
from keyspan.problems.in_context import InContext
from keyspan.problems.relations import Relations
from keyspan.specs import Run, Stopping

PROBLEM = InContext(relations=Relations(items=64, d_model=32), length=16)
LAYERS = {
    "attention": Routed(heads=4, d_key=6),
    "no sink, a temperature": Routed(heads=4, d_key=6, sink=False, temperature=0.5),
    "values": Routed(heads=4, d_key=6, d_value=8),
    "a block": Routed(heads=4, d_key=6, d_value=8, hidden=128),
}

IDS = {
    "attention": "r43c693949cc4661e11a96df6",
    "no sink, a temperature": "r8b6cafe89ba06523e88e1a3e",
    "values": "r0bff3a630a8d4a6a8d196224",
    "a block": "r64dea386e0163b025f56e3d3",
}
HASHES = ["40461d6e59bdb986", "1aff9bb96db791e9", "85637f70d173c59b"]


def test_run_ids() -> None:
    made = {
        name: Run(problem=PROBLEM, replicate=0, instrument=layer, recipe=recall(), stopping=Stopping()).run_id
        for name, layer in LAYERS.items()
    }
    assert made == IDS


def test_contexts() -> None:
    instance = PROBLEM.instance("p0", NoContents())
    shown = [instance.contexts_at(0), instance.contexts_at(40), instance.judged()]
    assert [hashlib.sha256(part.items.astype("<i8").tobytes()).hexdigest()[:16] for part in shown] == HASHES
