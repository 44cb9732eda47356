"""What holds for every verb: global options, one JSON document, silence, colours, exit codes, help, dry runs."""

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.cli.asked import COMMAND, ROOT, Oracle, Ran, ask, call, knows, told

import keyspan
from keyspan.evidence.record import make_record
from keyspan.evidence.store import open_store
from keyspan.problems.relations import Relations
from keyspan.runners import driver
from keyspan.runners.questions import relations_question
from keyspan.specs import Run
from keyspan.verdict import Status, Verdict

CELL = ("measure", "relations", "--items", "16", "--d-model", "16")
VERBS = [
    ("design",),
    ("construct",),
    ("certify",),
    ("audit",),
    ("measure",),
    ("measure", "relations"),
    ("calibrate",),
    ("reproduce",),
    ("fit",),
    ("fit", "law"),
    ("runs",),
    *(("runs", verb) for verb in ("list", "show", "records", "export", "import", "remove")),
    ("bench",),
    ("doctor",),
]
ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to stand in, without `KEYSPAN_STORE`."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("KEYSPAN_STORE")
    return folder


def members(**asked: Any) -> list[Run]:
    """The members of `CELL` at single points."""
    question = relations_question(Relations(items=16, d_model=16), **asked)
    return [run for arm in question.arms for level in arm.levels for run in question.runs(arm, level)]


def failing(run: Run) -> Verdict:
    """Every second seed diverges."""
    return Verdict(status=Status.DIVERGED) if run.replicate % 2 else knows(run)


# --- where options stand -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["before", "between", "after", "mixed", "equals"])
def test_global_options_before_and_after_the_verb(place: str, tmp_path: Path, oracle: Oracle) -> None:
    url = f"sqlite:///{tmp_path / 'lab.db'}"
    options = ["--json", "--store", url, "--seed", "7", "--device", "cpu", "--quiet"]
    if place == "equals":
        options = ["--json", f"--store={url}", "--seed=7", "--device=cpu", "--quiet"]
    first, rest = list(CELL[:1]), list(CELL[1:])
    argv = {
        "before": [*options, *CELL],
        "between": [*first, *options, *rest],
        "after": [*CELL, *options],
        "mixed": [*options[:3], *first, *options[3:5], *rest, *options[5:]],
        "equals": [*CELL, *options],
    }[place]
    ran = ask(*argv)
    assert ran.code == 0 and ran.err == ""
    assert {probe["seed"] for probe in ran.json["probes"]} == {7_000_000, 7_000_001, 7_000_002}
    assert (tmp_path / "lab.db").exists()


def test_the_default_store_is_beside_the_work(here: Path, oracle: Oracle) -> None:
    first = told(*CELL)
    assert (here / ".keyspan" / "store.db").exists() and first["trained_now"] == len(first["run_ids"])
    assert told(*CELL)["trained_now"] == 0


def test_the_store_of_the_environment_yields_to_the_option(
    here: Path, tmp_path: Path, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEYSPAN_STORE", f"sqlite:///{tmp_path}/env.db")
    told(*CELL)
    assert (tmp_path / "env.db").exists() and not (here / ".keyspan").exists()
    told(*CELL, "--store", f"sqlite:///{tmp_path}/option.db")
    assert (tmp_path / "option.db").exists()
    monkeypatch.setenv("KEYSPAN_STORE", "")  # set to nothing is not set
    told(*CELL)
    assert (here / ".keyspan" / "store.db").exists()


# --- what comes out ------------------------------------------------------------------------------------------------


def test_every_json_answer_is_one_document_with_a_head(tmp_path: Path, oracle: Oracle) -> None:
    measured = told(*CELL)
    one = measured["run_ids"][0]
    answers = [
        measured,
        told(*CELL, "--dry-run"),
        told("calibrate", "--dimension", "4", "--seeds", "10"),
        told("design", "--items", "128", "--d-model", "16"),
        told("runs", "list"),
        told("runs", "export", tmp_path / "all.jsonl"),
        told("runs", "import", tmp_path / "all.jsonl"),
        told("runs", "show", one),
        told("runs", "remove", one),
        told("doctor"),
        told(*CELL, "--hand-out", tmp_path / "q.jsonl"),
    ]
    for answer in answers:
        assert type(answer["schema"]) is int and answer["keyspan"] == keyspan.__version__, answer
        if "trained_now" in answer:
            assert answer["run_ids"] == sorted(set(answer["run_ids"])) and len(answer["run_ids"]) > 1
            assert answer["trained_now"] == len(answer["run_ids"])


def test_progress_is_on_stderr_and_quiet_silences_it(oracle: Oracle) -> None:
    loud = ask(*CELL, "--json")
    assert "round 1: " in loud.err and loud.json
    for extra in ([], ["--json"]):
        quiet = ask(*CELL, "--seed", "1", "--quiet", *extra)
        assert quiet.code == 0 and quiet.err == "" and quiet.out
    refused = ask("design", "--items", "0", "--d-model", "4", "--quiet")
    assert refused.code == 2 and refused.err.startswith("keyspan: ")  # what went wrong is always said


def test_tables_for_people(oracle: Oracle) -> None:
    ran = ask(*CELL, "--heads", "1,2", "--quiet")
    assert ran.code == 0 and ran.err == ""
    for words in ("Mean F1 (own threshold, 3 seeds)", "D_K* [low, high]", "law ", "lower bound", "interval ", "trained now"):
        assert words in ran.out, words
    assert "2 heads x d_key 2" in ran.out and "permutation graph on 16 items, d_model 16" in " ".join(ran.out.split())
    listed = ask("runs", "list")
    for run_id in told(*CELL, "--heads", "1,2")["run_ids"]:
        assert run_id in listed.out  # whole, so that it can be copied
    never = ask(*CELL, "--heads", "1", "--quiet")
    assert "not reached" in never.out


@pytest.mark.parametrize("columns", ["80", "", "wide", "0"])
def test_any_width_of_the_page(columns: str, oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert ask(*CELL, "--quiet").code == 0


@pytest.mark.parametrize("columns", [120, 80, 65])
def test_a_narrow_page_has_fewer_columns_of_runs(columns: int, oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole lines, whole ids, and a word on what there was no room for."""
    run_ids = told(*CELL)["run_ids"]
    monkeypatch.setenv("COLUMNS", str(columns))
    listed = ask("runs", "list")
    lines = listed.out.splitlines()
    assert max(len(line) for line in lines) <= columns
    for run_id in run_ids:
        (line,) = [line for line in lines if run_id in line]
        assert "measured" in line
    header = next(line for line in lines if "run_id" in line)
    assert all(name in header for name in ("run_id", "status", "heads", "d_key", "f1"))
    gone = [name for name in ("kind", "steps", "exact", "d_model", "seed", "items") if name not in header]
    assert {120: 0, 80: 4, 65: 6}[columns] == len(gone)
    assert listed.err.startswith("no room for kind, steps, exact, d_model") if gone else listed.err == ""


def test_names_are_printed_as_they_are(tmp_path: Path, oracle: Oracle) -> None:
    """Brackets and colons mean something to the library that prints."""
    path = tmp_path / "[bold]a:smile:[red].jsonl"
    told(*CELL)
    ran = ask("runs", "export", path)
    assert ran.code == 0 and path.name in ran.err and path.exists()


def test_no_ansi_where_there_is_no_terminal(oracle: Oracle) -> None:
    for ran in (ask(*CELL), ask("runs", "list"), ask("--help"), ask("measure", "relations", "--help")):
        assert ran.code == 0 and "\x1b" not in ran.out + ran.err
    assert "\x1b" not in (ran := call("design", "--items", "128", "--d-model", "16")).out + ran.err and ran.out


@pytest.mark.parametrize("no_colour", [False, True])
def test_colours_on_a_terminal_unless_refused(no_colour: bool) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color"}
    env |= {"NO_COLOR": "1"} if no_colour else {}
    ours, theirs = pty.openpty()
    with subprocess.Popen([*COMMAND, "--help"], stdout=theirs, stderr=subprocess.DEVNULL, env=env) as done:
        os.close(theirs)
        parts = []
        with suppress(OSError):  # a terminal hands out a few kilobytes at a time, and an error when the other side has gone
            while part := os.read(ours, 2**16):
                parts.append(part)
    os.close(ours)
    shown = b"".join(parts).decode()
    colours = [code for code in ANSI.findall(shown) if re.search(r"\b(3[0-8]|9[0-7])(m|;)", code)]
    assert done.returncode == 0 and "calibrate" in shown and bool(colours) is not no_colour


# --- exit codes ----------------------------------------------------------------------------------------------------


def test_some_members_failed(own_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """3, and a failure is never a number. Nothing needs training: the store knows that a member diverged."""
    with open_store(own_store) as store:
        store.put_all(make_record(run, failing(run)) for run in members(heads=[2], key_budgets=[4], seeds=2))
    monkeypatch.setattr("keyspan.runners.lab.LocalRunner", None)  # nobody may call it
    ran = ask(*CELL, "--heads", "2", "--key-budgets", "4", "--seeds", "2", "--json")
    assert ran.code == 3 and ran.json["failed"] == 1 and ran.json["trained_now"] == 0
    good, bad = ran.json["probes"]
    assert (good["status"], bad["status"]) == ("measured", "diverged")
    assert bad["f1"] is bad["f1_best"] is bad["exact"] is bad["margin"] is None
    table = ask(*CELL, "--heads", "2", "--key-budgets", "4", "--seeds", "2")
    assert table.code == 3 and "1 member failed" in table.out


def test_some_labelings_failed(oracle: Oracle) -> None:
    oracle.verdict = failing
    ran = ask("calibrate", "--dimension", "4", "--seeds", "20", "--json")
    assert ran.code == 3 and ran.json["failed"] > 0


def test_a_store_that_is_a_folder_is_said_by_the_doctor(tmp_path: Path) -> None:
    ran = ask("doctor", "--store", f"sqlite:///{tmp_path}", "--json")
    assert ran.code == 2 and ran.json["store"]["ok"] is False and "must be a file" in ran.json["store"]["problem"]
    assert ask("doctor", "--store", f"sqlite:///{tmp_path}").code == 2
    assert ask("doctor").code == 0


def test_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "answer", interrupt)
    ran = ask(*CELL, "--json")
    assert ran.code == 130 and ran.out == ""
    assert ran.err.startswith("keyspan: interrupted; what finished is kept") and ran.err.count("\n") == 1


def test_interrupted_while_modules_are_loaded() -> None:
    early = "import sys, keyspan.cli, builtins; builtins.__import__ = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt); "
    ran = call(command=[sys.executable, "-c", early + "sys.exit(keyspan.cli.main([]))"])
    assert ran == Ran(130, "", "keyspan: interrupted.\n")


def test_interrupted_in_the_middle_and_resumed(tmp_path: Path, oracle: Oracle) -> None:
    oracle.stop_after = 5
    ran = ask(*CELL, "--json", "--quiet")
    assert ran.code == 130 and ran.out == "" and "goes on" in ran.err
    assert told("runs", "list")["run_ids"] == sorted(oracle.asked) and len(oracle.asked) == 5
    oracle.stop_after = None
    resumed = told(*CELL)
    assert resumed["trained_now"] == len(resumed["run_ids"]) - 5
    assert sorted(oracle.asked) == resumed["run_ids"]  # nothing twice
    undisturbed = told(*CELL, "--store", f"sqlite:///{tmp_path}/other.db")
    assert undisturbed.pop("trained_now") != resumed.pop("trained_now") and undisturbed == resumed


def test_a_reader_that_goes_away_is_no_error(oracle: Oracle) -> None:
    for seed in range(3):
        told(*CELL, "--seed", str(seed))
    listing = " ".join([*map(_quoted, COMMAND), "runs", "list", "--json"])
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {listing} | head -1"], env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_outputs_are_no_error(closed: str, oracle: Oracle) -> None:
    told(*CELL)
    listing = " ".join([*map(_quoted, COMMAND), "runs", "list", closed])
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(["bash", "-c", listing], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and bool(done.stdout) is (closed == "2>&-") and "Traceback" not in done.stderr


def _quoted(word: str) -> str:
    return f"'{word}'"


# --- help and dry runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [(), *VERBS])
def test_help(verb: tuple[str, ...]) -> None:
    for argv in ([*verb, "--help"], ["--json", *verb, "--help"], [*verb, "-h"]):
        ran = ask(*argv)
        assert ran.code == 0 and ran.err == "" and "Usage: keyspan " + " ".join(verb) in ran.out


def test_help_names_the_global_options() -> None:
    text = " ".join(ask("--help").out.split())
    for option in ("--json", "--store", "KEYSPAN_STORE", "--device", "--seed", "--quiet", "--dry-run"):
        assert option in text


def test_version() -> None:
    assert ask("--version").out == keyspan.__version__ + "\n"


@pytest.mark.parametrize(
    "verb", [CELL, (*CELL, "--key-budgets", "4,8", "--heads", "1,2"), ("calibrate", "--dimension", "4", "--seeds", "10")]
)
def test_a_dry_run_trains_nothing_and_writes_nothing(verb: tuple[str, ...], here: Path, oracle: Oracle) -> None:
    dry = told(*verb, "--dry-run")
    assert dry["dry_run"] is True and dry["stored"] == 0 and dry["members"] > 0
    assert dry["steps"] > 0 and dry["flops"] > 0 and dry["memory_bytes"] > 0 and dry["seconds"] > 0 and dry["cores"] >= 1
    assert "would train" in ask(*verb, "--dry-run").out
    assert oracle.made == 0 and list(here.iterdir()) == []
    told(*verb)
    again = told(*verb, "--dry-run")
    assert again["stored"] > 0 and again["members"] < dry["members"]


def test_a_dry_run_of_a_hand_out_hands_nothing_out(here: Path, oracle: Oracle) -> None:
    (here / "ring.csv").write_text("".join(f"{i},{(i + 1) % 16}\n" for i in range(16)))
    dry = told(*CELL, "--graph", "ring.csv", "--hand-out", here / "box" / "q.jsonl", "--dry-run")
    assert dry["members"] > 0 and [path.name for path in here.iterdir()] == ["ring.csv"]


def test_a_refused_dry_run_does_nothing(oracle: Oracle) -> None:
    one = told(*CELL)["run_ids"][0]
    assert ask("runs", "remove", one, "--dry-run").code == 2
    assert one in told("runs", "list")["run_ids"]
    assert ask("runs", "remove", "--help", "--dry-run").code == 0


def test_a_dry_run_with_files_writes_nothing(here: Path, oracle: Oracle) -> None:
    (here / "ring.csv").write_text("".join(f"{i},{(i + 1) % 16}\n" for i in range(16)))
    assert told(*CELL, "--graph", "ring.csv", "--dry-run")["members"] > 0
    assert [path.name for path in here.iterdir()] == ["ring.csv"]


def test_single_points_of_a_dry_run_are_counted_exactly(here: Path, oracle: Oracle) -> None:
    argv = (*CELL, "--heads", "1,2", "--key-budgets", "4,8", "--seeds", "5", "--steps", "11", "--dry-run")
    assert {key: told(*argv)[key] for key in ("members", "steps")} == {"members": 20, "steps": 220}


def test_main_takes_the_command_line_when_called_without_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    from keyspan.cli import main

    monkeypatch.setattr(sys, "argv", ["keyspan", "--version"])
    assert main() == 0
