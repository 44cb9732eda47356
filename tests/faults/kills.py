"""SIGKILL at random moments of a sweep: real processes, and nothing repaired by hand.

An episode is one sweep on a store of its own. Its driver is started, something is killed at a moment drawn at random, and it
is started again, until it ends by itself. After every kill each record that was there must be there still, byte for byte;
at the end each member has one record, with the bits and the answers of a sweep that nobody disturbed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from keyspan.evidence.store import open_store

# A test run that was started in the background hands down an ignored Ctrl-C; a user's shell does not.
LISTEN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
MAIN = LISTEN + "import sys; from keyspan.cli import main; sys.exit(main())"
SWEEP = """
name = "kills"
[[grid]]
seeds = 2
steps = 300
heads = [1, 2]
each.items = [12, 16, 20, 24]
each.d_model = [4, 8]
[[grid]]
family = "dichotomies"
each.dimension = [4, 6]
seeds = 10
"""
SESSIONS = 40  # starts of one episode; so many kills in a row and no end would be an endless sweep


@dataclass(frozen=True)
class Kill:
    """One kill. what: all (driver and workers), driver, worker    after: seconds after the start

    stored: records at that moment    when: begun (nothing stored by this start yet), working, ended (it was over by itself)
    """

    date: str
    episode: int
    start: int
    what: str
    after: float
    when: str
    stored: int
    members: int


@dataclass(frozen=True)
class Calm:
    """What an undisturbed sweep came to."""

    answer: dict[str, Any]
    bits: dict[str, tuple[str, str]]
    seconds: float


def begin(url: str, file: Path, jobs: int, *more: str, before: Sequence[str] = (), **env: str) -> subprocess.Popen[str]:
    """Start a sweep. before: words before the command's own, such as another program's that starts it"""
    words = ["sweep", str(file), "--store", url, "--json", "--quiet", "--jobs", str(jobs), *more]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    return subprocess.Popen([*before, sys.executable, "-c", MAIN, *words], env={**os.environ, **env}, **pipes)


def lines(url: str) -> dict[str, str]:
    """Every record as it is stored; one a member, or this fails."""
    with open_store(url, read_only=True, missing_ok=True) as store:
        found = [(record.run_id, record.to_line()) for record in store.records(copies=True)]
    assert len(dict(found)) == len(found), "a member was stored twice"
    return dict(found)


def bits_of(stored: dict[str, str]) -> dict[str, tuple[str, str]]:
    """What must be equal however often a sweep was killed: the verdict and the digest of the weights."""
    records = {run_id: json.loads(line) for run_id, line in stored.items()}
    return {i: (json.dumps(r["verdict"], sort_keys=True), r["provenance"]["weights"]) for i, r in records.items()}


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The answer of a sweep that nobody disturbs."""
    out, err = process.communicate(timeout=900)
    assert process.returncode == 0, err
    assert out.startswith("{"), f"one JSON document and nothing else, not {out[:500]!r}"
    answer: dict[str, Any] = json.loads(out)
    return {name: value for name, value in answer.items() if name != "trained_now"}


def undisturbed(folder: Path, text: str = SWEEP) -> Calm:
    """The sweep that all others are held to."""
    file = folder / "kills.toml"
    file.write_text(text)
    url = f"sqlite:///{folder}/calm/s.db"
    began = time.monotonic()
    answer = finish(begin(url, file, 1))
    return Calm(answer, bits_of(lines(url)), time.monotonic() - began)


def workers_of(pid: int) -> list[int]:
    """The processes that a driver has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


def strike(process: subprocess.Popen[str], what: str) -> bool:
    """Kill. returns: whether there was anything to be killed"""
    if process.poll() is not None:
        return False
    workers = workers_of(process.pid)
    victims = {"all": [process.pid, *workers], "driver": [process.pid], "worker": workers[:1]}[what]
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(victims)


def episode(number: int, folder: Path, calm: Calm, draws: random.Random, jobs: int, most: int = 1000) -> Iterator[Kill]:
    """Kill a sweep until it ends by itself, and hold what it leaves to the undisturbed one. yields: every kill

    most: kills, after which it is left alone
    """
    home = folder / f"rough-{number}"
    url, file = f"sqlite:///{home}/s.db", folder / "kills.toml"
    kept: dict[str, str] = {}
    kills = 0
    for start in range(SESSIONS):
        process, began = begin(url, file, jobs), time.monotonic()
        worker_too = draws.random() < 0.25  # at most one a start: a member that dies three times counts as too large
        for what in ((["worker"] if worker_too else []) + [draws.choice(["all", "driver"])])[: most - kills]:
            _wait(process, url, len(kept), calm.seconds, draws)
            after = time.monotonic() - began
            if not strike(process, what):
                continue
            if what != "worker":
                process.communicate()
            now = lines(url)
            assert kept.items() <= now.items(), "a record that was stored is gone or has changed"
            when = "working" if len(now) > len(kept) else "begun"
            stamp = datetime.now(UTC).isoformat(timespec="seconds")
            kills += 1
            yield Kill(stamp, number, start, what, round(after, 2), when, len(now), len(calm.bits))
            kept = now
        if process.returncode is None or process.returncode != -signal.SIGKILL:
            answer = finish(process)
            final = lines(url)
            assert kept.items() <= final.items()
            assert answer == calm.answer, "the answers are those of the undisturbed sweep"
            assert bits_of(final) == calm.bits, "and so is every bit of every member"
            assert not list((home / "checkpoints").glob("*.safetensors")), "no checkpoint is left of a member that is stored"
            return
    raise AssertionError("a sweep that is killed must come to an end")


def _wait(process: subprocess.Popen[str], url: str, kept: int, whole: float, draws: random.Random) -> None:
    """Half of the moments are anywhere in the time of a whole sweep, half soon after something new was stored."""
    if draws.random() < 0.5:
        until = time.monotonic() + draws.uniform(0, whole)
        while time.monotonic() < until and process.poll() is None:
            time.sleep(0.01)
        return
    while process.poll() is None and count(url) <= kept:
        time.sleep(0.05)
    time.sleep(draws.uniform(0, 0.5))


def count(url: str) -> int:
    """How many records there are."""
    with open_store(url, read_only=True, missing_ok=True) as store:
        return store.count()
