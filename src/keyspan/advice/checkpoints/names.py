"""What a checkpoint's tensors are called: which exist, and what stands before `layers.0...` in this one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from keyspan.advice.checkpoints.layout import Columns, Norm, Projection
from keyspan.errors import BadInput
from keyspan.files.paths import shown

# in the order in which they are tried: language models alone, then inside of models of several kinds of input
PREFIXES = (
    "model.", "", "transformer.", "gpt_neox.", "bert.", "roberta.", "model.decoder.", "decoder.",
    "model.language_model.", "language_model.model.", "language_model.", "model.text_model.",
)  # fmt: skip


class Names:
    """The tensors of a checkpoint under one prefix, which is found where `known` (a tensor that must be there) is."""

    def __init__(self, tensors: Iterable[str], known: str) -> None:
        self.tensors = frozenset(tensors)
        found = {name[: -len(known)] for name in self.tensors if name.endswith(known)}
        usual = [prefix for prefix in PREFIXES if prefix in found]
        if not usual and len(found) != 1:
            got = shown(sorted(found)) if found else shown(sorted(self.tensors)[:3])
            raise BadInput(f"The checkpoint must have one tensor {shown(known)}, but got {got}. Give --mapping FILE.toml.")
        self.prefix = usual[0] if usual else found.pop()

    def at(self, name: str) -> str:
        """The whole name."""
        return self.prefix + name

    def has(self, name: str) -> bool:
        """Whether there is such a tensor."""
        return self.prefix + name in self.tensors

    def if_any(self, name: str) -> str | None:
        """The whole name, or None where there is no such tensor."""
        return self.prefix + name if self.has(name) else None

    def linear(self, path: str, *, inputs: int, heads: int, width: int) -> Projection:
        """A torch.nn.Linear whose outputs are those of the heads, one after another, with its bias where it has one."""
        return Projection(
            columns=Columns(
                tensor=self.at(f"{path}.weight"),
                bias=self.if_any(f"{path}.bias"),
                inputs=inputs,
                outputs=heads * width,
                first=0,
                stride=width,
                width=width,
                heads=heads,
            )
        )

    def norm(self, path: str, kind: Literal["rms", "layer"], *, width: int, eps: float, offset: float = 0.0) -> Norm:
        """A normalisation with its gain, and its bias where it has one; some old files call them gamma and beta."""
        gain = self.if_any(f"{path}.gamma") or self.at(f"{path}.weight")
        bias = (self.if_any(f"{path}.bias") or self.if_any(f"{path}.beta")) if kind == "layer" else None
        return Norm(kind=kind, width=width, eps=eps, gain=gain, bias=bias, offset=offset)
