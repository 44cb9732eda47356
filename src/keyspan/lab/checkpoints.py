"""A fleet that was killed goes on: one safetensors file per unfinished member, replaced atomically.

A file holds a member's own slots of the parameters and the optimiser's state and says after which step. Since no bit of
a member depends on its company, it goes on in any fleet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from keyspan.errors import BadInput
from keyspan.files import safetensors

Tree = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Saved:
    """Where a member stood: before step `step` of phase `phase`."""

    phase: int
    step: int
    params: dict[str, torch.Tensor]
    state: dict[str, torch.Tensor]


class Checkpoints:
    """A folder of checkpoints, by run id."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, run_id: str) -> Path:
        return self.folder / f"{run_id}.safetensors"

    def save(self, run_id: str, member: int, phase: int, step: int, params: Tree, state: Tree, kernel: str = "torch") -> None:
        """Keep one member's slots. params, state: tensors with a leading member axis    kernel: what trains it"""
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = {f"params.{k}": v[member].cpu().numpy() for k, v in params.items()}
        tensors |= {f"state.{k}": v[member].cpu().numpy() for k, v in state.items()}
        arrays = {k: np.atleast_1d(np.ascontiguousarray(v)) for k, v in tensors.items()}
        shapes = {k: ",".join(map(str, v.shape)) for k, v in tensors.items()}  # a scalar's shape is empty
        note = {f"shape.{k}": s for k, s in shapes.items()}
        safetensors.write(self._path(run_id), arrays, {"phase": str(phase), "step": str(step), "kernel": kernel} | note)

    def load(self, run_id: str, kernel: str = "torch") -> Saved | None:
        """Where this member stood, if it was kept; a damaged file counts as none, and so does one that another kernel
        wrote: the member starts again."""
        path = self._path(run_id)
        if not path.exists():
            return None
        try:
            note = safetensors.read_metadata(path)
            if note.get("kernel", "torch") != kernel:
                return None
            trees: dict[str, dict[str, torch.Tensor]] = {"params": {}, "state": {}}
            for name in safetensors.read_header(path).tensors:
                shape = tuple(int(n) for n in note[f"shape.{name}"].split(",") if n)
                tree, key = name.split(".", 1)
                trees[tree][key] = torch.from_numpy(np.array(safetensors.read_tensor(path, name)).reshape(shape))
            return Saved(int(note["phase"]), int(note["step"]), trees["params"], trees["state"])
        except (BadInput, KeyError, ValueError):
            return None

    def drop(self, run_id: str) -> None:
        """Forget a member that has finished."""
        self._path(run_id).unlink(missing_ok=True)
