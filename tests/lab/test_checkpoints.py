"""Checkpoints: what is read is what was written, bit for bit, and a damaged file is no file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from keyspan.lab.checkpoints import Checkpoints
from keyspan.seeds import Stream

RUN = "r0123456789abcdef01234567"


def trees(dtype: torch.dtype) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Parameters and state of three members, scalars among them, with numbers that are easily lost."""
    w = torch.from_numpy(Stream("checkpoint", "w").normal((3, 5, 2, 7))).to(dtype)
    w[1, 0, 0, :4] = torch.tensor([math.nan, math.inf, -0.0, 1e-40], dtype=dtype)
    params = {"w_query": w, "bias": torch.tensor([0.1, -0.2, 0.3], dtype=dtype)}
    state = {"first.w_query": w * w, "f": torch.tensor([math.inf, 1.0 / 3, 2.0], dtype=dtype), "s": w[:, :, :0]}
    return params, state


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("member", [0, 1, 2])
def test_a_member_comes_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype, member: int) -> None:
    params, state = trees(dtype)
    Checkpoints(tmp_path / "new" / "folder").save(RUN, member, 1, 371, params, state)
    saved = Checkpoints(tmp_path / "new" / "folder").load(RUN)
    assert saved is not None and (saved.phase, saved.step) == (1, 371)
    for before, after in ((params, saved.params), (state, saved.state)):
        assert set(before) == set(after)
        for name in before:
            mine, theirs = before[name][member].contiguous(), after[name]
            assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
            assert mine.numpy().tobytes() == theirs.numpy().tobytes()
    assert saved.params["bias"].shape == ()


def test_what_was_loaded_can_be_written_to(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(RUN, 0, 0, 1, *trees(torch.float32))
    first, second = checkpoints.load(RUN), checkpoints.load(RUN)
    assert first is not None and second is not None
    first.params["w_query"].zero_()
    assert bool(second.params["w_query"].any())


def test_a_later_checkpoint_replaces_an_earlier_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    params, state = trees(torch.float64)
    checkpoints.save(RUN, 0, 0, 10, params, state)
    checkpoints.save(RUN, 2, 1, 20, {"bias": params["bias"]}, {})
    saved = checkpoints.load(RUN)
    assert saved is not None and (saved.phase, saved.step) == (1, 20)
    assert set(saved.params) == {"bias"} and saved.state == {} and float(saved.params["bias"]) == 0.3
    assert [p.name for p in tmp_path.iterdir()] == [f"{RUN}.safetensors"]


def test_members_are_kept_apart(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    params, state = trees(torch.float32)
    checkpoints.save(RUN, 0, 0, 1, params, state)
    checkpoints.save(RUN[:-1] + "8", 1, 0, 2, params, state)
    one, other = checkpoints.load(RUN), checkpoints.load(RUN[:-1] + "8")
    assert one is not None and other is not None and (one.step, other.step) == (1, 2)
    checkpoints.drop(RUN)
    assert checkpoints.load(RUN) is None and checkpoints.load(RUN[:-1] + "8") is not None


def test_dropping_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    Checkpoints(tmp_path).drop(RUN)
    Checkpoints(tmp_path / "nowhere").drop(RUN)
    assert Checkpoints(tmp_path / "nowhere").load(RUN) is None


def test_a_damaged_file_counts_as_none(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(RUN, 0, 1, 371, *trees(torch.float32))
    path = tmp_path / f"{RUN}.safetensors"
    whole = path.read_bytes()
    for cut in (0, 1, 7, 8, 20, len(whole) // 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert checkpoints.load(RUN) is None, cut
    path.write_bytes(b"\xff" * len(whole))
    assert checkpoints.load(RUN) is None
    path.write_bytes(whole + b"more")
    assert checkpoints.load(RUN) is None
    path.write_bytes(whole)
    assert checkpoints.load(RUN) is not None


@pytest.mark.parametrize("lost", [b'"step"', b'"phase"', b'"shape.params.bias"', b"params.bias"])
def test_a_file_without_its_notes_counts_as_none(tmp_path: Path, lost: bytes) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(RUN, 0, 1, 371, *trees(torch.float32))
    path = tmp_path / f"{RUN}.safetensors"
    whole = path.read_bytes()
    assert lost in whole
    path.write_bytes(whole.replace(lost, lost[:-2] + b"X" + lost[-1:], 1))
    assert checkpoints.load(RUN) is None
