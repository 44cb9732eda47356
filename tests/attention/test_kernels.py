"""The fused channel: on a GPU as compiled, elsewhere through Triton's interpreter; the same contract as every speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.contracts.attention_contract import THREE_TILES, ChannelContract, close, exact_weights

from keyspan.attention import kernels
from keyspan.problems import NoContents, graphs
from keyspan.specs import Run

pytest.importorskip("triton")

from keyspan.attention.kernels import channel as fused
from keyspan.lab.optimizers import FusedAdam
from keyspan.lab.recipes import Adam

interpreted = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are compiled where there is a GPU")


class Fused(ChannelContract):
    """The contract, and what is the fused bucket's own: stripes, shares, company."""

    def bucket(self, runs: Sequence[Run]) -> fused.FusedChannelBucket:
        return fused.FusedChannelBucket(runs, "bce", 1.0, -3.0, torch.device(self.device))

    @pytest.mark.parametrize("stripe, share", [(1, 1), (1 << 30, 1), (1, 1 << 30)])
    def test_stripes_and_shares_change_nothing(self, stripe: int, share: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Rows in stripes, members in turns."""
        runs = self.runs(5 * 32 - 7, 19, [(3, 5), (4, 7), (3, 8)])
        whole = self.loaded(runs)
        one, grads = whole.bucket.value_and_grad(whole.params, whole.batch)
        clear = whole.bucket.clear(whole.params, whole.batch, 0.0)
        monkeypatch.setattr(fused, "STRIPE_BYTES", stripe)
        monkeypatch.setattr(fused, "SHARE_BYTES", share)
        cut = self.loaded(runs)
        assert isinstance(cut.bucket, fused.FusedChannelBucket)
        assert cut.bucket.stripe == (64 if stripe == 1 else 160)
        assert cut.bucket.share == 1 or share > 1
        two, others = cut.bucket.value_and_grad(cut.params, cut.batch)
        assert one is not None and two is not None
        assert torch.allclose(one, two, rtol=self.tolerance, atol=0)
        for name in grads:
            assert close(grads[name].double().cpu().numpy(), others[name].double().cpu().numpy(), self.tolerance)
        assert torch.equal(clear, cut.bucket.clear(cut.params, cut.batch, 0.0))

    def test_company_changes_no_bit(self) -> None:
        runs = self.runs(61, 17, [(7, 3), (5, 4), (8, 3), (8, 4)])
        together = self.loaded(runs)
        _, grads = together.bucket.value_and_grad(together.params, together.batch)
        kept = {k: v.clone() for k, v in grads.items()}
        for member, run in enumerate(runs):
            alone = self.loaded([run], [together.weights[member]])
            _, own = alone.bucket.value_and_grad(alone.params, alone.batch)
            assert all(torch.equal(own[k][0], kept[k][member]) for k in own)

    def test_padding_of_an_earlier_neighbour_leaves_nothing_behind(self) -> None:
        given = self.loaded(self.runs(23, 11, [(4, 2), (3, 2)]))
        given.bucket.value_and_grad(given.params, given.batch)
        batch = given.bucket.select(given.batch, torch.tensor([1], device=self.device))
        _, grads = given.bucket.value_and_grad({k: v[1:] for k, v in given.params.items()}, batch)
        assert int(grads["w_query"][0, 3:].count_nonzero()) == 0

    @pytest.mark.parametrize("channels", [[(1, 5)], [(1, 67)], [(2, 37)], [(16, 16)], [(16, 17)], [(32, 3)]])
    def test_narrow_and_wide(self, channels: list[tuple[int, int]]) -> None:
        """One head, heads that take several products, and more heads than registers hold."""
        self.assert_reference(self.loaded(self.runs(67, 71, channels)))


@pytest.mark.gpu
class TestCompiledInSingle(Fused):
    device, arithmetic, tolerance = "cuda", "fp32", 1e-5

    test_tiles_change_nothing = None  # type: ignore[assignment]  # the fused bucket has stripes instead
    test_a_tile_without_an_edge = None  # type: ignore[assignment]

    def test_weights_that_are_no_numbers_are_not_clear(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given = self.exact_members(None, monkeypatch)
        given.params["w_query"][1] = math.nan
        assert given.bucket.clear(given.params, given.batch, 0.0).tolist() == [True, False, True, True]


@interpreted
class TestInterpretedInSingle:
    """The same programs without a GPU: slow, so a few small shapes that take every branch."""

    suite = TestCompiledInSingle()
    suite.device = "cpu"  # type: ignore[misc]

    @pytest.mark.parametrize(
        "items, d_model, channels", [(5, 2, [(1, 1)]), (23, 11, [(3, 2), (4, 2)]), (37, 71, [(2, 67)]), (64, 32, [(2, 16)])]
    )
    def test_value_and_gradient_are_the_reference(self, items: int, d_model: int, channels: list[tuple[int, int]]) -> None:
        self.suite.assert_reference(self.suite.loaded(self.suite.runs(items, d_model, channels)))

    def test_without_the_value_the_gradient_is_the_same(self) -> None:
        self.suite.test_without_the_value_the_gradient_is_the_same()

    def test_padding_has_no_gradient(self) -> None:
        self.suite.test_padding_has_no_gradient(23, 11, [(3, 2), (4, 2), (3, 2)])

    def test_stripes_and_shares_change_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.suite.test_stripes_and_shares_change_nothing(1, 1, monkeypatch)

    def test_company_changes_no_bit(self) -> None:
        self.suite.test_company_changes_no_bit()

    def test_padding_of_an_earlier_neighbour_leaves_nothing_behind(self) -> None:
        self.suite.test_padding_of_an_earlier_neighbour_leaves_nothing_behind()

    def test_clear_sees_what_a_dense_check_sees(self) -> None:
        suite = self.suite
        runs = suite.runs(13, 11, [(13, 1)] * 2)
        instances = [r.problem.instance(r.problem_id, NoContents()) for r in runs]  # type: ignore[attr-defined]
        seen = set()
        for shift in (-0.03, 0.0, 0.03):
            given = suite.loaded(runs, [w | {"bias": w["bias"] + shift} for w in map(exact_weights, instances)])
            for slack in (0.0, 0.02, 0.05, 0.3):
                mine = given.bucket.clear(given.params, given.batch, slack).tolist()
                assert mine == [suite.dense_clear(given, m, slack) for m in range(2)]
                seen |= set(mine)
        assert seen == {True, False}


class Rough(Fused):
    """Arithmetic that rounds: the same equations, coarser. What asks for exact decisions is left to the others."""

    test_tiles_change_nothing = None  # type: ignore[assignment]
    test_a_tile_without_an_edge = None  # type: ignore[assignment]
    test_the_gradient_is_the_slope_of_the_reference = None  # type: ignore[assignment]
    test_extreme_weights_stay_finite = None  # type: ignore[assignment]
    test_clear_sees_what_a_dense_check_sees = None  # type: ignore[assignment]

    def test_a_step_goes_downhill(self) -> None:
        given = self.loaded(self.runs(41, 23, [(3, 5), (4, 7)]))
        before, grads = given.bucket.value_and_grad(given.params, given.batch)
        assert before is not None
        first = before.clone()
        moved = {k: v - 1e-3 * grads[k] for k, v in given.params.items()}
        after, _ = given.bucket.value_and_grad(moved, given.batch)
        assert after is not None and bool((after < first).all())


@pytest.mark.gpu
class TestCompiledInHalf(Rough):
    device, arithmetic, tolerance, rounding = "cuda", "bf16", 0.08, 2.0**-8


@interpreted
class TestInterpretedInHalf:
    """As above; the interpreter cuts bf16 where devices round."""

    suite = TestCompiledInHalf()
    suite.device, suite.tolerance = "cpu", 0.15  # type: ignore[misc]

    @pytest.mark.parametrize("items, d_model, channels", [(23, 11, [(3, 2), (4, 2)]), (31, 17, [(1, 5)]), (64, 32, [(2, 16)])])
    def test_value_and_gradient_are_the_reference(self, items: int, d_model: int, channels: list[tuple[int, int]]) -> None:
        self.suite.assert_reference(self.suite.loaded(self.suite.runs(items, d_model, channels)))

    def test_stripes_and_shares_change_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.suite.test_stripes_and_shares_change_nothing(1, 1, monkeypatch)

    def test_company_changes_no_bit(self) -> None:
        self.suite.test_company_changes_no_bit()

    def test_a_step_goes_downhill(self) -> None:
        self.suite.test_a_step_goes_downhill()


@pytest.mark.gpu
class TestCompiledInTensorFloat(Rough):
    device, arithmetic, tolerance, rounding = "cuda", "tf32", 0.02, 2.0**-11


def test_the_probe() -> None:
    assert not kernels.available(torch.device("cpu"), "bf16")
    assert kernels.available(torch.device("cuda"), "bf16") == (
        torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
    )
    assert not kernels.available(torch.device("cuda"), "fp64")


def test_a_graph_with_many_edges_has_them_all_in_its_bits() -> None:
    suite = TestInterpretedInSingle.suite
    run = suite.runs(THREE_TILES, 19, [(3, 5)])[0]
    given = suite.loaded([replace(run, problem=replace(run.problem, graph=graphs.regular(5)))])  # type: ignore[type-var]
    bits = given.batch.bits[0].numpy().view(np.uint32)
    dense = ((bits[:, :, None] >> np.arange(32, dtype=np.uint32)) & 1).reshape(96, 96)
    source, target = given.instances[0].edges.T
    assert dense.sum() == len(source) and dense[source, target].all()


@pytest.mark.parametrize("items, channel, arithmetic", [(64, (2, 16), "fp32"), (61, (3, 5), "bf16"), (23, (1, 67), "fp32")])
def test_what_is_compiled_ahead_is_what_is_launched(
    items: int, channel: tuple[int, int], arithmetic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same programs with the same constants and the same kinds of arguments, in steps, looks and updates."""
    launched: set[tuple[object, ...]] = set()

    def kind(value: object) -> object:
        """What Triton compiles for: types of tensors, and of whole numbers whether they are 1 or divisible by 16."""
        if isinstance(value, torch.Tensor):
            return value.dtype
        return (value == 1, value % 16 == 0) if type(value) is int else type(value)

    def record(program: object, grid: tuple[int, ...], *arguments: object, **options: object) -> None:
        fixed = getattr(program, "do_not_specialize", None) or ()
        names = list(getattr(program, "arg_names", ()))
        free = [int if names[at] in fixed else kind(value) for at, value in enumerate(arguments)]
        launched.add((program, tuple(free), tuple(sorted(options.items()))))

    monkeypatch.setattr(fused, "launch", record)
    suite = TestCompiledInSingle()
    suite.device, suite.arithmetic = "cpu", arithmetic  # type: ignore[misc]
    given = suite.loaded(suite.runs(items, 19, [channel] * 2))
    bucket = given.bucket
    assert isinstance(bucket, fused.FusedChannelBucket)
    steps = FusedAdam(Adam(steps=7, peak=0.1), torch.device("cpu"))
    state = steps.start(given.params)
    for value in (True, False):
        _, grads = bucket.value_and_grad(given.params, given.batch, value=value)
        steps.step(given.params, None, grads, state, 0)
    bucket.clear(given.params, given.batch, 0.0)
    really = set(launched)
    launched.clear()
    bucket.compile(given.runs[0], 7)
    assert launched == really and len(really) >= 7
