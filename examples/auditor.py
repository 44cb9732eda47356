"""The auditor: do these weights hold what they should, exactly, and what does a whole model have, use and know?

    python examples/auditor.py [WEIGHTS.safetensors | CHECKPOINT-FOLDER]

A certificate looks at every ordered pair of items, not at a sample: exact on all items means exact in every context.
Without a file, a small channel is trained first and its weights are kept. Then the weights are rounded to fewer and
fewer bits until the certificate is lost. At last the channel is hidden in a small model with random weights, and an audit
of that checkpoint finds it. With a folder, that is audited.
"""

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import keyspan
from keyspan.files import safetensors
from keyspan.files.weights import ChannelWeights, read_weights, write_weights
from keyspan.seeds import Stream


def train(folder: Path) -> Path:
    """Weights of a channel that was trained to hold a permutation of 16 items. returns: their file"""
    lab = keyspan.Lab(store=f"sqlite:///{folder / 'lab.db'}", weights=folder / "weights", jobs=1)
    cell = keyspan.Relations(items=16, d_model=16)
    found = keyspan.measure(cell, lab=lab, heads=[2], key_budgets=[8], seeds=1, steps=600).to_dict()
    return folder / "weights" / f"{found['run_ids'][0]}.safetensors"


def rounded(weights: NDArray[np.float64], bits: int) -> NDArray[np.float64]:
    """The weights on an even grid of so many bits."""
    step = 2 * np.abs(weights).max() / (2**bits - 1)
    return np.asarray(np.round(weights / step) * step)


def main(path: Path, folder: Path) -> None:
    """Certify the file, then rounded copies of it."""
    whole = keyspan.certify(path).to_dict()
    size = f"{whole['heads']} heads x d_key {whole['d_key']}, {whole['edges']} edges on {whole['items']} items"
    print(f"{path.name}: {size}")
    print(f"  exact {whole['exact']}, F1 {whole['f1']:.3f}, threshold {whole['threshold']:.3f}, margin {whole['margin']:.3f}")
    edge, rival = whole["min_edge"], whole["max_nonedge"]
    print(f"  weakest edge      {edge['source']:3} -> {edge['target']:3} scores {edge['score']:.3f}")
    print(f"  strongest other   {rival['source']:3} -> {rival['target']:3} scores {rival['score']:.3f}")
    weights = read_weights(path)
    for bits in (8, 6, 5, 4, 3, 2):
        copy = replace(weights, w_query=rounded(weights.w_query, bits), w_key=rounded(weights.w_key, bits))
        write_weights(folder / "rounded.safetensors", copy)
        damaged = keyspan.certify(folder / "rounded.safetensors").to_dict()
        print(f"  at {bits} bits: exact {damaged['exact']!s:5}  F1 {damaged['f1']:.3f}  margin {damaged['margin']:.3f}")
    if weights.embeddings is not None and weights.edges is not None:
        model = hide(weights, folder / "model")
        pairs = folder / "pairs.csv"
        pairs.write_text("".join(f"{source},{target}\n" for source, target in weights.edges))
        audit(model, pairs)


def hide(weights: ChannelWeights, folder: Path) -> Path:
    """A checkpoint of two layers with random weights, but that the last heads of the second are the channel."""
    assert weights.embeddings is not None
    heads, d_model, d_key = weights.heads + 2, weights.d_model, weights.d_key + weights.d_key % 2
    draw = Stream("auditor", "checkpoint")
    tensors = {"model.embed_tokens.weight": weights.embeddings}
    for layer in range(2):
        tensors[f"model.layers.{layer}.input_layernorm.weight"] = np.ones(d_model)
        for side, own in (("q", weights.w_query), ("k", weights.w_key)):
            stored = 0.1 * draw.normal((heads, d_key, d_model))
            if layer == 1:
                stored[2:] = 0.0
                stored[2:, : weights.d_key] = own.transpose(0, 2, 1)
            tensors[f"model.layers.{layer}.self_attn.{side}_proj.weight"] = stored.reshape(-1, d_model)
    config = {"model_type": "llama", "hidden_size": d_model, "num_hidden_layers": 2, "num_attention_heads": heads}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config | {"head_dim": d_key}))
    safetensors.write(folder / "model.safetensors", tensors)
    return folder


def audit(folder: Path, pairs: Path | None = None) -> None:
    """What the attention of a checkpoint has and uses, and which heads know the pairs."""
    found = keyspan.audit(folder, relations=pairs).to_dict()
    print(f"{folder.name}: a checkpoint of the family {found['family']}")
    for layer in found["layers"]:
        print(f"  layer {layer['layer']} has a key budget of {layer['key_budget']} and uses {layer['used']:.1f} of it")
    if found["relations"] is not None:
        for layer, head in found["relations"]["found"]:
            f1 = found["layers"][layer]["relations"]["heads"][head]["f1"]
            print(f"  the pairs are known to layer {layer} head {head}: F1 {f1:.2f}, where chance stays below "
                  f"{found['relations']['bar']:.2f}")  # fmt: skip
        best = found["layers"][found["relations"]["best_layer"]]
        print(f"  the heads of layer {best['layer']} together: F1 {best['relations']['maximum']['f1']:.2f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        given = Path(sys.argv[1]) if len(sys.argv) > 1 else train(scratch)
        if given.is_dir():
            audit(given)
        else:
            main(given, scratch)
