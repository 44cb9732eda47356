"""What attention must hold. NumPy, float64, no torch.

A problem is a spec. It makes its instance from its id, and the instance says how large it is (`load`), how many bits it
holds, what the best possible score is, and what a member is shown. `lab` is written against these two protocols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Batch = dict[str, NDArray[Any]]


class ContentSource(Protocol):
    """Where the arrays that came from files are found again, by the hash of their content."""

    def get(self, sha: str) -> NDArray[Any]: ...


class NoContents:
    """The content source of problems that read no file."""

    def get(self, sha: str) -> NDArray[Any]:
        from keyspan.errors import BadInput

        raise BadInput(f"A problem made from a file needs its content, but none was given for {sha}. Pass `contents`.")


@runtime_checkable
class Instance(Protocol):
    """One problem made concrete.

    load: edges, examples, sequences    bits: entropy of what must be held    best: the highest score any member can
    reach    digest: SHA-256 of the instance, kept in the record
    """

    @property
    def load(self) -> int: ...
    @property
    def bits(self) -> float: ...
    @property
    def best(self) -> float: ...
    @property
    def digest(self) -> str: ...


class Problem(Protocol):
    """A spec that makes instances.

    `shape` fixes the arrays' sizes, so members of one shape can share a fleet. `batch(step, instances)` stacks what the
    members are shown at a step, along a leading member axis; it is stateless, and a `static` problem shows the same
    at every step. `scores` are the names of what the judge says of every measured member.
    """

    static: bool
    scores: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, ...]: ...
    def instance(self, problem_id: str, contents: ContentSource) -> Instance: ...
    def batch(self, step: int, instances: Sequence[Any]) -> Batch: ...
    def to_json(self) -> Mapping[str, Any]: ...


def digest_of(*arrays: NDArray[Any]) -> str:
    """SHA-256 over little-endian, C-ordered arrays with their shapes."""
    import hashlib

    h = hashlib.sha256()
    for array in arrays:
        a = np.ascontiguousarray(array)
        a = a.astype(a.dtype.newbyteorder("<"), copy=False)
        h.update(f"{a.dtype.str}{a.shape}".encode())
        h.update(a.tobytes())
    return h.hexdigest()
