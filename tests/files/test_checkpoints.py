"""Folders of checkpoints: the index is an allow-list, nothing leads out of the folder, what is wrong is said in one line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file as save_torch
from tests.advice.made import save
from tests.files.refusals import label, refused

from keyspan.files import safetensors
from keyspan.files.checkpoints import open_checkpoint

A, B = np.arange(6.0).reshape(2, 3), np.arange(20.0).reshape(5, 4)
CONFIG = {"model_type": "x"}


def index(folder: Path, files: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))


def test_one_file_and_shards_hold_the_same(tmp_path: Path) -> None:
    one, many = save(tmp_path / "one", CONFIG, {"a": A, "b": B}), save(tmp_path / "many", CONFIG, {"a": A, "b": B}, shards=2)
    for folder in (one, many):
        checkpoint = open_checkpoint(folder)
        assert set(checkpoint.files) == {"a", "b"} and "a" in checkpoint and "c" not in checkpoint
        assert np.array_equal(checkpoint.read("a"), A) and np.array_equal(checkpoint.read("b", (1, 3)), B[1:3])
        assert checkpoint.shape("b") == (5, 4) and checkpoint.config == CONFIG


def test_a_single_file_may_have_any_name(tmp_path: Path) -> None:
    save(tmp_path, CONFIG, {"a": A})
    (tmp_path / "model.safetensors").rename(tmp_path / "weights.safetensors")
    assert np.array_equal(open_checkpoint(tmp_path).read("a"), A)


def test_the_index_is_an_allow_list(tmp_path: Path) -> None:
    """A file that it does not name is not opened, a tensor that it does not name is not there."""
    save(tmp_path, CONFIG, {"a": A, "b": B}, shards=2)
    safetensors.write(tmp_path / "model-00001-of-00002.safetensors", {"a": A, "b": -B, "hidden": A})
    (tmp_path / "model-00003-of-00002.safetensors").write_bytes(b"not opened")
    (tmp_path / "model.safetensors").write_bytes(b"not opened")
    checkpoint = open_checkpoint(tmp_path)
    assert np.array_equal(checkpoint.read("b"), B), "from the file that the index names"
    assert "hidden" not in checkpoint
    refused(lambda: checkpoint.read("hidden"), "'hidden'", "none")


def test_headers_are_read_when_they_are_needed(tmp_path: Path) -> None:
    save(tmp_path, CONFIG, {"a": A, "b": B}, shards=2)
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(b"broken")
    checkpoint = open_checkpoint(tmp_path)
    assert np.array_equal(checkpoint.read("a"), A)
    refused(lambda: checkpoint.read("b"), "model-00002-of-00002.safetensors", "header")


@pytest.mark.parametrize(
    "file",
    ["../secret.safetensors", "/etc/secret.safetensors", "sub/x.safetensors", "..\\x.safetensors", "C:x.safetensors", "x.bin",
     ".safetensors", "..safetensors", ".x.safetensors", "x.safetensors/../y.safetensors", "x\0.safetensors", "", 3, None,
     ["x.safetensors"]],
)  # fmt: skip
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, file: Any) -> None:
    folder = save(tmp_path / "model", CONFIG, {"a": A})
    safetensors.write(tmp_path / "secret.safetensors", {"a": A})
    index(folder, {"a": file})
    refused(lambda: open_checkpoint(folder), "names of .safetensors beside it", "'a'")


@pytest.mark.parametrize(
    "files, mentions",
    [({}, ("weight_map", "{}")), ([], ("weight_map",)), (None, ("weight_map",)), ("x", ("weight_map", "'x'"))],
    ids=label,
)
def test_an_index_must_have_a_map(tmp_path: Path, files: Any, mentions: tuple[str, ...]) -> None:
    save(tmp_path, CONFIG, {"a": A})
    index(tmp_path, files)
    refused(lambda: open_checkpoint(tmp_path), *mentions)


def test_a_tensor_that_is_not_where_the_index_says(tmp_path: Path) -> None:
    save(tmp_path, CONFIG, {"a": A})
    index(tmp_path, {"a": "model.safetensors", "b": "model.safetensors", "c": "gone.safetensors"})
    checkpoint = open_checkpoint(tmp_path)
    refused(lambda: checkpoint.read("b"), "model.safetensors", "'b'", "index")
    refused(lambda: checkpoint.read("c"), "gone.safetensors", "exists")


def test_folders_that_are_none(tmp_path: Path) -> None:
    refused(lambda: open_checkpoint(tmp_path / "nowhere"), "folder", "No such file")
    refused(lambda: open_checkpoint("nul\0"), "folder")
    (tmp_path / "file").write_text("x")
    refused(lambda: open_checkpoint(tmp_path / "file"), "folder", "Not a directory")
    refused(lambda: open_checkpoint(tmp_path), "config.json")
    (tmp_path / "config.json").write_text("{}")
    refused(lambda: open_checkpoint(tmp_path), "must hold safetensors")
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    refused(lambda: open_checkpoint(tmp_path), "pytorch_model.bin", "unpickled")
    for name in ("a", "b"):
        safetensors.write(tmp_path / f"{name}.safetensors", {"a": A})
    refused(lambda: open_checkpoint(tmp_path), "must have an index")
    for name in ("a", "b"):
        (tmp_path / f"{name}.safetensors.index.json").write_text("{}")
    refused(lambda: open_checkpoint(tmp_path), "must have one index")


@pytest.mark.parametrize(
    "config, mentions",
    [
        (b"{", ("config.json", "JSON")),
        (b"[1]", ("JSON object", "[1]")),
        (b'{"a": 1, "a": 2}', ("twice",)),
        (b'{"a": NaN}', ("NaN",)),
        (b"\xff\xfe", ("UTF-8", "0xff")),
        (b"[" * 100_000, ("JSON",)),
        (b'{"a": ' + b"9" * 5000 + b"}", ("JSON",)),
        (b"", ("empty",)),
    ],
    ids=label,
)
def test_configs_that_are_none(tmp_path: Path, config: bytes, mentions: tuple[str, ...]) -> None:
    save(tmp_path, CONFIG, {"a": A})
    (tmp_path / "config.json").write_bytes(config)
    refused(lambda: open_checkpoint(tmp_path), "config.json", *mentions)


def test_what_is_no_weight_is_refused(tmp_path: Path) -> None:
    save(tmp_path, CONFIG, {"i": np.arange(3), "n": np.array([1.0, np.nan])})
    checkpoint = open_checkpoint(tmp_path)
    refused(lambda: checkpoint.read("i"), "'i'", "I64", "floats")
    refused(lambda: checkpoint.read("n"), "'n'", "finite", "NaN")


def test_half_precision_is_read_exactly(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    values = torch.linspace(-3, 3, 24).reshape(6, 4)
    halves = {"b": values.bfloat16(), "h": values.half(), "f": values, "d": values.double()}
    save_torch(halves, tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(tmp_path)
    for name, tensor in halves.items():
        read = checkpoint.read(name)
        assert read.dtype == (np.float64 if name == "d" else np.float32)
        assert np.array_equal(read, tensor.double().numpy()) and np.array_equal(checkpoint.read(name, (2, 5)), read[2:5])


@pytest.mark.parametrize("rows", [None, (0, 6), (1, 2), (3, 6)])
def test_eight_bits_in_blocks_are_scaled(tmp_path: Path, rows: tuple[int, int] | None) -> None:
    config = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 2]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    eight = torch.linspace(-3, 3, 30).reshape(6, 5).to(torch.float8_e4m3fn)
    scales = torch.arange(1.0, 7.0).reshape(2, 3)
    save_torch({"w": eight, "w_scale_inv": scales}, tmp_path / "model.safetensors")
    whole = eight.float() * scales.repeat_interleave(4, 0)[:6].repeat_interleave(2, 1)[:, :5]
    read = open_checkpoint(tmp_path).read("w", rows)
    assert np.array_equal(read, whole.numpy() if rows is None else whole.numpy()[rows[0] : rows[1]])


@pytest.mark.parametrize("block", [None, [4], [2, 2], [0, 2], ["4", 2], "4"])
def test_eight_bits_in_other_blocks_are_refused(tmp_path: Path, block: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": {"weight_block_size": block}}))
    save_torch({"w": torch.ones(6, 5).to(torch.float8_e4m3fn), "w_scale_inv": torch.ones(2, 3)}, tmp_path / "model.safetensors")
    refused(lambda: open_checkpoint(tmp_path).read("w"), "w_scale_inv", "block")
