"""`python -m keyspan.bench.worker`: a fleet in a process of its own, timed when the other end says so.

One JSON line in (the case), then a line per measurement, which names what to time: `fleet` (member-steps a second),
`matmul` or `onednn` (FLOP a second). One JSON line out for each. One thread, as the local runner's workers have it: what
all workers together reach at the same time is the ceiling of just this way of using the machine.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from keyspan.bench.cases import Case
from keyspan.bench.ceilings import SIZE_OF_ONE, matmul, onednn
from keyspan.bench.steps import fleet_step
from keyspan.bench.timing import Step, calls_in, timed_both


def main() -> int:
    """Serve one case until the input ends."""
    torch.set_num_threads(1)
    given: dict[str, Any] = json.loads(sys.stdin.readline())
    case = Case(**given["case"])
    flop = 2.0 * SIZE_OF_ONE**3
    sides: dict[str, tuple[Step | None, float, float]] = {  # what to call, what a call is worth, for how long
        "fleet": (
            fleet_step(case.runs(given["seed"], first=given["first"], arithmetic=given["arithmetic"]), "cpu"),
            case.members,
            given["seconds"],
        ),
        "matmul": (matmul(SIZE_OF_ONE, "cpu", given["arithmetic"]), flop, given["seconds"] / 3),
        "onednn": (onednn(SIZE_OF_ONE) if given["arithmetic"] == "fp32" else None, flop, given["seconds"] / 3),
    }
    print(json.dumps({"ready": True}), flush=True)
    counts: dict[str, int] = {}
    for line in sys.stdin:
        step, worth, seconds = sides[line.strip()]
        if step is None:
            print(json.dumps({"rate": 0.0, "cpu_rate": 0.0}), flush=True)
            continue
        if line not in counts:  # found while all workers run, as the measurement does
            counts[line] = calls_in(step, seconds)
        by_wall, by_cpu = timed_both(step, counts[line])
        print(json.dumps({"rate": by_wall * worth, "cpu_rate": by_cpu * worth}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
