"""Instruments whose members see another batch at every step, and carry something along: the seam, on a small example.

Here a channel is shown a part of its scale at every step (`x` times a factor that depends on the step alone) and keeps
its weights of the best look. Interruptions and company must change none of its bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.test_fleet import alone, channel_run, in_pieces, train

from keyspan.attention.channel import ChannelBatch, ChannelBucket
from keyspan.attention.instrument import Params
from keyspan.lab import crew
from keyspan.specs import Run

RUNS = [channel_run(h, k, seed) for seed, (h, k) in enumerate([(3, 2), (4, 2), (3, 2), (4, 2), (2, 1)])]


class Moving(ChannelBucket):
    """Sees `(1 + step % 3)` times its rows; remembers how often it was turned, and the weights of its first look."""

    static = False

    def memory(self, runs: Sequence[Run]) -> Params:
        first = {f"first.{k}": torch.zeros_like(v) for k, v in self.init(runs).items()}
        return first | {"turns": torch.zeros(len(runs), dtype=torch.int64), "looks": torch.zeros(len(runs))}

    def turn(self, batch: ChannelBatch, memory: Params, steps: Sequence[int]) -> None:
        assert memory["turns"].tolist() == list(steps)
        memory["turns"] += 1
        for member, step in enumerate(steps):
            scale = (1.0 + step % 3) / (1.0 + (step - 1) % 3) if step else 1.0
            batch.x[member] *= scale
            batch.xt[member] *= scale

    def look(self, params: Params, batch: Any, memory: Params, steps: Sequence[int]) -> None:
        new = memory["looks"] == 0
        for name, w in params.items():
            memory[f"first.{name}"][new] = w[new]
        memory["looks"] += 1

    def kept(self, params: Params, memory: Params) -> Params:
        return {name: memory[f"first.{name}"] for name in params}


@pytest.fixture
def moving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(crew.BUCKETS, "channel", f"{__name__}:Moving")
    monkeypatch.setattr(crew, "import_module", lambda name: type("M", (), {"Moving": Moving}))


@pytest.mark.usefixtures("moving")
def test_company_changes_no_bit() -> None:
    assert alone(RUNS) == train(RUNS)


def test_the_weights_that_were_kept_are_the_ones_judged(moving: None, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = train(RUNS)
    monkeypatch.setattr(Moving, "kept", ChannelBucket.kept)
    last = train(RUNS)
    assert all(kept[run_id].weights != last[run_id].weights for run_id in kept)


@pytest.mark.usefixtures("moving")
@pytest.mark.parametrize("calls", [2, 7])
def test_what_is_carried_along_survives_interruptions(calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scale is put right by the step alone, since a batch is loaded afresh."""

    def turn(self: Moving, batch: ChannelBatch, memory: Params, steps: Sequence[int]) -> None:
        assert memory["turns"].tolist() == list(steps)
        memory["turns"] += 1

    monkeypatch.setattr(Moving, "turn", turn)
    assert in_pieces(RUNS, tmp_path, itertools.repeat(calls, 500)) == train(RUNS)
