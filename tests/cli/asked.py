"""What every test of the command line uses: a call with what it printed, and a runner that knows the verdicts."""

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keyspan.cli import main
from keyspan.evidence.record import Record, make_record
from keyspan.problems.dichotomies import Dichotomies, separable_fraction
from keyspan.problems.relations import Relations
from keyspan.problems.typed import TypedChannel, TypedRelations
from keyspan.specs import Channel, Run
from keyspan.theory.bounds import law
from keyspan.verdict import Status, Verdict

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = shutil.which("keyspan", path=str(Path(sys.executable).parent))
COMMAND = [SCRIPT] if SCRIPT else [sys.executable, "-c", "import sys; from keyspan.cli import main; sys.exit(main())"]
CELL = ("measure", "relations", "--items", "16", "--d-model", "16", "--heads", "1", "--steps", "300", "--jobs", "1")


@dataclass(frozen=True)
class Ran:
    """A finished call: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        data = json.loads(self.out)
        assert isinstance(data, dict)
        return data


def ask(*argv: str | Path) -> Ran:
    """`keyspan ARGV` in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(arg) for arg in argv])
    return Ran(code, out.getvalue(), err.getvalue())


def told(*argv: str | Path) -> dict[str, Any]:
    """The JSON of a call that must succeed."""
    ran = ask(*argv, "--json")
    assert ran.code == 0, ran
    return ran.json


def call(
    *argv: str | Path, command: Sequence[str] = COMMAND, env: dict[str, str] | None = None, cwd: Path | None = None
) -> Ran:
    """`keyspan ARGV` in a process of its own."""
    done = subprocess.run(
        [*command, *map(str, argv)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **(env or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def knows(run: Run) -> Verdict:
    """A verdict as a law would have it: relations need 1.2 times the law and two heads; labels follow Cover."""
    if isinstance(run.problem, Dichotomies):
        short = 1.0 if run.recipe.name == "separator" else 1.1  # type: ignore[attr-defined]
        share = (run.replicate % 1_000_000 * 37 % 100 + 0.5) / 100
        fits = share < separable_fraction(round(run.problem.examples * short), run.problem.dimension)
        return Verdict(status=Status.MEASURED, exact=fits, scores={"fitted": float(fits), "accuracy": 1.0, "margin": 0.0})
    assert isinstance(run.problem, Relations | TypedRelations) and isinstance(run.instrument, Channel | TypedChannel)
    need = 1.2 * law(run.problem.edges, run.problem.d_model)
    f1 = min(1.0, run.instrument.key_budget / need) if run.instrument.heads > 1 else 0.3
    scores = {"f1": f1, "f1_best": min(1.0, f1 + 0.05), "margin": f1 - 0.99, "threshold": 0.5, "precision": f1, "recall": f1}
    return Verdict(status=Status.MEASURED, exact=f1 == 1.0, scores=scores)


@dataclass
class Oracle:
    """A runner that answers at once. stop_after: Ctrl-C comes when so many members have finished"""

    verdict: Callable[[Run], Verdict] = knows
    stop_after: int | None = None
    asked: list[str] = field(default_factory=list)
    made: int = 0

    def __call__(self, *args: object) -> "Oracle":
        """Stands in for the class `LocalRunner`, too."""
        self.made += 1
        return self

    def run(
        self,
        runs: Sequence[Run],
        progress: Callable[[list[str], int, int], None] = lambda ids, step, steps: None,
        more: Callable[[], Sequence[Run]] = lambda: (),
    ) -> Iterator[Record]:
        for run in runs:
            if self.stop_after is not None and len(self.asked) >= self.stop_after:
                raise KeyboardInterrupt
            self.asked.append(run.run_id)
            progress([run.run_id], 1, 2)
            yield make_record(run, self.verdict(run), steps=7, seconds=0.01, device="cpu")

    def close(self) -> list[Record]:
        return []
