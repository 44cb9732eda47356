"""Phi: models 1, 1.5 and 2 have separate projections with biases and turn a part of each head; Phi-3 and 4 fuse all three."""

from __future__ import annotations

from collections.abc import Iterable

from keyspan.advice.checkpoints.layout import Columns, EmbeddingPlan, LayerPlan, Layout, Projection
from keyspan.advice.checkpoints.names import Names
from keyspan.advice.checkpoints.rotary import Rotary, rope_rule, rotary
from keyspan.advice.checkpoints.settings import Settings, heads_of, kv_heads_of, layers_of

MODEL_TYPES = ("phi", "phi3")


def layout(settings: Settings, tensors: Iterable[str]) -> Layout:
    """Where attention is kept."""
    fused = settings.text("model_type") == "phi3"
    names = Names(tensors, f"layers.0.self_attn.{'qkv_proj' if fused else 'q_proj'}.weight")
    d_model, heads = settings.width("hidden_size"), heads_of(settings)
    kv_heads = kv_heads_of(settings, heads)
    d_key = settings.width("head_dim", max(1, d_model // heads))
    eps = settings.number("rms_norm_eps" if fused else "layer_norm_eps", 1e-5, least=0.0)
    turning = _turning(settings, d_key, 1.0 if fused else 0.5)

    def qkv(layer: int, first: int, count: int) -> Projection:
        columns = Columns(
            tensor=names.at(f"layers.{layer}.self_attn.qkv_proj.weight"),
            inputs=d_model,
            outputs=(heads + 2 * kv_heads) * d_key,
            first=first,
            stride=d_key,
            width=d_key,
            heads=count,
        )
        return Projection(columns=columns)

    def plan(layer: int) -> LayerPlan:
        here = f"layers.{layer}.self_attn"
        normed = not fused and settings.flag("qk_layernorm", False)
        query = names.linear(f"{here}.q_proj", inputs=d_model, heads=heads, width=d_key)
        key = names.linear(f"{here}.k_proj", inputs=d_model, heads=kv_heads, width=d_key)
        return LayerPlan(
            layer=layer,
            heads=heads,
            kv_heads=kv_heads,
            d_key=d_key,
            query=(qkv(layer, 0, heads) if fused else query,),
            key=(qkv(layer, heads * d_key, kv_heads) if fused else key,),
            norm=names.norm(f"layers.{layer}.input_layernorm", "rms" if fused else "layer", width=d_model, eps=eps),
            query_norm=names.norm(f"{here}.q_layernorm", "layer", width=d_key, eps=eps) if normed else None,
            key_norm=names.norm(f"{here}.k_layernorm", "layer", width=d_key, eps=eps) if normed else None,
            rotary=turning,
            scale=d_key**-0.5,
            window=settings.whole("sliding_window") if fused and settings.has("sliding_window") else None,
        )

    return Layout(
        family="phi",
        model_type=settings.text("model_type"),
        d_model=d_model,
        embeddings=EmbeddingPlan(tokens=names.at("embed_tokens.weight")),
        layers=tuple(plan(layer) for layer in layers_of(settings)),
        longest=settings.whole("max_position_embeddings", 2048),
    )


def _turning(settings: Settings, d_key: int, usual: float) -> Rotary | None:
    """The first dimensions of a head turn, as many as the config's share of them."""
    share = rope_rule(settings).number("partial_rotary_factor", settings.number("partial_rotary_factor", usual, least=0.0))
    width = min(d_key, int(d_key * share))
    return rotary(settings, width=width) if width else None
