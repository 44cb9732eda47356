"""The design law from a store's own measurements: `keyspan fit design`, which leaves it where `keyspan design` looks for it.

A store is read once, when it is fitted, and not at every answer: those are instant. The law lies beside the store, as
`design-law.json`; without one there, designs rest on the measurements that come with the package.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from keyspan.errors import BadInput
from keyspan.evidence.cells import Cell
from keyspan.evidence.design_law import FEATURES, DesignLaw, fit_design, usable
from keyspan.evidence.record import head
from keyspan.evidence.shipped import FITTED, cells_of
from keyspan.files.documents import read_json
from keyspan.files.paths import replacing
from keyspan.runners.cells import LeftOut, load_cells
from keyspan.runners.lab import Lab, default_store

NAME = "design-law.json"
LIMIT = 2**24  # bytes of it


@dataclass(frozen=True)
class DesignFit:
    """A design law fitted. own: how many of its cells are not the package's    path: where it was written, if it was"""

    law: DesignLaw
    own: int
    left_out: tuple[LeftOut, ...]
    path: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan fit design`."""
        law, gone = self.law, [{"cell": name, "reason": why} for name, why in self.left_out]
        named = dict(zip(FEATURES, law.theta, strict=True))
        more = {"own": self.own, "left_out": gone, "path": self.path, "trained_now": 0}
        return head() | {"model": "design", "formula": law.formula, "parameters": named} | law.to_dict() | more


def fit_design_law(
    *,
    source: str | Path | None = None,
    store: str | None = None,
    recipe: str = "gradient",
    target: float = 0.99,
) -> DesignFit:
    """Fit the design law to measured cells, and to the package's own where they were measured in the same way.

    source: a CSV of cells or a JSONL of records (default: the store)
    """
    if source is not None and not isinstance(source, str | PathLike):
        raise BadInput(f"`source` must be the path of a file, but got {type(source).__name__}. Give a str or a Path.")
    cells, left_out = load_cells(source, store, target)
    mine = [c for c in cells if (c.recipe, c.target) == (recipe, target)]
    left_out += [(c.name, f"measured with {c.recipe} for {c.target:g}") for c in cells if c not in mine]
    left_out += [(c.name, why) for c in mine if (why := usable(c)) is not None]
    mine = [c for c in mine if usable(c) is None]
    known = {_key(c) for c in mine}
    others = [c for c in cells_of(*FITTED) if (c.recipe, c.target) == (recipe, target) and _key(c) not in known]
    where = str(source) if source is not None else (store or default_store())
    law = fit_design([*mine, *others], f"{where}, with {len(others)} cells of keyspan's own" if others else where)
    return DesignFit(law, len(mine), tuple(left_out))


def _key(cell: Cell) -> tuple[int, int, int, str]:
    return cell.items, cell.d_model, cell.edges, cell.graph


def path_beside(store: str | None) -> Path:
    """Where the law of a store lies."""
    return Lab(store).folder / NAME


def write_law(fit: DesignFit, path: Path) -> DesignFit:
    """Leave a law for `keyspan design` to find. returns: the fit, with its path"""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as handle:
        handle.write((json.dumps(fit.law.to_dict(), indent=1) + "\n").encode())
    return DesignFit(fit.law, fit.own, fit.left_out, str(path))


def read_law(path: str | Path) -> DesignLaw:
    """A law that `write_law` wrote."""
    return DesignLaw.from_json(read_json(path, LIMIT), str(path))


def law_beside(store: str | None) -> DesignLaw | None:
    """The law of a store, if one was fitted."""
    path = path_beside(store)
    return read_law(path) if path.is_file() else None
