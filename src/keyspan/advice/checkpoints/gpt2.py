"""GPT-2: one matrix for queries, keys and values, stored (inputs, outputs) as its Conv1D has it; learned positions."""

from __future__ import annotations

from collections.abc import Iterable

from keyspan.advice.checkpoints.layout import Columns, EmbeddingPlan, LayerPlan, Layout, Projection
from keyspan.advice.checkpoints.names import Names
from keyspan.advice.checkpoints.settings import Settings, heads_of, layers_of

MODEL_TYPES = ("gpt2",)


def layout(settings: Settings, tensors: Iterable[str]) -> Layout:
    """Where attention is kept."""
    names = Names(tensors, "h.0.attn.c_attn.weight")
    d_model, heads = settings.width("n_embd", 768), heads_of(settings, "n_head", 12)
    d_key = max(1, d_model // heads)
    eps = settings.number("layer_norm_epsilon", 1e-5, least=0.0)

    def scale(layer: int) -> float:
        plain = d_key**-0.5 if settings.flag("scale_attn_weights", True) else 1.0
        return plain / (layer + 1) if settings.flag("scale_attn_by_inverse_layer_idx", False) else plain

    def part(layer: int, place: int) -> tuple[Projection]:
        columns = Columns(
            tensor=names.at(f"h.{layer}.attn.c_attn.weight"),
            bias=names.if_any(f"h.{layer}.attn.c_attn.bias"),
            stored="in-out",
            inputs=d_model,
            outputs=3 * d_model,
            first=place * d_model,
            stride=d_key,
            width=d_key,
            heads=heads,
        )
        return (Projection(columns=columns),)

    return Layout(
        family="gpt2",
        model_type="gpt2",
        d_model=d_model,
        embeddings=EmbeddingPlan(tokens=names.at("wte.weight"), positions=names.at("wpe.weight")),
        layers=tuple(
            LayerPlan(
                layer=layer,
                heads=heads,
                kv_heads=heads,
                d_key=d_key,
                query=part(layer, 0),
                key=part(layer, 1),
                norm=names.norm(f"h.{layer}.ln_1", "layer", width=d_model, eps=eps),
                scale=scale(layer),
            )
            for layer in layers_of(settings, "n_layer", 12)
        ),
        longest=settings.whole("n_positions", 1024),
    )
