"""Weights of a key-query channel as safetensors: `w_query`, `w_key`, `bias`, and if wanted `embeddings`, `edges`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.files import safetensors
from keyspan.files.arrays import as_finite
from keyspan.files.edges import canonical_edges
from keyspan.files.paths import name_of, shown


@dataclass(frozen=True, kw_only=True, eq=False)
class ChannelWeights:
    """A key-query channel `S_ij = max_k (x_i W_Q^k) . (x_j W_K^k)` that says i -> j when `S_ij + bias > 0`.

    w_query, w_key: (heads, d_model, d_key)    bias: minus the threshold    embeddings: (items, d_model), when they come
    along    edges: (edges, 2), sorted    metadata: text by text (spec, version ...)
    The arrays are checked, converted to float64 (int64), copied, and read-only.
    """

    w_query: NDArray[np.float64]
    w_key: NDArray[np.float64]
    bias: float
    embeddings: NDArray[np.float64] | None = None
    edges: NDArray[np.int64] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        query, key = _floats(self.w_query, "w_query", 3), _floats(self.w_key, "w_key", 3)
        if query.shape != key.shape:
            raise BadInput(f"`w_query` and `w_key` must have one shape, but got {query.shape} and {key.shape}. Fix one.")
        embeddings = None if self.embeddings is None else _floats(self.embeddings, "embeddings", 2)
        if embeddings is not None and embeddings.shape[1] != query.shape[1]:
            got = f"{embeddings.shape[1]} and d_model={query.shape[1]}"
            raise BadInput(f"`embeddings` must be as wide as `w_query`, but got {got}. Use the rows it was made for.")
        edges = None if self.edges is None else canonical_edges(self.edges, "edges")
        if edges is not None and embeddings is not None and int(edges.max()) >= len(embeddings):
            got = f"item {int(edges.max())} of {len(embeddings)}"
            raise BadInput(f"`edges` must name items of `embeddings`, but got {got}. Number the items from 0.")
        if not math.isfinite(self.bias):
            raise BadInput(f"`bias` must be finite, but got {self.bias}. Give a number.")
        values = {"w_query": query, "w_key": key, "bias": float(self.bias), "embeddings": embeddings, "edges": edges}
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)
        object.__setattr__(self, "metadata", dict(self.metadata))

    @property
    def heads(self) -> int:
        """h."""
        return int(self.w_query.shape[0])

    @property
    def d_model(self) -> int:
        """d."""
        return int(self.w_query.shape[1])

    @property
    def d_key(self) -> int:
        """d_k."""
        return int(self.w_query.shape[2])

    @property
    def threshold(self) -> float:
        """The score above which the channel says yes: -bias."""
        return 0.0 - self.bias


def read_weights(path: str | Path) -> ChannelWeights:
    """Read and check the weights of a channel. F64, F32, F16 and BF16 become float64 exactly."""
    name = name_of(path)
    header = safetensors.read_header(path)
    missing = [key for key in ("w_query", "w_key", "bias") if key not in header.tensors]
    if missing:
        have = shown(sorted(header.tensors))
        raise BadInput(f"`{name}` must have tensor `{missing[0]}`, but got {have}. Save w_query, w_key and bias.")
    known = [key for key in ("w_query", "w_key", "bias", "embeddings", "edges") if key in header.tensors]
    tensors = {key: safetensors.read_tensor(path, key, header) for key in known}
    bias = tensors.pop("bias")
    if bias.size != 1 or bias.dtype.kind != "f":
        got = f"{bias.dtype} with shape {shown(bias.shape)}"
        raise BadInput(f"`bias` in `{name}` must be one float, but got {got}. The channel has one threshold.")
    try:
        return ChannelWeights(**tensors, bias=float(bias.reshape(())), metadata=header.metadata)
    except BadInput as error:
        raise BadInput(f"`{name}`: {error}") from None


def write_weights(path: str | Path, weights: ChannelWeights) -> None:
    """Write the weights atomically: each tensor as F32 when that loses nothing, otherwise as F64."""
    tensors: dict[str, NDArray[Any]] = {
        "w_query": _narrow(weights.w_query),
        "w_key": _narrow(weights.w_key),
        "bias": _narrow(np.asarray(weights.bias, dtype=np.float64)),
    }
    if weights.embeddings is not None:
        tensors["embeddings"] = _narrow(weights.embeddings)
    if weights.edges is not None:
        tensors["edges"] = weights.edges
    safetensors.write(path, tensors, weights.metadata)


def _narrow(array: NDArray[np.float64]) -> NDArray[Any]:
    with np.errstate(over="ignore", under="ignore"):
        single = array.astype(np.float32)
    return single if np.array_equal(single.astype(np.float64), array) else array


def _floats(array: Any, name: str, ndim: int) -> NDArray[np.float64]:
    """A copy in float64, with at least one element and `ndim` axes, all finite."""
    given = np.asarray(array)
    if given.dtype.kind != "f":
        raise BadInput(f"`{name}` must be floats, but got {given.dtype}. Save it as float32 or float64.")
    if given.ndim != ndim or given.size == 0:
        axes = "(heads, d_model, d_key)" if ndim == 3 else "(items, d_model)"
        raise BadInput(f"`{name}` must have shape {axes}, none zero, but got {shown(given.shape)}. Reshape it.")
    return np.array(as_finite(given, name))
