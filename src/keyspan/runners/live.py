"""What runs at this moment: every process that trains says so in a small file beside its store, which readers look at.

The file `live/PID-....json` appears when members begin to be trained, is written anew at most twice a second, and is gone when
the process ends; what a killed process leaves behind is told by its number. Nothing depends on these files.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from keyspan.evidence.record import Record
from keyspan.lab.pack import seconds
from keyspan.runners.driver import Watcher
from keyspan.specs import Run

EVERY = 0.5  # seconds between two writes
STALE = 60.0  # seconds after which a process on another machine counts as gone
LARGEST = 2**16  # bytes of a file that is looked at


class Together(Watcher):
    """Several watchers, told in turn."""

    def __init__(self, *watchers: Watcher) -> None:
        self.watchers = watchers

    def round(self, number: int, runs: Sequence[Run], measured: int) -> None:
        for watcher in self.watchers:
            watcher.round(number, runs, measured)

    def progress(self, run_ids: list[str], step: int, steps: int) -> None:
        for watcher in self.watchers:
            watcher.progress(run_ids, step, steps)

    def finished(self, record: Record) -> None:
        for watcher in self.watchers:
            watcher.finished(record)


class Live(Watcher):
    """Says in a file how far this process is. folder: beside the store"""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "live" / f"{os.getpid()}-{secrets.token_hex(4)}.json"
        self._cost: dict[str, float] = {}
        self._done: dict[str, float] = {}
        self._finished, self._round, self._written = 0, 0, 0.0
        self._about = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "command": " ".join(Path(word).name if k == 0 else word for k, word in enumerate(sys.argv))[:200],
            "started": _now(),
        }

    def round(self, number: int, runs: Sequence[Run], measured: int) -> None:
        """More members are to be trained."""
        self._round = number
        self._cost |= {run.run_id: max(seconds(run), 1e-9) for run in runs}
        self._write(now=True)

    def progress(self, run_ids: list[str], step: int, steps: int) -> None:
        """Members have moved."""
        for run_id in run_ids:
            self._done[run_id] = self._cost.get(run_id, 0.0) * step / max(steps, 1)
        self._write()

    def finished(self, record: Record) -> None:
        """A member has left."""
        self._finished += 1
        self._done[record.run_id] = self._cost.get(record.run_id, 0.0)
        self._write()

    def close(self) -> None:
        """The process is done."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        with suppress(OSError):
            self._path.parent.rmdir()  # if it was the last one

    def _write(self, now: bool = False) -> None:
        moment = time.monotonic()
        if not now and moment - self._written < EVERY:
            return
        self._written = moment
        share = sum(self._done.values()) / max(sum(self._cost.values()), 1e-12)
        told = {"updated": _now(), "round": self._round, "members": len(self._cost), "finished": self._finished}
        text = json.dumps(self._about | told | {"share": round(min(1.0, share), 4)})
        with suppress(OSError):  # a full disk must not end a training
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial = self._path.with_suffix(".part")
            partial.write_text(text, "utf-8")
            os.replace(partial, self._path)


@contextmanager
def watching(folder: Path | None, watcher: Watcher | None) -> Iterator[Watcher | None]:
    """The watcher, and beside it the file that says what goes on, where there is a folder for it."""
    if folder is None:
        yield watcher
        return
    live = Live(folder)
    try:
        yield live if watcher is None else Together(watcher, live)
    finally:
        live.close()


def running(folder: Path | None) -> list[dict[str, Any]]:
    """What the processes beside a store say of themselves, those that are still there, oldest first."""
    if folder is None:
        return []
    found = []
    with suppress(OSError):
        for path in sorted((folder / "live").glob("*.json")):
            told = _read(path)
            if told is not None and _is_there(told, path):
                found.append(told)
    return sorted(found, key=lambda told: str(told["started"]))


FIELDS = {
    "pid": int,
    "host": str,
    "command": str,
    "started": str,
    "updated": str,
    "round": int,
    "members": int,
    "finished": int,
}


def _read(path: Path) -> dict[str, Any] | None:
    """A file's content, if it is as we write it."""
    with suppress(OSError, ValueError, RecursionError):
        if path.stat().st_size <= LARGEST:
            told = json.loads(path.read_text("utf-8"))
            good = isinstance(told, dict) and all(type(told.get(name)) is kind for name, kind in FIELDS.items())
            if good and isinstance(told.get("share"), int | float):
                return {name: told[name] for name in (*FIELDS, "share")}
    return None


def _is_there(told: dict[str, Any], path: Path) -> bool:
    if told["host"] != socket.gethostname():
        with suppress(OSError):
            return time.time() - path.stat().st_mtime < STALE
        return False
    try:
        os.kill(told["pid"], 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return bool(told["pid"] < 2**31)
    return True


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
