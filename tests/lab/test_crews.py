"""Several crews at sea, refilled, with members made ready on other threads: as beside a GPU, tried out on a CPU.

Only the clockwork is the GPU's here. What steps is PyTorch on the CPU, under an optimiser that counts every member's own
steps, so a member's bits can be compared with those it has alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.test_fleet import Outcome, channel_run, countdown

from keyspan.attention.instrument import Params
from keyspan.lab import crew, fleet, host, recipes
from keyspan.lab.checkpoints import Checkpoints
from keyspan.lab.fleet import Control, sail
from keyspan.lab.host import Host, Instances
from keyspan.lab.optimizers import AdamOptimizer, Optimizer, State, make_optimizer
from keyspan.lab.recipes import Adam
from keyspan.problems import NoContents
from keyspan.specs import Run, Spec
from keyspan.verdict import Status


class Patient(AdamOptimizer):
    """Adam, a member at a time, each at its own step."""

    joins = True

    def start(self, params: Params) -> State:
        w = next(iter(params.values()))
        return super().start(params) | {"clock": torch.zeros(len(w), dtype=torch.int64)}

    def step(self, params: Params, value: torch.Tensor | None, grads: Params, state: State, step: int) -> None:
        for member, clock in enumerate(state["clock"].tolist()):
            here = slice(member, member + 1)
            own = {k: v[here] for k, v in state.items() if k not in ("clock", "lost")}
            super().step({k: v[here] for k, v in params.items()}, None, {k: v[here] for k, v in grads.items()}, own, clock)
        state["clock"] += 1


def patient(phase: Spec, fused: torch.device | None = None, clocked: torch.device | None = None) -> Optimizer:
    return Patient(phase) if isinstance(phase, Adam) else make_optimizer(phase, fused, clocked)


@pytest.fixture
def clockwork(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Three crews of at most three members, other threads for the host. returns: who was in every crew as it put to sea"""
    crews: list[list[str]] = []

    class Seen(crew.Crew):
        def __init__(self, members: Sequence[Any], *rest: Any) -> None:
            crews.append([m.run.run_id for m in members])
            assert all(m.drawn is not None or m.saved is not None for m in members)
            super().__init__(members, *rest)

    monkeypatch.setattr(crew, "make_optimizer", patient)
    monkeypatch.setattr(fleet, "Crew", Seen)
    monkeypatch.setitem(fleet.CREWS, "cpu", 3)
    monkeypatch.setattr(fleet, "capacity", lambda run, free: 3)
    monkeypatch.setattr(fleet, "AHEAD", 2)
    monkeypatch.setattr(fleet, "shards", lambda runs, workers, split: [list(runs)])
    monkeypatch.setattr(fleet, "host_for", lambda device, contents: Host(contents, threads=2))
    return crews


LONG = recipes.gradient(steps=60)


def members() -> list[Run]:
    """Of three buckets; some of them are held exactly early, so that places become free."""
    easy = [channel_run(1, 6, seed, items=8, d_model=16, recipe=LONG) for seed in range(5)]
    hard = [channel_run(1, 5, seed, items=16, d_model=4, recipe=LONG) for seed in range(4)]
    more = [channel_run(3, 2, seed) for seed in range(7)] + [channel_run(4, 2, 9)]
    return easy + hard + more


@pytest.fixture(scope="module")
def alone() -> dict[str, Outcome]:
    return {f.run.run_id: Outcome.of(f) for run in members() for f in sail([run])}


def test_refilled_crews_leave_every_member_its_bits(clockwork: list[list[str]], alone: dict[str, Outcome]) -> None:
    runs = members()
    found = {f.run.run_id: Outcome.of(f) for f in sail(runs)}
    assert found == alone
    assert max(len(names) for names in clockwork) == 3
    began = [run_id for names in clockwork for run_id in names]
    assert len(began) < len(runs), "some members joined a crew at sea"
    assert len(set(began)) == len(began)


def test_more_members_join_while_others_are_at_sea(clockwork: list[list[str]], alone: dict[str, Outcome]) -> None:
    runs = members()
    later = [runs[9:12], runs[5:9], runs[12:]]
    found = {f.run.run_id: Outcome.of(f) for f in sail(runs[:5], more=lambda: later.pop() if later else [])}
    assert found == alone


@pytest.mark.parametrize("calls", [40, 61, 110])
def test_stopped_and_gone_on_with_other_clocks(
    calls: int, clockwork: list[list[str]], alone: dict[str, Outcome], tmp_path: Path
) -> None:
    """Members of one crew are stopped at different steps of their own, and go on together."""
    checkpoints = Checkpoints(tmp_path)
    done: dict[str, Outcome] = {}
    for _ in range(50):
        left = [run for run in members() if run.run_id not in done]
        if not left:
            break
        control = Control(stop=countdown(calls), checkpoints=checkpoints)
        done |= {f.run.run_id: Outcome.of(f) for f in sail(left, control=control)}
    assert done == alone


def test_memory_that_runs_out_loses_nobody(
    clockwork: list[list[str]], alone: dict[str, Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither who is at sea, nor who is just joining, nor who has just left."""
    whole, joins = crew.Crew.join, 0

    def join(self: crew.Crew, joining: Sequence[Any]) -> None:
        nonlocal joins
        joins += 1
        if joins == 2:
            raise torch.OutOfMemoryError("no room")
        whole(self, joining)

    monkeypatch.setattr(crew.Crew, "join", join)
    finished = list(sail(members()))
    assert joins >= 2
    assert len(finished) == len(alone)
    assert {f.run.run_id: Outcome.of(f) for f in finished} == alone


def test_a_member_that_never_fits_is_recorded_once_the_others_are_home(
    clockwork: list[list[str]], alone: dict[str, Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = members()[6].run_id
    whole = crew.make_bucket

    def make_bucket(runs: Sequence[Run], device: torch.device) -> Any:
        if victim in {r.run_id for r in runs} and len(crew_sizes) > 0:
            raise torch.OutOfMemoryError("no room")
        return whole(runs, device)

    crew_sizes = clockwork
    monkeypatch.setattr(crew, "make_bucket", make_bucket)
    found = {f.run.run_id: f for f in sail(members())}
    assert found.pop(victim).verdict.status is Status.OUT_OF_MEMORY
    assert {k: Outcome.of(f) for k, f in found.items()} == {k: v for k, v in alone.items() if k != victim}


def test_an_instance_is_made_once_for_all_that_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    problem = channel_run(1, 2).problem
    whole = type(problem).instance  # type: ignore[attr-defined]

    def instance(self: Any, problem_id: str, contents: Any) -> Any:
        made.append(problem_id)
        return whole(self, problem_id, contents)

    monkeypatch.setattr(type(problem), "instance", instance)
    instances = Instances(NoContents())
    runs = [channel_run(h, 2, seed) for h in (1, 2, 3) for seed in (0, 1)]
    got = [instances.get(run) for run in runs]
    assert sorted(made) == sorted({run.problem_id for run in runs})
    assert got[0] is got[2] and got[0] is not got[1]


def test_the_oldest_instances_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [channel_run(1, 2, seed) for seed in range(4)]
    size = host._size(Instances(NoContents()).get(runs[0]))
    monkeypatch.setattr(host, "KEPT_BYTES", 2 * size)
    instances = Instances(NoContents())
    first, second = (instances.get(run) for run in runs[:2])
    assert instances.get(runs[0]) is first  # now the second is the oldest
    instances.get(runs[2])
    assert instances.get(runs[0]) is first and instances.get(runs[1]) is not second
    monkeypatch.setattr(host, "KEPT_BYTES", 0)
    last = instances.get(runs[3])
    assert instances.get(runs[3]) is last  # what was just made stays, however large


def test_an_instance_that_cannot_be_made_says_so_every_time() -> None:
    run = channel_run(1, 2)
    graph = replace(run.problem.graph, name="file", edges=3, content="0" * 64)  # type: ignore[attr-defined]
    missing = replace(run, problem=replace(run.problem, graph=graph))  # type: ignore[type-var]
    instances = Instances(NoContents())
    for _ in range(2):
        with pytest.raises(ValueError, match="content"):
            instances.get(missing)
