"""What the laboratory must find on cells that were measured before, through the command that a user types."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from typing import Any

import pytest


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"


def keyspan(url: str, *words: str) -> dict[str, Any]:
    main = "import sys; from keyspan.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", main, "--store", url, "--json", "--quiet", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def work_of_children() -> float:
    """Seconds that a core has spent on the processes started here; a busy machine does not change them much."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def relations(url: str, items: int, d_model: int, seeds: int = 3) -> dict[str, Any]:
    return keyspan(url, "measure", "relations", "--items", str(items), "--d-model", str(d_model), "--seeds", str(seeds))


def test_compressed_items_want_several_heads(url: str) -> None:
    """128 items in 16 dimensions: one head is not enough at any width, D_K* is between 48 and 80 with 4 or more."""
    found = relations(url, 128, 16)
    assert 48 <= found["key_budget"]["estimate"] <= 80
    assert found["heads"] >= 4
    assert max(p["f1"] for p in found["probes"] if p["heads"] == 1) <= 0.4
    assert max(p["f1_best"] for p in found["probes"] if p["heads"] == 1) <= 0.4
    assert found["failed"] == 0
    began = work_of_children()
    again = relations(url, 128, 16)
    assert work_of_children() - began < 2
    assert again == found | {"trained_now": 0}


def test_uncompressed_items_want_one_head(url: str) -> None:
    """As many dimensions as items: one head, D_K <= 8."""
    found = relations(url, 128, 128, seeds=2)
    assert found["heads"] == 1
    assert found["key_budget"]["estimate"] <= 8


def test_mild_compression(url: str) -> None:
    """128 items in 32 dimensions: D_K* <= 24; then two more seeds train only themselves."""
    found = relations(url, 128, 32)
    assert found["key_budget"]["estimate"] <= 24
    more = relations(url, 128, 32, seeds=5)
    old = {p["run_id"] for p in found["probes"]}
    new = [p for p in more["probes"] if p["run_id"] not in old]
    assert {p["seed"] for p in new} == {3, 4}
    assert more["trained_now"] == len(new)
    assert old <= set(more["run_ids"])


def test_the_solvers_hold_more_than_training_finds(url: str) -> None:
    """64 items in 16 dimensions. Heads that choose their edges need less than heads whose edges were drawn for them."""
    cell = ("measure", "relations", "--items", "64", "--d-model", "16", "--recipe")
    solver, fixed = (keyspan(url, *cell, name) for name in ("solver", "solver-fixed"))
    assert 8 <= solver["key_budget"]["estimate"] <= fixed["key_budget"]["estimate"] <= 20
    assert (solver["arithmetic"], solver["target"], solver["criterion"], solver["starts"]) == ("fp64", 1.0, "all", 4)
    assert (fixed["starts"], solver["failed"], fixed["failed"]) == (1, 0, 0)
    for answer in (solver, fixed):
        held = {p["seed"] for p in answer["probes"] if p["exact"] and p["key_budget"] == answer["key_budget"]["estimate"]}
        assert held == {0, 1, 2}
        assert all(p["gap_at_most"] is None or p["heads"] == 1 for p in answer["probes"])
    again = keyspan(url, *cell, "solver")
    assert again == solver | {"trained_now": 0}


def test_one_head_that_cannot_hold_its_graph_is_told_so(url: str) -> None:
    """40 items in 8 dimensions: twice what one head of any width can hold."""
    point = ("--heads", "1", "--key-budgets", "4", "--recipe", "solver-fixed", "--seeds", "2")
    found = keyspan(url, "measure", "relations", "--items", "40", "--d-model", "8", *point)
    assert found["key_budget"]["estimate"] is None
    assert all(not p["exact"] and 0 <= p["gap_at_most"] < 1e-9 for p in found["probes"])
