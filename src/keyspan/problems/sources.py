"""Where sequences of tokens come from, how each source is drawn, and how many bits its sequences have given their prompt.

Every source is drawn from the problem's id alone (`seeds.Stream`), token by token for all sequences at once. The entropy
of a sequence is that of its tokens after the prompt, the prompt being known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.problems import ContentSource, graphs
from keyspan.problems.graphs import Graph
from keyspan.seeds import Stream, exp, log, tree_sum
from keyspan.specs import Spec

Float = NDArray[np.float64]
Int = NDArray[np.int64]
FAMILIES = ("uniform", "negbin", "zipf", "markov", "triplets", "walks", "file")
PREFIXES = ("distinct", "drawn")
FREE = ("uniform", "negbin", "zipf", "markov")  # sources whose prompts can be chosen, and so made distinct
DEFAULTS: dict[str, dict[str, float]] = {
    "negbin": {"successes": 2, "rate": 0.1},
    "zipf": {"exponent": 1.0},
    "markov": {"spread": 2.0},
    "triplets": {"relations": 1},
}


@dataclass(frozen=True, kw_only=True)
class Source(Spec, family="source", version=1):
    """Which source of tokens.

    name: uniform; negbin (tokens are numbers of failures before `successes` successes of chance `rate`, the largest token
    stands for all above); zipf (token i has weight (i + 1)^-exponent); markov (each token's successors have weights
    e^(spread z), z normal, drawn once); triplets (item, relation, item along the edges of `graph`); walks (along the edges
    of `graph`); file    prefixes: distinct prompts by construction, or as the source draws them    relations: kinds of
    edges, each a token of its own, drawn for every edge    content: hash of the tokens that came from a file
    """

    name: str = "uniform"
    prefixes: str = ""
    successes: int | None = None
    rate: float | None = None
    exponent: float | None = None
    spread: float | None = None
    relations: int | None = None
    graph: Graph | None = None
    content: str | None = None

    def check(self) -> None:
        choice = "|".join(FAMILIES[:-1])
        require(self.name in FAMILIES, f"`--source` in {choice}, or a file", repr(self.name), "Choose one.")
        if not self.prefixes:
            object.__setattr__(self, "prefixes", "distinct" if self.name == "uniform" else "drawn")
        require(self.prefixes in PREFIXES, f"`--prefixes` in {'|'.join(PREFIXES)}", repr(self.prefixes), "Choose one.")
        require(
            self.prefixes == "drawn" or self.name in FREE,
            f"`--prefixes distinct` with {'|'.join(FREE)} only",
            self.name,
            "Leave it out: prompts are as the source has them.",
        )
        for family, own in DEFAULTS.items():
            for option, usual in own.items():
                if family == self.name and getattr(self, option) is None:
                    object.__setattr__(self, option, type(usual)(usual))
                there = getattr(self, option) is None
                require(there or family == self.name, f"`--{option}` with --source {family} only", self.name, "Drop it.")
        require(self.successes is None or 1 <= self.successes <= 1000, "`1 <= successes <= 1000`", self.successes, "Try 2.")
        require(self.rate is None or 0 < self.rate < 1, "`0 < rate < 1`", self.rate, "Try 0.1.")
        require(self.exponent is None or 0 <= self.exponent <= 10, "`0 <= --exponent <= 10`", self.exponent, "Try 1.")
        require(self.spread is None or 0 <= self.spread <= 20, "`0 <= spread <= 20`", self.spread, "Try 2.")
        require(self.relations is None or self.relations >= 1, "`relations >= 1`", self.relations, "Try 1.")
        graphed = self.name in ("triplets", "walks")
        if graphed and self.graph is None:
            object.__setattr__(self, "graph", graphs.permutation() if self.name == "triplets" else graphs.out_regular(2))
        require(
            self.graph is None or self.name in ("triplets", "walks"), "`--graph` with triplets|walks only", self.name, "Drop."
        )
        require((self.content is not None) == (self.name == "file"), "`content` with a file only", self.name, "Read it.")

    def items(self, vocabulary: int) -> int:
        """Items of the graph: every token is one, but those that name relations."""
        return vocabulary - (self.relations or 0)

    def resolved(self, vocabulary: int, length: int, prompt: int) -> Source:
        """The source with its graph's defaults filled in, checked against the sizes of the sequences."""
        if self.name == "triplets":
            sizes = f"length={length}, prompt={prompt}"
            require((length, prompt) == (3, 2), "triplets have `--length 3 --prompt 2`", sizes, "Use these.")
        if self.graph is None:
            return self
        items = self.items(vocabulary)
        require(items >= 2, "`--vocab` leaves two items beside the relations", vocabulary, "Ask for more tokens.")
        fields = {k: getattr(self, k) for k in ("name", "prefixes", "relations")}
        return Source(**fields, graph=graphs.resolve(self.graph, items))


class Drawn(NamedTuple):
    """tokens: (sequences, N)    bits: (sequences,), entropy of each given its prompt    kind: `exact`; `bound` where only an
    upper bound is known; `unigram` where a file has no source, so its tokens count by how often each comes"""

    tokens: Int
    bits: Float
    kind: str


def draw(
    source: Source, vocabulary: int, length: int, prompt: int, count: int, problem_id: str, contents: ContentSource
) -> Drawn:
    """So many sequences of a resolved source."""
    if source.name in ("uniform", "negbin", "zipf"):
        return _independent(source, vocabulary, length, prompt, count, problem_id)
    if source.name == "markov":
        return _markov(source, vocabulary, length, prompt, count, problem_id)
    if source.name == "triplets":
        return _triplets(source, vocabulary, count, problem_id, contents)
    if source.name == "walks":
        return _walks(source, vocabulary, length, prompt, count, problem_id, contents)
    return _from_file(source, length, prompt, count, problem_id, contents)


def available(source: Source, vocabulary: int, prompt: int, contents: ContentSource | None = None) -> int | None:
    """Most sequences that a library of this source can have; None: any number."""
    if source.name == "triplets" and source.graph is not None:
        return graphs.edge_count(source.graph, source.items(vocabulary))
    if source.name == "file" and contents is not None and source.content is not None:
        return len(contents.get(source.content))
    return vocabulary**prompt if source.prefixes == "distinct" else None


# ------------------------------------------------------------------------------------------- independent tokens


def chances(source: Source, vocabulary: int) -> Float:
    """Chance of every token of an independent source, by operations that have one rounding. returns: (V,)"""
    if source.name == "uniform":
        return np.full(vocabulary, 1.0 / vocabulary)
    if source.name == "zipf":
        weight = exp(-(source.exponent or 0.0) * log(np.arange(1, vocabulary + 1, dtype=np.float64)))
        return np.asarray(weight / tree_sum(weight[None]))
    assert source.successes is not None and source.rate is not None
    out = np.zeros(vocabulary)
    now = 1.0
    for _ in range(source.successes):
        now *= source.rate
    for x in range(vocabulary - 1):  # C(x + r - 1, x) rate^r (1 - rate)^x, each from the one before
        out[x] = now
        now *= (x + source.successes) / (x + 1) * (1.0 - source.rate)
    out[-1] = max(0.0, 1.0 - float(tree_sum(out[None])[0]))
    return out


def entropy_of(chance: Float) -> Float:
    """`- sum p log2 p` over the last axis."""
    return np.asarray(-np.where(chance > 0, chance * np.log2(np.where(chance > 0, chance, 1.0)), 0.0).sum(axis=-1))


def _pick(cumulated: Float, uniform: Float) -> Int:
    """Tokens by their cumulated chances. cumulated: (V,)    uniform, returns: any shape"""
    return np.minimum(np.searchsorted(cumulated, uniform, side="right"), cumulated.size - 1).astype(np.int64)


def _independent(source: Source, vocabulary: int, length: int, prompt: int, count: int, problem_id: str) -> Drawn:
    chance = chances(source, vocabulary)
    stream = Stream(problem_id, "tokens")
    if source.name == "uniform":
        tokens = stream.integers(vocabulary, count * length).reshape(count, length)
    else:
        tokens = _pick(np.cumsum(chance), stream.uniform(count * length)).reshape(count, length)
    if source.prefixes == "distinct":
        tokens[:, :prompt] = distinct_prefixes(vocabulary, prompt, count, problem_id)
    bits = math.log2(vocabulary) if source.name == "uniform" else float(entropy_of(chance))
    return Drawn(tokens, np.full(count, (length - prompt) * bits), "exact")


def distinct_prefixes(vocabulary: int, prompt: int, count: int, problem_id: str) -> Int:
    """Prompts that all differ, uniform among such: repeated ones are drawn again. returns: (count, prompt)"""
    stream = Stream(problem_id, "prefixes")
    if vocabulary**prompt <= 2**20:
        code = stream.permutation(vocabulary**prompt)[:count]
        return np.stack([code // vocabulary**place % vocabulary for place in range(prompt)], axis=1)
    have = np.empty((0, prompt), dtype=np.int64)
    while len(have) < count:
        more = stream.integers(vocabulary, (count - len(have)) * prompt).reshape(-1, prompt)
        both = np.concatenate([have, more])
        _, first = np.unique(both, axis=0, return_index=True)
        have = both[np.sort(first)]
    return have


# ------------------------------------------------------------------------------------------------------- chains


def _markov(source: Source, vocabulary: int, length: int, prompt: int, count: int, problem_id: str) -> Drawn:
    """Given the chain, the tokens after a prompt that ends in s have `sum_j (P^j h)_s` bits, h the entropies of the rows."""
    weight = exp((source.spread or 0.0) * Stream(problem_id, "chain").normal((vocabulary, vocabulary)))
    rows = weight / tree_sum(weight)[:, None]
    cumulated = np.cumsum(rows, axis=1)
    stream = Stream(problem_id, "tokens")
    tokens = np.zeros((count, length), dtype=np.int64)
    tokens[:, 0] = stream.integers(vocabulary, count)
    given = 1
    if source.prefixes == "distinct":
        tokens[:, :prompt], given = distinct_prefixes(vocabulary, prompt, count, problem_id), prompt
    for place in range(given, length):
        above = cumulated[tokens[:, place - 1]] <= stream.uniform(count)[:, None]
        tokens[:, place] = np.minimum(above.sum(axis=1), vocabulary - 1)
    step = entropy_of(rows)
    total = np.zeros(vocabulary)
    for _ in range(length - prompt):
        total = step + rows @ total
    return Drawn(tokens, total[tokens[:, prompt - 1]], "exact")


def _targets(edges: Int, items: int) -> list[Int]:
    """The targets of every item."""
    return np.split(edges[:, 1], np.cumsum(np.bincount(edges[:, 0], minlength=items))[:-1])


def _walks(
    source: Source, vocabulary: int, length: int, prompt: int, count: int, problem_id: str, contents: ContentSource
) -> Drawn:
    """From a random item along random edges; from an item without edges to any. Walks and graph together have at most the
    graph's bits and those of the turns taken after the prompt."""
    assert source.graph is not None
    targets = _targets(graphs.make(source.graph, vocabulary, problem_id, contents), vocabulary)
    degree = np.array([len(t) for t in targets])
    stream = Stream(problem_id, "tokens")
    tokens = np.zeros((count, length), dtype=np.int64)
    tokens[:, 0] = stream.integers(vocabulary, count)
    bits = np.full(count, graphs.entropy(source.graph, vocabulary).value / count)
    everyone = np.arange(vocabulary)
    for place in range(1, length):
        here, chance = tokens[:, place - 1], stream.uniform(count)
        ways = np.where(degree[here] > 0, degree[here], vocabulary)
        turn = np.minimum((chance * ways).astype(np.int64), ways - 1)
        tokens[:, place] = [(targets[h] if degree[h] else everyone)[t] for h, t in zip(here, turn, strict=True)]
        bits += np.log2(ways) if place >= prompt else 0.0
    return Drawn(tokens, bits, "bound")


def _triplets(source: Source, vocabulary: int, count: int, problem_id: str, contents: ContentSource) -> Drawn:
    """Edges in random order, with a relation each: item, relation, item. Given the sources, the targets are to be held."""
    assert source.graph is not None and source.relations is not None
    items = source.items(vocabulary)
    edges = graphs.make(source.graph, items, problem_id, contents)
    edges = edges[Stream(problem_id, "edges").permutation(len(edges))[:count]]
    kind = items + Stream(problem_id, "relations").integers(source.relations, len(edges))
    tokens = np.stack([edges[:, 0], kind, edges[:, 1]], axis=1)
    if source.graph.name == "permutation":
        falling = (math.lgamma(items + 1) - math.lgamma(items - count + 1)) / math.log(2)
        return Drawn(tokens, np.full(count, falling / count), "exact")
    degree = np.bincount(edges[:, 0], minlength=items)
    each = [graphs.log2_choose(items, int(degree[s])) / degree[s] for s in edges[:, 0]]
    return Drawn(tokens, np.array(each), "exact" if source.graph.name == "functional" and source.graph.loops else "bound")


# -------------------------------------------------------------------------------------------------------- files


def _from_file(source: Source, length: int, prompt: int, count: int, problem_id: str, contents: ContentSource) -> Drawn:
    """Some of a file's sequences, another choice for every replicate. Bits: `- sum log2 f(token)`, f from these tokens."""
    assert source.content is not None
    held = np.asarray(contents.get(source.content)).astype(np.int64)
    require(held.shape[1] == length, "`--length` is that of the file's sequences", length, f"Use {held.shape[1]}.")
    tokens = held[Stream(problem_id, "choice").permutation(len(held))[:count]]
    after = tokens[:, prompt:]
    often = np.bincount(after.reshape(-1))
    surprise = np.log2(after.size) - np.log2(np.maximum(often, 1))
    return Drawn(tokens, surprise[after].sum(axis=1), "unigram")
