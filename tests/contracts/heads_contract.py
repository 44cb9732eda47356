"""What every speed of the heads of today must do: agree with `attention.reference_heads` in value and in gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from tests.contracts.attention_contract import close

from keyspan.attention import reference_heads as reference
from keyspan.attention.heads import HeadsBucket
from keyspan.attention.instrument import Params
from keyspan.attention.shapes import Heads
from keyspan.lab.recipes import gradient
from keyspan.problems import NoContents, graphs
from keyspan.problems.placed import Placed, PlacedInstance
from keyspan.problems.relations import Relations
from keyspan.specs import Run, Stopping

# Every part alone and in company, at sizes that share a bucket: (heads, d_key) of each member.
KINDS: dict[str, tuple[Heads, list[tuple[int, int]]]] = {
    "plain": (Heads(heads=1, d_key=1), [(3, 2), (4, 2)]),
    "one head": (Heads(heads=1, d_key=1), [(1, 5), (1, 7)]),
    "all share": (Heads(heads=1, d_key=1, share=0), [(3, 5), (4, 8)]),
    "two share": (Heads(heads=2, d_key=1, share=2), [(6, 3), (8, 4)]),
    "three share": (Heads(heads=3, d_key=1, share=3), [(6, 3)]),  # padding that is no multiple of a group
    "latent": (Heads(heads=1, d_key=1, latent=2), [(3, 3), (4, 4)]),
    "wide latent": (Heads(heads=1, d_key=1, latent=12), [(2, 3)]),
    "turned": (Heads(heads=1, d_key=1, rotary=1.0), [(3, 6), (4, 8)]),
    "half turned, another base": (Heads(heads=1, d_key=1, rotary=0.5, base=50.0), [(3, 5), (4, 7)]),
    "nothing to turn": (Heads(heads=1, d_key=1, rotary=1.0), [(3, 1)]),
    "a window": (Heads(heads=1, d_key=1, rotary=1.0, window=3), [(3, 6), (4, 8)]),
    "norm": (Heads(heads=1, d_key=1, norm=True), [(3, 5), (4, 7)]),
    "cap": (Heads(heads=1, d_key=1, cap=0.6), [(3, 2), (4, 2)]),
    "bf16": (Heads(heads=1, d_key=1, keys="bf16"), [(3, 2), (4, 2)]),
    "fp8": (Heads(heads=1, d_key=1, keys="fp8"), [(3, 2), (4, 2)]),
    "int8": (Heads(heads=1, d_key=1, keys="int8"), [(3, 2), (4, 2)]),
    "int4, shared, normalised, turned, capped": (
        Heads(heads=2, d_key=1, share=2, rotary=1.0, norm=True, cap=2.0, keys="int4"),
        [(6, 6), (8, 8)],
    ),
    "latent, turned apart, int8, capped": (
        Heads(heads=1, d_key=1, latent=3, rotary=0.5, cap=2.0, keys="int8"),
        [(3, 6), (4, 8)],
    ),
}
STEPS = (70, 3, 5)  # of the members, in different blocks of positions


@dataclass
class Loaded:
    """Members of one bucket, ready to step, every one at its own step."""

    bucket: HeadsBucket
    runs: list[Run]
    instances: list[PlacedInstance]
    params: Params
    batch: Any

    def weights(self, member: int) -> dict[str, Any]:
        return dict(self.bucket.answers(self.params, member, self.runs[member]))

    def known(self, member: int) -> tuple[Heads, Any, Any, dict[str, Any], Any]:
        """What the reference is given."""
        instance, run = self.instances[member], self.runs[member]
        heads = run.instrument
        assert isinstance(heads, Heads)
        places = reference_places(run, instance, STEPS[member])
        return heads, instance.relations.embeddings, instance.relations.edges, self.weights(member), places


def reference_places(run: Run, instance: PlacedInstance, step: int) -> Any:
    """Where items stand: among the positions, or within the window if that is smaller."""
    heads = run.instrument
    assert isinstance(heads, Heads)
    within = replace(instance, positions=min(instance.positions, heads.window or instance.positions))
    return within.placed_at(step)


class HeadsContract:
    """Inherited once for every device, arithmetic and loss."""

    device: ClassVar[str]
    arithmetic: ClassVar[str]
    tolerance: ClassVar[float]
    loss: ClassVar[str] = "bce"

    def runs(self, kind: Heads, sizes: Sequence[tuple[int, int]], items: int = 23, d_model: int = 11) -> list[Run]:
        families = [graphs.permutation(), graphs.functional(loops=False), graphs.power_law()]
        return [
            Run(
                problem=Placed(
                    relations=Relations(items=items, d_model=d_model, graph=families[k % len(families)]), positions=9
                ),
                replicate=k,
                instrument=kind.with_budget(heads, heads * d_key),
                recipe=gradient(),
                stopping=Stopping(),
                arithmetic=self.arithmetic,
            )
            for k, (heads, d_key) in enumerate(sizes)
        ]

    def loaded(self, runs: list[Run]) -> Loaded:
        bucket = HeadsBucket(runs, self.loss, 4.0, -0.7, torch.device(self.device))
        instances = [r.problem.instance(r.problem_id, NoContents()) for r in runs]  # type: ignore[attr-defined]
        batch = bucket.load(runs[0].problem.batch(0, instances), runs)  # type: ignore[attr-defined]
        if not bucket.static:
            bucket.turn(batch, {}, STEPS[: len(runs)])
        return Loaded(bucket, runs, instances, bucket.init(runs), batch)

    @pytest.mark.parametrize("name", KINDS)
    def test_value_and_gradient_are_the_reference(self, name: str) -> None:
        kind, sizes = KINDS[name]
        given = self.loaded(self.runs(kind, sizes))
        value, grads = given.bucket.value_and_grad(given.params, given.batch)
        assert value is not None and value.shape == (len(sizes),)
        nothing, same = given.bucket.value_and_grad(given.params, given.batch, value=False)
        assert nothing is None and all(torch.equal(grads[k], same[k]) for k in grads)
        for member, run in enumerate(given.runs):
            known = given.known(member)
            theirs = reference.loss(*known, kind=self.loss)
            assert abs(float(value[member]) - theirs) <= self.tolerance * abs(theirs)
            mine, gradient_there = given.bucket.answers(grads, member, run), reference.loss_grad(*known, kind=self.loss)
            assert set(mine) == set(gradient_there)
            for part in mine:
                assert close(mine[part], gradient_there[part], self.tolerance), (member, part)

    @pytest.mark.parametrize("name", KINDS)
    def test_padding_has_no_gradient(self, name: str) -> None:
        kind, sizes = KINDS[name]
        given = self.loaded(self.runs(kind, sizes))
        _, grads = given.bucket.value_and_grad(given.params, given.batch)
        for member, run in enumerate(given.runs):
            real = given.bucket.answers(grads, member, run)
            for part, grad in grads.items():
                assert bool(torch.isfinite(grad).all())
                assert int(grad[member].count_nonzero()) <= real[part].size
                assert float((grad[member] ** 2).sum()) == pytest.approx(float((real[part] ** 2).sum()), rel=1e-5)

    def test_many_items_go_by_tiles(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("keyspan.attention.channel.TILE_BYTES", {self.device: 1})
        kind, _ = KINDS["int4, shared, normalised, turned, capped"]
        given = self.loaded(self.runs(kind, [(6, 6), (8, 8)], items=89))
        assert given.bucket.rows < given.bucket.items
        value, grads = given.bucket.value_and_grad(given.params, given.batch)
        assert value is not None
        for member, run in enumerate(given.runs):
            known = given.known(member)
            assert float(value[member]) == pytest.approx(reference.loss(*known, kind=self.loss), rel=self.tolerance)
            mine, theirs = given.bucket.answers(grads, member, run), reference.loss_grad(*known, kind=self.loss)
            assert all(close(mine[part], theirs[part], self.tolerance) for part in mine)

    def test_selected_and_joined_members_go_on_as_they_were(self) -> None:
        kind, _ = KINDS["half turned, another base"]
        given = self.loaded(self.runs(kind, [(3, 5), (4, 7), (3, 6)]))
        value, _ = given.bucket.value_and_grad(given.params, given.batch)
        two = given.bucket.select(given.batch, torch.tensor([2, 0], device=self.device))
        one = given.bucket.select(given.batch, torch.tensor([1], device=self.device))
        whole = given.bucket.join(two, one)
        assert whole.ids == tuple(given.runs[k].problem_id for k in (2, 0, 1))
        given.bucket.turn(whole, {}, [STEPS[k] for k in (2, 0, 1)])
        again, _ = given.bucket.value_and_grad({k: v[[2, 0, 1]] for k, v in given.params.items()}, whole)
        assert value is not None and again is not None
        assert torch.allclose(again, value[[2, 0, 1]], rtol=self.tolerance, atol=0)

    @pytest.mark.parametrize("name", KINDS)
    def test_initial_weights_are_the_same_in_any_company(self, name: str) -> None:
        kind, sizes = KINDS[name]
        given = self.loaded(self.runs(kind, sizes))
        for member, run in enumerate(given.runs):
            single = HeadsBucket([run], self.loss, 4.0, -0.7, torch.device(self.device))
            alone, here = single.answers(single.init([run]), 0, run), given.weights(member)
            assert set(alone) == set(here) and all(np.array_equal(alone[k], here[k]) for k in alone)
