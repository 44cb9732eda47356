"""`keyspan measure relations`, trained for real on a tiny cell: fields, reuse, files, weights, and the way out and back."""

import csv
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.asked import CELL, Oracle, Ran, ask, call, told

from keyspan.evidence.record import Record
from keyspan.evidence.store import open_store
from keyspan.runners import driver
from keyspan.runners.measure import RelationsResult
from keyspan.runners.questions import relations_question
from keyspan.specs import Run
from keyspan.theory.bounds import law

FIELDS: dict[str, Any] = {
    "schema": int,
    "keyspan": str,
    "run_ids": list,
    "trained_now": int,
    "recipe": str,
    "key_budget": dict,
    "heads": int,
    "d_key": int,
    "law": float,
    "ratio": float,
    "lower_bound": float,
    "probes": list,
}
PROBE: dict[str, Any] = {
    "heads": int,
    "d_key": int,
    "key_budget": int,
    "seed": int,
    "f1": float,
    "f1_best": float,
    "exact": bool,
    "steps": int,
    "status": str,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store, the kept weights and the answer of two seeds of `CELL`."""
    home = tmp_path_factory.mktemp("trained")
    ran = ask(*CELL, "--seeds", "2", "--json", "--store", f"sqlite:///{home}/lab.db", "--weights", home / "weights")
    assert ran.code == 0, ran
    (home / "answer.json").write_text(ran.out)
    return home


@pytest.fixture
def home(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to work in, with its store as `KEYSPAN_STORE`."""
    home = tmp_path / "home"
    shutil.copytree(trained, home)
    monkeypatch.setenv("KEYSPAN_STORE", f"sqlite:///{home}/lab.db")
    return home


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training is an error here."""

    def refuse(*_: object) -> None:
        raise AssertionError("this must be answered from the store")

    monkeypatch.setattr("keyspan.runners.lab.LocalRunner", refuse)


def answer(home: Path) -> dict[str, Any]:
    data = json.loads((home / "answer.json").read_text())
    assert isinstance(data, dict)
    return data


def check_fields(data: dict[str, Any], fields: dict[str, Any]) -> None:
    for name, kind in fields.items():
        assert name in data and type(data[name]) is kind, (name, data.get(name))


# --- the answer ----------------------------------------------------------------------------------------------------


def test_the_fields_of_the_surface(trained: Path) -> None:
    data = answer(trained)
    check_fields(data, FIELDS)
    assert set(data["key_budget"]) == {"estimate", "low", "high"}
    assert all(type(value) is int for value in data["key_budget"].values())
    for probe in data["probes"]:
        check_fields(probe, PROBE)


def test_the_numbers_hang_together(trained: Path) -> None:
    data = answer(trained)
    assert data["recipe"] == "gradient" and data["criterion"] == "mean" and data["threshold"] == "own"
    assert data["run_ids"] == sorted({probe["run_id"] for probe in data["probes"]}) and len(data["run_ids"]) >= 4
    assert data["trained_now"] == len(data["probes"]) == len(data["run_ids"])
    found = data["key_budget"]
    assert found["low"] <= found["estimate"] <= found["high"] and 0 < data["lower_bound"] <= found["estimate"]
    assert data["heads"] == 1 and data["d_key"] == found["estimate"]
    assert data["law"] == law(16, 16) and data["ratio"] == found["estimate"] / data["law"]
    scores: dict[int, list[float]] = {}
    for probe in data["probes"]:
        assert probe["key_budget"] == probe["heads"] * probe["d_key"] and probe["heads"] == 1
        assert probe["seed"] in (0, 1) and probe["status"] == "measured" and 0 < probe["steps"] <= 300
        assert 0 <= probe["f1"] <= probe["f1_best"] <= 1 and probe["exact"] is (probe["f1"] == 1.0)
        scores.setdefault(probe["key_budget"], []).append(probe["f1"])
    means = {budget: sum(f1) / 2 for budget, f1 in scores.items()}
    assert [s["score"] for s in data["arms"][0]["scores"]] == pytest.approx([means[b] for b in sorted(means)])
    assert found["estimate"] == min(b for b in means if all(means[c] >= 0.99 for c in means if c >= b))
    assert means[found["estimate"] - 1] < 0.99  # the crossing is closed


@pytest.mark.usefixtures("idle")
def test_asking_again_trains_nothing(home: Path) -> None:
    again, before = told(*CELL, "--seeds", "2"), answer(home)
    assert again.pop("trained_now") == 0 and before.pop("trained_now") > 0
    assert again == before


@pytest.mark.usefixtures("idle")
def test_what_is_stored_answers_other_questions_too(home: Path) -> None:
    """The criterion, the threshold, the target and the figure are questions, not runs."""
    before = answer(home)
    tried = sorted({probe["key_budget"] for probe in before["probes"]})
    points = (*CELL, "--seeds", "2", "--key-budgets", ",".join(map(str, tried)))
    own, best = told(*points), told(*points, "--threshold", "best")
    assert own["run_ids"] == best["run_ids"] == before["run_ids"]
    assert own["trained_now"] == best["trained_now"] == 0 and best["threshold"] == "best"
    for a, b in zip(own["arms"][0]["scores"], best["arms"][0]["scores"], strict=True):
        assert a["score"] <= b["score"]
    f1_best = {p["key_budget"]: 0.0 for p in best["probes"]}
    for probe in best["probes"]:
        f1_best[probe["key_budget"]] += probe["f1_best"] / 2
    assert {s["key_budget"]: s["score"] for s in best["arms"][0]["scores"]} == pytest.approx(f1_best)
    for criterion in ("all", "any"):
        judged = told(*points, "--criterion", criterion, "--target", "0.3")
        assert judged["trained_now"] == 0 and (judged["criterion"], judged["target"]) == (criterion, 0.3)
        merged = {"all": min, "any": max}[criterion]
        passing = [b for b in tried if merged(p["f1"] for p in judged["probes"] if p["key_budget"] == b) >= 0.3]
        assert judged["key_budget"]["estimate"] == min(passing)


def test_one_more_seed_trains_only_that_seed(home: Path) -> None:
    before, after = answer(home), told(*CELL, "--seeds", "3")
    new = [probe for probe in after["probes"] if probe["run_id"] not in before["run_ids"]]
    assert set(before["run_ids"]) < set(after["run_ids"]) and after["trained_now"] == len(new)
    assert {probe["seed"] for probe in new} == {2}
    levels = {probe["key_budget"] for probe in before["probes"]}
    assert {probe["key_budget"] for probe in new} == {probe["key_budget"] for probe in after["probes"]} >= levels
    old = [probe for probe in after["probes"] if probe["seed"] < 2 and probe["key_budget"] in levels]
    assert old == before["probes"]


def test_removing_one_retrains_just_that_one_and_gives_the_same(home: Path) -> None:
    before = answer(home)
    with open_store(f"sqlite:///{home}/lab.db") as store:
        record = store.find(before["run_ids"][0])
    assert told("runs", "remove", before["run_ids"][0][:12])["removed"] == record.run_id
    assert ask("runs", "show", record.run_id).code == 2
    assert record.run_id not in told("runs", "list")["run_ids"]
    ran = ask(*CELL, "--seeds", "2", "--json")
    (line,) = ran.err.splitlines()
    assert line.startswith("round 1: 1 members to train")
    after = ran.json
    assert after["trained_now"] == 1 and after["run_ids"] == before["run_ids"]
    assert after["probes"] == before["probes"]  # the same member, bit for bit, in other company
    with open_store(f"sqlite:///{home}/lab.db") as store:
        assert store.find(record.run_id).content == record.content


# --- files as graph and embeddings ---------------------------------------------------------------------------------


def test_files_are_known_by_their_content(own_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(i, (5 * i + 3) % 16) for i in range(16)] + [(0, 9)]
    graph, rows = tmp_path / "ring.csv", tmp_path / "rows.npy"
    graph.write_text("from,to\n" + "".join(f"{i},{j}\n" for i, j in pairs))
    np.save(rows, np.eye(16)[::-1] * 2)
    cell = (*CELL, "--key-budgets", "6", "--seeds", "1", "--embeddings", rows)
    first = told(*cell, "--graph", graph, "--weights", tmp_path / "weights")
    assert first["trained_now"] == 1 and first["law"] == law(17, 16)
    spec = first["problem"]
    assert spec["graph"]["name"] == spec["embeddings"]["name"] == "file" and spec["graph"]["edges"] == 17
    assert len(spec["graph"]["content"]) == len(spec["embeddings"]["content"]) == 64
    assert str(tmp_path) not in json.dumps(first)
    graph.unlink()

    def refuse(*_: object) -> None:
        raise AssertionError("this must be answered from the store")

    monkeypatch.setattr("keyspan.runners.lab.LocalRunner", refuse)
    shuffled = tmp_path / "elsewhere.tsv"  # another path, order and format of the same edges
    shuffled.write_text("".join(f"{i}\t{j}\n" for i, j in reversed(pairs)))
    again = told(*cell, "--graph", shuffled)
    assert again["trained_now"] == 0 and again["run_ids"] == first["run_ids"]
    # the files are gone for good; the record alone is enough to ask again
    shuffled.unlink()
    rows.unlink()
    run = Run.from_json(told("runs", "show", first["run_ids"][0])["run"])
    question = relations_question(run.problem, heads=[1], key_budgets=[6], seeds=1, steps=300)  # type: ignore[arg-type]
    with open_store(own_store, read_only=True) as store:
        (outcome,) = driver.answer([question], store, refuse)  # type: ignore[arg-type]
    assert RelationsResult(question, outcome).to_dict()["probes"] == first["probes"]
    assert ask(*cell, "--graph", shuffled).code == 2
    # what was kept of it says what was trained on
    (kept,) = (tmp_path / "weights").iterdir()
    certified = told("certify", kept)
    assert (certified["items"], certified["edges"], certified["f1"]) == (16, 17, first["probes"][0]["f1"])


# --- weights -------------------------------------------------------------------------------------------------------


def test_kept_weights_certify_as_they_were_recorded(home: Path) -> None:
    """One judge: the record and the certificate are the same numbers."""
    probes = {probe["run_id"]: probe for probe in answer(home)["probes"]}
    kept = sorted((home / "weights").iterdir())
    assert [path.stem for path in kept] == sorted(probes) and {path.suffix for path in kept} == {".safetensors"}
    for path in kept:
        certificate, probe = told("certify", path), probes[path.stem]
        for name in ("f1", "f1_best", "exact", "margin", "heads", "d_key", "key_budget"):
            assert certificate[name] == probe[name], (name, path)
        shown = told("runs", "show", path.stem)["verdict"]
        assert certificate["threshold"] == shown["scores"]["threshold"]
        assert certificate["min_edge"] == shown["witness"]["min_edge"]
        assert certificate["max_nonedge"] == shown["witness"]["max_nonedge"]


# --- out to a worker and home again --------------------------------------------------------------------------------


def work(*argv: str | Path) -> Ran:
    return call(*argv, command=[sys.executable, "-m", "keyspan.lab.worker"])


def test_handed_out_worked_on_and_brought_home(own_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = tmp_path / "ring.csv"
    graph.write_text("".join(f"{i},{(i + 1) % 16}\n" for i in range(16)))
    cell = (*CELL, "--key-budgets", "2,5", "--seeds", "2", "--graph", graph)
    handed = told(*cell, "--hand-out", tmp_path / "away" / "q.jsonl")
    assert handed["path"] == str(tmp_path / "away" / "q.jsonl")
    assert told("runs", "list")["total"] == 0
    graph.rename(tmp_path / "later.csv")  # the other machine has only the folder
    out = tmp_path / "away" / "out"
    done = work(tmp_path / "away" / "q.jsonl", "--out", out, "--minutes", "1", "--device", "cpu")
    assert done.code == 0 and done.out == "" and "4 records, 0 members left" in done.err, done
    assert told("runs", "import", out) | {"schema": 0, "keyspan": ""} == {
        "schema": 0,
        "keyspan": "",
        "added": 4,
        "known": 0,
        "torn": 0,
    }
    assert told("runs", "import", out / "records.jsonl")["known"] == 4
    monkeypatch.setattr("keyspan.runners.lab.LocalRunner", None)  # nobody may call it
    home = told(*cell[:-1], tmp_path / "later.csv")
    assert home["trained_now"] == 0 and len(home["run_ids"]) == 4


# --- the store -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("idle")
def test_export_and_import(home: Path, tmp_path: Path) -> None:
    before = answer(home)
    assert told("runs", "export", tmp_path / "all.jsonl")["exported"] == len(before["run_ids"])
    records = [Record.from_line(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert sorted(record.run_id for record in records) == before["run_ids"]
    assert told("runs", "export", tmp_path / "all.csv")["exported"] == len(records)
    with open(tmp_path / "all.csv", newline="") as handle:
        rows = {row["run_id"]: row for row in csv.DictReader(handle)}
    for probe in before["probes"]:
        row = rows[probe["run_id"]]
        assert (float(row["f1"]), row["exact"]) == (probe["f1"], str(probe["exact"]).lower())
        assert (int(row["key_budget"]), int(row["replicate"])) == (probe["key_budget"], probe["seed"])
        assert (row["graph"], row["recipe"], row["status"]) == ("permutation", "gradient", "measured")
    other = f"sqlite:///{tmp_path}/other.db"
    assert told("runs", "import", tmp_path / "all.jsonl", "--store", other)["added"] == len(records)
    assert told(*CELL, "--seeds", "2", "--store", other)["probes"] == before["probes"]


def test_show_by_the_beginning_of_an_id(home: Path) -> None:
    run_ids = answer(home)["run_ids"]
    whole = told("runs", "show", run_ids[0])
    assert told("runs", "show", run_ids[0][:10]) == whole
    assert whole["run_id"] == run_ids[0] and whole["copies"] == 1 and Run.from_json(whole["run"]).run_id == run_ids[0]
    assert whole["provenance"]["steps"] > 0 and whole["provenance"]["keyspan"] == whole["keyspan"]
    assert ask("runs", "show", run_ids[0]).out == ask("runs", "show", run_ids[0], "--json").out
    several = ask("runs", "show", "r")
    assert several.code == 2 and "unique" in several.err and "Type more" in several.err


def test_list_by_kind_status_and_number(home: Path) -> None:
    total = len(answer(home)["run_ids"])
    assert told("runs", "list", "--kind", "relations", "--status", "measured")["total"] == total
    assert len(told("runs", "list", "--limit", "3")["runs"]) == 3
    assert told("runs", "list", "--kind", "dichotomies")["runs"] == []
    assert told("runs", "list", "--status", "diverged")["run_ids"] == []
    assert f"3 of {total} runs" in ask("runs", "list", "--limit", "3").out


def test_readers_do_not_make_a_store(tmp_path: Path, own_store: str) -> None:
    assert told("runs", "list") | {"schema": 0, "keyspan": ""} == {
        "schema": 0,
        "keyspan": "",
        "runs": [],
        "run_ids": [],
        "total": 0,
    }
    assert ask("runs", "show", "r1").code == 2
    assert told("doctor")["store"]["ok"] is True
    assert list(tmp_path.iterdir()) == []


# --- figures -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("idle")
def test_the_figure_is_drawn_beside_its_data(home: Path, tmp_path: Path) -> None:
    for name in ("fig", "other.svg"):
        ran = ask(*CELL, "--seeds", "2", "--figure", tmp_path / "new" / name)
        assert ran.code == 0 and ran.err.count("wrote ") == 4, ran
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == [f"{name}.{kind}" for name in ("fig", "other") for kind in ("csv", "pdf", "png", "svg")]
    for suffix in (".csv", ".png", ".svg"):
        assert (tmp_path / "new" / f"fig{suffix}").read_bytes() == (tmp_path / "new" / f"other{suffix}").read_bytes()
    with open(tmp_path / "new" / "fig.csv", newline="") as handle:
        rows = list(csv.DictReader(handle))
    scores = answer(home)["arms"][0]["scores"]
    assert [int(row["key_budget"]) for row in rows] == [score["key_budget"] for score in scores]
    assert [float(row["f1"]) for row in rows] == pytest.approx([score["score"] for score in scores])


def test_a_figure_is_drawn_in_silence_where_there_is_no_home(home: Path, tmp_path: Path) -> None:
    """Matplotlib would advise on where to keep its cache, at length."""
    env = {"HOME": "/proc/nobody", "XDG_CONFIG_HOME": "", "XDG_CACHE_HOME": "", "KEYSPAN_STORE": f"sqlite:///{home}/lab.db"}
    ran = call(*CELL, "--seeds", "2", "--figure", tmp_path / "fig", "--quiet", env=env, cwd=tmp_path)
    assert ran.code == 0 and ran.err == "" and (tmp_path / "fig.png").exists()


# --- design beside it ----------------------------------------------------------------------------------------------


def test_design_takes_the_same_graphs(tmp_path: Path, oracle: Oracle) -> None:
    graph = tmp_path / "star.csv"
    graph.write_text("".join(f"0,{i}\n" for i in range(1, 40)))
    sized = {"--items": "128", "--d-model": "16"}
    plain = [word for pair in sized.items() for word in pair]
    default = told("design", *plain)
    for name in ("key_budget", "heads", "d_key", "parameters", "bits_per_parameter", "basis", "alternatives"):
        assert name in default
    assert set(default["key_budget"]) == {"estimate", "low", "high", "lower_bound", "construction"}
    assert default["basis"] in ("law", "measured") and default["heads"] * default["d_key"] == default["key_budget"]["estimate"]
    assert told("design", *plain, "--graph", "permutation") == default
    assert told("design", *plain, "--graph", graph)["edges"] == told("design", *plain, "--edges", "39")["edges"] == 39
    assert told("design", *plain, "--graph", "regular", "--degree", "3")["edges"] == 384
    text = ask("design", *plain).out
    assert f"{default['heads']} heads x d_key {default['d_key']}" in text and "Alternatives" in text


# --- what is shown, and types ---------------------------------------------------------------------------------------


def test_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cell = ("measure", "relations", "--items", "16", "--d-model", "16", "--heads", "1", "--key-budgets", "6", "--seeds", "1")
    whole = told(*cell, "--jobs", "1", "--steps", "200")
    contexts = told(*cell, "--jobs", "1", "--steps", "200", "--contexts", "8")
    batches = told(*cell, "--jobs", "1", "--steps", "200", "--batches", "2")
    assert [d["shown"] for d in (whole, contexts, batches)] == [None, {"contexts": 8}, {"batches": 2, "replay": False}]
    (one,), (two,) = whole["probes"], batches["probes"]
    assert {"learned", "retained", "forgotten"} <= set(two) and "learned" not in one and two["steps"] == 200
    assert len({d["probes"][0]["run_id"] for d in (whole, contexts, batches)}) == 3
    assert "shown        contexts 8; judged on all pairs" in ask(*cell, "--steps", "200", "--contexts", "8").out


def test_types_and_a_file_of_weights_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cell = ("measure", "relations", "--items", "12", "--d-model", "12", "--types", "2", "--heads", "2", "--key-budgets", "12")
    data = told(*cell, "--seeds", "1", "--jobs", "1", "--steps", "400", "--weights", "kept")
    assert data["sharing"] == "partitioned" and data["problem"]["types"] == 2 and data["law"] > 0
    (probe,) = data["probes"]
    each = [told("certify", path) for path in sorted(Path("kept").iterdir())]
    assert [path.name for path in sorted(Path("kept").iterdir())] == [f"{probe['run_id']}-{t}.safetensors" for t in range(2)]
    assert sum(one["f1"] for one in each) / 2 == pytest.approx(probe["f1"]) and all(one["edges"] == 12 for one in each)
    ran = ask(*cell, "--seeds", "1", "--steps", "400")
    assert "2 types, heads partitioned" in " ".join(ran.out.split())
