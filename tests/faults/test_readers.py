"""Damaged inputs for every reader: 20,000 of them. A million, guided by coverage: `make faults`."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import pytest
from tests.faults import fuzz, targets
from tests.faults.targets import TARGETS

from keyspan.files.graphs import read_graph
from keyspan.files.weights import read_weights

EACH = -(-20_000 // len(TARGETS))
ROOM = 64  # MiB that a process may grow by


def peak() -> float:
    """MiB that this process has taken at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_inputs_are_read_or_refused_soon_and_in_little_memory(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    consume = target.prepare(tmp_path)
    for whole in target.whole:
        consume(whole)
    before, slowest = peak(), 0.0
    for data in fuzz.inputs(target.whole, target.words, EACH, seed=1):
        began = time.process_time()
        try:
            consume(data)
        except BaseException:
            print(data)
            raise
        slowest = max(slowest, time.process_time() - began)
    assert slowest < 2 and peak() - before < ROOM


def test_the_undamaged_inputs_are_read(tmp_path: Path) -> None:
    """Or the damaged ones would be refused for another reason."""
    targets.read_spec(TARGETS["spec"].whole[0])
    targets.read_sweep_text(TARGETS["sweep.toml"].whole[0])
    targets.read_record(TARGETS["record"].whole[0])
    inside = targets.zipped(TARGETS["graph.npz, inside"].whole[0])
    (tmp_path / "g.npz").write_bytes(inside)
    assert len(read_graph(tmp_path / "g.npz")) == 3
    (tmp_path / "w.safetensors").write_bytes(targets.with_length(TARGETS["weights"].whole[0]))
    assert read_weights(tmp_path / "w.safetensors").w_query.shape == (1, 4, 3)
