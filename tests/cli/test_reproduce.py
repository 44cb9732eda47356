"""`keyspan reproduce`: fields, files, resume, the way out and back, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.asked import Oracle, ask, knows, told

import keyspan
from keyspan.evidence.store import open_store
from keyspan.evidence.transfer import export
from keyspan.papers import adler, reproduce
from keyspan.papers.figures import Figure
from keyspan.papers.sweeps import Sweep
from keyspan.runners import driver
from keyspan.specs import Question, Run, decode
from keyspan.verdict import Status, Verdict

ADLER = {name: figure for name, figure in adler.figures().items() if not figure.group}
TINY = ((16, 16), (16, 8))
SMALL = ((16, 8), (16, 16), (32, 8), (32, 16), (32, 32), (64, 16))
GONE = (((128, 8), "needs 20 heads"),)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiers of a few small cells: smoke is trained in seconds, short has enough cells and seeds to decide."""
    real = ADLER
    cells, seeds = {"smoke": TINY, "short": SMALL, "paper": SMALL}, {"smoke": 2, "short": 3, "paper": 3}

    def sweep(full: Sweep, tier: str) -> Sweep:
        some = cells[tier][:1] if full.curves else cells[tier]
        return Sweep(cells=some, seeds=seeds[tier], targets=full.targets, curves=full.curves[::3], left_out=GONE)

    def figures() -> dict[str, Figure]:
        tiers = {name: {tier: sweep(s, tier) for tier, s in f.tiers.items()} for name, f in real.items()}
        return {name: Figure(name, f.title, tiers[name]) for name, f in real.items()}

    monkeypatch.setattr(reproduce, "PAPERS", {"adler": lambda: replace(adler.paper(), figures=figures())})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- the answer ----------------------------------------------------------------------------------------------------


def test_the_fields_of_the_surface(oracle: Oracle, here: Path) -> None:
    data = told("reproduce", "adler:fig3", "--tier", "smoke")
    assert data["schema"] == 1 and data["keyspan"] == keyspan.__version__
    assert (data["figure"], data["tier"]) == ("adler:fig3", "smoke")
    assert data["cells"] == data["done"] == len(adler.SMOKE) and data["failed"] == 0
    assert data["run_ids"] == sorted(set(data["run_ids"])) and data["trained_now"] == len(data["run_ids"]) == len(oracle.asked)
    for claim in data["claims"]:
        assert {"id", "claim", "measured", "holds"} <= set(claim) and claim["holds"] in (True, False, None)
    assert [claim["id"] for claim in data["claims"]] == ["adler-law-explains", "adler-law-proportional", "adler-law-logarithm"]
    (one,) = data["figures"]
    assert one["files"] == [f"figures/adler-fig3.{kind}" for kind in ("svg", "png", "csv", "pdf")]
    assert all(Path(name).is_file() for name in one["files"]) and len(one["data"]) == data["cells"]
    assert one["summary"]["parameters"]["c"]["estimate"] > 0


def test_all_figures_share_what_is_measured(small: None, oracle: Oracle, here: Path) -> None:
    data = told("reproduce", "adler", "--tier", "short", "--out", "pictures")
    assert data["figure"] == "adler" and [one["figure"] for one in data["figures"]] == [f"adler:{f}" for f in ADLER]
    assert data["cells"] == len(SMALL) < sum(one["cells"] for one in data["figures"])
    assert len({claim["id"] for claim in data["claims"]}) == len(data["claims"]) >= 10
    assert len(list(Path("pictures").iterdir())) == 4 * len(ADLER)
    again = told("reproduce", "adler:fig5", "--tier", "short")
    assert again["trained_now"] == 0 and set(again["run_ids"]) < set(data["run_ids"])
    assert again["figures"][0]["data"] == next(f for f in data["figures"] if f["figure"] == "adler:fig5")["data"]


def test_figures_beyond_the_paper(oracle: Oracle, here: Path) -> None:
    """They are asked for by their group's name; the oracle's law is the same for all graphs."""
    data = told("reproduce", "adler:beyond", "--tier", "smoke")
    assert [one["figure"] for one in data["figures"]] == [
        f"adler:{f}" for f, made in adler.figures().items() if made.group == "beyond"
    ]
    assert data["cells"] == data["done"] == sum(one["cells"] for one in data["figures"]) and data["claims"]
    assert {claim["holds"] for claim in data["claims"]} == {None}
    assert told("reproduce", "adler:graphs")["trained_now"] == 0
    assert "D_K* by graph" in ask("reproduce", "adler:graphs").out


def test_enough_seeds_decide_claims(small: None, oracle: Oracle, here: Path) -> None:
    """The oracle needs two heads and 1.2 times the law: the law holds, and one head is never enough."""
    holds = {claim["id"]: claim["holds"] for claim in told("reproduce", "adler:fig3", "--tier", "short")["claims"]}
    assert holds["adler-law-explains"] is True and holds["adler-law-proportional"] is True
    heads = {claim["id"]: claim["holds"] for claim in told("reproduce", "adler:map", "--tier", "short")["claims"]}
    assert heads == {"adler-several-beat-one": True, "adler-one-head-enough": False, "adler-gardner-line": False}


def test_tables_for_people(small: None, oracle: Oracle, here: Path) -> None:
    ran = ask("reproduce", "adler", "--quiet")
    assert ran.code == 0 and ran.err == ""
    for words in ("fig5: D_K* with its 95% range", "too few cells", "cannot be said", "cells done"):
        assert words in " ".join(ran.out.split()), words
    assert "left out: items 128, d_model 8: needs 20 heads" in ask("reproduce", "adler:fig2").err


def test_failed_members_are_told(small: None, oracle: Oracle, here: Path) -> None:
    def failing(run: Run) -> Verdict:
        bad = run.problem.items == 32 and run.replicate == 1  # type: ignore[attr-defined]
        return Verdict(status=Status.DIVERGED) if bad else knows(run)

    oracle.verdict = failing
    ran = ask("reproduce", "adler:fig3", "--tier", "short", "--json")
    data = ran.json
    assert ran.code == 3 and data["failed"] == 3 and data["done"] == data["cells"] - 3
    assert {claim["holds"] for claim in data["claims"]} == {None}
    assert Path("figures/adler-fig3.png").is_file()


def test_an_interrupted_call_goes_on(small: None, oracle: Oracle, here: Path) -> None:
    oracle.stop_after = 20
    assert ask("reproduce", "adler:fig3", "--tier", "short").code == 130 and not Path("figures").exists()
    oracle.stop_after = None
    data = told("reproduce", "adler:fig3", "--tier", "short")
    assert data["trained_now"] == len(data["run_ids"]) - 20


def test_another_seed_is_another_set(small: None, oracle: Oracle, here: Path) -> None:
    first, second = told("reproduce", "adler:fig4"), told("reproduce", "adler:fig4", "--seed", "1")
    assert not set(first["run_ids"]) & set(second["run_ids"])


# --- before and elsewhere ------------------------------------------------------------------------------------------


def test_a_dry_run_trains_and_writes_nothing(here: Path) -> None:
    data = told("reproduce", "adler:fig4", "--tier", "paper", "--dry-run")
    assert data["dry_run"] is True and data["members"] > 1000 and data["flops"] > 1e15 and data["memory_bytes"] > 1e7
    assert list(here.iterdir()) == []


def test_questions_are_handed_out_and_records_brought_home(small: None, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told("reproduce", "adler:fig3", "--hand-out", "box/members.jsonl")
    lines = Path("box/members.jsonl").read_text().splitlines()
    asked = [spec for line in lines if isinstance(spec := decode(json.loads(line)), Question)]
    assert len(asked) == len(TINY) == len(lines)
    (here / "box" / "out").mkdir()
    with open_store("sqlite:///elsewhere.db") as store:
        driver.answer(asked, store, Oracle)
        export(store.records(), "box/out/records.jsonl")
    told("runs", "import", "box/out")
    monkeypatch.setattr("keyspan.runners.lab.LocalRunner", _refuse)
    assert told("reproduce", "adler:fig3")["trained_now"] == 0


def _refuse(*_: object) -> None:
    raise AssertionError("this must be answered from the store")


def test_trained_for_real(small: None, here: Path) -> None:
    """A tiny tier, end to end: the figures are drawn from members that were trained."""
    data = told("reproduce", "adler:fig5", "--jobs", "1")
    assert data["trained_now"] == len(data["run_ids"]) >= 8 and data["failed"] == 0
    assert any(row["key_budget"] for row in data["figures"][0]["data"])
    result = keyspan.reproduce("adler:fig5", out=None)
    again = result.to_dict()
    assert again["trained_now"] == 0 and again["run_ids"] == data["run_ids"] and again["figures"][0]["files"] == []


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv, mentions",
    [
        (("adler:fig9",), "adler:fig1, adler:fig2"),
        (("adlr",), "adler:map"),
        (("adler", "--tier", "huge"), "smoke|short|paper"),
        (("adler", "--out", "taken"), "--out"),
        (("adler", "--jobs", "0"), "--jobs"),
        (("adler", "--dry-run", "--jobs", "0"), "--jobs"),
        (("adler", "--hand-out", "."), "--hand-out"),
    ],
)
def test_bad_input(argv: tuple[str, ...], mentions: str, here: Path, oracle: Oracle) -> None:
    (here / "taken").write_text("")
    ran = ask("reproduce", *argv)
    assert ran.code == 2 and ran.err.startswith("keyspan: ") and len(ran.err.splitlines()) == 1
    assert mentions in ran.err and not oracle.asked
