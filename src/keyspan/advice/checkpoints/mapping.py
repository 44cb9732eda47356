"""A mapping by hand, for models of other families: a TOML file that says which tensor is what.

[model]
layers = 2            # a number, or the name of a key in config.json: layers = "n_layer"
heads = 4
kv_heads = 2          # default: heads
d_model = 32
d_key = 8             # default: d_model / heads

[query]               # {layer} stands for the layer's number
weight = "blocks.{layer}.attn.q.weight"
bias = "blocks.{layer}.attn.q.bias"
stored = "out-in"     # default, as torch.nn.Linear; "in-out": rows are inputs
first = 0             # the first output of head 0
stride = 8            # outputs from one head to the next, default d_key

[key]
weight = "blocks.{layer}.attn.k.weight"

[embeddings]
weight = "wte.weight"
positions = "wpe.weight"

[norm]                # what a layer does to its input; also [query_norm], [key_norm], for each head
kind = "rms"          # or "layer"
weight = "blocks.{layer}.norm.weight"
eps = 1e-6

[rotary]
width = 8             # default d_key
theta = 10000.0
pairs = "half"        # or "interleaved"

[scores]
scale = 0.35          # default 1 / sqrt(d_key)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from keyspan.advice.checkpoints.layout import Columns, EmbeddingPlan, LayerPlan, Layout, Norm, Projection
from keyspan.advice.checkpoints.rotary import Rotary, rotary
from keyspan.advice.checkpoints.settings import MOST_HEADS, MOST_LAYERS, Settings
from keyspan.errors import BadInput, require
from keyspan.files.documents import read_toml
from keyspan.files.paths import name_of, shown

PROJECTION = ("weight", "bias", "stored", "first", "stride")
NORM = ("kind", "weight", "bias", "eps", "offset")
TABLES = {
    "model": ("layers", "heads", "kv_heads", "d_model", "d_key", "positions"),
    "query": PROJECTION,
    "key": PROJECTION,
    "embeddings": ("weight", "positions", "skipped", "factor"),
    "norm": NORM,
    "query_norm": NORM,
    "key_norm": NORM,
    "rotary": ("width", "start", "theta", "pairs"),
    "scores": ("scale", "softcap"),
}


def layout(path: str | Path, config: Settings) -> Layout:
    """The layout that a mapping describes; numbers may stand in the config under the names that it gives."""
    name = name_of(path)
    tables = _tables(read_toml(path), name)
    model = Settings(_looked_up(tables["model"], config, name), name)
    heads = model.whole("heads", most=MOST_HEADS)
    kv_heads = model.whole("kv_heads", heads, most=MOST_HEADS)
    require(heads % kv_heads == 0, f"`kv_heads` divides `heads` in `{name}`", f"{kv_heads} and {heads}", "Check them.")
    d_model = model.width("d_model")
    d_key = model.width("d_key", max(1, d_model // heads))
    turning = _rotary(tables, name, d_key)
    scores = Settings(tables.get("scores", {}), name)

    def plan(layer: int) -> LayerPlan:
        return LayerPlan(
            layer=layer,
            heads=heads,
            kv_heads=kv_heads,
            d_key=d_key,
            query=(_projection(tables["query"], name, layer, heads, d_model, d_key),),
            key=(_projection(tables["key"], name, layer, kv_heads, d_model, d_key),),
            norm=_norm(tables, "norm", name, layer, d_model),
            query_norm=_norm(tables, "query_norm", name, layer, d_key),
            key_norm=_norm(tables, "key_norm", name, layer, d_key),
            rotary=turning,
            scale=scores.number("scale", d_key**-0.5, least=1e-12),
            softcap=scores.number("softcap", least=1e-6) if scores.has("softcap") else None,
        )

    rows = Settings(tables["embeddings"], name)
    return Layout(
        family="mapping",
        model_type=config.text("model_type", "unknown"),
        d_model=d_model,
        embeddings=EmbeddingPlan(
            tokens=rows.text("weight"),
            factor=rows.number("factor", 1.0),
            positions=rows.text("positions") if rows.has("positions") else None,
            skipped=rows.whole("skipped", 0, least=0),
        ),
        layers=tuple(plan(layer) for layer in range(model.whole("layers", most=MOST_LAYERS))),
        longest=model.whole("positions") if model.has("positions") else None,
    )


def _tables(data: Mapping[str, Any], name: str) -> Mapping[str, Mapping[str, Any]]:
    """The tables, of which only known ones with known keys may be there."""
    for table, values in data.items():
        known = TABLES.get(table, ())
        if not known or not isinstance(values, Mapping):
            raise BadInput(f"Tables in `{name}` must be {'|'.join(TABLES)}, but got {shown(table)}. Leave it out.")
        unknown = [key for key in values if key not in known]
        require(not unknown, f"[{table}] in `{name}` has {'|'.join(known)}", shown(unknown and unknown[0]), "Leave it out.")
    for table in ("model", "query", "key", "embeddings"):
        require(table in data, f"`{name}` has a table [{table}]", f"only {shown(sorted(data))}", "Write it.")
    return data


def _looked_up(table: Mapping[str, Any], config: Settings, name: str) -> dict[str, Any]:
    """Numbers as they are; words are keys of the config."""
    out = dict(table)
    for key, value in table.items():
        if isinstance(value, str):
            require(config.has(value), f"`{key}` in `{name}` names a key of config.json", shown(value), "Write the number.")
            out[key] = config.values[value]
    return out


def _projection(table: Mapping[str, Any], name: str, layer: int, heads: int, d_model: int, d_key: int) -> Projection:
    values = Settings(table, name)
    stored = values.text("stored", "out-in")
    require(stored in ("out-in", "in-out"), f"`stored` in `{name}` is out-in|in-out", shown(stored), "Choose one.")
    return Projection(
        columns=Columns(
            tensor=_named(values, "weight", layer),
            bias=_named(values, "bias", layer) if values.has("bias") else None,
            stored=cast(Literal["out-in", "in-out"], stored),
            inputs=d_model,
            first=values.whole("first", 0, least=0),
            stride=values.whole("stride", d_key),
            width=d_key,
            heads=heads,
        )
    )


def _norm(tables: Mapping[str, Mapping[str, Any]], table: str, name: str, layer: int, width: int) -> Norm | None:
    if table not in tables:
        return None
    values = Settings(tables[table], name)
    kind = values.text("kind", "rms")
    require(kind in ("rms", "layer"), f"`kind` of [{table}] in `{name}` is rms|layer", shown(kind), "Choose one.")
    return Norm(
        kind=cast(Literal["rms", "layer"], kind),
        width=width,
        eps=values.number("eps", 1e-6, least=0.0),
        gain=_named(values, "weight", layer) if values.has("weight") else None,
        bias=_named(values, "bias", layer) if values.has("bias") else None,
        offset=values.number("offset", 0.0),
    )


def _rotary(tables: Mapping[str, Mapping[str, Any]], name: str, d_key: int) -> Rotary | None:
    if "rotary" not in tables:
        return None
    values = Settings(tables["rotary"], name)
    start = values.whole("start", 0, least=0)
    width = values.whole("width", d_key - start)
    require(start + width <= d_key, f"`start + width <= d_key` of [rotary] in `{name}`", f"{start} + {width}", "Lower it.")
    pairs = values.text("pairs", "half")
    require(pairs in ("half", "interleaved"), f"`pairs` in `{name}` is half|interleaved", shown(pairs), "Choose one.")
    return rotary(
        Settings({}, name),
        width=width,
        start=start,
        pairs=cast(Literal["half", "interleaved"], pairs),
        theta=values.number("theta", 10000.0),
    )


def _named(values: Settings, key: str, layer: int) -> str:
    """A tensor's name with the layer's number in it."""
    return values.text(key).replace("{layer}", str(layer))
