"""Graph families: what they promise of every graph, and that every graph of a family can come."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.files.contents import Contents
from keyspan.lab import recipes
from keyspan.problems import NoContents, graphs
from keyspan.problems.graphs import Edges, Graph
from keyspan.problems.relations import Relations
from keyspan.runners import inputs
from keyspan.specs import Channel, Run, Stopping


def draw(graph: Graph, items: int, seed: int = 0) -> Edges:
    return graphs.make(graphs.resolve(graph, items), items, f"p{seed}", NoContents())


def name_of(graph: Graph) -> str:
    return f"{graph.name}-{graph.degree or graph.edges or ''}-{'loops' if graph.loops else 'no loops'}"


FAMILIES = [
    graphs.permutation(),
    graphs.permutation(loops=False),
    graphs.functional(),
    graphs.functional(loops=False),
    graphs.regular(3),
    graphs.regular(3, loops=False),
    graphs.out_regular(5),
    graphs.out_regular(5, loops=False),
    graphs.erdos_renyi(),
    graphs.erdos_renyi(41, loops=False),
    graphs.power_law(),
    graphs.power_law(67, exponent=1.5, loops=False),
    graphs.bipartite(),
    graphs.bipartite(53),
]


# ------------------------------------------------------------------------------------------- every family


@pytest.mark.parametrize("items", [17, 23])
@pytest.mark.parametrize("graph", FAMILIES, ids=name_of)
def test_edges_are_distinct_sorted_pairs_of_items(graph: Graph, items: int) -> None:
    full = graphs.resolve(graph, items)
    edges = draw(graph, items)
    assert edges.dtype == np.int64 and edges.shape == (graphs.edge_count(full, items), 2)
    pairs = [(int(i), int(j)) for i, j in edges]
    assert pairs == sorted(set(pairs))
    assert edges.min() >= 0 and edges.max() < items
    if not graph.loops:
        assert all(i != j for i, j in pairs)


@pytest.mark.parametrize("graph", FAMILIES, ids=name_of)
def test_a_graph_is_a_function_of_its_id(graph: Graph) -> None:
    assert draw(graph, 17, seed=3).tolist() == draw(graph, 17, seed=3).tolist()
    assert draw(graph, 17, seed=3).tolist() != draw(graph, 17, seed=4).tolist()


@pytest.mark.parametrize("graph", [g for g in FAMILIES if g.loops and g.name != "bipartite"], ids=name_of)
def test_loops_come_where_they_are_allowed(graph: Graph) -> None:
    assert any((edges[:, 0] == edges[:, 1]).any() for edges in (draw(graph, 17, seed) for seed in range(30)))


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("degree", [1, 2, 3, 8])
def test_regular_graphs_have_all_degrees_alike(degree: int, loops: bool) -> None:
    for seed in range(5):
        out, into = graphs.degrees(draw(graphs.regular(degree, loops=loops), 17, seed), 17)
        assert out.tolist() == into.tolist() == [degree] * 17


@pytest.mark.parametrize("items, degree", [(2, 1), (3, 1), (4, 2), (5, 2), (6, 3), (7, 3), (8, 4)])
def test_the_densest_regular_graphs_of_few_items_are_found(items: int, degree: int) -> None:
    for seed in range(40):
        for loops in (True, False):
            if items == 2 and not loops:
                continue
            out, into = graphs.degrees(draw(graphs.regular(degree, loops=loops), items, seed), items)
            assert out.tolist() == into.tolist() == [degree] * items


def test_permutations_and_functions_have_one_target_a_source() -> None:
    for make in (graphs.permutation, graphs.functional):
        out, _ = graphs.degrees(draw(make(), 29), 29)
        assert out.tolist() == [1] * 29
    assert sorted(draw(graphs.permutation(), 29)[:, 1].tolist()) == list(range(29))
    assert len(set(draw(graphs.functional(), 29)[:, 1].tolist())) < 29


def test_out_regular_graphs_have_their_out_degree_and_no_fixed_in_degree() -> None:
    out, into = graphs.degrees(draw(graphs.out_regular(7), 31), 31)
    assert out.tolist() == [7] * 31
    assert len(set(into.tolist())) > 3 and into.sum() == 7 * 31


@pytest.mark.parametrize("items", [4, 7, 12, 13])
def test_bipartite_graphs_go_from_the_first_half_to_the_second(items: int) -> None:
    half = items // 2
    for seed in range(20):
        edges = draw(graphs.bipartite(edges=3), items, seed)
        assert (edges[:, 0] < half).all() and (edges[:, 1] >= half).all()


def test_degrees_count_both_ends() -> None:
    out, into = graphs.degrees(np.array([[0, 1], [0, 2], [2, 2]]), 5)
    assert out.tolist() == [2, 0, 1, 0, 0] and into.tolist() == [0, 1, 2, 0, 0]


# ---------------------------------------------------------------------------------------------- power law


@pytest.mark.parametrize("edges, exponent", [(31, 1.0), (101, 0.5), (211, 2.0), (7, 1.0), (97, 0.0), (300, 10.0)])
@pytest.mark.parametrize("loops", [True, False])
def test_power_law_degrees_fall_and_add_up(edges: int, exponent: float, loops: bool) -> None:
    items = 31
    graph = graphs.resolve(graphs.power_law(edges, exponent=exponent, loops=loops), items)
    ranked = graphs.power_law_degrees(graph, items)
    cap = items if loops else items - 1
    assert ranked.sum() == edges and ranked.max() <= cap and ranked.min() >= 0
    assert (np.diff(ranked) <= 0).all()
    quota = edges * np.arange(1, items + 1) ** -exponent / (np.arange(1, items + 1) ** -exponent).sum()
    if quota.max() <= cap:
        assert (np.abs(ranked - quota) < 1).all()
    out, _ = graphs.degrees(draw(graph, items), items)
    assert sorted(out.tolist(), reverse=True) == ranked.tolist()


def test_a_larger_exponent_is_more_skewed() -> None:
    tops = [graphs.power_law_degrees(graphs.power_law(97, exponent=e), 97).max() for e in (0.0, 0.5, 1.0, 2.0)]
    assert tops == sorted(set(tops)) and tops[0] == 1


def test_the_heavy_sources_of_a_power_law_are_anywhere() -> None:
    tops = {int(graphs.degrees(draw(graphs.power_law(37), 13, s), 13)[0].argmax()) for s in range(100)}
    assert tops == set(range(13))


# --------------------------------------------------------------------------- uniform, and entropy by counting


def all_graphs(items: int) -> NDArray[np.bool_]:
    """Every directed graph on a few items. returns: (2^(items^2), items, items)"""
    pairs = items * items
    codes = np.arange(2**pairs)
    return ((codes[:, None] >> np.arange(pairs)) & 1).astype(bool).reshape(-1, items, items)


def in_family(graph: Graph, items: int) -> NDArray[np.bool_]:
    """The graphs of a family, by its definition alone. returns: (graphs, items, items)"""
    every = all_graphs(items)
    rows, columns = every.sum(2), every.sum(1)
    ok = np.ones(len(every), dtype=bool)
    if not graph.loops:
        ok &= ~every[:, range(items), range(items)].any(1)
    degree = graph.degree or 1
    if graph.name in ("permutation", "regular", "functional", "out-regular"):
        ok &= (rows == degree).all(1)
    if graph.name in ("permutation", "regular"):
        ok &= (columns == degree).all(1)
    if graph.name in ("erdos-renyi", "bipartite"):
        ok &= rows.sum(1) == graph.edges
    if graph.name == "bipartite":
        ok &= ~every[:, items // 2 :].any((1, 2)) & ~every[:, :, : items // 2].any((1, 2))
    if graph.name == "power-law":
        ranked = np.sort(graphs.power_law_degrees(graph, items))
        ok &= (np.sort(rows, axis=1) == ranked).all(1)
    return every[ok]


TINY = [
    (graphs.permutation(), 4),
    (graphs.permutation(loops=False), 4),
    (graphs.functional(), 3),
    (graphs.functional(loops=False), 4),
    (graphs.out_regular(2), 3),
    (graphs.out_regular(2, loops=False), 4),
    (graphs.regular(1), 4),
    (graphs.regular(1, loops=False), 4),
    (graphs.erdos_renyi(2), 3),
    (graphs.erdos_renyi(2, loops=False), 3),
    (graphs.erdos_renyi(4, loops=False), 3),
    (graphs.erdos_renyi(7), 3),
    (graphs.power_law(3), 3),
    (graphs.power_law(3, loops=False), 3),
    (graphs.power_law(5, exponent=2.0), 3),
    (graphs.bipartite(2), 4),
    (graphs.bipartite(1), 3),
]


@pytest.mark.parametrize("graph, items", TINY, ids=[f"{name_of(g)}-{m}" for g, m in TINY])
def test_entropy_is_the_logarithm_of_the_count(graph: Graph, items: int) -> None:
    full = graphs.resolve(graph, items)
    bits = graphs.entropy(full, items)
    assert bits.exact
    assert bits.value == pytest.approx(math.log2(len(in_family(full, items))), abs=1e-9)


@pytest.mark.parametrize("graph, items", TINY, ids=[f"{name_of(g)}-{m}" for g, m in TINY])
def test_every_graph_of_a_family_is_as_likely(graph: Graph, items: int) -> None:
    expected = {tuple(map(tuple, np.argwhere(g).tolist())) for g in in_family(graphs.resolve(graph, items), items)}
    each = 25 if len(expected) < 40 else 12
    seen = Counter(tuple(map(tuple, draw(graph, items, seed).tolist())) for seed in range(each * len(expected)))
    assert set(seen) == expected
    chi2 = sum((n - each) ** 2 / each for n in seen.values())
    freedom = len(expected) - 1
    assert chi2 <= freedom + 5 * math.sqrt(2 * freedom) + 5


@pytest.mark.parametrize("loops, count, draws", [(True, 90, 900), (False, 9, 150)])
def test_every_2_regular_graph_of_four_items_can_come(loops: bool, count: int, draws: int) -> None:
    graph = graphs.regular(2, loops=loops)
    expected = {tuple(map(tuple, np.argwhere(g).tolist())) for g in in_family(graph, 4)}
    assert len(expected) == count
    assert {tuple(map(tuple, draw(graph, 4, seed).tolist())) for seed in range(draws)} == expected


@pytest.mark.parametrize("items, count", [(2, 1), (3, 6), (4, 90), (5, 2040), (6, 67950), (7, 3110940)])
def test_2_regular_graphs_are_counted_exactly(items: int, count: int) -> None:
    """OEIS A001499: 0/1 matrices with every row and column sum 2."""
    bits = graphs.entropy(graphs.regular(2), items)
    assert bits.exact and bits.value == pytest.approx(math.log2(count), abs=1e-9)


@pytest.mark.parametrize("items", [20, 21, 25])
def test_derangements_are_counted_on_both_sides_of_the_shortcut(items: int) -> None:
    count = 1
    for n in range(1, items + 1):
        count = n * count + (-1) ** n
    assert graphs.entropy(graphs.permutation(loops=False), items).value == pytest.approx(math.log2(count), abs=1e-9)


def test_asymptotic_counts_say_so_and_come_close() -> None:
    for graph in (graphs.regular(3), graphs.regular(3, loops=False), graphs.regular(2, loops=False)):
        assert not graphs.entropy(graph, 97).exact
    assert graphs.entropy(graphs.regular(2), 97).exact
    cubic = graphs.entropy(graphs.regular(3), 6).value  # A001501: 297200 matrices of 6 x 6
    assert cubic == pytest.approx(math.log2(297200), rel=0.05)


# ------------------------------------------------------------------------- counts known beforehand


@pytest.mark.parametrize(
    "items, permutation, random",
    [(256, 1684, 2410), (512, 3875, 5339), (1024, 8769, 11709), (4096, 43250, 55052)],
)
def test_bits_of_permutations_and_random_graphs(items: int, permutation: int, random: int) -> None:
    assert round(graphs.entropy(graphs.permutation(), items).value) == permutation
    sparse = graphs.resolve(graphs.erdos_renyi(loops=False), items)
    bits = graphs.entropy(sparse, items).value
    assert round(bits) == random
    exact = math.comb(items * (items - 1), items)
    assert bits == pytest.approx(math.log2(exact >> 64) + 64, rel=1e-9)


def test_bits_of_regular_graphs() -> None:
    assert round(graphs.entropy(graphs.out_regular(4, loops=False), 1024).value) == 36251
    assert round(graphs.entropy(graphs.regular(4), 1024).value) == 33854


# ----------------------------------------------------------------------------------------- defaults and ids


def run_of(graph: Graph, items: int = 7) -> Run:
    problem = Relations(items=items, d_model=3, graph=graph)
    channel = Channel(heads=1, d_key=1)
    return Run(problem=problem, replicate=0, instrument=channel, recipe=recipes.gradient(), stopping=Stopping())


@pytest.mark.parametrize(
    "short, full",
    [
        (Graph(name="erdos-renyi"), graphs.erdos_renyi(7)),
        (Graph(name="bipartite"), graphs.bipartite(7)),
        (Graph(name="power-law"), graphs.power_law(7, exponent=1.0)),
        (Graph(name="power-law", edges=7), graphs.power_law(7)),
        (Graph(), graphs.permutation(loops=True)),
    ],
)
def test_defaults_are_resolved_before_hashing(short: Graph, full: Graph) -> None:
    assert run_of(short).problem_id == run_of(full).problem_id
    assert run_of(short).run_id == run_of(full).run_id


@pytest.mark.parametrize(
    "graph, other",
    [
        (graphs.erdos_renyi(), graphs.erdos_renyi(8)),
        (graphs.erdos_renyi(), graphs.erdos_renyi(loops=False)),
        (graphs.erdos_renyi(), graphs.bipartite()),
        (graphs.power_law(), graphs.power_law(exponent=1.5)),
        (graphs.regular(2), graphs.regular(3)),
        (graphs.regular(2), graphs.out_regular(2)),
        (graphs.permutation(), graphs.regular(1)),
    ],
)
def test_another_graph_is_another_problem(graph: Graph, other: Graph) -> None:
    assert run_of(graph).problem_id != run_of(other).problem_id


def test_resolving_twice_changes_nothing() -> None:
    for graph in FAMILIES:
        once = graphs.resolve(graph, 17)
        assert graphs.resolve(once, 17) == once


# ----------------------------------------------------------------------------------------------- from a file


def test_a_file_gives_its_own_edges() -> None:
    contents = Contents()
    edges = np.array([[3, 1], [0, 2], [3, 3]])
    graph = Graph(name="file", edges=3, content=contents.put(edges))
    made = graphs.make(graphs.resolve(graph, 5), 5, "p", contents)
    assert made.tolist() == [[0, 2], [3, 1], [3, 3]]
    assert graphs.entropy(graph, 5).value == pytest.approx(math.log2(math.comb(25, 3)))


@pytest.mark.parametrize(
    "change, items, mentions",
    [
        ({"edges": 2}, 5, ("edges", "2 and 3")),
        ({}, 3, ("item ids", "--items 4")),
        ({"content": "0" * 64}, 5, ("content of file", "0" * 64)),
    ],
)
def test_a_file_that_does_not_fit_is_refused(change: dict[str, Any], items: int, mentions: tuple[str, ...]) -> None:
    contents = Contents()
    given: dict[str, Any] = {"edges": 3, "content": contents.put(np.array([[0, 2], [3, 1], [3, 3]]))} | change
    graph = Graph(name="file", **given)
    with pytest.raises(BadInput) as refusal:
        graphs.make(graph, items, "p", contents)
    assert all(m in str(refusal.value) for m in mentions), refusal.value


def test_a_file_problem_without_contents_says_what_is_missing() -> None:
    graph = Graph(name="file", edges=3, content="0" * 64)
    with pytest.raises(BadInput, match="contents"):
        draw(graph, 5)


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "fields, mentions",
    [
        ({"name": "lattice"}, ("permutation|functional", "'lattice'")),
        ({"name": "erdos-renyi", "edges": 0}, ("`edges >= 1`", "0")),
        ({"name": "erdos-renyi", "edges": -3}, ("`edges >= 1`", "-3")),
        ({"name": "erdos-renyi", "edges": 2.5}, ("graph.edges", "2.5")),
        ({"name": "erdos-renyi", "edges": True}, ("graph.edges", "True")),
        ({"name": "permutation", "edges": 5}, ("permutation", "no `--edges`")),
        ({"name": "permutation", "degree": 2}, ("--degree", "permutation")),
        ({"name": "regular"}, ("--degree", "None")),
        ({"name": "out-regular", "degree": 0}, ("`degree >= 1`", "0")),
        ({"name": "erdos-renyi", "exponent": 1.0}, ("exponent",)),
        ({"name": "power-law", "exponent": -0.5}, ("`0 <= exponent <= 10`", "-0.5")),
        ({"name": "power-law", "exponent": 10.5}, ("`0 <= exponent <= 10`", "10.5")),
        ({"name": "power-law", "exponent": math.nan}, ("finite", "nan")),
        ({"name": "file", "edges": 3}, ("content",)),
        ({"name": "permutation", "content": "0" * 64}, ("content",)),
    ],
)
def test_graphs_that_make_no_sense_are_refused(fields: dict[str, Any], mentions: tuple[str, ...]) -> None:
    with pytest.raises(BadInput) as refusal:
        Graph(**fields)
    assert all(m in str(refusal.value) for m in mentions), refusal.value


@pytest.mark.parametrize(
    "graph, items, mentions",
    [
        (graphs.permutation(), 1, ("items >= 2", "1")),
        (graphs.permutation(loops=False), 2, ("non-edge",)),
        (graphs.regular(4), 7, ("--degree <= 3", "4")),
        (graphs.out_regular(7), 7, ("--degree <= 6", "7")),
        (graphs.out_regular(6, loops=False), 7, ("--degree <= 5", "6")),
        (graphs.erdos_renyi(49), 7, ("--edges < 49", "49")),
        (graphs.erdos_renyi(42, loops=False), 7, ("--edges < 42", "42")),
        (graphs.bipartite(12), 7, ("--edges < 12", "12")),
        (graphs.power_law(49), 7, ("--edges < 49", "49")),
    ],
)
def test_graphs_that_do_not_fit_their_items_are_refused(graph: Graph, items: int, mentions: tuple[str, ...]) -> None:
    with pytest.raises(BadInput) as refusal:
        graphs.resolve(graph, items)
    assert all(m in str(refusal.value) for m in mentions), refusal.value


@pytest.mark.parametrize(
    "graph, items",
    [
        (graphs.regular(3), 7),
        (graphs.out_regular(6), 7),
        (graphs.out_regular(5, loops=False), 7),
        (graphs.erdos_renyi(48), 7),
        (graphs.erdos_renyi(41, loops=False), 7),
        (graphs.bipartite(11), 7),
        (graphs.power_law(48), 7),
        (graphs.power_law(41, exponent=10.0, loops=False), 7),
    ],
)
def test_the_fullest_graph_that_fits_is_made(graph: Graph, items: int) -> None:
    full = graphs.resolve(graph, items)
    assert len(np.unique(draw(graph, items), axis=0)) == graphs.edge_count(full, items)


def test_loops_enter_no_identity_where_they_mean_nothing() -> None:
    """No edge of these is drawn by it, so one graph must not have two ids; of the others it is part of what is asked."""
    for name, given in (("bipartite", {"edges": 5}), ("file", {"edges": 3, "content": "0" * 64})):
        twice = [Relations(items=7, d_model=5, graph=Graph(name=name, loops=loops, **given)) for loops in (True, False)]
        assert twice[0] == twice[1] and twice[0].to_json() == twice[1].to_json()
        assert graphs.entropy(twice[0].graph, 7) == graphs.entropy(twice[1].graph, 7)
    assert Graph(name="permutation", loops=False) != Graph(name="permutation")


def test_a_file_with_loops_is_refused_where_none_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "loops.csv"
    path.write_text("0,1\n3,3\n")
    for items in (None, 5):
        with pytest.raises(BadInput, match="3,3"):
            inputs.graph_from(str(path), Contents(), items=items, loops=False)
        assert inputs.graph_from(str(path), Contents(), items=items).edges == 2
