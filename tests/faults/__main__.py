"""`make faults`: what can go wrong, at full size, with dated logs. Stopped, the same command goes on where it was.

python -m tests.faults --out benchmarks/results/faults                      everything
python -m tests.faults kills --kills 200 --minutes 14                       one part, for so long
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults import drivers, events, fuzz, kills, log, memory, picture
from tests.faults.targets import TARGETS

SEED = 20261119


def say(text: str) -> None:
    """How far it is."""
    print(text, file=sys.stderr, flush=True)


def kill_many(out: Path, wanted: int, until: float) -> bool:
    """Kill sweeps until so many kills stand in the log. returns: whether all do"""
    done = log.read(out / "kills.csv")
    number = max((int(row["episode"]) for row in done), default=-1) + 1
    left = wanted - len(done)
    with tempfile.TemporaryDirectory(prefix="keyspan-kills-", ignore_cleanup_errors=True) as name:
        calm = kills.undisturbed(Path(name)) if left > 0 else None
        while calm and left > 0 and time.monotonic() < until:
            found = list(kills.episode(number, Path(name), calm, random.Random(SEED + number), 1 + number % 2))
            log.write(out / "kills.csv", found)  # of an episode that ended as it should
            left -= len(found)
            say(f"episode {number}: {len(found)} kills, {max(0, left)} to go")
            number += 1
    picture.draw(out / "kills.csv", out / "kills.svg")
    return left <= 0


def fuzz_all(out: Path, wanted: int, until: float) -> bool:
    """Put so many inputs to the readers, all targets alike. returns: whether that is done"""
    share = -(-wanted // len(TARGETS))
    done = {row["target"]: int(row["inputs"]) for row in log.read(out / "fuzz.csv")}
    for number, target in enumerate(TARGETS):
        if done.get(target, 0) < share and time.monotonic() < until:
            found = fuzz.fuzz(target, share, SEED + number)
            log.write(out / "fuzz.csv", [found])
            say(f"{target}: {found.inputs} inputs, {found.seconds:.0f} s, {found.outcome}")
            if found.outcome != "ok":
                raise SystemExit(1)
            done[target] = found.inputs
    return all(done.get(target, 0) >= share for target in TARGETS)


def events_all(out: Path, until: float) -> bool:
    """Everything else that can befall a sweep, once. returns: whether that is done"""
    done = {row["event"] for row in log.read(out / "events.csv")}
    left = [name for name in events.EVENTS if name not in done]
    with tempfile.TemporaryDirectory(prefix="keyspan-events-", ignore_cleanup_errors=True) as name:
        calm = kills.undisturbed(Path(name)) if left else None
        while calm and left and time.monotonic() < until:
            found = events.happen(left.pop(0), Path(name), calm)
            log.write(out / "events.csv", [found])
            say(f"{found.event}: {found.seen}")
    return not left


def share_all(out: Path, cells: int) -> bool:
    """Four drivers on one PostgreSQL store, each killed once."""
    if not log.read(out / "drivers.csv"):
        with tempfile.TemporaryDirectory(prefix="keyspan-drivers-", ignore_cleanup_errors=True) as name:
            found = drivers.share(Path(name), 4, cells, random.Random(SEED))
        log.write(out / "drivers.csv", [found])
        say(str(found))
        if found.lost or not found.answers_equal:
            raise SystemExit(1)
    return True


def memory_of(out: Path, runs: int) -> bool:
    """Peak memory of what reads a store of so many runs."""
    if not log.read(out / "memory.csv"):
        with tempfile.TemporaryDirectory(prefix="keyspan-memory-") as name:
            found = memory.peaks(Path(name), runs)
        log.write(out / "memory.csv", found)
        for peak in found:
            say(str(peak))
    return True


def main() -> int:
    """Entry point. returns: 0 when all is done, 3 when the time was up"""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("part", nargs="?", choices=["all", "kills", "fuzz", "events", "drivers", "memory"], default="all")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/faults"))
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--cells", type=int, default=5000, help="of four drivers on PostgreSQL")
    parser.add_argument("--runs", type=int, default=100_000, help="in the store whose readers' memory is measured")
    args = parser.parse_args()
    until = time.monotonic() + 60 * args.minutes
    whole = True
    if args.part in ("all", "kills"):
        whole &= kill_many(args.out, args.kills, until)
    if args.part in ("all", "fuzz"):
        whole &= fuzz_all(args.out, args.inputs, until)
    if args.part in ("all", "events"):
        whole &= events_all(args.out, until)
    if args.part in ("all", "drivers"):
        whole &= share_all(args.out, args.cells)
    if args.part in ("all", "memory"):
        whole &= memory_of(args.out, args.runs)
    return 0 if whole else 3


if __name__ == "__main__":
    sys.exit(main())
