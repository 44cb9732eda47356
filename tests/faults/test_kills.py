"""Ten kills at random moments. 200 of them: `make faults`."""

from __future__ import annotations

import random
from pathlib import Path

from tests.faults import kills

SMALL = """
[[grid]]
seeds = 2
steps = 200
heads = [1, 2]
key_budgets = [4, 8]
each.items = [12, 16, 20, 24]
each.d_model = [4, 8]
"""


def test_killed_at_any_moment_a_sweep_loses_nothing_and_answers_the_same(tmp_path: Path) -> None:
    calm = kills.undisturbed(tmp_path, SMALL)
    assert len(calm.bits) == 64 and calm.answer["done"] == 8
    found: list[kills.Kill] = []
    for number in range(10):
        found += kills.episode(number, tmp_path, calm, random.Random(number), 1, 10 - len(found))
        if len(found) == 10:
            return
    raise AssertionError("not even one kill an episode")
