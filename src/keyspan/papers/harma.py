"""The figures of Haermae et al. (2024): which decoders recite what, at every tier, and what is asked of the laboratory.

capacity, residuals, per-parameter: the grid of heads H, lengths N and widths B, in both regimes (docs/sequences.md)
tent: recited against the library's size, with every measure on the same cells    batch: the paper's figure 6, at equal
steps and at equal sequences    frozen, layers: what the feed-forward and more blocks add

The group `studies` asks what the paper leaves open: vocabularies, activations, optimisers, sources, attention that is not
dense softmax. What the paper does not say (constants, ranges, vocabulary, optimiser, stopping) is ours, and in every record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from keyspan.decoders import ACTIVATIONS, FEED_FORWARDS, Decoder
from keyspan.lab.recipes import Adam, Recipe
from keyspan.papers.figures import TIERS, Figure
from keyspan.problems import NoContents, sequences
from keyspan.problems.sequences import Sequences
from keyspan.runners.sequences import Asked, ask_sequences, bits_per_sequence
from keyspan.specs import Question

PAPER, GROUP = "harma", "studies"
VOCABULARY = 64
PROMPT = 2


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One capacity. series, x: where it stands in its figure    change: fields of the training's one phase that differ"""

    series: str
    x: float
    decoder: Decoder
    problem: Sequences
    regime: str = "saturated"
    measure: str = "ride"
    steps: int
    batch: int | None = None
    twice: bool = False
    change: tuple[tuple[str, Any], ...] = ()

    def asked(self, seeds: int, seed: int) -> Asked:
        """Its questions."""
        made = ask_sequences(
            self.problem,
            decoder=self.decoder,
            measure=self.measure,
            regime=self.regime,
            seeds=seeds,
            seed=seed,
            steps=self.steps,
            batch=self.batch,
            twice=self.twice,
        )
        return made if not self.change else replace(made, questions=tuple(self._changed(q) for q in made.questions))

    def _changed(self, question: Question) -> Question:
        recipe = question.recipe
        assert isinstance(recipe, Recipe)
        (phase,) = recipe.phases
        assert isinstance(phase, Adam)
        return replace(question, recipe=replace(recipe, phases=(replace(phase, **dict(self.change)),)))


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What a figure measures at a tier. axis: what x is    seeds: libraries a point"""

    asks: tuple[Ask, ...]
    axis: str
    seeds: int


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large things are at a tier. steps: of saturated trainings, which the grid doubles    budget: of the other regime
    cells: (N, B) of what is measured beside the grid    heads: of the same    libraries: a point beside the grid
    """

    grid: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # H, N, B
    seeds: int
    steps: int
    budget: int
    cells: tuple[tuple[int, int], ...]
    heads: tuple[int, ...]
    libraries: int
    batches: tuple[int, ...]
    layers: tuple[int, ...]
    vocabularies: tuple[int, ...]


SIZES = {
    "smoke": Size(
        grid=((1, 2), (8,), (4, 6, 8)),
        seeds=2,
        steps=240,
        budget=100,
        cells=((8, 6),),
        heads=(2,),
        libraries=2,
        batches=(8, 32),
        layers=(1, 2),
        vocabularies=(32, 64),
    ),
    "short": Size(
        grid=((1, 2, 4, 5), (8, 16, 32), (8, 16, 32, 48)),
        seeds=2,
        steps=4000,
        budget=400,
        cells=((8, 8), (16, 8), (8, 16), (16, 16)),
        heads=(1, 2, 4),
        libraries=3,
        batches=(8, 16, 32, 64, 128),
        layers=(1, 2, 3),
        vocabularies=(16, 64, 256),
    ),
    "paper": Size(
        grid=((1, 2, 3, 4, 5), (8, 16, 32, 64, 128), (8, 16, 32, 64, 128, 256)),
        seeds=3,
        steps=2000,
        budget=400,
        cells=((16, 16), (32, 16), (16, 32), (32, 32), (128, 32)),
        heads=(1, 2, 4),
        libraries=5,
        batches=(8, 16, 32, 64, 128, 256, 512),
        layers=(1, 2, 3, 4),
        vocabularies=(16, 64, 256, 1024),
    ),
}


def _library(length: int, vocabulary: int = VOCABULARY, prompt: int = PROMPT) -> Sequences:
    return Sequences(length=length, vocabulary=vocabulary, prompt=prompt)


def _distinct(size: Size, tier: str) -> int:
    """Tokens of a prompt: the largest decoders hold more sequences than there are prompts of two tokens."""
    return 3 if tier == "paper" else PROMPT


def _grid(size: Size, tier: str) -> Sweep:
    """Every (H, N, B), saturated with twice the steps beside them, and budgeted."""
    asks = []
    for regime in ("saturated", "budgeted"):
        free = regime == "saturated"
        steps, measure = (size.steps, "ride") if free else (size.budget, "ladder")
        for h, n, b in product(*size.grid):
            decoder, problem = Decoder(heads=h, d_model=b), _library(n, prompt=_distinct(size, tier))
            shown = {"decoder": decoder, "problem": problem, "regime": regime, "measure": measure}
            asks.append(Ask(series=regime, x=b, steps=steps, twice=free, **shown))  # type: ignore[arg-type]
    return Sweep(asks=tuple(asks), axis="d_model", seeds=size.seeds)


def _beside(size: Size) -> Iterator[tuple[int, int, int]]:
    for n, b in size.cells:
        for h in size.heads:
            yield h, n, b


def _tent(size: Size, tier: str) -> Sweep:
    """Every measure on the same cells, saturated: the ladder's rungs are the tent."""
    asks = [
        Ask(series=measure, x=b, decoder=Decoder(heads=h, d_model=b), problem=_library(n), measure=measure, steps=steps)
        for h, n, b in _beside(size)
        for measure in ("ladder", "ride", "literal")
        for steps in (size.steps // 2,)
    ]
    return Sweep(asks=tuple(asks), axis="library", seeds=size.libraries)


def _middle(size: Size) -> tuple[int, int, int]:
    """(H, N, B) of one cell in the middle of those beside the grid."""
    cells = sorted(size.cells, key=lambda c: (c[1], c[0]))
    n, b = cells[len(cells) // 2]
    return (2 if 2 in size.heads else size.heads[0]), n, b


def _batch(size: Size, tier: str) -> Sweep:
    """Sequences a step: at as many steps; at as many sequences in all; and steps at one batch."""
    h, n, b = _middle(size)
    n = 2 * n  # the paper shows N = 32 and 128
    shared: dict[str, Any] = {
        "decoder": Decoder(heads=h, d_model=b),
        "problem": _library(n),
        "regime": "budgeted",
        "measure": "ladder",
    }
    total = 32 * size.budget
    asks = [Ask(series="equal steps", x=k, batch=k, steps=size.budget, **shared) for k in size.batches]
    asks += [Ask(series="equal sequences", x=k, batch=k, steps=max(16, total // k), **shared) for k in size.batches]
    times = [k / 32 for k in size.batches]
    asks += [Ask(series="equal batch", x=32 * t, batch=32, steps=max(16, round(size.budget * t)), **shared) for t in times]
    return Sweep(asks=tuple(asks), axis="batch, or steps in units of a batch of 32's", seeds=size.libraries)


def _frozen(size: Size, tier: str) -> Sweep:
    """The feed-forward trained, frozen at its initial weights, and absent."""
    asks = [
        Ask(series=ff, x=b, decoder=Decoder(heads=h, d_model=b, ff=ff), problem=_library(n), steps=size.steps // 2)
        for ff in FEED_FORWARDS
        for h, n, b in _beside(size)
        if b == size.cells[-1][1]
    ]
    return Sweep(asks=tuple(asks), axis="d_model", seeds=size.libraries)


def _layers(size: Size, tier: str) -> Sweep:
    """More blocks, with and without their feed-forward."""
    h, n, b = _middle(size)
    asks = [
        Ask(
            series=f"feed-forward {ff}",
            x=layers,
            decoder=Decoder(heads=h, d_model=b, layers=layers, ff=ff),
            problem=_library(n),
            steps=size.steps // 2,
        )
        for ff in ("trained", "absent")
        for layers in size.layers
    ]
    return Sweep(asks=tuple(asks), axis="layers", seeds=size.libraries)


def _vocabulary(size: Size, tier: str) -> Sweep:
    """Tokens there are, at the same width; prompts of three tokens, so that even few tokens have prompts enough."""
    h, n, b = _middle(size)
    decoder = Decoder(heads=h, d_model=b)
    asks = [
        Ask(series="uniform", x=v, decoder=decoder, problem=_library(n, v, 3), steps=size.steps // 2) for v in size.vocabularies
    ]
    return Sweep(asks=tuple(asks), axis="vocabulary", seeds=size.libraries)


def _variants(size: Size, made: Mapping[str, Mapping[str, Any]]) -> Sweep:
    """Decoders or trainings that differ in one thing, on one cell."""
    h, n, b = _middle(size)
    asks = []
    for place, (name, given) in enumerate(made.items()):
        change, problem = given.get("change", ()), given.get("problem", _library(n))
        fields = {k: v for k, v in given.items() if k not in ("change", "problem")}
        decoder = Decoder(heads=h, d_model=b, **fields)
        asks.append(Ask(series=name, x=place, decoder=decoder, problem=problem, steps=size.steps // 2, change=change))
    return Sweep(asks=tuple(asks), axis="", seeds=size.libraries)


def _activations(size: Size, tier: str) -> Sweep:
    return _variants(size, {name: {"activation": name} for name in ACTIVATIONS})


def _optimizers(size: Size, tier: str) -> Sweep:
    """What can be said of one flat vector of weights: Adam's memories, its decay, the shape of its rate."""
    return _variants(
        size,
        {
            "Adam, 0.9, 0.99": {},
            "Adam, 0.9, 0.999": {"change": (("beta2", 0.999),)},
            "Adam, 0.8, 0.95": {"change": (("beta1", 0.8), ("beta2", 0.95))},
            "AdamW, decay 0.1": {"change": (("decay", 0.1),)},
            "half the rate": {"change": (("peak", 0.015),)},
        },
    )


def _sources(size: Size, tier: str) -> Sweep:
    """Sources of several entropies; capacities are told in bits as well."""
    n = _middle(size)[1]
    made = {
        "uniform": sequences.uniform(),
        "negbin": sequences.negbin(),
        "zipf": sequences.zipf(),
        "markov": sequences.markov(),
    }
    problems = {name: Sequences(length=n, vocabulary=VOCABULARY, prompt=3, source=source) for name, source in made.items()}
    return _variants(size, {name: {"problem": problem} for name, problem in problems.items()})


def _attention(size: Size, tier: str) -> Sweep:
    """Dense softmax, and what is cheaper for long sequences."""
    window = 4
    local = {name: {"attention": name, "window": window} for name in ("window", "sparse")}
    return _variants(size, {"softmax": {}, "linear": {"attention": "linear"}, **local})


def _skewed(size: Size, tier: str) -> Sweep:
    """A grid on negative-binomial tokens, budgeted: whether the model describes them as well."""
    heads, lengths, widths = size.grid
    few = (heads[:3], lengths[:2], widths[:3])
    asks = [
        Ask(
            series="negbin",
            x=b,
            decoder=Decoder(heads=h, d_model=b),
            problem=Sequences(length=n, vocabulary=VOCABULARY, prompt=3, source=sequences.negbin()),
            regime="budgeted",
            measure="ladder",
            steps=size.budget,
        )
        for h, n, b in product(*few)
    ]
    return Sweep(asks=tuple(asks), axis="d_model", seeds=size.seeds)


def bits_of(ask: Ask) -> float:
    """Entropy of one of its sequences, given its prompt."""
    return bits_per_sequence(ask.problem, NoContents())


Build = Callable[[Size, str], Sweep]
FIGURES: tuple[tuple[str, str, Build, str], ...] = (
    ("capacity", "Sequences recited against width, by heads and length, with the laws fitted", _grid, ""),
    ("tent", "Recited against the library's size, and what each measure makes of it", _tent, ""),
    ("batch", "Capacity against batch and training time", _batch, ""),
    ("frozen", "The feed-forward trained, frozen and absent", _frozen, ""),
    ("layers", "Capacity against layers", _layers, ""),
    ("residuals", "What the laws leave unexplained", _grid, ""),
    ("per-parameter", "Bits a parameter holds", _grid, ""),
    ("vocabulary", "Capacity against vocabulary", _vocabulary, GROUP),
    ("activations", "Activations of the feed-forward", _activations, GROUP),
    ("optimizers", "Optimisers", _optimizers, GROUP),
    ("sources", "Sources of tokens", _sources, GROUP),
    ("attention", "Attention that is not dense softmax", _attention, GROUP),
    ("skewed", "Capacity on negative-binomial tokens, with the laws fitted", _skewed, GROUP),
)


def figures() -> dict[str, Figure]:
    """The figures by name."""
    return {
        name: Figure(name, title, {tier: build(SIZES[tier], tier) for tier in TIERS}, group)
        for name, title, build, group in FIGURES
    }


def asked_of(figure: Figure, tier: str, seed: int = 0) -> list[Asked]:
    """Every capacity of a figure, as asked."""
    sweep: Sweep = figure.tiers[tier]
    return [ask.asked(sweep.seeds, seed) for ask in sweep.asks]


def questions(figure: Figure, tier: str, seed: int = 0) -> list[Question]:
    """What a figure asks: every capacity's questions, in order."""
    return [question for asked in asked_of(figure, tier, seed) for question in asked.questions]
