"""A proof is never wrong: against exact rational arithmetic, with near-ties, huge and tiny numbers, in both precisions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.lab.test_judge import bare

from keyspan.lab.channels import prove_channel
from keyspan.lab.proof import Bracket, Proof
from keyspan.problems.relations import RelationInstance

Float = NDArray[np.float64]


@dataclass
class Case:
    """Weights, rows and a threshold, and every score of theirs in rational numbers."""

    instance: RelationInstance
    w_query: Float
    w_key: Float
    bias: float

    def proof(self, low: bool) -> Proof:
        return prove_channel(self.instance, self.w_query, self.w_key, self.bias, 64, low=low)

    def scores(self) -> list[list[Fraction]]:
        def dot(a: list[Fraction], b: list[Fraction]) -> Fraction:
            return sum((x * y for x, y in zip(a, b, strict=True)), Fraction())

        def rational(rows: Float) -> list[list[Fraction]]:
            return [[Fraction(a) for a in row] for row in rows.tolist()]

        def project(w: Float) -> list[list[list[Fraction]]]:
            return [
                [[dot(row, column) for column in rational(head.T)] for row in rational(self.instance.embeddings)] for head in w
            ]

        q, k = project(self.w_query), project(self.w_key)
        items = range(self.instance.items)
        return [[max(dot(q[head][i], k[head][j]) for head in range(len(q))) for j in items] for i in items]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A few different rows, repeated beyond one tile, so that exact arithmetic is quick and ties are everywhere."""
    kinds, copies = draw(st.integers(2, 6)), draw(st.sampled_from([1, 1, 15, 23]))
    d_model, heads, d_key = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    scale = draw(st.sampled_from([1.0, 1.0, 1e-8, 1e-100, 1e-155, 1e-300, 1e60, 1e100]))
    numbers = draw(
        st.sampled_from([
            st.floats(-2, 2, width=64),
            st.integers(-3, 3).map(float),
            st.sampled_from([1.0, 1.0 + 2**-52, 1.0 - 2**-53, -1.0, 0.1, 1 / 3, 5e-324, 1e-310, 2.0**-149, 1e-40, 3e38, 1e20]),
            st.sampled_from([1.0, 1.0 + 2**-24, 1.0 + 2**-23, -1.0 - 2**-24, 2.0**-24]),
        ])
    )  # fmt: skip

    def array(*shape: int) -> Float:
        count = math.prod(shape)
        return np.array(draw(st.lists(numbers, min_size=count, max_size=count)), dtype=np.float64).reshape(shape)

    x = np.tile(array(kinds, d_model), (copies, 1))
    items = len(x)
    wq, wk = array(heads, d_model, d_key) * scale, array(heads, d_model, d_key)
    code = np.array(sorted(draw(st.sets(st.integers(0, items**2 - 1), min_size=1, max_size=9))), dtype=np.int64)
    edges = np.stack([code // items, code % items], axis=1)
    case = Case(bare(edges, x), wq, wk, 0.0)
    exact = kinds_only(case, kinds)
    near = draw(st.sampled_from(sorted({float(s) for row in exact for s in row if abs(s) < Fraction(10) ** 300} | {0.0})))
    case.bias = -draw(st.sampled_from([near, math.nextafter(near, -math.inf), math.nextafter(near, math.inf), near / 2]))
    return case


def kinds_only(case: Case, kinds: int) -> list[list[Fraction]]:
    few = bare(case.instance.edges, case.instance.embeddings[:kinds])
    return Case(few, case.w_query, case.w_key, case.bias).scores()


def kinds_of(case: Case) -> int:
    """How many rows come before they repeat."""
    x = case.instance.embeddings
    return next(n for n in range(1, len(x) + 1) if len(x) % n == 0 and (np.tile(x[:n], (len(x) // n, 1)) == x).all())


def spread(case: Case) -> tuple[list[Fraction], list[Fraction]]:
    """The true scores of edges and of non-edges."""
    kinds = kinds_of(case)
    small = kinds_only(case, kinds)
    is_edge = np.zeros((case.instance.items,) * 2, dtype=bool)
    is_edge[case.instance.edges[:, 0], case.instance.edges[:, 1]] = True
    on = [small[i % kinds][j % kinds] for i, j in case.instance.edges.tolist()]
    copies = case.instance.items // kinds
    blocks = is_edge.reshape(copies, kinds, copies, kinds)
    off = [small[a][b] for a in range(kinds) for b in range(kinds) if not blocks[:, a, :, b].all()]
    return on, off


def holds(bracket: Bracket, truth: Fraction) -> bool:
    """Whether the truth lies within the bounds; an infinite bound says nothing."""
    low = not math.isfinite(bracket.at_least) or Fraction(bracket.at_least) <= truth
    return low and (not math.isfinite(bracket.at_most) or truth <= Fraction(bracket.at_most))


def check(case: Case, low: bool) -> Proof:
    proof = case.proof(low)
    on, off = spread(case)
    tau = Fraction(proof.threshold)
    assert holds(proof.min_edge, min(on))
    right = min(on) > tau and (not off or max(off) <= tau)
    apart = not off or min(on) > max(off)
    if off:
        assert proof.max_nonedge is not None and holds(proof.max_nonedge, max(off))
    assert proof.exact in (right, None) and proof.separated in (apart, None)
    return proof


@given(cases(), st.booleans())
@settings(max_examples=150)
def test_nothing_false_is_ever_proven(case: Case, low: bool) -> None:
    proof = check(case, low)
    event(f"exact {proof.exact}, separated {proof.separated}, low {low}, fp32 {proof.tiles.get('fp32', 0) > 0}")


@given(st.integers(2, 40), st.integers(1, 5), st.integers(0, 10**6), st.booleans())
@settings(max_examples=40)
def test_what_is_clear_is_proven(items: int, d_key: int, seed: int, low: bool) -> None:
    """Not to be proven is no error, but a proof that never comes is worth nothing."""
    from keyspan.seeds import Stream

    stream = Stream(f"{seed}", "proof")
    codes = stream.normal((items, d_key))
    codes /= np.linalg.norm(codes, axis=1, keepdims=True)
    gram = codes @ codes.T - 2 * np.eye(items)
    gap = 1 - float(gram.max())
    assume(gap > 1e-9)
    target = stream.permutation(items)
    keys = np.zeros((items, d_key))
    keys[target] = codes
    edges = np.stack([np.arange(items), target], axis=1)
    case = Case(bare(edges, np.eye(items)), codes[None], keys[None], -(1 - gap / 2))
    proof = case.proof(low)
    assert proof.exact is True and proof.separated is True and proof.gap > gap / 2 and proof.half_gap > gap / 4
    assert Case(case.instance, codes[None], keys[None], -1.5).proof(low).exact is False
