"""`python -m keyspan.bench.audit`: how long an audit takes and how much memory, on a checkpoint of a real model's shape.

The checkpoint is made up: queries, keys, gains and token vectors are there, in bfloat16, and all else is holes in sparse
files. The audit runs in a process of its own, whose peak is the kernel's own count. NumPy only.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keyspan.seeds import Stream

REPEATED = 1_048_573  # numbers that are drawn; a prime, so that rows of a matrix do not repeat


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a model of Llama's family."""

    layers: int
    d_model: int
    heads: int
    kv_heads: int
    d_key: int
    hidden: int
    vocabulary: int
    shards: int

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...], bool]]:
        """Name, shape, and whether an audit reads it."""
        d, inner = self.d_model, self.heads * self.d_key
        yield "model.embed_tokens.weight", (self.vocabulary, d), True
        for layer in range(self.layers):
            here = f"model.layers.{layer}"
            yield f"{here}.input_layernorm.weight", (d,), True
            yield f"{here}.self_attn.q_proj.weight", (inner, d), True
            yield f"{here}.self_attn.k_proj.weight", (self.kv_heads * self.d_key, d), True
            yield f"{here}.self_attn.v_proj.weight", (self.kv_heads * self.d_key, d), False
            yield f"{here}.self_attn.o_proj.weight", (d, inner), False
            for name in ("gate", "up"):
                yield f"{here}.mlp.{name}_proj.weight", (self.hidden, d), False
            yield f"{here}.mlp.down_proj.weight", (d, self.hidden), False
        yield "lm_head.weight", (self.vocabulary, d), False


SHAPES = {
    "llama-7b": Shape(
        layers=32, d_model=4096, heads=32, kv_heads=32, d_key=128, hidden=11008, vocabulary=32000, shards=3
    ),
    "mistral-7b": Shape(layers=32, d_model=4096, heads=32, kv_heads=8, d_key=128, hidden=14336, vocabulary=32000, shards=3),
    "tenth": Shape(layers=4, d_model=1024, heads=8, kv_heads=8, d_key=128, hidden=2752, vocabulary=8000, shards=2),
}  # fmt: skip


def make(folder: Path, shape: Shape) -> int:
    """Write a sharded checkpoint of this shape. returns: bytes that its files seem to have"""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "llama", "hidden_size": shape.d_model, "num_hidden_layers": shape.layers}
    config |= {"num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.d_key}
    config |= {"intermediate_size": shape.hidden, "vocab_size": shape.vocabulary, "max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 1e-5, "rope_theta": 10000.0}))
    numbers = Stream("audit-bench", "weights").normal((REPEATED,)).astype(np.float32)
    halves = (numbers.view(np.uint32) >> 16).astype("<u2")  # bfloat16, cut
    tensors, size = list(shape.tensors()), 0
    where: dict[str, str] = {}
    per = -(-len(tensors) // shape.shards)
    for shard in range(shape.shards):
        file = f"model-{shard + 1:05d}-of-{shape.shards:05d}.safetensors"
        mine = tensors[shard * per : (shard + 1) * per]
        size += _write(folder / file, mine, halves)
        where |= dict.fromkeys((name for name, _, _ in mine), file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return size


def _write(path: Path, tensors: Sequence[tuple[str, tuple[int, ...], bool]], halves: Any) -> int:
    """One shard: the header, what is read, and holes."""
    at, begins, head = 0, [], {}
    for name, shape, _ in tensors:
        begins.append(at)
        at += 2 * int(np.prod(shape))
        head[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begins[-1], at]}
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as handle:
        handle.write(len(text).to_bytes(8, "little") + text)
        for number, (_, shape, read) in enumerate(tensors):
            count = int(np.prod(shape))
            handle.seek(8 + len(text) + begins[number])
            for begin in range(0, count if read else 0, REPEATED):
                handle.write(np.roll(halves, 7919 * number)[: min(REPEATED, count - begin)].tobytes())
        handle.truncate(8 + len(text) + at)
    return path.stat().st_size


def peak() -> int:
    """The most memory that this process held, in bytes: its own, not what it was started from."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _child(folder: str) -> dict[str, Any]:
    """Audit, and say what it took."""
    from keyspan.advice.audit import audit

    began = time.monotonic()
    found = audit(folder, told=lambda done, of: print(f"layer {done} of {of}", file=sys.stderr, flush=True))
    summary = found.to_dict()["summary"]
    return {"seconds": round(time.monotonic() - began, 1), "peak_bytes": peak(), "key_budget": summary["key_budget"],
            "used": summary["used"], "heads_after_merging": summary["heads_after_merging"]}  # fmt: skip


def run(shape: Shape, folder: Path) -> dict[str, Any]:
    """Make a checkpoint, audit it in a process of its own."""
    size = make(folder, shape)
    command = [sys.executable, "-m", "keyspan.bench.audit", "--in", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return {**asdict(shape), "file_bytes": size, "cores": len(os.sched_getaffinity(0)), **json.loads(done.stdout)}


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    options = argparse.ArgumentParser(prog="python -m keyspan.bench.audit", description="Seconds and memory of an audit.")
    options.add_argument("--shape", default="tenth", choices=SHAPES)
    options.add_argument("--in", dest="folder", help="audit this folder here and now; nothing is made")
    args = options.parse_args(argv)
    if args.folder:
        found = _child(args.folder)
    else:
        with tempfile.TemporaryDirectory() as folder:
            found = {"shape": args.shape, **run(SHAPES[args.shape], Path(folder))}
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
