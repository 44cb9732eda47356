"""The auditor: do these weights hold what they should, exactly, and how much may they be damaged?

    python examples/auditor.py [WEIGHTS.safetensors]

A certificate looks at every ordered pair of items, not at a sample: exact on all items means exact in every context.
Without a file, a small channel is trained first and its weights are kept. Then the weights are rounded to fewer and
fewer bits until the certificate is lost.
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import keyspan
from keyspan.files.weights import read_weights, write_weights


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


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else train(scratch), scratch)
