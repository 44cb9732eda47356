"""DeepSeek V2 and V3: latent attention (MLA). Keys come out of a latent shared by all heads, queries perhaps out of another.

A head's query and key have two parts side by side: one without positions, made from the latents, and one that turns; the
turning part of the key is one for all heads. So the form x W_Q W_K^T y of a head has rank d_nope + d_rope at most.
"""

from __future__ import annotations

from collections.abc import Iterable

from keyspan.advice.checkpoints.layout import Columns, EmbeddingPlan, LayerPlan, Layout, Projection
from keyspan.advice.checkpoints.names import Names
from keyspan.advice.checkpoints.rotary import rope_rule, rotary, yarn_size
from keyspan.advice.checkpoints.settings import Settings, heads_of, layers_of

MODEL_TYPES = ("deepseek_v2", "deepseek_v3")


def layout(settings: Settings, tensors: Iterable[str]) -> Layout:
    """Where attention is kept."""
    names = Names(tensors, "layers.0.self_attn.kv_a_proj_with_mqa.weight")
    kind, d_model, heads = settings.text("model_type"), settings.width("hidden_size"), heads_of(settings)
    still, turning = settings.width("qk_nope_head_dim", 128), settings.width("qk_rope_head_dim", 64)
    values, kv_rank = settings.width("v_head_dim", 128), settings.width("kv_lora_rank", 512)
    q_rank = settings.width("q_lora_rank") if settings.has("q_lora_rank") else None
    eps = settings.number("rms_norm_eps", 1e-6, least=0.0)
    d_key = still + turning
    pairs = settings.flag("rope_interleave", True) or kind == "deepseek_v2"

    def down(layer: int, first: int, width: int) -> Columns:
        """A part of what every token is pressed into: the latent, then the key part that turns."""
        return Columns(
            tensor=names.at(f"layers.{layer}.self_attn.kv_a_proj_with_mqa.weight"),
            bias=names.if_any(f"layers.{layer}.self_attn.kv_a_proj_with_mqa.bias"),
            inputs=d_model,
            outputs=kv_rank + turning,
            first=first,
            stride=width,
            width=width,
        )

    def query(layer: int) -> Projection:
        here = f"layers.{layer}.self_attn"
        if q_rank is None:
            return names.linear(f"{here}.q_proj", inputs=d_model, heads=heads, width=d_key)
        return Projection(
            columns=names.linear(f"{here}.q_b_proj", inputs=q_rank, heads=heads, width=d_key).columns,
            latent=names.linear(f"{here}.q_a_proj", inputs=d_model, heads=1, width=q_rank).columns,
            norm=names.norm(f"{here}.q_a_layernorm", "rms", width=q_rank, eps=RANK_EPS),
        )

    def key(layer: int) -> tuple[Projection, Projection]:
        here = f"layers.{layer}.self_attn"
        up = Columns(
            tensor=names.at(f"{here}.kv_b_proj.weight"),
            inputs=kv_rank,
            outputs=heads * (still + values),
            first=0,
            stride=still + values,
            width=still,
            heads=heads,
        )
        norm = names.norm(f"{here}.kv_a_layernorm", "rms", width=kv_rank, eps=RANK_EPS)
        content = Projection(columns=up, latent=down(layer, 0, kv_rank), norm=norm)
        return content, Projection(columns=down(layer, kv_rank, turning))

    turns = rotary(settings, width=turning, start=still, pairs="interleaved" if pairs else "half")
    return Layout(
        family="deepseek",
        model_type=kind,
        d_model=d_model,
        embeddings=EmbeddingPlan(tokens=names.at("embed_tokens.weight")),
        layers=tuple(
            LayerPlan(
                layer=layer,
                heads=heads,
                kv_heads=heads,
                d_key=d_key,
                query=(query(layer),),
                key=key(layer),
                norm=names.norm(f"layers.{layer}.input_layernorm", "rms", width=d_model, eps=eps),
                rotary=turns,
                scale=_scale(settings, d_key),
            )
            for layer in layers_of(settings)
        ),
        longest=settings.whole("max_position_embeddings", 4096),
        notes=("latents are normalised token by token; ranks and overlaps fold in the gains of that and leave its sizes out",),
    )


RANK_EPS = 1e-6  # of the latents' own normalisation, whatever the config's is


def _scale(settings: Settings, d_key: int) -> float:
    """1 / sqrt(d_key), made larger where the context was stretched by YaRN."""
    rule = rope_rule(settings)
    weight = rule.number("mscale_all_dim", 0.0)
    stretched = rule.text("rope_type", rule.text("type", "default")) != "default" and weight > 0
    size = yarn_size(rule.number("factor", 1.0), weight) if stretched else 1.0
    return float(d_key**-0.5 * size**2)
