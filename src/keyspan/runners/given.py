"""Item vectors from a file, some of its rows, as they are or treated: specs whose content is kept beside the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput, require
from keyspan.files.arrays import read_array, split_name
from keyspan.files.contents import Contents
from keyspan.problems.embeddings import Embeddings
from keyspan.problems.spectrum import TREATMENTS
from keyspan.seeds import Stream

ITEMS = 512  # rows that are taken of a larger file


@dataclass(frozen=True)
class Rows:
    """Item vectors that were given. name: of the file    made: (treatment, embeddings)    rows: as they are"""

    name: str
    items: int
    d_model: int
    made: tuple[tuple[str, Embeddings], ...]
    rows: NDArray[np.float64] | None = field(default=None, compare=False, repr=False)


def some_rows(path: str | Path, items: int | None = None) -> NDArray[np.float64]:
    """So many rows of a file, chosen at random but always alike, none of zeros and no two the same. returns: (items, d_model)

    items: default 512, or all where there are fewer
    """
    rows = read_array(path)
    real = rows[rows.any(axis=1)]
    distinct = real[np.sort(np.unique(real, axis=0, return_index=True)[1])]
    wanted = min(ITEMS, len(distinct)) if items is None else items
    rule = f"`items <= {len(distinct)}`, the rows that differ"
    require(2 <= wanted <= len(distinct), rule, wanted, "Ask for fewer, or give another file.")
    chosen = Stream(f"rows {distinct.shape}", "chosen").permutation(len(distinct))[:wanted]
    return np.ascontiguousarray(distinct[np.sort(chosen)])


def given_rows(
    path: str | Path, contents: Contents, items: int | None = None, treatments: Sequence[str] = ("raw", "whitened")
) -> Rows:
    """Specs of some rows of a file, one for each treatment. Their content is kept by its hash, where members find it."""
    for name in treatments:
        if name not in TREATMENTS:
            raise BadInput(f"A treatment must be one of {', '.join(TREATMENTS)}, but got {name!r}. Choose one.")
    rows = some_rows(path, items)
    made = []
    for name in treatments:
        sha = contents.put(TREATMENTS[name](rows), source=path)
        made.append((name, Embeddings(name="file", content=sha)))
    return Rows(Path(split_name(path)[0]).stem, len(rows), rows.shape[1], tuple(made), rows)
