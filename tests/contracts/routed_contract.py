"""What every speed of routing must do: agree with `attention.reference_routed` in value and in gradient.

The reference's slope is taken along the imaginary axis, which is exact to the last bit: `f'(w) v = Im f(w + i t v) / t`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from keyspan.attention import reference_routed as reference
from keyspan.attention.instrument import Params
from keyspan.attention.routed import LOSS, RoutedBucket
from keyspan.attention.shapes import Routed
from keyspan.lab.recipes import recall
from keyspan.problems import NoContents, graphs
from keyspan.problems.in_context import InContext, InContextInstance
from keyspan.problems.relations import Relations
from keyspan.seeds import Stream
from keyspan.specs import Run, Stopping

# Every part, at sizes that share a bucket: (heads, d_key) of each member.
LAYERS: dict[str, tuple[Routed, list[tuple[int, int]]]] = {
    "attention": (Routed(heads=1, d_key=1), [(3, 2), (4, 2)]),
    "one head": (Routed(heads=1, d_key=1), [(1, 5), (1, 7)]),
    "no sink": (Routed(heads=1, d_key=1, sink=False), [(3, 3), (4, 4)]),
    "a temperature": (Routed(heads=1, d_key=1, temperature=1.7), [(3, 2), (4, 2)]),
    "values": (Routed(heads=1, d_key=1, d_value=12), [(3, 2), (4, 2)]),
    "values, no sink": (Routed(heads=1, d_key=1, d_value=6, sink=False, temperature=2.0), [(2, 3)]),
    "a block": (Routed(heads=1, d_key=1, d_value=12, hidden=13), [(3, 2), (4, 2)]),
}
STEPS = (37, 3)  # of the members, in different blocks of contexts


@dataclass
class Loaded:
    """Members of one bucket, ready to step, every one at its own step, with weights away from where they begin."""

    bucket: RoutedBucket
    runs: list[Run]
    instances: list[InContextInstance]
    params: Params
    batch: Any

    def layer(self, member: int) -> Routed:
        layer = self.runs[member].instrument
        assert isinstance(layer, Routed)
        return layer

    def known(self, member: int) -> tuple[Any, ...]:
        """The contexts of its step as the reference takes them, its rows and the number of its edges."""
        instance = self.instances[member]
        rows, shown = instance.relations.embeddings, instance.contexts_at(STEPS[member])
        contexts = []
        for items, there, places in zip(shown.items, shown.open, shown.places, strict=True):
            kept = np.flatnonzero(there)
            to = np.full(len(there), -1)
            to[kept] = np.arange(len(kept))
            asked = places[kept] >= 0
            at = np.where(asked, to[places[kept]], -1)
            contexts.append((rows[items[kept]], at, np.where(asked, items[places[kept]], -1)))
        return contexts, rows, instance.load

    def loss(self, member: int, weights: dict[str, Any]) -> Any:
        contexts, rows, edges = self.known(member)
        return reference.loss(self.layer(member), contexts, weights, rows, edges)


class RoutedContract:
    """Inherited once for every device and arithmetic."""

    device: ClassVar[str]
    arithmetic: ClassVar[str]
    tolerance: ClassVar[float]

    def runs(self, layer: Routed, sizes: Sequence[tuple[int, int]]) -> list[Run]:
        families = [graphs.permutation(), graphs.functional(loops=False)]
        return [
            Run(
                problem=InContext(relations=Relations(items=23, d_model=11, graph=families[k]), length=10),
                replicate=k,
                instrument=layer.with_budget(heads, heads * d_key),
                recipe=recall(),
                stopping=Stopping(),
                arithmetic=self.arithmetic,
            )
            for k, (heads, d_key) in enumerate(sizes)
        ]

    def loaded(self, runs: list[Run]) -> Loaded:
        bucket = RoutedBucket(runs, LOSS, 4.0, -0.3, torch.device(self.device))
        instances = [r.problem.instance(r.problem_id, NoContents()) for r in runs]  # type: ignore[attr-defined]
        batch = bucket.load(runs[0].problem.batch(0, instances), runs)  # type: ignore[attr-defined]
        bucket.turn(batch, {}, STEPS[: len(runs)])
        params = bucket.init(runs)
        for name in ("sink", "b_up", "b_down", "w_down", "norm_in", "norm_mid", "norm_out"):
            for member, run in enumerate(runs):  # where they begin is a special place
                if name in params:
                    real = bucket.answers({name: torch.ones_like(params[name])}, member, run)[name].shape
                    away = torch.from_numpy(Stream(run.run_id, name).normal(real) * 0.3).to(params[name])
                    params[name][member][tuple(slice(n) for n in real)] += away
        return Loaded(bucket, runs, instances, params, batch)

    @pytest.mark.parametrize("name", LAYERS)
    def test_value_and_gradient_are_the_reference(self, name: str) -> None:
        layer, sizes = LAYERS[name]
        given = self.loaded(self.runs(layer, sizes))
        value, grads = given.bucket.value_and_grad(given.params, given.batch)
        assert value is not None and value.shape == (len(sizes),)
        nothing, same = given.bucket.value_and_grad(given.params, given.batch, value=False)
        assert nothing is None and all(torch.equal(grads[k], same[k]) for k in grads)
        for member, run in enumerate(given.runs):
            weights = dict(given.bucket.answers(given.params, member, run))
            theirs = float(given.loss(member, weights))
            assert abs(float(value[member]) - theirs) <= self.tolerance * abs(theirs)
            mine = given.bucket.answers(grads, member, run)
            for part in weights:
                way = Stream(part, "direction").normal(weights[part].shape)
                ahead = {k: v.astype(np.complex128) for k, v in weights.items()}
                ahead[part] = ahead[part] + 1e-30j * way
                expected = float(given.loss(member, ahead).imag) / 1e-30
                size = float(np.linalg.norm(mine[part]) * np.linalg.norm(way))
                assert abs(float((mine[part] * way).sum()) - expected) <= self.tolerance * size, part

    @pytest.mark.parametrize("name", LAYERS)
    def test_padding_has_no_gradient(self, name: str) -> None:
        layer, sizes = LAYERS[name]
        given = self.loaded(self.runs(layer, sizes))
        _, grads = given.bucket.value_and_grad(given.params, given.batch)
        for member, run in enumerate(given.runs):
            real = given.bucket.answers(grads, member, run)
            for part, grad in grads.items():
                assert bool(torch.isfinite(grad).all())
                assert int(grad[member].count_nonzero()) <= real[part].size
                assert float((grad[member] ** 2).sum()) == pytest.approx(float((real[part] ** 2).sum()), rel=1e-5)

    def test_selected_and_joined_members_go_on_as_they_were(self) -> None:
        layer, sizes = LAYERS["a block"]
        given = self.loaded(self.runs(layer, sizes))
        value, _ = given.bucket.value_and_grad(given.params, given.batch)
        parts = [given.bucket.select(given.batch, torch.tensor([k], device=self.device)) for k in (1, 0)]
        whole = given.bucket.join(*parts)
        assert whole.ids == tuple(given.runs[k].problem_id for k in (1, 0))
        given.bucket.turn(whole, {}, [STEPS[1], STEPS[0]])
        again, _ = given.bucket.value_and_grad({k: v[[1, 0]] for k, v in given.params.items()}, whole)
        assert value is not None and again is not None
        assert torch.allclose(again, value[[1, 0]], rtol=self.tolerance, atol=0)
