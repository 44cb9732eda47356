"""Members on this machine's cores: worker processes, each with one thread, fed shard by shard.

A worker is `python -m keyspan.lab.worker --serve`. It imports torch once and lives for the whole search. Records arrive as
members finish, so a kill loses only what was unfinished, and that goes on from its checkpoint. A worker that dies gives
its members back (`pool`); a member on which three workers died is recorded as out of memory when the system killed them.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keyspan.errors import BadInput
from keyspan.evidence.record import Record
from keyspan.runners.pool import Fault, Message, Pool, Worker, refuse_gpu_arithmetic
from keyspan.specs import Run

DEVICES = ("auto", "cpu", "cuda")
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
class Process(Worker):
    """A worker process, and the thread that listens to it."""

    process: subprocess.Popen[str] = field(kw_only=True)
    thread: threading.Thread | None = None
    garbled: str | None = None
    heard: bool = False


class LocalRunner(Pool[Process]):
    """Runs members on worker processes of this machine.

    device: auto, cpu or cuda    jobs: worker processes (default: one a core, one for a GPU)
    folder: where checkpoints and file contents lie    weights: keep trained weights here, if given
    on_error: stop or continue, when a member has failed three times
    """

    def __init__(
        self,
        device: str = "auto",
        jobs: int | None = None,
        folder: Path | None = None,
        weights: Path | None = None,
        on_error: str = "stop",
    ) -> None:
        if device not in DEVICES:
            raise BadInput(f"`--device` must be {'|'.join(DEVICES)}, but got {device!r}. Choose one.")
        super().__init__(device, jobs or workers_on(device), on_error)  # None: the first worker to start says what it is on
        self.folder, self.weights = folder, weights
        self._inbox: queue.Queue[tuple[Process, dict[str, Any] | None]] = queue.Queue()

    def refuse(self, runs: Sequence[Run]) -> None:
        """`BadInput` for what can be known to fail before a worker is asked: a GPU, or its arithmetic, where there is none."""
        if _may_have_gpu() and self.device != "cpu":
            return
        if self.device == "cuda":
            raise BadInput("`--device cuda` needs a CUDA device, but this machine shows none. Use --device cpu.")
        refuse_gpu_arithmetic(runs, "a CPU. Use fp32, or --hand-out and a GPU machine.")

    @property
    def backlog(self) -> int:
        """Messages that wait to be heard."""
        return self._inbox.qsize()

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
            self._dismiss(worker)
        self._workers = []
        left: list[Record] = []
        while not self._inbox.empty():
            _, message = self._inbox.get()
            if message and "record" in message:
                left.append(Record.from_json(message["record"]))
        return left

    # --------------------------------------------------------------------------------------------- workers

    def _count(self) -> int:
        """Start one worker and hear which device it took. returns: how many there shall be"""
        self._workers.append(self._start(0))
        _, message = said = self._inbox.get()
        if message is None or "ready" not in message:
            self._inbox.put(said)  # `run` knows what to do about it
            return 1
        self._gpu = message["ready"] == "cuda"
        return workers_on(str(message["ready"])) or 1

    def _start(self, slot: int) -> Process:
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
        worker = Process(slot, process=process)
        worker.thread = threading.Thread(target=self._listen, args=(worker,), daemon=True)
        worker.thread.start()
        return worker

    def _listen(self, worker: Process) -> None:
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

    def _hear(self) -> tuple[Process, Message | Fault]:
        worker, message = self._inbox.get()
        if message is not None:
            worker.heard = True
            return worker, message
        code = worker.process.wait()
        if worker.garbled is not None:
            why = f"A worker must speak in lines of JSON, but said {worker.garbled}. Nothing else may print there."
            return worker, Fault(why, useless=True)
        if not worker.holding and not worker.heard:
            return worker, Fault(f"A worker must start, but it ended with exit {code}. See the messages above.", useless=True)
        return worker, Fault(f"the worker ended with exit {code}", memory=code == -signal.SIGKILL)

    def _send(self, worker: Process, shard: list[Run]) -> None:
        assert worker.process.stdin is not None
        with suppress(BrokenPipeError):  # it has died; its end of the line will tell
            worker.process.stdin.write(json.dumps({"runs": [run.to_json() for run in shard]}) + "\n")
            worker.process.stdin.flush()

    def _dismiss(self, worker: Process) -> None:
        if worker.process.stdin:
            _close(worker.process.stdin)
        if worker.process.poll() is None:
            worker.process.kill()
        worker.process.wait()
        if worker.thread:
            worker.thread.join()
        if worker.process.stdout:
            worker.process.stdout.close()


def _close(pipe: Any) -> None:
    with suppress(BrokenPipeError):
        pipe.close()
