"""Member-steps per second of the channel fleet on one core, beside one model at a time in eager PyTorch.

    python benchmarks/channel_step.py [--seconds 1.0] [--device cpu] [--json]

The baseline is what anyone would write: one channel, autograd, torch.optim.Adam. Both do the same work on the same
instance with the same recipe, on one thread. The ceiling is the largest float32 matrix product's rate, measured in the
same run. What is printed is ratios; absolute times are this machine's.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch

from keyspan.lab import recipes
from keyspan.lab.fleet import make_bucket
from keyspan.lab.optimizers import make_optimizer
from keyspan.lab.pack import flops
from keyspan.problems import NoContents
from keyspan.problems.relations import Relations
from keyspan.specs import Channel, Run, Stopping

CASES = ((128, 32, 4, 8, 16), (128, 16, 8, 8, 8), (512, 64, 8, 8, 2), (1024, 128, 16, 16, 1))


def rate(step: Callable[[], object], seconds: float, device: str) -> float:
    """Calls per second: the median of five timings, after a warm-up."""

    def sync() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    step()
    sync()
    began = time.perf_counter()
    step()
    sync()
    count = max(1, int(seconds / 5 / max(time.perf_counter() - began, 1e-6)))
    rates = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(count):
            step()
        sync()
        rates.append(count / (time.perf_counter() - began))
    return sorted(rates)[2]


def ceiling(device: str, seconds: float) -> float:
    """FLOP per second of a 2048 x 2048 float32 matrix product."""
    a, b = torch.randn(2, 2048, 2048, device=device)
    return rate(lambda: a @ b, seconds, device) * 2 * 2048**3


def members(items: int, d_model: int, heads: int, d_key: int, count: int) -> list[Run]:
    """The same cell on several instances."""
    problem, channel = Relations(items=items, d_model=d_model), Channel(heads=heads, d_key=d_key)
    recipe = recipes.gradient()
    return [Run(problem=problem, replicate=i, instrument=channel, recipe=recipe, stopping=Stopping()) for i in range(count)]


def fleet_step(runs: list[Run], device: str) -> Callable[[], object]:
    """One step of a whole fleet."""
    where = torch.device(device)
    instances = [r.problem.instance(r.problem_id, NoContents()) for r in runs]  # type: ignore[attr-defined]
    bucket = make_bucket(runs, where)
    batch = bucket.load(runs[0].problem.batch(0, instances), runs)  # type: ignore[attr-defined]
    params = bucket.init(runs)
    optimizer = make_optimizer(recipes.gradient().phases[0])
    state = optimizer.start(params)

    def step() -> None:
        value, grads = bucket.value_and_grad(params, batch, value=False)
        optimizer.step(params, value, grads, state, 500)

    return step


def eager_step(run: Run, device: str) -> Callable[[], object]:
    """One step of one model, as anyone would write it."""
    instance = run.problem.instance(run.problem_id, NoContents())  # type: ignore[attr-defined]
    assert isinstance(run.instrument, Channel)
    x = torch.tensor(instance.embeddings, dtype=torch.float32, device=device)
    target = torch.zeros(len(x), len(x), device=device)
    edges = torch.tensor(instance.edges, device=device)
    target[edges[:, 0], edges[:, 1]] = 1.0
    shape = (run.instrument.heads, x.shape[1], run.instrument.d_key)
    w_query, w_key = (torch.nn.Parameter(torch.randn(shape, device=device) / run.instrument.d_key**0.5) for _ in range(2))
    bias = torch.nn.Parameter(torch.tensor(-3.0, device=device))
    adam = torch.optim.Adam([w_query, w_key, bias], lr=0.06)

    def step() -> None:
        adam.zero_grad()
        scores = ((x @ w_query) @ (x @ w_key).transpose(1, 2)).amax(0) + bias
        torch.nn.functional.binary_cross_entropy_with_logits(scores, target, reduction="sum").div(len(edges)).backward()
        adam.step()

    return step


def main() -> None:
    """Time every case and print ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    top = ceiling(args.device, args.seconds)
    results = []
    for items, d_model, heads, d_key, count in CASES:
        runs = members(items, d_model, heads, d_key, count)
        ours = rate(fleet_step(runs, args.device), args.seconds, args.device) * count
        theirs = rate(eager_step(runs[0], args.device), args.seconds, args.device)
        results.append(
            {
                "name": f"relations-{items}x{d_model}x{heads}x{d_key}-{args.device}",
                "ratio": ours / theirs,
                "of_ceiling": ours * flops(runs[0]) / top,
                "member_steps_per_second": ours,
                "baseline_member_steps_per_second": theirs,
            }
        )
    if args.json:
        print(json.dumps({"ceiling_flops": top, "threads": 1, "results": results}, indent=2))
        return
    print(f"ceiling: {top / 1e9:.1f} GFLOP/s in float32 on one thread of {args.device}")
    for r in results:
        print(f"{r['name']:32} {r['ratio']:6.2f}x the eager loop, {r['of_ceiling']:6.1%} of the ceiling")


if __name__ == "__main__":
    main()
