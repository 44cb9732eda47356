"""`python -m keyspan.bench.certify`: a certificate of many items on a device, with its seconds, FLOP and share of the ceiling.

It makes its own weights (`bench.construct`) and proves that they hold a permutation of all items. torch and NumPy only.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from keyspan.bench import construct
from keyspan.bench.ceilings import best_of, matmul, products_in
from keyspan.bench.construct import Made
from keyspan.errors import KeyspanError, require
from keyspan.lab.device import DeviceScores
from keyspan.lab.proof import Proof, prove

CEILING_SIZES = {"cpu": (512, 1024), "cuda": (4096, 8192, 16384)}


def parser() -> argparse.ArgumentParser:
    """The options."""
    out = argparse.ArgumentParser(prog="python -m keyspan.bench.certify", description="A certificate of many items.")
    out.add_argument("--items", type=int, default=4096)
    out.add_argument("--d-model", type=int, default=128)
    out.add_argument("--block", type=int, help="items of a head (default: what is expected to need least)")
    out.add_argument("--d-key", type=int, help="width of a head (default: likewise)")
    out.add_argument("--threshold", type=float, default=0.985, help="edges score 1")
    out.add_argument("--levels", default="bf16,fp32,fp64", help="precisions, cheap ones first, fp64 last")
    out.add_argument("--tile", type=int, default=8192, help="items along a tile's side")
    out.add_argument("--device", default="auto", help="auto, cpu or cuda")
    out.add_argument("--seed", type=int, default=0, help="of torch's generator on the device")
    out.add_argument("--locate", action="store_true", help="find the highest non-edge, too, not only that all are low enough")
    out.add_argument("--seconds", type=float, default=1.0, help="for the ceiling")
    return out


def run(args: argparse.Namespace, tell: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Make, prove, and say what it took."""
    device = ("cuda" if torch.cuda.is_available() else "cpu") if args.device == "auto" else args.device
    require(device in ("cpu", "cuda"), "`--device` in auto|cpu|cuda", device, "Choose one.")
    require(args.items >= 2, "`--items >= 2`", args.items, "A permutation needs two items.")
    levels = tuple(args.levels.split(","))
    chosen = construct.choose(args.items, args.d_model) if not (args.block and args.d_key) else (0, 0)
    block, d_key = args.block or chosen[0], args.d_key or chosen[1]
    tell(f"making {args.items} items, blocks of {block}, d_key {d_key}")
    made, making = _timed(lambda: construct.make(args.items, args.d_model, block, d_key, device, args.seed), device)
    tell(f"made in {making:.1f} s; proving")
    (scores, proof), proving = _timed(lambda: _prove(made, levels, args), device)
    tell(f"proved in {proving:.1f} s: exact {proof.exact}")
    with products_in(levels[0]):
        _, ceiling = best_of(lambda n: matmul(n, device, levels[0]), CEILING_SIZES[device], args.seconds)
    return _said(args, device, levels, made, scores, proof, (making, proving), max(ceiling.values()))


def _prove(made: Made, levels: tuple[str, ...], args: argparse.Namespace) -> tuple[DeviceScores, Proof]:
    scores = DeviceScores(made.x, made.w_query, made.w_key, made.edges, levels=levels, tile=args.tile)
    return scores, prove(scores, args.threshold, locate=args.locate)


def _timed(call: Callable[[], Any], device: str) -> tuple[Any, float]:
    began = time.perf_counter()
    value = call()
    if device == "cuda":
        torch.cuda.synchronize()
    return value, time.perf_counter() - began


def _said(
    args: argparse.Namespace,
    device: str,
    levels: tuple[str, ...],
    made: Made,
    scores: DeviceScores,
    proof: Proof,
    seconds: tuple[float, float],
    ceiling: float,
) -> dict[str, Any]:
    heads, _, d_key = made.w_query.shape
    flops = flops_of(proof, scores, args.items)
    memory = (
        torch.cuda.max_memory_allocated() if device == "cuda" else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    return {
        "items": args.items,
        "d_model": args.d_model,
        "heads": heads,
        "d_key": d_key,
        "key_budget": heads * d_key,
        "law": args.items * math.log(args.items) / args.d_model,
        "threshold": args.threshold,
        "proof": proof.to_json(),
        "device": device,
        "device_name": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "generator": f"torch {device}, seed {args.seed}",
        "levels": list(levels),
        "fused": scores.fused,
        "tile": args.tile,
        "seconds_making": seconds[0],
        "seconds": seconds[1],
        "flops": flops,
        "flops_per_second": flops / seconds[1],
        "ceiling_flops_per_second": ceiling,
        "of_ceiling": flops / seconds[1] / ceiling,
        "peak_bytes": memory,
    }


def flops_of(proof: Proof, scores: DeviceScores, items: int) -> float:
    """Of all products: queries and keys formed (twice for queries), edges, and every tile at the levels it went through."""
    d_budget = scores.heads * scores.d_key
    forming = 3 * 2.0 * items * scores.d_model * d_budget + 2 * 2.0 * len(scores.edges) * scores.d_model * d_budget
    per_tile = 2.0 * items**2 * d_budget / max(1, sum(proof.tiles.values()))
    levels = [proof.tiles[level] for level in scores.levels]
    passes = sum(count * (place + 1) for place, count in enumerate(levels))  # a tile settled late has failed before
    return forming + per_tile * passes


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 proved exact, 1 not, 2 bad input."""
    try:
        data = run(parser().parse_args(argv), tell=lambda text: print(text, file=sys.stderr))
    except KeyspanError as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(data, indent=2, allow_nan=False))
    return 0 if data["proof"]["exact"] else 1


if __name__ == "__main__":
    sys.exit(main())
