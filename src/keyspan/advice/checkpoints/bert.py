"""BERT, MiniLM, RoBERTa: separate projections with biases, normalised after each block, learned positions.

A layer does not normalise its own input: it comes out of the layer before, whose last step was to normalise it.
"""

from __future__ import annotations

from collections.abc import Iterable

from keyspan.advice.checkpoints.layout import EmbeddingPlan, LayerPlan, Layout
from keyspan.advice.checkpoints.names import Names
from keyspan.advice.checkpoints.settings import Settings, heads_of, layers_of
from keyspan.errors import BadInput
from keyspan.files.paths import shown

MODEL_TYPES = ("bert", "roberta", "xlm-roberta")


def layout(settings: Settings, tensors: Iterable[str]) -> Layout:
    """Where attention is kept."""
    names = Names(tensors, "encoder.layer.0.attention.self.query.weight")
    kind, d_model, heads = settings.text("model_type"), settings.width("hidden_size", 768), heads_of(settings, default=12)
    d_key = max(1, d_model // heads)
    eps = settings.number("layer_norm_eps", 1e-12, least=0.0)
    positions = settings.text("position_embedding_type", "absolute")
    if positions != "absolute":
        raise BadInput(f"Positions in `{settings.name}` must be absolute, but got {shown(positions)}. Use --mapping FILE.toml.")
    first = names.norm("embeddings.LayerNorm", "layer", width=d_model, eps=eps)

    def plan(layer: int) -> LayerPlan:
        here = f"encoder.layer.{layer}.attention.self"
        last = f"encoder.layer.{layer - 1}.output.LayerNorm"
        return LayerPlan(
            layer=layer,
            heads=heads,
            kv_heads=heads,
            d_key=d_key,
            query=(names.linear(f"{here}.query", inputs=d_model, heads=heads, width=d_key),),
            key=(names.linear(f"{here}.key", inputs=d_model, heads=heads, width=d_key),),
            before=names.norm(last, "layer", width=d_model, eps=eps) if layer else first,
            scale=d_key**-0.5,
        )

    return Layout(
        family="bert",
        model_type=kind,
        d_model=d_model,
        embeddings=EmbeddingPlan(
            tokens=names.at("embeddings.word_embeddings.weight"),
            positions=names.at("embeddings.position_embeddings.weight"),
            skipped=0 if kind == "bert" else 2,
            types=names.if_any("embeddings.token_type_embeddings.weight"),
            norm=first,
        ),
        layers=tuple(plan(layer) for layer in layers_of(settings, default=12)),
        longest=settings.whole("max_position_embeddings", 512),
    )
