"""SciPy's sparse `.npz`: an adjacency matrix as a zip of `.npy` members. Nothing is trusted, nothing unpickled.

The members are read with this package's own `.npy` reader and expanded in NumPy: SciPy itself does not check the
indices of a file before it walks them.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.files import npy
from keyspan.files.edges import MAX_ITEMS, canonical_edges
from keyspan.files.paths import name_of, reading, shown

LIMIT = 2**29  # bytes, of the file and of what it unpacks to

_MEMBERS = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}
Pairs = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]  # rows, columns, values


def read_adjacency(path: str | Path) -> NDArray[np.int64]:
    """Read a square sparse matrix saved by `scipy.sparse.save_npz`; its nonzero entries are the edges.

    returns: (edges, 2), row and column, unique, sorted lexicographically
    """
    name = name_of(path)
    kind, members = _read(path, name)
    shape = members["shape"].reshape(-1)[:9].tolist()
    if len(shape) != 2 or shape[0] != shape[1] or not 0 < shape[0] <= MAX_ITEMS:
        raise BadInput(f"The matrix in `{name}` must be square (items, items), but got {shown(shape)}. Pad it.")
    rows, columns, values = _expand(kind, members, shape[0], name)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise BadInput(f"The entries of `{name}` must be finite, but got NaN or infinity. Store 1 for every edge.")
    _within(rows, shape[0], name)
    _within(columns, shape[0], name)
    edges = np.stack([rows.astype(np.int64), columns.astype(np.int64)], axis=1)
    return canonical_edges(edges[values != 0], name)


def _read(path: str | Path, name: str) -> tuple[str, dict[str, NDArray[Any]]]:
    """The matrix's format and the members that it needs, with kinds and dimensions checked."""
    with reading(path, LIMIT) as (handle, _):
        try:
            with zipfile.ZipFile(handle) as archive:
                _check_sizes(archive, name)
                members = {key: _member(archive, key, name) for key in ("format", "shape")}
                text = members["format"]
                kind = text.astype("U").item() if text.dtype.kind in "SU" and text.size == 1 else None
                if kind not in _MEMBERS or members["shape"].dtype.kind not in "iu":
                    raise BadInput(
                        f"`{name}` must be a sparse matrix ({', '.join(_MEMBERS)}), but got format {shown(kind)}. "
                        "Save it with scipy.sparse.save_npz."
                    )
                wanted = _MEMBERS[kind]
                if kind == "coo" and "coords.npy" in archive.namelist():  # how SciPy says it will save COO one day
                    wanted = ("data", "coords")
                members |= {key: _member(archive, key, name) for key in wanted}
        except BadInput:
            raise
        except Exception as error:  # what zipfile and zlib raise on hostile bytes is not one family
            why = shown(str(error) or type(error).__name__)
            raise BadInput(f"`{name}` must be a whole .npz file, but got {why}. Save it again.") from None
    for key in wanted:
        ndim = {"bsr": 3, "dia": 2}.get(kind, 1) if key == "data" else 2 if key == "coords" else 1
        if members[key].ndim != ndim or members[key].dtype.kind not in ("biuf" if key == "data" else "iu"):
            got = f"{members[key].dtype} with shape {shown(members[key].shape)}"
            raise BadInput(f"`{key}` in `{name}` must be {ndim}-D numbers, but got {got}. Save it again.")
    return kind, members


def _check_sizes(archive: zipfile.ZipFile, name: str) -> None:
    """Refuse a zip that unpacks to too much, before any of it is unpacked."""
    total = sum(info.file_size for info in archive.infolist())
    if total > LIMIT:
        raise BadInput(f"`{name}` must unpack to at most {LIMIT} bytes, but got {total}. Give a smaller graph.")
    for info in archive.infolist():
        if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BadInput(f"`{name}` must be a plain zip, but got an encrypted or unusual member. Save it again.")


def _member(archive: zipfile.ZipFile, key: str, name: str) -> NDArray[Any]:
    names = archive.namelist()
    if f"{key}.npy" not in names:
        have = shown([n.removesuffix(".npy") for n in names])
        raise BadInput(f"`{name}` must have `{key}`, but got {have}. Save it with scipy.sparse.save_npz.")
    info = archive.getinfo(f"{key}.npy")
    with archive.open(info) as stream:
        return npy.decode(stream, info.file_size, f"{name}:{key}")


def _within(indices: NDArray[Any], count: int, name: str) -> None:
    """Refuse an index outside 0..count-1."""
    beyond = indices[(indices < 0) | (indices >= count)]
    if beyond.size:
        raise BadInput(f"The indices in `{name}` must be in 0..{count - 1}, but got {beyond[0]}. Save it again.")


def _expand(kind: str, members: dict[str, NDArray[Any]], items: int, name: str) -> Pairs:
    """Stored entries as rows, columns and values. returns: three arrays of shape (entries,)"""
    data = members["data"]
    if kind == "coo":
        ends = list(members["coords"]) if "coords" in members else [members["row"], members["col"]]
        if [len(end) for end in ends] != [len(data)] * 2:
            got = shown([len(end) for end in ends])
            raise BadInput(f"The entries of `{name}` must be {len(data)} pairs, but got {got}. Save it again.")
        return ends[0], ends[1], data
    if kind == "dia":
        offsets = members["offsets"].astype(np.int64)
        if len(offsets) != len(data):
            got = f"{len(offsets)} for {len(data)}"
            raise BadInput(f"`offsets` in `{name}` must be one a diagonal, but got {got}. Save it again.")
        diagonals, columns = np.nonzero(data)
        rows = columns - offsets[diagonals]
        inside = (rows >= 0) & (rows < items) & (columns < items)  # the format has room outside the matrix
        return rows[inside], columns[inside], data[diagonals, columns][inside]
    return _expand_compressed(kind, members, items, name)


def _expand_compressed(kind: str, members: dict[str, NDArray[Any]], items: int, name: str) -> Pairs:
    """CSR, CSC and BSR: `indptr` says where each row's (column's, row of blocks') entries begin and end."""
    data, indices, indptr = members["data"], members["indices"].astype(np.int64), members["indptr"].astype(np.int64)
    high, wide = data.shape[1:] if kind == "bsr" else (1, 1)
    whole = high > 0 and wide > 0 and items % high == 0 and items % wide == 0 and len(indptr) == items // high + 1
    entries = min(len(indices), len(data))
    if not whole or indptr[0] != 0 or ((indptr < 0) | (indptr > entries)).any() or (np.diff(indptr) < 0).any():
        got = shown(indptr[:9].tolist())
        raise BadInput(f"`indptr` in `{name}` must rise from 0 to the entries, but got {got}. Save it again.")
    outer = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    inner, data = indices[: len(outer)], data[: len(outer)]
    _within(inner, items // wide, name)
    if kind == "csr":
        return outer, inner, data
    if kind == "csc":
        return inner, outer, data
    rows = outer[:, None, None] * high + np.arange(high)[:, None]
    columns = inner[:, None, None] * wide + np.arange(wide)
    rows, columns = np.broadcast_arrays(rows, columns)
    return rows.reshape(-1), columns.reshape(-1), data.reshape(-1)
