"""A record: what was asked (the run), what was judged (the verdict), and how it came about (the provenance)."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import keyspan
from keyspan.errors import BadInput
from keyspan.specs import Run, canonical, digest
from keyspan.verdict import Verdict

RECORD_SCHEMA = 1
ANSWER_SCHEMA = 1


def head() -> dict[str, Any]:
    """What every JSON answer begins with: the version of its fields, and of this package."""
    return {"schema": ANSWER_SCHEMA, "keyspan": keyspan.__version__}


@dataclass(frozen=True, kw_only=True)
class Record:
    """One finished member.

    run_id, problem_id: identities (docs/identity.md)    run: the spec as JSON    verdict: what the judge said
    provenance: facts that do not enter an identity: steps, seconds, device, kernel, versions, digests, host, date
    """

    run_id: str
    problem_id: str
    run: Mapping[str, Any]
    verdict: Verdict
    provenance: Mapping[str, Any] = field(default_factory=dict)
    schema: int = RECORD_SCHEMA

    @property
    def kind(self) -> str:
        """The family of the problem: `relations`, `dichotomies` ..."""
        return str(self.run["problem"]["family"])

    @property
    def content(self) -> str:
        """Hash of everything but the provenance: two copies of a run that agree have one content."""
        return digest({"run": self.run, "verdict": self.verdict.to_json()}, "c")

    def to_json(self) -> dict[str, Any]:
        """The record as JSON data."""
        return {
            "schema": self.schema,
            "run_id": self.run_id,
            "problem_id": self.problem_id,
            "run": dict(self.run),
            "verdict": self.verdict.to_json(),
            "provenance": dict(self.provenance),
        }

    def to_line(self) -> str:
        """The record as one line of canonical JSON, for JSONL files."""
        return canonical(self.to_json())

    @classmethod
    def from_json(cls, data: Any) -> Record:
        """Read what `to_json` wrote; anything else is refused with the reason."""
        if not isinstance(data, Mapping):
            raise BadInput(f"A record must be a JSON object, but got {str(data)[:60]!r}. Export it again.")
        if data.get("schema") != RECORD_SCHEMA:
            raise BadInput(
                f"A record must have schema {RECORD_SCHEMA}, but got {data.get('schema')!r}. Use the keyspan that wrote it."
            )
        try:
            return cls(
                run_id=str(data["run_id"]),
                problem_id=str(data["problem_id"]),
                run=dict(data["run"]),
                verdict=Verdict.from_json(data["verdict"]),
                provenance=dict(data.get("provenance", {})),
            )
        except (KeyError, TypeError, ValueError) as error:
            got = f"none of name {error}" if isinstance(error, KeyError) else str(error)
            raise BadInput(f"A record must have run_id, problem_id, run and verdict, but got {got}. Export it again.") from None

    @classmethod
    def from_line(cls, line: str) -> Record:
        """Read one line of a JSONL file."""
        try:
            data = json.loads(line)
        except (TypeError, ValueError, RecursionError):
            raise BadInput(f"A line of records must be JSON, but got {line!r:.60}. Export it again.") from None
        return cls.from_json(data)


def make_record(run: Run, verdict: Verdict, **provenance: Any) -> Record:
    """A record of this run with the facts of this machine added."""
    facts = {
        "keyspan": keyspan.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return Record(
        run_id=run.run_id,
        problem_id=run.problem_id,
        run=run.to_json(),
        verdict=verdict,
        provenance=facts | provenance,
    )
