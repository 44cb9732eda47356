"""Matchings: known colourings, hubs, determinism; sizes and properness on any graph are in the property tests."""

import numpy as np
import pytest
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.seeds import Stream
from keyspan.theory.matchings import equitable_matchings, max_degree


def is_proper(edges: NDArray[np.int64], colour: NDArray[np.int64]) -> bool:
    classes = [edges[colour == c] for c in np.unique(colour)]
    return all(len(np.unique(e[:, side])) == len(e) for e in classes for side in (0, 1))


def test_max_degree_is_of_either_side() -> None:
    star = np.array([[0, j] for j in range(5)])
    assert max_degree(star, 7) == 5 and max_degree(star[:, ::-1], 7) == 5
    assert max_degree(np.array([[3, 3]]), 7) == 1


def test_a_complete_graph_needs_every_colour_once_per_item() -> None:
    """K_{7,7} in 7 matchings: greedy alone gets stuck, so alternating paths are needed; all classes are perfect."""
    edges = np.argwhere(np.ones((7, 7)))
    for draw in range(5):
        colour = equitable_matchings(edges, 7, 7, Stream("k77", "order", draw).permutation(49))
        assert is_proper(edges, colour)
        assert (np.bincount(colour) == 7).all()


def test_a_star_has_one_edge_a_matching() -> None:
    star = np.array([[0, j] for j in range(11)])
    assert sorted(equitable_matchings(star, 11, 11)) == list(range(11))
    with pytest.raises(BadInput, match=r"heads >= 11.*got 10"):
        equitable_matchings(star, 11, 10)


def test_a_permutation_is_dealt_out_in_order() -> None:
    edges = np.stack([np.arange(7), (np.arange(7) + 2) % 7], axis=1)
    order = np.array([6, 5, 4, 3, 2, 1, 0])
    assert equitable_matchings(edges, 7, 3, order).tolist() == [0, 2, 1, 0, 2, 1, 0]


def test_balancing_moves_whole_paths() -> None:
    """A path a-b-a-b-a among colours dealt unevenly: 13 edges on few items, two colours more than needed."""
    edges = np.array([[i, j] for i in range(5) for j in range(5) if (i + j) % 2 == 0])
    for colours in (3, 4, 5, 13):
        colour = equitable_matchings(edges, 5, colours, np.arange(len(edges))[::-1].copy())
        sizes = np.bincount(colour, minlength=colours)
        assert is_proper(edges, colour) and sizes.max() - sizes.min() <= 1
