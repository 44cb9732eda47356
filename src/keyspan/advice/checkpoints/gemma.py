"""Gemma 1, 2 and 3: heads of a width of their own (not d / h), gains kept as their distance from 1, scaled token vectors.

Gemma 2 caps its scores and scales them by `query_pre_attn_scalar`; Gemma 3 normalises queries and keys, and its layers
turn at two speeds: slow ones that see everything, fast ones that see a window.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from keyspan.advice.checkpoints.layout import EmbeddingPlan, LayerPlan, Layout
from keyspan.advice.checkpoints.names import Names
from keyspan.advice.checkpoints.rotary import Rotary, rope_rule, rotary
from keyspan.advice.checkpoints.settings import Settings, heads_of, kv_heads_of, layers_of

MODEL_TYPES = ("gemma", "gemma2", "gemma3_text", "gemma3")
HEADS = {"gemma": (16, 16)}  # query and key heads where a config leaves them out; others have 8 and 4


def layout(settings: Settings, tensors: Iterable[str]) -> Layout:
    """Where attention is kept."""
    names = Names(tensors, "layers.0.self_attn.q_proj.weight")
    kind, d_model = settings.text("model_type"), settings.width("hidden_size")
    usual = HEADS.get(kind, (8, 4))
    heads = heads_of(settings, default=usual[0])
    kv_heads = kv_heads_of(settings, heads, default=usual[1])
    d_key = settings.width("head_dim", 256)
    eps = settings.number("rms_norm_eps", 1e-6, least=0.0)
    scale = d_key**-0.5 if kind == "gemma" else settings.number("query_pre_attn_scalar", 256.0, least=1e-6) ** -0.5
    capped = kind == "gemma2" and settings.values.get("attn_logit_softcapping", 50.0) is not None
    softcap = settings.number("attn_logit_softcapping", 50.0, least=1e-6) if capped else None

    def plan(layer: int) -> LayerPlan:
        here = f"layers.{layer}.self_attn"
        normed = names.has(f"{here}.q_norm.weight")
        slides = _slides(settings, kind, layer)
        return LayerPlan(
            layer=layer,
            heads=heads,
            kv_heads=kv_heads,
            d_key=d_key,
            query=(names.linear(f"{here}.q_proj", inputs=d_model, heads=heads, width=d_key),),
            key=(names.linear(f"{here}.k_proj", inputs=d_model, heads=kv_heads, width=d_key),),
            norm=names.norm(f"layers.{layer}.input_layernorm", "rms", width=d_model, eps=eps, offset=1.0),
            query_norm=names.norm(f"{here}.q_norm", "rms", width=d_key, eps=eps, offset=1.0) if normed else None,
            key_norm=names.norm(f"{here}.k_norm", "rms", width=d_key, eps=eps, offset=1.0) if normed else None,
            rotary=_turning(settings, kind, d_key, slides),
            scale=scale,
            softcap=softcap,
            window=settings.whole("sliding_window", 4096) if slides else None,
        )

    return Layout(
        family="gemma",
        model_type=kind,
        d_model=d_model,
        embeddings=EmbeddingPlan(tokens=names.at("embed_tokens.weight"), factor=math.sqrt(d_model)),
        layers=tuple(plan(layer) for layer in layers_of(settings)),
        longest=settings.whole("max_position_embeddings", 8192),
    )


def _slides(settings: Settings, kind: str, layer: int) -> bool:
    """Whether a layer sees a window only."""
    types = settings.texts("layer_types")
    if types is not None and layer < len(types):
        return types[layer] == "sliding_attention"
    every = settings.whole("sliding_window_pattern", settings.whole("_sliding_window_pattern", 6))
    return layer % 2 == 0 if kind == "gemma2" else kind != "gemma" and (layer + 1) % every != 0


def _turning(settings: Settings, kind: str, d_key: int, slides: bool) -> Rotary:
    """Gemma 3 has a rule for each type of layer: two tables, or in older configs another base for those that slide."""
    if not kind.startswith("gemma3"):
        return rotary(settings, width=d_key)
    nested = settings.table("rope_parameters")
    layer_type = "sliding_attention" if slides else "full_attention"
    if layer_type in nested:
        return rotary(settings, width=d_key, rule=rope_rule(settings, layer_type).values)
    if slides:
        return rotary(settings, width=d_key, rule={"rope_theta": settings.number("rope_local_base_freq", 10000.0)})
    return rotary(settings, width=d_key, theta=1e6)
