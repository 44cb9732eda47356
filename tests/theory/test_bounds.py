"""Bounds against the numbers computed by other programs, exact cases, and what can be proven of them."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.files.refusals import refused

from keyspan.problems import NoContents, embeddings, graphs
from keyspan.seeds import Stream
from keyspan.theory import bounds

items_ = st.integers(2, 3000)
sizes = st.integers(1, 600)
heads_ = st.integers(1, 300)


def permutation_bits(items: int) -> float:
    return graphs.entropy(graphs.permutation(), items).value


@st.composite
def loads(draw: st.DrawFn, densest: int = 1) -> tuple[int, int]:
    """(edges, items) with edges < items^2, or up to items^2 / densest."""
    items = draw(items_)
    return draw(st.integers(1, max(1, min(items**2 - 1, items**2 // densest)))), items


# --- the printed numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "items, d_model, printed",
    [(512, 64, 49.9), (512, 32, 99.8), (1024, 128, 55.5), (1024, 64, 110.9), (256, 256, 5.5), (128, 16, 38.8)],
)
def test_law_as_printed(items: int, d_model: int, printed: float) -> None:
    assert round(bounds.law(items, d_model), 1) == printed


@pytest.mark.parametrize("items, heads, printed", [(512, 4, 4860), (1024, 2, 9721), (512, 1, 3808)])
def test_gardner_load_as_printed(items: int, heads: int, printed: int) -> None:
    assert round(bounds.gardner_load(items, items, heads)) == printed


@pytest.mark.parametrize(
    "d_model, printed, digits",
    [
        (12, 36.3, 1), (16, 56.9, 1), (24, 108.4, 1), (32, 172.8, 1),
        (16, 57, 0), (32, 173, 0), (64, 544, 0), (128, 1767, 0), (256, 5884, 0), (512, 19998, 0), (768, 41241, 0),
    ],
)  # fmt: skip
def test_where_one_head_stops_being_enough(d_model: int, printed: float, digits: int) -> None:
    below, above = math.floor(printed) - 1, math.ceil(printed) + 1
    assert bounds.heads_needed(below, below, d_model) == 1
    assert bounds.heads_needed(above, above, d_model) == 2
    low, high = (bounds.gardner_load(m, m, 1) for m in (below, above))
    crossing = below + (above - below) * (d_model**2 - low) / (high - low)  # m_c, where P(m, 1) = d^2
    assert round(crossing, digits) == printed


@pytest.mark.parametrize(
    "items, d_model, printed",
    [
        (512, 32, 5), (1024, 64, 3), (2048, 64, 7), (4096, 64, 15), (512, 16, 25),
        (4096, 128, 4), (16384, 256, 4), (50257, 768, 2), (512, 64, 1), (1024, 128, 1),
    ],
)  # fmt: skip
def test_heads_needed_as_printed(items: int, d_model: int, printed: int) -> None:
    assert bounds.heads_needed(items, items, d_model) == printed


@pytest.mark.parametrize("items, d_model, heads, printed", [(1024, 64, 4, 81), (1024, 64, 8, 77), (50257, 768, 4, 457)])
def test_gardner_budget_as_printed(items: int, d_model: int, heads: int, printed: int) -> None:
    # The last is printed as 460@h4: rounded up to whole heads, like those below.
    budget = bounds.gardner_budget(items, items, d_model, heads)
    assert budget is not None and round(budget) == printed


@pytest.mark.parametrize(
    "items, d_model, budget, heads",
    [
        (512, 16, 192, 64), (2048, 64, 192, 16), (4096, 64, 448, 64),
        (4096, 128, 192, 8), (16384, 256, 448, 16), (50257, 768, 460, 4),
    ],
)  # fmt: skip
def test_best_key_budgets_as_printed(items: int, d_model: int, budget: int, heads: int) -> None:
    def whole(h: int) -> float:
        needed = bounds.gardner_budget(items, items, d_model, h)
        return math.inf if needed is None else h * math.ceil(needed / h)

    assert min((whole(2**k), 2**k) for k in range(9)) == (budget, heads)


@pytest.mark.parametrize(
    "items, d_model, heads, budgets",
    [
        (256, 64, (1, 2, 4, 8), (10, 12, 12, 16)), (512, 64, (1, 2, 4, 8), (34, 28, 28, 32)),
        (1024, 128, (1, 2, 4), (28, 28, 32)), (512, 32, (8,), (80,)), (1024, 64, (4, 8), (80, 72)),
    ],
)  # fmt: skip
def test_gardner_budget_is_near_what_the_solver_reached(
    items: int, d_model: int, heads: tuple[int, ...], budgets: tuple[int, ...]
) -> None:
    for h, measured in zip(heads, budgets, strict=True):
        predicted = bounds.gardner_budget(items, items, d_model, h)
        assert predicted is not None
        assert predicted == pytest.approx(measured, rel=0.14, abs=h / 2)  # exact thresholds, in whole heads


@pytest.mark.parametrize("items, d_model, heads", [(512, 32, 1), (512, 32, 2), (512, 32, 4), (1024, 64, 2), (128, 16, 1)])
def test_too_few_heads_have_no_budget(items: int, d_model: int, heads: int) -> None:
    assert bounds.gardner_budget(items, items, d_model, heads) is None


@pytest.mark.parametrize(
    "items, d_model, heads, trained, one",
    [
        (512, 64, 2, 1.95, 2.10), (512, 32, 16, 3.21, 4.20), (1024, 128, 2, 2.09, 2.24),
        (1024, 64, 8, 3.68, 4.48), (256, 256, 1, 0.24, 0.24),
    ],
)  # fmt: skip
def test_warren_budget_as_printed(items: int, d_model: int, heads: int, trained: float, one: float) -> None:
    bits = permutation_bits(items)
    assert round(bounds.warren_budget(bits, items, d_model, heads), 2) == trained
    assert round(bounds.warren_budget(bits, items, d_model, 1), 2) == one


@pytest.mark.parametrize(
    "items, d_model, at_tenth, at_hundredth",
    [(512, 64, 5.6, 3.5), (512, 32, 11.2, 7.0), (1024, 128, 6.4, 4.0), (1024, 64, 12.7, 7.9), (256, 256, 0.6, 0.4)],
)
def test_description_budget_as_printed(items: int, d_model: int, at_tenth: float, at_hundredth: float) -> None:
    bits = permutation_bits(items)
    assert round(bounds.description_budget(bits, d_model, 0.1), 1) == at_tenth
    assert round(bounds.description_budget(bits, d_model, 0.01), 1) == at_hundredth


@pytest.mark.parametrize("margin, printed", [(1, 2.54), (0.1, 5.4), (0.01, 8.65), (0.001, 12.0)])
def test_bits_per_parameter_at_a_margin_as_printed(margin: float, printed: float) -> None:
    assert 1 / bounds.description_budget(1, 1, margin) / 2 == pytest.approx(printed, abs=0.05)


# --- exact cases ---------------------------------------------------------------------------------------------------


@given(st.integers(1, 2**11), sizes)
def test_half_of_all_pairs_is_covers_capacity(half: int, d_model: int) -> None:
    items = 2 * half
    edges = items**2 // 2  # as many edges as non-edges: a perceptron of n weights holds 2n of them
    assert bounds.gardner_load(edges, items, 1) == pytest.approx(edges, rel=1e-13)
    fits = edges <= d_model**2
    assert (bounds.heads_needed(edges, items, d_model) == 1) == fits


@given(loads())
def test_edges_and_non_edges_of_one_head_trade_places(load: tuple[int, int]) -> None:
    edges, items = load
    mirrored = bounds.gardner_load(items**2 - edges, items, 1)
    assert bounds.gardner_load(edges, items, 1) == pytest.approx(mirrored, rel=1e-12)


@given(loads(), heads_, st.floats(-8, 8))
def test_gardner_load_is_a_minimum(load: tuple[int, int], heads: int, b: float) -> None:
    edges, items = load

    def up(b: float) -> float:
        density = math.exp(-b * b / 2) / math.sqrt(2 * math.pi)
        return (1 + b * b) * math.erfc(-b / math.sqrt(2)) / 2 + b * density

    there = edges * up(b) + heads * (items**2 - edges) * up(-b)
    assert bounds.gardner_load(edges, items, heads) <= there * (1 + 1e-10)


def test_gardner_load_at_the_rim() -> None:
    # 50 digits with mpmath
    assert bounds.gardner_load(1, 2**24, 2**24) == pytest.approx(87.52788664224637, rel=1e-11)
    assert bounds.gardner_load(2**48 - 1, 2**24, 2**24) == pytest.approx(414702998.606166, rel=1e-11)


@given(loads(), sizes, heads_)
def test_gardner_budget_solves_its_equation(load: tuple[int, int], d_model: int, heads: int) -> None:
    edges, items = load
    budget = bounds.gardner_budget(edges, items, d_model, heads)
    load_per_head = bounds.gardner_load(edges, items, heads) / heads
    assert (budget is None) == (load_per_head / d_model**2 > 1)
    if budget is not None:
        d_key = budget / heads
        assert 0 < d_key <= 0.72 * d_model * (1 + 1e-12)
        rho = 0.72 + 0.28 * d_key / d_model
        assert 2 * d_model * d_key - d_key**2 == pytest.approx(rho * load_per_head, rel=1e-9)


@given(st.data(), items_, sizes, heads_)
def test_warren_budget_solves_its_equation(data: st.DataObject, items: int, d_model: int, heads: int) -> None:
    bits = data.draw(st.floats(0, items**2))
    p = 2 * d_model * bounds.warren_budget(bits, items, d_model, heads) + 1
    polynomials = heads * items**2
    assert 1 <= p <= polynomials
    held = p * math.log2(8 * math.e * polynomials / p)
    assert held == pytest.approx(bits, rel=1e-9) or (p == 1 and held >= bits)


# --- what can be proven of them ------------------------------------------------------------------------------------


@given(loads(densest=2), heads_, sizes)
def test_more_edges_need_more(load: tuple[int, int], heads: int, d_model: int) -> None:
    edges, items = load  # up to half of all pairs: beyond it the non-edges are the rarer, and a graph gets easier
    assume(edges + 1 <= items**2 // 2)
    assert bounds.gardner_load(edges + 1, items, heads) > bounds.gardner_load(edges, items, heads)
    assert bounds.law(edges + 1, d_model) > bounds.law(edges, d_model)
    assert bounds.trivial_budget(edges + 1) > bounds.trivial_budget(edges)


@given(loads(), heads_)
def test_every_head_must_refuse_every_non_edge(load: tuple[int, int], heads: int) -> None:
    edges, items = load
    one, more = (bounds.gardner_load(edges, items, h) for h in (heads, heads + 1))
    assert one < more and more / (heads + 1) < one / heads


@given(loads(), st.integers(1, 60))
def test_fewest_heads(load: tuple[int, int], d_model: int) -> None:
    edges, items = load
    heads = bounds.heads_needed(edges, items, d_model)
    if heads is not None:
        assert 1 <= heads <= items
        assert bounds.gardner_budget(edges, items, d_model, heads) is not None
        assert heads == 1 or bounds.gardner_budget(edges, items, d_model, heads - 1) is None
    else:
        assert bounds.gardner_budget(edges, items, d_model, items) is None


@given(loads(), sizes, heads_)
def test_wider_rows_need_less(load: tuple[int, int], d_model: int, heads: int) -> None:
    edges, items = load
    wide, narrow = (bounds.gardner_budget(edges, items, d, heads) for d in (d_model + 1, d_model))
    if narrow is not None:
        assert wide is not None and wide < narrow
    bits = graphs.log2_choose(items**2, edges)
    assert bounds.warren_budget(bits, items, d_model + 1, heads) <= bounds.warren_budget(bits, items, d_model, heads)
    assert bounds.law(edges, d_model + 1) <= bounds.law(edges, d_model)


@given(st.data(), items_, sizes, heads_)
def test_more_bits_need_more(data: st.DataObject, items: int, d_model: int, heads: int) -> None:
    few, many = sorted(data.draw(st.tuples(*2 * [st.floats(0, items**2)])))
    warren = [bounds.warren_budget(bits, items, d_model, heads) for bits in (few, many)]
    assert warren[0] <= warren[1]
    assert bounds.warren_budget(many, items, d_model, heads + 1) <= warren[1]
    assert bounds.description_budget(few, d_model, 0.1) <= bounds.description_budget(many, d_model, 0.1)
    assert bounds.description_budget(many, d_model, 0.01) <= bounds.description_budget(many, d_model, 0.1)


@given(loads(), sizes, heads_)
def test_a_proven_lower_bound_stays_below(load: tuple[int, int], d_model: int, heads: int) -> None:
    edges, items = load
    warren = bounds.warren_budget(graphs.log2_choose(items**2, edges), items, d_model, heads)
    assert warren <= bounds.trivial_budget(edges)  # which is proven to suffice
    gardner = bounds.gardner_budget(edges, items, d_model, heads)
    assert gardner is None or warren <= gardner


@pytest.mark.parametrize("items, d_model", [(128, 2), (1000, 2), (2**20, 4)])
def test_the_perceptron_argument_is_silent_in_few_dimensions(items: int, d_model: int) -> None:
    # One head per edge holds any graph there, so this "no number of heads" is a limit of the argument, not a fact.
    assert bounds.heads_needed(items, items, d_model) is None


def test_one_head_per_edge_holds_a_graph() -> None:
    items, d_model = 37, 5
    rows = embeddings.make(embeddings.gaussian(), items, d_model, "p-one-head-per-edge", NoContents())
    edges = graphs.make(graphs.permutation(), items, "p-one-head-per-edge", NoContents())

    def gap(rows: NDArray[np.float64]) -> float:
        scores = np.max([np.outer(rows @ rows[i], rows @ rows[j]) for i, j in edges], axis=0)
        edge = np.zeros(scores.shape, dtype=bool)
        edge[edges[:, 0], edges[:, 1]] = True
        assert len(edges) == bounds.trivial_budget(items)
        return float(scores[edge].min() - scores[~edge].max())

    assert gap(rows) >= 1 - embeddings.coherence(rows) - 1e-12 > 0
    (i, j), others = edges[0], np.setdiff1d(np.arange(items), edges[0])
    rows[others[0]], rows[others[1]] = -rows[i], -rows[j]  # opposite rows: distinct, and not to be told apart this way
    assert gap(rows) == pytest.approx(0, abs=1e-12)


@given(loads(), heads_, sizes, st.integers(1, 5))
def test_rows_that_ask_may_be_more_than_the_items(load: tuple[int, int], heads: int, d_model: int, types: int) -> None:
    """Typed edges: as many sources as types times items. With one type nothing changes; with more there is more to refuse."""
    edges, items = load
    bits = graphs.log2_choose(items**2, edges)
    plain = bounds.gardner_load(edges, items, heads)
    typed = bounds.gardner_load(edges, items, heads, types * items)
    assert typed == plain if types == 1 else typed > plain
    assert typed == pytest.approx(bounds.gardner_load(edges, types * items, heads, items), rel=1e-12)
    warren = [bounds.warren_budget(bits, items, d_model, heads, sources) for sources in (None, items, types * items)]
    assert warren[0] == warren[1] >= warren[2]
    if types > 1:
        refused(lambda: bounds.gardner_load(2 * items**2, items, heads, 2 * items), f"{2 * items**2}")


# --- hubs ----------------------------------------------------------------------------------------------------------


def cells(forms: int, variables: int) -> int:
    """Cells that hyperplanes through the origin, in general position, cut space into (Schlaefli)."""
    return 2 * sum(math.comb(forms - 1, k) for k in range(min(variables, forms)))


@given(st.integers(2, 80), st.integers(1, 30), st.data())
def test_hub_heads_by_counting(items: int, d_model: int, data: st.DataObject) -> None:
    degree = data.draw(st.integers(1, items))
    exact = next(h for h in range(1, items + 1) if cells(items * h, h * d_model + 1) >= math.comb(items, degree))
    claimed = bounds.hub_heads(degree, items, d_model)
    assert claimed <= exact  # the closed form counts no fewer cells than there are, so it claims no more heads
    assert exact - claimed <= 1 + exact // 8


def test_hubs_need_heads() -> None:
    assert bounds.hub_heads(96, 192, 48) == 2  # one head of full rank was seen to fail there, as did four; eight did not
    assert [bounds.hub_heads(k, 4096, 64) for k in (1, 64, 2048)] == [1, 1, 9]
    assert bounds.hub_heads(2048, 4096, 4096) == 1
    assert bounds.hub_heads(5, 5, 1) == 1


def test_a_plane_cuts_points_into_as_many_sets_as_are_counted() -> None:
    """One head, d = 2: the sets {j : u . x_j > tau} of 7 points, by trying a million planes; no more than cells say."""
    x = Stream("hubs", "points").normal((7, 2))
    planes = Stream("hubs", "planes").normal((200_000, 3))
    seen = np.unique(planes[:, :2] @ x.T > planes[:, 2:], axis=0)
    assert len(seen) == cells(7, 3) == 44


# --- the lemma behind the covering bound ----------------------------------------------------------------------------


@given(st.floats(1e-3, 1.0), st.floats(0.1, 10.0), st.integers(0, 10**6))
def test_weights_that_move_little_move_scores_by_less_than_the_margin(g: float, radius: float, seed: int) -> None:
    """|W|_op <= R, |x| <= 1, a move of eta = sqrt(R^2 + gamma) - R: no score moves by gamma, and some nearly do."""
    stream = Stream(f"{seed}", "lemma")
    d_model, d_key, gamma = 7, 3, g * radius**2
    eta = math.sqrt(radius**2 + gamma) - radius

    def of_norm(size: float) -> NDArray[np.float64]:
        w = stream.normal((d_model, d_key))
        return np.asarray(w * (size / np.linalg.norm(w, 2)))

    x, y = (v / np.linalg.norm(v) for v in stream.normal((2, d_model)))
    query, key, move_query, move_key = of_norm(radius), of_norm(radius), of_norm(eta), of_norm(eta)
    moved = (x @ (query + move_query)) @ (y @ (key + move_key)) - (x @ query) @ (y @ key)
    assert abs(moved) <= gamma * (1 + 1e-12)
    u, v = np.eye(d_model)[:1], np.eye(d_key)[:1]  # aligned, the bound is attained
    worst = ((radius + eta) * u.T @ v) @ ((radius + eta) * u.T @ v).T - (radius * u.T @ v) @ (radius * u.T @ v).T
    assert worst[0, 0] == pytest.approx(gamma, rel=1e-9)


# --- the best number of heads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "items, d_model, at_most", [(512, 16, 192), (2048, 64, 192), (4096, 128, 192), (50257, 768, 460), (64, 64, 2)]
)
def test_the_best_number_of_heads_beats_powers_of_two(items: int, d_model: int, at_most: int) -> None:
    best = bounds.gardner_best(items, items, d_model)
    assert best is not None and best[0] * best[1] <= at_most
    budgets = [(h, bounds.gardner_budget(items, items, d_model, h)) for h in range(1, 129)]
    assert best[0] * best[1] <= min(h * math.ceil(b / h) for h, b in budgets if b is not None) * 1.02
    assert bounds.gardner_best(items, items, 2) is None


# --- one list of all ------------------------------------------------------------------------------------------------


def test_every_bound_says_how_sure_it_is() -> None:
    listed = bounds.key_budget_bounds(edges=512, bits=permutation_bits(512), items=512, d_model=32, heads=16)
    assert {b.name: b.status for b in listed} == {
        "warren": "proven",
        "covering": "proven",
        "gardner": "conjectured",
        "fewest heads": "conjectured",
        "law": "measured",
        "one head per edge": "proven",
    }
    values = [b.value for b in listed if b.value is not None]
    assert [round(v, 1) for v in values] == [3.2, 11.2, 76.9, 5.0, 99.8, 512.0]
    assert all(b.source and b.note and b.validity for b in listed)
    assert {b.name for b in listed if b.about == "heads"} == {"fewest heads"}
    assert {name: dict(b.constants) for b in listed for name in [b.name] if b.constants} == {
        "covering": {"relative_margin": 0.1},
        "gardner": {"rho_thin": 0.72, "rho_wide": 0.28},
        "law": {"least": 0.57, "most": 2.10},
    }
    few = bounds.key_budget_bounds(edges=512, bits=permutation_bits(512), items=512, d_model=32, heads=4, degree=96)
    assert [b.name for b in few if b.value is None] == ["gardner"]
    assert few[-1].name == "hub" and few[-1].value == bounds.hub_heads(96, 512, 32) and few[-1].about == "heads"


def test_bad_sizes_are_refused() -> None:
    for call, value in [
        (lambda: bounds.law(0, 5), "0"),
        (lambda: bounds.law(3, -1), "-1"),
        (lambda: bounds.gardner_load(25, 5, 1), "25"),
        (lambda: bounds.gardner_load(5, 5, 0), "0"),
        (lambda: bounds.heads_needed(5, 5, 0), "0"),
        (lambda: bounds.gardner_budget(5, 5, 0, 1), "0"),
        (lambda: bounds.gardner_budget(5, 5, 3, 0), "0"),
        (lambda: bounds.warren_budget(25.5, 5, 3, 1), "25.5"),
        (lambda: bounds.warren_budget(math.nan, 5, 3, 1), "nan"),
        (lambda: bounds.description_budget(-1.0, 3, 0.1), "-1.0"),
        (lambda: bounds.description_budget(9.0, 3, 0.0), "0.0"),
        (lambda: bounds.trivial_budget(0), "0"),
        (lambda: bounds.hub_heads(6, 5, 3), "6"),
        (lambda: bounds.hub_heads(0, 5, 3), "0"),
        (lambda: bounds.gardner_best(5, 5, 0), "0"),
    ]:
        refused(call, value)
