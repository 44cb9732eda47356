"""The safetensors format, against the official library and against bad headers."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch
from tests.files.refusals import label, refused

from keyspan.files import safetensors

DTYPES = ["<f8", "<f4", "<i8", "<i4", "|u1", "|b1"]
plain_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = plain_text.filter(lambda name: name != "__metadata__")
tensors = st.dictionaries(
    names, st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0))),
    max_size=5,
)  # fmt: skip


def raw(header: Any, data: bytes = b"") -> bytes:
    """A file with this header, whatever it says."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: Any = "F32", shape: Any = (3,), offsets: Any = (0, 12)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tensors=tensors, metadata=st.dictionaries(plain_text, plain_text, max_size=3))
def test_the_official_library_reads_what_we_write(tmp_path: Path, tensors: dict[str, Any], metadata: dict[str, str]) -> None:
    path = tmp_path / "file.safetensors"
    safetensors.write(path, tensors, metadata)
    official = load_file(path)
    assert set(official) == set(tensors) == set(safetensors.read_header(path).tensors)
    for name, array in tensors.items():
        ours = safetensors.read_tensor(path, name)
        assert ours.shape == official[name].shape == array.shape
        assert ours.dtype == official[name].dtype == array.dtype
        assert ours.tobytes() == official[name].tobytes() == array.tobytes()
    with safe_open(path, framework="numpy") as handle:
        assert (handle.metadata() or {}) == metadata == safetensors.read_metadata(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tensors=tensors.filter(bool), metadata=st.dictionaries(plain_text, plain_text, max_size=3))
def test_we_read_what_the_official_library_writes(tmp_path: Path, tensors: dict[str, Any], metadata: dict[str, str]) -> None:
    path = tmp_path / "file.safetensors"
    save_file(tensors, path, metadata or None)
    header = safetensors.read_header(path)
    assert dict(header.metadata) == metadata
    for name, array in tensors.items():
        assert safetensors.read_tensor(path, name, header).tobytes() == array.tobytes()


def test_half_precision_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    values = torch.tensor([[1.0, -2.5, 3.1415926], [1e-30, 65504.0, -0.0]])
    save_torch({"b": values.bfloat16(), "h": values.half(), "n": torch.empty(0, 3, dtype=torch.bfloat16)}, path)
    bf16, half = safetensors.read_tensor(path, "b"), safetensors.read_tensor(path, "h")
    assert bf16.dtype == np.float32 and bf16.tobytes() == values.bfloat16().float().numpy().tobytes()
    assert half.dtype == np.float16 and half.tobytes() == values.half().numpy().tobytes()
    assert safetensors.read_tensor(path, "n").shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_eight_bits_are_exact(tmp_path: Path, dtype: torch.dtype) -> None:
    """All 256 of them, NaN and infinities too."""
    path = tmp_path / "file.safetensors"
    codes = torch.arange(256, dtype=torch.uint8).view(dtype)
    save_torch({"w": codes}, path)
    read = safetensors.read_tensor(path, "w")
    assert read.dtype == np.float32 and np.array_equal(read, codes.float().numpy(), equal_nan=True)
    assert np.array_equal(np.signbit(read), np.signbit(codes.float().numpy()) | (np.isnan(read) & np.signbit(read)))


def test_scales_of_eight_bits_are_listed_but_not_read(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    save_torch({"w": torch.ones(3, 5).to(torch.float8_e8m0fnu)}, path)
    assert safetensors.read_header(path).tensors["w"].shape == (3, 5)
    refused(lambda: safetensors.read_tensor(path, "w"), "'w'", "F8_E8M0")


@given(shape=hnp.array_shapes(min_dims=1, min_side=0), first=st.integers(-3, 12), count=st.integers(-3, 12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_are_a_slice(tmp_path: Path, shape: tuple[int, ...], first: int, count: int) -> None:
    path = tmp_path / "file.safetensors"
    whole = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    safetensors.write(path, {"a": whole, "b": np.ones(7)})
    read = safetensors.read_tensor(path, "a", rows=(first, first + count))
    assert np.array_equal(read, whole[max(0, first) : max(0, first + count)])
    assert safetensors.read_tensor(path, "b", rows=(2, 4)).shape == (2,)


def test_equal_content_gives_equal_aligned_bytes(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    rows = np.arange(15.0).reshape(3, 5)
    safetensors.write(one, {"a": np.array([True]), "b": rows}, {"x": "1", "y": "2"})
    safetensors.write(two, {"b": np.asfortranarray(rows).astype(">f8"), "a": np.array([True])}, {"y": "2", "x": "1"})
    assert one.read_bytes() == two.read_bytes()
    assert safetensors.read_header(one).tensors["b"].begin % 8 == 0


def test_a_strided_view_is_written_as_it_looks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    view = np.arange(30).reshape(5, 6)[::-2, 1::2]
    safetensors.write(path, {"v": view})
    assert np.array_equal(safetensors.read_tensor(path, "v"), view)


@pytest.mark.parametrize(
    "tensors, metadata, mentions",
    [
        ({"a": np.zeros(3, dtype=np.float16)}, {}, ("'a'", "float16")),
        ({"a": np.zeros(3, dtype=complex)}, {}, ("complex128",)),
        ({"a": np.array([None])}, {}, ("object",)),
        ({"__metadata__": np.zeros(3)}, {}, ("__metadata__",)),
        ({"__metadata__": np.zeros(3)}, {"x": "y"}, ("__metadata__",)),
        ({"\ud800": np.zeros(3)}, {}, ("Unicode", "\\ud800")),
        ({1: np.zeros(3)}, {}, ("text",)),
        ({"a": np.zeros(3)}, {"x": 1}, ("text",)),
    ],
    ids=label,
)
def test_what_cannot_be_written_is_refused(
    tmp_path: Path, tensors: dict[str, Any], metadata: dict[str, str], mentions: tuple[str, ...]
) -> None:
    refused(lambda: safetensors.write(tmp_path / "file", tensors, metadata), *mentions)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content, mentions",
    [
        (b"\x01\x02\x03", ("header length", "3 bytes")),
        (struct.pack("<Q", 2**62), ("header length", str(2**62))),
        (struct.pack("<Q", 100) + b"{}", ("header length", "100 in a file of 10 bytes")),
        (raw(b"{"), ("JSON",)),
        (raw(b""), ("JSON",)),
        (raw(b"\xff\xff"), ("JSON",)),
        (raw(b"[" * 100_000), ("JSON",)),
        (raw(b'{"a":' + b"9" * 9000 + b"}"), ("JSON",)),
        (raw(b'{"a":{}, "a":{}}'), ("JSON", "twice")),
        (raw([1, 2]), ("JSON object", "[1, 2]")),
        (raw({"__metadata__": {"a": 1}}), ("metadata", "{'a': 1}")),
        (raw({"__metadata__": "x"}), ("metadata", "'x'")),
        (raw({"w": 7}), ("'w'", "data_offsets", "7")),
        (raw({"w": {"dtype": "F32", "shape": [3]}}), ("'w'", "data_offsets")),
        (raw({"w": entry() | {"extra": 1}}, bytes(12)), ("'w'", "extra")),
        (raw({"w": entry(dtype="F33")}, bytes(12)), ("'w'", "known dtype", "'F33'")),
        (raw({"w": entry(dtype=["F32"])}, bytes(12)), ("'w'", "known dtype", "['F32']")),
        (raw({"w": entry(shape=[-3])}, bytes(12)), ("'w'", "shape", "[-3]")),
        (raw({"w": entry(shape=[3.0])}, bytes(12)), ("'w'", "[3.0]")),
        (raw({"w": entry(shape=[True, 3])}, bytes(12)), ("'w'", "[True, 3]")),
        (raw({"w": entry(shape=3)}, bytes(12)), ("'w'", "shape", "3")),
        (raw({"w": entry(shape=[1] * 17 + [3])}, bytes(12)), ("'w'", "shape")),
        (raw({"w": entry(shape=[0, 2**47, 2**47], offsets=[0, 0])}), ("'w'", "shape")),
        (raw({"w": entry(shape=[2**60])}, bytes(12)), ("'w'", "shape", str(2**60))),
        (raw({"w": entry(shape=[10**9])}, bytes(12)), ("'w'", "1000000000", "12 bytes")),
        (raw({"w": entry(shape=[10**9], offsets=[0, 4 * 10**9])}, bytes(12)), ("fill the file", "4000000")),
        (raw({"w": entry(offsets=[12, 0])}, bytes(12)), ("'w'", "[begin, end]", "[12, 0]")),
        (raw({"w": entry(offsets=[0])}, bytes(12)), ("'w'", "[begin, end]")),
        (raw({"w": entry(offsets=[-12, 0])}, bytes(12)), ("'w'", "[-12, 0]")),
        (raw({"w": entry(offsets=[0, 8])}, bytes(12)), ("'w'", "F32 [3] in 8 bytes")),
        (raw({"v": entry(), "w": entry()}, bytes(12)), ("an overlap at 'w'",)),
        (raw({"v": entry(), "w": entry(offsets=[8, 20])}, bytes(20)), ("an overlap at 'w'",)),
        (raw({"v": entry(), "w": entry(offsets=[16, 28])}, bytes(28)), ("a gap at 'w'",)),
        (raw({"w": entry()}, bytes(11)), ("fill the file", "cut")),
        (raw({"w": entry()}, bytes(13)), ("fill the file",)),
        (raw({"w": entry(dtype="F4", shape=[3], offsets=[0, 1])}, bytes(1)), ("'w'", "F4 [3] in 1 bytes")),
        (raw({"a\nb\u2028": 7}), ("'a\\nb\\u2028'",)),
    ],
    ids=label,
)
def test_bad_files_are_refused(tmp_path: Path, content: bytes, mentions: tuple[str, ...]) -> None:
    path = tmp_path / "file.safetensors"
    path.write_bytes(content)
    refused(lambda: safetensors.read_header(path), "file.safetensors", *mentions)


def test_a_file_cut_after_its_header_was_read(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    safetensors.write(path, {"w": np.zeros(7)})
    header = safetensors.read_header(path)
    with path.open("r+b") as handle:
        handle.truncate(path.stat().st_size - 8)
    refused(lambda: safetensors.read_tensor(path, "w", header), "'w'", "7 values", "6")


def test_missing_tensors_are_named_briefly(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    safetensors.write(path, {f"layer\n{i:02d}": np.zeros(1) for i in range(20)})
    refused(lambda: safetensors.read_tensor(path, "w"), "'w'", "layer\\n00", "layer\\n07 ...")
