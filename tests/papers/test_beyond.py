"""Beyond the paper: the sweeps are what they say, and every statistic is as defined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.papers.made import cell

from keyspan.evidence.cells import Cell
from keyspan.evidence.store import open_store
from keyspan.papers import adler, beyond, claims, stages
from keyspan.papers import beyond_intervals as intervals
from keyspan.papers import beyond_statistics as stats
from keyspan.papers.compared import Compared, Comparison, Curve, Line, Variant, questions
from keyspan.papers.figures import TIERS, Figure, choose
from keyspan.papers.reproduce import plan
from keyspan.problems import graphs
from keyspan.problems.relations import Relations
from keyspan.problems.shown import Batches, Contexts
from keyspan.problems.typed import TypedChannel
from keyspan.runners.estimate import estimate
from keyspan.runners.questions import relations_question
from keyspan.seeds import Stream
from keyspan.theory.bounds import law

FIGURES = beyond.figures()
BASE = {
    "graphs": "permutation",
    "embeddings": "gaussian",
    "contexts": beyond.WHOLE,
    "continual": beyond.AT_ONCE,
    "typed": beyond.ONE_TYPE,
}


def line(label: str, cell: Cell, bits: float = 100.0) -> Line:
    """A line whose problem has the cell's size and edges."""
    graph = graphs.permutation() if cell.edges == cell.items else graphs.erdos_renyi(cell.edges)
    return Line(Variant(label=label, problem=Relations(items=cell.items, d_model=cell.d_model, graph=graph)), cell, bits)


def curve(label: str, scores: dict[tuple[int, int], dict[str, tuple[float, ...]]], items: int = 64, d_model: int = 32) -> Curve:
    return Curve(Variant(label=label, problem=Relations(items=items, d_model=d_model)), scores)


def compared(figure: str, lines: Sequence[Line] = (), curves: Sequence[Curve] = (), seeds: int = 3) -> Compared:
    """A figure that came to these lines and curves."""
    variants = dict.fromkeys([*(found.variant for found in lines), *(found.variant for found in curves)])
    comparison = Comparison(variants=tuple(variants), seeds=seeds, base=BASE[figure])
    made = Figure(figure, f"Title of {figure}", {"short": comparison}, beyond.GROUP)
    ids = frozenset({"r1"})
    return Compared(made, "short", comparison, tuple(lines), tuple(curves), frozenset(), ids, frozenset())


# --- sweeps --------------------------------------------------------------------------------------------------------


def test_the_group_is_asked_for_by_its_name() -> None:
    every = adler.figures()
    assert [f.name for f in choose("adler", every, "adler:beyond", "smoke")] == list(FIGURES)
    assert [f.name for f in choose("adler", every, "adler:graphs", "smoke")] == ["graphs"]
    assert not {f.name for f in choose("adler", every, "adler", "smoke")} & set(FIGURES)
    assert {f.group for f in every.values()} == {"", beyond.GROUP, stages.GROUP}


@pytest.mark.parametrize("name", FIGURES)
def test_every_tier_has_its_base_at_every_size(name: str) -> None:
    for tier in TIERS:
        comparison = FIGURES[name].tiers[tier]
        assert comparison.base == BASE[name] and comparison.seeds == beyond.SEEDS[tier]
        sizes = {v.size for v in comparison.variants}
        assert {v.size for v in comparison.variants if v.label == comparison.base} == sizes
        asked = questions(comparison)
        assert len({str(q.to_json()) for q in asked}) == len(asked)
        assert [q.problem for q in asked] == [v.problem for v in comparison.variants]


@pytest.mark.parametrize("tier, seconds", [("smoke", 60), ("short", 1200)])
def test_a_tier_keeps_to_its_time(tier: str, seconds: float) -> None:
    """On two cores, as `--dry-run` says."""
    with open_store("sqlite:///nowhere/none.db", read_only=True, missing_ok=True) as store:
        expected = estimate(plan("adler:beyond", tier).questions, store, jobs=2)
    assert 0 < expected.seconds < seconds


def test_what_differs_is_what_the_label_says() -> None:
    short = {v.label: v for v in FIGURES["graphs"].tiers["short"].variants if v.size == (128, 32)}
    assert short["power law x4"].problem.edges == short["4-regular"].problem.edges == 512
    assert {v.problem.edges for v in short.values()} == {128, 256, 512}
    rows = {v.label: v.problem.embeddings for v in FIGURES["embeddings"].tiers["short"].variants}
    assert rows["sparse 8"].ones == 8 and (rows["clustered 0.75"].clusters, rows["clustered 0.75"].correlation) == (16, 0.75)


def test_contexts_and_batches_are_the_recipe_s() -> None:
    sizes = dict(zip(FIGURES["contexts"].tiers["short"].variants, questions(FIGURES["contexts"].tiers["short"]), strict=True))
    found = {v.label: q.recipe for v, q in sizes.items() if v.size == (128, 32)}
    assert found["1/4"].show == Contexts(items=31) and found["1/4"].steps == 2000
    assert found["1/4, as many pairs"].steps == 32000 and found[beyond.WHOLE].show is None
    asked = questions(FIGURES["continual"].tiers["short"])
    shows = {q.recipe.show for q in asked}  # type: ignore[attr-defined]
    assert shows == {None, *(Batches(count=n, replay=r) for n in (4, 8) for r in (False, True))}
    assert all(q.recipe.steps == 4000 for q in asked)  # type: ignore[attr-defined]
    for q in asked:  # what is forgotten is not searched for
        assert not q.search or q.recipe.show is None or q.recipe.show.replay  # type: ignore[attr-defined]


# --- graphs --------------------------------------------------------------------------------------------------------

SIZES = [(64, 32), (128, 64), (128, 32)]


def graph_lines(budget: Any) -> list[Line]:
    """Three families at three numbers of edges; budget: of (m', d, family)"""
    found = []
    for m, d in SIZES:
        for k in (1, 2, 4):
            for kind in ("permutation" if k == 1 else f"{k}-regular", f"Erdos-Renyi x{k}", f"power law x{k}"):
                one = replace(cell(m, d, 10), edges=k * m, graph=kind, evidence=f"{m} {d} {k} {kind}")
                found.append(line(kind, replace(one, key_budget=round(budget(k * m, d, kind)), low=None, high=None)))
    return found


def test_where_the_law_is_the_truth_it_counts_best() -> None:
    found = compared("graphs", graph_lines(lambda edges, d, kind: 1000 * law(edges, d)))
    assert stats.graphs_r2(found) == pytest.approx(1) and stats.edges_exponent(found) == pytest.approx(1, abs=1e-3)
    gain = stats.graphs_gain(found)
    assert gain is not None and gain > 100 and stats.family_spread(found) == 1
    assert {j.holds for j in claims.judge(found, adler.paper())} == {True}


def test_where_edges_alone_count_the_law_loses() -> None:
    found = compared("graphs", graph_lines(lambda edges, d, kind: 1000 * edges / d))
    gain, slope = stats.graphs_gain(found), stats.edges_exponent(found)
    assert gain is not None and gain < 0.1 and slope is not None and slope < 0.9
    assert {j.claim.id: j.holds for j in claims.judge(found, adler.paper())}["adler-beyond-graphs-count"] is False


def test_a_family_apart_is_seen() -> None:
    found = compared("graphs", graph_lines(lambda edges, d, kind: 1000 * law(edges, d) * (2 if "power" in kind else 1)))
    assert stats.family_spread(found) == pytest.approx(2, rel=1e-3)
    assert {j.claim.id: j.holds for j in claims.judge(found, adler.paper())}["adler-beyond-graphs-families"] is False


def test_a_permutation_s_multiple_of_the_law() -> None:
    """Graphs with as many edges as items, either way; those with more have no permutation beside them."""
    budgets = {"permutation": 20, "functional": 15, "power law": 22}
    made = [line(k, cell(128, 32, b)) for k, b in budgets.items()]
    more = line("4-regular", replace(cell(128, 32, 999), edges=512))
    found = compared("graphs", [*made, more])
    assert stats.families_spread(found) == pytest.approx(20 / 15)
    wide = compared("graphs", [made[0], line("functional", cell(128, 32, 15, low=12, high=24))])
    assert intervals.INTERVALS["families_spread"](wide) == pytest.approx((1.0, 20 / 12))


def test_few_graphs_are_no_fit() -> None:
    few = compared("graphs", graph_lines(lambda edges, d, kind: law(edges, d))[:5])
    assert stats.count_fits(few) == {} and stats.graphs_r2(few) is stats.graphs_gain(few) is None


def test_bits_count_where_they_are_the_truth() -> None:
    made = graph_lines(lambda edges, d, kind: 10)
    lines = [replace(x, bits=50.0 + 7 * n, cell=replace(x.cell, key_budget=round((50.0 + 7 * n) / x.cell.d_model * 500)))
             for n, x in enumerate(made)]  # fmt: skip
    fits = stats.count_fits(compared("graphs", lines))
    best = min(stats.COUNTS, key=lambda name: fits[name].mape_held_out or 1.0)
    assert best == "entropy" and fits["entropy"].r2 == pytest.approx(1, abs=1e-4)


# --- ratios --------------------------------------------------------------------------------------------------------


def test_ratios_to_gaussian_rows() -> None:
    budgets = {"gaussian": (10, 20), "sign": (9, 22), "sparse 2": (30, 60), "sparse 4": (12, 20), "clustered 0.75": (14, 40)}
    lines = [line(k, cell(128, d, b)) for k, two in budgets.items() for d, b in zip((64, 32), two, strict=True)]
    found = compared("embeddings", lines)
    assert stats.sign_ratio(found) == pytest.approx(10 / 9) and stats.sparse_ratio(found) == pytest.approx(1.2)
    assert stats.clustered_ratio(found) == pytest.approx(1.4) and found.median_ratio("sparse 2") == 3
    assert {j.holds for j in claims.judge(found, adler.paper())} == {True}
    lost = compared("embeddings", [*lines[:-1], line("clustered 0.75", cell(128, 32, None))])
    assert stats.clustered_ratio(lost) is None and lost.ratios("clustered 0.75") == [1.4, None]


def test_ratios_of_contexts_and_replay() -> None:
    lines = [line(k, cell(128, 32, b)) for k, b in ((beyond.WHOLE, 16), ("1/2", 18), ("1/4, as many pairs", 24))]
    found = compared("contexts", lines)
    assert stats.half_contexts_ratio(found) == pytest.approx(1.125) and stats.quarter_contexts_ratio(found) == 1.5
    again = compared("continual", [line(beyond.AT_ONCE, cell(64, 32, 8)), line("4 batches, replay", cell(64, 32, 10))])
    assert stats.replay_ratio(again) == 1.25


def test_ratios_of_types() -> None:
    budgets = {"1 type": 10, "1 type, 2 times the edges": 16, "2 types, partitioned": 24, "2 types, leaning": 30}
    lines = [line(k, cell(64, 32, b)) for k, b in budgets.items()]
    lost = line("2 types, shared", cell(64, 32, None, most_heads=4))
    found = compared("typed", [*lines, lost])
    assert stats.types_add_up(found) == pytest.approx(1.2) and stats.types_over_edges(found) == pytest.approx(1.5)
    assert stats.leaning_ratio(found) == pytest.approx(1.25)
    assert stats.shared_ratio(found) == pytest.approx(4 * 32 / 24)  # no less than the most that was tried
    holds = {j.claim.id: j.holds for j in claims.judge(found, adler.paper())}
    assert holds == {f"adler-beyond-types-{k}": k != "leaning" for k in ("add-up", "edges", "leaning", "shared")}
    ends = intervals.INTERVALS
    assert ends["types_add_up"](found) == pytest.approx((1.2, 1.2)) and ends["shared_ratio"](found) is None
    assert ends["leaning_ratio"](found) == pytest.approx((1.25, 1.25))
    under = compared("typed", [line("1 type", cell(64, 32, 10)), line("2 types, partitioned", cell(64, 32, 16))])
    assert stats.types_add_up(under) == pytest.approx(20 / 16) and stats.types_over_edges(under) is None


def test_types_are_asked_with_heads_of_their_own() -> None:
    asked = {v.label: q for v, q in zip(FIGURES["typed"].tiers["short"].variants, questions(FIGURES["typed"].tiers["short"]),
                                        strict=True) if v.size == (64, 32)}  # fmt: skip
    assert [arm.heads for arm in asked["4 types, partitioned"].arms] == [4, 8, 16, 32]
    assert [arm.heads for arm in asked["4 types, shared"].arms] == [4, 8, 16]
    assert asked["2 types, leaning"].instrument == TypedChannel(heads=2, d_key=1, sharing="leaning")
    assert asked["1 type, 4 times the edges"].problem.edges == asked["4 types, shared"].problem.edges == 256  # type: ignore[attr-defined]


# --- forgetting ----------------------------------------------------------------------------------------------------


def test_what_is_forgotten_is_that_of_the_best_heads() -> None:
    """At a budget the heads count whose F1 is the largest, and their forgetting, not the least there is."""
    unit = round(law(64, 32))  # 8
    scores: dict[tuple[int, int], dict[str, tuple[float, ...]]] = {
        (1, unit): {"f1": (0.4, 0.4, 0.4), "forgotten": (0.9, 0.8, 0.7)},
        (2, unit): {"f1": (0.1, 0.1, 0.1), "forgotten": (0.0, 0.0, 0.0)},
        (1, 2 * unit): {"f1": (0.5,), "forgotten": (0.6,)},
        (1, 4 * unit): {"f1": (0.6,), "forgotten": (0.2,)},
    }
    found = compared("continual", curves=[curve("4 batches", scores), curve("4 batches, replay", {(1, 8): {"f1": (1.0,)}})])
    assert stats.forgotten_at_twice_the_law(found) == pytest.approx(0.6)
    assert stats.forgotten_with_room(found) == pytest.approx(0.25)
    nothing = compared("continual", curves=[curve("4 batches", {(1, unit): {}})])
    assert stats.forgotten_at_twice_the_law(nothing) is stats.forgotten_with_room(nothing) is None


def test_the_questions_are_those_of_measure_relations() -> None:
    comparison = FIGURES["contexts"].tiers["smoke"]
    (first, *_) = questions(comparison, seed=4)
    problem = comparison.variants[0].problem
    assert first == relations_question(problem, heads=(1, 2, 4, 8), seeds=2, seed=4)


# --- intervals -----------------------------------------------------------------------------------------------------


def test_every_statistic_has_an_interval() -> None:
    assert set(intervals.INTERVALS) == set(stats.STATISTICS)


@pytest.mark.parametrize("name", ["graphs_r2", "graphs_gain", "edges_exponent", "family_spread", "families_spread"])
def test_intervals_of_graphs_hold_their_statistic(name: str) -> None:
    """D_K* that scatters by a fifth about the law."""
    scatter = iter(Stream("s", "scatter").uniform(99).tolist())
    found = compared("graphs", graph_lines(lambda edges, d, kind: 100 * law(edges, d) * (0.9 + 0.2 * next(scatter))))
    value, ends = stats.STATISTICS[name](found), intervals.INTERVALS[name](found)
    assert value is not None and ends is not None and ends[0] <= value <= ends[1]
    few = compared("graphs", found.lines[:2])
    if name in ("graphs_r2", "graphs_gain"):
        assert intervals.INTERVALS[name](few) is None


def test_intervals_of_ratios_are_those_of_the_cells() -> None:
    lines = [
        line("gaussian", cell(128, 32, 20, low=18, high=22)),
        line("sign", cell(128, 32, 22, low=20, high=25)),
        line("sparse 4", cell(128, 32, 30, low=27, high=33)),
        line("clustered 0.75", cell(128, 32, 40, low=None, high=44)),
    ]
    found = compared("embeddings", lines)
    assert intervals.INTERVALS["sign_ratio"](found) == pytest.approx((1.0, 25 / 18))
    assert intervals.INTERVALS["sparse_ratio"](found) == pytest.approx((27 / 22, 33 / 18))
    assert intervals.INTERVALS["clustered_ratio"](found) == pytest.approx((40 / 22, 44 / 18))
    lost = compared("embeddings", [*lines[:-1], line("clustered 0.75", cell(128, 32, None))])
    assert intervals.INTERVALS["clustered_ratio"](lost) is None


def test_the_interval_of_what_is_forgotten_is_over_seeds() -> None:
    unit = round(law(64, 32))
    at = {unit: (0.9, 0.8, 0.7), 2 * unit: (0.5, 0.6, 0.7), 4 * unit: (0.1, 0.2, 0.3)}
    scores: Any = {(1, b): {"f1": (0.4, 0.4, 0.4), "forgotten": lost} for b, lost in at.items()}
    found = compared("continual", curves=[curve("4 batches", scores)])
    for name, ends in (("forgotten_at_twice_the_law", (0.5, 0.7)), ("forgotten_with_room", (0.1 / 0.9, 0.3 / 0.7))):
        low, high = intervals.INTERVALS[name](found) or (0, 0)
        value = stats.STATISTICS[name](found) or 0.0
        assert ends[0] - 1e-9 <= low < value < high <= ends[1] + 1e-9
    one = compared("continual", curves=[curve("4 batches", {(1, unit): {"f1": (0.4,), "forgotten": (0.9,)}})])
    assert intervals.INTERVALS["forgotten_at_twice_the_law"](one) is None
