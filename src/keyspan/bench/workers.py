"""The fleet as the local runner trains it on a CPU: a process with one thread for every core, all at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

from keyspan.bench.cases import Case
from keyspan.errors import RunnerError

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Crowd:
    """Worker processes with the same case on other instances each."""

    def __init__(self, processes: Sequence[subprocess.Popen[str]]) -> None:
        self.processes = processes
        self.cpu_rates: dict[str, list[float]] = defaultdict(list)  # the same per second of computing, by side
        for process in processes:
            self._hear(process)

    def rate(self, side: str) -> float:
        """What all workers together reach at the same time. side: fleet (member-steps a second), matmul, onednn (FLOP)"""
        for process in self.processes:
            _say(process, side)
        heard = [self._hear(process) for process in self.processes]
        self.cpu_rates[side].append(float(sum(h["cpu_rate"] for h in heard)))
        return float(sum(h["rate"] for h in heard))

    def _hear(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RunnerError(f"A worker must answer, but it ended with exit {process.wait()}. See the messages above.")
        return dict(json.loads(line))


def _say(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has died; its silence will tell
        process.stdin.write(text + "\n")
        process.stdin.flush()


@contextmanager
def crowd(case: Case, workers: int, seconds: float, *, seed: int = 0, arithmetic: str = "fp32") -> Iterator[Crowd]:
    """Start workers, wait until all of them are warm, and end them afterwards."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "keyspan.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **dict.fromkeys(THREADS, "1")},
            start_new_session=True,  # Ctrl-C is for us, who end them
        )
        for _ in range(workers)
    ]
    try:
        for number, process in enumerate(processes):
            given = {
                "case": asdict(case),
                "seed": seed,
                "first": number * case.members,
                "arithmetic": arithmetic,
                "seconds": seconds,
            }
            _say(process, json.dumps(given))
        yield Crowd(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    with suppress(BrokenPipeError):
                        pipe.close()
