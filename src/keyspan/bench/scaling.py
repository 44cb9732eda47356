"""A sweep on real workers, timed: `python -m keyspan.bench.scaling`. What two workers bring, and what the driver costs.

One sweep is carried out again and again, each time into a store of its own, on one worker and on two by turns. Its members,
verdicts and weights are equal every time. A shard's seconds feed the model of the scheduler (`scheduler`).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from keyspan.errors import RunnerError
from keyspan.files.contents import Contents
from keyspan.lab.pack import seconds
from keyspan.runners.local import LocalRunner, Process
from keyspan.runners.pool import Fault, Message
from keyspan.specs import Question, Run
from keyspan.verdict import Verdict

SEARCHES = b"""
name = "searches"
[[grid]]
seeds = 3
heads = [1, 2, 4]
each.items = [48, 64, 80]
each.d_model = [8, 12, 16]
"""
POINTS = b"""
name = "points"
[[grid]]
items = 48
d_model = 8
heads = [2]
key_budgets = [8]
seeds = 1
each.seed = { from = 0, to = LAST, step = 1 }
"""
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Shard:
    """A shard on a worker. expected: seconds that `lab.pack` says, on one core    taken: seconds    cpu: of computing"""

    members: int
    expected: float
    taken: float
    cpu: float


@dataclass(frozen=True)
class Measured:
    """A sweep on so many workers. starts: seconds until a worker was there    driver, workers: seconds of computing

    load: of the machine, as it was before
    """

    jobs: int
    members: int
    seconds: float
    starts: tuple[float, ...]
    driver: float
    workers: float
    load: float
    shards: tuple[Shard, ...] = field(repr=False)
    verdicts: Mapping[str, Verdict] = field(repr=False)
    bits: Mapping[str, str] = field(repr=False)

    @property
    def overhead(self) -> float:
        """The driver's share of all computing."""
        return self.driver / (self.driver + self.workers)

    def to_dict(self) -> dict[str, Any]:
        """As JSON, without verdicts and weights."""
        told = {k: v for k, v in asdict(self).items() if k not in ("verdicts", "bits")}
        return told | {"members_per_second": self.members / self.seconds, "driver_overhead": self.overhead}


class Timed(LocalRunner):
    """Local workers, and how long each shard took."""

    def __init__(self, jobs: int, folder: Path) -> None:
        super().__init__("cpu", jobs, folder)
        self.starts: list[float] = []
        self.shards: list[Shard] = []
        self._begun: dict[int, float] = {}
        self._sent: dict[int, _Sent] = {}

    def _start(self, slot: int) -> Process:
        worker = super()._start(slot)
        self._begun[id(worker)] = time.monotonic()
        return worker

    def _send(self, worker: Process, shard: list[Run]) -> None:
        self._sent[id(worker)] = _Sent(len(shard), sum(seconds(run) for run in shard), worker.process.pid)
        super()._send(worker, shard)

    def _hear(self) -> tuple[Process, Message | Fault]:
        worker, message = super()._hear()
        sent = self._sent.get(id(worker))
        if not isinstance(message, Fault):
            if "ready" in message:
                self.starts.append(time.monotonic() - self._begun[id(worker)])
                if sent:  # it was given while the worker was still starting
                    self._sent[id(worker)] = _Sent(sent.members, sent.expected, worker.process.pid)
            elif "record" in message and sent and sent.is_last():
                self.shards.append(sent.over())
        return worker, message


class _Sent:
    """A shard in work."""

    def __init__(self, members: int, expected: float, pid: int) -> None:
        self.members, self.expected, self.left, self._pid = members, expected, members, pid
        self._began, self._computed = time.monotonic(), _cpu(pid)

    def is_last(self) -> bool:
        """A member has finished; whether it was the last."""
        self.left -= 1
        return self.left == 0

    def over(self) -> Shard:
        """What it took."""
        return Shard(self.members, self.expected, time.monotonic() - self._began, _cpu(self._pid) - self._computed)


def _cpu(pid: int) -> float:
    """Seconds that a process has computed so far; 0 where the system does not say."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / TICK


def questions_of(text: bytes, cells: int = 0) -> list[Question]:
    """The questions of one of the sweeps above."""
    from keyspan.runners.sweeps import read_sweep  # the bench itself starts where there is no store, this does not

    return read_sweep(text.replace(b"LAST", str(cells - 1).encode()), "x.toml", Path(), 0, Contents(None)).asked


def measure(questions: Sequence[Question], jobs: int, folder: Path) -> Measured:
    """Carry out a sweep into a new store, on so many workers."""
    from keyspan.evidence.store import open_store
    from keyspan.runners import driver

    load, own, theirs = os.getloadavg()[0], _used(resource.RUSAGE_SELF), _used(resource.RUSAGE_CHILDREN)
    runner = Timed(jobs, folder)
    began = time.monotonic()
    with (
        open_store(f"sqlite:///{folder}/store.db") as store,
        closing(driver.answers(questions, store, lambda: runner)) as found,
    ):
        for _ in found:
            pass
        taken = time.monotonic() - began
        found.close()
        records = list(store.records())
    return Measured(
        jobs=jobs,
        members=len(records),
        seconds=taken,
        starts=tuple(runner.starts),
        driver=_used(resource.RUSAGE_SELF) - own,
        workers=_used(resource.RUSAGE_CHILDREN) - theirs,
        load=load,
        shards=tuple(runner.shards),
        verdicts={record.run_id: record.verdict for record in records},
        bits={record.run_id: str(record.provenance["weights"]) for record in records},
    )


def _used(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def by_turns(questions: Sequence[Question], workers: Sequence[int], rounds: int) -> Iterator[Measured]:
    """The sweep on each of these numbers of workers, by turns. Members that differ are an error."""
    first: Measured | None = None
    for _ in range(rounds):
        for jobs in workers:
            with tempfile.TemporaryDirectory(prefix="keyspan-scaling-") as name:
                found = measure(questions, jobs, Path(name))
            first = first or found
            if (found.verdicts, found.bits) != (first.verdicts, first.bits):
                raise RunnerError("Every number of workers must give the same members, but got others. Report it.")
            yield found


def main(argv: list[str] | None = None) -> int:
    """Entry point of `python -m keyspan.bench.scaling`: a JSON line for every sweep carried out."""
    parser = argparse.ArgumentParser(prog="python -m keyspan.bench.scaling", description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cells", type=int, help="so many cells of one member each, instead of searches")
    args = parser.parse_args(argv)
    asked = questions_of(POINTS, args.cells) if args.cells else questions_of(SEARCHES)
    for found in by_turns(asked, args.workers, args.rounds):
        print(json.dumps({k: v for k, v in found.to_dict().items() if k != "shards"}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
