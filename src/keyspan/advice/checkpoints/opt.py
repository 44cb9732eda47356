"""OPT: separate projections with biases, learned positions (two rows of the table stand for none).

The model of 350 million normalises after attention, and its token vectors are narrower than its hidden states.
"""

from __future__ import annotations

from collections.abc import Iterable

from keyspan.advice.checkpoints.layout import EmbeddingPlan, LayerPlan, Layout, Norm
from keyspan.advice.checkpoints.names import Names
from keyspan.advice.checkpoints.settings import Settings, heads_of, layers_of

MODEL_TYPES = ("opt",)
EPS = 1e-5  # not in the config: torch's own


def layout(settings: Settings, tensors: Iterable[str]) -> Layout:
    """Where attention is kept."""
    names = Names(tensors, "layers.0.self_attn.q_proj.weight")
    d_model, heads = settings.width("hidden_size", 768), heads_of(settings, default=12)
    d_key = max(1, d_model // heads)
    narrow = settings.width("word_embed_proj_dim", d_model)
    first = settings.flag("do_layer_norm_before", True)
    plain = not settings.flag("layer_norm_elementwise_affine", True)

    def norm(path: str) -> Norm:
        return Norm(kind="layer", width=d_model, eps=EPS) if plain else names.norm(path, "layer", width=d_model, eps=EPS)

    def plan(layer: int) -> LayerPlan:
        here = f"layers.{layer}.self_attn"
        after = norm(f"layers.{layer - 1}.final_layer_norm") if layer and not first else None
        return LayerPlan(
            layer=layer,
            heads=heads,
            kv_heads=heads,
            d_key=d_key,
            query=(names.linear(f"{here}.q_proj", inputs=d_model, heads=heads, width=d_key),),
            key=(names.linear(f"{here}.k_proj", inputs=d_model, heads=heads, width=d_key),),
            norm=norm(f"layers.{layer}.self_attn_layer_norm") if first else None,
            before=after,
            scale=d_key**-0.5,
        )

    project = names.linear("project_in", inputs=narrow, heads=1, width=d_model).columns if narrow != d_model else None
    return Layout(
        family="opt",
        model_type="opt",
        d_model=d_model,
        embeddings=EmbeddingPlan(
            tokens=names.at("embed_tokens.weight"),
            project=project,
            positions=names.at("embed_positions.weight"),
            skipped=2,
        ),
        layers=tuple(plan(layer) for layer in layers_of(settings, default=12)),
        longest=settings.whole("max_position_embeddings", 2048),
    )
