"""Llama and its kin: Mistral, Mixtral, Qwen 2, Qwen 3. Separate projections, RMSNorm, rotary positions, grouped keys.

Qwen 2 has biases; Qwen 3 normalises queries and keys, head by head; Mistral may have heads of another width than d / h.
"""

from __future__ import annotations

from collections.abc import Iterable

from keyspan.advice.checkpoints.layout import EmbeddingPlan, LayerPlan, Layout
from keyspan.advice.checkpoints.names import Names
from keyspan.advice.checkpoints.rotary import rotary
from keyspan.advice.checkpoints.settings import Settings, heads_of, kv_heads_of, layers_of

MODEL_TYPES = ("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe")


def layout(settings: Settings, tensors: Iterable[str]) -> Layout:
    """Where attention is kept."""
    names = Names(tensors, "layers.0.self_attn.q_proj.weight")
    kind, d_model, heads = settings.text("model_type"), settings.width("hidden_size"), heads_of(settings)
    kv_heads = kv_heads_of(settings, heads)
    d_key = settings.width("head_dim", 128 if kind == "qwen3" else max(1, d_model // heads))
    eps = settings.number("rms_norm_eps", 1e-6, least=0.0)
    turning = rotary(settings, width=d_key)
    longest = settings.whole("max_position_embeddings", 2048)

    def plan(layer: int) -> LayerPlan:
        here = f"layers.{layer}.self_attn"
        normed = names.has(f"{here}.q_norm.weight")
        return LayerPlan(
            layer=layer,
            heads=heads,
            kv_heads=kv_heads,
            d_key=d_key,
            query=(names.linear(f"{here}.q_proj", inputs=d_model, heads=heads, width=d_key),),
            key=(names.linear(f"{here}.k_proj", inputs=d_model, heads=kv_heads, width=d_key),),
            norm=names.norm(f"layers.{layer}.input_layernorm", "rms", width=d_model, eps=eps),
            query_norm=names.norm(f"{here}.q_norm", "rms", width=d_key, eps=eps) if normed else None,
            key_norm=names.norm(f"{here}.k_norm", "rms", width=d_key, eps=eps) if normed else None,
            rotary=turning,
            scale=d_key**-0.5,
            window=window(settings, layer),
        )

    return Layout(
        family="llama",
        model_type=kind,
        d_model=d_model,
        embeddings=EmbeddingPlan(tokens=names.at("embed_tokens.weight")),
        layers=tuple(plan(layer) for layer in layers_of(settings)),
        longest=longest,
    )


def window(settings: Settings, layer: int) -> int | None:
    """How far a layer looks back, None for everything."""
    types = settings.texts("layer_types")
    if not settings.has("sliding_window") or not settings.flag("use_sliding_window", True):
        return None
    if types is not None and layer < len(types):
        slides = types[layer] == "sliding_attention"
    else:
        slides = layer >= settings.whole("max_window_layers", 0, least=0)
    return settings.whole("sliding_window", least=0) or None if slides else None
