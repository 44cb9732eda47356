"""Ids of constructions, printed once: a change here is a change of identity, and needs a new version of the plan."""

from keyspan.problems.relations import Relations
from keyspan.runners.construct import run_of
from keyspan.theory.constructions import METHODS, plan

IDS = {
    "random-signs": "rdba38952996f744e29a77924",
    "binary-codes": "r75109a8bb291c547f0dcc4e5",
    "circle": "ra2ccd25d7ed3e1213b5219d1",
    "trivial": "r08516c5daa05cdcdaba957bf",
    "outer": "r2996527ac60ac9af5cfabfd0",
    "pinv": "r85bfe40441e0d2a916ea6ca2",
    "ridge": "rcdf09be6f7d288a3c364d820",
    "pinv+code": "r3b31832d5979a201f21a6af9",
    "ridge+code": "r3a31ebd0519dda2c57d0ad1a",
    "quiet": "r353f5bbc823c0157f0cf8a23",
    "cca": "r37cb7aa0a57d0e568adb7f6d",
    "repair": "r1b5066b6683fc198ca90a3db",
}


def test_run_ids() -> None:
    problem = Relations(items=64, d_model=32)
    assert {name: run_of(problem, 0, plan(name), 4, 5).run_id for name in METHODS} == IDS
