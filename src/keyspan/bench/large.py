"""`python -m keyspan.bench.large`: one member at a time, as large as it gets: memory and seconds a step, no baseline.

    python -m keyspan.bench.large 4096x256x16x32 32768x256x16x32 --arithmetic bf16 --device cuda

What grows how: weights with d_model * D_K, queries and keys with items * D_K, edges as one bit a pair, slopes and owners
with a stripe of rows (a fixed number of bytes at the most); nothing with items^2 * heads.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Sequence
from typing import Any

import torch

from keyspan.bench.cases import Case, case_of
from keyspan.bench.steps import instance_of, sync_of
from keyspan.bench.timing import Step, rate
from keyspan.errors import KeyspanError
from keyspan.lab.crew import Crew
from keyspan.lab.fleet import one_thread
from keyspan.lab.host import Control, Member
from keyspan.lab.worker import pick_device


def large(case: Case, device: str, arithmetic: str, steps: int) -> dict[str, Any]:
    """Train one member for some steps. returns: seconds a step, peak bytes, the loss before and after"""
    run = case.run(arithmetic=arithmetic)
    gpu = device == "cuda"
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    queue = torch.cuda.Stream() if gpu else None
    with one_thread():
        crew = Crew([Member(run, instance_of(run))], 0, torch.device(device), Control(), queue)

        def step() -> None:
            with crew.stream():
                crew.advance()

        first = _loss(crew)
        step()
        per_second = rate(Step(step, sync_of(device)), steps)
        last = _loss(crew)
    peak = torch.cuda.max_memory_allocated() if gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "name": case.name(device),
        "arithmetic": arithmetic,
        "steps": steps,
        "seconds_per_step": 1 / per_second,
        "peak_bytes": peak,
        "bytes_of_all_scores": 4 * case.heads * case.items**2,
        "loss": [first, last],
        "flops_per_second": case.nominal_flops * per_second,
    }


def _loss(crew: Crew) -> float:
    with crew.stream():
        value, _ = crew.bucket.value_and_grad(crew.params, crew.batch)
        assert value is not None
        return float(value[0])


def main(argv: Sequence[str] | None = None) -> int:
    """One JSON line a case. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m keyspan.bench.large", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="+", metavar="4096x256x16x32", help="items, d_model, heads, d_key")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--arithmetic", default="fp32", help="fp32, fp64; on a GPU also tf32, bf16")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args(argv)
    try:
        device = pick_device(args.device)
        for text in args.cases:
            print(json.dumps(large(case_of(text, device, 1), device, args.arithmetic, max(1, args.steps))), flush=True)
    except KeyspanError as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
