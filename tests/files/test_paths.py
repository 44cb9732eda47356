"""Files that cannot be read or written, by every reader and writer."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.files.refusals import refused

from keyspan.files import npy, safetensors
from keyspan.files.arrays import read_array
from keyspan.files.graphs import read_graph, write_graph
from keyspan.files.paths import reading, replacing
from keyspan.files.weights import ChannelWeights, read_weights, write_weights

READERS: list[tuple[str, Callable[[Path], object]]] = [
    ("graph.csv", read_graph),
    ("graph.npz", read_graph),
    ("rows.npy", read_array),
    ("rows.safetensors", read_array),
    ("w.safetensors", read_weights),
    ("w.safetensors", safetensors.read_header),
    ("w.safetensors", safetensors.read_metadata),
    ("rows.npy", npy.read),
]
WRITERS: list[Callable[[Path], None]] = [
    lambda path: write_graph(np.array([[0, 1]]), path),
    lambda path: npy.write(path, np.zeros(3)),
    lambda path: safetensors.write(path, {"a": np.zeros(3)}),
    lambda path: write_weights(
        path, ChannelWeights(w_query=np.zeros((2, 3, 5)), w_key=np.zeros((2, 3, 5)), bias=np.float64(0.0))
    ),
]


@pytest.mark.parametrize("name, read", READERS)
def test_what_is_not_a_file_is_refused(tmp_path: Path, name: str, read: Callable[[Path], object]) -> None:
    path = tmp_path / name
    refused(lambda: read(path), name, "no such file")
    refused(lambda: read(tmp_path / "no-folder" / name), "no such file")
    path.mkdir()
    refused(lambda: read(path), name, "a folder")
    path.rmdir()
    path.touch()
    refused(lambda: read(path), name, "an empty file")
    path.unlink()
    os.mkfifo(path)
    refused(lambda: read(path), name, "a pipe")


@pytest.mark.parametrize("name, read", READERS)
def test_paths_that_no_system_has_are_refused(name: str, read: Callable[[Path], object]) -> None:
    refused(lambda: read(Path("a\0b" + name)), "null")
    refused(lambda: read(Path("x" * 3000 + name)), "too long")
    refused(lambda: read(Path("two\nlines" + name)), r"two\nlines")
    refused(lambda: read(Path("\ud800" + name)), r"\ud800")


def test_a_file_over_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("wb") as handle:
        handle.truncate(2**30 + 1)  # sparse: takes no room
    refused(lambda: read_graph(path), str(2**30 + 1), "smaller")


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.csv"
    path.write_text("0,1\n")

    def denied(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    refused(lambda: read_graph(path), "Permission denied")


@pytest.mark.parametrize("write", WRITERS)
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, write: Callable[[Path], None]) -> None:
    refused(lambda: write(tmp_path), "a folder")
    refused(lambda: write(tmp_path / "no-folder" / "file"), "No such file")
    refused(lambda: write(Path("/dev/null")), "a device")
    refused(lambda: write(Path("a\0b")), "null")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", WRITERS)
def test_a_full_disk_leaves_the_old_file(
    tmp_path: Path, write: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused(lambda: write(path), "No space left")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(KeyboardInterrupt), replacing(path) as handle:
        handle.write(b"half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_link_keeps_pointing(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    with replacing(link) as handle:
        handle.write(b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"


def test_an_error_while_reading_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")

    def fail() -> None:
        with reading(path, 10):
            raise OSError(5, "Input/output error")

    refused(fail, "Input/output error")
