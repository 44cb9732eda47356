"""Ids and instances of heads of today, printed once: a change here is a change of identity (see test_ids.py)."""

import hashlib

from keyspan.attention.shapes import Heads
from keyspan.lab.recipes import gradient
from keyspan.problems.placed import Placed, placements
from keyspan.problems.relations import Relations
from keyspan.specs import Run, Stopping

RELATIONS = Relations(items=64, d_model=32)
KINDS = {
    "plain": Heads(heads=4, d_key=6),
    "grouped": Heads(heads=4, d_key=6, share=2),
    "one for all": Heads(heads=4, d_key=6, share=0),
    "latent": Heads(heads=4, d_key=6, latent=12),
    "turned": Heads(heads=4, d_key=6, rotary=0.5, base=500000.0, window=8),
    "normalised, capped, rounded": Heads(heads=4, d_key=6, norm=True, cap=50.0, keys="int8"),
}
IDS = {
    "plain": "r04975cc29efc57df0536c45b",
    "grouped": "rfbcf06e8273f482229e2112f",
    "one for all": "rb1eb03626cdc04bdf0b14a61",
    "latent": "rd5a3b4f8be8a6d9c70de2781",
    "turned": "re34ba85ebe81ae1196ea22cc",
    "normalised, capped, rounded": "racc49f084c4304ba9075d695",
}

FIRST, HASH = [12, 12, 8, 12, 14, 6, 7], "838f5e391e06637e"


def run(heads: Heads) -> Run:
    problem = Placed(relations=RELATIONS, positions=16) if heads.rotary else RELATIONS
    return Run(problem=problem, replicate=0, instrument=heads, recipe=gradient(), stopping=Stopping())


def test_run_ids() -> None:
    assert {name: run(heads).run_id for name, heads in KINDS.items()} == IDS


def test_positions() -> None:
    drawn = placements("p0", 16, 7, 3)
    assert drawn[0].tolist() == FIRST and hashlib.sha256(drawn.astype("<i8").tobytes()).hexdigest()[:16] == HASH
