"""The ledger: every claim has its check, a store decides what it can, and nothing is trained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.asked import Oracle, knows
from tests.files.refusals import refused

from keyspan.evidence.store import Store, open_store
from keyspan.papers import adler, claims, reproduce
from keyspan.papers.figures import Figure
from keyspan.papers.ledger import ledger
from keyspan.papers.sweeps import Sweep
from keyspan.runners import driver
from keyspan.specs import Run
from keyspan.verdict import Status, Verdict

CELLS = {"smoke": ((16, 8), (16, 16)), "short": ((16, 8), (16, 16), (32, 8), (32, 16), (32, 32), (64, 16))}
SEEDS = {"smoke": 2, "short": 3}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tiers of a few small cells; there is no tier `paper`."""
    real = {name: figure for name, figure in adler.figures().items() if not figure.group}

    def sweep(full: Sweep, tier: str) -> Sweep:
        some = CELLS[tier][:1] if full.curves else CELLS[tier]
        return Sweep(cells=some, seeds=SEEDS[tier], targets=full.targets, curves=full.curves[::3])

    def figures() -> dict[str, Figure]:
        return {n: Figure(n, f.title, {t: sweep(f.tiers[t], t) for t in CELLS}) for n, f in real.items()}

    monkeypatch.setattr("keyspan.papers.ledger.PAPERS", {"adler": lambda: replace(adler.paper(), figures=figures())})
    monkeypatch.setattr(reproduce, "PAPERS", {"adler": lambda: replace(adler.paper(), figures=figures())})


@contextmanager
def filled(tmp_path: Path, *tiers: str, oracle: Oracle | None = None) -> Iterator[tuple[str, Store]]:
    """A store in which the questions of these tiers are answered."""
    url = f"sqlite:///{tmp_path / 'filled.db'}"
    with open_store(url) as store:
        for tier in tiers:
            driver.answer(reproduce.plan("adler", tier).questions, store, oracle or Oracle())
        yield url, store


# --- the file ------------------------------------------------------------------------------------------------------


def test_every_claim_has_its_check() -> None:
    for claim in claims.every():
        assert claim.claim.endswith(".") and claim.power.endswith(".") and claim.interval and claim.source, claim.id
        assert claim.expected in ("holds", "fails")
        assert claim.id.startswith(f"{claim.paper}-") or claim.id in ("dana-accuracy-bound", "dana-published")
        assert claim.why is None or not claim.why.endswith(".")


@pytest.mark.parametrize("paper, last", [("adler", 8), ("mahdavi", 5), ("harma", 6)])
def test_every_claim_of_the_papers_is_there(paper: str, last: int) -> None:
    """As docs/papers.md counts them."""
    said = " ".join(c.source for c in claims.every() if c.paper == paper)
    numbers = {int(n) for part in re.findall(r"claims? (\d+(?: and \d+)?)", said) for n in part.split(" and ")}
    assert numbers == set(range(1, last + 1))


# --- a store decides -----------------------------------------------------------------------------------------------


def test_an_empty_store_decides_what_theory_does(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'none' / 'store.db'}"
    kept = ledger(store=url)
    decided = {e.claim.id for e in kept.entries if e.status != "unmeasured"}
    assert decided == {c.id for c in claims.every() if c.theory} and kept.counts()["fails"] == 0
    assert not (tmp_path / "none").exists()
    data = kept.to_dict()
    assert (data["run_ids"], data["trained_now"], data["schema"]) == ([], 0, 1)
    for claim in data["claims"]:
        assert {"id", "paper", "claim", "expected", "measured", "low", "high", "status"} <= set(claim)
        assert claim["status"] in ("holds", "fails", "unmeasured")
        assert (claim["reason"] is None) == (claim["status"] != "unmeasured")
        assert (claim["command"] is None) == (claim["decided_by"] is None)


def test_it_says_what_reproduce_says(small: None, tmp_path: Path) -> None:
    with filled(tmp_path, "smoke", "short") as (url, store):
        known = store.count()
        chosen = reproduce.plan("adler", "short")
        found = reproduce.carry_out(chosen, lambda asked: driver.answer(asked, store, Oracle()))
        said = {c["id"]: c for c in reproduce.Reproduced(chosen, found, {}, {}).to_dict()["claims"]}
        data = ledger(store=url).to_dict()
        assert store.count() == known
    here = {f"adler:{name}" for name, figure in adler.figures().items() if not figure.group}
    mine = {c["id"]: c for c in data["claims"] if set(c["figures"]) & here}
    assert set(mine) == set(said) and data["trained_now"] == 0
    for name, claim in said.items():
        expected = {True: "holds", False: "fails", None: "unmeasured"}[claim["holds"]]
        keys = ("measured", "low", "high", "reason", "tier")
        assert (mine[name]["status"], *(mine[name][k] for k in keys)) == (expected, *(claim[k] for k in keys))
        assert mine[name]["run_ids"] and mine[name]["run_ids"] == sorted(mine[name]["run_ids"])
    assert set(data["run_ids"]) == {i for c in mine.values() for i in c["run_ids"]}
    assert {c["status"] for c in mine.values()} >= {"holds"}


def test_the_smallest_tier_decides_nothing(small: None, tmp_path: Path) -> None:
    with filled(tmp_path, "smoke") as (url, _):
        data = {c["id"]: c for c in ledger(store=url).to_dict()["claims"]}
    assert data["adler-one-head-below"]["tier"] == "smoke" and data["adler-one-head-below"]["measured"] is not None
    assert data["adler-one-head-below"]["status"] == "unmeasured" and "2 seeds" in data["adler-one-head-below"]["reason"]
    assert {c["status"] for c in data.values() if c["decided_by"] == "figures"} == {"unmeasured"}


def test_a_member_that_is_missing_leaves_its_figures_unmeasured(small: None, tmp_path: Path) -> None:
    with filled(tmp_path, "short") as (url, store):
        before = {c["id"]: c for c in ledger(store=url).to_dict()["claims"]}
        gone = before["adler-diagonal-growth"]["run_ids"][0]
        store.remove(gone)
        after = {c["id"]: c for c in ledger(store=url).to_dict()["claims"]}
    for name, claim in before.items():
        if gone in claim["run_ids"]:
            assert after[name]["status"] == "unmeasured" and after[name]["tier"] in (None, "smoke")
            assert gone not in after[name]["run_ids"]
        else:
            assert after[name] == claim


def test_an_unconverged_member_leaves_them_unmeasured(small: None, tmp_path: Path) -> None:
    first: list[str] = []

    def verdict(run: Run) -> Verdict:
        first.append(run.run_id)
        return Verdict(status=Status.UNCONVERGED) if run.run_id == first[0] else knows(run)

    with filled(tmp_path, "short", oracle=Oracle(verdict)) as (url, _):
        hit = [c for c in ledger(store=url).to_dict()["claims"] if first[0] in c["run_ids"]]
    assert hit and {c["status"] for c in hit} == {"unmeasured"} and all("without a number" in c["reason"] for c in hit)


def test_another_set_of_instances_is_another_ledger(small: None, tmp_path: Path) -> None:
    with filled(tmp_path, "short") as (url, _):
        kept = ledger(store=url, seed=7)
    assert all(e.status == "unmeasured" for e in kept.entries if e.claim.figures)


# --- which claims --------------------------------------------------------------------------------------------------


def test_some_of_it() -> None:
    assert {e.claim.paper for e in ledger(paper="harma").entries} == {"harma"}
    (one,) = ledger(claim="adler-context-robust").entries
    assert one.status == "holds" and one.command == "keyspan ledger --claim adler-context-robust"


@pytest.mark.parametrize("asked, mentions", [({"paper": "nobody"}, "adler"), ({"claim": "adler-law"}, "adler-law-bounded")])
def test_what_is_not_there_is_refused(asked: dict[str, Any], mentions: str) -> None:
    refused(lambda: ledger(**asked), mentions)
