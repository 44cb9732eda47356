"""Other block sizes: each is timed and held to the ones that are set; nothing is chosen."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("triton")

from keyspan.attention.kernels.channel import SHARE_BYTES, Shape
from keyspan.bench import tune


def test_every_candidate_changes_one_thing() -> None:
    (name, first, share), *others = list(tune.candidates())
    assert (name, first, share) == ("set", Shape(), SHARE_BYTES)
    for name, shape, share in others:
        changed = [f for f in ("tile", "row", "back", "project", "weigh") if getattr(shape, f) != getattr(first, f)]
        assert len(changed) + (share != SHARE_BYTES) == 1 and name.split()[0] in (*changed, "share")
        rows, columns = (shape.row[0], shape.back[0]), (shape.row[1], shape.back[1])
        assert all(n % 32 == 0 for n in (*rows, *columns))


def test_candidates_are_held_to_what_is_set(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Through Triton's interpreter: another number of columns a block sums in another order, and no more."""
    monkeypatch.setattr(tune, "ROW", (tune.ROW[0], (32, 64, 4, 2)))
    assert tune.main(["64x24x3x5", "--device", "cpu", "--members", "1", "--seconds", "0.001", "--only", "2"]) == 0
    set_, other = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert set_["candidate"] == "set" and set_["error"] == 0.0 and set_["over_set"] == 1.0
    assert other["candidate"] == "row 32,64,4,2" and other["error"] < 1e-2 and other["seconds"] > 0


def test_what_cannot_be_is_said_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert tune.main(["61x17", "--device", "cpu"]) == 2
    assert capsys.readouterr().err.startswith("keyspan: ")
