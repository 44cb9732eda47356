"""A search that is interrupted keeps what has finished; two that share a store share its members. Kills: `tests/faults`."""

from __future__ import annotations

import json
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
