"""Does a layer score related tokens above others? Per head and for the layer's maximum, against shuffled pairs.

Given pairs i -> j of tokens, the items are all tokens that occur, and every ordered pair of different items is a candidate
(self-pairs count only where the file has some). Token vectors go straight to the layer: the direct path, without context.

    F1              2 TP / (TP + FP + m') at the best threshold over all candidates
    precision       of the candidates of a source with the highest scores, as many as it has targets, the share that are its
                    targets; averaged over sources (precision at k, with k the number of targets)

Chance: targets are dealt anew among the pairs, which keeps how often each item asks and is asked, and with it any liking of
a head for certain tokens. The interval holds 95% of what shuffles give. Since many heads are looked at, a head is only
`found` where its F1 is above what the best of all heads and layers reaches in 95% of the shuffles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.seeds import Stream

Float = NDArray[np.float64]
Int = NDArray[np.int64]
SHUFFLES = 99
ROUNDS = 30  # of putting right what came out twice
LARGEST = 4096  # items; every pair of them is scored


@dataclass(frozen=True, eq=False)
class Relation:
    """Pairs of tokens as edges on items. tokens: (items,), ids    edges: (m', 2), indices of items    words: as the file has
    them, by item    left_out: pairs of the file that are not in it
    """

    tokens: tuple[int, ...]
    words: tuple[str, ...]
    edges: Int
    left_out: int = 0

    @property
    def loops(self) -> bool:
        """Whether some item is related to itself, so that self-pairs are candidates."""
        return bool((self.edges[:, 0] == self.edges[:, 1]).any())


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """How well one score matrix recovers the pairs. low, high: 95% of what shuffled pairs give    chance: their mean"""

    f1: float
    f1_chance: float
    f1_low: float
    f1_high: float
    precision: float
    precision_chance: float
    precision_low: float
    precision_high: float
    threshold: float
    true_positives: int
    false_positives: int

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON."""
        return dict(self.__dict__)


@dataclass
class Recoverer:
    """Looks at one score matrix after another with the same shuffles, and keeps the best that each shuffle reached."""

    relation: Relation
    seed: int = 0
    best: Float = field(init=False)

    def __post_init__(self) -> None:
        self.items = len(self.relation.tokens)
        require(self.items <= LARGEST, f"at most {LARGEST} different tokens in `--relations`", self.items, "Give fewer pairs.")
        stream = Stream(f"audit-{self.seed}", "shuffled pairs")
        self.shuffled = [dealt(self.relation, stream) for _ in range(SHUFFLES)]
        self.best = np.zeros(SHUFFLES)
        self.candidates = np.ones((self.items, self.items), dtype=bool)
        if not self.relation.loops:
            np.fill_diagonal(self.candidates, False)

    def look(self, scores: Float, *, counted: bool = True) -> Recovery:
        """How well these scores recover the pairs. scores: (items, items)    counted: whether `found` has to beat it, too"""
        ranks, rows = self._ranks(scores)
        edges = self.relation.edges
        f1, cut = _best_f1(ranks[edges[:, 0], edges[:, 1]])
        precision = _precision(rows, edges)
        null = np.array([_best_f1(ranks[pairs[:, 0], pairs[:, 1]])[0] for pairs in self.shuffled])
        precise = np.array([_precision(rows, pairs) for pairs in self.shuffled])
        if counted:
            self.best = np.maximum(self.best, null)
        right = int((ranks[edges[:, 0], edges[:, 1]] <= cut).sum())
        claimed = np.sort(scores[self.candidates])[::-1]
        return Recovery(
            f1=f1,
            f1_chance=float(null.mean()),
            **dict(zip(("f1_low", "f1_high"), _middle(null), strict=True)),
            precision=precision,
            precision_chance=float(precise.mean()),
            **dict(zip(("precision_low", "precision_high"), _middle(precise), strict=True)),
            threshold=float(claimed[cut - 1]),
            true_positives=right,
            false_positives=cut - right,
        )

    def _ranks(self, scores: Float) -> tuple[Int, Int]:
        """How many candidates score at least as much: of all, and in the same row. Equal scores share the worst rank."""
        kept = np.where(self.candidates, scores, -np.inf)
        return _ranked(kept.reshape(1, -1)).reshape(kept.shape), _ranked(kept)

    def bar(self) -> float:
        """The F1 that the best of all that was looked at stays below in 95% of the shuffles."""
        return float(np.quantile(self.best, 0.95))


def dealt(relation: Relation, stream: Stream) -> Int:
    """The pairs with their targets dealt anew; who asks and who is asked, and how often, stays.

    What comes out twice, or as a self-pair where these are no candidates, changes its target with another pair's, again and
    again; where that does not end (a source that is related to all others), what is left of it is left out.
    """
    sources, targets = relation.edges[:, 0], relation.edges[stream.permutation(len(relation.edges)), 1]
    for _ in range(ROUNDS):
        wrong = _wrong(sources, targets, relation.loops)
        if not wrong.any():
            break
        for here, there in zip(np.flatnonzero(wrong), stream.integers(len(targets), int(wrong.sum())), strict=True):
            targets[here], targets[there] = targets[there], targets[here]
    kept = ~_wrong(sources, targets, relation.loops)
    return np.stack([sources[kept], targets[kept]], axis=1)


def _wrong(sources: Int, targets: Int, loops: bool) -> NDArray[np.bool_]:
    """Pairs that are there already, or relate an item to itself where that is no candidate."""
    _, first = np.unique(np.stack([sources, targets], axis=1), axis=0, return_index=True)
    wrong = np.ones(len(sources), dtype=bool)
    wrong[first] = False
    return wrong if loops else wrong | (sources == targets)


def _ranked(scores: Float) -> Int:
    """How many of a row score at least as much as each. scores: (rows, n)    returns: (rows, n)"""
    order = np.argsort(-scores, axis=1)
    falling = np.take_along_axis(scores, order, axis=1)
    rows, n = scores.shape
    last = np.broadcast_to(np.arange(1, n + 1), (rows, n)).copy()  # the rank of the last of equal scores holds for all
    last[:, :-1][falling[:, 1:] == falling[:, :-1]] = n + 1
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    out = np.empty((rows, n), dtype=np.int64)
    np.put_along_axis(out, order, last, axis=1)
    return out


def _best_f1(ranks: Int) -> tuple[float, int]:
    """The best F1 and how many candidates it claims: the threshold lies at the t-th best edge. ranks: (m',), of the edges"""
    if not len(ranks):
        return 0.0, 1
    ordered = np.sort(ranks)
    caught = np.searchsorted(ordered, ordered, side="right")  # edges of equal rank come together
    f1 = 2 * caught / (ordered + len(ordered))
    best = int(np.argmax(f1))
    return float(f1[best]), int(ordered[best])


def _precision(rows: Int, edges: Int) -> float:
    """Mean over sources of the share of its targets among its first k, k being their number. rows: ranks in rows"""
    if not len(edges):
        return 0.0
    sources, place, count = np.unique(edges[:, 0], return_inverse=True, return_counts=True)
    hit = rows[edges[:, 0], edges[:, 1]] <= count[place]
    return float((np.bincount(place, hit, len(sources)) / count).mean())


def _middle(values: Float) -> tuple[float, float]:
    """The interval that holds 95% of them."""
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def relation_of(tokens: Sequence[tuple[int, int]], words: Sequence[tuple[str, str]], left_out: int = 0) -> Relation:
    """Items and edges from pairs of token ids."""
    names = {token: word for pair, said in zip(tokens, words, strict=True) for token, word in zip(pair, said, strict=True)}
    items = sorted(names)
    place = {token: i for i, token in enumerate(items)}
    edges = np.array([(place[s], place[t]) for s, t in tokens], dtype=np.int64).reshape(-1, 2)
    return Relation(tuple(items), tuple(names[token] for token in items), np.unique(edges, axis=0), left_out)
