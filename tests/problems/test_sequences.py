"""Libraries: their sources, their entropy given the prompt, and the most that anything could recite of them."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from keyspan.errors import BadInput
from keyspan.files.contents import Contents
from keyspan.files.tokens import read_tokens
from keyspan.problems import NoContents, graphs
from keyspan.problems.sequences import (
    SequenceInstance,
    Sequences,
    expected_ceiling,
    markov,
    negbin,
    triplets,
    uniform,
    walks,
    zipf,
)
from keyspan.problems.sources import Source, chances, entropy_of
from keyspan.specs import decode

TEXT = Path(__file__).resolve().parents[1] / "data" / "coriolanus.txt"


def made(
    source: Source, library: int, *, length: int = 8, vocabulary: int = 64, prompt: int = 2, seed: str = "p"
) -> SequenceInstance:
    problem = Sequences(length=length, vocabulary=vocabulary, prompt=prompt, source=source, library=library)
    return problem.instance(seed, NoContents())


def given(rows: list[list[int]], prompt: int = 1) -> SequenceInstance:
    tokens = np.array(rows)
    return SequenceInstance(tokens, prompt, np.ones(len(rows)), "exact")


# ----------------------------------------------------------------------------------------------------- ceilings


def best_lookup(tokens: NDArray[np.int64], prompt: int) -> int:
    """Sequences recited by the best table from prompts to continuations, the slow way."""
    by_prompt: dict[tuple[int, ...], Counter[tuple[int, ...]]] = {}
    for row in tokens.tolist():
        by_prompt.setdefault(tuple(row[:prompt]), Counter())[tuple(row[prompt:])] += 1
    return sum(max(found.values()) for found in by_prompt.values())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("source", [uniform(prefixes="drawn"), negbin(), zipf(), markov(), walks()], ids=lambda s: s.name)
def test_the_ceiling_is_that_of_the_best_lookup_table(source: Source, seed: int) -> None:
    instance = made(source, 300, length=4, vocabulary=7, prompt=1 + seed % 2, seed=f"p{seed}")
    assert instance.ceiling == best_lookup(instance.tokens, instance.prompt) < 300
    assert instance.best == instance.ceiling


def test_ceilings_by_hand() -> None:
    assert given([[0, 1], [0, 1], [0, 2], [3, 1]]).ceiling == 3
    assert given([[0, 1], [0, 1], [0, 2], [3, 1]]).irreducible == pytest.approx(3 * (2 / 3 * math.log2(1.5) + math.log2(3) / 3))
    assert given([[0, 1], [1, 1]]).irreducible == 0.0


@pytest.mark.parametrize("prompt, library", [(1, 100), (1, 500), (2, 2000), (3, 2000)])
def test_prompts_drawn_alike_are_as_distinct_as_expected(prompt: int, library: int) -> None:
    found = [made(uniform(prefixes="drawn"), library, prompt=prompt, seed=f"p{i}").ceiling for i in range(10)]
    expected = expected_ceiling(64, prompt, library)
    assert np.mean(found) == pytest.approx(expected, rel=0.05)


def test_distinct_prompts_leave_nothing_out_of_reach() -> None:
    for vocabulary, prompt, library in ((3, 2, 9), (64, 2, 4096), (300, 3, 5000), (64, 3, 5000)):
        instance = made(uniform(), library, vocabulary=vocabulary, prompt=prompt)
        assert instance.ceiling == library and instance.irreducible == 0.0
        assert len(np.unique(instance.tokens[:, :prompt], axis=0)) == library
    with pytest.raises(BadInput, match="--library <= 9"):
        Sequences(length=4, vocabulary=3, prompt=2, library=10)


def test_a_graph_with_repeated_keys_has_a_ceiling_below_its_edges() -> None:
    """Items with several targets under one relation: a lookup cannot tell which is meant. More relations part them."""
    graph = graphs.out_regular(3)
    few, many = (made(triplets(graph, relations=r), 150, length=3, vocabulary=50 + r) for r in (1, 40))
    assert few.ceiling == len(np.unique(few.tokens[:, 0])) == 50
    assert few.ceiling < many.ceiling == best_lookup(many.tokens, 2) <= 150


# ---------------------------------------------------------------------------------------------------- entropies


def test_uniform_tokens_have_log2_v_bits_each() -> None:
    instance = made(uniform(), 100, length=16, prompt=3)
    assert instance.kind == "exact" and instance.bits == pytest.approx(100 * 13 * 6)
    counts = np.bincount(made(uniform(), 4000, length=32).tokens[:, 2:].reshape(-1), minlength=64)
    assert counts.min() > 0.85 * counts.mean() and counts.max() < 1.15 * counts.mean()


def test_the_negative_binomial_is_what_it_is_called() -> None:
    """C(x + r - 1, x) p^r (1 - p)^x, the last token for all above; 5.47 bits at r = 2, p = 0.1 and 64 tokens."""
    chance = chances(negbin(), 64)
    exact = [math.comb(x + 1, x) * 0.1**2 * 0.9**x for x in range(63)]
    assert np.allclose(chance[:63], exact, rtol=1e-12) and chance.sum() == pytest.approx(1)
    assert entropy_of(chance) == pytest.approx(5.47, abs=0.005)
    drawn = made(negbin(), 20_000, length=8).tokens
    assert np.abs(np.bincount(drawn.reshape(-1), minlength=64) / drawn.size - chance).max() < 0.002
    ceilings = [made(negbin(), n).ceiling / n for n in (100, 500, 2000)]
    assert ceilings == pytest.approx([0.96, 0.83, 0.58], abs=0.03)


def test_zipf_weights() -> None:
    chance = chances(zipf(1.5), 10)
    assert np.allclose(chance / chance[0], np.arange(1, 11) ** -1.5)
    assert entropy_of(chances(zipf(0.0), 16)) == pytest.approx(4)


def test_the_entropy_of_a_chain_is_that_of_its_paths() -> None:
    """Summed over all ways to go on, for each prompt, by brute force."""
    length, vocabulary, prompt = 5, 3, 2
    instance = made(markov(1.5), 400, length=length, vocabulary=vocabulary, prompt=prompt)
    from keyspan.seeds import Stream, exp

    weight = exp(1.5 * Stream("p", "chain").normal((vocabulary, vocabulary)))
    rows = weight / weight.sum(1, keepdims=True)
    for last in range(vocabulary):
        total = 0.0
        for path in itertools.product(range(vocabulary), repeat=length - prompt):
            p = math.prod(rows[a, b] for a, b in itertools.pairwise((last, *path)))
            total -= p * math.log2(p)
        mine = instance.entropies[instance.tokens[:, prompt - 1] == last]
        assert np.allclose(mine, total)
    steps = [(a, b) for row in instance.tokens.tolist() for a, b in itertools.pairwise(row)]
    seen = np.zeros((vocabulary, vocabulary))
    np.add.at(seen, tuple(np.array(steps).T), 1)
    assert np.abs(seen / seen.sum(1, keepdims=True) - rows).max() < 0.06


def test_chains_with_distinct_prompts() -> None:
    instance = made(markov(prefixes="distinct"), 500)
    assert instance.ceiling == 500


def test_a_permutation_as_triplets_holds_the_permutation() -> None:
    whole = made(triplets(), 60, length=3, vocabulary=61)
    assert whole.kind == "exact" and whole.bits == pytest.approx(math.log2(math.factorial(60))) and whole.ceiling == 60
    assert sorted(whole.tokens[:, 0]) == sorted(whole.tokens[:, 2]) == list(range(60)) and (whole.tokens[:, 1] == 60).all()
    part = made(triplets(), 10, length=3, vocabulary=61)
    assert part.bits == pytest.approx(math.log2(math.perm(60, 10)))


@pytest.mark.parametrize(
    "graph, kind", [(graphs.functional(), "exact"), (graphs.erdos_renyi(90), "bound")], ids=lambda g: str(g)
)
def test_triplets_are_the_edges_of_the_graph(graph: graphs.Graph, kind: str) -> None:
    problem = Sequences(length=3, vocabulary=52, source=triplets(graph, relations=2), library=40)
    instance = problem.instance("p", NoContents())
    assert problem.source.graph is not None
    edges = {tuple(e) for e in graphs.make(problem.source.graph, 50, "p", NoContents()).tolist()}
    assert {(s, t) for s, _, t in instance.tokens.tolist()} <= edges and instance.kind == kind
    assert set(instance.tokens[:, 1]) == {50, 51}
    if kind == "exact":
        assert instance.bits == pytest.approx(40 * math.log2(50))


def test_walks_go_along_edges() -> None:
    problem = Sequences(length=9, vocabulary=30, prompt=1, source=walks(graphs.erdos_renyi(60)), library=200)
    instance = problem.instance("p", NoContents())
    assert problem.source.graph is not None
    edges = graphs.make(problem.source.graph, 30, "p", NoContents())
    there, ends = {tuple(e) for e in edges.tolist()}, set(range(30)) - set(edges[:, 0].tolist())
    steps = {(a, b) for row in instance.tokens.tolist() for a, b in itertools.pairwise(row)}
    assert all(step in there or step[0] in ends for step in steps)
    assert instance.kind == "bound"
    certain = made(walks(graphs.permutation()), 100, vocabulary=30, prompt=1)
    assert certain.bits == pytest.approx(math.log2(math.factorial(30)))  # only the graph is to be known


# -------------------------------------------------------------------------------------------- files, and the text


def test_a_text_is_a_source() -> None:
    held = read_tokens(TEXT, 16)
    contents = Contents()
    sha = contents.put(held.tokens.astype(np.float64))
    problem = Sequences(length=16, vocabulary=held.vocabulary, source=Source(name="file", content=sha), library=300)
    one, two = (problem.instance(seed, contents) for seed in ("p", "q"))
    rows = {tuple(r) for r in held.tokens.tolist()}
    assert {tuple(r) for r in one.tokens.tolist()} <= rows and (one.tokens != two.tokens).any()
    assert one.kind == "unigram" and one.ceiling == best_lookup(one.tokens, 2) < 300
    often = Counter(one.tokens[:, 2:].reshape(-1).tolist())
    total = sum(often.values())
    assert one.bits == pytest.approx(sum(n * math.log2(total / n) for n in often.values()))
    with pytest.raises(BadInput, match="Lower --library"):
        problem.with_load(10_000).instance("p", contents)


# ------------------------------------------------------------------------------------------------------- specs


def test_a_problem_survives_json_and_fills_in_its_defaults() -> None:
    for source in (uniform(), negbin(), zipf(), markov(), walks()):
        problem = Sequences(length=8, source=source, library=5)
        assert decode(problem.to_json()) == problem
    assert Source(name="negbin") == negbin() and Source(name="markov") == markov() and Source(name="zipf") == zipf()
    assert Sequences(length=3, source=triplets()).source.graph == graphs.permutation()


def test_equal_ids_draw_equal_libraries_and_others_others() -> None:
    for source in (uniform(), negbin(), zipf(), markov(), walks()):
        one, same, other = (made(source, 20, seed=s) for s in ("p", "p", "q"))
        assert one.digest == same.digest != other.digest


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"length": 1}, "--length"),
        ({"vocabulary": 1}, "--vocab"),
        ({"prompt": 0}, "--prompt"),
        ({"prompt": 8}, "--prompt"),
        ({"library": -1}, "--library"),
        ({"source": Source(name="walks"), "prompt": 3, "library": 2**22}, "--library"),
    ],
    ids=str,
)
def test_sizes_that_make_no_sense(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        Sequences(**({"length": 8} | wrong))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "white"},
        {"name": "walks", "prefixes": "distinct"},
        {"name": "uniform", "exponent": 1.0},
        {"name": "negbin", "rate": 1.0},
        {"name": "zipf", "exponent": -1.0},
        {"name": "uniform", "graph": graphs.permutation()},
        {"name": "uniform", "prefixes": "some"},
        {"name": "file"},
    ],
    ids=str,
)
def test_sources_that_make_no_sense(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="must hold"):
        Source(**wrong)  # type: ignore[arg-type]


def test_triplets_have_three_tokens() -> None:
    with pytest.raises(BadInput, match="--length 3 --prompt 2"):
        Sequences(length=4, source=triplets())


def test_a_library_must_have_a_size_before_it_is_drawn() -> None:
    with pytest.raises(BadInput, match="--library >= 1"):
        Sequences(length=4).instance("p", NoContents())
