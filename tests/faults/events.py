"""What else can befall a sweep: a full disk, a server or a cluster that dies, other users, clocks, too little memory.

Each event is a function of a folder and of the undisturbed sweep. It returns what was seen, and fails when anything was lost,
was stored twice, or came out differently.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.contracts.postgres_cluster import running_cluster
from tests.faults.kills import SWEEP, Calm, begin, bits_of, count, finish, lines

from keyspan.errors import StoreError

SOURCES = Path(__file__).resolve().parents[2] / "src"
JUMPS = """
import datetime as module, random, time
real = time.time
def jump(): return random.choice((-1e9, -86400.0, -1.0, 0.0, 1.0, 86400.0, 1e8))
time.time = lambda: real() + jump()
class Jumping(module.datetime):
    @classmethod
    def now(cls, tz=None): return module.datetime.fromtimestamp(time.time(), tz)
module.datetime = Jumping
"""


@dataclass(frozen=True)
class Event:
    """What happened, and what was seen of it."""

    date: str
    event: str
    seconds: float
    seen: str


def happen(name: str, folder: Path, calm: Calm) -> Event:
    """One event, in a folder of its own."""
    home = folder / name.replace(" ", "-")
    home.mkdir()
    (home / "kills.toml").write_text(SWEEP)
    began = time.monotonic()
    seen = EVENTS[name](home, calm)
    stamp = datetime.now(UTC).isoformat(timespec="seconds")
    return Event(stamp, name, round(time.monotonic() - began, 1), seen)


def is_calm(url: str, answer: dict[str, Any], calm: Calm) -> str:
    """Check that a sweep came out as the undisturbed one."""
    final = lines(url)
    assert bits_of(final) == calm.bits, "every member once, with the same bits"
    assert answer == calm.answer, "the same answers"
    return f"{len(final)} records, each once, bits and answers equal"


def until(url: str, process: subprocess.Popen[str], number: int) -> None:
    """Wait until so many records are stored."""
    while count(url) < number and process.poll() is None:
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()


# ----------------------------------------------------------------------------------------------------------- disks


def full_disk(home: Path, calm: Calm) -> str:
    """A small tmpfs that fills up in the middle of the sweep, and is made larger afterwards."""
    disk = home / "disk"
    disk.mkdir()
    with _mounted(disk, "700k"):
        url = f"sqlite:///{disk}/s.db"
        process = begin(url, home / "kills.toml", 1)
        _, err = process.communicate(timeout=900)
        assert process.returncode == 2 and err.startswith("keyspan: ") and err.count("\n") == 1, (process.returncode, err)
        kept = lines(url)
        assert 0 < len(kept) < len(calm.bits)
        subprocess.run(["mount", "-o", "remount,size=100m", str(disk)], check=True)
        answer = finish(begin(url, home / "kills.toml", 1))
        assert kept.items() <= lines(url).items()
        return f"{err.strip()!r} after {len(kept)} records; with more room: {is_calm(url, answer, calm)}"


@contextmanager
def _mounted(folder: Path, size: str) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def damaged_stores(home: Path, calm: Calm) -> str:
    """Truncated, and with flipped bits: what is read is what was written, or it is refused in one line."""
    url = f"sqlite:///{home}/s.db"
    finish(begin(url, home / "kills.toml", 1))
    whole, draws = (home / "s.db").read_bytes(), random.Random(7)
    good = lines(url)
    tally = {"read whole": 0, "refused": 0}
    hurt = home / "hurt.db"
    for number in range(1000):
        data = bytearray(whole)
        if number % 4 == 0:
            del data[draws.randrange(1, len(data)) :]
        else:
            for _ in range(draws.choice((1, 1, 8))):
                at = draws.randrange(len(data))
                data[at] ^= 1 << draws.randrange(8)
        for leftover in ("-wal", "-shm"):
            Path(f"{hurt}{leftover}").unlink(missing_ok=True)
        hurt.write_bytes(data)
        try:
            found = lines(f"sqlite:///{hurt}")
        except StoreError as error:
            said = str(error)
            tally["refused"] += 1
        else:
            said = ""
            assert found == good, "what was read is not what was written"
            tally["read whole"] += 1
        assert "\n" not in said
    return f"1000 damaged files: {tally['refused']} refused in one line, {tally['read whole']} read whole"


# -------------------------------------------------------------------------------------------- servers and clusters


def postgres_restarts(home: Path, calm: Calm) -> str:
    """A PostgreSQL server is stopped in an orderly way, then killed, in the middle of a sweep; it comes back after a while."""
    with running_cluster() as cluster:
        cluster.make_schema("s")
        url = cluster.url("s")
        process = begin(url, home / "kills.toml", 1)
        for number, way in ((20, signal.SIGINT), (120, signal.SIGQUIT)):
            until(url, process, number)
            cluster.stop(way)
            time.sleep(1.5)
            cluster.start()
        answer = finish(process)
        return f"stopped by SIGINT and by SIGQUIT, back after 1.5 s; {is_calm(url, answer, calm)}"


def ray_dies(home: Path, calm: Calm) -> str:
    """A Ray cluster of two nodes: first a worker's process is killed, then the raylet of a node."""
    import ray
    from ray.cluster_utils import Cluster

    patient = {"RAY_raylet_start_wait_time_s": "300", "RAY_worker_niceness": "0"}  # on a busy machine, too
    os.environ |= {"PYTHONPATH": str(SOURCES), "RAY_USAGE_STATS_ENABLED": "0"} | patient
    small = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=small)
    second = cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    url = f"sqlite:///{home}/s.db"
    try:
        process = begin(url, home / "kills.toml", 2, "--runner", "ray", "--address", cluster.address)
        until(url, process, 1)
        victims = _actors()
        os.kill(victims[0], signal.SIGKILL)
        until(url, process, len(calm.bits) // 3)
        left = count(url)
        cluster.remove_node(second, allow_graceful=False)
        answer = finish(process)
        seen = is_calm(url, answer, calm)
    finally:
        with suppress(Exception):
            cluster.shutdown()  # type: ignore[no-untyped-call]
        ray.shutdown()
    return f"a worker of {len(victims)} killed, then one of two raylets after {left} records; {seen}"


def _actors() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().startswith(b"ray::Trainer"):
                found.append(int(path.parent.name))
    return found


# ---------------------------------------------------------------------------------------------- users, clocks, memory


def two_users(home: Path, calm: Calm) -> str:
    """Two drivers on one store at a time; one of them is killed, and both answers must be whole."""
    url = f"sqlite:///{home}/s.db"
    one, two = (begin(url, home / "kills.toml", 1) for _ in range(2))
    until(url, one, 30)
    one.kill()
    one.communicate()
    answer = finish(two)
    seen = is_calm(url, answer, calm)
    again = finish(begin(url, home / "kills.toml", 1))
    assert again == answer
    return f"one of two drivers killed: {seen}"


def clocks_jump(home: Path, calm: Calm) -> str:
    """Every look at the clock of day, in driver and worker, is off by up to thirty years, to either side."""
    (home / "sitecustomize.py").write_text(JUMPS)
    url = f"sqlite:///{home}/s.db"
    path = f"{home}:{SOURCES}"
    pair = [begin(url, home / "kills.toml", 1, PYTHONPATH=path) for _ in range(2)]
    answers = [finish(process) for process in pair]
    assert answers[0] == answers[1]
    stamps = {json.loads(line)["provenance"]["created"][:4] for line in lines(url).values()}
    assert len(stamps) > 1, "the clocks did jump"
    return f"two drivers with clocks that jump, in the years {min(stamps)} to {max(stamps)}: {is_calm(url, answers[0], calm)}"


LARGE = """
[[grid]]
seeds = 1
steps = 1
heads = [4096]
key_budgets = [262144]
items = 2000
d_model = 8
"""


def memory_runs_out(home: Path, calm: Calm) -> str:
    """Workers may have 3 GiB; one cell does not fit. It is recorded as out of memory, the others are as they were."""
    (home / "large.toml").write_text(SWEEP + LARGE)
    url = f"sqlite:///{home}/s.db"
    limited = [sys.executable, "-c", LIMITED]
    process = begin(url, home / "large.toml", 1, before=limited)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 3, (process.returncode, err)
    answer = json.loads(out)
    final = bits_of({i: line for i, line in lines(url).items() if i in calm.bits})
    assert final == calm.bits and answer["failed"] == 1 and answer["done"] == calm.answer["done"]
    large = [json.loads(line)["verdict"]["status"] for i, line in lines(url).items() if i not in calm.bits]
    assert large == ["out_of_memory"], large
    return f"one member out_of_memory, the other {len(final)} with equal bits, exit code 3"


LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30,) * 2)
os.execv(sys.argv[1], sys.argv[1:])
"""

EVENTS: dict[str, Callable[[Path, Calm], str]] = {
    "full disk": full_disk,
    "damaged stores": damaged_stores,
    "PostgreSQL restarts": postgres_restarts,
    "Ray worker and raylet": ray_dies,
    "two users": two_users,
    "clocks jump": clocks_jump,
    "memory runs out": memory_runs_out,
}
