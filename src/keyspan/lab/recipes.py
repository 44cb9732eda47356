"""Recipes as data: loss, initial scale, phases. Named and versioned; a run id changes when its recipe does."""

from __future__ import annotations

from dataclasses import dataclass, field

from keyspan.errors import require
from keyspan.problems.showing import Draws, Ride
from keyspan.specs import Spec, Stopping

SCHEDULES = ("cycle", "trapezoid")


@dataclass(frozen=True, kw_only=True)
class Adam(Spec, family="adam", version=1):
    """Adam. Its learning rate goes up over the first `warmup` of the steps.

    schedule: cycle (up and, from there, down to 0, both along a cosine) or trapezoid (up along a line, level at `peak`, down
    to 0 along a line over the last `tail` of the steps)    decay: weights shrink by rate * decay a step (AdamW)
    """

    steps: int
    peak: float
    warmup: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    schedule: str = field(default="cycle", metadata={"absent": "cycle"})
    tail: float = field(default=0.0, metadata={"absent": 0.0})
    decay: float = field(default=0.0, metadata={"absent": 0.0})

    def check(self) -> None:
        require(self.steps >= 1, "`steps >= 1`", self.steps, "Take at least one step.")
        require(self.peak > 0, "`peak > 0`", self.peak, "Try 0.06.")
        require(0 <= self.warmup < 1, "`0 <= warmup < 1`", self.warmup, "Try 0.1.")
        require(0 <= self.beta1 < 1 and 0 <= self.beta2 < 1, "`0 <= beta < 1`", (self.beta1, self.beta2), "Try 0.9, 0.999.")
        require(self.epsilon > 0, "`epsilon > 0`", self.epsilon, "Try 1e-8.")
        require(self.schedule in SCHEDULES, f"`schedule` in {'|'.join(SCHEDULES)}", repr(self.schedule), "Choose one.")
        level = self.schedule == "trapezoid"
        require(0 <= self.tail <= 1 - self.warmup, "`0 <= tail <= 1 - warmup`", self.tail, "Try 0.25.")
        require(level or self.tail == 0, "`tail` with the trapezoid only", self.tail, "Leave it out.")
        require(0 <= self.decay < 1, "`0 <= decay < 1`", self.decay, "Try 0.01.")


@dataclass(frozen=True, kw_only=True)
class Muon(Spec, family="muon", version=1):
    """Muon (Jordan et al. 2024): momentum, its matrices made orthogonal, under the one-cycle learning rate of `Adam`.

    Each head's W_Q and W_K is a matrix of its own. What is no matrix (the bias) is trained by Adam with peak `bias_peak`.
    """

    steps: int
    peak: float
    bias_peak: float = 0.3
    warmup: float = 0.1
    momentum: float = 0.95
    iterations: int = 5

    def check(self) -> None:
        require(self.steps >= 1, "`steps >= 1`", self.steps, "Take at least one step.")
        require(self.peak > 0 and self.bias_peak > 0, "`peak > 0`", (self.peak, self.bias_peak), "Try 0.2.")
        require(0 <= self.warmup < 1, "`0 <= warmup < 1`", self.warmup, "Try 0.1.")
        require(0 <= self.momentum < 1, "`0 <= momentum < 1`", self.momentum, "Try 0.95.")
        require(1 <= self.iterations <= 20, "`1 <= iterations <= 20`", self.iterations, "Try 5.")


@dataclass(frozen=True, kw_only=True)
class Lbfgs(Spec, family="lbfgs", version=1):
    """L-BFGS with a backtracking line search; a step is one evaluation. Ends when |gradient| <= tolerance * |first|."""

    steps: int
    memory: int = 10
    tolerance: float = 1e-12

    def check(self) -> None:
        require(self.steps >= 1, "`steps >= 1`", self.steps, "Take at least one step.")
        require(self.memory >= 1, "`memory >= 1`", self.memory, "Remember at least one pair.")


@dataclass(frozen=True, kw_only=True)
class Recipe(Spec, family="recipe", version=1):
    """How a member is trained.

    loss: a name its instrument knows    init_scale: multiplies the variance of the initial weights, 1/d_k
    bias: where the learned threshold starts (tau = -bias)    phases: one after another
    certify: the judge must prove a failure to fit, else the member is `unconverged`, not measured
    draw: which initial weights, of all those that the instance and the architecture allow (a restart is another draw)
    feed: what members are shown step by step, where that is not everything at every step
    """

    name: str
    revision: int
    loss: str
    phases: tuple[Spec, ...]
    init_scale: float = 1.0
    bias: float = 0.0
    certify: bool = False
    draw: int = field(default=0, metadata={"absent": 0})
    feed: Spec | None = field(default=None, metadata={"absent": None})

    def check(self) -> None:
        require(len(self.phases) >= 1, "a recipe has a phase", 0, "Give it one, such as Adam.")
        require(self.init_scale > 0, "`init_scale > 0`", self.init_scale, "Use 1.")
        require(self.draw >= 0, "`draw >= 0`", self.draw, "Draws count from 0.")

    @property
    def steps(self) -> int:
        """Most steps that a member takes."""
        return sum(int(getattr(p, "steps", 0)) for p in self.phases)


def gradient(steps: int = 2000, peak: float = 0.06) -> Recipe:
    """Gradient training, the kind that the paper's figures are about; the paper's own recipe is not known to us.

    Binary cross-entropy, Adam, one cycle, a learned threshold (docs/measure.md, "The recipe").
    """
    phase = Adam(steps=steps, peak=peak)
    return Recipe(name="gradient", revision=1, loss="bce", phases=(phase,), init_scale=1.0, bias=-3.0)


def hinge(steps: int = 6000, peak: float = 0.3) -> Recipe:
    """The best first-order recipe known here, for exact recovery: squared hinge, and Adam with a long memory of the slope.

    Random start, float32, no line search (docs/gradient-training.md says what was tried beside it). A pair that is right
    by the margin pulls no more, so the steps go to the pairs that are wrong; the momentum of a hundred steps carries the
    weights over the flats and small barriers at which plain Adam and L-BFGS stop.
    """
    phase = Adam(steps=steps, peak=peak, beta1=0.99, beta2=0.95)
    return Recipe(name="hinge", revision=1, loss="squared-hinge", phases=(phase,), init_scale=1.0, bias=-3.0)


def separator() -> Recipe:
    """Finds a separating plane, or the proof that there is none: squared hinge, L-BFGS, float64."""
    phase = Lbfgs(steps=6000, memory=10)
    return Recipe(name="separator", revision=1, loss="squared-hinge", phases=(phase,), init_scale=1.0, certify=True)


RATE, AT = 0.03, 32  # the learning rate at a batch of 32; it falls as the root of the batch grows
TAIL = 0.25  # of the steps, over which the rate falls to 0
SHARE, LEAST = 0.2, 32  # a batch, as a share of the sequences that may be held, and its least size


def _recital(name: str, steps: int, batch: int, feed: Spec, rate: float) -> Recipe:
    peak = rate * (AT / batch) ** 0.5
    phase = Adam(steps=steps, peak=peak, warmup=0.02, beta2=0.99, schedule="trapezoid", tail=TAIL)
    return Recipe(name=name, revision=1, loss="recital", phases=(phase,), feed=feed)


def saturated(scale: int, steps: int = 2000, *, ride: bool = True, rate: float = RATE, batch: int | None = None) -> Recipe:
    """Recital trained for as long as it takes: enough steps that twice as many would hold no more, batches that grow with it.

    scale: about as many sequences as could be held    ride: the library grows, from a quarter of the scale; else all of
    it is shown    batch: default a fifth of the scale
    """
    batch = max(LEAST, round(SHARE * scale / 4) * 4) if batch is None else batch
    hold = steps - int(TAIL * steps)
    settle = steps - int(TAIL * steps / 4)
    riding = Ride(batch=batch, start=max(1, round(scale / 4)), steps=steps, hold=hold, settle=settle)
    return _recital("saturated", steps, batch, riding if ride else Draws(batch=batch), rate)


def budgeted(steps: int = 400, *, batch: int = 32, rate: float = RATE) -> Recipe:
    """Recital under one budget for all widths: so many steps of so many sequences, whatever could be held."""
    return _recital("budgeted", steps, batch, Draws(batch=batch), rate)


def recital_stopping(steps: int) -> Stopping:
    """Looks at which a ride grows: some 60 in a training. Nobody leaves early, so that stored bits are of whole trainings."""
    return Stopping(check_every=max(4, steps // 60), retire_exact=False)


DEFAULT_STOPPING = Stopping()
SEPARATOR_STOPPING = Stopping(check_every=10, slack=1e-10)
