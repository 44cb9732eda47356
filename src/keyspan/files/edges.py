"""The canonical form of a graph in memory: unique pairs of item numbers, sorted."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keyspan.errors import BadInput
from keyspan.files.paths import shown

MAX_ITEMS = 2**31  # item numbers are below this, so that a pair fits one 64-bit key


def canonical_edges(edges: ArrayLike, name: str, lines: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Check edges and sort them lexicographically.

    edges: (edges, 2), integers in [0, 2^31), no pair twice, at least one    name: what to call them in an error
    lines: (edges,), where each came from in its file    returns: (edges, 2)
    """
    try:
        array = np.asarray(edges)
    except ValueError:
        raise BadInput(f"The edges of `{name}` must be pairs, but got rows of several lengths. Give (n, 2).") from None
    if array.ndim != 2 or array.shape[1] != 2:
        raise BadInput(f"The edges of `{name}` must have shape (n, 2), but got {array.shape}. Give source and target.")
    if array.shape[0] == 0:
        raise BadInput(f"`{name}` must have at least one edge, but got none. Add `source,target` pairs.")
    if array.dtype.kind not in "iu":
        raise BadInput(f"The edges of `{name}` must be integers, but got {array.dtype}. Use an integer dtype.")
    low, high = int(array.min()), int(array.max())
    if low < 0:
        raise BadInput(f"The items of `{name}` must be >= 0, but got {low}. Number the items from 0.")
    if high >= MAX_ITEMS:
        raise BadInput(f"The items of `{name}` must be below 2^31, but got {high}. Number the items 0, 1, 2 ...")
    keys = (array[:, 0].astype(np.int64) << 31) | array[:, 1].astype(np.int64)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    same = np.flatnonzero(keys[1:] == keys[:-1]) + 1
    if same.size:
        again = same[np.argmin(order[same])]  # the first row of the file that was there before
        pair = shown((int(keys[again] >> 31), int(keys[again] & (MAX_ITEMS - 1))))
        where = "twice" if lines is None else f"on lines {lines[order[again - 1]]} and {lines[order[again]]}"
        raise BadInput(f"The edges of `{name}` must all differ, but got {pair} {where}. Remove one of them.")
    return np.stack([keys >> 31, keys & (MAX_ITEMS - 1)], axis=1)
