"""`python -m keyspan.bench.tune`: the fused step with other block sizes and shares, timed and held to the ones that are set.

    python -m keyspan.bench.tune 1024x128x16x16 --arithmetic bf16 --members 16 64

Block sizes are set in the code and never chosen while members train: another size sums in another order, and a member's bits
must not depend on what a timing said. So this prints what each would gain, with how far it is from the one that is set, and
whoever reads it changes `kernels.channel.Shape` for everybody.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from keyspan.attention.instrument import Params
from keyspan.attention.kernels.channel import FusedChannelBucket, Shape
from keyspan.bench.cases import Case, case_of
from keyspan.bench.steps import instance_of, sync_of
from keyspan.bench.timing import Step, calls_in, rate
from keyspan.errors import KeyspanError
from keyspan.lab.crew import recipe_of
from keyspan.lab.worker import pick_device

ROW = ((64, 32, 4, 2), (64, 32, 4, 1), (64, 32, 4, 3), (64, 64, 8, 2), (128, 32, 8, 2), (32, 64, 4, 2), (128, 64, 8, 2))
BACK = ((64, 64, 4, 2), (64, 64, 4, 3), (128, 64, 8, 2), (64, 128, 8, 2), (128, 32, 4, 2), (64, 32, 4, 3), (128, 128, 8, 2))
SHARES = (512 << 20, 128 << 20, 2 << 30)  # bytes of slopes and owners of one launch


def candidates() -> Iterator[tuple[str, Shape, int]]:
    """What is set, then one thing changed at a time: its name, the block sizes, the share."""
    set_ = Shape()
    yield "set", set_, SHARES[0]
    for row in ROW[1:]:
        yield f"row {','.join(map(str, row))}", replace(set_, row=row), SHARES[0]
    for back in BACK[1:]:
        yield f"back {','.join(map(str, back))}", replace(set_, back=back), SHARES[0]
    for share in SHARES[1:]:
        yield f"share {share >> 20} MiB", set_, share


def tune(case: Case, device: str, arithmetic: str, seconds: float, only: int | None = None) -> Iterator[dict[str, Any]]:
    """Every candidate: seconds a member and step (of the gradient, without the update), over what is set, and its error.

    error: of the gradients, relative to those of what is set; a candidate that cannot be launched has a `note` instead
    """
    runs = case.runs(arithmetic=arithmetic)
    recipe, where = recipe_of(runs[0]), torch.device(device)
    data = runs[0].problem.batch(0, [instance_of(run) for run in runs])  # type: ignore[attr-defined]
    first: tuple[float, Params] | None = None
    for name, shape, share in list(candidates())[:only]:
        about: dict[str, Any] = {"name": case.name(device), "arithmetic": arithmetic, "members": case.members}
        about |= {"candidate": name, **asdict(shape)}
        bucket = FusedChannelBucket(runs, recipe.loss, 1.0, recipe.bias, where)
        try:
            took, grads = _timed(bucket, data, runs, shape, share, seconds)
        except Exception as error:  # too many registers, too much shared memory: Triton says so in its own ways
            yield about | {"note": f"{type(error).__name__}: {error!s:.120}"}
            continue
        first = first or (took, grads)
        distance = max(float((grads[k] - g).norm() / g.norm().clamp(min=1e-30)) for k, g in first[1].items())
        yield about | {"seconds": took / case.members, "over_set": took / first[0], "error": distance}


def _timed(
    bucket: FusedChannelBucket, data: Any, runs: Sequence[Any], shape: Shape, share: int, seconds: float
) -> tuple[float, Params]:
    """Seconds of one gradient of all members, and the gradient."""
    bucket.shape = shape
    bucket.share = max(1, bucket.share * share // SHARES[0])
    batch, params = bucket.load(data, list(runs)), bucket.init(runs)
    _, grads = bucket.value_and_grad(params, batch, value=False)
    kept = {k: g.clone() for k, g in grads.items()}
    step = Step(lambda: bucket.value_and_grad(params, batch, value=False), sync_of(bucket.device.type))
    return 1.0 / rate(step, calls_in(step, seconds)), kept


def main(argv: Sequence[str] | None = None) -> int:
    """One JSON line a candidate. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m keyspan.bench.tune", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("cases", nargs="+", metavar="1024x128x16x16", help="items, d_model, heads, d_key")
    parser.add_argument("--device", default="auto", help="auto, cpu (needs Triton's interpreter) or cuda")
    parser.add_argument("--arithmetic", default="bf16", help="bf16, tf32, fp32")
    parser.add_argument("--members", type=int, nargs="+", default=[64], help="in a launch; several are tried one after another")
    parser.add_argument("--seconds", type=float, default=0.3, help="of one timing")
    parser.add_argument("--only", type=int, help="so many candidates")
    args = parser.parse_args(argv)
    try:
        device = pick_device(args.device)
        for text in args.cases:
            for members in args.members:
                for row in tune(case_of(text, device, members), device, args.arithmetic, args.seconds, args.only):
                    print(json.dumps(row), flush=True)
    except KeyspanError as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
