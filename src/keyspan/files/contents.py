"""Arrays by the hash of their content: what a file held, found again when its path is forgotten."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.files import npy
from keyspan.files.arrays import as_finite
from keyspan.files.edges import canonical_edges
from keyspan.files.paths import name_of, replacing, shown


def hash_edges(edges: NDArray[np.integer[Any]]) -> str:
    """SHA-256 of a graph: "edges", the shape, the sorted rows as little-endian int64. edges: (edges, 2), any order"""
    return _sha(b"edges\0", canonical_edges(edges, "edges"))


def hash_rows(rows: NDArray[np.floating[Any]]) -> str:
    """SHA-256 of item vectors: "rows", the shape, little-endian float64 rows (-0.0 as 0.0). rows: (items, d_model)"""
    return _sha(b"rows\0", _canonical_rows(rows))


class Contents:
    """Arrays kept by hash: in memory always, in `folder` as `<hash>.npy` when one is given."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self._known: dict[str, NDArray[Any]] = {}

    def put(self, array: NDArray[Any], source: str | Path | None = None) -> str:
        """Keep integer edges (edges, 2) or floating rows (items, d_model). source: the file it was read from

        returns: the hash. Who trains on it finds the path again by `source`; it is a fact for the record, not an identity.
        """
        sha, canonical = _identify(np.asarray(array), "the array")
        if sha not in self._known:
            self._keep(sha, canonical.copy())
        if self.folder is not None and not self._stored(sha):
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                where = name_of(self.folder)
                raise BadInput(f"`{where}` must be a folder, but got {error.strerror!r}. Choose one.") from None
            npy.write(self.folder / f"{sha}.npy", canonical)
        if self.folder is not None and source is not None:
            path = os.fsencode(os.path.abspath(source)).decode("utf-8", "backslashreplace")  # a name may be any bytes
            with replacing(self.folder / f"{sha}.source") as handle:
                handle.write(path.encode())
        return sha

    def source(self, sha: str) -> str | None:
        """The path that the content of this hash was last read from, if that is known."""
        path = None if self.folder is None else self.folder / f"{sha}.source"
        with suppress(OSError, ValueError):
            return None if path is None else path.read_text("utf-8")
        return None

    def get(self, sha: str) -> NDArray[Any]:
        """The array with this hash: sorted int64 edges (edges, 2) or float64 rows (items, d_model); read-only."""
        if not re.fullmatch(r"[0-9a-f]{64}", sha):
            raise BadInput(f"A content hash must be 64 hex digits, but got {shown(sha)}. Copy it from the spec.")
        if sha not in self._known:
            self._keep(sha, self._load(sha))
        return self._known[sha]

    def _keep(self, sha: str, array: NDArray[Any]) -> None:
        array.flags.writeable = False
        self._known[sha] = array

    def _load(self, sha: str) -> NDArray[Any]:
        """Read the file of this hash and check that it is what its name says."""
        path = None if self.folder is None else self.folder / f"{sha}.npy"
        if path is None or not os.path.exists(path):
            where = "memory only" if path is None else f"nothing in `{name_of(path.parent)}`"
            raise BadInput(
                f"The content of file {sha} must be at hand, but got {where}. Give the graph or embeddings file again, "
                f"or copy {sha}.npy from where it was measured."
            )
        name = name_of(path)
        found, canonical = _identify(npy.read(path), name)
        if found != sha:
            raise BadInput(f"`{name}` must match its name, but got content {found[:12]}. Delete it, give the file again.")
        return canonical

    def _stored(self, sha: str) -> bool:
        try:
            self._load(sha)
        except BadInput:
            return False
        return True


def _identify(array: NDArray[Any], name: str) -> tuple[str, NDArray[Any]]:
    """Hash and canonical form; integers are edges, floats are rows."""
    if array.dtype.kind in "iu":
        edges = canonical_edges(array, name)
        return _sha(b"edges\0", edges), edges
    rows = _canonical_rows(array, name)
    return _sha(b"rows\0", rows), rows


def _canonical_rows(rows: NDArray[Any], name: str = "rows") -> NDArray[np.float64]:
    array = np.asarray(rows)
    if array.dtype.kind != "f" or array.ndim != 2 or array.size == 0:
        got = f"{array.dtype} with shape {shown(array.shape)}"
        raise BadInput(f"`{name}` must be integer pairs or float rows (items, d_model), but got {got}. Convert it.")
    return as_finite(array, name) + 0.0  # -0.0 and 0.0 are one number, so they get one spelling


def _sha(tag: bytes, array: NDArray[Any]) -> str:
    plain = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    digest = hashlib.sha256(tag + np.array(plain.shape, dtype="<i8").tobytes())
    digest.update(plain.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
