"""Stores and an audit that the page is shown with."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from tests.cli.asked import Oracle, knows

from keyspan.evidence.record import Record, make_record
from keyspan.evidence.store import Store
from keyspan.problems.dichotomies import Dichotomies
from keyspan.problems.relations import Relations
from keyspan.runners import driver
from keyspan.runners.questions import calibration_questions, relations_question
from keyspan.specs import ids_of

CELLS = ((16, 8), (32, 16), (64, 16), (128, 16), (128, 32))


def fill(store: Store) -> None:
    """Cells around the sizes that the sliders begin at, and a calibration."""
    asked = [relations_question(Relations(items=m, d_model=d), seeds=3, heads=[1, 2, 4, 8]) for m, d in CELLS]
    solver, _ = calibration_questions(4, seeds=10)
    assert isinstance(solver.problem, Dichotomies)
    driver.answer([*asked, solver], store, Oracle())


def many(runs: int) -> Iterator[Record]:
    """So many records of small cells, quickly: runs differ in their replicate alone within a level."""
    made, d_model = 0, 4
    while True:
        question = relations_question(Relations(items=32, d_model=d_model), heads=[1, 2], key_budgets=[4, 8, 16, 24], seeds=1)
        for arm in question.arms:
            for level in arm.levels:
                (run,) = question.runs(arm, level)
                first = make_record(run, knows(run), steps=7, seconds=0.01, device="cpu")
                for replicate in range(25):
                    if made == runs:
                        return
                    made += 1
                    spec = dict(first.run) | {"replicate": replicate}
                    problem_id, run_id = ids_of(spec)
                    yield Record(
                        run_id=run_id, problem_id=problem_id, run=spec, verdict=first.verdict, provenance=first.provenance
                    )
        d_model += 1


def _layer(layer: int) -> dict[str, Any]:
    heads, d_key = 4, 16
    spectrum = [[round(4 * math.exp(-k / (2 + layer + head)), 6) for k in range(d_key)] for head in range(heads)]
    effective = [sum(values) / max(values) for values in spectrum]
    return {
        "layer": layer,
        "heads": heads,
        "kv_heads": 2,
        "d_key": d_key,
        "key_budget": heads * d_key,
        "effective_rank": effective,
        "stable_rank": [sum(v * v for v in values) / values[0] ** 2 for values in spectrum],
        "used": sum(effective),
        "used_fraction": sum(effective) / (heads * d_key),
        "symmetry": [0.1 * head for head in range(heads)],
        "overlap": {"smallest_angle": [80.0 - head for head in range(heads)]},
        "distinct_heads": 3.5,
        "capacity": {"estimate": 90.0, "low": 80.0, "high": 120.0, "basis": "law", "out_of_range": False},
        "relations": None,
        "spectrum": spectrum,
    }


AUDIT = json.dumps(
    {
        "schema": 1,
        "keyspan": "0.1.0",
        "folder": "a-model",
        "model_type": "bert",
        "d_model": 64,
        "layers": [_layer(layer) for layer in range(6)],
        "summary": {"layers": 6, "key_budget": 384, "used": 100.0, "used_fraction": 0.26},
        "notes": ["Positions are learned, so scores do not depend on distance."],
    }
)
