"""NumPy's `.npy`: one array of plain numbers (or short text). Pickles and structures are refused before any is read."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.files.paths import name_of, reading, replacing, shown

LIMIT = 2**36
LONGEST_HEADER = 10_000  # NumPy's own limit

_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|[SU][1-9][0-9]?)")
_DESCR = re.compile(r"""['"]descr['"]\s*:\s*(?:['"]([^'"]*)['"]|(\S))""")
_ORDER = re.compile(r"""['"]fortran_order['"]\s*:\s*(True|False)\b""")
_SHAPE = re.compile(r"""['"]shape['"]\s*:\s*\(([0-9L,\s]*)\)""")


def read(path: str | Path) -> NDArray[Any]:
    """Read an `.npy` file. returns: the array as stored, in this machine's byte order"""
    with reading(path, LIMIT) as (handle, size):
        return decode(handle, size, name_of(path))


def write(path: str | Path, array: NDArray[Any]) -> None:
    """Write an `.npy` file atomically: version 1.0, little-endian, C order."""
    plain = np.asarray(array, order="C")
    if not _DTYPE.fullmatch(plain.dtype.str):
        raise BadInput(f"An `.npy` file must hold plain numbers, but got {plain.dtype}. Convert them first.")
    with replacing(path) as handle:
        np.lib.format.write_array(handle, plain.astype(plain.dtype.newbyteorder("<"), copy=False), version=(1, 0))


def decode(handle: IO[bytes], size: int, name: str) -> NDArray[Any]:
    """The array in a stream of `size` bytes, which it must fill exactly. name: what to call the stream in an error"""
    dtype, fortran, shape = _header(handle, name)
    need, have = math.prod(shape) * dtype.itemsize, size - handle.tell()
    if need != have:
        raise BadInput(
            f"The header of `{name}` must agree with its data, but got shape {shown(shape)} of {dtype}, which is "
            f"{need} bytes, over {have} bytes. The file is cut or corrupt: save it again."
        )
    buffer = bytearray(need)
    if handle.readinto(buffer) != need:  # type: ignore[attr-defined]
        raise BadInput(f"`{name}` must hold {need} bytes of data, but got fewer. The file is cut: save it again.")
    try:
        array: NDArray[Any] = np.ndarray(shape, dtype, buffer=buffer, order="F" if fortran else "C")
    except ValueError:  # no element, but a shape beyond what NumPy can index
        raise BadInput(f"The shape in `{name}` must be possible, but got {shown(shape)}. Save it again.") from None
    return array.astype(dtype.newbyteorder("="), copy=False)


def _header(handle: IO[bytes], name: str) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
    """Read the header by pattern, evaluating nothing. returns: dtype, whether Fortran order, shape"""
    start = handle.read(8)
    if start[:6] != b"\x93NUMPY" or len(start) < 8:
        raise BadInput(f"`{name}` must begin like an .npy file, but got {shown(start)}. Save it with numpy.save.")
    if start[6] not in (1, 2, 3):
        raise BadInput(f"`{name}` must be .npy of version 1 to 3, but got {start[6]}. Save it with numpy.save.")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(handle.read(width), "little")
    if length > LONGEST_HEADER:
        raise BadInput(f"The header of `{name}` must be under {LONGEST_HEADER} bytes, but got {length}. Save it again.")
    text = handle.read(length).decode("latin1")
    descr, order, shape = _DESCR.search(text), _ORDER.search(text), _SHAPE.search(text)
    if descr is None or order is None or shape is None or len(text) < length:
        raise BadInput(f"`{name}` must have a whole .npy header, but got {shown(text.strip())}. Save it again.")
    if descr[1] is None or not _DTYPE.fullmatch(descr[1]):
        kind = shown(descr[1]) if descr[1] is not None else "a structure"
        raise BadInput(f"`{name}` must hold plain numbers, but got dtype {kind}. Save float or integer rows, no pickle.")
    sizes = shape[1].replace("L", " ").replace(",", " ").split()
    if len(sizes) > 8 or any(len(size) > 18 for size in sizes):
        raise BadInput(f"The shape in `{name}` must be possible, but got {shown(shape[1])}. Save it again.")
    return np.dtype(descr[1]), order[1] == "True", tuple(int(size) for size in sizes)
