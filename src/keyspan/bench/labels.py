"""How much quicker is a layer on labels than the plain formulation? Interleaved, in one process, with its spread.

    python -m keyspan.bench.labels [--heads 20 --context 32] [--rounds 7] [--threads 1] [--json]

plain   one layer as the official code of Mahdavi et al. computes it, in PyTorch: every token asks, a broadcast product a head,
        autograd, `torch.optim.Adam`
ours    the same recipe, minibatches and initial weights: only the row that answers, products of weights first
        (`attention.layer`); one member, and a fleet of them (random and fixed contexts)

The same step is held to the plain one before anything is timed: losses of the first steps agree to 1e-5. Rates are by
the clock of the process's own computing time, which knows nothing of what else runs, and by the wall.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from keyspan.attention.reference import positions
from keyspan.bench.timing import Repeats
from keyspan.errors import KeyspanError, require
from keyspan.lab import recipes
from keyspan.lab.crew import Crew, make_bucket
from keyspan.lab.host import Control, Member
from keyspan.lab.optimizers import one_cycle
from keyspan.lab.recipes import Adam
from keyspan.problems import NoContents
from keyspan.problems.contexts import LabelInstance, Labels
from keyspan.specs import Layer, Run

STEPS = 3  # of which the losses are compared
CLOSE = 1e-5  # relative: both sides compute in float32


@dataclass(frozen=True)
class Case:
    """A layer on labels. fleet: members of one"""

    heads: int = 20
    context: int = 32
    d_model: int = 64
    examples: int = 2048
    contexts: str = "random"
    fleet: int = 8

    def run(self, replicate: int = 0) -> Run:
        """A member, by the paper's recipe."""
        problem = Labels(context=self.context, d_model=self.d_model, examples=self.examples, contexts=self.contexts)
        return Run(
            problem=problem,
            replicate=replicate,
            instrument=Layer(heads=self.heads, d_key=self.d_model),
            recipe=recipes.paper().with_load(self.examples),
            stopping=recipes.PAPER_STOPPING,
        )


def instance_of(run: Run) -> LabelInstance:
    """The run's examples."""
    made = run.problem.instance(run.problem_id, NoContents())  # type: ignore[attr-defined]
    assert isinstance(made, LabelInstance)
    return made


class Plain:
    """One layer in plain PyTorch. rows: (T, n + 1, d), row 0 the query"""

    def __init__(self, run: Run) -> None:
        instance = instance_of(run)
        contexts = np.broadcast_to(instance.context(slice(None)), (instance.load, *instance.context(slice(0, 1)).shape[1:]))
        self.instance, phase = instance, run.recipe.phases[0]  # type: ignore[attr-defined]
        assert isinstance(phase, Adam)
        self.phase, self.batch = phase, int(run.recipe.batch)  # type: ignore[attr-defined]
        self.rows = torch.from_numpy(np.concatenate([instance.queries[:, None], contexts], axis=1))
        self.labels = torch.from_numpy(np.asarray(instance.labels, dtype=np.int64))
        bucket = make_bucket([run], torch.device("cpu"))
        start = bucket.answers(bucket.init([run]), 0, run)
        self.w = {k: torch.nn.Parameter(torch.from_numpy(np.array(v)).float()) for k, v in start.items()}
        self.adam = torch.optim.Adam(self.w.values(), lr=phase.peak)
        size, d = self.rows.shape[1:]
        self.positions = torch.from_numpy(positions(size, d)).float()
        self.step = 0

    def outputs(self, rows: torch.Tensor) -> torch.Tensor:
        """The answer of row 0, of all rows that are computed. rows: (B, n + 1, d)"""
        w = self.w
        x = rows @ w["w_in"] + w["b_in"] + self.positions
        q, k, v = (x[:, None] @ w[name][None] for name in ("w_query", "w_key", "w_value"))
        logits = q @ k.transpose(2, 3) / rows.shape[2] ** 0.5
        closed = torch.zeros(rows.shape[1])
        closed[0] = -torch.inf
        heads = (torch.softmax(logits + closed, dim=-1) @ v).transpose(1, 2).flatten(2)
        return (heads @ w["w_out"].flatten(0, 1) @ w["w_label"] + w["b_label"])[:, 0]

    def advance(self) -> float:
        """One step of the recipe. returns: the loss before it"""
        each = -(-self.instance.load // self.batch)
        epoch, place = divmod(self.step, each)
        some = torch.from_numpy(self.instance.order(epoch, 1)[0][place * self.batch : (place + 1) * self.batch])
        self.adam.param_groups[0]["lr"] = one_cycle(self.phase, self.step)
        loss = torch.nn.functional.cross_entropy(self.outputs(self.rows[some]), self.labels[some])
        self.adam.zero_grad(set_to_none=True)
        loss.backward()
        self.adam.step()
        self.step += 1
        return float(loss.detach())


def fleet_of(case: Case, members: int) -> Crew:
    """Members of the case, in one crew."""
    runs = [case.run(k) for k in range(members)]
    return Crew([Member(run, instance_of(run)) for run in runs], 0, torch.device("cpu"), Control(), None)


def disagreement(case: Case) -> float:
    """Largest relative difference of the two sides' losses over the first steps."""
    plain, crew = Plain(case.run()), fleet_of(case, 1)
    return max(_difference(plain, crew, step) for step in range(STEPS))


def _difference(plain: Plain, crew: Crew, step: int) -> float:
    """Of the losses before a step that both sides then take."""
    crew.bucket.turn(crew.batch, {}, [step])
    value, _ = crew.bucket.value_and_grad(crew.params, crew.batch)
    assert value is not None
    ours = float(value[0])
    crew.advance()
    theirs = plain.advance()
    return abs(ours - theirs) / abs(theirs)


def rate(call: Callable[[], object], seconds: float) -> tuple[float, float]:
    """Calls per second of the process's own computing, and of the wall, over about so many seconds."""
    call()
    count, wall, own = 0, time.perf_counter(), time.process_time()
    while time.process_time() - own < seconds:
        call()
        count += 1
    return count / (time.process_time() - own), count / (time.perf_counter() - wall)


def bench(case: Case, rounds: int, seconds: float, threads: int) -> dict[str, Any]:
    """All sides in turns. ratio: member-steps per second over the plain formulation's, with the least and the largest round"""
    require(rounds >= 1 and threads >= 1, "`--rounds >= 1`, `--threads >= 1`", (rounds, threads), "Try 7 and 1.")
    torch.set_num_threads(threads)
    fixed = Case(**{**case.__dict__, "contexts": "fixed"})
    crews = {
        "one member, random contexts": (fleet_of(case, 1), 1),
        "one member, fixed contexts": (fleet_of(fixed, 1), 1),
        f"fleet of {case.fleet}, random contexts": (fleet_of(case, case.fleet), case.fleet),
        f"fleet of {case.fleet}, fixed contexts": (fleet_of(fixed, case.fleet), case.fleet),
    }
    plain = Plain(case.run())
    own: dict[str, list[float]] = {"plain": [], **{name: [] for name in crews}}
    wall: dict[str, list[float]] = {name: [] for name in own}
    for _ in range(rounds):
        for name in own:
            crew, members = crews.get(name, (None, 1))
            by_own, by_wall = rate(plain.advance if crew is None else crew.advance, seconds)
            own[name].append(members * by_own)
            wall[name].append(members * by_wall)
    results = []
    for name in crews:
        mine, around = (Repeats(tuple(side[name])).over(Repeats(tuple(side["plain"]))) for side in (own, wall))
        results.append(
            {
                "name": name,
                "ratio": mine.median,
                "low": min(mine.values),
                "high": max(mine.values),
                "ratio_by_the_wall": around.median,
                "member_steps_per_second": Repeats(tuple(own[name])).median,
                "baseline_member_steps_per_second": Repeats(tuple(own["plain"])).median,
            }
        )
    about = {"heads": case.heads, "context": case.context, "d_model": case.d_model, "batch": 256, "threads": threads}
    return {"case": about, "rounds": rounds, "seconds": seconds, "disagreement": disagreement(case), "results": results}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `python -m keyspan.bench.labels`. returns: 1 where the two sides do not agree"""
    parser = argparse.ArgumentParser(prog="python -m keyspan.bench.labels", description=(__doc__ or "").splitlines()[0])
    for name, default, what in (
        ("heads", 20, "H"),
        ("context", 32, "n"),
        ("d-model", 64, "d, and the heads' width"),
        ("examples", 2048, "T"),
        ("fleet", 8, "members of a fleet"),
        ("rounds", 7, "how often all sides are timed in turns"),
        ("threads", 1, "of PyTorch, on both sides"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{what} (default {default})")
    parser.add_argument("--seconds", type=float, default=1.0, help="of computing, of each timing (default 1)")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    a = parser.parse_args(argv)
    try:
        case = Case(heads=a.heads, context=a.context, d_model=a.d_model, examples=a.examples, fleet=a.fleet)
        data = bench(case, a.rounds, a.seconds, a.threads)
    except KeyspanError as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return error.exit_code
    if a.json:
        print(json.dumps(data, indent=2, allow_nan=False))
    else:
        for r in data["results"]:
            spread, steps = f"[{r['low']:.0f}, {r['high']:.0f}]", f"{r['member_steps_per_second']:.0f} steps/s"
            print(f"{r['name']}: {r['ratio']:.0f} {spread} times the plain formulation ({steps})")
        print(f"losses of both sides differ by {data['disagreement']:.1e}")
    return 0 if data["disagreement"] <= CLOSE else 1


if __name__ == "__main__":
    raise SystemExit(main())
