"""A model's folder: `config.json` and weights in safetensors, whole or in shards. Tensors are read one at a time.

A sharded checkpoint has an index, whose `weight_map` says which file holds which tensor. It is obeyed as an allow-list:
a file that it does not name is not opened, a tensor that it does not name does not exist, and a name that leads out of
the folder is refused. Nothing is unpickled.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.files import safetensors
from keyspan.files.documents import read_json
from keyspan.files.paths import name_of, shown
from keyspan.files.safetensors import Entry, Header

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = ".safetensors.index.json"
PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*\.safetensors")  # no folder, no `..`, nothing hidden
FLOATS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2")
LARGEST = 1e30  # a product of four weights is then finite, too
SCALES = "_scale_inv"  # beside a tensor of eight bits: what each block of it is multiplied with
PICKLED = (".bin", ".pt", ".pth", ".ckpt")


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A folder that was opened: settings, and where every tensor lies. No weight is read before it is asked for."""

    folder: Path
    config: Mapping[str, Any]
    files: Mapping[str, str]
    headers: dict[str, Header] = field(default_factory=dict, repr=False)

    def __contains__(self, tensor: str) -> bool:
        return tensor in self.files

    def entry(self, tensor: str) -> Entry:
        """Dtype and shape of a tensor."""
        if tensor not in self.files:
            raise BadInput(f"`{name_of(self.folder)}` must have tensor {shown(tensor)}, but got none. Copy it whole.")
        path = self.folder / self.files[tensor]
        header = self._header(self.files[tensor])
        if tensor not in header.tensors:
            got = f"no {shown(tensor)}, which the index puts there"
            raise BadInput(f"`{name_of(path)}` must hold what its index says, but got {got}. Copy both again.")
        return header.tensors[tensor]

    def shape(self, tensor: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.entry(tensor).shape

    def read(self, tensor: str, rows: tuple[int, int] | None = None) -> NDArray[Any]:
        """A tensor of weights, all finite: float64 from F64, else float32 (exactly). rows: [begin, end) of the first axis"""
        entry = self.entry(tensor)
        path = self.folder / self.files[tensor]
        if entry.dtype not in FLOATS:
            got = f"{entry.dtype}, a quantised or an integer tensor"
            raise BadInput(f"Weights {shown(tensor)} in `{name_of(path)}` must be floats, but got {got}. Save it as BF16.")
        array = safetensors.read_tensor(path, tensor, self._header(self.files[tensor]), rows)
        array = array.astype(np.float32) if array.dtype == np.float16 else array
        if tensor + SCALES in self.files:
            array = array * self._scales(tensor, entry.shape, rows)
        if array.size and not float(np.abs(array).max()) < LARGEST:  # NaN is not, either
            got = "NaN, infinity or more"
            raise BadInput(f"Weights {shown(tensor)} in `{name_of(path)}` must be finite, below 1e30, but got {got}. Mend it.")
        return array

    def _scales(self, tensor: str, shape: tuple[int, ...], rows: tuple[int, int] | None) -> NDArray[Any]:
        """What every entry is multiplied with: each block of the tensor has its scale. returns: the shape of what is read"""
        scales = self.read(tensor + SCALES)
        settings = self.config.get("quantization_config")
        block = settings.get("weight_block_size") if isinstance(settings, dict) else None
        sizes = block if isinstance(block, list) and all(type(n) is int and 0 < n < 2**31 for n in block) else []
        if [-(-n // size) for n, size in zip(shape, sizes, strict=False)] != list(scales.shape) or len(sizes) != len(shape):
            got = f"{shown(scales.shape)} for {shown(shape)} in blocks of {shown(block)}"
            raise BadInput(f"Scales {shown(tensor + SCALES)} must be one to a block, but got {got}. Save it as BF16.")
        first, last = (0, shape[0]) if rows is None else rows
        lines = [np.arange(first, min(last, shape[0])), *(np.arange(n) for n in shape[1:])]
        return np.asarray(scales[np.ix_(*(line // size for line, size in zip(lines, sizes, strict=True)))])

    def _header(self, file: str) -> Header:
        if file not in self.headers:
            self.headers[file] = safetensors.read_header(self.folder / file)
        return self.headers[file]


def open_checkpoint(folder: str | Path) -> Checkpoint:
    """Open a folder with `config.json` and safetensors."""
    name = name_of(folder)
    try:
        inside = sorted(os.listdir(folder))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"`{name}` must be a folder with {CONFIG}, but got {shown(why)}. Check the path.") from None
    if CONFIG not in inside:
        raise BadInput(f"`{name}` must hold {CONFIG}, but got {shown(inside)}. Name the folder of a checkpoint.")
    where = Path(folder)
    config = read_json(where / CONFIG)
    indices = [entry for entry in inside if entry.endswith(INDEX)]
    if len(indices) > 1:
        raise BadInput(f"`{name}` must have one index, but got {shown(indices)}. Keep the one that is meant.")
    if indices:
        return Checkpoint(where, config, _weight_map(where / indices[0]))
    header, file = _single(where, inside)
    return Checkpoint(where, config, dict.fromkeys(header.tensors, file), {file: header})


def _single(folder: Path, inside: list[str]) -> tuple[Header, str]:
    """The one safetensors file of a folder without an index."""
    found = [entry for entry in inside if entry.endswith(".safetensors")]
    if SINGLE not in found and len(found) != 1:
        name = name_of(folder)
        if found:
            raise BadInput(f"Shards in `{name}` must have an index, but got {shown(found)}. Copy model{INDEX}, too.")
        pickled = [entry for entry in inside if entry.endswith(PICKLED)]
        got = f"{shown(pickled)}, which would have to be unpickled" if pickled else shown(inside)
        raise BadInput(f"`{name}` must hold safetensors, but got {got}. Save the weights as {SINGLE}.")
    file = SINGLE if SINGLE in found else found[0]
    return safetensors.read_header(folder / file), file


def _weight_map(path: Path) -> dict[str, str]:
    """Tensor to file, from an index; every file is a plain name in the same folder."""
    name = name_of(path)
    files = read_json(path).get("weight_map")
    if not isinstance(files, dict) or not files:
        raise BadInput(f"`{name}` must have a weight_map of tensors to files, but got {shown(files)}. Save it again.")
    for tensor, file in files.items():
        if not isinstance(file, str) or not PLAIN.fullmatch(file):
            got = f"{shown(file)} for {shown(tensor)}"
            raise BadInput(f"Files in `{name}` must be names of .safetensors beside it, but got {got}. Mend the index.")
    return files
