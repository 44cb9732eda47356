"""The safetensors format: eight bytes of length, a JSON header, tensors one after another. Read without trust.

The header is checked in full before a tensor is read: known dtypes, sizes that agree with shapes, ranges that cover the
data once, without overlap or gap. So a file can ask for no more memory than it has bytes. What NumPy has no type for is
decoded here, exactly, into float32: bfloat16 and the two formats of eight bits (Micikevicius and others 2022).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.files.paths import name_of, reading, replacing, shown

LIMIT = 2**44
LONGEST_HEADER = 100_000_000  # as in the official library

_NUMPY = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|u1", "BF16": "<u2", "F8_E4M3": "|u1", "F8_E5M2": "|u1",
}  # fmt: skip
_UNREAD_BITS = {"C64": 64, "F8_E8M0": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4}
_BITS = {name: np.dtype(code).itemsize * 8 for name, code in _NUMPY.items()} | _UNREAD_BITS
_WRITTEN = {"<f8": "F64", "<f4": "F32", "<i8": "I64", "<i4": "I32", "|u1": "U8", "|b1": "BOOL"}


@dataclass(frozen=True)
class Entry:
    """One tensor of a file: its dtype by the format's name, its shape, and its bytes [begin, end) in the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """What a file holds: its tensors, in the order of their bytes, and its metadata."""

    tensors: Mapping[str, Entry]
    metadata: Mapping[str, str]


def read_header(path: str | Path) -> Header:
    """Read and check the header; no tensor is read."""
    with reading(path, LIMIT) as (handle, size):
        return _header(handle, size, name_of(path))


def read_metadata(path: str | Path) -> dict[str, str]:
    """The metadata of a file, empty when it has none."""
    return dict(read_header(path).metadata)


def read_tensor(
    path: str | Path, tensor: str, header: Header | None = None, rows: tuple[int, int] | None = None
) -> NDArray[Any]:
    """Read one tensor. BF16, F8_E4M3 and F8_E5M2 come as float32 (exactly), everything else in its own dtype.

    header: what `read_header` gave, to save reading it again    rows: only [begin, end) of the first axis, clipped to it
    returns: the tensor's shape, or (rows, ...)
    """
    name = name_of(path)
    with reading(path, LIMIT) as (handle, size):
        entries = (header or _header(handle, size, name)).tensors
        if tensor not in entries:
            have = ", ".join(sorted(entries)[:8]) + (" ..." if len(entries) > 8 else "")
            raise BadInput(f"`{name}` must have tensor {shown(tensor)}, but got {_line(have)}. Name one of these.")
        entry = entries[tensor]
        if entry.dtype not in _NUMPY:
            raise BadInput(f"Tensor {shown(tensor)} in `{name}` must be readable, but got {entry.dtype}. Use F32.")
        dtype = np.dtype(_NUMPY[entry.dtype])
        shape, begin = _span(entry, rows)
        count = math.prod(shape)
        handle.seek(begin)
        flat: NDArray[Any] = np.fromfile(handle, dtype, count) if count else np.empty(0, dtype)
    if flat.size != count:
        raise BadInput(f"Tensor {shown(tensor)} in `{name}` must have {count} values, but got {flat.size}. It is cut.")
    flat = _decoded(flat, entry.dtype)
    return flat.astype(flat.dtype.newbyteorder("="), copy=False).reshape(shape)


def _span(entry: Entry, rows: tuple[int, int] | None) -> tuple[tuple[int, ...], int]:
    """The shape of what is read, and where in the file it begins."""
    if rows is None or not entry.shape:
        return entry.shape, entry.begin
    first, last = (min(max(0, row), entry.shape[0]) for row in rows)
    step = math.prod(entry.shape[1:]) * _BITS[entry.dtype] // 8
    return (max(0, last - first), *entry.shape[1:]), entry.begin + first * step


def _decoded(flat: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Bits as numbers. flat: as it lies in the file"""
    if dtype == "BF16":
        wide = flat.astype(np.uint32)
        wide <<= 16
        return np.asarray(wide.view(np.float32))
    if dtype in _EIGHT_BITS:
        return np.asarray(_EIGHT_BITS[dtype][flat])
    return flat != 0 if dtype == "BOOL" else flat


def _eight_bits(mantissa: int, bias: int, infinities: bool) -> NDArray[np.float32]:
    """The 256 numbers of a format with a sign, `mantissa` bits of fraction and the rest exponent.

    infinities: whether the largest exponent is kept for them and for NaN; else only all ones is NaN (E4M3)
    """
    code = np.arange(256)
    sign, exponent, fraction = code >> 7, (code & 127) >> mantissa, code & (2**mantissa - 1)
    whole = np.where(exponent > 0, 2**mantissa, 0) + fraction  # below the smallest exponent there is no leading one
    value = np.ldexp(whole.astype(np.float64), np.maximum(exponent, 1) - bias - mantissa)
    if infinities:
        top = exponent == 2 ** (7 - mantissa) - 1
        value = np.where(top, np.where(fraction == 0, np.inf, np.nan), value)
    else:
        value = np.where((code & 127) == 127, np.nan, value)
    return np.where(sign == 1, -value, value).astype(np.float32)


_EIGHT_BITS = {"F8_E4M3": _eight_bits(3, 7, False), "F8_E5M2": _eight_bits(2, 15, True)}


def write(path: str | Path, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors (f64 f32 i64 i32 u8 bool) atomically; equal content gives equal bytes."""
    plain: dict[str, NDArray[Any]] = {}
    for key, value in tensors.items():
        array = np.asarray(value, order="C")
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        if array.dtype.str not in _WRITTEN:
            raise BadInput(f"Tensor {shown(key)} must be f64 f32 i64 i32 u8 bool, but got {array.dtype}. Convert it.")
        plain[key] = array
    head: dict[str, Any] = {}
    if metadata:
        head["__metadata__"] = {key: metadata[key] for key in sorted(metadata)}
    order = sorted(plain, key=lambda key: (-plain[key].itemsize, key))  # widest first keeps every tensor aligned
    at = 0
    for key in order:
        array = plain[key]
        head[key] = {"dtype": _WRITTEN[array.dtype.str], "shape": array.shape, "data_offsets": (at, at + array.nbytes)}
        at += array.nbytes
    text = _encoded(head, "__metadata__" in plain)
    with replacing(path) as handle:
        handle.write(len(text).to_bytes(8, "little") + text)
        for key in order:
            handle.write(plain[key].reshape(-1).view(np.uint8).data if plain[key].size else b"")


def _encoded(head: dict[str, Any], reserved: bool) -> bytes:
    """The header as JSON, padded with blanks to a multiple of eight bytes."""
    named = [*head, *head.get("__metadata__", {}), *head.get("__metadata__", {}).values()]
    if reserved or not all(isinstance(text, str) for text in named):
        raise BadInput("Tensor names and metadata must be text, but got another type or `__metadata__`. Rename it.")
    try:
        text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"Tensor names and metadata must be Unicode, but got {shown(error.object)}. Rename.") from None
    return text + b" " * (-len(text) % 8)


def _header(handle: BinaryIO, size: int, name: str) -> Header:
    """Read the header at the start of the file and check it against the file's size."""
    first = handle.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > min(size - 8, LONGEST_HEADER):
        got = f"{length} in a file of {size} bytes"
        raise BadInput(f"The header length of `{name}` must fit the file, but got {got}. Not safetensors, or cut.")
    try:
        data = json.loads(handle.read(length).decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        why = shown(str(error).partition("\n")[0])
        raise BadInput(f"The header of `{name}` must be JSON, but got {why}. Not safetensors, or corrupt.") from None
    if not isinstance(data, dict):
        raise BadInput(f"The header of `{name}` must be a JSON object, but got {shown(data)}. Save it again.")
    metadata = data.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise BadInput(f"The metadata of `{name}` must be text by text, but got {shown(metadata)}. Save it again.")
    entries = {key: _entry(key, value, 8 + length, name) for key, value in data.items()}
    entries = dict(sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)))
    at = 8 + length
    for key, entry in entries.items():
        if entry.begin != at:
            got = f"{'an overlap' if entry.begin < at else 'a gap'} at {shown(key)}"
            raise BadInput(f"Tensors in `{name}` must follow one another, but got {got}. Save it again.")
        at = entry.end
    if at != size:
        raise BadInput(f"The tensors of `{name}` must fill the file, but got {at} of {size} bytes. It is cut or corrupt.")
    return Header(entries, metadata)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise ValueError("a name twice")
    return data


def _entry(key: str, value: Any, start: int, name: str) -> Entry:
    """One entry of the header: types, then the size that dtype and shape ask for."""
    where = f"Tensor {shown(key)} in `{name}`"
    got = sorted(value) if isinstance(value, dict) else value
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise BadInput(f"{where} must have dtype, shape and data_offsets, but got {shown(got)}. Save it again.")
    dtype, shape, span = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise BadInput(f"{where} must have a known dtype, but got {shown(dtype)}. Store it as F32.")
    if not _sizes(shape) or len(shape) > 16 or math.prod(n for n in shape if n) >= 2**56:
        raise BadInput(f"{where} must have a shape of sizes, but got {shown(shape)}. Save it again.")
    if not _sizes(span) or len(span) != 2 or span[0] > span[1]:
        raise BadInput(f"{where} must have data_offsets [begin, end], but got {shown(span)}. Save it again.")
    bits = math.prod(shape) * _BITS[dtype]
    if bits != 8 * (span[1] - span[0]):
        size = f"{dtype} {shown(shape)} in {span[1] - span[0]} bytes"
        raise BadInput(f"{where} must fill its bytes exactly, but got {size}. The file is corrupt: save it again.")
    return Entry(dtype, tuple(shape), start + span[0], start + span[1])


def _sizes(value: Any) -> bool:
    """Whether this is a list of integers that a file can have as sizes."""
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**48 for n in value)


def _line(text: str) -> str:
    return text if text.isprintable() else ascii(text)
