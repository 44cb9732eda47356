"""Recipes as data: loss, initial scale, phases. Named and versioned; a run id changes when its recipe does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from keyspan.errors import BadInput, require
from keyspan.problems.shown import Batches, Contexts, Ride
from keyspan.specs import Spec, Stopping

SHAPES = ("cosine", "linear")


@dataclass(frozen=True, kw_only=True)
class Adam(Spec, family="adam", version=1):
    """Adam under a one-cycle learning rate: up over the first `warmup` of the steps, then down.

    start: the peak over the first rate    end: the last rate over the peak    rise, fall: along a cosine, or linear
    tail: it stays at the peak until the last `tail` of the steps (None: it falls as soon as it is there)
    epochs: at least so many passes over the examples, whatever `steps` says (`Recipe.with_load` turns them into steps)
    decay: weights shrink by rate * decay a step (AdamW)
    """

    steps: int
    peak: float
    warmup: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    start: float = field(default=25.0, metadata={"absent": 25.0})
    end: float = field(default=0.0, metadata={"absent": 0.0})
    rise: str = field(default="cosine", metadata={"absent": "cosine"})
    fall: str = field(default="cosine", metadata={"absent": "cosine"})
    tail: float | None = field(default=None, metadata={"absent": None})
    epochs: int | None = field(default=None, metadata={"absent": None})
    decay: float = field(default=0.0, metadata={"absent": 0.0})

    def check(self) -> None:
        require(self.start >= 1, "`start >= 1`", self.start, "Try 25: the first rate is the peak over it.")
        require(0 <= self.end <= 1, "`0 <= end <= 1`", self.end, "Try 0.")
        require(self.rise in SHAPES and self.fall in SHAPES, f"`rise`, `fall` in {'|'.join(SHAPES)}", self.rise, "Choose.")
        require(self.epochs is None or self.epochs >= 1, "`epochs >= 1`", self.epochs, "Leave it out.")
        require(self.steps >= 1, "`steps >= 1`", self.steps, "Take at least one step.")
        require(self.peak > 0, "`peak > 0`", self.peak, "Try 0.06.")
        require(0 <= self.warmup < 1, "`0 <= warmup < 1`", self.warmup, "Try 0.1.")
        require(0 <= self.beta1 < 1 and 0 <= self.beta2 < 1, "`0 <= beta < 1`", (self.beta1, self.beta2), "Try 0.9, 0.999.")
        require(self.epsilon > 0, "`epsilon > 0`", self.epsilon, "Try 1e-8.")
        rule = "`0 < tail <= 1 - warmup`"
        require(self.tail is None or 0 < self.tail <= 1 - self.warmup, rule, self.tail, "Try 0.25, or leave it out.")
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
    """L-BFGS with a backtracking line search; a step is one evaluation. Ends when |gradient| <= tolerance * |first|.

    patience: steps after which it also ends if the loss has not fallen by the fraction `progress` over them; 0: never
    """

    steps: int
    memory: int = 10
    tolerance: float = 1e-12
    patience: int = field(default=0, metadata={"absent": 0})
    progress: float = field(default=0.03, metadata={"absent": 0.03})

    def check(self) -> None:
        require(self.steps >= 1, "`steps >= 1`", self.steps, "Take at least one step.")
        require(self.memory >= 1, "`memory >= 1`", self.memory, "Remember at least one pair.")
        require(self.patience >= 0, "`patience >= 0`", self.patience, "Use 0 for none.")
        require(0 <= self.progress < 1, "`0 <= progress < 1`", self.progress, "Try 0.03.")


@dataclass(frozen=True, kw_only=True)
class Recipe(Spec, family="recipe", version=1):
    """How a member is trained.

    loss: a name its instrument knows    init_scale: multiplies the variance of the initial weights, 1/d_k
    bias: where the learned threshold starts (tau = -bias)    phases: one after another
    certify: the judge must prove a failure to fit, else the member is `unconverged`, not measured; of a channel with one
    head it says where it can that no head would do
    draw: which initial weights, of all those that the instance and the architecture allow (a restart is another draw)
    show: what a step looks at, where it is not all pairs, or not the whole library from the start (`problems.shown`)
    batch: examples of a step; None where a step is shown everything
    """

    name: str
    revision: int
    loss: str
    phases: tuple[Spec, ...]
    init_scale: float = 1.0
    bias: float = 0.0
    certify: bool = False
    draw: int = field(default=0, metadata={"absent": 0})
    show: Spec | None = field(default=None, metadata={"absent": None})
    batch: int | None = field(default=None, metadata={"absent": None})

    def check(self) -> None:
        require(self.batch is None or 1 <= self.batch <= 2**20, "`1 <= batch <= 1048576`", self.batch, "Try 256.")
        require(len(self.phases) >= 1, "a recipe has a phase", 0, "Give it one, such as Adam.")
        if isinstance(self.show, Batches):
            steps = [getattr(p, "steps", 0) for p in self.phases]
            rule = "a recipe of batches has a phase for each, all of as many steps"
            require(len(steps) == self.show.count and len(set(steps)) == 1, rule, steps, "Use `recipes.showing`.")
        require(self.init_scale > 0, "`init_scale > 0`", self.init_scale, "Use 1.")
        require(self.draw >= 0, "`draw >= 0`", self.draw, "Draws count from 0.")

    def with_load(self, load: int) -> Recipe:
        """The recipe for so many examples: phases that count epochs count steps, their own number at least."""
        return replace(self, phases=tuple(self._resolved(phase, load) for phase in self.phases))

    def _resolved(self, phase: Spec, load: int) -> Spec:
        if not isinstance(phase, Adam) or phase.epochs is None:
            return phase
        return replace(phase, steps=max(phase.steps, phase.epochs * load // (self.batch or load)), epochs=None)

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


def solver(steps: int = 1000) -> Recipe:
    """What the architecture can hold, as far as is known here: squared hinge in float64, heads that compete for edges.

    Adam with a long memory decides which head claims which edge, which no line search gets right from a random start;
    then L-BFGS closes in, or finds that it gets no further (docs/solver.md). A restart is another draw.
    """
    explore = max(1, 2 * steps // 5)
    phases = (
        Adam(steps=explore, peak=0.3, beta1=0.99, beta2=0.95),
        Lbfgs(steps=max(1, steps - explore), memory=20, patience=100),
    )
    return Recipe(name="solver", revision=1, loss="squared-hinge", phases=phases, bias=-3.0, certify=True)


def solver_fixed(steps: int = 1000) -> Recipe:
    """The solver whose heads do not choose: every edge belongs to a head that is drawn beforehand, as many to each.

    Then every head is a perceptron of its own, in products of coordinates, and the theory of perceptrons speaks of it
    (docs/law.md). L-BFGS alone finds its way.
    """
    phase = Lbfgs(steps=steps, memory=20, patience=100)
    return Recipe(name="solver-fixed", revision=1, loss="owned-hinge", phases=(phase,), bias=-3.0, certify=True)


def recall(steps: int = 2000, peak: float = 0.02) -> Recipe:
    """Softmax attention that recalls relations in contexts: cross-entropy, Adam, one cycle, other contexts at every step.

    What the loss is, the instrument says (`attention.reference_routed.loss`): of pairs, or of items where there are values.
    """
    phase = Adam(steps=steps, peak=peak)
    return Recipe(name="recall", revision=1, loss="recall", phases=(phase,))


def showing(recipe: Recipe, contexts: int | None = None, batches: int | None = None, replay: bool = False) -> Recipe:
    """The recipe, looking at sampled contexts of so many items, or at batches of rows one after another.

    Batches share the recipe's steps: each has a phase of its own, with its own cycle of the learning rate and as many steps
    as make a whole number of looks.
    """
    if contexts is not None and batches is not None:
        raise BadInput(f"`--contexts` must be left out with `--batches`, but got {contexts} and {batches}. Choose one.")
    if batches is None and replay:
        raise BadInput("`--replay` must come with `--batches`, but got none. Say how many batches there are.")
    if contexts is None and batches is None:
        return recipe
    (phase, *more) = recipe.phases
    if more or not isinstance(phase, Adam | Muon):
        fix = "Use gradient or hinge."
        raise BadInput(f"`--contexts` and `--batches` must come with a recipe of gradient steps, but got {recipe.name}. {fix}")
    if contexts is not None:
        return replace(recipe, show=Contexts(items=contexts))
    assert batches is not None
    show = Batches(count=batches, replay=replay)
    every = DEFAULT_STOPPING.check_every
    each = replace(phase, steps=-(-phase.steps // (batches * every)) * every)
    return replace(recipe, show=show, phases=(each,) * batches)


def separator() -> Recipe:
    """Finds a separating plane, or the proof that there is none: squared hinge, L-BFGS, float64."""
    phase = Lbfgs(steps=6000, memory=10)
    return Recipe(name="separator", revision=1, loss="squared-hinge", phases=(phase,), init_scale=1.0, certify=True)


RATE, AT = 0.03, 32  # the learning rate at a batch of 32; it falls as the root of the batch grows
TAIL = 0.25  # of the steps, over which the rate falls to 0
SHARE, LEAST = 0.2, 32  # a batch, as a share of the sequences that may be held, and its least size


def _recital(name: str, steps: int, batch: int, show: Spec | None, rate: float) -> Recipe:
    peak = rate * (AT / batch) ** 0.5
    phase = Adam(steps=steps, peak=peak, warmup=0.02, beta2=0.99, rise="linear", fall="linear", tail=TAIL)
    return Recipe(name=name, revision=1, loss="recital", phases=(phase,), show=show, batch=batch)


def saturated(scale: int, steps: int = 2000, *, ride: bool = True, rate: float = RATE, batch: int | None = None) -> Recipe:
    """Recital trained for as long as it takes: enough steps that twice as many would hold no more, batches that grow with it.

    scale: about as many sequences as could be held    ride: the library grows, from a quarter of the scale; else all of
    it is shown    batch: default a fifth of the scale
    """
    batch = max(LEAST, round(SHARE * scale / 4) * 4) if batch is None else batch
    hold = steps - int(TAIL * steps)
    settle = steps - int(TAIL * steps / 4)
    riding = Ride(start=max(1, round(scale / 4)), steps=steps, hold=hold, settle=settle)
    return _recital("saturated", steps, batch, riding if ride else None, rate)


def budgeted(steps: int = 400, *, batch: int = 32, rate: float = RATE) -> Recipe:
    """Recital under one budget for all widths: so many steps of so many sequences, whatever could be held."""
    return _recital("budgeted", steps, batch, None, rate)


def recital_stopping(steps: int) -> Stopping:
    """Looks at which a ride grows: some 60 in a training. Nobody leaves early, so that stored bits are of whole trainings."""
    return Stopping(check_every=max(4, steps // 60), retire_exact=False)


LABEL_LOSSES = {"classes": "cross-entropy", "values": "squared-error"}
PAPER_STEPS, PAPER_EPOCHS = 50_000, 500
FAST_STEPS, FAST_EPOCHS = 5_000, 100


def paper(task: str = "classes", steps: int | None = None) -> Recipe:
    """The recipe of Mahdavi et al.'s official code, restated (docs/labels.md, "Recipes").

    Adam at 1e-3, minibatches of 256, a linear rise from a hundredth over the first 5% of the steps, then a cosine to 0.
    steps: exactly so many, instead of 500 epochs and 50,000 steps at least
    """
    phase = Adam(
        steps=PAPER_STEPS if steps is None else steps,
        peak=1e-3,
        warmup=0.05,
        start=100.0,
        rise="linear",
        epochs=PAPER_EPOCHS if steps is None else None,
    )
    return Recipe(name="paper", revision=1, loss=LABEL_LOSSES[task], phases=(phase,), batch=256)


def fast(task: str = "classes", steps: int | None = None) -> Recipe:
    """Ours for labels: ten times the paper's rate for a tenth of its steps (docs/labels.md, "Recipes").

    steps: exactly so many, instead of 5,000 and 100 epochs at least
    """
    phase = Adam(
        steps=FAST_STEPS if steps is None else steps, peak=1e-2, warmup=0.05, epochs=FAST_EPOCHS if steps is None else None
    )
    return Recipe(name="fast", revision=1, loss=LABEL_LOSSES[task], phases=(phase,), batch=256)


def association(steps: int = 4096) -> Recipe:
    """For pairs of tokens, as Dana et al. train: Adam from 1e-2 down along a line to 5e-4, minibatches of 256."""
    phase = Adam(steps=steps, peak=1e-2, warmup=0.0, fall="linear", end=0.05)
    return Recipe(name="association", revision=1, loss="cross-entropy", phases=(phase,), batch=256)


DEFAULT_STOPPING = Stopping()
FAST_STOPPING = Stopping(check_every=100, slack=0.0)
PAPER_STOPPING = Stopping(check_every=500, slack=0.0)
SEPARATOR_STOPPING = Stopping(check_every=10, slack=1e-10)
