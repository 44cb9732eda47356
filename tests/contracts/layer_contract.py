"""What every speed of a layer must do: agree with `keyspan.attention.reference` in value and in gradient.

Weights go in and come out in the reference's own layout, so that the suite knows nothing of how a bucket keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from keyspan.attention import reference
from keyspan.attention.examples import Examples
from keyspan.attention.instrument import Params
from keyspan.attention.layer import LayerBucket
from keyspan.lab import recipes
from keyspan.problems import NoContents
from keyspan.problems.contexts import LabelInstance, Labels
from keyspan.seeds import Stream
from keyspan.specs import Layer, Run, Stopping

Float = NDArray[np.float64]
BATCH = 16
# (heads, d_head, context, examples) of the members of a crew, all sizes different primes where they can be
MEMBERS = [(3, 5, 6, 13), (4, 7, 5, 43), (2, 3, 7, 17)]
CONTEXTS = ["random", "fixed", "perm"]
LOSSES = {
    "classes": (reference.cross_entropy, reference.cross_entropy_slope),
    "values": (reference.squared_error, reference.squared_error_slope),
}


def layer_run(
    heads: int,
    d_head: int,
    context: int,
    examples: int,
    replicate: int = 0,
    *,
    d_model: int = 11,
    contexts: str = "random",
    task: str = "classes",
    d_value: int = 1,
    arithmetic: str = "fp32",
    steps: int = 23,
    batch: int = BATCH,
) -> Run:
    """A member with few classes and small minibatches."""
    classes = 7 if task == "classes" else None
    return Run(
        problem=Labels(context=context, d_model=d_model, examples=examples, contexts=contexts, task=task, classes=classes),
        replicate=replicate,
        instrument=Layer(heads=heads, d_key=d_head, d_value=d_value),
        recipe=replace(recipes.paper(task, steps=steps), batch=batch),
        stopping=Stopping(check_every=7),
        arithmetic=arithmetic,
    )


@dataclass
class Loaded:
    """Members of one bucket, ready to step. task: of all of them"""

    task: str
    bucket: LayerBucket
    runs: list[Run]
    instances: list[LabelInstance]
    params: Params
    batch: Examples

    def weights(self, member: int) -> dict[str, Float]:
        return dict(self.bucket.answers(self.params, member, self.runs[member]))

    def expected(self, member: int, step: int) -> tuple[float, dict[str, Float]]:
        """Value and gradient of a member's own minibatch at a step, by the reference."""
        instance = self.instances[member]
        epoch, position = divmod(step, -(-instance.load // BATCH))
        some = instance.order(epoch, 1)[0][position * BATCH : (position + 1) * BATCH]
        return self.on(member, some)

    def on(self, member: int, some: NDArray[np.int64]) -> tuple[float, dict[str, Float]]:
        instance, weights = self.instances[member], self.weights(member)
        queries, contexts = instance.queries[some].astype(np.float64), instance.context(some).astype(np.float64)
        outputs, labels = reference.labels_outputs(weights, queries, contexts), instance.labels[some]
        value, slope = LOSSES[self.task]
        grads = reference.labels_grad(weights, queries, contexts, slope(outputs, labels))  # type: ignore[operator]
        return value(outputs, labels), grads  # type: ignore[operator]


class LayerContract:
    """Inherited once for every device and arithmetic."""

    device: ClassVar[str]
    arithmetic: ClassVar[str]
    tolerance: ClassVar[float]

    def loaded(
        self, contexts: str = "random", task: str = "classes", d_value: int = 1, members: Sequence[Any] = MEMBERS
    ) -> Loaded:
        runs = [
            layer_run(h, k, n, t, i, contexts=contexts, task=task, d_value=d_value, arithmetic=self.arithmetic)
            for i, (h, k, n, t) in enumerate(members)
        ]
        bucket = LayerBucket(runs, runs[0].recipe.loss, 2.0, 0.0, torch.device(self.device))  # type: ignore[attr-defined]
        instances = [r.problem.instance(r.problem_id, NoContents()) for r in runs]  # type: ignore[attr-defined]
        batch = bucket.load(runs[0].problem.batch(0, instances), runs)  # type: ignore[attr-defined]
        return Loaded(task, bucket, runs, instances, bucket.init(runs), batch)

    def close(self, mine: Any, theirs: Any) -> bool:
        mine, theirs = np.asarray(mine), np.asarray(theirs)
        assert mine.shape == theirs.shape
        return float(np.linalg.norm(mine - theirs)) <= self.tolerance * (float(np.linalg.norm(theirs)) + 1e-3)

    def assert_reference(self, given: Loaded, steps: Sequence[int]) -> None:
        given.bucket.turn(given.batch, {}, steps)
        value, grads = given.bucket.value_and_grad(given.params, given.batch)
        assert value is not None and value.shape == (len(steps),)
        for member, step in enumerate(steps):
            expected, slopes = given.expected(member, step)
            assert abs(float(value[member]) - expected) <= self.tolerance * abs(expected)
            mine = given.bucket.answers(grads, member, given.runs[member])
            assert set(mine) == set(slopes)
            for name, slope in slopes.items():
                assert self.close(mine[name], slope), (member, name)

    @pytest.mark.parametrize("contexts", CONTEXTS)
    @pytest.mark.parametrize("task", list(LOSSES))
    @pytest.mark.parametrize("d_value", [1, 3])
    def test_value_and_gradient_are_the_reference(self, contexts: str, task: str, d_value: int) -> None:
        """Every member at a step of its own: a first minibatch, one that an epoch's end leaves smaller, a later epoch."""
        self.assert_reference(self.loaded(contexts, task, d_value), [0, 2, 5])

    @pytest.mark.parametrize("contexts", CONTEXTS)
    def test_blocks_of_members_change_nothing(self, contexts: str) -> None:
        given = self.loaded(contexts)
        given.bucket.turn(given.batch, {}, [3, 1, 0])
        whole, grads = given.bucket.value_and_grad(given.params, given.batch)
        given.bucket.block = 2
        pieces, same = given.bucket.value_and_grad(given.params, given.batch)
        assert whole is not None and pieces is not None and torch.equal(whole, pieces)
        assert all(torch.equal(grads[k], same[k]) for k in grads)

    def test_without_the_value_the_gradient_is_the_same(self) -> None:
        given = self.loaded()
        value, grads = given.bucket.value_and_grad(given.params, given.batch)
        nothing, same = given.bucket.value_and_grad(given.params, given.batch, value=False)
        assert value is not None and nothing is None
        assert set(grads) == set(same) == set(given.params)
        assert all(torch.equal(grads[k], same[k]) and grads[k].shape == given.params[k].shape for k in grads)

    @pytest.mark.parametrize("contexts", CONTEXTS)
    def test_padding_has_no_gradient(self, contexts: str) -> None:
        given = self.loaded(contexts)
        given.bucket.turn(given.batch, {}, [1, 2, 0])
        _, grads = given.bucket.value_and_grad(given.params, given.batch)
        for member, run in enumerate(given.runs):
            packed = given.bucket.packed(given.bucket.answers(grads, member, run))
            for name, slope in packed.items():
                there = grads[name][member].double().cpu().numpy()
                assert np.isfinite(there).all() and (there == slope).all(), (member, name)

    def test_large_logits_do_not_overflow(self) -> None:
        given = self.loaded()
        given.params["w_query"] *= 60.0
        self.assert_reference(given, [0, 1, 2])

    @pytest.mark.parametrize("contexts", CONTEXTS)
    def test_one_token_and_one_example(self, contexts: str) -> None:
        self.assert_reference(self.loaded(contexts, members=[(1, 1, 1, 1), (2, 1, 1, 3)]), [0, 0])

    @pytest.mark.parametrize("contexts", CONTEXTS)
    @pytest.mark.parametrize("task", list(LOSSES))
    def test_a_look_scores_all_examples_and_keeps_the_best(self, contexts: str, task: str) -> None:
        given = self.loaded(contexts, task)
        memory = given.bucket.memory(given.runs)
        given.bucket.turn(given.batch, memory, [0, 0, 0])
        given.bucket.look(given.params, given.batch, memory, [7, 7, 7])
        for member, instance in enumerate(given.instances):
            loss, _ = given.on(member, np.arange(instance.load))
            assert float(memory["loss"][member]) == pytest.approx(loss, rel=max(self.tolerance, 1e-6))
        first = {k: v.clone() for k, v in given.params.items()}
        worse = {k: v + (50.0 if k == "b_label" else 0.0) * torch.arange(v.shape[-1]).to(v) for k, v in first.items()}
        given.bucket.look(worse, given.batch, memory, [14, 14, 14])
        kept = given.bucket.kept(worse, memory)
        assert all(torch.equal(kept[k], first[k]) for k in first)
        assert not bool(given.bucket.clear(worse, given.batch, 0.0).any())

    @pytest.mark.parametrize("contexts", CONTEXTS)
    def test_members_that_leave_or_join_leave_the_others_alone(self, contexts: str) -> None:
        given = self.loaded(contexts)
        steps = [1, 2, 3]
        given.bucket.turn(given.batch, {}, steps)
        _, grads = given.bucket.value_and_grad(given.params, given.batch)
        for keep in ([1], [0, 2], [2]):
            some = given.bucket.select(given.batch, torch.tensor(keep))
            given.bucket.turn(some, {}, [steps[m] for m in keep])
            _, mine = given.bucket.value_and_grad({k: v[keep] for k, v in given.params.items()}, some)
            assert all(torch.equal(mine[k], grads[k][keep]) for k in mine)
        one, rest = (given.bucket.select(given.batch, torch.tensor(k)) for k in ([1], [0, 2]))
        both = given.bucket.join(one, rest)
        order = [1, 0, 2]
        given.bucket.turn(both, {}, [steps[m] for m in order])
        _, mine = given.bucket.value_and_grad({k: v[order] for k, v in given.params.items()}, both)
        assert all(torch.equal(mine[k], grads[k][order]) for k in mine)


def plain_outputs(weights: dict[str, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
    """The plain formulation: every row asks, every head by a broadcast product. rows: (B, n + 1, d), row 0 the query"""
    size, d = rows.shape[1], rows.shape[2]
    x = rows @ weights["w_in"] + weights["b_in"] + torch.from_numpy(reference.positions(size, d)).to(rows)
    q, k, v = (x[:, None] @ weights[name][None] for name in ("w_query", "w_key", "w_value"))
    logits = q @ k.transpose(2, 3) / d**0.5
    logits[..., 0] = -torch.inf
    heads = (torch.softmax(logits, dim=-1) @ v).transpose(1, 2).flatten(2)
    return (heads @ weights["w_out"].flatten(0, 1) @ weights["w_label"] + weights["b_label"])[:, 0]


def random_stream(name: str) -> Stream:
    """For draws of the tests' own."""
    return Stream("layer-contract", name)
