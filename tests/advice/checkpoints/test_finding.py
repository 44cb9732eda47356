"""Families by their config, mappings by hand, and everything that does not fit refused in one line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.advice.made import Tensors, gpt2, llama, save
from tests.files.refusals import label, refused

from keyspan.advice.checkpoints.finding import matches, plan
from keyspan.advice.checkpoints.weights import read_layer, token_vectors
from keyspan.files.checkpoints import open_checkpoint
from keyspan.seeds import Stream

AS_LLAMA = """
[model]
layers = "num_hidden_layers"
heads = 4
kv_heads = 2
d_model = "hidden_size"
d_key = 8
positions = 128
[query]
weight = "model.layers.{layer}.self_attn.q_proj.weight"
[key]
weight = "model.layers.{layer}.self_attn.k_proj.weight"
[embeddings]
weight = "model.embed_tokens.weight"
[norm]
kind = "rms"
weight = "model.layers.{layer}.input_layernorm.weight"
eps = 1e-6
[rotary]
theta = 10000.0
"""
AS_GPT2 = """
[model]
layers = 2
heads = 3
d_model = 24
[query]
weight = "h.{layer}.attn.c_attn.weight"
bias = "h.{layer}.attn.c_attn.bias"
stored = "in-out"
[key]
weight = "h.{layer}.attn.c_attn.weight"
bias = "h.{layer}.attn.c_attn.bias"
stored = "in-out"
first = 24
[embeddings]
weight = "wte.weight"
positions = "wpe.weight"
[norm]
kind = "layer"
weight = "h.{layer}.ln_1.weight"
bias = "h.{layer}.ln_1.bias"
eps = 1e-5
"""


def same_scores(one: Path, other: Path, mapping: Path | None) -> None:
    """Both folders score alike, layer by layer."""
    first, second = open_checkpoint(one), open_checkpoint(other)
    ours, theirs = plan(first), plan(second, mapping)
    assert len(ours.layers) == len(theirs.layers)
    states = Stream("states", "x").normal((7, ours.d_model))
    for a, b in zip(ours.layers, theirs.layers, strict=True):
        assert np.allclose(read_layer(first, a).scores(states), read_layer(second, b).scores(states), atol=1e-12)


@pytest.mark.parametrize("made, text", [(llama(num_key_value_heads=2), AS_LLAMA), (gpt2(), AS_GPT2)], ids=["llama", "gpt2"])
def test_a_mapping_says_the_same_as_the_family(tmp_path: Path, made: tuple[dict[str, Any], Tensors], text: str) -> None:
    known = save(tmp_path / "known", *made)
    stranger = save(tmp_path / "stranger", made[0] | {"model_type": "stranger"}, made[1], shards=3)
    (tmp_path / "mapping.toml").write_text(text)
    refused(lambda: plan(open_checkpoint(stranger)), "model_type", "'stranger'", "--mapping")
    same_scores(known, stranger, tmp_path / "mapping.toml")


@pytest.mark.parametrize("prefix", ["", "transformer.", "anything.at.all."])
def test_names_may_have_something_before_them(tmp_path: Path, prefix: str) -> None:
    config, tensors = gpt2()
    plain = save(tmp_path / "plain", config, tensors)
    same_scores(plain, save(tmp_path / "other", config, {prefix + name: t for name, t in tensors.items()}), None)


def test_a_model_of_pictures_keeps_its_language_model_inside(tmp_path: Path) -> None:
    config, tensors = llama(num_key_value_heads=2)
    plain = save(tmp_path / "plain", config, tensors)
    inner = {name.replace("model.", "language_model.model.", 1): tensor for name, tensor in tensors.items()}
    tower = {"vision_tower.encoder.layers.0.self_attn.q_proj.weight": np.ones((3, 3), dtype=np.float32)}
    outer = {"model_type": "llava", "hidden_size": 7, "text_config": config}
    same_scores(plain, save(tmp_path / "outer", outer, inner | tower), None)


def test_gemma_3_has_defaults_where_its_config_is_short(tmp_path: Path) -> None:
    d = 24
    names = {"q_proj": (8 * 256, d), "k_proj": (4 * 256, d), "q_norm": (256,), "k_norm": (256,)}
    tensors = {f"language_model.model.layers.0.self_attn.{name}.weight": np.ones(shape) for name, shape in names.items()}
    tensors |= {"language_model.model.embed_tokens.weight": np.ones((5, d))}
    tensors |= {"language_model.model.layers.0.input_layernorm.weight": np.ones(d)}
    inner = {"model_type": "gemma3_text", "hidden_size": d, "num_hidden_layers": 1, "sliding_window": 512}
    folder = save(tmp_path, {"model_type": "gemma3", "text_config": inner}, tensors)
    (layer,) = plan(open_checkpoint(folder)).layers
    assert (layer.heads, layer.kv_heads, layer.d_key, layer.window, layer.scale) == (8, 4, 256, 512, 1 / 16)
    assert layer.rotary is not None and layer.rotary.theta == 10000.0 and layer.norm is not None and layer.norm.offset == 1


def test_every_match_is_told(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(save(tmp_path, *gpt2()))
    told = [match.to_dict() for match in matches(checkpoint, plan(checkpoint))]
    assert told[0] == {"layer": None, "role": "token vectors", "tensor": "wte.weight", "shape": [50, 24], "dtype": "F32",
                       "file": "model.safetensors", "columns": ""}  # fmt: skip
    key = next(row for row in told if row["role"] == "key" and row["layer"] == 1)
    assert key["tensor"] == "h.1.attn.c_attn.weight" and key["columns"] == "3 heads of 8 from 24, 8 apart, in-out"
    roles = {row["role"] for row in told}
    assert roles == {"token vectors", "positions", "query", "query, bias", "key", "key, bias", "norm of the input, gain",
                     "norm of the input, bias"}  # fmt: skip
    assert {row["tensor"] for row in told} == set(checkpoint.files)


Q = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    "changes, mentions",
    [
        ({"model_type": None}, ("model_type", "''", "--mapping")),
        ({"model_type": 3}, ("model_type", "a text", "got 3")),
        ({"model_type": "gpt2"}, ("h.0.attn.c_attn.weight", "--mapping")),
        ({"text_config": 3}, ("text_config", "a table")),
        ({"hidden_size": None}, ("hidden_size", "none")),
        ({"hidden_size": 3.5}, ("hidden_size", "got 3.5")),
        ({"hidden_size": -32}, ("hidden_size", "-32")),
        ({"hidden_size": True}, ("hidden_size", "True")),
        ({"hidden_size": 16}, ("model.embed_tokens.weight", "(any, 16)", "(64, 32)")),
        ({"num_attention_heads": 0}, ("num_attention_heads", "got 0")),
        ({"num_attention_heads": 8}, (Q, "(64, 32)", "(32, 32)")),
        ({"num_attention_heads": 10**30}, ("num_attention_heads",)),
        ({"num_key_value_heads": 3}, ("divide", "3 for 4")),
        ({"head_dim": 10}, (Q, "(40, 32)")),
        ({"head_dim": "8"}, ("head_dim", "'8'")),
        ({"num_hidden_layers": 4}, ("layer 3", "model.layers.3.self_attn.q_proj.weight")),
        ({"num_hidden_layers": 10**9}, ("num_hidden_layers", "4096")),
        ({"rms_norm_eps": -1}, ("rms_norm_eps", "at least 0")),
        ({"rms_norm_eps": "small"}, ("rms_norm_eps", "'small'")),
        ({"layer_types": ["a", 3], "sliding_window": 3}, ("layer_types", "texts")),
        ({"sliding_window": -3}, ("sliding_window",)),
    ],
    ids=label,
)
def test_configs_that_do_not_fit_are_refused(tmp_path: Path, changes: dict[str, Any], mentions: tuple[str, ...]) -> None:
    config, tensors = llama()
    checkpoint = open_checkpoint(save(tmp_path, config | changes, tensors))
    refused(lambda: plan(checkpoint), *mentions)


@pytest.mark.parametrize(
    "change, mentions",
    [
        (("heads = 4", "heads = 5"), ("kv_heads", "divides", "2 and 5")),
        (("heads = 4", 'heads = "n_head"'), ("heads", "names a key of config.json", "'n_head'")),
        (("heads = 4", ""), ("heads", "none")),
        (("d_key = 8", "d_key = 64"), ("self_attn.q_proj.weight", "256 are needed")),
        (("[rotary]", "[rotery]"), ("Tables", "'rotery'", "rotary")),
        (("theta", "tetha"), ("[rotary]", "'tetha'")),
        (('kind = "rms"', 'kind = "batch"'), ("kind", "rms|layer", "'batch'")),
        (("[rotary]", '[rotary]\npairs = "odd"'), ("pairs", "'odd'")),
        (("[rotary]", "[rotary]\nstart = 4\nwidth = 6"), ("start + width", "4 + 6")),
        (("[key]", '[key]\nstored = "sideways"'), ("stored", "'sideways'")),
        (("[model]", "[model"), ("mapping.toml", "TOML")),
        (("[embeddings]", "[query_norm]"), ("table [embeddings]",)),
        (("q_proj", "q_prof"), ("query", "layer 0", "q_prof")),
        (("eps = 1e-6", "eps = nan"), ("eps", "finite")),
    ],
    ids=label,
)
def test_mappings_that_do_not_fit_are_refused(tmp_path: Path, change: tuple[str, str], mentions: tuple[str, ...]) -> None:
    config, tensors = llama(num_key_value_heads=2)
    folder = save(tmp_path / "model", config | {"model_type": "stranger"}, tensors)
    assert change[0] in AS_LLAMA
    (tmp_path / "mapping.toml").write_text(AS_LLAMA.replace(*change, 1))
    refused(lambda: plan(open_checkpoint(folder), tmp_path / "mapping.toml"), *mentions)


def bert() -> tuple[dict[str, Any], Tensors]:
    """Settings and random tensors of a model of BERT's kind, with two layers."""
    draw, tensors = Stream("made", "bert"), {}
    shapes = {"word_embeddings": (20, 8), "position_embeddings": (6, 8), "token_type_embeddings": (2, 8)}
    for name, shape in shapes.items():
        tensors[f"embeddings.{name}.weight"] = draw.normal(shape)
    norms = ["embeddings.LayerNorm", *(f"encoder.layer.{layer}.output.LayerNorm" for layer in range(2))]
    maps = [f"encoder.layer.{layer}.attention.self.{side}" for layer in range(2) for side in ("query", "key")]
    tensors |= {f"{name}.{part}": draw.normal((8,)) for name in norms for part in ("weight", "bias")}
    tensors |= {f"{name}.{part}": draw.normal((8, 8)[: 2 - (part == "bias")]) for name in maps for part in ("weight", "bias")}
    config = {"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2}
    return config, {name: tensor.astype(np.float32) for name, tensor in tensors.items()}


def test_old_names_of_gains(tmp_path: Path) -> None:
    """The first files of BERT call them gamma and beta."""
    config, tensors = bert()
    old = {name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
           for name, tensor in tensors.items()}  # fmt: skip
    assert old.keys() != tensors.keys()
    ours = [open_checkpoint(save(tmp_path / name, config, t)) for name, t in (("new", tensors), ("old", old))]
    first, second = (token_vectors(one, plan(one).embeddings, range(20)) for one in ours)
    assert np.array_equal(first, second)
    for number in range(2):
        here, there = (read_layer(one, plan(one).layers[number]) for one in ours)
        assert np.array_equal(here.inputs(first), there.inputs(first))
        assert np.array_equal(here.folded("query", 1), there.folded("query", 1))
        assert np.array_equal(here.folded("key", 1), there.folded("key", 1))


def test_relative_positions_of_bert_are_refused(tmp_path: Path) -> None:
    config = {"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "position_embedding_type": "relative_key"}
    tensors = {"encoder.layer.0.attention.self.query.weight": np.ones((8, 8))}
    checkpoint = open_checkpoint(save(tmp_path, json.loads(json.dumps(config)), tensors))
    refused(lambda: plan(checkpoint), "absolute", "'relative_key'")
