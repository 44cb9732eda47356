"""Bounds on the key budget D_K = h d_k of a channel that holds a graph, and predictions of it.

Symbols (Adler 2025): m items, d_model d, m' edges, h heads of width d_k. Every number says whether it is proven,
measured or conjectured, where it holds, and which constants it rests on; docs/mathematics.md has the arguments, under the
names used below. Those that count are in `theory.counting`, those of the perceptron in `theory.gardner`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from keyspan.theory.counting import description_budget, hub_heads, warren_budget
from keyspan.theory.gardner import RHO_THIN, RHO_WIDE, gardner_best, gardner_budget, gardner_load, heads_needed
from keyspan.theory.solving import check_sizes

__all__ = [
    "TRAINED_OVER_LAW", "Bound", "description_budget", "gardner_best", "gardner_budget", "gardner_load", "heads_needed",
    "hub_heads", "key_budget_bounds", "law", "trivial_budget", "warren_budget",
]  # fmt: skip

TRAINED_OVER_LAW = (0.57, 2.10)  # D_K* of trained channels over the law: least and most of the permutations measured
RELATIVE_MARGIN = 0.1  # the margin, over the largest |W_Q W_K^T|, at which `covering` is listed


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One statement about D_K, the number of heads, or of labelled examples. `value` is None where it is that none will do.

    validity: where it holds    constants: the numbers in it that are no theorem, or that were chosen
    """

    name: str
    value: float | None
    status: Literal["proven", "measured", "conjectured"]
    source: str
    note: str
    validity: str
    about: Literal["key_budget", "heads", "examples"] = "key_budget"
    constants: Mapping[str, float] = field(default_factory=dict)


def key_budget_bounds(
    *, edges: int, bits: float, items: int, d_model: int, heads: int, degree: int | None = None
) -> tuple[Bound, ...]:
    """What is known of D_K for m' edges that take `bits` to name, on m items in R^d, with h heads.

    degree: the largest number of targets or of sources of one item, where it is known
    """
    listed = [*_lower(bits, items, d_model, heads), *_predictions(edges, items, d_model, heads), _one_head_per_edge(edges)]
    if degree is not None:
        listed.append(
            Bound(
                name="hub",
                value=float(hub_heads(degree, items, d_model)),
                status="proven",
                source="Schlaefli; Cover 1965 (cells of hyperplanes); docs/mathematics.md#hubs",
                note="with fewer heads, some set of so many targets of one item cannot be held, however wide they are",
                validity="exact recovery; targets that may be any",
                about="heads",
            )
        )
    return tuple(listed)


def _lower(bits: float, items: int, d_model: int, heads: int) -> list[Bound]:
    return [
        Bound(
            name="warren",
            value=warren_budget(bits, items, d_model, heads),
            status="proven",
            source="Warren 1968 (sign patterns of polynomials); docs/mathematics.md#warren",
            note="below it, whatever the training and the precision, some graph of the family cannot be held",
            validity="exact recovery; the family, not each of its graphs",
        ),
        Bound(
            name="covering",
            value=description_budget(bits, d_model, RELATIVE_MARGIN),
            status="proven",
            source="Adler 2025 (description length), constant written out; docs/mathematics.md#covering",
            note="the same for scores that keep so far from the threshold; the margin is a choice, and gives the logarithm",
            validity="a relative margin of 0.1, rows of norm <= 1",
            constants={"relative_margin": RELATIVE_MARGIN},
        ),
    ]


def _predictions(edges: int, items: int, d_model: int, heads: int) -> list[Bound]:
    least, most = TRAINED_OVER_LAW
    fewest = heads_needed(edges, items, d_model)
    replica = {"status": "conjectured", "source": "Gardner 1988 (capacity of a perceptron); docs/mathematics.md#gardner"}
    return [
        Bound(
            name="gardner",
            value=gardner_budget(edges, items, d_model, heads),
            note="what a second-order solver reaches, to about 10%; none: these heads are too few at any width",
            validity="d_model from about 12; gaussian rows; no hubs",
            constants={"rho_thin": RHO_THIN, "rho_wide": RHO_WIDE},
            **replica,  # type: ignore[arg-type]
        ),
        Bound(
            name="fewest heads",
            value=None if fewest is None else float(fewest),
            note="h_min: with fewer, no width will do; none: not even one head per item",
            validity="d_model from about 12; gaussian rows; no hubs",
            about="heads",
            **replica,  # type: ignore[arg-type]
        ),
        Bound(
            name="law",
            value=law(edges, d_model),
            status="measured",
            source="Adler 2025: D_K = Theta(m' ln m' / d)",
            note=f"the order is proven, the constant 1 is not: trained channels needed {least:.2f} to {most:.2f} of it",
            validity="permutations, gaussian rows, 32 to 1024 items",
            constants={"least": least, "most": most},
        ),
    ]


def _one_head_per_edge(edges: int) -> Bound:
    return Bound(
        name="one head per edge",
        value=float(trivial_budget(edges)),
        status="proven",
        source="docs/mathematics.md#one-head-per-edge",
        note="d_k = 1, exact for unit rows none of which are equal or opposite, with margin 1 - coherence",
        validity="any graph; unit rows, none equal or opposite",
    )


def law(edges: int, d_model: int) -> float:
    """m' ln m' / d, the law D_K = Theta(m' log m' / d) with constant 1 (Adler 2025).

    The theorem fixes the order, not the constant; channels trained by gradient were seen to need about 1
    (`TRAINED_OVER_LAW`).
    """
    check_sizes(edges=edges, d_model=d_model)
    return edges * math.log(edges) / d_model


def trivial_budget(edges: int) -> int:
    """D_K = m': head a is x_i x_j^T for the a-th edge i -> j, of rank 1 (proven).

    With unit rows an edge scores 1 and a non-edge at most the coherence, the largest |x_i . x_j|: exact, with
    min edge - max non-edge >= 1 - coherence, where no two rows are equal or opposite. (Distinct is not enough:
    -x_i -> -x_j also scores 1, and sign rows of few dimensions do come in such pairs.)
    """
    check_sizes(edges=edges)
    return edges
