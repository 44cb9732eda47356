"""How many heads memorise so many labelled examples? What is certain, what attention that is given allows, what is necessary.

Symbols (Mahdavi et al. 2024): T examples, contexts of n tokens in R^d, H heads of width d_h. The layer is the one that is
measured (docs/labels.md): a linear map and positions before it, values of width 1 a head, a linear readout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from keyspan.errors import BadInput, require
from keyspan.evidence.record import head
from keyspan.theory.bits import WEIGHT_BITS
from keyspan.theory.bounds import Bound
from keyspan.theory.memorization import examples_bounds, feature_cap, theorem

CONTEXTS = ("random", "fixed", "perm")
MOST = 2**24
WIDTHS = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, kw_only=True)
class LabelAlternative:
    """Another width, with the fewest heads that are certain of it."""

    heads: int
    d_key: int
    parameters: int
    bits_per_parameter: float
    theorem: int
    cap: int


@dataclass(frozen=True, kw_only=True)
class LabelDesign:
    """A layer that memorises T examples.

    heads: certain, by theorem 1, whatever the labels    given_attention: fewest heads whose features could be independent for
    so many examples, for attention weights that do not depend on the labels    necessary: fewest heads whose numbers, at
    their own 32 bits, have as many bits as the labels (proven)
    """

    examples: int
    context: int
    d_model: int
    classes: int
    contexts: str
    heads: int
    d_key: int
    parameters: int
    bits: float
    bits_per_parameter: float
    basis: str
    given_attention: int | None
    necessary: int
    bounds: tuple[Bound, ...]
    alternatives: tuple[LabelAlternative, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan design --examples`."""
        return head() | {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


def layer_parameters(heads: int, d_key: int, d_model: int, classes: int) -> int:
    """Numbers of the layer that is measured: the map before it, queries and keys, values of width 1, the readout."""
    return d_model * (d_model + 1) + 2 * heads * d_model * (d_key + 1) + (d_model + 1) * classes


def design_labels(
    *, examples: int, context: int, d_model: int, classes: int = 100, d_key: int | None = None, contexts: str = "random"
) -> LabelDesign:
    """Choose heads for T examples with contexts of n tokens.

    d_key: width of a head (default min(n, d): a wider one adds nothing to theorem 1)    contexts: random, fixed or perm
    """
    width = min(context, d_model) if d_key is None else d_key
    sizes = {"examples": examples, "context": context, "d-model": d_model, "classes": classes, "d-key": width}
    for name, value in sizes.items():
        whole = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST
        require(whole, f"`1 <= --{name} <= {MOST}`", value, "Give a whole number.")
    require(classes >= 2, "`--classes >= 2`", classes, "One label says nothing.")
    require(contexts in CONTEXTS, f"`--contexts` in {'|'.join(CONTEXTS)}", repr(contexts), "Choose one.")
    heads = _certain(examples, context, width)
    if heads is None:
        got = f"{context} and {width}"
        raise BadInput(f"`--context` and `--d-key` must be at least 2 for several examples, but got {got}. Raise both.")
    stored = examples * math.log2(classes)
    most = min(context, d_model)
    others = [(h, w) for w in WIDTHS if w <= most and w != width and (h := _certain(examples, context, w)) is not None]
    size = layer_parameters(heads, width, d_model, classes)
    return LabelDesign(
        examples=examples,
        context=context,
        d_model=d_model,
        classes=classes,
        contexts=contexts,
        heads=heads,
        d_key=width,
        parameters=size,
        bits=stored,
        bits_per_parameter=stored / size,
        basis="theorem",
        given_attention=_least(lambda h: feature_cap(h, context, d_model, contexts) >= examples),
        necessary=_least(lambda h: WEIGHT_BITS["fp32"] * layer_parameters(h, width, d_model, classes) >= stored) or 1,
        bounds=examples_bounds(heads=heads, context=context, d_model=d_model, d_key=width, contexts=contexts),
        alternatives=tuple(
            LabelAlternative(
                heads=h,
                d_key=w,
                parameters=layer_parameters(h, w, d_model, classes),
                bits_per_parameter=stored / layer_parameters(h, w, d_model, classes),
                theorem=theorem(h, context, w),
                cap=feature_cap(h, context, d_model, contexts),
            )
            for h, w in others
        ),
        notes=tuple(_notes(context, d_model)),
    )


def _certain(examples: int, context: int, width: int) -> int | None:
    """The fewest heads with H (min(n, d_h) - 1) + 1 >= T."""
    each = min(context, width) - 1
    if examples == 1:
        return 1
    return None if each < 1 else -(-(examples - 1) // each)


def _least(enough: Callable[[int], bool]) -> int | None:
    """The fewest heads that are enough, by bisection; None: no number is."""
    low, high = 0, 1
    while not enough(high):
        if high > 2**40:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _notes(context: int, d_model: int) -> list[str]:
    notes = ["trained layers choose features by the labels and hold several times as many: `keyspan measure labels`"]
    if context >= d_model:
        notes.append("theorem 1 asks for contexts of fewer tokens than dimensions; with these it is not proven")
    return notes
