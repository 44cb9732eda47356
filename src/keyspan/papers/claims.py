"""Claims as data (`claims.toml`), the statistics they are tested on, and what a figure's measurements say of them.

A claim holds, fails, or cannot be said: where too few cells or seeds were measured, or where a member failed. Every
statistic is a function of what one figure measured, and knows no threshold.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

from keyspan.errors import BadInput
from keyspan.papers.figures import Found, Paper, Statistic

SEEDS = 3  # below, a point is no evidence: the tier `smoke` shows that everything works, and decides nothing

TESTS: dict[str, Callable[[float, Any], bool]] = {
    ">=": lambda value, threshold: value >= threshold,
    "<=": lambda value, threshold: value <= threshold,
    ">": lambda value, threshold: value > threshold,
    "between": lambda value, threshold: threshold[0] <= value <= threshold[1],
}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of a paper and how it is tested. figures: which of them can decide it    expected: by the paper

    ours: no claim of the paper's, but a question that its theory lets one ask
    """

    id: str
    paper: str
    figures: tuple[str, ...]
    claim: str
    statistic: str
    test: str
    threshold: float | tuple[float, float]
    expected: str
    ours: bool = False


@dataclass(frozen=True)
class Judged:
    """A claim with the statistic measured. holds: None where it cannot be said, then `reason` says why"""

    claim: Claim
    figure: str
    tier: str
    measured: float | None
    holds: bool | None
    reason: str | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        about = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self.claim).items() if k != "figures"}
        found = {"figure": self.figure, "tier": self.tier, "measured": self.measured, "holds": self.holds}
        return about | found | {"reason": self.reason}


@cache
def _all() -> tuple[Claim, ...]:
    return tuple(read(resources.files("keyspan.papers").joinpath("claims.toml").read_text("utf-8")))


def load(paper: Paper) -> tuple[Claim, ...]:
    """The claims about a paper's figures, checked: known tests, statistics that the paper has, ids that are unique."""
    mine = tuple(claim for claim in _all() if claim.paper == paper.name)
    check_statistics(mine, paper.statistics)
    return mine


def check_statistics(claims: Iterable[Claim], statistics: Mapping[str, Statistic]) -> None:
    """Refuse a claim that is tested on nothing known."""
    for claim in claims:
        if claim.statistic not in statistics:
            raise BadInput(
                f"The claim `{claim.id}` must have a known statistic, but got {claim.statistic!r}. Correct the file."
            )


def read(text: str) -> list[Claim]:
    """Claims from the text of a TOML file."""
    try:
        rows = tomllib.loads(text).get("claims", [])
        claims = [_claim(row) for row in rows]
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise BadInput(
            f"Claims must be tables [[claims]] with the fields of a claim, but got {error}. Correct the file."
        ) from None
    for claim in claims:
        pair = isinstance(claim.threshold, tuple)
        if claim.test not in TESTS or pair != (claim.test == "between"):
            raise BadInput(
                f"The claim `{claim.id}` must have a known test with its threshold, but got "
                f"{claim.test!r} {claim.threshold!r}. Correct the file."
            )
    if len({claim.id for claim in claims}) < len(claims):
        raise BadInput("The ids of claims must be unique, but got one twice. Correct the file.")
    return claims


def _claim(row: dict[str, Any]) -> Claim:
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    return Claim(**fields)


def judge(found: Found, paper: Paper) -> list[Judged]:
    """Every claim that this figure can decide."""
    return [_judge(claim, found, paper) for claim in load(paper) if found.figure.name in claim.figures]


def _judge(claim: Claim, found: Found, paper: Paper) -> Judged:
    value = None if found.failed_cells else paper.statistics[claim.statistic](found)
    if found.failed_cells:
        reason: str | None = f"{len(found.failed_cells)} cells have members without a number"
    elif value is None:
        reason = "too few cells of this tier decide it"
    elif found.seeds < SEEDS:
        reason = f"{found.seeds} seeds a point are too few to decide it; take a larger tier"
    else:
        reason = None
    holds = None if value is None or reason else TESTS[claim.test](value, claim.threshold)
    return Judged(claim, found.figure.name, found.tier, value, holds, reason)
