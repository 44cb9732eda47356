"""Adam against torch's own, L-BFGS on problems whose minimum is known, and members that do not feel each other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from keyspan.errors import BadInput
from keyspan.lab.optimizers import LbfgsOptimizer, Optimizer, Params, State, make_optimizer, one_cycle, orthogonal
from keyspan.lab.recipes import Adam, Lbfgs, Muon
from keyspan.seeds import Stream
from keyspan.specs import Stopping

Tensor = torch.Tensor
Loss = Callable[[Params], tuple[Tensor, Params]]


def normal(name: str, *shape: int) -> Tensor:
    return torch.from_numpy(Stream(name, "optimizers").normal(shape))


def run(optimizer: Optimizer, params: Params, loss: Loss, steps: int) -> tuple[Params, State]:
    """Step for step what a fleet does, without leaving early."""
    state = optimizer.start(params)
    for step in range(steps):
        value, grads = loss(params)
        optimizer.step(params, value if optimizer.wants_value else None, grads, state, step)
    return optimizer.final(params, state), state


# ------------------------------------------------------------------------------------------- one cycle, Adam


def test_the_learning_rate_goes_up_to_its_peak_and_down_to_nothing() -> None:
    phase = Adam(steps=200, peak=0.06, warmup=0.1)
    rates = [one_cycle(phase, step) for step in range(201)]
    assert rates[0] == pytest.approx(0.06 / 25) and rates[20] == pytest.approx(0.06) and rates[200] == 0.0
    assert max(rates) == rates[20]
    assert all(a < b for a, b in itertools.pairwise(rates[:21]))
    assert all(a > b for a, b in itertools.pairwise(rates[20:]))
    assert rates[10] == pytest.approx((0.06 + 0.06 / 25) / 2) and rates[110] == pytest.approx(0.03)


def test_without_a_warm_up_the_learning_rate_begins_at_its_peak() -> None:
    phase = Adam(steps=10, peak=0.5, warmup=0.0)
    assert one_cycle(phase, 0) == 0.5 and one_cycle(phase, 5) == pytest.approx(0.25)
    assert one_cycle(Adam(steps=1, peak=0.5), 0) == pytest.approx(0.02)


@pytest.mark.parametrize(
    "phase",
    [
        Adam(steps=40, peak=0.06),
        Adam(steps=40, peak=0.01, warmup=0.3, beta1=0.8, beta2=0.95, epsilon=1e-3),
        Adam(steps=40, peak=1.0, warmup=0.0),
    ],
)
def test_adam_is_torch_adam(phase: Adam) -> None:
    shapes = {"a": (3, 5, 2), "b": (3,)}
    mine = {k: normal(k, *s) for k, s in shapes.items()}
    theirs = [mine[k].clone().requires_grad_() for k in shapes]
    torch_adam = torch.optim.Adam(theirs, betas=(phase.beta1, phase.beta2), eps=phase.epsilon)
    optimizer = make_optimizer(phase)
    assert optimizer.steps == 40 and not optimizer.wants_value
    state = optimizer.start(mine)
    for step in range(40):
        grads = {k: normal(f"{k}{step}", *s) * 10.0 ** (step % 5 - 2) for k, s in shapes.items()}
        optimizer.step(mine, None, grads, state, step)
        for group in torch_adam.param_groups:
            group["lr"] = one_cycle(phase, step)
        for w, k in zip(theirs, shapes, strict=True):
            w.grad = grads[k].clone()
        torch_adam.step()
        for w, k in zip(theirs, shapes, strict=True):
            assert torch.allclose(mine[k], w.detach(), rtol=1e-12, atol=1e-14)
    assert optimizer.finished(state) is None and optimizer.final(mine, state) is mine


def test_a_member_with_no_number_in_it_keeps_it_to_itself() -> None:
    optimizer = make_optimizer(Adam(steps=9, peak=0.1))
    whole, broken = ({"w": normal("w", 5, 7)} for _ in range(2))

    def slope(params: Params) -> tuple[Tensor, Params]:
        return params["w"].sum(1), {"w": params["w"] ** 3}

    run(optimizer, whole, slope, 9)
    broken["w"][2, 3] = math.nan
    run(optimizer, broken, slope, 9)
    others = [0, 1, 3, 4]
    assert torch.equal(whole["w"][others], broken["w"][others]) and bool(broken["w"][2].isnan().any())


# ----------------------------------------------------------------------------------------------------- Muon


def test_orthogonal_keeps_the_directions_and_levels_the_sizes() -> None:
    m = normal("matrices", 5, 3, 17) * torch.tensor([1e-6, 1.0, 7.0, 1e5, 1e20]).view(5, 1, 1)
    u, _, v = torch.linalg.svd(m, full_matrices=False)
    made = orthogonal(m, 5)
    levels = u.transpose(1, 2) @ made @ v.transpose(1, 2)  # in the same singular vectors
    off = levels - torch.diag_embed(levels.diagonal(dim1=1, dim2=2))
    assert float(off.abs().max()) < 1e-9
    assert float(levels.diagonal(dim1=1, dim2=2).min()) > 0.6 and float(levels.diagonal(dim1=1, dim2=2).max()) < 1.3
    assert torch.equal(orthogonal(torch.zeros(2, 3, 4), 5), torch.zeros(2, 3, 4))
    padded = torch.zeros(5, 4, 32, dtype=m.dtype)
    padded[:, :3, :17] = m
    again = orthogonal(padded, 5)
    assert torch.allclose(again[:, :3, :17], made, atol=1e-12)
    assert int(again[:, 3:].count_nonzero()) == 0 and int(again[:, :, 17:].count_nonzero()) == 0


def test_muon_moves_matrices_by_its_rate_and_the_rest_as_adam() -> None:
    phase = Muon(steps=40, peak=0.2, bias_peak=0.05, warmup=0.25, momentum=0.9)
    optimizer = make_optimizer(phase)
    assert optimizer.steps == 40 and not optimizer.wants_value
    mine = {"w": normal("w", 3, 2, 4, 7), "bias": normal("b", 3, 5)}
    adam = make_optimizer(Adam(steps=40, peak=0.05, warmup=0.25))
    bias = {"bias": mine["bias"].clone()}
    state, other = optimizer.start(mine), adam.start(bias)
    momentum = torch.zeros_like(mine["w"])
    for step in range(12):
        grads = {k: normal(f"{k}{step}", *v.shape) for k, v in mine.items()}
        momentum = 0.9 * momentum + grads["w"]
        ahead = (grads["w"] + 0.9 * momentum).view(6, 4, 7)
        due = mine["w"] - one_cycle(phase, step) * orthogonal(ahead, 5).view(3, 2, 4, 7)
        optimizer.step(mine, None, grads, state, step)
        adam.step(bias, None, {"bias": grads["bias"]}, other, step)
        assert torch.allclose(mine["w"], due, rtol=1e-12, atol=1e-14) and torch.equal(mine["bias"], bias["bias"])
    assert optimizer.finished(state) is None and optimizer.final(mine, state) is mine


# --------------------------------------------------------------------------------------------------- L-BFGS

MEMBERS, SIZE = 5, 17


def quadratics(condition: float) -> tuple[Loss, Tensor]:
    """f(w) = (w - c) . A (w - c) / 2 for every member, with its own A and c. returns: the loss, c"""
    matrices = []
    spectrum = condition ** (np.arange(SIZE) / (SIZE - 1))
    for member in range(MEMBERS):
        q = np.linalg.qr(Stream(f"{member}", "rotation").normal((SIZE, SIZE)))[0]
        matrices.append(10.0**member * (q * spectrum) @ q.T)
    a, c = torch.from_numpy(np.stack(matrices)), normal("centre", MEMBERS, SIZE)

    def loss(params: Params) -> tuple[Tensor, Params]:
        w = torch.cat([params["left"].flatten(1), params["right"].flatten(1)], dim=1)
        g = (a * (w - c).unsqueeze(1)).sum(2)
        return ((w - c) * g).sum(1) / 2, {"left": g[:, :6].view(MEMBERS, 3, 2), "right": g[:, 6:]}

    return loss, c


def start() -> Params:
    return {"right": normal("right", MEMBERS, SIZE - 6), "left": normal("left", MEMBERS, 3, 2)}


@pytest.mark.parametrize("condition, steps", [(1.0, 20), (1e2, 120), (1e4, 400)])
def test_lbfgs_finds_the_minimum_of_quadratics(condition: float, steps: int) -> None:
    loss, centre = quadratics(condition)
    optimizer = make_optimizer(Lbfgs(steps=steps, memory=20))
    assert optimizer.wants_value and optimizer.steps == steps
    params, state = run(optimizer, start(), loss, steps)
    found = torch.cat([params["left"].flatten(1), params["right"]], dim=1)
    assert float((found - centre).abs().max()) < 1e-10
    done = optimizer.finished(state)
    assert done is not None and done.tolist() == [True] * MEMBERS


def test_lbfgs_never_accepts_a_worse_point() -> None:
    loss, _ = quadratics(1e3)
    optimizer, params = make_optimizer(Lbfgs(steps=60)), start()
    state = optimizer.start(params)
    best = torch.full((MEMBERS,), math.inf, dtype=torch.float64)
    for step in range(60):
        value, grads = loss(params)
        optimizer.step(params, value, grads, state, step)
        kept, _ = loss(optimizer.final(params, state))
        assert bool((kept <= best).all())
        best = kept


def test_lbfgs_goes_round_the_bend_of_rosenbrock() -> None:
    def rosenbrock(params: Params) -> tuple[Tensor, Params]:
        x, y = params["w"].unbind(1)
        slope = torch.stack([-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)], dim=1)
        return (1 - x) ** 2 + 100 * (y - x * x) ** 2, {"w": slope}

    begin = torch.tensor([[-1.2, 1.0], [0.0, 0.0], [2.0, -3.0]], dtype=torch.float64)
    params, _ = run(make_optimizer(Lbfgs(steps=150)), {"w": begin}, rosenbrock, 150)
    assert float((params["w"] - 1).abs().max()) < 1e-8


def test_members_of_lbfgs_do_not_feel_each_other() -> None:
    """Alone, together and in another order: the same bits. (16 numbers a member, as the buckets have it.)"""
    scale = 10.0 ** torch.arange(-2, 3, dtype=torch.float64)[:, None] * torch.arange(1, 17, dtype=torch.float64)

    def among(members: list[int]) -> Tensor:
        mine = scale[members]

        def loss(params: Params) -> tuple[Tensor, Params]:
            return (mine * params["w"] ** 4).sum(1), {"w": 4 * mine * params["w"] ** 3}

        params, _ = run(make_optimizer(Lbfgs(steps=37)), {"w": normal("w", 5, 16)[members]}, loss, 37)
        return params["w"]

    together = among([0, 1, 2, 3, 4])
    assert torch.equal(among([3, 0, 4]), together[[3, 0, 4]])
    for member in range(5):
        assert torch.equal(among([member])[0], together[member])


def test_lbfgs_members_that_are_no_numbers_end_and_leave_the_others_alone() -> None:
    loss, centre = quadratics(1e2)
    whole, _ = run(make_optimizer(Lbfgs(steps=120)), start(), loss, 120)

    def broken_loss(params: Params) -> tuple[Tensor, Params]:
        value, grads = loss(params)
        value[1], grads["left"][1] = math.nan, math.nan
        value[3] = math.inf
        return value, grads

    optimizer = make_optimizer(Lbfgs(steps=120))
    broken, state = run(optimizer, start(), broken_loss, 120)
    for name in whole:
        assert torch.equal(whole[name][[0, 2, 4]], broken[name][[0, 2, 4]])
    assert float((torch.cat([broken["left"].flatten(1), broken["right"]], 1) - centre)[[0, 2, 4]].abs().max()) < 1e-10
    done = optimizer.finished(state)
    assert done is not None and done.tolist() == [True] * MEMBERS


def test_lbfgs_that_starts_at_the_minimum_stays_there() -> None:
    optimizer = make_optimizer(Lbfgs(steps=9))
    params, state = run(optimizer, {"w": torch.zeros(3, 5)}, lambda p: ((p["w"] ** 2).sum(1), {"w": 2 * p["w"]}), 9)
    done = optimizer.finished(state)
    assert not params["w"].any() and done is not None and bool(done.all())


def test_lbfgs_stops_where_nothing_gets_better() -> None:
    """A corner: the slope never vanishes, but no step makes progress."""

    def corner(params: Params) -> tuple[Tensor, Params]:
        return 1 + params["w"].abs().sum(1), {"w": params["w"].sign()}

    optimizer = make_optimizer(Lbfgs(steps=400))
    params, state = run(optimizer, {"w": normal("w", 3, 1)}, corner, 400)
    done = optimizer.finished(state)
    assert done is not None and bool(done.all()) and float(params["w"].abs().max()) < 1e-6


def test_patience_ends_what_falls_too_slowly_and_nothing_else() -> None:
    """x^2 plus a floor: member 0 has its minimum at a loss, the others go on downwards for long."""
    floor = torch.tensor([5.0, 0.0, 0.0], dtype=torch.float64)
    power = torch.tensor([2.0, 6.0, 8.0], dtype=torch.float64)

    def bowls(params: Params) -> tuple[Tensor, Params]:
        x = params["w"][:, 0]
        return x.abs() ** power + floor, {"w": (power * x.abs() ** (power - 1) * x.sign()).unsqueeze(1)}

    def ended(patience: int, steps: int) -> list[bool]:
        optimizer = make_optimizer(Lbfgs(steps=99, patience=patience, progress=0.03))
        _, state = run(optimizer, {"w": torch.full((3, 1), 3.0, dtype=torch.float64)}, bowls, steps)
        done = optimizer.finished(state)
        assert done is not None and ("stale" in state) == (patience > 0)
        return [bool(d) for d in state["stale"]] if patience else done.tolist()

    assert ended(10, 10) == [False] * 3  # the first look has nothing to compare with
    assert ended(10, 20) == [True, False, False]
    assert ended(0, 20)[1:] == [False, False]


def test_lbfgs_forgets_pairs_of_negative_curvature() -> None:
    def wave(params: Params) -> tuple[Tensor, Params]:
        return params["w"].cos().sum(1), {"w": -params["w"].sin()}

    optimizer, params = make_optimizer(Lbfgs(steps=60, memory=3)), {"w": 0.3 * normal("w", 7, 5)}
    state = optimizer.start(params)
    for step in range(60):
        value, grads = wave(params)
        optimizer.step(params, value, grads, state, step)
        curvature = (state["s"] * state["y"]).sum(2)
        assert state["s"].shape == (7, 3, 5) and bool((curvature >= 0).all())
    found = optimizer.final(params, state)["w"]
    assert torch.allclose(found.cos(), torch.tensor(-1.0, dtype=torch.float64))


def test_the_final_point_of_lbfgs_is_one_that_was_accepted() -> None:
    loss, _ = quadratics(1e3)
    for steps in (0, 1, 2, 5, 11):
        params, state = run(make_optimizer(Lbfgs(steps=99)), start(), loss, steps)
        value, _ = loss(params)
        if steps == 0:
            assert torch.equal(params["left"], start()["left"])
        else:
            assert torch.equal(value, state["f"])


# --------------------------------------------------------------------------------------------------- phases


def test_a_phase_that_is_none_is_refused() -> None:
    with pytest.raises(BadInput, match=r"adam\|lbfgs"):
        make_optimizer(Stopping())
    assert isinstance(make_optimizer(Lbfgs(steps=1)), LbfgsOptimizer)
