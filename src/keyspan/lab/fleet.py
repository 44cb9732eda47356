"""The fleet: members in, finished members out. Here stands the step loop, the only one in the package.

Members of one bucket step together as a crew (`crew`). On a CPU one crew is at sea at a time. On a GPU several are, in
turns of a few dozen steps that are queued on a stream each; as many members of a bucket share a crew as memory holds, and
those that wait take the places of those that leave. So no crew waits for another's slow member, nor does the device.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import NamedTuple

import torch

from keyspan.errors import BadInput
from keyspan.lab.checkpoints import Saved
from keyspan.lab.crew import Crew, kernel_of, make_bucket, optimizer_of, recipe_of
from keyspan.lab.host import Control, Finished, Host, Member, host_for
from keyspan.lab.pack import bucket_key, capacity, seconds, shards
from keyspan.specs import Run
from keyspan.verdict import Status, Verdict

__all__ = ["Control", "Finished", "make_bucket", "one_thread", "recipe_of", "sail"]

CREWS = {"cpu": 1, "cuda": 4}  # at sea at the same time
AHEAD = 96  # members that are made ready before there is a place for them
REFILL = 0.25  # of a crew's places that must be free before others take them: every change of crew costs a new graph
_OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)
_NO_ROOM = ("can't allocate memory", "not enough memory")  # PyTorch's words for it on a CPU: Linux's, Windows's


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for CPU operations: members are what runs in parallel, and a split sum would change bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def sail(
    runs: Sequence[Run], device: str = "cpu", control: Control | None = None, more: Callable[[], Sequence[Run]] = lambda: ()
) -> Iterator[Finished]:
    """Train and judge members, in any order, yielding each as it finishes.

    A member whose checkpoint exists goes on from there. When the caller's `stop` says so, the rest is checkpointed.
    more: asked between turns for members to take on as well, such as the next round of a search
    """
    control = control or Control()
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise BadInput(f"A fleet's device must be cpu, or cuda where torch sees one, but got {device!r}. Use cpu.")
    where = torch.device(device)
    with one_thread(), closing(host_for(where, control.contents)) as host:
        yield from _Fleet(where, control, host, more).sail(runs)


class _Key(NamedTuple):
    """Who may share a crew: one bucket, one phase, looks at the same steps. piece: the shard, on a CPU"""

    bucket: str
    phase: int
    step: int
    piece: int


@dataclass
class _Waiter:
    """A member that waits. ready: what it needs to step, made or being made"""

    run: Run
    saved: Saved | None
    ready: Future[Member] | None = None


@dataclass
class _Group:
    """Members that wait for a crew. most: places in it, if memory ran out before"""

    waiting: deque[_Waiter] = field(default_factory=deque)
    most: int | None = None

    @property
    def cost(self) -> float:
        """Seconds of all that wait, roughly."""
        return sum(seconds(w.run) for w in self.waiting)


class _Fleet:
    """Crews at sea, and groups of members that wait."""

    def __init__(self, device: torch.device, control: Control, host: Host, more: Callable[[], Sequence[Run]]) -> None:
        self.device, self.control, self.host, self.more = device, control, host, more
        self.groups: dict[_Key, _Group] = defaultdict(_Group)
        self.crews: dict[_Key, Crew] = {}
        self.joining: list[_Waiter] = []
        self.pieces = 0
        self.compiled: dict[str, Future[None]] = {}
        self.streams = [torch.cuda.Stream() for _ in range(CREWS["cuda"])] if device.type == "cuda" else []

    def sail(self, runs: Sequence[Run]) -> Iterator[Finished]:
        """Until nobody is left or the caller says stop."""
        self._line_up(runs)
        while True:
            self._line_up(self.more())
            yield from self._man()
            for key in list(self.crews):
                yield from self._turn(key)
            if any(crew.stopped for crew in self.crews.values()):
                for crew in self.crews.values():
                    crew.save()
                yield from self.host.rest()
                return
            if not self.crews and not self.groups:
                yield from self.host.rest()
                if not self._line_up(self.more()):
                    return

    # ------------------------------------------------------------------------------------------- waiting

    def _line_up(self, runs: Sequence[Run]) -> bool:
        """Sort members by who may share a crew. On a CPU a group is a shard, whose members begin together."""
        cpu = self.device.type == "cpu"
        for shard in shards(runs, workers=1, split=cpu):
            self.pieces += cpu
            for run in shard:
                kernel = kernel_of(run, self.device)
                saved = self.control.checkpoints.load(run.run_id, kernel) if self.control.checkpoints else None
                self._wait(run, saved, self.pieces)
        return bool(runs)

    def _wait(self, run: Run, saved: Saved | None, piece: int) -> None:
        phase, step = (saved.phase, saved.step) if saved else (0, 0)
        if saved and optimizer_of(run, phase, self.device).joins:  # each counts its own steps; only looks must coincide
            step = step % run.stopping.check_every - run.stopping.check_every
        bucket = bucket_key(run)
        if bucket not in self.compiled:
            self.compiled[bucket] = self.host.compile(partial(_compile, run, self.device))
        self.groups[_Key(bucket, phase, step, piece)].waiting.append(_Waiter(run, saved))

    def _member(self, run: Run, saved: Saved | None) -> Member:
        early = saved is None and self.host.ahead
        drawn = make_bucket([run], self.device).draw(run) if early else None
        return Member(run, self.host.instances.get(run), saved, drawn)

    def _prepare(self, waiters: Iterable[_Waiter]) -> None:
        for w in waiters:
            w.ready = w.ready or self.host.begin(partial(self._member, w.run, w.saved))

    def _take(self, key: _Key, count: int) -> list[_Waiter]:
        """Members that step from now on; those behind them are made ready meanwhile."""
        waiting = self.groups[key].waiting
        taken = [waiting.popleft() for _ in range(min(count, len(waiting)))]
        if not waiting:
            del self.groups[key]
        elif self.host.ahead:
            self._prepare(islice(waiting, AHEAD))
        return taken

    def _members(self, taken: Sequence[_Waiter]) -> list[Member]:
        self._prepare(taken)
        return [w.ready.result() for w in taken if w.ready]

    # ------------------------------------------------------------------------------------------- crews

    def _man(self) -> Iterator[Finished]:
        """New crews for those that wait, where a crew may still put to sea: later phases first, then the costliest."""
        while len(self.crews) < CREWS[self.device.type]:
            free = [key for key in self.groups if key not in self.crews]
            if not free:
                return
            if self.host.ahead:
                ready = [key for key in free if self.compiled[key.bucket].done()]
                if not ready and self.crews:
                    return
                key = max(ready or free, key=lambda k: (k.phase, self.groups[k].cost))
                self.compiled[key.bucket].result()
            else:
                key = max(free, key=lambda k: k.phase)  # shards are in order of their cost already
            taken = self._take(key, self._places(self.groups[key]))
            try:
                with _allocating():
                    self.crews[key] = Crew(self._members(taken), key.phase, self.device, self.control, self._stream())
            except _OUT_OF_MEMORY:
                yield from self._shrink(taken, len(taken), key)
                if self.crews:
                    return  # there may be room when another crew is home

    def _stream(self) -> torch.cuda.Stream | None:
        used = {crew.queue for crew in self.crews.values()}
        return next((stream for stream in self.streams if stream not in used), None)

    def _places(self, group: _Group) -> int:
        """How many members a crew of this group may have: what memory holds, by estimate and by experience."""
        held = capacity(group.waiting[0].run, _free_memory(self.device))
        return held if group.most is None else min(held, group.most)

    def _turn(self, key: _Key) -> Iterator[Finished]:
        """One crew's steps up to its next look; what it hands in; what becomes of it."""
        crew = self.crews[key]
        memory = True
        try:
            with _allocating():
                _watch(crew, lambda free: self._refill(key, free))
        except _OUT_OF_MEMORY:
            memory = False
        for run, saved in crew.promoted:
            self._wait(run, saved, key.piece)
        cases, crew.promoted, crew.left = crew.left, [], []
        if not crew.runs or not memory:
            del self.crews[key]
        yield from self.host.judge(cases)
        if not memory:
            aboard = {run.run_id for run in crew.runs}
            missed = [w for w in self.joining if w.run.run_id not in aboard]
            yield from self._shrink([_Waiter(run, None) for run in crew.runs] + missed, crew.places, key)
        self.joining = []

    def _refill(self, key: _Key, free: int) -> list[Member]:
        """Members that begin may join; one that goes on from a checkpoint looks at other steps than this crew does."""
        self.joining = self._take(key, free) if key in self.groups and key.phase == key.step == 0 else []
        return self._members(self.joining)

    def _shrink(self, taken: Sequence[_Waiter], places: int, key: _Key) -> Iterator[Finished]:
        """Memory ran out: who is left begins again in crews of half the size; who does not fit alone is recorded so."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if places == 1 and not self.crews:
            facts = {"device": str(self.device), "steps": 0}
            for w in taken:
                yield Finished(w.run, Verdict(status=Status.OUT_OF_MEMORY), None, facts)
            return
        group = self.groups[key]
        group.waiting.extendleft(_Waiter(w.run, w.saved) for w in reversed(taken))
        group.most = max(1, places // 2)


@contextmanager
def _allocating() -> Iterator[None]:
    """What PyTorch says where a CPU has no memory left is a `RuntimeError` like any other; here it is a `MemoryError`."""
    try:
        yield
    except RuntimeError as error:
        if any(words in str(error) for words in _NO_ROOM):
            raise MemoryError(str(error)) from error
        raise


def _compile(run: Run, device: torch.device) -> None:
    make_bucket([run], device).compile(run, getattr(recipe_of(run).phases[0], "steps", 1))


def _free_memory(device: torch.device) -> float | None:
    """Bytes that a new crew may count on: what nobody has, and what PyTorch keeps for reuse."""
    if device.type != "cuda":
        return None
    return float(torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))


def _watch(crew: Crew, refill: Callable[[int], list[Member]]) -> None:
    """The step loop: who leaves, who joins, then the steps up to the next look."""
    with crew.stream():
        crew.retire()
        free = crew.places - len(crew.runs)
        if crew.runs and crew.optimizer.joins and free >= max(1, REFILL * crew.places) and (members := refill(free)):
            crew.join(members)
        while crew.runs and not crew.halted():
            crew.advance()
            if crew.looking:
                break
