"""Peak memory of what reads a large store: `runs list`, `report`, the page. Measured in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.request import urlopen

from tests.browser.made import many

from keyspan.evidence.store import open_store

MAIN = "import sys; from keyspan.cli import main; sys.exit(main())"


@dataclass(frozen=True)
class Peak:
    """A command on a store of so many runs. mib: the most memory its process had    cpu: seconds of computing"""

    date: str
    runs: int
    store_mb: float
    command: str
    mib: float
    cpu: float


def peaks(folder: Path, runs: int) -> list[Peak]:
    """Make a store of so many runs and read it in every way."""
    url = f"sqlite:///{folder}/many.db"
    with open_store(url) as store:
        store.put_all(many(runs))
    size = (folder / "many.db").stat().st_size / 1e6
    found = [_told(runs, size, name, *_once(words)) for name, words in _commands(url, folder)]
    return [*found, _told(runs, size, "ui", *_page(url, runs))]


def _told(runs: int, size: float, name: str, mib: float, cpu: float) -> Peak:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Peak(now, runs, round(size, 1), name, round(mib, 1), round(cpu, 2))


def _commands(url: str, folder: Path) -> list[tuple[str, Sequence[str]]]:
    store = ("--store", url)
    return [
        ("doctor", ("doctor", *store)),  # what any command takes
        ("runs list", ("runs", "list", *store)),
        ("runs list --json", ("runs", "list", "--json", *store)),
        ("runs export", ("runs", "export", f"{folder}/all.jsonl", *store)),
        ("report", ("report", "--out", f"{folder}/report.html", *store)),
    ]


def _once(words: Sequence[str]) -> tuple[float, float]:
    process = subprocess.Popen([sys.executable, "-c", MAIN, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    assert process.returncode == 0, said
    return used.ru_maxrss / 1024, used.ru_utime + used.ru_stime


def _page(url: str, runs: int) -> tuple[float, float]:
    """The page once it has read the whole store and shown a cell, a run and the ledger."""
    words = ["ui", "--json", "--store", url]
    process = subprocess.Popen([sys.executable, "-c", MAIN, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    text = ""
    while not text.endswith("}\n"):
        text += process.stdout.readline().decode()
    page = json.loads(text)["url"]

    def asked(path: str) -> dict[str, object]:
        with urlopen(page + path, timeout=600) as answer:
            return dict(json.loads(answer.read()))

    while asked("api/state")["runs"] != runs:
        time.sleep(0.2)
    cells = asked("api/cells?limit=1")["cells"]
    assert isinstance(cells, list)
    asked(f"api/cells/{cells[0]['id']}")
    asked(f"api/cells/{cells[0]['id']}/runs")
    asked("api/ledger")
    process.send_signal(signal.SIGINT)
    process.stdout.close()
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    return used.ru_maxrss / 1024, used.ru_utime + used.ru_stime
