"""Decoders: the fleet beside one-at-a-time eager PyTorch, side by side in one run.

    python -m keyspan.bench.decoders --case 32x32x8 --case 16x16x8          (B, N, batch)

The baseline is what one would write: `nn.TransformerEncoderLayer` (pre-norm, GELU, no dropout, causal), tables and an output
around it, `torch.optim.Adam`, a batch indexed from the library at every step. Both run on one thread here, in turns, and are
timed in CPU seconds, so that other work on the machine falls on both alike: `ratio` is what one core gains.

`--workers 2` is the whole machine, by the wall: the fleet has a worker on each of so many cores, one-at-a-time training as many
threads; it wants a machine with nothing else to do. On a GPU seconds of the wall count, too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import nn

import keyspan
from keyspan.decoders import Decoder, parameters
from keyspan.lab.crew import Crew
from keyspan.lab.fleet import one_thread
from keyspan.lab.host import Control, Member
from keyspan.lab.recipes import budgeted
from keyspan.problems import NoContents
from keyspan.problems.sequences import Sequences
from keyspan.seeds import Stream
from keyspan.specs import Run, Stopping

CASES = ("32x32x8", "16x16x8")
VOCABULARY, HEADS, LIBRARY, PROMPT = 64, 2, 256, 2
ORDERS = 64  # minibatches drawn beforehand
FAR = 10**6  # steps that nobody takes: the rate stays where it is


class Eager(nn.Module):
    """One decoder as PyTorch's own layers make it."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(torch.from_numpy(0.3 * Stream("bench", "positions").normal((length, width))).float())
        self.block = nn.TransformerEncoderLayer(width, HEADS, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.output = nn.Linear(width, VOCABULARY)
        self.mask: torch.Tensor
        self.register_buffer("mask", torch.triu(torch.full((length, length), float("-inf")), 1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of every next token."""
        n = tokens.shape[1]
        hidden = self.tokens(tokens) + self.positions[:n]
        scores: torch.Tensor = self.output(self.block(hidden, src_mask=self.mask[:n, :n], is_causal=True))
        return scores


def eager(width: int, length: int, batch: int, device: torch.device) -> Callable[[], None]:
    """A step of one decoder."""
    model = Eager(width, length).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    stream = Stream("bench", "library")
    library = torch.from_numpy(stream.integers(VOCABULARY, LIBRARY * length).reshape(LIBRARY, length)).to(device)
    orders = torch.from_numpy(stream.integers(LIBRARY, ORDERS * batch).reshape(ORDERS, batch)).to(device)
    taken = itertools.count()

    def step() -> None:
        shown = library[orders[next(taken) % ORDERS]]
        optimizer.zero_grad()
        scores = model(shown[:, :-1])[:, PROMPT - 1 :]
        nn.functional.cross_entropy(scores.reshape(-1, VOCABULARY), shown[:, PROMPT:].reshape(-1)).backward()
        optimizer.step()

    return step


def fleet(width: int, length: int, batch: int, members: int, device: torch.device) -> Callable[[], None]:
    """A step of a crew of decoders."""
    problem = Sequences(length=length, vocabulary=VOCABULARY, prompt=PROMPT, library=LIBRARY)
    runs = [
        Run(
            problem=problem,
            replicate=seed,
            instrument=Decoder(heads=HEADS, d_model=width),
            recipe=budgeted(FAR, batch=batch),
            stopping=Stopping(check_every=FAR, retire_exact=False),
            arithmetic="fp32",
        )
        for seed in range(members)
    ]
    aboard = [Member(run, problem.instance(run.problem_id, NoContents())) for run in runs]
    return Crew(aboard, 0, device, Control()).advance


def seconds(step: Callable[[], None], count: int, device: torch.device) -> float:
    """Of one step, over so many of them: of this thread on a CPU, of the wall on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(count):
            step()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / count
    began = time.thread_time()
    for _ in range(count):
        step()
    return (time.thread_time() - began) / count


def serve(case: str, members: int, pipe: Connection) -> None:
    """A worker: so many steps of its own crew whenever it is told a number; 0 ends it."""
    width, length, batch = (int(part) for part in case.split("x"))
    with one_thread():
        step = fleet(width, length, batch, members, torch.device("cpu"))
        for _ in range(5):
            step()
        pipe.send(0)
        while count := pipe.recv():
            for _ in range(count):
                step()
            pipe.send(count)


def whole_machine(case: str, members: int, rounds: int, workers: int) -> dict[str, Any]:
    """Workers side by side, then one model at a time on as many threads, in turns, by the wall."""
    width, length, batch = (int(part) for part in case.split("x"))
    context = get_context("spawn")
    ends = [context.Pipe() for _ in range(workers)]
    processes = [context.Process(target=serve, args=(case, members, child), daemon=True) for _, child in ends]
    for process in processes:
        process.start()
    for pipe, _ in ends:
        pipe.recv()
    torch.set_num_threads(workers)
    alone, count = eager(width, length, batch, torch.device("cpu")), max(4, 400 // members)
    for _ in range(5):
        alone()
    each = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(100):
            alone()
        one = (time.perf_counter() - began) / 100
        began = time.perf_counter()
        for pipe, _ in ends:
            pipe.send(count)
        for pipe, _ in ends:
            pipe.recv()
        each.append((one, (time.perf_counter() - began) / (count * members * workers)))
    for (pipe, _), process in zip(ends, processes, strict=True):
        pipe.send(0)
        process.join()
    return told_of(case, members, each, f"decoders-{case}-cpu-{workers}-workers")


def side_by_side(case: str, members: int, rounds: int, device: torch.device) -> dict[str, Any]:
    """Both in turns, `rounds` times; the medians, and the ratio of each round."""
    width, length, batch = (int(part) for part in case.split("x"))
    alone, crew = eager(width, length, batch, device), fleet(width, length, batch, members, device)
    for _ in range(5):
        alone(), crew()
    each = [(seconds(alone, 40, device), seconds(crew, max(4, 80 // members), device) / members) for _ in range(rounds)]
    return told_of(case, members, each, f"decoders-{case}-{device.type}")


def told_of(case: str, members: int, each: Sequence[tuple[float, float]], name: str) -> dict[str, Any]:
    """Medians over rounds. each: seconds of a step of one model, and of one member"""
    width, length, _ = (int(part) for part in case.split("x"))
    ratios, middle = sorted(one / other for one, other in each), len(each) // 2
    return {
        "name": name,
        "heads": HEADS,
        "parameters": parameters(Decoder(heads=HEADS, d_model=width), VOCABULARY, length),
        "members": members,
        "ratio": ratios[middle],
        "ratio_low": ratios[0],
        "ratio_high": ratios[-1],
        "member_steps_per_second": 1.0 / sorted(other for _, other in each)[middle],
        "baseline_member_steps_per_second": 1.0 / sorted(one for one, _ in each)[middle],
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print one JSON document."""
    parser = argparse.ArgumentParser(prog="python -m keyspan.bench.decoders", description=__doc__.splitlines()[0])
    parser.add_argument("--case", action="append", help="B x N x batch, such as 32x32x8")
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0, help="the whole machine, by the wall")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    given = parser.parse_args(argv)
    device = torch.device(given.device)
    cases = given.case or CASES
    if given.workers:
        results = [whole_machine(case, given.members, given.rounds, given.workers) for case in cases]
    else:
        with one_thread():
            results = [side_by_side(case, given.members, given.rounds, device) for case in cases]
    machine = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    told = {
        "schema": 1,
        "keyspan": keyspan.__version__,
        "torch": torch.__version__,
        "machine": machine,
        "threads": given.workers or 1,
    }
    print(json.dumps(told | {"results": results}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
