"""The ledger: every claim of the papers, measured or not, holds or not, recomputed from a store without training.

    figures        the claim's figure asks its questions of the store alone, at the largest tier that the store answers in
                   full; what it came to decides the claim as in `reproduce`
    theory         the claim's check is computed
    otherwise      unmeasured, with the reason and the proxy that comes nearest

A proxy, an unconverged member, or too few seeds never decide a claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from keyspan.display import Displayed
from keyspan.errors import BadInput, shown
from keyspan.evidence.bits import BitsRow, bits_table
from keyspan.evidence.record import head
from keyspan.evidence.store import Store, open_store
from keyspan.papers import claims
from keyspan.papers.claims import Claim, Judged
from keyspan.papers.figures import TIERS, Found, Paper
from keyspan.papers.reproduce import PAPERS
from keyspan.runners.lab import default_store
from keyspan.runners.recall import Recall

MEASURING = "short"  # the tier of the command that measures a claim: it is the least that can decide one
STATUS = {True: "holds", False: "fails", None: "unmeasured"}


@dataclass(frozen=True)
class Entry:
    """A claim and what is known of it. judged: None where nothing could be computed    reason: why it is unmeasured"""

    claim: Claim
    judged: Judged | None
    reason: str | None
    run_ids: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """holds, fails or unmeasured"""
        return STATUS[self.judged.holds if self.judged else None]

    @property
    def command(self) -> str | None:
        """What measures it; None where nothing does."""
        if self.claim.theory:
            return f"keyspan ledger --claim {self.claim.id}"
        return (
            f"keyspan reproduce {self.claim.paper}:{self.claim.figures[0]} --tier {MEASURING}" if self.claim.figures else None
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON data."""
        found = self.judged
        said: dict[str, Any] = {name: getattr(found, name, None) for name in ("measured", "low", "high", "tier")}
        about = {k: v for k, v in self.claim.about().items() if k not in ("why", "theory", "figures")}
        return about | {
            **said,
            "status": self.status,
            "reason": self.reason,
            "figure": found.figure if found else None,
            "decided_by": "theory" if self.claim.theory else "figures" if self.claim.figures else None,
            "figures": [f"{self.claim.paper}:{name}" for name in self.claim.figures],
            "command": self.command,
            "run_ids": list(self.run_ids),
        }


@dataclass(frozen=True)
class Ledger(Displayed):
    """The claims asked for, in the order of the file. bits: what the store's members hold, in one currency"""

    entries: tuple[Entry, ...]
    store: str
    bits: tuple[BitsRow, ...] = ()

    def counts(self) -> dict[str, int]:
        """How many hold, fail, or are unmeasured."""
        return {status: sum(e.status == status for e in self.entries) for status in STATUS.values()}

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan ledger`."""
        run_ids = sorted({run_id for entry in self.entries for run_id in entry.run_ids})
        told = {"store": self.store, "counts": self.counts(), "claims": [entry.to_dict() for entry in self.entries]}
        return head() | told | {"bits": [row.to_dict() for row in self.bits], "run_ids": run_ids, "trained_now": 0}


def ledger(*, store: str | None = None, paper: str | None = None, claim: str | None = None, seed: int = 0) -> Ledger:
    """Every claim of the papers with what a store says of it. Nothing is trained.

    store: URL (default: KEYSPAN_STORE, else a file in the current folder)    paper, claim: only these; the bits are those
    of all of the store, and left out where one claim is asked for
    seed: the set of instances that the figures are asked for
    """
    chosen = choose(paper, claim)
    with open_store(store or default_store(), read_only=True, missing_ok=True) as opened:
        book = Book(opened, seed)
        entries = tuple(book.entry(one) for one in chosen)
        return Ledger(entries, opened.where, () if claim else tuple(bits_table(opened.records())))


def choose(paper: str | None, claim: str | None) -> list[Claim]:
    """The claims of a paper, or one, or all; `BadInput` with those there are."""
    known = claims.every()
    papers, ids = sorted({c.paper for c in known}), [c.id for c in known]
    if paper is not None and paper not in papers:
        raise BadInput(f"`--paper` must be one of {', '.join(papers)}, but got {shown(paper)}. Choose one.")
    if claim is not None and claim not in ids:
        near = get_close_matches(str(claim), ids, n=3, cutoff=0.0)
        fix = f"Near it are {', '.join(near)}; `keyspan ledger` lists all."
        raise BadInput(f"`--claim` must be the id of a claim, but got {shown(claim)}. {fix}")
    return [c for c in known if paper in (None, c.paper) and claim in (None, c.id)]


class Book:
    """What a store says of figures and claims, each figure looked at once."""

    def __init__(self, store: Store, seed: int = 0) -> None:
        self.recall, self.seed = Recall(store), seed
        self.papers = {name: make() for name, make in PAPERS.items()}
        self._found: dict[tuple[str, str], Found | None] = {}

    def entry(self, claim: Claim) -> Entry:
        """What is known of a claim."""
        paper = self.papers.get(claim.paper)
        if claim.why:
            return Entry(claim, None, claim.why)
        if paper is None or not claims.decidable(claim, paper):
            return Entry(claim, None, "its figure is not built yet")
        if claim.theory:
            return Entry(claim, claims.compute(claim, paper), None)
        return self._measured(claim, paper)

    def _measured(self, claim: Claim, paper: Paper) -> Entry:
        """By the first of its figures that decides it; else what the first one that was measured says."""
        first: Entry | None = None
        for name in claim.figures:
            found = self.found(paper, name)
            if found is None:
                continue
            judged = claims.judge_one(claim, found, paper)
            entry = Entry(claim, judged, judged.reason, tuple(sorted(found.run_ids)))
            if judged.holds is not None:
                return entry
            first = first or entry
        return first or Entry(claim, None, "the store does not answer its figure at any tier")

    def found(self, paper: Paper, name: str) -> Found | None:
        """A figure at the largest tier that the store answers in full."""
        key = (paper.name, name)
        if key not in self._found:
            self._found[key] = self._look(paper, name)
        return self._found[key]

    def _look(self, paper: Paper, name: str) -> Found | None:
        figure = paper.figures.get(name)
        for tier in reversed(TIERS) if figure else ():
            assert figure is not None
            if tier not in figure.tiers:
                continue
            asked = paper.questions(figure, tier, self.seed)
            if not asked:  # what asks nothing of a store is computed by `reproduce`: that may take long
                continue
            outcomes = self.recall.outcomes(asked)
            if outcomes is not None:
                return paper.measured(figure, tier, asked, outcomes)
        return None
