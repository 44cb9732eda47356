"""The host of a fleet: it makes members ready to step and judges those that leave.

Beside a GPU the host's other cores do both while the device goes on stepping; on a CPU each is done in its turn. An
instance is made once for all members that share it (a cell's heads and budgets meet on the same instances).
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

import torch

from keyspan.attention.instrument import Arrays
from keyspan.lab.checkpoints import Checkpoints, Saved
from keyspan.problems import ContentSource, NoContents
from keyspan.specs import Run
from keyspan.verdict import Verdict

T = TypeVar("T")
COMPILERS = 8  # threads: half of compiling goes on outside Python
KEPT_BYTES = 1 << 32  # of instances that nobody may be using any more
MOST_THREADS = 12


@dataclass(frozen=True)
class Finished:
    """A member that has left: its verdict, its weights, and the facts of its training that enter no identity."""

    run: Run
    verdict: Verdict
    answers: Arrays | None
    facts: dict[str, Any]
    instance: Any = None


@dataclass
class Control:
    """How a caller watches and stops a fleet. None of it changes a bit of any member.

    stop: asked between steps; when true, members are checkpointed and the fleet returns
    notify: told (run ids, step, steps) now and then    every: least seconds between checkpoints
    """

    contents: ContentSource = field(default_factory=NoContents)
    checkpoints: Checkpoints | None = None
    stop: Callable[[], bool] = lambda: False
    notify: Callable[[list[str], int, int], None] = lambda runs, step, steps: None
    every: float = 10.0


@dataclass(frozen=True)
class Member:
    """A run ready to step. saved: where its checkpoint left it    drawn: its initial weights, if they are drawn already"""

    run: Run
    instance: Any
    saved: Saved | None = None
    drawn: Arrays | None = None


Case = Callable[[], Finished]  # what the judge does for a member, with everything it needs taken from the device


class Instances:
    """Instances by problem id, each made once; the least recently used are forgotten beyond `KEPT_BYTES`."""

    def __init__(self, contents: ContentSource) -> None:
        self._contents, self._lock = contents, Lock()
        self._made: OrderedDict[str, Future[Any]] = OrderedDict()
        self._sizes: dict[str, int] = {}  # of those that are made
        self._held = 0

    def get(self, run: Run) -> Any:
        """The instance of a run's problem; a second thread that asks meanwhile waits for the first."""
        with self._lock:
            found = self._made.get(run.problem_id)
            mine: Future[Any] | None = None
            if found is None:
                found = mine = self._made[run.problem_id] = Future()
            self._made.move_to_end(run.problem_id)
        if mine is not None:
            try:
                mine.set_result(run.problem.instance(run.problem_id, self._contents))  # type: ignore[attr-defined]
            except BaseException as error:
                mine.set_exception(error)
                with self._lock:
                    self._made.pop(run.problem_id, None)
            else:
                self._keep(run.problem_id, _size(mine.result()))
        return found.result()

    def _keep(self, key: str, size: int) -> None:
        """Count what was made, and forget the oldest that it leaves no room for."""
        with self._lock:
            self._sizes[key] = size
            self._held += size
            if self._held <= KEPT_BYTES:
                return
            made = [key for key in self._made if key in self._sizes]
            for oldest in made[:-1]:
                if self._held <= KEPT_BYTES:
                    break
                self._held -= self._sizes.pop(oldest)
                del self._made[oldest]


def _size(instance: Any) -> int:
    return sum(int(getattr(value, "nbytes", 0)) for value in vars(instance).values())


class Host:
    """Who makes members ready and judges them. threads: 0 to do it at once, in the caller's thread"""

    def __init__(self, contents: ContentSource, threads: int = 0) -> None:
        self.instances = Instances(contents)
        self._pool = ThreadPoolExecutor(threads) if threads else None
        self._compilers = ThreadPoolExecutor(COMPILERS) if threads else None
        self._cases: list[Future[Finished]] = []

    @property
    def ahead(self) -> bool:
        """Whether work handed in is done while the caller goes on."""
        return self._pool is not None

    def begin(self, work: Callable[[], T]) -> Future[T]:
        """Do something: now, or on another thread."""
        if self._pool is not None:
            return self._pool.submit(work)
        done: Future[T] = Future()
        done.set_result(work())
        return done

    def compile(self, work: Callable[[], None]) -> Future[None]:
        """Compile ahead; without threads to spare, the first step does it."""
        if self._compilers is not None:
            return self._compilers.submit(work)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def judge(self, cases: list[Case]) -> Iterator[Finished]:
        """Hand in cases; yields what is decided by now."""
        if self._pool is None:
            yield from (case() for case in cases)
            return
        self._cases += [self._pool.submit(case) for case in cases]
        done = [f for f in self._cases if f.done()]
        self._cases = [f for f in self._cases if f not in done]
        yield from (f.result() for f in done)

    def rest(self) -> Iterator[Finished]:
        """Wait for the cases that are still open."""
        waiting, self._cases = self._cases, []
        yield from (f.result() for f in waiting)

    def close(self) -> None:
        """Begin nothing more."""
        for pool in (self._pool, self._compilers):
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)


def host_for(device: torch.device, contents: ContentSource) -> Host:
    """On a CPU everything takes its turn; beside a GPU the host has cores to spare."""
    spare = max(1, min(MOST_THREADS, (os.cpu_count() or 1) - 2))
    return Host(contents, spare if device.type == "cuda" else 0)
