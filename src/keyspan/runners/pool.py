"""Workers fed shard by shard: who holds what, and what becomes of the members of one that fails.

A worker trains a shard and tells of every member as it finishes. What a failed one held goes back to the queue, member by
member, to other workers where there are others, so that the member that fails is told from the worker that does. A member
that has failed three times is given up; a worker that fails many times in a row is retired, unless it is the last.
What a worker is, a process or an actor of a cluster, a pool of its own kind says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from keyspan.errors import BadInput, RunnerError, shown
from keyspan.evidence.record import Record, make_record
from keyspan.lab.pack import shards
from keyspan.specs import Run
from keyspan.verdict import Status, Verdict

Progress = Callable[[list[str], int, int], None]
Message = Mapping[str, Any]
ON_ERROR = ("stop", "continue")
ON_GPUS = ("tf32", "bf16")  # arithmetics that only a GPU trains in
TRIES = 3  # of a member
RETIRE = 5  # failures of a worker in a row, of members that fail nowhere else
AHEAD = 20.0  # seconds of work that a worker wants in hand: enough to share it out well, and to leave some to other drivers
GPU_SPEED = 300.0  # about how many cores a GPU is worth, for that
GPU_SHARDS = 8  # that a GPU's worker holds at once: it knows best what goes together


@dataclass(eq=False)
class Worker:
    """A worker and the members it holds. slot: its place in the pool, which its successor takes over

    ready: whether it may be given something; a process reads it when it is there, an actor may wait for a machine
    """

    slot: int
    holding: dict[str, Run] = field(default_factory=dict)
    ready: bool = True


W = TypeVar("W", bound=Worker)


@dataclass(frozen=True)
class Fault:
    """Why a worker did not finish. memory: the system, or the cluster, killed it    dead: it is no more

    asked: what it was asked is what is wrong, and it says so in words for the user    useless: no successor would do better
    """

    why: str
    memory: bool = False
    dead: bool = True
    asked: bool = False
    useless: bool = False


class Pool(ABC, Generic[W]):
    """Workers of one kind. on_error: `stop` raises when a member is given up, `continue` records it as crashed"""

    def __init__(self, device: str, jobs: int | None, on_error: str) -> None:
        if on_error not in ON_ERROR:
            raise BadInput(f"`--on-error` must be {'|'.join(ON_ERROR)}, but got {shown(on_error)}. Choose one.")
        self.device, self.jobs, self.on_error = device, jobs, on_error
        self.stored: set[str] = set()  # members whose records their workers have put into the store themselves
        self._gpu = device == "cuda"
        self._slots: list[int] = []
        self._workers: list[W] = []
        self._waiting: deque[list[Run]] = deque()
        self._failed: Counter[str] = Counter()
        self._refused: dict[str, set[int]] = defaultdict(set)  # by whom a member was failed
        self._blamed: dict[int, list[set[str]]] = defaultdict(list)  # failures in a row, with the members held then

    # ------------------------------------------------------------------------------------------ said by the kind

    @abstractmethod
    def _start(self, slot: int) -> W:
        """Start a worker."""

    @abstractmethod
    def _send(self, worker: W, shard: list[Run]) -> None:
        """Give a worker a shard. If it has died meanwhile, its end will be heard."""

    @abstractmethod
    def _hear(self) -> tuple[W, Message | Fault]:
        """Wait for what any worker says, or for its end."""

    @abstractmethod
    def _dismiss(self, worker: W) -> None:
        """Let go of a worker, dead or alive."""

    def _count(self) -> int:
        """How many workers there shall be, where nobody has said; the pool may start one and ask it."""
        return 1

    # ----------------------------------------------------------------------------------------------- the work

    @property
    def appetite(self) -> float:
        """Seconds of one core that this runner wants in hand."""
        return AHEAD * (self.jobs or 1) * (GPU_SPEED if self._gpu or self.jobs is None else 1.0)

    def run(
        self,
        runs: Sequence[Run],
        progress: Progress = lambda ids, step, steps: None,
        more: Callable[[], Sequence[Run]] = lambda: (),
    ) -> Iterator[Record]:
        """Train and judge members, yielding a record as each finishes, in any order. more: asked after every record"""
        self.jobs = self.jobs or self._count()
        self._slots = self._slots or list(range(self.jobs))
        self._failed.clear()
        self._refused.clear()
        self._waiting = deque(self._cut(runs))
        self._busy()
        while self._waiting or any(w.holding for w in self._workers):
            worker, message = self._hear()
            if isinstance(message, Fault):
                yield from self._fail(worker, message)
            elif "record" in message:
                record = Record.from_json(message["record"])
                worker.holding.pop(record.run_id, None)
                self._blamed[worker.slot].clear()
                if message.get("stored"):
                    self.stored.add(record.run_id)
                yield record
                self._waiting.extend(self._cut(more()))
                self._busy()
            elif "progress" in message:
                p = message["progress"]
                progress(p["run_ids"], p["step"], p["steps"])
            elif "error" in message:
                fault = Fault(str(message["error"]), dead=False, asked=True, useless=bool(message.get("fatal")))
                yield from self._fail(worker, fault)
            elif "ready" in message:
                worker.ready = True
                self._hand(worker)
            elif "idle" in message:
                self._hand(worker)

    def _cut(self, runs: Sequence[Run]) -> list[list[Run]]:
        return shards(runs, self.jobs or 1, split=not (self._gpu and self.jobs == 1))

    def _busy(self) -> None:
        """Give every worker that has nothing to do a shard; start those that are missing and would have one."""
        for worker in self._workers:
            self._hand(worker)
        manned = {worker.slot for worker in self._workers}
        for slot in [slot for slot in self._slots if slot not in manned]:
            if any(self._may(slot, shard) for shard in self._waiting):
                worker = self._start(slot)
                self._workers.append(worker)
                self._hand(worker)

    def _hand(self, worker: W) -> None:
        """Give a worker its next shard, if it has none. A GPU's takes some ahead; the only one takes all there are."""
        alone = self._gpu and self.jobs == 1
        if not worker.ready or (worker.holding and (not alone or self._is_suspect(worker.holding))):
            return
        for _ in range(self._room(alone)):
            shard = self._next(worker)
            if shard is None:
                return
            worker.holding |= shard
            self._send(worker, list(shard.values()))
            if self._is_suspect(shard):
                return

    def _room(self, alone: bool) -> int:
        """How many shards a worker may take at once."""
        if not self._gpu:
            return 1
        return len(self._waiting) if alone else min(GPU_SHARDS, -(-len(self._waiting) // max(1, len(self._slots))))

    def _is_suspect(self, members: Iterable[str]) -> bool:
        """Whether one of these has failed before: it is trained alone."""
        return any(self._failed[run_id] for run_id in members)

    def _may(self, slot: int, shard: Iterable[Run]) -> bool:
        """Whether a worker of this place may have a shard: one that it has not failed, unless all that are there have.

        A worker that waits for a machine is not there: a cluster that has shrunk may never have one for it.
        """
        refused = [by for run in shard if (by := self._refused.get(run.run_id))] if self._refused else []
        there = set(self._slots) - {worker.slot for worker in self._workers if not worker.ready} if refused else set()
        return all(slot not in by or there <= by for by in refused)

    def _next(self, worker: W) -> dict[str, Run] | None:
        """The first shard that waits and that this worker may have."""
        for place, runs in enumerate(self._waiting):
            if self._may(worker.slot, runs):
                shard = {run.run_id: run for run in runs}
                if worker.holding and self._is_suspect(shard):
                    continue
                del self._waiting[place]
                return shard
        return None

    # ------------------------------------------------------------------------------------------------ failing

    def _fail(self, worker: W, fault: Fault) -> Iterator[Record]:
        """A worker did not finish: give its members to others, apart, so that the one that fails is found."""
        held, worker.holding = worker.holding, {}
        if fault.asked and (fault.useless or self.on_error == "stop"):
            raise BadInput(fault.why)
        if fault.dead:
            self._workers.remove(worker)
            self._dismiss(worker)
        if fault.useless:
            raise RunnerError(fault.why)
        self._blame(worker.slot, held)
        for run_id, run in held.items():
            self._failed[run_id] += 1
            self._refused[run_id].add(worker.slot)
            if self._failed[run_id] < TRIES:
                self._waiting.append([run])
            else:
                yield self._given_up(run, fault)
        if len(self._blamed[worker.slot]) >= RETIRE and len(self._slots) > 1:
            self._retire(worker.slot)
        self._busy()

    def _blame(self, slot: int, members: Iterable[str]) -> None:
        """Count a failure of a worker's, unless it is a member's: one that has failed elsewhere, too, takes all blame."""
        guilty = {run_id for run_id in members if self._refused.get(run_id, set()) - {slot}}
        if not guilty:
            self._blamed[slot].append(set(members))
        for place, events in self._blamed.items():
            self._blamed[place] = [event for event in events if not event & guilty]

    def _retire(self, slot: int) -> None:
        """Nobody is to work in this place any more."""
        self._slots.remove(slot)
        self.jobs = len(self._slots)
        for worker in [worker for worker in self._workers if worker.slot == slot]:
            self._workers.remove(worker)
            self._dismiss(worker)

    def _given_up(self, run: Run, fault: Fault) -> Record:
        """The record of a member that failed three times; or an error, if that is to be the end of it."""
        if fault.memory:
            return make_record(run, Verdict(status=Status.OUT_OF_MEMORY), device=self.device, steps=0)
        if self.on_error == "stop":
            raise RunnerError(f"A worker must finish its members, but {TRIES} failed in a row on {run.run_id}: {fault.why}.")
        return make_record(run, Verdict(status=Status.CRASHED), device=self.device, steps=0, error=fault.why[:500])


def refuse_gpu_arithmetic(runs: Iterable[Run], got: str) -> None:
    """`BadInput` for members that only a GPU can train, where there is none. got: what there is, and what to do"""
    for run in runs:
        if run.arithmetic in ON_GPUS:
            raise BadInput(f"`--arithmetic {run.arithmetic}` must have a CUDA device, but got {got}")
