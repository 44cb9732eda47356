"""Which family a checkpoint is of, and whether its tensors are what the config says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keyspan.advice.checkpoints import bert, deepseek, gemma, gpt2, gpt_neox, llama, mapping, opt, phi
from keyspan.advice.checkpoints.layout import Columns, LayerPlan, Layout, Norm, Projection
from keyspan.advice.checkpoints.settings import Settings
from keyspan.errors import BadInput
from keyspan.files.checkpoints import Checkpoint
from keyspan.files.paths import shown

FAMILIES: dict[str, Callable[[Settings, Iterable[str]], Layout]] = {
    kind: family.layout for family in (llama, gemma, gpt2, gpt_neox, opt, bert, phi, deepseek) for kind in family.MODEL_TYPES
}


@dataclass(frozen=True, kw_only=True)
class Match:
    """A tensor that was matched. role: what it is    columns: which of its outputs each head takes; "" for all"""

    layer: int | None
    role: str
    tensor: str
    shape: tuple[int, ...]
    dtype: str
    file: str
    columns: str

    def to_dict(self) -> dict[str, Any]:
        """A row of the JSON's `explain`."""
        return {**self.__dict__, "shape": list(self.shape)}


def plan(checkpoint: Checkpoint, by_hand: str | Path | None = None) -> Layout:
    """Where attention is kept, by the config's `model_type`, or by the mapping in a file; checked against the shapes."""
    settings = Settings(checkpoint.config)
    found = _by_type(settings, checkpoint) if by_hand is None else mapping.layout(by_hand, settings)
    for _ in matches(checkpoint, found):
        pass  # whatever is not there, or of another shape, is refused
    return found


def _by_type(settings: Settings, checkpoint: Checkpoint) -> Layout:
    inner = settings.table("text_config")  # models of several kinds of input keep their language model's settings here
    own = settings.text("model_type", "")
    kind = own if own in FAMILIES else Settings(inner).text("model_type", own)
    if kind not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise BadInput(f"`model_type` in `config.json` must be one of {known}, but got {shown(kind)}. Give --mapping.")
    return FAMILIES[kind](Settings({**settings.values, **inner, "model_type": kind}), checkpoint.files)


def matches(checkpoint: Checkpoint, layout: Layout) -> Iterator[Match]:
    """Every tensor that an audit reads, in order, with its shape checked against what the config says."""
    rows = layout.embeddings
    yield _matched(
        checkpoint, None, "token vectors", rows.tokens, (None, rows.project.inputs if rows.project else layout.d_model)
    )
    if rows.project:
        yield from _columns(checkpoint, None, "token vectors, widened", rows.project)
    for role, tensor in (("positions", rows.positions), ("token types", rows.types)):
        if tensor:
            yield _matched(checkpoint, None, role, tensor, (None, layout.d_model))
    yield from _norm(checkpoint, None, "norm of token vectors", rows.norm)
    for layer in layout.layers:
        yield from _layer(checkpoint, layer)


def _layer(checkpoint: Checkpoint, plan: LayerPlan) -> Iterator[Match]:
    for role, parts in (("query", plan.query), ("key", plan.key)):
        for i, part in enumerate(parts):
            yield from _projection(checkpoint, plan.layer, role if len(parts) == 1 else f"{role}, part {i + 1}", part)
    for role, norm in (
        ("norm of the input", plan.norm),
        ("norm that made the input", plan.before),
        ("norm of queries", plan.query_norm),
        ("norm of keys", plan.key_norm),
    ):
        yield from _norm(checkpoint, plan.layer, role, norm)


def _projection(checkpoint: Checkpoint, layer: int, role: str, part: Projection) -> Iterator[Match]:
    if part.latent:
        yield from _columns(checkpoint, layer, f"{role}, latent", part.latent)
        yield from _norm(checkpoint, layer, f"{role}, norm of the latent", part.norm)
    yield from _columns(checkpoint, layer, role, part.columns)


def _columns(checkpoint: Checkpoint, layer: int | None, role: str, columns: Columns) -> Iterator[Match]:
    outputs = columns.outputs
    sizes = (outputs, columns.inputs) if columns.stored == "out-in" else (columns.inputs, outputs)
    heads = f"{columns.heads} heads of {columns.width} from {columns.first}, {columns.stride} apart, {columns.stored}"
    said = heads if columns.heads > 1 else f"{columns.width} from {columns.first}, {columns.stored}"
    found = _matched(checkpoint, layer, role, columns.tensor, sizes, said)
    have = found.shape[0 if columns.stored == "out-in" else 1]
    if have < columns.last:
        got = f"{have} where {columns.last} are needed"
        raise BadInput(f"Outputs of {shown(columns.tensor)} must hold every head, but got {got}. Check heads and d_key.")
    yield found
    if columns.bias:
        yield _matched(checkpoint, layer, f"{role}, bias", columns.bias, (have,))


def _norm(checkpoint: Checkpoint, layer: int | None, role: str, norm: Norm | None) -> Iterator[Match]:
    for what, tensor in (("gain", norm.gain), ("bias", norm.bias)) if norm else ():
        if tensor:
            assert norm is not None
            yield _matched(checkpoint, layer, f"{role}, {what}", tensor, (norm.width,))


def _matched(
    checkpoint: Checkpoint, layer: int | None, role: str, tensor: str, sizes: tuple[int | None, ...], columns: str = ""
) -> Match:
    """The tensor as it is, if its shape is what it must be (None: anything)."""
    if tensor not in checkpoint:
        place = "" if layer is None else f" of layer {layer}"
        raise BadInput(f"The {role}{place} must be tensor {shown(tensor)}, but got none. Give --mapping FILE.toml.")
    entry = checkpoint.entry(tensor)
    shape = entry.shape
    fits = len(shape) == len(sizes) and all(want is None or want == have for want, have in zip(sizes, shape, strict=True))
    if not fits or 0 in shape:
        wanted = "(" + ", ".join("any" if n is None else str(n) for n in sizes) + ")"
        got = f"{shown(shape)}"
        raise BadInput(f"Tensor {shown(tensor)} ({role}) must have shape {wanted}, but got {got}. Check config.json.")
    return Match(
        layer=layer, role=role, tensor=tensor, shape=shape, dtype=entry.dtype, file=checkpoint.files[tensor], columns=columns
    )
