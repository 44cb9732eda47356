"""The command line: one thin file per verb, each a few lines over the package."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `keyspan`. Returns the exit code: 0 done, 1 failed, 2 bad input, 3 some failed, 130 interrupted."""
    try:
        from keyspan.cli.app import run

        return run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:  # while modules are loaded; later ones are `run`'s
        print("keyspan: interrupted.", file=sys.stderr)
        return 130
