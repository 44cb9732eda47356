"""The whole bench: every case with both sides and the ceiling measured in turns, the check, the growth curves."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import keyspan
from keyspan.bench.agreement import Baseline, agreement
from keyspan.bench.cases import BLOCK, STANDARD, Case, case_of
from keyspan.bench.ceilings import DTYPES, ceilings, matmul, products_in
from keyspan.bench.growth import QUICK, growth
from keyspan.bench.steps import eager_step, fleet_step, graphed_step
from keyspan.bench.timing import Repeats, Step, calls_in, rate, rounds, timed_both
from keyspan.bench.workers import crowd
from keyspan.errors import require
from keyspan.lab.fleet import one_thread
from keyspan.lab.worker import pick_device
from keyspan.runners.local import cores
from keyspan.specs import Run

Tell = Callable[[str], None]
Side = Callable[[], float]


@dataclass(frozen=True)
class Plan:
    """What is timed, and for how long.

    seconds: of one measurement    rounds: how often all sides are measured in turns    workers: processes of the fleet's
    side on a CPU    matmul_sizes: of the ceiling's products, default by device
    """

    cases: tuple[Case, ...]
    device: str
    seconds: float
    rounds: int
    workers: int
    growth: bool = True
    quick: bool = False
    seed: int = 0
    arithmetic: str = "fp32"
    matmul_sizes: tuple[int, ...] | None = None


def plan(
    cases: Sequence[str] = (),
    device: str = "auto",
    *,
    quick: bool = False,
    seconds: float | None = None,
    rounds: int | None = None,
    workers: int | None = None,
    members: int | None = None,
    growth: bool = True,
    seed: int = 0,
    arithmetic: str = "fp32",
) -> Plan:
    """A plan with its defaults filled in. cases: such as `128x32x4x8`, default the standard four"""
    where = pick_device(device)
    seconds = seconds if seconds is not None else (0.4 if quick else 2.0)
    rounds = rounds if rounds is not None else (3 if quick else 9)
    workers = workers if workers is not None else cores()
    require(seconds > 0, "`--seconds > 0`", seconds, "Try 0.5.")
    require(rounds >= 1, "`--rounds >= 1`", rounds, "Measure at least once.")
    require(arithmetic in DTYPES, f"`--arithmetic` in {'|'.join(DTYPES)}", repr(arithmetic), "Use fp32.")
    require(workers >= 1, "`--workers >= 1`", workers, "The fleet needs a process.")
    chosen = tuple(case_of(text, where, members) for text in (cases or STANDARD))
    return Plan(chosen, where, seconds, rounds, workers if where == "cpu" else 1, growth, quick, seed, arithmetic)


def dry(plan: Plan) -> dict[str, Any]:
    """What would be timed: members, FLOP of their steps, seconds."""
    spent = plan.rounds * plan.seconds * 2.5 + 5
    return {
        **_head(plan),
        "members": sum(c.members * plan.workers for c in plan.cases),
        "flops": sum(c.executed_flops * c.members * plan.workers for c in plan.cases),
        "seconds": round(len(plan.cases) * spent + (10 if plan.growth else 0), 1),
        "cases": [c.name(plan.device) for c in plan.cases],
    }


def bench(plan: Plan, tell: Tell = lambda text: None) -> dict[str, Any]:
    """Measure everything. returns: the JSON document of `keyspan bench`"""
    before = os.getloadavg()[0]
    tell("ceilings of this machine")
    top = ceilings(plan.device, plan.arithmetic, min(plan.seconds, 1.0), plan.matmul_sizes)
    results = []
    for case in plan.cases:
        tell(case.name(plan.device))
        results.append(measure(case, plan, top))
    curves = []
    if plan.growth:
        points, each = (QUICK, 0.15) if plan.quick else (None, 0.5)
        curves = growth(
            plan.device, min(each, plan.seconds), seed=plan.seed, arithmetic=plan.arithmetic, points=points, tell=tell
        )
    return {
        **_head(plan),
        "seconds": plan.seconds,
        "load": {"before": before, "after": os.getloadavg()[0]},
        "ceilings": top,
        "results": results,
        "growth": curves,
        "agrees": all(a["agrees"] for r in results for a in r["agreement"]),
    }


def _head(plan: Plan) -> dict[str, Any]:
    gpu = plan.device == "cuda"
    return {
        "schema": 1,
        "keyspan": keyspan.__version__,
        "device": plan.device,
        "device_name": torch.cuda.get_device_name(0) if gpu else "cpu",
        "torch": torch.__version__,
        "arithmetic": plan.arithmetic,
        "threads": torch.get_num_threads(),
        "workers": plan.workers,
        "rounds": plan.rounds,
    }


def measure(case: Case, plan: Plan, top: dict[str, Any]) -> dict[str, Any]:
    """One case: do both sides agree, and how fast are they?"""
    run = case.run(plan.seed * BLOCK, arithmetic=plan.arithmetic)
    with products_in(plan.arithmetic):
        agreed = agreements(case, plan)
        step = eager_step(run, plan.device)[0]
        found = _on_gpu(case, run, plan, top, step) if plan.device == "cuda" else _on_cpu(case, plan, step)
    return found | {"workers": plan.workers, "agreement": agreed}


def agreements(case: Case, plan: Plan) -> list[dict[str, Any]]:
    """Every baseline beside the fleet's own training, in float64 and in the plan's arithmetic."""
    baselines: dict[str, Baseline] = {"eager": eager_step}
    if plan.device == "cuda":
        baselines["graphed"] = graphed_step
    members = 1 if plan.quick else 2
    return [
        {"baseline": name}
        | agreement(case, plan.device, seed=plan.seed, arithmetic=a, baseline=baseline, members=members).to_dict()
        for name, baseline in baselines.items()
        for a in dict.fromkeys(("fp64", plan.arithmetic))
    ]


def _on_gpu(case: Case, run: Run, plan: Plan, top: dict[str, Any], eager: Step) -> dict[str, Any]:
    """One fleet, one eager model, one captured model and the product, in turns."""
    fleet = _timed(fleet_step(case.runs(plan.seed, arithmetic=plan.arithmetic), plan.device), plan.seconds)
    size = top["matmul"]["size"]
    product = _timed(matmul(size, plan.device, plan.arithmetic), plan.seconds / 3)
    sides: list[Side] = [lambda: fleet() * case.members, _timed(eager, plan.seconds), lambda: product() * 2.0 * size**3]
    ours, theirs, ceiling, graphed = rounds([*sides, _timed(graphed_step(run)[0], plan.seconds)], plan.rounds)
    return result(case, plan.device, ours, theirs, ceiling, graphed=graphed)


def _on_cpu(case: Case, plan: Plan, eager: Step) -> dict[str, Any]:
    """All workers' fleets, one eager model and all workers' products, in turns.

    The eager model may choose: all threads, as PyTorch has it by default, or one, which is often faster for a small model
    and always on a busy machine. The faster of the two is the baseline.
    """
    count = calls_in(eager, plan.seconds)
    computing: list[float] = []

    def alone() -> float:
        with one_thread():
            by_wall, by_cpu = timed_both(eager, count)
        computing.append(by_cpu)
        return by_wall

    with crowd(case, plan.workers, plan.seconds, seed=plan.seed, arithmetic=plan.arithmetic) as workers:
        sides: list[Side] = [
            _timed(eager, plan.seconds),
            alone,
            *(partial(workers.rate, name) for name in ("fleet", "matmul", "onednn")),
        ]
        rounds(sides[2:], 1)  # a warm-up, in which the workers also find how many steps fill a measurement
        every, one, ours, ceiling, onednn = rounds(sides, plan.rounds)
        cpu_ratio = Repeats(tuple(workers.cpu_rates["fleet"][1:])).over(Repeats(tuple(computing)))
    threads = torch.get_num_threads() if every.median >= one.median else 1
    theirs = every if threads > 1 else one
    return result(case, plan.device, ours, theirs, ceiling, onednn=onednn) | {
        "ratio_cpu_time": cpu_ratio.median,
        "baseline_threads": threads,
        "baseline_by_threads": {str(torch.get_num_threads()): every.median, "1": one.median},
    }


def _timed(step: Step, seconds: float) -> Side:
    """Measures calls per second; how many calls that takes is found once."""
    count = calls_in(step, seconds)
    return lambda: rate(step, count)


def result(
    case: Case,
    device: str,
    ours: Repeats,
    eager: Repeats,
    ceiling: Repeats,
    *,
    onednn: Repeats | None = None,
    graphed: Repeats | None = None,
) -> dict[str, Any]:
    """The line of one case. ours, eager, graphed: member-steps a second    ceiling, onednn: FLOP a second of products

    Ratios are taken round by round and their median is told, so `ratio` is not exactly the quotient of two medians.
    """
    ratio = ours.over(eager)
    other = onednn is not None and min(onednn.values) > 0
    beside = None
    if graphed is not None:
        beside = {"member_steps_per_second": graphed.median, "spread": graphed.spread, "ratio": ours.over(graphed).median}
    return {
        "name": case.name(device),
        "ratio": ratio.median,
        "ratio_low": min(ratio.values),
        "ratio_high": max(ratio.values),
        "of_ceiling": ours.over(ceiling).median * case.nominal_flops,
        "of_onednn": ours.over(onednn).median * case.nominal_flops if other and onednn else None,
        "ceiling_flops": ceiling.median,
        "member_steps_per_second": ours.median,
        "spread": ours.spread,
        "baseline_member_steps_per_second": eager.median,
        "baseline_spread": eager.spread,
        "ratio_cpu_time": None,
        "baseline_threads": None,
        "baseline_by_threads": None,
        "graphed": beside,
        "items": case.items,
        "d_model": case.d_model,
        "heads": case.heads,
        "d_key": case.d_key,
        "members": case.members,
        "nominal_flops": case.nominal_flops,
        "executed_flops": case.executed_flops,
        "flops_per_second": ours.median * case.nominal_flops,
    }
