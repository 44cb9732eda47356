"""Members on a Ray cluster: a worker actor a core, or a GPU, fed shard by shard like the processes of one machine.

Ray Core only. A task is a shard of one fleet; an actor trains it with the very code of a local worker and hands its
records on as members finish, so the bits are those of a local run on equal hardware. Records go to the driver, who alone
writes, or straight into a store that every machine reaches (`direct`), in which case the driver only hears of them. What
travels is text (runs and records as JSON) and arrays from files, once to every actor.

An actor that dies with its process, its node or for want of memory gives its members back (`pool`).
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import re
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keyspan.errors import BadInput, MissingExtra, RunnerError
from keyspan.evidence.record import Record
from keyspan.files.contents import Contents
from keyspan.runners.pool import Fault, Message, Pool, Worker, refuse_gpu_arithmetic
from keyspan.specs import Run

ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
STORE_BYTES = 100 * 2**20  # of Ray's object store, where the cluster is one of our own: what we send is small
PATIENCE = 20.0  # seconds that an actor has for its checkpoints when it is to stop
DRAIN = 200  # messages handed on at once
WAIT = 30.0  # seconds that an actor holds a question for messages open


class Trainer:
    """What runs in an actor: a worker's loop in a thread of its own, and a queue of what it says.

    Its methods are called from afar, some at the same time. It is imported by name on every node, which needs this package.
    """

    def __init__(self, device: str, folder: str | None, weights: str | None, store: str | None) -> None:
        for name in ONE_THREAD:  # before torch is imported
            os.environ[name] = "1"
        worker = importlib.import_module("keyspan.lab.worker")  # by name: the driver, which reads this too, has no torch
        self._said: queue.Queue[dict[str, Any]] = queue.Queue()
        self._stop = threading.Event()
        self._inbox = worker.Inbox()
        self._contents = _Sent()
        self._store = self._open(store)
        control = worker.Control(
            contents=self._contents,
            checkpoints=worker.Checkpoints(Path(folder) / "checkpoints") if folder else None,
            stop=self._stop.is_set,
            notify=lambda ids, step, steps: self._tell({"progress": {"run_ids": ids, "step": step, "steps": steps}}),
        )

        def serve() -> None:
            try:
                kept = Path(weights) if weights else None
                worker.serve_shards(self._inbox, self._say, device, control, self._contents, kept)
            except BaseException as error:  # whatever it is, the driver must hear of it, or it waits for ever
                self._tell({"broken": f"{type(error).__name__}: {error}"})
            finally:
                self._tell({"over": True})

        threading.Thread(target=serve, daemon=True).start()

    @staticmethod
    def _open(store: str | None) -> Any:
        if store is None:
            return None
        from keyspan.evidence.store import open_store

        return open_store(store)

    def _say(self, message: dict[str, Any]) -> bool:
        """Pass a message on; a record is stored first, if that is our part."""
        if self._store is not None and "record" in message and self._store.put(Record.from_json(message["record"])):
            message = {**message, "stored": True}
        self._tell(message)
        return True

    def _tell(self, message: dict[str, Any]) -> None:
        self._said.put(message)

    def give(self, shard: str, arrays: Mapping[str, tuple[Any, str | None]]) -> None:
        """A shard as a line of JSON, and the arrays that it needs for the first time, with the paths they came from."""
        for array, source in arrays.values():
            self._contents.receive(array, source)
        self._inbox.put(shard)

    def take(self) -> str:
        """What was said since, as a JSON list: as soon as there is something, or nothing after a while."""
        messages: list[dict[str, Any]] = []
        with suppress(queue.Empty):
            messages.append(self._said.get(timeout=WAIT))
            while len(messages) < DRAIN:
                messages.append(self._said.get_nowait())
        return json.dumps(messages)

    def stop(self) -> None:
        """Checkpoint what is unfinished, and end."""
        self._stop.set()
        self._inbox.read(())

    def process(self) -> int:
        """The number of the actor's process on its node."""
        return os.getpid()


class _Sent(Contents):
    """Arrays that the driver has sent, with the paths that they were read from there."""

    def __init__(self) -> None:
        super().__init__(None)
        self._sources: dict[str, str | None] = {}

    def receive(self, array: Any, source: str | None) -> None:
        self._sources[self.put(array)] = source

    def source(self, sha: str) -> str | None:
        return self._sources.get(sha)


@dataclass(eq=False)
class Actor(Worker):
    """A worker actor. pending: our open question for what it says    sent: hashes of the arrays that it has"""

    handle: Any = field(kw_only=True)
    pending: Any = None
    sent: set[str] = field(default_factory=set)
    ready: bool = False


class RayRunner(Pool[Actor]):
    """Runs members on a Ray cluster.

    address: of a cluster (`auto`, `ray://HOST:10001`); default: the one of RAY_ADDRESS, or a new one on this machine
    jobs: actors (default: one a CPU, or one a GPU where the cluster has some and the device is not cpu)
    store: URL of a store that every node reaches, if the actors are to write there themselves
    folder: where checkpoints and file contents lie, the same on every node    weights: keep trained weights here, if given
    """

    def __init__(
        self,
        address: str | None = None,
        device: str = "auto",
        jobs: int | None = None,
        folder: Path | None = None,
        weights: Path | None = None,
        on_error: str = "stop",
        store: str | None = None,
    ) -> None:
        super().__init__(device, jobs, on_error)
        self.ray = import_ray()
        self.address, self.folder, self.weights, self.store = address, folder, weights, store
        self._contents = Contents(folder / "files" if folder else None)
        self._ours = self._connect()
        gpus = int(self.ray.cluster_resources().get("GPU", 0))
        if device == "cuda" and not gpus:
            raise BadInput("`--device cuda` must find a GPU in the cluster, but got none. Use --device cpu, or add a node.")
        self._gpu = gpus > 0 and device != "cpu"
        self.jobs = jobs or gpus * self._gpu or max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        self._messages: deque[tuple[Actor, Message | Fault]] = deque()

    def refuse(self, runs: Sequence[Run]) -> None:
        """`BadInput` for members that no node of this cluster can train."""
        if not self._gpu:
            refuse_gpu_arithmetic(runs, "a cluster of CPUs. Use fp32, or add a node with a GPU and leave --device out.")

    @property
    def backlog(self) -> int:
        """Messages that wait to be heard."""
        return len(self._messages)

    def _connect(self) -> bool:
        """Join the cluster, or make one. returns: whether we joined, and so must leave"""
        if self.ray.is_initialized():
            return False
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is told to anybody outside
        quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        address = self.address or os.environ.get("RAY_ADDRESS")
        try:
            if address:
                self.ray.init(address=address, **quiet)
            else:
                own = {"num_cpus": self.jobs, "include_dashboard": False, "object_store_memory": STORE_BYTES}
                self.ray.init(address="local", **own, **quiet)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            why = " ".join(str(error).split())[:200]
            got = f"{address or 'a new cluster'} gave {why!r}"
            raise RunnerError(f"The Ray cluster must be one that can be joined, but {got}. Check `--address`.") from None
        return True

    # ------------------------------------------------------------------------------------------------- actors

    def _start(self, slot: int) -> Actor:
        needs = {"num_gpus": 1, "num_cpus": 1} if self._gpu else {"num_cpus": 1}
        trainer = self.ray.remote(Trainer).options(max_concurrency=4, max_restarts=0, **needs)
        folder = str(self.folder.absolute()) if self.folder else None
        weights = str(self.weights.absolute()) if self.weights else None
        handle = trainer.remote("cuda" if self._gpu else "cpu", folder, weights, self.store)
        return Actor(slot, handle=handle, pending=handle.take.remote())

    def _send(self, worker: Actor, shard: list[Run]) -> None:
        data = [run.to_json() for run in shard]
        new = {sha for one in data for sha in hashes_in(one)} - worker.sent
        arrays = {sha: (self._contents.get(sha), self._contents.source(sha)) for sha in sorted(new)}
        worker.sent |= new
        worker.handle.give.remote(json.dumps({"runs": data}), arrays)  # if the actor is no more, its `take` tells

    def _hear(self) -> tuple[Actor, Message | Fault]:
        while True:
            while self._messages:
                worker, message = self._messages.popleft()
                if worker in self._workers:
                    return worker, message
            open_ = {worker.pending: worker for worker in self._workers}
            ready, _ = self.ray.wait(list(open_), num_returns=1)
            for reference in ready:
                self._messages.extend((open_[reference], message) for message in self._answer(open_[reference]))

    def _answer(self, worker: Actor) -> list[Message | Fault]:
        """What an actor says, or how it ended; and the next question to it."""
        from ray.exceptions import OutOfMemoryError, RayError

        try:
            said: list[dict[str, Any]] = json.loads(self.ray.get(worker.pending))
        except OutOfMemoryError:
            return [Fault("the cluster killed it for want of memory", memory=True)]
        except RayError as error:
            return [Fault(f"the actor ended: {_short(error)}")]
        worker.pending = worker.handle.take.remote()
        return [Fault(str(m["broken"])) if "broken" in m else m for m in said if "over" not in m]

    def _dismiss(self, worker: Actor) -> None:
        with suppress(Exception):  # it may be gone, or the cluster
            self.ray.kill(worker.handle)

    def close(self) -> list[Record]:
        """Stop the actors; they checkpoint what is unfinished. returns: records that finished on the way out"""
        left: list[Record] = []
        with suppress(Exception):  # the cluster may be gone; what is left in it is trained again
            left = self._last_words()
        for worker in self._workers:
            self._dismiss(worker)
        self._workers = []
        if self._ours:
            self.ray.shutdown()
        return left

    def _last_words(self) -> list[Record]:
        """Tell all to stop, and hear them out."""
        left = [Record.from_json(m["record"]) for _, m in self._messages if not isinstance(m, Fault) and "record" in m]
        for worker in self._workers:
            worker.handle.stop.remote()
        waiting = {worker.pending: worker for worker in self._workers if worker.ready}
        while waiting:
            ready, _ = self.ray.wait(list(waiting), num_returns=1, timeout=PATIENCE)
            if not ready:
                break
            for reference in ready:
                worker = waiting.pop(reference)
                said = json.loads(self.ray.get(reference))
                left += [Record.from_json(m["record"]) for m in said if "record" in m]
                if not any("over" in m for m in said):
                    waiting[worker.handle.take.remote()] = worker
        return left


def import_ray() -> Any:
    """Ray, or an error that names the extra."""
    try:
        import ray
    except ImportError:
        raise MissingExtra("The runner `ray` must have Ray, but got none. Run: pip install 'keyspan[ray]'") from None
    return ray


def hashes_in(data: Any) -> Iterator[str]:
    """The hashes of contents from files in a run's JSON."""
    if isinstance(data, Mapping):
        for key, value in data.items():
            if key == "content" and isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value):
                yield value
            else:
                yield from hashes_in(value)
    elif isinstance(data, list):
        for value in data:
            yield from hashes_in(value)


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines)[:300] or type(error).__name__
