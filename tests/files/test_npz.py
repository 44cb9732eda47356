"""Sparse matrices in `.npz`."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.files.refusals import label, refused

from keyspan.errors import BadInput
from keyspan.files.graphs import read_graph
from keyspan.files.npz import LIMIT

CSR: dict[str, Any] = {
    "format": b"csr",
    "shape": [5, 5],
    "data": np.ones(3),
    "indices": np.array([1, 4, 2]),
    "indptr": np.array([0, 2, 2, 3, 3, 3]),
}
COO: dict[str, Any] = {
    "format": b"coo",
    "shape": [5, 5],
    "data": np.ones(3),
    "row": np.array([0, 0, 2]),
    "col": np.array([1, 4, 2]),
}
EDGES = [[0, 1], [0, 4], [2, 2]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edges=st.sets(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=40),
    kind=st.sampled_from(["csr", "csc", "coo", "bsr", "dia"]),
    sparray=st.booleans(),
    compressed=st.booleans(),
    dtype=st.sampled_from([np.bool_, np.int8, np.int64, np.float32, np.float64]),
)
def test_every_format_of_scipy_is_read(
    tmp_path: Path, edges: set[tuple[int, int]], kind: str, sparray: bool, compressed: bool, dtype: Any
) -> None:
    path = tmp_path / "graph.npz"
    rows, columns = np.array(sorted(edges)).T
    make = scipy.sparse.coo_array if sparray else scipy.sparse.coo_matrix
    matrix = make((np.ones(len(edges), dtype=dtype), (rows, columns)), shape=(13, 13)).asformat(kind)
    scipy.sparse.save_npz(path, matrix, compressed=compressed)
    assert [tuple(edge) for edge in read_graph(path).tolist()] == sorted(edges)


@pytest.mark.parametrize("blocks", [(2, 3), (3, 2), (6, 6), (1, 1)])
def test_blocks_that_are_not_square(tmp_path: Path, blocks: tuple[int, int]) -> None:
    dense = np.zeros((6, 6), dtype=np.int64)
    dense[[0, 0, 3, 5, 4], [1, 5, 2, 0, 4]] = [1, -2, 3, 4, 5]
    path = tmp_path / "graph.npz"
    scipy.sparse.save_npz(path, scipy.sparse.bsr_array(dense, blocksize=blocks))
    assert read_graph(path).tolist() == np.argwhere(dense).tolist()


@pytest.mark.parametrize("members", [CSR, COO, COO | {"format": "coo"}, COO | {"coords": np.array([[0, 0, 2], [1, 4, 2]])}])
def test_members_by_hand(tmp_path: Path, members: dict[str, Any]) -> None:
    path = tmp_path / "graph.npz"
    np.savez(path, **members)
    assert read_graph(path).tolist() == EDGES


def test_stored_zeros_are_no_edges(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    np.savez(path, **CSR | {"data": np.array([0.0, 2.5, -1.0])})
    assert read_graph(path).tolist() == [[0, 4], [2, 2]]


@pytest.mark.parametrize(
    "members, mentions",
    [
        ({"edges": np.array([[0, 1]])}, ("`format`", "'edges'", "save_npz")),
        ({"format": b"csr"}, ("`shape`",)),
        ({key: value for key, value in CSR.items() if key != "indptr"}, ("`indptr`",)),
        (CSR | {"format": b"lil"}, ("format 'lil'",)),
        (CSR | {"format": np.array([1.0])}, ("format None",)),
        (CSR | {"format": np.array([b"\xff"])}, ("whole .npz",)),
        (CSR | {"shape": [5, 7]}, ("square", "[5, 7]")),
        (CSR | {"shape": [5]}, ("square", "[5]")),
        (CSR | {"shape": [0, 0]}, ("square", "[0, 0]")),
        (CSR | {"shape": [2**40, 2**40]}, ("square", str(2**40))),
        (CSR | {"shape": [5.0, 5.0]}, ("sparse matrix",)),
        (CSR | {"data": np.array([1.0, np.nan, 1.0])}, ("finite",)),
        (CSR | {"data": np.ones(3, dtype=complex)}, ("plain numbers", "c16")),
        (CSR | {"data": np.array(["a", "b", "c"])}, ("`data`", "<U1")),
        (CSR | {"data": np.array([None, None, None])}, ("plain numbers", "'|O'")),
        (CSR | {"data": np.ones((3, 1))}, ("`data`", "(3, 1)")),
        (CSR | {"data": np.zeros(3)}, ("at least one edge",)),
        (CSR | {"indices": np.array([1.0, 4.0, 2.0])}, ("`indices`", "float64")),
        (CSR | {"indices": np.array([1, 9, 2])}, ("0..4", "9")),
        (CSR | {"indices": np.array([1, -1, 2])}, ("0..4", "-1")),
        (CSR | {"indices": np.array([1, 1, 2])}, ("(0, 1)", "twice")),
        (CSR | {"indptr": np.array([0, 1000000, 2, 3, 3, 3])}, ("`indptr`", "1000000")),
        (CSR | {"indptr": np.array([0, 2, 1, 3, 3, 3])}, ("`indptr`",)),
        (CSR | {"indptr": np.array([1, 2, 2, 3, 3, 3])}, ("`indptr`",)),
        (CSR | {"indptr": np.array([0, 2, 3])}, ("`indptr`",)),
        (CSR | {"indptr": np.array([0, 2, 2, 3, 3, 4])}, ("`indptr`",)),
        (CSR | {"indptr": np.array([0, 2**62, -(2**62), 3, 3, 3])}, ("`indptr`",)),
        (CSR | {"format": b"bsr", "data": np.ones((3, 2, 2))}, ("`indptr`",)),
        (CSR | {"format": b"bsr", "data": np.ones((3, 0, 0))}, ("`indptr`",)),
        (COO | {"row": np.array([0, 0, 5])}, ("0..4", "5")),
        (COO | {"row": np.array([0, 0])}, ("3 pairs", "[2, 3]")),
        (COO | {"row": np.array([0, 0, 2**64 - 1], dtype=np.uint64)}, ("0..4", str(2**64 - 1))),
        (COO | {"coords": np.zeros((3, 3), dtype=np.int64)}, ("3 pairs",)),
        ({"format": b"dia", "shape": [5, 5], "data": np.ones((2, 5)), "offsets": np.array([0])}, ("1 for 2",)),
        (
            {"format": b"dia", "shape": [5, 5], "data": np.ones((1, 5)), "offsets": np.array([-(2**63)])},
            ("at least one edge",),
        ),
    ],
    ids=label,
)
def test_bad_members_are_refused(tmp_path: Path, members: dict[str, Any], mentions: tuple[str, ...]) -> None:
    path = tmp_path / "graph.npz"
    np.savez(path, **members)
    refused(lambda: read_graph(path), "graph.npz", *mentions)


odd_numbers = st.one_of(st.integers(-1, 6), st.integers(-(2**63), 2**63 - 1))
odd_arrays = st.one_of(
    st.lists(odd_numbers, max_size=7).map(lambda values: np.array(values, dtype=np.int64)),
    hnp.arrays(st.sampled_from(["i1", "u8", "f4", "b1", "S3"]), hnp.array_shapes(max_dims=3, min_side=0, max_side=3)),
)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_the_members_hold_only_bad_input_is_raised(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "graph.npz"
    kind = data.draw(st.sampled_from(["csr", "csc", "coo", "bsr", "dia"]))
    blocks = {"bsr": np.ones((3, 1, 5)), "dia": np.ones((1, 5))}
    good = COO if kind == "coo" else CSR | {"offsets": np.array([1])}
    members = good | {"format": kind.encode(), "data": blocks.get(kind, np.ones(3))}
    damaged = data.draw(st.dictionaries(st.sampled_from(sorted(members)), odd_arrays, min_size=1, max_size=2))
    np.savez(path, **members | damaged)
    try:
        edges = read_graph(path)
    except BadInput:
        return
    assert edges.min() >= 0 and edges.max() < int(np.load(path)["shape"][0])


def zipped(member: bytes, size: int | None = None, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip with `format.npy`; its directory may claim another size than the member has."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("format.npy", member)
    data = bytearray(buffer.getvalue())
    if size is not None:
        at = data.index(b"PK\x01\x02") + 24
        data[at : at + 4] = size.to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize(
    "content, mentions",
    [
        (b"not a zip", ("whole .npz",)),
        (b"PK\x03\x04" + bytes(100), ("whole .npz",)),
        (zipped(b"x" * 100)[:-10], ("whole .npz",)),
        (zipped(b"x" * 100), ("graph.npz:format", "begin like an .npy")),
        (zipped(b"x" * 100, 2**32 - 9), (str(LIMIT), str(2**32 - 9))),
        (zipped(b"x" * 100, method=zipfile.ZIP_BZIP2), ("unusual member",)),
    ],
    ids=label,
)
def test_bad_zips_are_refused(tmp_path: Path, content: bytes, mentions: tuple[str, ...]) -> None:
    path = tmp_path / "graph.npz"
    path.write_bytes(content)
    refused(lambda: read_graph(path), *mentions)


def test_a_zip_bomb_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    block = bytes(2**20)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("format.npy", block)
    data = path.read_bytes()
    start = data.index(b"PK\x01\x02")
    entry = bytearray(data[start : data.index(b"PK\x05\x06")])
    entry[24:28] = (2**20).to_bytes(4, "little")
    many = 600  # one member listed 600 times: a file of 40 kB that unpacks to 600 MiB
    end = bytearray(data[data.index(b"PK\x05\x06") :])
    end[8:12] = many.to_bytes(2, "little") * 2
    end[12:16] = (many * len(entry)).to_bytes(4, "little")
    path.write_bytes(data[:start] + bytes(entry) * many + bytes(end))
    assert path.stat().st_size < 100_000
    refused(lambda: read_graph(path), str(many * 2**20), str(LIMIT))
