"""Members on this machine's cores: worker processes, each with one thread, fed shard by shard.

A worker is `python -m keyspan.lab.worker --serve`. It imports torch once and lives for the whole search. Records arrive as
members finish, so a kill loses only what was unfinished, and that goes on from its checkpoint. A worker that dies gives
its members back; a member that kills three workers in a row is recorded as out of memory when the system killed it.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keyspan.errors import BadInput, RunnerError
from keyspan.evidence.record import Record, make_record
from keyspan.lab.pack import shards
from keyspan.specs import Run
from keyspan.verdict import Status, Verdict

Progress = Callable[[list[str], int, int], None]
_TRIES = 3
DEVICES = ("auto", "cpu", "cuda")
AHEAD = 20.0  # seconds of work that a worker wants in hand: enough to share it out well, and to leave some to other drivers
GPU_SPEED = 300.0  # about how many cores a GPU is worth, for that
GPU_NODES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers_on(device: str) -> int | None:
    """How many workers a device is given: one a core, or one for a GPU. None: `auto`, and there may be a GPU

    Whether torch can use a GPU, only torch can say, and it takes seconds to import. Where the system shows none there
    is nothing to ask.
    """
    if device == "cuda":
        return 1
    return None if device == "auto" and _may_have_gpu() else cores()


def _may_have_gpu() -> bool:
    """Whether the system shows a GPU that torch might use: NVIDIA's, AMD's, or one of Windows."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if hidden or sys.platform == "darwin":
        return False
    return sys.platform != "linux" or any(os.path.exists(node) for node in GPU_NODES)


@dataclass(eq=False)
class _Worker:
    """A process and the members it holds."""

    process: subprocess.Popen[str]
    thread: threading.Thread | None = None
    holding: dict[str, Run] = field(default_factory=dict)
    garbled: str | None = None


class LocalRunner:
    """Runs members on worker processes of this machine.

    device: auto, cpu or cuda    jobs: worker processes (default: one a core, one for a GPU)
    folder: where checkpoints and file contents lie    weights: keep trained weights here, if given
    """

    def __init__(
        self, device: str = "auto", jobs: int | None = None, folder: Path | None = None, weights: Path | None = None
    ) -> None:
        if device not in DEVICES:
            raise BadInput(f"`--device` must be {'|'.join(DEVICES)}, but got {device!r}. Choose one.")
        self.device, self.folder, self.weights = device, folder, weights
        self.jobs = jobs or workers_on(device)  # None: the first worker to start says what it is on
        self._whole = device == "cuda"  # a GPU's one worker takes all there is: it knows best what goes together
        self._deaths: Counter[str] = Counter()
        self._workers: list[_Worker] = []
        self._inbox: queue.Queue[tuple[_Worker, dict[str, Any] | None]] = queue.Queue()

    @property
    def appetite(self) -> float:
        """Seconds of one core that this runner wants in hand."""
        return AHEAD * (GPU_SPEED if self._whole or self.jobs is None else self.jobs)

    def run(
        self,
        runs: Sequence[Run],
        progress: Progress = lambda ids, step, steps: None,
        more: Callable[[], Sequence[Run]] = lambda: (),
    ) -> Iterator[Record]:
        """Train and judge members, yielding a record as each finishes, in any order. more: asked after every record"""
        jobs = self.jobs = self.jobs or self._ask()
        waiting = deque(shards(runs, jobs))
        self._deaths.clear()
        self._busy(jobs, waiting)
        while waiting or any(w.holding for w in self._workers):
            worker, message = self._inbox.get()
            if message is None:
                yield from self._bury(worker, waiting)
            elif "record" in message:
                record = Record.from_json(message["record"])
                worker.holding.pop(record.run_id, None)
                yield record
                waiting.extend(shards(more(), jobs))
                self._busy(jobs, waiting)
            elif "progress" in message:
                p = message["progress"]
                progress(p["run_ids"], p["step"], p["steps"])
            elif "error" in message:
                raise BadInput(message["error"])
            elif "idle" in message:
                self._hand(worker, waiting)

    def close(self) -> list[Record]:
        """Stop the workers; they checkpoint what is unfinished. returns: records that finished on the way out"""
        for worker in self._workers:
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGTERM)
            if worker.process.stdin:
                _close(worker.process.stdin)
        for worker in self._workers:
            try:
                worker.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            if worker.thread:
                worker.thread.join()
            if worker.process.stdout:
                worker.process.stdout.close()
        self._workers = []
        left: list[Record] = []
        while not self._inbox.empty():
            _, message = self._inbox.get()
            if message and "record" in message:
                left.append(Record.from_json(message["record"]))
        return left

    # --------------------------------------------------------------------------------------------- workers

    def _ask(self) -> int:
        """Start one worker and hear which device it took. returns: how many there shall be"""
        self._start()
        _, message = said = self._inbox.get()
        if message is None or "ready" not in message:
            self._inbox.put(said)  # `run` knows what to do about it
            return 1
        self._whole = message["ready"] == "cuda"
        return workers_on(str(message["ready"])) or 1

    def _start(self) -> _Worker:
        command = [sys.executable, "-m", "keyspan.lab.worker", "--serve", "--device", self.device]
        if self.folder:
            command += ["--files", str(self.folder / "files"), "--checkpoints", str(self.folder / "checkpoints")]
        if self.weights:
            command += ["--weights", str(self.weights)]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **threads},
            start_new_session=True,  # Ctrl-C is for the driver, which tells the workers in its own way
        )
        worker = _Worker(process)
        worker.thread = threading.Thread(target=self._listen, args=(worker,), daemon=True)
        worker.thread.start()
        self._workers.append(worker)
        return worker

    def _listen(self, worker: _Worker) -> None:
        """Pass on what a worker says. Whatever happens here, the end of it is told, or `run` would wait for ever."""
        assert worker.process.stdout is not None
        try:
            for line in worker.process.stdout:
                message = json.loads(line)
                if not isinstance(message, dict):
                    raise ValueError(line)
                self._inbox.put((worker, message))
        except (ValueError, RecursionError):
            worker.garbled = f"{line[:60]!r}"
            worker.process.kill()  # nobody reads what else it says
        finally:
            self._inbox.put((worker, None))

    def _busy(self, jobs: int, waiting: deque[list[Run]]) -> None:
        """Give every worker that has nothing to do a shard; start those that are missing."""
        if self._whole and waiting and not any(self._deaths[run.run_id] for shard in waiting for run in shard):
            everything = [run for shard in waiting for run in shard]
            waiting.clear()
            self._give(self._workers[0] if self._workers else self._start(), everything)
            return
        idle = sum(not worker.holding for worker in self._workers)
        for _ in range(min(jobs - len(self._workers), len(waiting) - idle)):
            self._start()
        for worker in self._workers:
            self._hand(worker, waiting)

    def _hand(self, worker: _Worker, waiting: deque[list[Run]]) -> None:
        """Give a worker its next shard, if it has none."""
        if not worker.holding and waiting:
            self._give(worker, waiting.popleft())

    @staticmethod
    def _give(worker: _Worker, shard: list[Run]) -> None:
        worker.holding |= {run.run_id: run for run in shard}
        assert worker.process.stdin is not None
        with suppress(BrokenPipeError):  # it has died; its end of the line will tell
            worker.process.stdin.write(json.dumps({"runs": [run.to_json() for run in shard]}) + "\n")
            worker.process.stdin.flush()

    def _bury(self, worker: _Worker, waiting: deque[list[Run]]) -> Iterator[Record]:
        """A worker is gone: give its members to a new one, apart, so that the one that kills is found."""
        code = worker.process.wait()
        self._workers.remove(worker)
        if worker.thread:
            worker.thread.join()
        for pipe in (worker.process.stdin, worker.process.stdout):
            if pipe:
                _close(pipe)
        if worker.garbled is not None:
            raise RunnerError(f"A worker must speak in lines of JSON, but said {worker.garbled}. Nothing else may print there.")
        for run_id, run in worker.holding.items():
            self._deaths[run_id] += 1
            if self._deaths[run_id] < _TRIES:
                waiting.append([run])
            elif code == -signal.SIGKILL:
                yield make_record(run, Verdict(status=Status.OUT_OF_MEMORY), device=self.device, steps=0)
            else:
                raise RunnerError(f"A worker must finish its members, but {_TRIES} died in a row (exit {code}) on {run_id}.")
        if not worker.holding and code not in (0, -signal.SIGTERM):
            raise RunnerError(f"A worker must start, but it ended with exit {code}. See the messages above.")
        if waiting:
            self._hand(self._start(), waiting)


def _close(pipe: Any) -> None:
    with suppress(BrokenPipeError):
        pipe.close()
