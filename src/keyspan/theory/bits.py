"""One currency for every problem: bits stored per trained parameter, beside what information theory allows.

    relations    entropy of the graph, less the bits that would put the channel's errors right      over 2 d D_K
    labels       T log2 C, less the bits that would put the wrong labels right                      over all weights
    sequences    entropy of the library, less its negative log-likelihood; or of what is recited    over all weights

A channel that errs a little: what it says and a list of corrections name the graph, so what it stores is at least
the entropy less the length of that list (given how many corrections there are). Frozen item vectors are not counted.

Beside them: bounds (proven), and marks that others have set (measured, or conjectured).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from keyspan.errors import require
from keyspan.problems.graphs import log2_choose

WEIGHT_BITS = {"fp64": 64.0, "fp32": 32.0, "tf32": 32.0, "bf16": 32.0}  # the last two are of the steps: weights are float32


@dataclass(frozen=True)
class Mark:
    """Bits per parameter that are known from elsewhere, to be drawn beside what was measured."""

    name: str
    value: float
    status: Literal["proven", "measured", "conjectured"]
    source: str


MARKS = (
    Mark("sparse associative memory", 1 / (2 * math.log(2)), "proven", "Willshaw 1969; Palm 1980: 1/(2 ln 2), asymptotic"),
    Mark("linear unit, random labels", 2.0, "proven", "Cover 1965: 2d labels in d weights, half of the time"),
    Mark("language models, random sequences", 3.6, "measured", "Morris et al. 2025, arXiv 2505.24832"),
)


def relation_bits(entropy: float, edges: int, pairs: int, precision: float, recall: float) -> float:
    """Bits of a graph that a channel with this precision and recall holds, at least; 0 where its errors cost more.

    entropy: of the family, in bits    edges: m'    pairs: ordered pairs that are decided

    With TP = recall m', FP = TP (1/precision - 1) and FN = m' - TP, the corrections are a set of FP among the pairs that it
    claims and of FN among the others: log2 C(TP + FP, FP) + log2 C(pairs - TP - FP, FN).
    """
    require(0 <= precision <= 1 and 0 <= recall <= 1, "0 <= precision, recall <= 1", (precision, recall), "They are shares.")
    hits = round(recall * edges)
    claimed = hits if precision == 0 else round(hits / precision)
    if hits == 0 or claimed > pairs:
        return 0.0
    false, missed = claimed - hits, edges - hits
    if not false and not missed:
        return entropy
    return max(0.0, entropy - log2_choose(claimed, false) - log2_choose(pairs - claimed, missed))


def label_bits(examples: int, classes: int, accuracy: float) -> float:
    """Bits of T labels out of C that are held when so many are right, at least; 0 where the errors cost more.

    The corrections are a set of wrong examples and for each of them one of the C - 1 other labels.
    """
    require(0 <= accuracy <= 1, "0 <= accuracy <= 1", accuracy, "It is a share.")
    require(examples >= 1 and classes >= 2, "examples >= 1, classes >= 2", (examples, classes), "Label something.")
    wrong = examples - round(accuracy * examples)
    fixes = log2_choose(examples, wrong) + wrong * math.log2(classes - 1) if wrong else 0.0
    return max(0.0, examples * math.log2(classes) - fixes)


def recited_bits(sequences: float, tokens: int, bits_per_token: float) -> float:
    """Bits of sequences recited in full: so many tokens each after the prompt. What else a model knows is not counted."""
    require(sequences >= 0 and tokens >= 0 and bits_per_token >= 0, "counts >= 0", (sequences, tokens), "Count again.")
    return sequences * tokens * bits_per_token


# ------------------------------------------------------------------------------------------------------------- bounds


def graph_bound(parameters: int, items: int, heads: int) -> float:
    """Bits per parameter that a channel can store, whatever the precision of its weights (Warren 1968; proven).

    (1/P) p log2(8 e N / p) for p = P + 1 variables (the threshold is one) and N = h m^2 polynomials, see `warren_budget`;
    where p > N the signs themselves are the limit, N / P.
    """
    require(parameters >= 1 and items >= 1 and heads >= 1, "sizes >= 1", (parameters, items, heads), "Count again.")
    polynomials, variables = heads * items**2, parameters + 1
    if variables > polynomials:
        return polynomials / parameters
    return variables * math.log2(8 * math.e * polynomials / variables) / parameters


def label_bound(examples: int, dimension: int) -> float:
    """Bits per weight of a linear unit that separates T points: log2 of the dichotomies that it has, over d (Cover; proven)."""
    require(examples >= 1 and dimension >= 1, "sizes >= 1", (examples, dimension), "Count again.")
    if examples <= dimension:
        return examples / dimension
    ways, term = 1, 1
    for k in range(1, dimension):
        term = term * (examples - k) // k
        ways += term
    return (1 + math.log2(ways)) / dimension


def weight_bits(arithmetic: str) -> float:
    """Bits per parameter that weights of this arithmetic hold, whatever is computed with them: their own (proven)."""
    require(arithmetic in WEIGHT_BITS, f"arithmetic in {'|'.join(WEIGHT_BITS)}", arithmetic, "Choose one.")
    return WEIGHT_BITS[arithmetic]
