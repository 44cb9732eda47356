"""Small checkpoints for tests: random ones of Llama's and GPT-2's kind, to put something into."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.files import safetensors
from keyspan.seeds import Stream

Tensors = dict[str, NDArray[Any]]
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "vocab_size": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 128,
}
GPT2: dict[str, Any] = {"model_type": "gpt2", "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 16, "vocab_size": 50}


def llama(seed: int = 0, **changes: Any) -> tuple[dict[str, Any], Tensors]:
    """Settings and random tensors of a model of Llama's kind."""
    config = LLAMA | changes
    d, heads, kv, k = (config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"))
    draw = Stream(f"made-{seed}", "llama")
    tensors = {"model.embed_tokens.weight": draw.normal((config["vocab_size"], d))}
    for layer in range(config["num_hidden_layers"]):
        here = f"model.layers.{layer}"
        tensors[f"{here}.input_layernorm.weight"] = 1 + 0.2 * draw.normal((d,))
        tensors[f"{here}.self_attn.q_proj.weight"] = draw.normal((heads * k, d)) / np.sqrt(d)
        tensors[f"{here}.self_attn.k_proj.weight"] = draw.normal((kv * k, d)) / np.sqrt(d)
    return config, {name: tensor.astype(np.float32) for name, tensor in tensors.items()}


def gpt2(seed: int = 0, **changes: Any) -> tuple[dict[str, Any], Tensors]:
    """Settings and random tensors of a model of GPT-2's kind."""
    config = GPT2 | changes
    d, draw = config["n_embd"], Stream(f"made-{seed}", "gpt2")
    tensors = {"wte.weight": draw.normal((config["vocab_size"], d)), "wpe.weight": draw.normal((config["n_positions"], d))}
    for layer in range(config["n_layer"]):
        tensors[f"h.{layer}.ln_1.weight"] = 1 + 0.2 * draw.normal((d,))
        tensors[f"h.{layer}.ln_1.bias"] = 0.2 * draw.normal((d,))
        tensors[f"h.{layer}.attn.c_attn.weight"] = draw.normal((d, 3 * d)) / np.sqrt(d)
        tensors[f"h.{layer}.attn.c_attn.bias"] = 0.2 * draw.normal((3 * d,))
    return config, {name: tensor.astype(np.float32) for name, tensor in tensors.items()}


def save(folder: Path, config: dict[str, Any], tensors: Tensors, shards: int = 1) -> Path:
    """Write a checkpoint, in one file or in shards with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        safetensors.write(folder / "model.safetensors", tensors)
        return folder
    where: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        names = sorted(tensors)[shard::shards]
        safetensors.write(folder / file, {name: tensors[name] for name in names})
        where |= dict.fromkeys(names, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return folder
