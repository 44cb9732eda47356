"""What the judge says of one member. Plain data: no torch, no NumPy, JSON in and out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from keyspan.errors import BadInput, shown


class Status(StrEnum):
    """How a measurement ended. Only `measured` carries numbers: a failure is never a number."""

    MEASURED = "measured"
    UNCONVERGED = "unconverged"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out_of_memory"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"  # whoever trained it broke off, three times


def _is_finite(value: float) -> bool:
    """Whether a number is one that a float can hold; Python's integers may be larger."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One member judged.

    `scores` are the numbers a question may ask for by name (relations: `f1`, `f1_best`, `margin`, `threshold` ...;
    dichotomies: `fitted`, `accuracy`, `margin`), `witness` the pairs or bounds that prove them, `exact` whether the
    problem is held without a single error at the member's own threshold.
    """

    status: Status
    exact: bool | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    witness: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "status", Status(self.status))
        except ValueError:
            raise BadInput(f"A status must be one of {'|'.join(Status)}, but got {shown(self.status)}.") from None
        if not isinstance(self.scores, Mapping) or not isinstance(self.witness, Mapping):
            raise BadInput(f"`scores` and `witness` must be objects, but got {shown(self.scores)} and {shown(self.witness)}.")
        if self.exact is not None and not isinstance(self.exact, bool):
            raise BadInput(f"`exact` must be true, false or null, but got {shown(self.exact)}.")
        if self.status is Status.MEASURED:
            if self.exact is None or not self.scores:
                raise BadInput("A measured verdict must have scores and say whether it is exact, but got neither.")
        elif self.exact is not None or self.scores or self.witness:
            got = {**self.scores, **self.witness}
            raise BadInput(f"A verdict with status `{self.status}` must carry no number, but got {got}.")
        for name, value in self.scores.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
                raise BadInput(f"The score `{name}` must be a finite number, but got {shown(value)}.")
        object.__setattr__(self, "scores", {str(name): float(value) for name, value in self.scores.items()})

    @property
    def measured(self) -> bool:
        """Whether there are numbers to read."""
        return self.status is Status.MEASURED

    def score(self, name: str) -> float:
        """A score by name; `exact` counts as 0 or 1."""
        if not self.measured:
            raise BadInput(f"A score must come from a measured verdict, but this one is `{self.status}`.")
        if name != "exact" and name not in self.scores:
            raise BadInput(f"A score must be one of {', '.join(('exact', *self.scores))}, but got {shown(name)}.")
        return float(bool(self.exact)) if name == "exact" else self.scores[name]

    def to_json(self) -> dict[str, Any]:
        """The verdict as JSON data; `from_json` reads it back."""
        data: dict[str, Any] = {"status": str(self.status)}
        if self.measured:
            data |= {"exact": self.exact, "scores": dict(self.scores), "witness": dict(self.witness)}
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Verdict:
        """Read what `to_json` wrote."""
        return cls(
            status=data["status"],
            exact=data.get("exact"),
            scores=data.get("scores", {}),
            witness=data.get("witness", {}),
        )
