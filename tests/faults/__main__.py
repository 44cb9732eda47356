"""`make faults`: everything that can go wrong, at full size, with a dated log. Stopped, the same command goes on.

    python -m tests.faults kills --kills 200 --out benchmarks/results/2026-11-19-faults --minutes 14
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults import kills

SEED = 20261119


def kill_many(wanted: int, out: Path, until: float) -> int:
    """Kill sweeps until so many kills stand in the log. returns: how many are missing"""
    log = out / "kills.csv"
    done: list[dict[str, str]] = []
    if log.exists():
        with open(log, newline="") as handle:
            done = list(csv.DictReader(handle))
    number = max((int(row["episode"]) for row in done), default=-1) + 1
    left = wanted - len(done)
    with tempfile.TemporaryDirectory(prefix="keyspan-kills-", ignore_cleanup_errors=True) as name:
        calm = kills.undisturbed(Path(name)) if left > 0 else None
        while calm and left > 0 and time.monotonic() < until:
            found = list(kills.episode(number, Path(name), calm, random.Random(SEED + number)))
            kills.write(log, found)  # of an episode that ended as it should, or not at all
            left -= len(found)
            print(f"episode {number}: {len(found)} kills, {max(0, left)} to go", file=sys.stderr)
            number += 1
    return max(0, left)


def main() -> int:
    """Entry point. returns: 0 when nothing is left to do, 3 when the time was up"""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("part", choices=["kills"])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/faults"))
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--kills", type=int, default=200)
    args = parser.parse_args()
    until = time.monotonic() + 60 * args.minutes
    return 3 if kill_many(args.kills, args.out, until) else 0


if __name__ == "__main__":
    sys.exit(main())
