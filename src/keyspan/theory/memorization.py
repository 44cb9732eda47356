"""How many labelled examples a layer of H heads memorises: what is known (Mahdavi et al. 2024; Dana et al. 2025).

Symbols: n context    d_h d_key    d d_model    T examples. `theorem` and `dana_accuracy` are lower bounds of what a layer can
do. `feature_cap` bounds the rank of what its heads give out, and with it the labels that can be fitted by a linear map after
attention weights that are *given*. It does not bound a layer whose attention is trained on the labels: that one chooses
its features, and holds more (docs/mathematics.md#cap-of-features).
"""

from __future__ import annotations

from keyspan.errors import require
from keyspan.theory.bounds import Bound
from keyspan.theory.solving import check_sizes


def theorem(heads: int, context: int, d_key: int) -> int:
    """T = H (min(n, d_h) - 1) + 1 examples are memorised, whatever their labels (proven: Mahdavi et al. 2024, theorem 1).

    For contexts of rank n < d and queries of Kruskal rank n at least, d_v >= the number of outputs.
    """
    check_sizes(heads=heads, context=context, d_key=d_key)
    return heads * (min(context, d_key) - 1) + 1


def feature_cap(heads: int, context: int, d_model: int, contexts: str = "fixed") -> int:
    """The largest rank of Z, the rows [f^1_t, ..., f^H_t] of T examples, f^h_t = E_t^T a^h_t in R^d (proven).

    One context for all: H (n - 1) + 1, since every attention row sums to 1, so H - 1 directions are lost; in any case
    H d. With contexts that differ: H d.
    """
    check_sizes(heads=heads, context=context, d_model=d_model)
    return min(heads * (context - 1) + 1, heads * d_model) if contexts == "fixed" else heads * d_model


def general_position(heads: int, d_model: int) -> int:
    """H (d - 1) + 1, which the paper puts beside what is trained on contexts and queries in general position (figure 4)."""
    check_sizes(heads=heads, d_model=d_model)
    return heads * (d_model - 1) + 1


def dana_accuracy(tokens: int, heads: int, d_key: int, d_model: int) -> float:
    """1/N + (1 - 1/N) (H d_h + d) / N^2: an accuracy that a layer with residual reaches on all N^2 pairs (proven: Dana et
    al. 2025, corollary 1): it holds H d_h + d of them and guesses the rest."""
    check_sizes(tokens=tokens, heads=heads, d_key=d_key, d_model=d_model)
    held = min(1.0, (heads * d_key + d_model) / tokens**2)
    return 1 / tokens + (1 - 1 / tokens) * held


def examples_bounds(*, heads: int, context: int, d_model: int, d_key: int, contexts: str = "random") -> tuple[Bound, ...]:
    """What is known of the number of examples that a layer memorises."""
    require(contexts in ("random", "fixed", "perm"), "`contexts` in random|fixed|perm", repr(contexts), "Choose one.")
    source = "Mahdavi et al. 2024"
    return (
        Bound(
            name="theorem",
            value=float(theorem(heads, context, d_key)),
            status="proven",
            source=f"{source}, theorem 1; docs/mathematics.md#memorisation",
            note="some weights hold any labels of so many examples; `theory.memorizing` writes them down",
            validity="contexts of rank n < d, queries of Kruskal rank n, d_v >= outputs",
            about="examples",
        ),
        Bound(
            name="cap of features",
            value=float(feature_cap(heads, context, d_model, contexts)),
            status="proven",
            source=f"{source}, proposition on one context for all; docs/mathematics.md#cap-of-features",
            note="attention weights that do not depend on the labels hold no more real values; trained ones may",
            validity="given attention weights and a linear readout",
            about="examples",
        ),
        Bound(
            name="general position",
            value=float(general_position(heads, d_model)),
            status="conjectured",
            source=f"{source}, figure 4",
            note="the line that the paper draws beside training; what is trained lies far above it",
            validity="contexts and queries in general position",
            about="examples",
        ),
    )
