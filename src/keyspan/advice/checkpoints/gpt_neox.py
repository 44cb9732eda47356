"""GPT-NeoX and Pythia: one matrix in which every head has its query, key and value side by side; a quarter of a head turns."""

from __future__ import annotations

from collections.abc import Iterable

from keyspan.advice.checkpoints.layout import Columns, EmbeddingPlan, LayerPlan, Layout, Projection
from keyspan.advice.checkpoints.names import Names
from keyspan.advice.checkpoints.rotary import rope_rule, rotary
from keyspan.advice.checkpoints.settings import Settings, heads_of, layers_of

MODEL_TYPES = ("gpt_neox",)


def layout(settings: Settings, tensors: Iterable[str]) -> Layout:
    """Where attention is kept."""
    names = Names(tensors, "layers.0.attention.query_key_value.weight")
    d_model, heads = settings.width("hidden_size"), heads_of(settings)
    d_key = max(1, d_model // heads)
    eps = settings.number("layer_norm_eps", 1e-5, least=0.0)
    rule = rope_rule(settings)
    share = rule.number("partial_rotary_factor", settings.number("rotary_pct", 0.25, least=0.0), least=0.0)
    theta = settings.number("rotary_emb_base", 10000.0)
    width = min(d_key, int(d_key * share))
    turning = rotary(settings, width=width, theta=theta) if width else None

    def part(layer: int, place: int) -> tuple[Projection]:
        columns = Columns(
            tensor=names.at(f"layers.{layer}.attention.query_key_value.weight"),
            bias=names.if_any(f"layers.{layer}.attention.query_key_value.bias"),
            inputs=d_model,
            outputs=3 * d_model,
            first=place * d_key,
            stride=3 * d_key,
            width=d_key,
            heads=heads,
        )
        return (Projection(columns=columns),)

    return Layout(
        family="gpt_neox",
        model_type="gpt_neox",
        d_model=d_model,
        embeddings=EmbeddingPlan(tokens=names.at("embed_in.weight")),
        layers=tuple(
            LayerPlan(
                layer=layer,
                heads=heads,
                kv_heads=heads,
                d_key=d_key,
                query=part(layer, 0),
                key=part(layer, 1),
                norm=names.norm(f"layers.{layer}.input_layernorm", "layer", width=d_model, eps=eps),
                rotary=turning,
                scale=d_key**-0.5,
            )
            for layer in layers_of(settings)
        ),
        longest=settings.whole("max_position_embeddings", 2048),
    )
