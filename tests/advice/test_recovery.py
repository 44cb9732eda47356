"""F1, precision and chance against slow counting; shuffles that keep degrees."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.files.refusals import refused

from keyspan.advice.recovery import SHUFFLES, Recoverer, Relation, relation_of
from keyspan.seeds import Stream

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def relation(edges: list[tuple[int, int]]) -> Relation:
    return relation_of(edges, [(f"w{s}", f"w{t}") for s, t in edges])


def best_f1_slowly(scores: Float, edges: Int, loops: bool) -> float:
    """Every candidate's score tried as the threshold."""
    m = len(scores)
    wanted = {(int(s), int(t)) for s, t in edges}
    pairs = [(i, j) for i in range(m) for j in range(m) if loops or i != j]
    best = 0.0
    for cut in sorted({scores[pair] for pair in pairs}):
        claimed = [pair for pair in pairs if scores[pair] >= cut]
        right = sum(pair in wanted for pair in claimed)
        best = max(best, 2 * right / (len(claimed) + len(wanted)))
    return best


def precision_slowly(scores: Float, edges: Int, loops: bool) -> float:
    """Of the k best of a row, k being its targets; what is tied with worse ones does not count."""
    m, shares = len(scores), []
    for source in sorted({int(s) for s, _ in edges}):
        targets = {int(t) for s, t in edges if s == source}
        row = [j for j in range(m) if loops or j != source]
        hits = sum(sum(scores[source, j] >= scores[source, t] for j in row) <= len(targets) for t in targets)
        shares.append(hits / len(targets))
    return float(np.mean(shares))


@settings(max_examples=40)
@given(
    edges=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=12, unique=True),
    seed=st.integers(0, 10**6),
    coarse=st.booleans(),
)
def test_counts_are_right(edges: list[tuple[int, int]], seed: int, coarse: bool) -> None:
    made = relation(edges)
    m = len(made.tokens)
    scores = Stream("scores", f"{seed}").normal((m, m))
    scores = np.round(scores) if coarse else scores  # with ties
    found = Recoverer(made).look(scores)
    assert found.f1 == pytest.approx(best_f1_slowly(scores, made.edges, made.loops))
    assert found.precision == pytest.approx(precision_slowly(scores, made.edges, made.loops))
    candidates = np.ones((m, m), dtype=bool) if made.loops else ~np.eye(m, dtype=bool)
    claimed = candidates & (scores >= found.threshold)
    assert claimed.sum() == found.true_positives + found.false_positives
    assert claimed[tuple(made.edges.T)].sum() == found.true_positives


def test_a_constant_score_recovers_nothing_but_all() -> None:
    made = relation([(i, (i + 1) % 10) for i in range(10)])
    found = Recoverer(made).look(np.zeros((10, 10)))
    assert found.f1 == pytest.approx(2 * 10 / (90 + 10)) and found.precision == 0
    assert (found.f1_low, found.f1_high) == (found.f1, found.f1)


def test_what_is_there_is_found_and_what_is_not_is_not() -> None:
    edges = [(i, (7 * i + 3) % 40) for i in range(40)]
    made = relation(edges)
    known = np.zeros((40, 40))
    known[tuple(made.edges.T)] = 1.0
    noise = Stream("noise", "x").normal((40, 40))
    looker = Recoverer(made)
    plain, exact, half = (looker.look(s) for s in (noise, known, known + 0.4 * noise))
    assert exact.f1 == exact.precision == 1.0 and exact.true_positives == 40 and exact.false_positives == 0
    assert plain.f1 <= plain.f1_high and plain.f1_low <= plain.f1_chance <= plain.f1_high < 0.3
    assert plain.f1 < looker.bar() < half.f1 < 1


def test_a_liking_for_certain_tokens_is_chance() -> None:
    """Scores that know who asks and who is asked, but not who asks whom, are no better than dealt pairs."""
    edges = [(i, 20 + i) for i in range(20)]
    made = relation(edges)
    kinds = np.zeros((40, 40))
    kinds[:20, 20:] = 5.0
    found = Recoverer(made).look(kinds + 0.1 * Stream("kinds", "x").normal((40, 40)))
    assert found.f1_low <= found.f1 <= found.f1_high and found.f1 > 2 / 40


def test_the_bar_is_exceeded_by_chance_once_in_twenty() -> None:
    """Eight heads of noise, again and again: any of them is above the bar in about 5% of the times."""
    made = relation([(i, (5 * i + 2) % 24) for i in range(24)])
    above = 0
    for trial in range(30):
        looker, draw = Recoverer(made, seed=trial), Stream("trial", f"{trial}")
        best = max(looker.look(draw.normal((24, 24))).f1 for _ in range(8))
        above += best > looker.bar()
    assert above <= 6  # of 30; more would come up once in a thousand times


def test_shuffles_keep_how_often_each_asks_and_is_asked() -> None:
    edges = [(0, 5), (0, 6), (1, 6), (2, 6), (3, 7), (4, 5)]
    looker = Recoverer(relation(edges))
    assert len(looker.shuffled) == SHUFFLES
    for pairs in looker.shuffled:
        assert len(np.unique(pairs, axis=0)) == len(pairs) == len(edges)
        assert np.bincount(pairs[:, 0]).tolist() == [2, 1, 1, 1, 1] and np.bincount(pairs[:, 1])[5:].tolist() == [2, 3, 1]
    assert len({pairs.tobytes() for pairs in looker.shuffled}) > 10
    again, other = Recoverer(relation(edges)), Recoverer(relation(edges), seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(looker.shuffled, again.shuffled, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(looker.shuffled, other.shuffled, strict=True))


def test_shuffles_of_a_ring_have_no_self_pairs() -> None:
    ring = relation([(i, (i + 1) % 5) for i in range(5)])
    for pairs in Recoverer(ring).shuffled:
        assert (pairs[:, 0] != pairs[:, 1]).all() and sorted(pairs[:, 1].tolist()) == [0, 1, 2, 3, 4]


def test_shuffles_that_cannot_be_had_are_cut_short() -> None:
    """One source that is related to all others, and they to it: the pairs can be dealt in one way only."""
    star = relation([(0, i) for i in range(1, 4)] + [(i, 0) for i in range(1, 4)])
    for pairs in Recoverer(star).shuffled:
        assert len(np.unique(pairs, axis=0)) == len(pairs) <= 6 and (pairs[:, 0] != pairs[:, 1]).all()


def test_tokens_become_items_in_order() -> None:
    made = relation_of([(90, 7), (7, 90), (90, 30)], [("a", "b"), ("b", "a"), ("a", "c")], left_out=2)
    assert made.tokens == (7, 30, 90) and made.words == ("b", "c", "a") and made.left_out == 2
    assert made.edges.tolist() == [[0, 2], [2, 0], [2, 1]] and not made.loops


def test_too_many_tokens_are_refused() -> None:
    refused(lambda: Recoverer(relation([(i, i + 1) for i in range(5000)])), "at most 4096", "5001")
