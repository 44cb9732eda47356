"""Item vectors from `.npy` and `.safetensors`."""

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.files.refusals import label, refused

from keyspan.files import npy, safetensors
from keyspan.files.arrays import read_array, split_name

finite = st.floats(allow_nan=False, allow_infinity=False, width=16)


def npy_bytes(header: str, data: bytes = b"", version: int = 1) -> bytes:
    """An `.npy` file with this header, whatever it says."""
    text = header.encode("latin1") + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def head(descr: str = "'<f8'", shape: str = "(3, 5)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=hnp.arrays(np.float16, st.tuples(st.integers(1, 7), st.integers(1, 11)), elements=finite),
    dtype=st.sampled_from(["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"]),
    fortran=st.booleans(),
)
def test_rows_are_one_float64_array_however_stored(tmp_path: Path, rows: Any, dtype: str, fortran: bool) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.asarray(rows, dtype=dtype, order="F" if fortran else "C"))
    array = read_array(path)
    assert array.dtype == np.float64 and array.dtype.isnative and array.flags.c_contiguous and array.flags.writeable
    assert np.array_equal(array, rows)


@pytest.mark.parametrize("dtype", ["i1", "i2", ">i4", "i8", "u1", "u2", "u4", ">u8"])
def test_integers_become_floats(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.arange(6).reshape(2, 3).astype(dtype))
    assert read_array(path).tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("shape", ["(3, 5)", "(3L, 5L)", "( 3,5 , )"])
def test_headers_of_other_writers(tmp_path: Path, version: int, shape: str) -> None:
    path = tmp_path / "rows.npy"
    header = f'{{"shape": {shape}, "fortran_order": False, "descr": "<f8"}}'
    path.write_bytes(npy_bytes(header, bytes(120), version))
    assert read_array(path).shape == (3, 5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(array=hnp.arrays(st.sampled_from(["<f8", ">f4", "<i8", "|b1", "|u1"]), hnp.array_shapes(min_side=0, max_side=5)))
def test_npy_round_trip(tmp_path: Path, array: Any) -> None:
    path = tmp_path / "rows.npy"
    npy.write(path, array)
    ours, theirs = npy.read(path), np.load(path)
    assert ours.dtype == theirs.dtype == array.dtype.newbyteorder("=")
    assert ours.shape == theirs.shape == array.shape
    assert ours.tobytes() == theirs.tobytes() == array.astype(array.dtype.newbyteorder("=")).tobytes()


def test_objects_are_not_written(tmp_path: Path) -> None:
    refused(lambda: npy.write(tmp_path / "rows.npy", np.array([None])), "object")


@pytest.mark.parametrize(
    "array, mentions",
    [
        (np.array([[1.0, np.nan]]), ("finite", "nan", "(0, 1)")),
        (np.array([[1.0], [-np.inf]], dtype=np.float32), ("finite", "-inf", "(1, 0)")),
        (np.array([[1.0], [np.inf]], dtype=np.float16), ("finite", "inf", "(1, 0)")),
        (np.array([[0x7FA00000]], dtype=np.uint32).view(np.float32), ("finite", "nan")),  # a signalling NaN
        (np.zeros(7), ("(items, d_model)", "(7,)")),
        (np.zeros(()), ("(items, d_model)", "()")),
        (np.zeros((2, 3, 5)), ("(2, 3, 5)",)),
        (np.zeros((0, 5)), ("(0, 5)", "rows and columns")),
        (np.zeros((5, 0)), ("(5, 0)",)),
        (np.zeros((2, 3), dtype=bool), ("numbers", "bool")),
        (np.zeros((2, 3), dtype=complex), ("plain numbers", "c16")),
        (np.array([["a", "b"]]), ("numbers", "<U1")),
        (np.array([[None, None]]), ("plain numbers", "'|O'", "no pickle")),
        (np.zeros((2, 3), dtype="m8[s]"), ("plain numbers", "m8")),
        (np.zeros((2, 3), dtype=[("x", "f8"), ("y", "f8")]), ("a structure",)),
        (np.zeros((2, 3), dtype="V7"), ("plain numbers", "V7")),
        (np.zeros((2, 3), dtype=np.longdouble), ("plain numbers", "f16")),
    ],
    ids=label,
)
def test_bad_rows_are_refused(tmp_path: Path, array: Any, mentions: tuple[str, ...]) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, array)
    refused(lambda: read_array(path), "rows.npy", *mentions)


@pytest.mark.parametrize(
    "content, mentions",
    [
        (b"PK\x03\x04aaaa", ("begin like an .npy",)),
        (b"\x93NUM", ("begin like an .npy",)),
        (b"\x93NUMPY\x09\x00\x10\x00", ("version", "9")),
        (b"\x93NUMPY\x01\x00\xff\x00{'descr'", ("whole .npy header",)),
        (npy_bytes("[1, 2]"), ("whole .npy header", "[1, 2]")),
        (npy_bytes(""), ("whole .npy header",)),
        (npy_bytes(" " * 12_000), ("10000", "12001")),
        (npy_bytes(head(), bytes(119)), ("120 bytes", "119 bytes")),
        (npy_bytes(head(), bytes(121)), ("120 bytes", "121 bytes")),
        (npy_bytes(head(shape="(1000000000, 1000000000)"), bytes(8)), ("8000000000000000000", "8 bytes")),
        (npy_bytes(head(shape="(99999999999999999999, 1)")), ("shape", "99999999999999999999")),
        (npy_bytes(head(shape="(1,1,1,1,1,1,1,1,1)"), bytes(8)), ("shape",)),
        (npy_bytes(head(shape="(0, 999999999999999999, 999999999999999999)")), ("shape", "(0, 9999")),
        (npy_bytes(head(shape="(-3, 5)"), bytes(8)), ("whole .npy header",)),
        (npy_bytes(head("'<i3'"), bytes(45)), ("plain numbers", "'<i3'")),
        (npy_bytes(head("'b2'"), bytes(45)), ("plain numbers", "'b2'")),
        (npy_bytes(head("'|S0'")), ("plain numbers", "'|S0'")),
        (npy_bytes(head("__import__('os')")), ("a structure",)),
        (npy_bytes(head(order="None")), ("whole .npy header",)),
    ],
    ids=label,
)
def test_bad_npy_files_are_refused(tmp_path: Path, content: bytes, mentions: tuple[str, ...]) -> None:
    path = tmp_path / "rows.npy"
    path.write_bytes(content)
    refused(lambda: read_array(path), "rows.npy", *mentions)


def test_a_stream_that_ends_early_is_refused() -> None:
    content = npy_bytes(head(), bytes(120))
    refused(lambda: npy.decode(io.BytesIO(content[:-8]), len(content), "part"), "`part`", "120 bytes", "fewer")


def test_a_tensor_by_name_or_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    matrix = np.arange(6.0).reshape(2, 3)
    safetensors.write(path, {"wte.weight": matrix, "bias": np.zeros(5), "cube": np.zeros((2, 3, 5))})
    assert np.array_equal(read_array(path), matrix)
    assert np.array_equal(read_array(f"{path}#wte.weight"), matrix)
    refused(lambda: read_array(f"{path}#wpe.weight"), "'wpe.weight'", "bias, cube, wte.weight")
    refused(lambda: read_array(f"{path}#"), "''")
    refused(lambda: read_array(f"{path}#bias"), "(items, d_model)", "(5,)", "#bias")
    safetensors.write(path, {"a": matrix, "b": matrix})
    refused(lambda: read_array(path), "one matrix", "2 of them in ['a', 'b']", "#NAME")
    safetensors.write(path, {"bias": np.zeros(5)})
    refused(lambda: read_array(path), "one matrix", "none in ['bias']")
    safetensors.write(path, {"a": np.array([[True]])})
    refused(lambda: read_array(path), "numbers", "bool")
    safetensors.write(path, {"a": np.array([[0.0], [np.nan]])})
    refused(lambda: read_array(path), "finite", "(1, 0)", "#a")


def test_names_with_a_hash(tmp_path: Path) -> None:
    assert split_name("a.safetensors#b#c") == ("a.safetensors", "b#c")
    assert split_name("a#b.npy") == ("a#b.npy", None)
    odd = tmp_path / "x.safetensors#1.npy"
    np.save(odd, np.ones((2, 3)))
    assert read_array(odd).shape == (2, 3)


@pytest.mark.parametrize("name", ["rows.csv", "rows", "rows.npz", "rows.npy#a", ""])
def test_other_suffixes_are_refused(name: str) -> None:
    refused(lambda: read_array(name), ".npy or .safetensors", f"`{name}`")
