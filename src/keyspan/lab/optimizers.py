"""Batched optimisers: one update for all members at once, no loop over steps (the fleet has that).

Every parameter and every piece of state has a leading member axis, and no operation mixes members.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch

from keyspan.errors import BadInput
from keyspan.lab.recipes import Adam, Lbfgs, Muon
from keyspan.specs import Spec

Params = dict[str, torch.Tensor]
State = dict[str, torch.Tensor]


class Optimizer(Protocol):
    """One phase of a recipe, carried out."""

    wants_value: bool
    steps: int
    captures: bool  # its step can be captured in a CUDA graph: it asks nothing of the host
    joins: bool  # it counts every member's own steps, so that members may join later

    def start(self, params: Params) -> State: ...
    def step(self, params: Params, value: torch.Tensor | None, grads: Params, state: State, step: int) -> None:
        """Update `params` and `state` in place. step: how many updates came before this one"""
        ...

    def finished(self, state: State) -> torch.Tensor | None:
        """Members that have nothing left to do before the last step. returns: (members,), bool, or None"""
        ...

    def final(self, params: Params, state: State) -> Params:
        """The parameters to judge (a line search may be between two points)."""
        ...


def make_optimizer(phase: Spec, fused: torch.device | None = None, clocked: torch.device | None = None) -> Optimizer:
    """The optimiser of a phase. fused: the device whose fused kernels may do it    clocked: by every member's own clock"""
    if isinstance(phase, Adam):
        if clocked is not None:
            return ClockedAdam(phase, clocked)
        return AdamOptimizer(phase) if fused is None or phase.decay else FusedAdam(phase, fused)
    if isinstance(phase, Lbfgs):
        return LbfgsOptimizer(phase)
    if isinstance(phase, Muon):
        return MuonOptimizer(phase)
    raise BadInput(f"A phase must be one of adam|lbfgs|muon, but got {phase.family}. Change the recipe.")


def one_cycle(phase: Adam | Muon, step: int) -> float:
    """Learning rate: peak/start -> peak over the warm-up, then peak -> end times the peak; each along a cosine or a line.

    Where the phase has a tail, it stays at the peak between the two.
    """
    rise = phase.warmup * phase.steps
    if step < rise:
        low = phase.peak / getattr(phase, "start", 25.0)
        share = step / rise
        return low + (phase.peak - low) * (share if getattr(phase, "rise", "") == "linear" else _eased(share))
    tail = getattr(phase, "tail", None)
    begins = rise if tail is None else (1 - tail) * phase.steps
    low = phase.peak * getattr(phase, "end", 0.0)
    share = max(0.0, (step - begins) / (phase.steps - begins))
    if getattr(phase, "fall", "") == "linear":
        return phase.peak + (low - phase.peak) * share
    return low + (phase.peak - low) * (1 + math.cos(math.pi * share)) / 2


def _eased(share: float) -> float:
    return (1 - math.cos(math.pi * share)) / 2


class AdamOptimizer:
    """Adam (Kingma and Ba 2015), bias-corrected, under the phase's learning rate."""

    wants_value, captures, joins = False, False, False

    def __init__(self, phase: Adam) -> None:
        self.phase, self.steps = phase, phase.steps

    def start(self, params: Params) -> State:
        """Moments at zero."""
        return {f"{m}.{k}": torch.zeros_like(v) for k, v in params.items() for m in ("first", "second")}

    def step(self, params: Params, value: torch.Tensor | None, grads: Params, state: State, step: int) -> None:
        """One update."""
        p = self.phase
        root = math.sqrt(1 - p.beta2 ** (step + 1))
        plain = one_cycle(p, step)
        rate = plain * root / (1 - p.beta1 ** (step + 1))
        for name, w in params.items():
            g, first, second = grads[name], state[f"first.{name}"], state[f"second.{name}"]
            first.mul_(p.beta1).add_(g, alpha=1 - p.beta1)
            second.mul_(p.beta2).addcmul_(g, g, value=1 - p.beta2)
            if p.decay:
                w.mul_(1 - plain * p.decay)
            w.addcdiv_(first, second.sqrt().add_(p.epsilon * root), value=-rate)

    def finished(self, state: State) -> torch.Tensor | None:
        """Adam goes on to its last step."""
        return None

    def final(self, params: Params, state: State) -> Params:
        """Where it stands."""
        return params


class FusedAdam(AdamOptimizer):
    """The same update in one launch a parameter, every member by its own clock, nothing asked of the host."""

    captures, joins = True, True

    def __init__(self, phase: Adam, device: torch.device) -> None:
        super().__init__(phase)
        roots = [math.sqrt(1 - phase.beta2 ** (step + 1)) for step in range(phase.steps)]
        rates = [one_cycle(phase, step) * root / (1 - phase.beta1 ** (step + 1)) for step, root in enumerate(roots)]
        self.rate = torch.tensor(rates, dtype=torch.float32, device=device)
        self.floor = torch.tensor([phase.epsilon * root for root in roots], dtype=torch.float32, device=device)

    def start(self, params: Params) -> State:
        """Moments and clocks at zero."""
        w = next(iter(params.values()))
        return super().start(params) | {"clock": torch.zeros(len(w), dtype=torch.int64, device=w.device)}

    def step(self, params: Params, value: torch.Tensor | None, grads: Params, state: State, step: int) -> None:
        """One update; `step` is the crew's, a member's own is its clock."""
        from keyspan.attention.kernels.channel import fused_adam

        tables = {"clock": state["clock"], "rate": self.rate, "floor": self.floor}
        for name, w in params.items():
            first, second = state[f"first.{name}"], state[f"second.{name}"]
            fused_adam(w, grads[name], first, second, beta1=self.phase.beta1, beta2=self.phase.beta2, **tables)
        state["clock"] += 1


class ClockedAdam(AdamOptimizer):
    """The same update in PyTorch's own operations, every member by its own clock, nothing asked of the host.

    So a step can be captured in a CUDA graph, and members may join.
    """

    captures, joins = True, True

    def __init__(self, phase: Adam, device: torch.device) -> None:
        super().__init__(phase)
        roots = [math.sqrt(1 - phase.beta2 ** (step + 1)) for step in range(phase.steps)]
        plain = [one_cycle(phase, step) for step in range(phase.steps)]
        rates = [r * root / (1 - phase.beta1 ** (step + 1)) for step, (r, root) in enumerate(zip(plain, roots, strict=True))]
        shrink, floor = [1 - r * phase.decay for r in plain], [phase.epsilon * root for root in roots]
        self.table = torch.tensor([rates, floor, shrink], dtype=torch.float64, device=device)

    def start(self, params: Params) -> State:
        """Moments and clocks at zero."""
        w = next(iter(params.values()))
        return super().start(params) | {"clock": torch.zeros(len(w), dtype=torch.int64, device=w.device)}

    def step(self, params: Params, value: torch.Tensor | None, grads: Params, state: State, step: int) -> None:
        """One update; `step` is the crew's, a member's own is its clock."""
        p, now = self.phase, self.table[:, state["clock"].clamp(max=self.steps - 1)]
        for name, w in params.items():
            rate, floor, shrink = (row.to(w.dtype).view(-1, *[1] * (w.ndim - 1)) for row in now)
            g, first, second = grads[name], state[f"first.{name}"], state[f"second.{name}"]
            first.mul_(p.beta1).add_(g, alpha=1 - p.beta1)
            second.mul_(p.beta2).addcmul_(g, g, value=1 - p.beta2)
            if p.decay:
                w.mul_(shrink)
            w.sub_(first.mul(rate).div_(second.sqrt().add_(floor)))
        state["clock"] += 1


# The polynomial a x + b x^3 + c x^5 of Muon's authors: it lifts small singular values fastest, and leaves all of them
# somewhere in [0.7, 1.2], which is orthogonal enough.
_QUINTIC = (3.4445, -4.7750, 2.0315)


def orthogonal(matrices: torch.Tensor, iterations: int) -> torch.Tensor:
    """The nearest matrices with equal singular values, roughly: Newton-Schulz on U S V^T, S -> about 1.

    Rows and columns of zeros stay zeros, so padding stays padding. matrices, returns: (count, rows, columns)
    """
    a, b, c = _QUINTIC
    x: torch.Tensor = matrices / matrices.flatten(1).norm(dim=1).clamp(min=1e-30)[:, None, None]
    for _ in range(iterations):
        gram = torch.bmm(x, x.transpose(1, 2))
        x = a * x + torch.bmm(b * gram + c * torch.bmm(gram, gram), x)
    return x


class MuonOptimizer:
    """Muon (Jordan et al. 2024) for parameters (members, heads, d_key, d_model), Adam for the others."""

    wants_value, captures, joins = False, False, False

    def __init__(self, phase: Muon) -> None:
        self.phase, self.steps = phase, phase.steps
        self.others = AdamOptimizer(Adam(steps=phase.steps, peak=phase.bias_peak, warmup=phase.warmup))

    def start(self, params: Params) -> State:
        """Momentum and moments at zero."""
        matrices, others = self._split(params)
        return {f"momentum.{k}": torch.zeros_like(v) for k, v in matrices.items()} | self.others.start(others)

    @staticmethod
    def _split(tree: Params) -> tuple[Params, Params]:
        matrices = {k: v for k, v in tree.items() if v.ndim == 4}
        return matrices, {k: v for k, v in tree.items() if k not in matrices}

    def step(self, params: Params, value: torch.Tensor | None, grads: Params, state: State, step: int) -> None:
        """One update: the momentum (Nesterov's) made orthogonal, head by head."""
        p = self.phase
        matrices, others = self._split(params)
        for name, w in matrices.items():
            momentum = state[f"momentum.{name}"].mul_(p.momentum).add_(grads[name])
            ahead = grads[name].add(momentum, alpha=p.momentum)
            w.add_(orthogonal(ahead.flatten(0, 1), p.iterations).view_as(w), alpha=-one_cycle(p, step))
        self.others.step(others, None, {k: grads[k] for k in others}, state, step)

    def finished(self, state: State) -> torch.Tensor | None:
        """Muon goes on to its last step."""
        return None

    def final(self, params: Params, state: State) -> Params:
        """Where it stands."""
        return params


class LbfgsOptimizer:
    """L-BFGS (Liu and Nocedal 1989) as a state machine: each step is given one evaluation, at the trial point.

    A trial that decreases the loss enough is accepted: the pair (s, y) enters the memory and a new direction is made by
    the two-loop recursion. Any other is shortened. Members accept and shorten independently of each other.
    """

    wants_value, captures, joins = True, False, False
    _armijo = 1e-4

    def __init__(self, phase: Lbfgs) -> None:
        self.phase, self.steps = phase, phase.steps

    def start(self, params: Params) -> State:
        """No point accepted yet, no memory."""
        w = self._flat(params)
        members, size = w.shape
        pairs = w.new_zeros((members, self.phase.memory, size))
        scalar = w.new_zeros(members)
        return {
            "x": w.clone(),
            "g": torch.zeros_like(w),
            "p": torch.zeros_like(w),
            "s": pairs,
            "y": pairs.clone(),
            "rho": w.new_zeros((members, self.phase.memory)),
            "f": scalar + math.inf,
            "alpha": scalar + 1.0,
            "scale": scalar + 1.0,
            "first": scalar.clone(),
            "stuck": scalar.clone(),
        } | ({"mark": scalar + math.inf, "stale": torch.zeros_like(scalar, dtype=torch.bool)} if self.phase.patience else {})

    @staticmethod
    def _flat(tree: Params) -> torch.Tensor:
        return torch.cat([tree[k].flatten(1) for k in sorted(tree)], dim=1)

    @staticmethod
    def _unflatten(flat: torch.Tensor, like: Params) -> None:
        start = 0
        for k in sorted(like):
            size = like[k][0].numel()
            like[k].copy_(flat[:, start : start + size].view_as(like[k]))
            start += size

    def step(self, params: Params, value: torch.Tensor | None, grads: Params, state: State, step: int) -> None:
        """Accept or shorten, then set the next trial point."""
        assert value is not None
        x_new, g_new = self._flat(params), self._flat(grads)
        slope = (state["g"] * state["p"]).sum(1)
        if step == 0:
            accept = torch.ones_like(value, dtype=torch.bool)
            state["first"].copy_(g_new.norm(dim=1))
        else:
            accept = value <= state["f"] + self._armijo * state["alpha"] * slope
            self._remember(state, accept, x_new - state["x"], g_new - state["g"])
        yes = accept.unsqueeze(1)
        gain = torch.where(accept, state["f"] - value, torch.full_like(value, math.inf))
        small = accept & (gain <= 1e-15 * value.abs()) if step else torch.zeros_like(accept)
        state["stuck"].copy_(torch.where(small, state["stuck"] + 1, torch.where(accept, 0.0, state["stuck"])))
        # Shorten by the minimum of the parabola through the two values and the slope, kept within [0.1, 0.5].
        bend = value - state["f"] - state["alpha"] * slope
        shrink = (-0.5 * slope * state["alpha"] / bend).nan_to_num(nan=0.1, posinf=0.5, neginf=0.1).clamp(0.1, 0.5)
        alpha_no = state["alpha"] * shrink
        for name, new in (("x", x_new), ("g", g_new)):
            state[name].copy_(torch.where(yes, new, state[name]))
        state["f"].copy_(torch.where(accept, value, state["f"]))
        if self.phase.patience and (step + 1) % self.phase.patience == 0:
            state["stale"] |= state["f"] > (1 - self.phase.progress) * state["mark"]
            state["mark"].copy_(state["f"])
        direction = self._direction(state)
        downhill = (direction * state["g"]).sum(1, keepdim=True) < 0
        direction = torch.where(downhill, direction, -state["g"])
        fresh = 1.0 if step else 1.0 / state["g"].norm(dim=1).clamp(min=1e-300)
        state["p"].copy_(torch.where(yes, direction, state["p"]))
        state["alpha"].copy_(torch.where(accept, torch.ones_like(value) * fresh, alpha_no))
        self._unflatten(state["x"] + state["alpha"].unsqueeze(1) * state["p"], params)

    @staticmethod
    def _remember(state: State, accept: torch.Tensor, s: torch.Tensor, y: torch.Tensor) -> None:
        """Push a pair with positive curvature; the oldest one falls out."""
        sy, yy = (s * y).sum(1), (y * y).sum(1)
        keep = accept & (sy > 1e-14 * yy.sqrt() * s.norm(dim=1))
        k = keep[:, None, None]
        for name, new in (("s", s), ("y", y)):
            rolled = torch.cat([state[name][:, 1:], new.unsqueeze(1)], dim=1)
            state[name].copy_(torch.where(k, rolled, state[name]))
        rho = torch.cat([state["rho"][:, 1:], (1.0 / sy).unsqueeze(1)], dim=1)
        state["rho"].copy_(torch.where(keep[:, None], rho, state["rho"]))
        state["scale"].copy_(torch.where(keep, sy / yy, state["scale"]))

    @staticmethod
    def _direction(state: State) -> torch.Tensor:
        """Two-loop recursion: -H g. A slot that is empty has rho = 0 and changes nothing. returns: (members, size)"""
        q = state["g"].clone()
        memory = state["rho"].shape[1]
        a = []
        for i in range(memory - 1, -1, -1):
            ai = state["rho"][:, i] * (state["s"][:, i] * q).sum(1)
            q -= ai.unsqueeze(1) * state["y"][:, i]
            a.append(ai)
        q *= state["scale"].unsqueeze(1)
        for i, ai in zip(range(memory), reversed(a), strict=True):
            b = state["rho"][:, i] * (state["y"][:, i] * q).sum(1)
            q += (ai - b).unsqueeze(1) * state["s"][:, i]
        return -q

    def finished(self, state: State) -> torch.Tensor | None:
        """Flat enough, or no step makes progress any more, or too little."""
        steep = state["g"].norm(dim=1) > self.phase.tolerance * state["first"]
        going: torch.Tensor = steep & (state["stuck"] < 20) & (state["alpha"] >= 1e-20)
        return ~going | state["stale"] if self.phase.patience else ~going

    def final(self, params: Params, state: State) -> Params:
        """The accepted point, unless no point was accepted yet."""
        if not bool(state["f"].isfinite().any()):
            return params
        out = {k: v.clone() for k, v in params.items()}
        self._unflatten(state["x"], out)
        return out
