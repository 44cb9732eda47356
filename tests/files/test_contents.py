"""Arrays by the hash of their content."""

import hashlib
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.files.refusals import label, refused

from keyspan.files.contents import Contents, hash_edges, hash_rows

EDGES = np.array([[4, 1], [0, 2], [0, 1]])
ROWS = np.arange(15.0).reshape(3, 5) - 7.0
EDGES_SHA = "3d9fef79012670fae9e381347d28e528f0187924cbd655a752e3570c8d7fd634"
ROWS_SHA = "70febe7fa85a4a85f1844a5af8286bae46e01e3578840ed121be5da692a80a7b"

finite = st.floats(allow_nan=False, allow_infinity=False)
edge_lists = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=30, unique=True)


def test_the_hash_is_of_the_content_as_written_here() -> None:
    edges = b"edges\0" + struct.pack("<2q", 3, 2) + struct.pack("<6q", 0, 1, 0, 2, 4, 1)
    rows = b"rows\0" + struct.pack("<2q", 3, 5) + struct.pack("<15d", *(i - 7.0 for i in range(15)))
    assert hash_edges(EDGES) == hashlib.sha256(edges).hexdigest() == EDGES_SHA
    assert hash_rows(ROWS) == hashlib.sha256(rows).hexdigest() == ROWS_SHA


@given(edges=edge_lists, data=st.data(), dtype=st.sampled_from(["<i8", ">i8", "i4", "u1", ">u2"]))
def test_the_order_and_storage_of_edges_do_not_matter(edges: list[tuple[int, int]], data: st.DataObject, dtype: str) -> None:
    other = np.asfortranarray(np.array(data.draw(st.permutations(edges)), dtype=dtype))
    assert hash_edges(other) == hash_edges(np.array(edges)) == Contents().put(other)


@given(rows=hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 7)), elements=finite))
def test_the_storage_of_rows_does_not_matter(rows: Any) -> None:
    sha = hash_rows(rows)
    assert hash_rows(np.asfortranarray(rows)) == hash_rows(rows.astype(">f8")) == sha == Contents().put(rows)
    assert hash_rows(np.repeat(rows, 2, axis=0)[::2]) == sha
    assert hash_rows(np.where(rows == 0.0, -0.0, rows)) == sha


def test_what_differs_has_another_hash() -> None:
    shas = [
        hash_rows(ROWS),
        hash_rows(ROWS[::-1]),
        hash_rows(ROWS.reshape(5, 3)),
        hash_rows(np.nextafter(ROWS, 9.0)),
        hash_edges(EDGES),
        hash_edges(EDGES[:, ::-1]),
        hash_edges(EDGES[:2]),
        hash_rows(np.sort(EDGES.astype(np.float64), axis=0)),
    ]
    assert len(set(shas)) == len(shas)
    assert hash_rows(ROWS.astype(np.float32)) == hash_rows(ROWS)


def test_kept_in_memory(tmp_path: Path) -> None:
    contents = Contents()
    mine = ROWS.copy()
    sha = contents.put(mine)
    mine[0, 0] = 99.0
    assert np.array_equal(contents.get(sha), ROWS)
    assert not contents.get(sha).flags.writeable
    edges = contents.get(contents.put(EDGES))
    assert edges.dtype == np.int64 and edges.tolist() == [[0, 1], [0, 2], [4, 1]]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("array", [EDGES, ROWS, EDGES.astype(np.int32), ROWS.astype(">f4"), np.array([[-0.0]])])
def test_kept_in_a_folder(tmp_path: Path, array: Any) -> None:
    folder = tmp_path / "new" / "contents"
    sha = Contents(folder).put(array)
    assert [path.name for path in folder.iterdir()] == [f"{sha}.npy"]
    again = Contents(folder).get(sha)
    assert again.dtype in (np.int64, np.float64) and sorted(again.tolist()) == sorted(array.tolist())
    assert Contents(folder).put(again) == sha and not again.flags.writeable


def test_a_folder_given_later_gets_what_memory_had(tmp_path: Path) -> None:
    contents = Contents(tmp_path)
    sha = contents.put(ROWS)
    (tmp_path / f"{sha}.npy").unlink()
    contents.put(ROWS)
    assert np.array_equal(Contents(tmp_path).get(sha), ROWS)


def test_what_is_there_is_not_written_again(tmp_path: Path) -> None:
    sha = Contents(tmp_path).put(ROWS)
    path = tmp_path / f"{sha}.npy"
    before = path.stat()
    Contents(tmp_path).put(ROWS)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_missing_content_says_which_and_how(tmp_path: Path) -> None:
    sha = hash_rows(ROWS)
    refused(lambda: Contents().get(sha), sha, "memory only", "Give the graph or embeddings file again")
    refused(lambda: Contents(tmp_path).get(sha), sha, f"nothing in `{tmp_path}`", f"{sha}.npy")
    for bad in ("", "../../etc/passwd", sha.upper(), sha[:-1], sha + "\n"):
        refused(lambda bad=bad: Contents(tmp_path).get(bad), "64 hex digits")  # type: ignore[misc]


def test_content_that_does_not_match_is_refused_and_healed(tmp_path: Path) -> None:
    sha = Contents(tmp_path).put(ROWS)
    path = tmp_path / f"{sha}.npy"
    for array, mention in [
        (ROWS + 1.0, hash_rows(ROWS + 1.0)[:12]),
        (EDGES, hash_edges(EDGES)[:12]),
        (ROWS * np.nan, "finite"),
        (np.zeros(3), "float rows"),
        (np.zeros((2, 3), dtype=bool), "float rows"),
    ]:
        np.save(path, array)
        refused(lambda: Contents(tmp_path).get(sha), sha, mention)
    path.write_bytes(b"junk")
    refused(lambda: Contents(tmp_path).get(sha), sha, "begin like an .npy")
    Contents(tmp_path).put(ROWS)
    assert np.array_equal(Contents(tmp_path).get(sha), ROWS)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    refused(lambda: Contents(path).put(ROWS), "must be a folder", "exists")
    refused(lambda: Contents(path / "below").put(ROWS), "must be a folder")
    refused(lambda: Contents(path).get(hash_rows(ROWS)), "nothing in")


@pytest.mark.parametrize(
    "array, mentions",
    [
        (np.zeros(3), ("(3,)",)),
        (np.zeros((2, 3, 5)), ("(2, 3, 5)",)),
        (np.zeros((0, 5)), ("(0, 5)",)),
        (np.array([[np.nan]]), ("finite", "nan")),
        (np.zeros((2, 2), dtype=complex), ("complex128",)),
        (np.zeros((2, 2), dtype=bool), ("bool",)),
        (np.zeros((2, 3), dtype=np.int64), ("(n, 2)", "(2, 3)")),
        (np.array([[1, 1], [1, 1]]), ("(1, 1)", "twice")),
        (np.array([["a"]]), ("<U1",)),
    ],
    ids=label,
)
def test_bad_arrays_are_refused(array: Any, mentions: tuple[str, ...]) -> None:
    refused(lambda: Contents().put(array), *mentions)


def test_the_path_a_content_was_read_from_is_found_again(tmp_path: Path) -> None:
    contents = Contents(tmp_path / "files")
    sha = contents.put(np.array([[0, 1]]), source="ring.csv")
    assert contents.source(sha) == Contents(tmp_path / "files").source(sha) == os.path.abspath("ring.csv")
    assert contents.put(np.array([[0, 1]]), source=tmp_path / "other.csv") == sha  # a path is no part of the identity
    assert contents.source(sha) == str(tmp_path / "other.csv")
    assert contents.put(np.array([[0, 1]])) == sha and contents.source(sha) == str(tmp_path / "other.csv")
    assert contents.source("0" * 64) is None and Contents(None).source(sha) is None
    odd = os.fsdecode(b"odd\xff.csv")
    contents.put(np.array([[0, 1]]), source=odd)
    assert str(contents.source(sha)).endswith("odd\\xff.csv")  # text that every record can hold
