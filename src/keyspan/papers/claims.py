"""Claims as data (`claims.toml`), the statistics they are tested on, and what a figure's measurements say of them.

A claim holds, fails, or cannot be said: where too few cells or seeds were measured, or where a member failed. Every
statistic is a function of what one figure measured, or of theory alone, and knows no threshold.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any

from keyspan.errors import BadInput
from keyspan.papers.figures import Check, Found, Paper

SEEDS = 3  # below, a point is no evidence: the tier `smoke` shows that everything works, and decides nothing

TESTS: dict[str, Callable[[float, Any], bool]] = {
    ">=": lambda value, threshold: value >= threshold,
    "<=": lambda value, threshold: value <= threshold,
    ">": lambda value, threshold: value > threshold,
    "between": lambda value, threshold: threshold[0] <= value <= threshold[1],
}


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of a paper and how it is tested.

    source: where the paper says it    figures: which of them can decide it, the best first    theory: decided by
    computing alone    why: what is missing to decide it here, then `proxy` comes nearest    interval: of the statistic
    power: what the check can tell apart    expected: by the paper    unit: what it counts its evidence in, `seeds` of a point
    or, where the interval is over them, `cells`
    """

    id: str
    paper: str
    source: str
    claim: str
    statistic: str
    test: str
    threshold: float | tuple[float, float]
    interval: str
    power: str
    expected: str
    figures: tuple[str, ...] = ()
    theory: bool = False
    unit: str = "seeds"
    why: str | None = None
    proxy: str | None = None

    def holds(self, value: float) -> bool:
        """Whether the statistic meets the test."""
        return TESTS[self.test](value, self.threshold)

    def about(self) -> dict[str, Any]:
        """The claim as JSON data."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


@dataclass(frozen=True)
class Judged:
    """A claim with the statistic measured. holds: None where it cannot be said, then `reason` says why

    low, high: the statistic's 95% interval, None where it has none
    """

    claim: Claim
    figure: str
    tier: str
    measured: float | None
    low: float | None
    high: float | None
    holds: bool | None
    reason: str | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        about = {k: v for k, v in self.claim.about().items() if k not in ("figures", "theory", "why", "proxy")}
        found = {"figure": self.figure, "tier": self.tier, "measured": self.measured, "low": self.low, "high": self.high}
        return about | found | {"holds": self.holds, "reason": self.reason}


@cache
def every() -> tuple[Claim, ...]:
    """All claims of all papers, in the order of the file."""
    return tuple(read(resources.files("keyspan.papers").joinpath("claims.toml").read_text("utf-8")))


def load(paper: Paper) -> tuple[Claim, ...]:
    """The claims of a paper that its figures or checks can decide, refused if they are tested on nothing known."""
    mine = tuple(claim for claim in every() if claim.paper == paper.name and decidable(claim, paper))
    check_statistics((c for c in mine if not c.theory), paper.statistics)
    check_statistics((c for c in mine if c.theory), paper.checks)
    return mine


def decidable(claim: Claim, paper: Paper) -> bool:
    """Whether the paper, as far as it is built, has what decides the claim."""
    return claim.theory or any(figure in paper.figures for figure in claim.figures)


def check_statistics(claims: Iterable[Claim], statistics: Mapping[str, Any]) -> None:
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
        _check(claim)
    if len({claim.id for claim in claims}) < len(claims):
        raise BadInput("The ids of claims must be unique, but got one twice. Correct the file.")
    return claims


def _check(claim: Claim) -> None:
    pair = isinstance(claim.threshold, tuple)
    if claim.test not in TESTS or pair != (claim.test == "between"):
        raise BadInput(
            f"The claim `{claim.id}` must have a known test with its threshold, but got "
            f"{claim.test!r} {claim.threshold!r}. Correct the file."
        )
    if claim.unit not in ("seeds", "cells"):
        raise BadInput(f"The claim `{claim.id}` must count seeds or cells, but got {claim.unit!r}. Correct the file.")
    ways = [name for name in ("figures", "theory", "why") if getattr(claim, name)]
    if len(ways) != 1:
        raise BadInput(
            f"The claim `{claim.id}` must have one of `figures`, `theory` and `why`, but got {' and '.join(ways) or 'none'}. "
            "Correct the file."
        )


def _claim(row: dict[str, Any]) -> Claim:
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
    return Claim(**fields)


def judge(found: Found, paper: Paper) -> list[Judged]:
    """Every claim that this figure can decide."""
    return [judge_one(claim, found, paper) for claim in load(paper) if found.figure.name in claim.figures]


def judge_one(claim: Claim, found: Found, paper: Paper) -> Judged:
    """What a figure, as measured, says of a claim."""
    value = None if found.failed_cells else paper.statistics[claim.statistic](found)
    if found.failed_cells:
        reason: str | None = f"{len(found.failed_cells)} cells have members without a number"
    elif value is None:
        reason = "too few cells of this tier decide it"
    elif found.seeds < SEEDS and claim.unit == "seeds":
        reason = f"{found.seeds} seeds a point are too few to decide it; take a larger tier"
    else:
        reason = None
    interval = paper.intervals.get(claim.statistic)
    low, high = (None, None) if value is None or interval is None else interval(found) or (None, None)
    holds = None if value is None or reason else claim.holds(value)
    return Judged(claim, found.figure.name, found.tier, value, low, high, holds, reason)


def compute(claim: Claim, paper: Paper) -> Judged:
    """What theory alone says of a claim. What is computed has no interval but itself."""
    value = _computed(paper.checks[claim.statistic])
    return Judged(claim, "theory", "", value, value, value, claim.holds(value), None)


@cache
def _computed(check: Check) -> float:
    """What a check comes to: always the same, so once a process will do."""
    return float(check())
