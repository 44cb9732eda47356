"""Constructions on any graph and any vectors: what is proven is exact, and every certificate is the dense computation's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.contexts import contexts_missed
from tests.lab.test_judge import bare

from keyspan.attention import reference
from keyspan.errors import BadInput
from keyspan.lab.judge import judge_channel
from keyspan.problems import NoContents
from keyspan.problems import embeddings as emb
from keyspan.problems.relations import RelationInstance
from keyspan.seeds import Stream, exp, log
from keyspan.theory.constructions import BLOCKS, SINGLE, Construction, Plan, build, plan
from keyspan.theory.matchings import equitable_matchings, max_degree
from keyspan.theory.separation import gap
from keyspan.verdict import Verdict

Float = NDArray[np.float64]
Int = NDArray[np.int64]
FAMILIES = ("one-hot", "gaussian", "sign", "sparse", "clustered", "any norms")
QUIET = Plan(name="quiet", quiet=4.0)


@st.composite
def edge_lists(draw: st.DrawFn, items: int, most: int = 1000) -> Int:
    """Edges with degrees of any skew: both ends fall like a power of a random rank, hubs and all, loops too."""
    stream = Stream(f"g{draw(st.integers(0, 2**32))}", "edges")
    count = draw(st.integers(1, most))
    ends = []
    for _ in range(2):
        power = draw(st.sampled_from([0.0, 0.5, 1.0, 2.0]))
        weights = exp(-power * log(np.arange(1, items + 1, dtype=np.float64)))[stream.permutation(items)]
        ends.append(np.searchsorted(weights.cumsum() / weights.sum(), stream.uniform(count)).clip(max=items - 1))
    edges = np.unique(np.stack(ends, axis=1), axis=0)
    return edges[: items * items - 1]


@st.composite
def one_to_one(draw: st.DrawFn, items: int) -> Int:
    """A graph in which every item has one target at most (or, turned round, one source)."""
    stream = Stream(f"f{draw(st.integers(0, 2**32))}", "edges")
    sources = np.sort(stream.permutation(items)[: draw(st.integers(1, items))])
    edges = np.stack([sources, stream.integers(items, len(sources))], axis=1)
    edges = edges[:, ::-1] if draw(st.booleans()) else edges
    return edges[np.lexsort((edges[:, 1], edges[:, 0]))]


@st.composite
def vectors(draw: st.DrawFn, items: int, d_model: int) -> Float:
    """Item vectors of any family that has so many."""
    name = draw(st.sampled_from(FAMILIES))
    identity = f"x{draw(st.integers(0, 2**32))}"
    if name in ("one-hot", "gaussian", "sign", "sparse"):
        spec = emb.Embeddings(name=name, ones=draw(st.integers(1, d_model)) if name == "sparse" else None)
        try:
            emb.check_fit(spec, items, d_model)
        except BadInput:
            assume(False)
        return emb.make(spec, items, d_model, identity, NoContents())
    stream = Stream(identity, "rows")
    x = stream.normal((items, d_model))
    if name == "clustered":
        return x * 0.1 + stream.normal((3, d_model))[stream.integers(3, items)]
    return x * exp(stream.normal((items,)))[:, None]


@dataclass
class Case:
    """A construction on a graph and its vectors."""

    built: Construction
    instance: RelationInstance

    def judged(self, threshold: float) -> Verdict:
        return judge_channel(self.instance, self.built.w_query, self.built.w_key, -threshold)


def carried_out(chosen: Plan, heads: int, d_key: int, edges: Int, rows: Float) -> Case:
    """Build it, or leave the example where the construction says that it does not apply."""
    try:
        return Case(build(chosen, heads, d_key, edges, rows, "p0"), bare(edges, rows))
    except BadInput:
        assume(False)
        raise


@st.composite
def cases(draw: st.DrawFn, names: tuple[str, ...], items: int = 200) -> Case:
    items = draw(st.integers(2, items))
    name = draw(st.sampled_from(names))
    d_model = draw(st.integers(items, items + 20)) if name in SINGLE else draw(st.integers(2, 64))
    rows = draw(vectors(items, d_model))
    edges = draw(one_to_one(items) if name in SINGLE else edge_lists(items))
    heads, d_key = 1, draw(st.integers(1, 12))
    if name == "circle":
        d_key = 2
    elif name == "trivial":
        heads, d_key = len(edges), 1
    elif name not in SINGLE:
        heads = draw(st.integers(min(max_degree(edges, items), len(edges)), min(len(edges), 200)))
    chosen = plan(name)
    if name == "repair":
        chosen = Plan(name="repair", ridge=chosen.ridge, quiet=chosen.quiet, rounds=3)
    return carried_out(chosen, heads, d_key, edges, rows)


# --- what is proven is exact ---------------------------------------------------------------------------------------


def assert_exact(case: Case) -> None:
    built = case.built
    assert built.threshold is not None and built.margin is not None
    verdict = case.judged(built.threshold)
    assert verdict.exact
    if "margin" in verdict.scores:
        assert verdict.scores["margin"] >= built.margin - 1e-9
    weights = built.w_query, built.w_key
    assert contexts_missed(case.instance.embeddings, case.instance.edges, *weights, built.threshold) == 0


@given(cases((*SINGLE, "trivial")))
@settings(max_examples=40)
def test_proven_constructions_are_exact_where_their_conditions_hold(case: Case) -> None:
    assert case.built.status == "proven"
    assume(case.built.proven)
    assert_exact(case)


@st.composite
def inverse_cases(draw: st.DrawFn) -> Case:
    """Blocks small enough, and words long enough, for the proof to have a chance."""
    items, d_model = draw(st.integers(2, 200)), draw(st.integers(8, 160))
    rows = draw(vectors(items, d_model))
    edges = draw(edge_lists(items, most=200))
    heads = max(max_degree(edges, items), -(-len(edges) // draw(st.integers(1, 8))))
    return carried_out(draw(st.sampled_from([plan("pinv"), plan("pinv+code"), QUIET])), heads, 6, edges, rows)


@given(inverse_cases())
@settings(max_examples=40)
def test_inverse_blocks_are_exact_within_their_size(case: Case) -> None:
    assume(case.built.proven)
    assert_exact(case)


# --- every certificate is the dense computation's ------------------------------------------------------------------


def assert_certificate_is_right(case: Case) -> None:
    """The judge by tiles against all pairs at once, whichever way the verdict falls."""
    rows, edges, built = case.instance.embeddings, case.instance.edges, case.built
    query, key = rows @ built.w_query, rows @ built.w_key
    norms = np.linalg.norm(query, axis=2).max(), np.linalg.norm(key, axis=2).max()
    close = 1e-9 * max(1.0, float(norms[0] * norms[1]))
    scores = reference.aggregate(reference.scores(rows, built.w_query, built.w_key))
    truth = np.zeros(scores.shape, dtype=bool)
    truth[edges[:, 0], edges[:, 1]] = True
    seen = gap(rows, edges, built.w_query, built.w_key, hasty=False)
    verdict = case.judged(seen.threshold)
    assert abs(verdict.witness["min_edge"]["score"] - scores[truth].min()) <= close
    assert abs(verdict.witness["max_nonedge"]["score"] - scores[~truth].max()) <= close
    assert abs(verdict.scores["margin"] - (scores[truth].min() - scores[~truth].max())) <= 2 * close
    assert abs(seen.min_edge - scores[truth].min()) <= close and abs(seen.max_nonedge - scores[~truth].max()) <= close
    if np.abs(scores - seen.threshold).min() > close:
        assert verdict.scores["f1"] == reference.f1(scores > seen.threshold, edges)
        assert verdict.exact is bool(((scores > seen.threshold) == truth).all())
    if verdict.exact and verdict.scores["margin"] > 2 * close:
        assert contexts_missed(rows, edges, built.w_query, built.w_key, seen.threshold) == 0


@given(cases((*BLOCKS, *SINGLE, "trivial"), items=120))
@settings(max_examples=60)
def test_every_certificate_is_the_dense_computation(case: Case) -> None:
    assert_certificate_is_right(case)


# --- and blocks are matchings --------------------------------------------------------------------------------------


@given(st.data(), st.integers(2, 200))
@settings(max_examples=60)
def test_matchings_are_equitable(data: st.DataObject, items: int) -> None:
    edges = data.draw(edge_lists(items, most=300))
    heads = max_degree(edges, items) + data.draw(st.integers(0, 5))
    order = Stream("m", "order", data.draw(st.integers(0, 99))).permutation(len(edges))
    colour = equitable_matchings(edges, items, heads, order)
    sizes = np.bincount(colour, minlength=heads)
    assert len(sizes) == heads and sizes.max() - sizes.min() <= 1
    for side in (0, 1):
        taken = colour * items + edges[:, side]
        assert len(np.unique(taken)) == len(edges)
    assert (colour == equitable_matchings(edges, items, heads, order)).all()
