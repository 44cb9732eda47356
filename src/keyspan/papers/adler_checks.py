"""Claims of Adler's that theory alone decides: numbers computed from closed forms and from small explicit cases.

Nothing here is trained and nothing is read from a store. Whatever is drawn comes from a stream of its own, so every check
gives the same number everywhere. Each takes well under a second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from keyspan.papers.figures import Check
from keyspan.problems import NoContents, embeddings, graphs
from keyspan.problems.embeddings import Embeddings
from keyspan.problems.incoherence import leak_ratio
from keyspan.seeds import Stream
from keyspan.theory import softmax
from keyspan.theory.bounds import description_budget, law
from keyspan.theory.codes import random_signs
from keyspan.theory.constructions import ROUNDING, codes_coherence, common_direction
from keyspan.theory.matchings import equitable_matchings, max_degree
from keyspan.theory.outer_predictor import outer_prediction

Float = NDArray[np.float64]
MARGIN = 0.1  # relative margin of the lower bound, as `design` lists it
WIDTHS = (256, 1024)  # d of the block constructions; m = 8 d
F1 = 0.99
BLOCK = 16  # edges of a head in `block_overhead`


def necessary_growth() -> float:
    """The lower bound at a constant margin, over the law: its value at 2^20 items over that at 2^6 (d cancels)."""

    def over(items: int) -> float:
        return description_budget(math.lgamma(items + 1) / math.log(2), 64, MARGIN) / law(items, 64)

    return over(2**20) / over(2**6)


def sufficient_growth() -> float:
    """D_K of outer-product blocks for a predicted F1 of 0.99, over the law, at m = 8 d: d = 1024 over d = 256.

    Blocks of B = d/2 edges, which is where the prediction is near its best; the smallest d_k is found by bisection.
    """
    first, last = (_block_budget(8 * d, d) / law(8 * d, d) for d in WIDTHS)
    return last / first


def _block_budget(items: int, d_model: int) -> int:
    heads = 2 * items // d_model
    low, high = 0, d_model
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if outer_prediction(items, d_model, heads, middle).f1 >= F1 else (middle, high)
    return heads * high


def one_block_f1() -> float:
    """The predicted F1 of one outer-product head that holds all m = 8 d edges, as wide as it can be; the largest over d."""
    return max(outer_prediction(8 * d, d, 1, d).f1 for d in WIDTHS)


def one_hot_width() -> float:
    """One-hot items, a permutation, one head of random sign words: the smallest exact d_k over log2 m, the largest over m."""
    return max(_one_hot_width(items) / math.log2(items) for items in (16, 64, 256, 1024))


def _one_hot_width(items: int) -> int:
    """Independent rows are given any word, so edges score 1 and other pairs at most the words' largest inner product."""
    d_key = (items - 1).bit_length()  # fewer words than items cannot all differ
    while codes_coherence(random_signs(Stream("claims", "words", items), items, d_key)) > 1 - ROUNDING:
        d_key += 1
    return d_key


def block_overhead() -> float:
    """Heads of B edges that graphs need, over m' / B: the largest over families of mild skew, 256 items, B = 16.

    The matchings are made, and refused here unless each of them is one (no source and no target twice).
    """
    families = (
        graphs.regular(degree=2),
        graphs.out_regular(degree=2),
        graphs.erdos_renyi(edges=512),
        graphs.bipartite(edges=512),
        graphs.power_law(edges=512, exponent=0.5),
    )
    return max(_overhead(graphs.make(graphs.resolve(g, 256), 256, "claims", NoContents())) for g in families)


def _overhead(edges: NDArray[np.int64]) -> float:
    heads = max(max_degree(edges, 256), -(-len(edges) // BLOCK))
    colour = equitable_matchings(edges, 256, heads)
    for end in edges.T:
        _, times = np.unique(np.stack([colour, end]), axis=1, return_counts=True)
        if times.max() > 1:
            return math.inf
    return heads * BLOCK / len(edges)


def leak_spread() -> float:
    """Mean leak of sign and sparse rows over that of gaussian ones, a common direction taken out: the largest, (512, 64)."""
    families = [Embeddings(name="sign"), *(Embeddings(name="sparse", ones=ones) for ones in (4, 16))]
    return max(_leak(family) for family in families)


def _leak(family: Embeddings) -> float:
    rows = embeddings.make(family, 512, 64, "claims", NoContents())
    common = common_direction(rows)
    return leak_ratio(rows if common is None else rows - np.outer(rows @ common, common))


def context_errors() -> float:
    """Contexts (of 400) in which one threshold says otherwise than lemma 4.1 has it.

    Half of the score matrices separate edges from the rest on all items: there no context may show an error. In the other
    half one pair is on the wrong side: there the context of that pair's two items must show one.
    """
    stream, wrong = Stream("claims", "contexts"), 0
    for case in range(400):
        uniform = stream.uniform(400)
        edge = np.zeros((12, 12), dtype=bool)
        edge[np.arange(12), stream.permutation(12)] = True
        scores = np.where(edge, 0.1, -0.1) + np.where(edge, 1, -1) * uniform[:144].reshape(12, 12)
        i, j = divmod(int(stream.integers(144, 1)[0]), 12)
        separated = case % 2 == 0
        if not separated:
            scores[i, j] = -scores[i, j]
        chosen = uniform[150:162] < 0.5
        chosen[[i, j]] |= not separated
        right = bool(((scores > 0) == edge)[np.ix_(chosen, chosen)].all())
        wrong += right != separated
    return float(wrong)


def softmax_shortfall() -> float:
    """What is missing of what was promised, over eps, at the inverse temperatures of the guarantees; the largest.

    The worst scores that a half-gap allows: every edge at tau + gamma, every other pair at tau - gamma. One softmax over
    the largest scores; and a softmax in every head with a null key at tau, the heads' values summed.
    """
    worst = 0.0
    for keys in (2, 16, 256, 4096):
        for half_gap in (0.5, 0.05, 0.005):
            for eps in (0.1, 1e-3):
                worst = max(worst, _aggregate(keys, half_gap, eps) / eps, _routed(keys, half_gap, eps, heads=8) / eps)
    return worst


def _aggregate(keys: int, half_gap: float, eps: float) -> float:
    beta = softmax.aggregate_beta(2 * half_gap, keys, eps)
    return 1.0 - float(_softmax(beta * np.where(np.arange(keys) == 0, half_gap, -half_gap))[0])


def _routed(keys: int, half_gap: float, eps: float, heads: int) -> float:
    """Values are one-hot, the null key's is 0; the last key is the null key. The error is in the 1-norm, over 2."""
    beta = softmax.routed_beta(half_gap, keys, eps, heads)
    idle = np.append(np.full(keys, -half_gap), 0.0)
    owner = idle.copy()
    owner[0] = half_gap
    summed = (_softmax(beta * owner) + (heads - 1) * _softmax(beta * idle))[:keys]
    summed[0] -= 1.0
    return float(np.abs(summed).sum()) / 2


def _softmax(logits: Float) -> Float:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


CHECKS: Mapping[str, Check] = {
    f.__name__: f
    for f in (
        necessary_growth,
        sufficient_growth,
        one_block_f1,
        one_hot_width,
        block_overhead,
        leak_spread,
        context_errors,
        softmax_shortfall,
    )
}
