"""A driver among others: its heart beats, it sees whose has stopped, and it says which members are in its own hands."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from keyspan.errors import StoreError
from keyspan.evidence.leases import Holder, Leases
from keyspan.evidence.record import Record
from keyspan.evidence.store import Store
from keyspan.lab.pack import seconds
from keyspan.specs import Run

BEAT = 5.0  # seconds between two heartbeats
STILL = 6  # of our own heartbeats during which another's must have stood still before we take it for dead
LOOK = 1.0  # seconds between two looks at what others have finished; more where a look takes long
SHARE = 0.05  # of our time that such looks may take
SLICE = 200  # members taken at once
ENOUGH = 0.7  # of what is wanted in hand: no more is taken as long as there is so much


def myself() -> Holder:
    """This driver. Its id is new every time: two searches of one process are two drivers."""
    pid = os.getpid()
    name = f"{socket.gethostname()}-{pid}-{secrets.token_hex(4)}"
    return Holder(holder=name, host=socket.gethostname(), place=_place(), pid=pid, started=_started(pid) or "")


def _place() -> str:
    """What names the processes that we can see: this boot of this machine, and the container. Empty: nothing does"""
    with suppress(OSError):
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    return ""


def _started(pid: int) -> str | None:
    """When a process was started, in ticks since the boot, so that a number given again is told apart; None: no process"""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] in "ZX" else words[19]  # a zombie does no work


def is_gone(other: Holder) -> bool:
    """Whether a driver's process is known to have ended: it was one of this machine, and it is not there."""
    return bool(other.place) and other.place == _place() and _started(other.pid) != other.started


class Heart:
    """A thread that says that we live, and frees what dead drivers have left.

    A driver of this machine is dead when its process is gone. Another is dead when its beat stood still during `STILL` of
    our own: heartbeats are counted, and no clock is read, so that neither a clock set anew nor a server that was away for a
    while makes anybody look dead.
    """

    def __init__(self, leases: Leases) -> None:
        self.leases = leases
        self._seen: dict[str, tuple[int, int]] = {}  # holder -> its beat, and how often we saw just that
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to beat, at once and from now on."""
        if self._thread is None:
            self.once()
            self._thread = threading.Thread(target=self._beat, daemon=True)
            self._thread.start()

    def _beat(self) -> None:
        while not self._over.wait(BEAT):
            with suppress(StoreError):  # the driver's own next record says what is wrong with the store
                self.once()

    def once(self) -> None:
        """One heartbeat: of ours, and a look at the others'."""
        seen: dict[str, tuple[int, int]] = {}
        for other in self.leases.beat():
            beat, times = self._seen.get(other.holder, (other.beat, 0))
            times = times + 1 if beat == other.beat else 0
            if is_gone(other) or times >= STILL:
                self.leases.free(other)
            else:
                seen[other.holder] = other.beat, times
        self._seen = seen

    def stop(self) -> None:
        """Beat no more, and give back what we have in hand."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self.leases.leave()


class Desk:
    """Which members are whose: wanted and free, in our hands, in those of other drivers on the same store.

    wanted: the members that the questions want next    heard: told of a record that another driver has made
    We take members as we can use them, a little ahead (`appetite`: seconds of one core), so that others find some too.
    """

    def __init__(self, store: Store, wanted: Callable[[], Sequence[Run]], heard: Callable[[Record], None]) -> None:
        self.store, self.wanted, self.heard = store, wanted, heard
        self.appetite: float | None = None
        self.leases = Leases(store, myself())
        self.heart = Heart(self.leases)
        self._free: deque[Run] = deque()
        self._ours: dict[str, float] = {}
        self._held = 0.0
        self._theirs: dict[str, Run] = {}
        self._look_at = 0.0

    @property
    def waiting(self) -> bool:
        """Whether other drivers have members in hand that we need."""
        return bool(self._theirs)

    def next(self) -> list[Run]:
        """Members to begin now."""
        if self._theirs and time.monotonic() >= self._look_at:
            self._look()
        taken: list[Run] = []
        if self.appetite is not None and self._held > ENOUGH * self.appetite:
            return taken  # a little at a time would cost a transaction each
        while self.appetite is None or self._held < self.appetite:
            if not self._free:
                self._free.extend(self.wanted())
            if not self._free:
                break
            taken += self._take()
        return taken

    def _take(self) -> list[Run]:
        self.heart.start()
        asked: dict[str, Run] = {}
        held = self._held
        while self._free and len(asked) < SLICE and (self.appetite is None or held < self.appetite):
            run = self._free.popleft()
            asked[run.run_id] = run
            held += seconds(run)
        granted = self.leases.take(list(asked))
        for run_id, run in asked.items():
            if run_id in granted:
                self._ours[run_id] = seconds(run)
                self._held += self._ours[run_id]
            else:
                self._theirs[run_id] = run
        return [run for run_id, run in asked.items() if run_id in granted]

    def done(self, run_id: str) -> None:
        """A member of ours has finished and is stored."""
        self._held -= self._ours.pop(run_id, 0.0)
        if not self._ours:
            self._held = 0.0  # no sum of rounding errors

    def _look(self) -> None:
        """Hear what others have finished; what nobody has in hand any more is free again."""
        began = time.monotonic()
        held = self.leases.held(list(self._theirs))
        found: Mapping[str, Record] = self.store.get_many(self._theirs)
        for run_id, record in found.items():
            del self._theirs[run_id]
            self.heard(record)
        left = [run_id for run_id in self._theirs if run_id not in held]
        self._free.extendleft(self._theirs.pop(run_id) for run_id in reversed(left))
        now = time.monotonic()
        self._look_at = now + max(LOOK, (now - began) / SHARE)

    def close(self) -> None:
        """Give back what is left in our hands."""
        self.heart.stop()
