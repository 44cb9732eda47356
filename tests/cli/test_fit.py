"""`keyspan fit law`: the same numbers from the store and from the table that fig5 writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.asked import Oracle, ask, told

import keyspan
from keyspan.evidence.store import open_store
from keyspan.papers.adler import SMOKE
from keyspan.papers.reproduce import plan
from keyspan.runners import driver
from keyspan.views.reproduce import carry_out_and_draw


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store that holds fig5 of the smoke tier, and its picture."""
    home = tmp_path_factory.mktemp("smoke")
    with open_store(f"sqlite:///{home}/lab.db") as store:
        carry_out_and_draw(plan("adler:fig5", "smoke"), lambda asked: driver.answer(asked, store, Oracle), home / "figures")
    return home


@pytest.fixture
def measured(smoke: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That folder to stand in, with its store."""
    monkeypatch.chdir(smoke)
    monkeypatch.setenv("KEYSPAN_STORE", f"sqlite:///{smoke}/lab.db")
    return smoke


def test_the_fields_of_the_surface(measured: Path) -> None:
    data = told("fit", "law")
    assert data["schema"] == 1 and data["keyspan"] == keyspan.__version__ and data["trained_now"] == 0
    assert data["model"] == "law" and set(data["parameters"]["c"]) == {"estimate", "low", "high"}
    assert 0 <= data["mape"] <= data["mape_held_out"] < 1  # fractions
    for rival in data["rivals"]:
        assert {"model", "parameters", "mape", "mape_held_out", "aic"} <= set(rival)
    assert data["fit_id"].startswith("f") and data["run_ids"] == sorted(set(data["run_ids"]))


def test_the_table_of_fig5_gives_the_same_fit(measured: Path) -> None:
    store, table = told("fit", "law"), told("fit", "law", "--from", "figures/adler-fig5.csv")
    assert store["fit_id"] == table["fit_id"] and store["parameters"] == table["parameters"]
    assert store["left_out"] == table["left_out"] and len(store["cells"]) + len(store["left_out"]) == len(SMOKE)
    python = keyspan.fit(source=measured / "figures" / "adler-fig5.csv").to_dict()
    assert python | {"source": ""} == table | {"source": ""}


def test_an_export_gives_the_same_fit(measured: Path) -> None:
    told("runs", "export", "all.jsonl")
    assert told("fit", "law", "--from", "all.jsonl")["fit_id"] == told("fit", "law")["fit_id"]


def test_tables_for_people(measured: Path) -> None:
    ran = ask("fit", "law")
    assert ran.code == 0
    for words in ("c m' ln m' / d", "the least Gardner budget", "held out", "exponent", "fit "):
        assert words in " ".join(ran.out.split()), words


@pytest.mark.parametrize(
    "argv, mentions",
    [
        (("--from", "none.csv"), "none.csv"),
        (("--from", "figures"), ".csv of cells"),
        (("--recipe", "magic"), "--recipe"),
        (("--target", "2"), "--target"),
        (("--embeddings", "sign"), "at least 2 cells"),
        (("--graph", "star"), "at least 2 cells"),
    ],
)
def test_bad_input(argv: tuple[str, ...], mentions: str, measured: Path) -> None:
    ran = ask("fit", "law", *argv)
    assert ran.code == 2 and ran.err.startswith("keyspan: ") and len(ran.err.splitlines()) == 1
    assert mentions in ran.err


def test_an_empty_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = ask("fit", "law")
    assert ran.code == 2 and "keyspan reproduce" in ran.err and list(tmp_path.iterdir()) == []
