"""Item vectors from files: `.npy`, or one tensor of a `.safetensors` file (`file.safetensors#tensor.name`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.files import npy, safetensors
from keyspan.files.paths import name_of, shown


def read_array(path: str | Path) -> NDArray[np.float64]:
    """Read rows of finite numbers. returns: (items, d_model), float64, C order

    A `.safetensors` file may be followed by `#` and a tensor's name, which may be left out when the file holds exactly
    one matrix. Half precision, bfloat16 and integers are accepted; objects, complex numbers and booleans are not.
    """
    file, tensor = split_name(path)
    suffix = Path(file).suffix.lower()
    if suffix == ".npy":
        array, name = npy.read(file), name_of(file)
    elif suffix == ".safetensors":
        header = safetensors.read_header(file)
        tensor = _only_matrix(header, file) if tensor is None else tensor
        array, name = safetensors.read_tensor(file, tensor, header), name_of(f"{file}#{tensor}")
    else:
        raise BadInput(f"A file of rows must end in .npy or .safetensors, but got `{name_of(path)}`. Convert it.")
    if array.dtype.kind not in "fiu":
        raise BadInput(f"`{name}` must hold numbers, but got {array.dtype}. Save it as float64 or float32.")
    if array.ndim != 2:
        raise BadInput(f"`{name}` must have shape (items, d_model), but got {shown(array.shape)}. Reshape it.")
    if array.size == 0:
        raise BadInput(f"`{name}` must have rows and columns, but got shape {shown(array.shape)}. Give an item.")
    return as_finite(array, name)


def as_finite(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    """The array as float64 in C order, when every number in it is finite. array: any shape; returns: the same shape"""
    wrong = ~np.isfinite(array)
    if wrong.any():
        place = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), array.shape))
        raise BadInput(f"`{name}` must be finite, but got {float(array[place])} at {place}. Remove NaN and infinities.")
    return np.ascontiguousarray(array, dtype=np.float64).reshape(array.shape)


def split_name(path: str | Path) -> tuple[str, str | None]:
    """`file.safetensors#tensor.name` -> file and tensor; a file that exists under the whole name is meant as it is."""
    text = str(path)
    head, mark, tensor = text.partition(".safetensors#")
    whole = not mark or os.path.exists(text)
    return (text, None) if whole else (head + ".safetensors", tensor)


def _only_matrix(header: safetensors.Header, file: str) -> str:
    """The one 2-D tensor of a file."""
    matrices = [key for key, entry in header.tensors.items() if len(entry.shape) == 2]
    if len(matrices) != 1:
        have = shown(sorted(matrices or header.tensors))
        count = f"{len(matrices)} of them in {have}" if matrices else f"none in {have}"
        raise BadInput(f"`{name_of(file)}` must have one matrix, but got {count}. Add #NAME.")
    return matrices[0]
