"""The scheduler on machines that are not there: `python -m keyspan.bench.scheduler`. Time and cost of sweeps on N workers.

The agenda, the pool and its shards are the real ones; only the workers are made up, and the clock jumps from event to event. A
worker starts for a while, takes shards in turn, and is done with each after the seconds that were measured for such shards. The
driver hears one record at a time. Verdicts are the law's, or those of a sweep that was carried out, so the path of every
search, with its rounds that wait for each other, is that of a real one.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from keyspan.bench.cases import Case
from keyspan.bench.scaling import SEARCHES, Measured, Shard, by_turns, questions_of
from keyspan.evidence.record import make_record
from keyspan.lab.agenda import Agenda
from keyspan.lab.costs import cost
from keyspan.lab.pack import seconds
from keyspan.runners.pool import Fault, Message, Pool, Worker
from keyspan.specs import Question, Run
from keyspan.verdict import Verdict

Time = Callable[[Sequence[Run]], float]  # seconds of a shard on one worker
RECORD = 0.0012  # seconds of the driver for a record: heard, stored, told, the next ones proposed
H200 = {  # (items, d_model, heads, d_key) -> seconds of a member-step on an H200 in bf16 (benchmarks/results/2026-11-19-h200)
    (128, 32, 4, 8): 2.127e-7,  # in a fleet of 2048
    (1024, 128, 16, 16): 1.637e-5,  # of 16
    (4096, 256, 16, 32): 7.80e-4,  # alone
    (8192, 256, 16, 32): 1.734e-3,
    (16384, 256, 16, 32): 6.324e-3,
}
STEP = 1.1e-4  # seconds of a step that no member goes below: one model in a CUDA graph, measured
GPU_START = 15.0  # seconds until a GPU's worker is there: torch, CUDA, the first kernels


@dataclass(eq=False)
class Virtual(Worker):
    """A worker that is not there. free: when it is done with what it holds"""

    free: float = field(kw_only=True, default=0.0)


class Clockwork(Pool[Virtual]):
    """A pool whose workers are events in time. takes: seconds of a shard    start: of a worker    record: of the driver"""

    def __init__(self, jobs: int, takes: Time, verdict: Mapping[str, Verdict], start: float, gpu: bool, record: float) -> None:
        super().__init__("cuda" if gpu else "cpu", jobs, "continue")
        self.takes, self.verdict, self.start, self.record = takes, verdict, start, record
        self.now = self.busy = self.heard = 0.0
        self._events: list[tuple[float, int, Virtual, Message]] = []
        self._order = itertools.count()

    def _at(self, moment: float, worker: Virtual, message: Message) -> None:
        heapq.heappush(self._events, (moment, next(self._order), worker, message))

    def _start(self, slot: int) -> Virtual:
        worker = Virtual(slot, free=self.now + self.start)
        worker.ready = not self._gpu  # a process reads its first shard when it is there
        self._at(worker.free, worker, {"ready": "virtual"})
        return worker

    def _send(self, worker: Virtual, shard: list[Run]) -> None:
        taken = self.takes(shard)
        worker.free = max(self.now, worker.free) + taken
        self.busy += taken
        for run in shard:
            record = make_record(run, self.verdict[run.run_id], steps=0, seconds=0.0, device="virtual")
            self._at(worker.free, worker, {"record": record.to_json()})
        self._at(worker.free, worker, {"idle": True})

    def _hear(self) -> tuple[Virtual, Message | Fault]:
        moment, _, worker, message = heapq.heappop(self._events)
        self.now = max(self.now, moment)
        if "record" in message:
            self.now += self.record
            self.heard += self.record
        return worker, message

    def _dismiss(self, worker: Virtual) -> None:
        """Nobody is there."""


@dataclass(frozen=True)
class Simulated:
    """A sweep on so many workers. busy: share of their time that they had work    driver: share of the time that it had

    path: seconds of the longest chain of rounds, which no number of workers makes shorter    hours: of workers, idle or not
    """

    jobs: int
    members: int
    seconds: float
    busy: float
    driver: float
    path: float
    hours: float


def simulate(
    questions: Sequence[Question],
    jobs: int,
    takes: Time,
    *,
    verdicts: Mapping[str, Verdict] | None = None,
    start: float = 3.0,
    gpu: bool = False,
    record: float = RECORD,
) -> Simulated:
    """Carry out a sweep on workers that are not there. verdicts: of its members, by run id (default: as the law has them)"""
    desk = _Desk(questions, verdicts)
    pool = Clockwork(jobs, takes, desk.verdicts, start, gpu, record)
    desk.appetite = pool.appetite
    members = 0
    while runs := desk.next():
        for found in pool.run(runs, more=desk.next):
            members += 1
            desk.done(found.run_id)
    path = max((_path(question, desk.verdicts, takes) for question in questions), default=0.0)
    spent = max(pool.now, 1e-9)
    shares = pool.busy / (spent * jobs), pool.heard / spent
    return Simulated(jobs, members, pool.now, *shares, start + path, spent * jobs / 3600)


class _Desk:
    """What is wanted next, a little ahead, as `runners.leases.Desk` hands it out where nobody else is there."""

    def __init__(self, questions: Sequence[Question], verdicts: Mapping[str, Verdict] | None) -> None:
        self.appetite = math.inf
        self.agenda = Agenda(questions)
        self._scores = {question.score: question for question in questions}
        self.verdicts: dict[str, Verdict] = dict(verdicts or {})
        self._free: deque[Run] = deque()
        self._ours: dict[str, float] = {}
        self._held = 0.0

    def next(self) -> list[Run]:
        from keyspan.runners.leases import ENOUGH

        taken: list[Run] = []
        if self._held > ENOUGH * self.appetite:
            return taken
        while self._held < self.appetite:
            if not self._free:
                self._free.extend(self._wanted())
            if not self._free:
                break
            while self._free and self._held < self.appetite:
                run = self._free.popleft()
                self._ours[run.run_id] = seconds(run)
                self._held += self._ours[run.run_id]
                taken.append(run)
        return taken

    def _wanted(self) -> list[Run]:
        from keyspan.runners.driver import ENOUGH
        from keyspan.runners.estimate import predicted

        runs = self.agenda.wanted(ENOUGH)
        for run in runs:
            if run.run_id not in self.verdicts:
                expected = [predicted(run, question) for question in self._scores.values()]
                scores = {name: score for verdict in expected for name, score in verdict.scores.items()}
                self.verdicts[run.run_id] = replace(expected[0], scores=scores)
        return runs

    def done(self, run_id: str) -> None:
        self._held -= self._ours.pop(run_id)
        self.agenda.hear(run_id, self.verdicts[run_id])


def _path(question: Question, verdicts: Mapping[str, Verdict], takes: Time) -> float:
    """Seconds of a search whose members of a round all train at the same time, each on a worker of its own."""
    agenda, total = Agenda([question]), 0.0
    while runs := agenda.wanted():
        total += max(takes([run]) for run in runs)
        for run in runs:
            agenda.hear(run.run_id, verdicts[run.run_id])
    return total


# --------------------------------------------------------------------------------------------- how long a shard takes


def as_measured(shards: Sequence[Shard]) -> Time:
    """Shards as these were: by expectation, times the median of what was measured over what was expected, bucket by bucket."""
    by_size = sorted((shard.expected, shard.taken / shard.expected) for shard in shards if shard.expected > 0)
    groups = [by_size[i : i + 8] for i in range(0, len(by_size), 8)]
    points = [(statistics.median(e for e, _ in g), statistics.median(r for _, r in g)) for g in groups]

    def takes(shard: Sequence[Run]) -> float:
        expected = sum(seconds(run) for run in shard)
        return expected * min(points, key=lambda point: abs(math.log(point[0] / expected)))[1]

    return takes


def on_h200() -> Time:
    """Shards on an H200 in bf16: by powers between the sizes that were measured, never below the time of their steps alone.

    What a host does meanwhile (instances, verdicts, compiling) is left out: the times are those of a device that never waits.
    """
    points = sorted((math.log(_core_seconds(size)), math.log(gpu)) for size, gpu in H200.items())

    def takes(shard: Sequence[Run]) -> float:
        total = longest = 0.0
        for run in shard:
            core = cost(run).seconds
            steps = seconds(run) / core
            total += steps * math.exp(_between(points, math.log(core)))
            longest = max(longest, steps)
        return max(total, STEP * longest)

    return takes


def _core_seconds(size: tuple[int, int, int, int]) -> float:
    """Seconds of a member-step on one core, as `lab.costs` has them."""
    items, d_model, heads, d_key = size
    return cost(Case(items, d_model, heads, d_key, 1).run()).seconds


def _between(points: Sequence[tuple[float, float]], x: float) -> float:
    """On the line through the two points next to x; proportional above the last."""
    if x >= points[-1][0]:
        return points[-1][1] + x - points[-1][0]
    (x0, y0), (x1, y1) = next((a, b) for a, b in itertools.pairwise(points) if x < b[0])
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


# --------------------------------------------------------------------------------------------------------- what is asked


def paper(name: str, tier: str) -> list[Question]:
    """The questions of a paper's figures at a tier."""
    from keyspan.papers.reproduce import plan

    return plan(name, tier).questions


def check(rounds: int) -> list[dict[str, Any]]:
    """Real sweeps on one worker and on two, each beside the model that was fed with the shards of all the others."""
    asked = questions_of(SEARCHES)
    found = list(by_turns(asked, [1, 2], rounds))
    return [_beside(asked, one, [other for other in found if other is not one]) for one in found]


def _beside(asked: Sequence[Question], one: Measured, others: Sequence[Measured]) -> dict[str, Any]:
    shards = [shard for other in others for shard in other.shards]
    start = statistics.median(seconds for other in others for seconds in other.starts)
    record = statistics.median(other.driver / other.members for other in others)
    made = simulate(asked, one.jobs, as_measured(shards), verdicts=one.verdicts, start=start, record=record)
    told = {"jobs": one.jobs, "members": one.members, "real": one.seconds, "simulated": made.seconds}
    return told | {"ratio": made.seconds / one.seconds, "load": one.load, "driver_overhead": one.overhead}


def main(argv: list[str] | None = None) -> int:
    """Entry point of `python -m keyspan.bench.scheduler`: a JSON line for every sweep."""
    parser = argparse.ArgumentParser(prog="python -m keyspan.bench.scheduler", description=__doc__.splitlines()[0])
    parser.add_argument("--check", type=int, metavar="ROUNDS", help="real sweeps on 1 and 2 workers beside the model")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 8, 64, 512])
    parser.add_argument("--tier", default="paper")
    parser.add_argument("--papers", nargs="+", default=["adler", "modern"])
    args = parser.parse_args(argv)
    if args.check:
        for row in check(args.check):
            print(json.dumps(row), flush=True)
        return 0
    for name in args.papers:
        asked = paper(name, args.tier)
        for gpus in args.gpus:
            made = simulate(asked, gpus, on_h200(), start=GPU_START, gpu=True)
            print(json.dumps({"figure": name, "tier": args.tier, "questions": len(asked)} | asdict(made)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
