"""`python -m keyspan.bench`: the bench where there is no command line and no store; torch and NumPy only."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from keyspan.bench.show import lines
from keyspan.bench.suite import bench, dry, plan
from keyspan.errors import KeyspanError


def parser() -> argparse.ArgumentParser:
    """The options, as those of `keyspan bench`."""
    out = argparse.ArgumentParser(prog="python -m keyspan.bench", description="Side-by-side speeds, as ratios.")
    out.add_argument("--quick", action="store_true", help="about a minute on two cores")
    out.add_argument("--device", default="auto", help="auto, cpu or cuda")
    out.add_argument("--case", action="append", default=[], metavar="128x32x4x8", help="items, d_model, heads, d_key")
    out.add_argument("--seconds", type=float, help="of one measurement")
    out.add_argument("--rounds", type=int, help="how often all sides are measured in turns")
    out.add_argument("--workers", type=int, help="processes of the fleet's side on a CPU")
    out.add_argument("--members", type=int, help="in a fleet")
    out.add_argument("--no-growth", action="store_true", help="leave the growth curves out")
    out.add_argument("--seed", type=int, default=0)
    out.add_argument("--arithmetic", default="fp32", help="fp32, fp64; on a GPU also tf32, bf16")
    out.add_argument("--json", action="store_true", help="one JSON document on standard output")
    out.add_argument("--dry-run", action="store_true", help="say what would be timed")
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 done, 1 the sides do not agree, 2 bad input."""
    args = parser().parse_args(argv)
    try:
        wanted = plan(
            args.case,
            args.device,
            quick=args.quick,
            seconds=args.seconds,
            rounds=args.rounds,
            workers=args.workers,
            members=args.members,
            growth=not args.no_growth,
            seed=args.seed,
            arithmetic=args.arithmetic,
        )
        if args.dry_run:
            print(json.dumps(dry(wanted), indent=2))
            return 0
        data = bench(wanted, tell=lambda text: print(text, file=sys.stderr))
    except KeyspanError as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(data, indent=2, allow_nan=False) if args.json else "\n".join(lines(data)))
    return 0 if data["agrees"] else 1


if __name__ == "__main__":
    sys.exit(main())
