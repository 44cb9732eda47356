"""Three speeds, one answer: D_K* of a cell by the reference, by batched torch and, on a GPU, by the fused step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from keyspan.attention import reference
from keyspan.attention.channel import ChannelBucket
from keyspan.evidence.record import Record, make_record
from keyspan.evidence.store import open_store
from keyspan.lab.fleet import sail
from keyspan.lab.judge import judge
from keyspan.lab.optimizers import one_cycle
from keyspan.lab.recipes import Adam, Recipe
from keyspan.lab.search import Answer
from keyspan.problems import NoContents
from keyspan.problems.relations import Relations
from keyspan.runners import driver
from keyspan.runners.questions import relations_question
from keyspan.specs import Question, Run

CELLS = [(24, 24), (32, 12)]


def question(items: int, d_model: int) -> Question:
    return relations_question(Relations(items=items, d_model=d_model), heads=[1, 2, 4], seeds=3, steps=500)


def by_reference(run: Run) -> Record:
    """One member, one step after another, by the equations of the reference and of Adam, in float64."""
    assert isinstance(run.recipe, Recipe)
    (phase,) = run.recipe.phases
    assert isinstance(phase, Adam)
    instance: Any = run.problem.instance(run.problem_id, NoContents())  # type: ignore[attr-defined]
    start = ChannelBucket([replace(run, arithmetic="fp64")], "bce", 1.0, run.recipe.bias, torch.device("cpu"))
    w = {k: np.array(v) for k, v in start.answers(start.init([run]), 0, run).items()}
    first, second = ({k: np.zeros_like(v) for k, v in w.items()} for _ in range(2))
    for step in range(phase.steps):
        found = reference.bce_grad(instance.embeddings, instance.edges, w["w_query"], w["w_key"], float(w["bias"]))
        for name, g in zip(("w_query", "w_key", "bias"), map(np.asarray, found), strict=True):
            first[name] = phase.beta1 * first[name] + (1 - phase.beta1) * g
            second[name] = phase.beta2 * second[name] + (1 - phase.beta2) * g**2
            mean, square = first[name] / (1 - phase.beta1 ** (step + 1)), second[name] / (1 - phase.beta2 ** (step + 1))
            w[name] = w[name] - one_cycle(phase, step) * mean / (np.sqrt(square) + phase.epsilon)
    return make_record(run, judge(instance, w), steps=phase.steps)


class Speed:
    """A runner that trains by one of the speeds."""

    def __init__(self, device: str | None) -> None:
        self.device = device

    def run(self, runs: Sequence[Run], progress: Any = None, more: Any = None) -> Iterator[Record]:
        if self.device is None:
            yield from map(by_reference, runs)
        else:
            for f in sail(runs, self.device):
                yield make_record(f.run, f.verdict, **f.facts)

    def close(self) -> list[Record]:
        return []


def answer(asked: Question, device: str | None, folder: Path) -> Answer:
    with open_store(f"sqlite:///{folder}/{device}.db") as store:
        (outcome,) = driver.answer([asked], store, lambda: Speed(device))
    return outcome.answer


def assert_same(one: Answer, two: Answer) -> None:
    a, b = one.crossing, two.crossing
    assert a.estimate is not None and b.estimate is not None
    assert a.low is not None and a.high is not None and b.low is not None and b.high is not None
    assert a.low <= b.high and b.low <= a.high, "the intervals meet"
    assert a.low <= b.estimate <= a.high or b.low <= a.estimate <= b.high


@pytest.mark.parametrize("items, d_model", CELLS)
def test_batched_is_the_reference(items: int, d_model: int, tmp_path: Path) -> None:
    asked = question(items, d_model)
    assert_same(answer(asked, None, tmp_path), answer(asked, "cpu", tmp_path))


@pytest.mark.gpu
@pytest.mark.parametrize("arithmetic", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("items, d_model", CELLS)
def test_fused_is_batched(items: int, d_model: int, arithmetic: str, tmp_path: Path) -> None:
    asked = question(items, d_model)
    assert_same(answer(replace(asked, arithmetic=arithmetic), "cuda", tmp_path), answer(asked, "cpu", tmp_path))
