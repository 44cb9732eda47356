"""A search killed in the middle keeps what has finished, trains only what is missing, and answers the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from keyspan.evidence.store import open_store

# A test run that was started in the background hands down an ignored Ctrl-C; a user's shell does not.
LISTEN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
MAIN = LISTEN + "import sys; from keyspan.cli import main; sys.exit(main())"
ASKED = ["measure", "relations", "--items", "61", "--d-model", "8", "--heads", "2,4", "--seeds", "2", "--json", "--quiet"]


def start(url: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", MAIN, "--store", url, *ASKED]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    answer: dict[str, Any] = json.loads(out)
    return answer


def lines(url: str) -> dict[str, str]:
    with open_store(url, read_only=True, missing_ok=True) as store:
        return {record.run_id: record.to_line() for record in store.records()}


def command_line(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it has ended meanwhile


def workers_gone(folder: Path) -> None:
    """Workers end by themselves once nobody listens; wait, so that they do not train beside the next search."""
    for _ in range(100):
        if not any(str(folder).encode() in line for line in map(command_line, Path("/proc").glob("[0-9]*/cmdline"))):
            return
        time.sleep(0.1)
    raise AssertionError("workers outlive their driver")


def test_a_killed_search_goes_on(tmp_path: Path) -> None:
    calm, rough = f"sqlite:///{tmp_path}/calm/s.db", f"sqlite:///{tmp_path}/rough/s.db"
    undisturbed = finish(start(calm))
    kept: dict[str, str] = {}
    for number in (1, 3, 5):  # killed once so many members are stored
        process = start(rough)
        while len(lines(rough)) < number and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        workers_gone(tmp_path / "rough")
        now = lines(rough)
        assert kept.items() <= now.items()
        kept = now
    answer = finish(start(rough))
    final = lines(rough)
    assert kept.items() <= final.items(), "every finished record is kept byte for byte"
    assert answer["trained_now"] == len(final) - len(kept)
    assert answer == undisturbed | {"trained_now": answer["trained_now"]}
    weights = [{k: json.loads(v)["provenance"]["weights"] for k, v in lines(url).items()} for url in (calm, rough)]
    assert weights[0] == weights[1], "and no bit of any member is another"


def test_interrupted_it_says_so_and_goes_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    process = start(url)
    while not lines(url) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    kept = lines(url)
    assert kept
    answer = finish(start(url))
    assert answer["trained_now"] == len(lines(url)) - len(kept)


def test_two_processes_share_a_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    pair = [start(url), start(url)]
    answers = [finish(process) for process in pair]
    assert answers[0]["probes"] == answers[1]["probes"]
    assert answers[0]["run_ids"] == sorted(lines(url))
    assert sum(a["trained_now"] for a in answers) == len(lines(url)), "nothing is stored twice"
