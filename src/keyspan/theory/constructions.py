"""Explicit weights for a graph: the constructions by name, the conditions they rest on, and what they promise.

    plan, heads, d_key, graph, rows  ->  W_Q, W_K (heads, d_model, d_key), a threshold where one is known, the conditions

single head     random-signs, binary-codes, circle: a code word for every item; rows must be independent
one per edge    trivial: rank one each, D_K = m'
blocks          outer (Adler 2025), pinv, ridge, pinv+code, ridge+code, quiet, cca: a matching for each head (blocks.py)
blocks, then    repair: `quiet`, and then the pairs it gets wrong are put right in rounds (repair.py)

A construction that is `proven` is exact whenever all its conditions hold. The others are `measured`: what they hold is
for the judge to say. Either way nothing is fitted to an instrument's loss, and every draw comes from the problem's id.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.seeds import Stream
from keyspan.specs import Spec
from keyspan.theory import blocks, codes, outer_predictor
from keyspan.theory.matchings import equitable_matchings, max_degree
from keyspan.theory.repair import repaired

Float = NDArray[np.float64]
Int = NDArray[np.int64]
SINGLE = ("random-signs", "binary-codes", "circle")
BLOCKS = ("outer", "pinv", "ridge", "pinv+code", "ridge+code", "quiet", "cca", "repair")
METHODS = (*SINGLE, "trivial", *BLOCKS)
ROUNDING = 1e-9  # a proof in exact arithmetic leaves this much room for float64
OFF_CENTRE = 4.0  # m |mean|^2 / mean |x|^2 is about 1 for vectors without a common direction; from here on it is taken out


@dataclass(frozen=True, kw_only=True)
class Plan(Spec, family="construction", version=1):
    """A construction as data; with a channel and a problem it is a run like any other.

    name: one of METHODS    ridge: lam, in units of the rows' mean squared norm    quiet: weight of leakage in the code
    rounds: of repair, at most    draw: which signatures and which split into blocks, of all that the problem allows
    The version is raised when the weights that a plan makes change (so also with the constants of codes.py and repair.py).
    """

    name: str
    ridge: float = 0.0
    quiet: float = 0.0
    rounds: int = 0
    draw: int = 0

    def check(self) -> None:
        require(self.name in METHODS, f"`--method` in {'|'.join(METHODS)}|best", repr(self.name), "Choose one.")
        require(self.ridge >= 0, "`ridge >= 0`", self.ridge, "Use 0 for none.")
        require(self.quiet >= 0, "`quiet >= 0`", self.quiet, "Use 0 for none.")
        require(self.rounds >= 0, "`rounds >= 0`", self.rounds, "Use 0 for none.")
        require(self.draw >= 0, "`draw >= 0`", self.draw, "Draws count from 0.")


def plan(method: str) -> Plan:
    """The plan of a method with the parameters that were best over the cells of docs/constructions.md."""
    usual = {
        "ridge": {"ridge": 0.5},
        "ridge+code": {"ridge": 0.25},
        "quiet": {"quiet": 4.0},
        "cca": {"ridge": 1.0},
        "repair": {"ridge": 0.05, "quiet": 1.5, "rounds": 100},
    }
    made = Plan(name=method)
    return replace(made, **usual.get(method, {}))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Condition:
    """Something a construction rests on. value: what it is here    holds: whether that is enough"""

    what: str
    value: float
    holds: bool


@dataclass(frozen=True, eq=False)
class Construction:
    """Weights, and what is known of them before anybody judges.

    w_query, w_key: (heads, d_model, d_key)    threshold: where one is known    status: `proven` (exact if every condition
    holds) or `measured`    margin, f1, exact_probability: predictions, None where there is none    rounds: of repair
    """

    plan: Plan
    w_query: Float
    w_key: Float
    status: Literal["proven", "measured"]
    conditions: tuple[Condition, ...]
    threshold: float | None = None
    margin: float | None = None
    f1: float | None = None
    exact_probability: float | None = None
    rounds: int = 0

    @property
    def heads(self) -> int:
        """h"""
        return int(self.w_query.shape[0])

    @property
    def d_key(self) -> int:
        """d_k"""
        return int(self.w_query.shape[2])

    @property
    def proven(self) -> bool:
        """Whether exactness is certain before it is judged."""
        return self.status == "proven" and all(c.holds for c in self.conditions)


def build(chosen: Plan, heads: int, d_key: int, edges: Int, rows: Float, identity: str) -> Construction:
    """Carry out a plan. edges: (m', 2), sorted    rows: (items, d_model)    identity: what draws are made from"""
    require(heads >= 1, "`--heads >= 1`", heads, "Ask for at least one head.")
    require(d_key >= 1, "`--d-key >= 1`", d_key, "Give every head at least one key dimension.")
    stream = Stream(identity, f"construction {chosen.name}", chosen.draw)
    if chosen.name in SINGLE:
        require(heads == 1, f"`--heads 1` ({chosen.name})", heads, "These codes live in one head.")
        return _single(chosen, d_key, edges, rows, stream)
    if chosen.name == "trivial":
        rule = "`--heads` = the number of edges and `--d-key 1` (trivial)"
        require((heads, d_key) == (len(edges), 1), rule, f"{heads} and {d_key}", f"Use --heads {len(edges)} --d-key 1.")
        return _trivial(chosen, edges, rows)
    return _blocks(chosen, heads, d_key, edges, rows, stream)


def _trivial(chosen: Plan, edges: Int, rows: Float) -> Construction:
    """Head a is x_i x_j^T / (|x_i|^2 |x_j|^2). With mu the largest x_k . x_i / |x_i|^2 over k != i, non-edges score below
    max(mu, mu^2), so exact with margin 1 - mu where mu < 1 (proven)."""
    norms = np.einsum("id,id->i", rows, rows)
    require(bool((norms > 0).all()), "every item vector is nonzero", "a row of zeros", "Leave that item out.")
    mu = relative_coherence(rows)
    scaled = rows / norms[:, None]
    conditions = (Condition("largest |x_k . x_i| / |x_i|^2 below 1", mu, mu < 1 - ROUNDING),)
    query, key = scaled[edges[:, 0]][:, :, None].copy(), scaled[edges[:, 1]][:, :, None].copy()
    return Construction(chosen, query, key, "proven", conditions, threshold=(1 + max(mu, 0.0)) / 2, margin=1 - max(mu, 0.0))


def relative_coherence(rows: Float, tile: int = 1024) -> float:
    """mu = max over i != k of |x_k . x_i| / |x_i|^2: the coherence, for rows of any norm. rows: (items, d_model), nonzero"""
    norms = np.einsum("id,id->i", rows, rows)
    worst = 0.0
    for start in range(0, len(rows), tile):
        gram = np.abs(rows[start : start + tile] @ rows.T) / norms[start : start + tile, None]
        gram[np.arange(len(gram)), start + np.arange(len(gram))] = 0.0
        worst = max(worst, float(gram.max(initial=0.0)))
    return worst


# ------------------------------------------------------------------------------------------------- one head


def _single(chosen: Plan, d_key: int, edges: Int, rows: Float, stream: Stream) -> Construction:
    """A word for every target that is pointed to (or for every source that points), which the other end repeats.

    With independent rows X^+ gives any item any query and key. Where every source has one target, q_i is the word of that
    target and k_j the word of j; so `S_ij` is 1 on edges and at most the code's coherence elsewhere. Where every target
    has one source, the other way round.
    """
    items, d_model = rows.shape
    out, into = np.bincount(edges[:, 0], minlength=items), np.bincount(edges[:, 1], minlength=items)
    narrow = int(min(out.max(), into.max()))
    rule = f"every item has one target at most, or every item one source ({chosen.name})"
    require(narrow <= 1, rule, f"degrees up to {narrow}", "Use a block method or `trivial`.")
    require(items <= d_model, f"items <= d_model ({chosen.name})", f"{items} and {d_model}", "Use a block method.")
    inverse = blocks.inverse_weights(rows[None], blocks.inverse_gram(rows[None], 0.0), np.eye(items)[None])[0]
    named, other = (edges[:, 1], edges[:, 0]) if out.max() <= 1 else (edges[:, 0], edges[:, 1])
    kinds, which = np.unique(named, return_inverse=True)
    words = _words(chosen, len(kinds), d_key, stream)
    first, second = np.zeros((items, d_key)), np.zeros((items, d_key))
    first[kinds] = words
    second[other] = words[which]
    query, key = (second, first) if out.max() <= 1 else (first, second)
    top = max(codes_coherence(words), 0.0)
    margin = 1.0 - top
    weights = inverse @ query, inverse @ key
    missed = max(float(np.linalg.norm(rows @ w - meant, axis=1).max()) for w, meant in zip(weights, (query, key), strict=True))
    margin -= 6 * missed  # a score of two unit words, each off by that much, is off by three times as much at most
    conditions = (
        Condition("item vectors independent: items <= d_model", float(items), items <= d_model),
        Condition("words are met to within a sixth of the margin", missed, margin > ROUNDING),
        Condition("targets of an item, or sources of an item, at most", float(narrow), narrow <= 1),
        Condition("largest inner product of two words below 1", top, top < 1 - ROUNDING),
    )
    chance = codes.distinct_probability(len(kinds), d_key) if chosen.name == "random-signs" else None
    w_query, w_key = (w[None] for w in weights)
    return Construction(
        chosen, w_query, w_key, "proven", conditions, threshold=1 - margin / 2, margin=margin, exact_probability=chance
    )


def _words(chosen: Plan, count: int, d_key: int, stream: Stream) -> Float:
    if chosen.name == "random-signs":
        return codes.random_signs(stream, count, d_key)
    if chosen.name == "binary-codes":
        least = max(1, (count - 1).bit_length())
        require(d_key >= least, f"`--d-key >= {least}` (binary-codes: {count} words)", d_key, "Raise it.")
        return codes.binary_code(count, d_key)
    require(d_key == 2, "`--d-key 2` (circle)", d_key, "A circle has two dimensions.")
    return codes.circle_code(count)


def codes_coherence(words: Float, tile: int = 1024) -> float:
    """Largest s_a . s_b over a != b; -inf for a single word. words: (count, d_key)"""
    worst = -np.inf
    for start in range(0, len(words), tile):
        gram = words[start : start + tile] @ words.T
        gram[np.arange(len(gram)), start + np.arange(len(gram))] = -np.inf
        worst = max(worst, float(gram.max()))
    return worst


# ------------------------------------------------------------------------------------------------- blocks


def common_direction(rows: Float) -> Float | None:
    """u = mean / |mean|, where the rows share a direction worth taking out, else None. rows: (items, d)    returns: (d,)

    I - u u^T is linear, so a channel takes it into its weights, which subtracting the mean from every row is not.
    """
    mean = rows.mean(axis=0)
    size = float(mean @ mean)
    if len(rows) * size <= OFF_CENTRE * float(np.einsum("id,id->", rows, rows)) / len(rows):
        return None
    return np.asarray(mean / np.sqrt(size))


def _blocks(chosen: Plan, heads: int, d_key: int, edges: Int, rows: Float, stream: Stream) -> Construction:
    degree = max_degree(edges, len(rows))
    fix = f"Use --heads {degree} or more (a block is a matching), or --method repair."
    rule = f"`--heads >= {degree}`, the largest degree ({chosen.name})"
    require(heads >= degree or chosen.rounds > 0, rule, heads, fix)
    require(heads <= len(edges), f"`--heads <= {len(edges)}`, the number of edges", heads, "A block has an edge.")
    common = common_direction(rows)
    seen = rows if common is None else rows - np.outer(rows @ common, common)
    order = stream.permutation(len(edges))
    owner = equitable_matchings(edges, len(rows), heads, order) if heads >= degree else np.argsort(order) % heads
    query, key = np.zeros((2, heads, rows.shape[1], d_key))
    words: list[tuple[Int, Int, Float]] = []
    for which, members in blocks.groups(owner, heads):
        source, target = seen[edges[members, 0]], seen[edges[members, 1]]
        query[which], key[which], signatures = _heads(chosen, source, target, d_key, stream)
        words.append((which, members, signatures))
    rounds = 0
    if chosen.rounds:
        query, key, rounds = repaired(seen, edges, query, key, chosen.rounds)
    built = Construction(chosen, query, key, "measured", (), rounds=rounds)
    built = _foreseen(built, degree, edges, seen, words)
    if common is not None:  # (I - u u^T) W
        query = query - common[:, None] * (common @ query)[:, None, :]
        key = key - common[:, None] * (common @ key)[:, None, :]
    return replace(built, w_query=query, w_key=key)


def _heads(chosen: Plan, source: Float, target: Float, d_key: int, stream: Stream) -> tuple[Float, Float, Float]:
    """The heads of equally large blocks. source, target: (n, B, d)    returns: W_Q, W_K (n, d, d_key), words (n, B, d_key)"""
    count, size, d_model = source.shape
    if chosen.name == "cca":
        require(d_key <= d_model, "`--d-key <= --d-model` (cca)", d_key, "There are no more directions.")
        return *blocks.canonical_heads(source, target, d_key, chosen.ridge), np.empty((count, size, 0))
    if chosen.name == "outer":
        words = codes.random_signs(stream, count * size, d_key).reshape(count, size, d_key)
        return blocks.outer_weights(source, words), blocks.outer_weights(target, words), words
    if chosen.ridge == 0:
        rule = f"edges of a head <= d_model ({chosen.name})"
        require(size <= d_model, rule, f"{size} and {d_model}", "Use more heads, or a ridge method.")
    left, right = blocks.inverse_gram(source, chosen.ridge), blocks.inverse_gram(target, chosen.ridge)
    if chosen.name in ("pinv", "ridge"):
        words = codes.random_signs(stream, count * size, d_key).reshape(count, size, d_key)
    else:
        steps = codes.STEPS // 3 if chosen.rounds else codes.STEPS  # rounds do the rest
        words = codes.quiet_code(stream, (left + right) / 2, d_key, chosen.quiet, steps)
    return blocks.inverse_weights(source, left, words), blocks.inverse_weights(target, right, words), words


def _foreseen(built: Construction, degree: int, edges: Int, rows: Float, words: list[tuple[Int, Int, Float]]) -> Construction:
    """The construction with its conditions and predictions."""
    method, heads = built.plan.name, built.heads
    size = -(-len(edges) // heads)
    conditions: tuple[Condition, ...] = (
        Condition("largest in- or out-degree, at most the number of heads", float(degree), degree <= heads),
        Condition("edges of a head", float(size), True),
    )
    permutation = degree == 1 and len(edges) == len(rows)
    foreseen = None
    if permutation and method == "outer":
        foreseen = outer_predictor.outer_prediction(len(rows), rows.shape[1], heads, built.d_key)
    if permutation and method == "pinv":
        foreseen = outer_predictor.inverse_prediction(len(rows), rows.shape[1], heads, built.d_key)
    if foreseen is not None:
        built = replace(built, f1=foreseen.f1, exact_probability=foreseen.exact)
    if built.plan.ridge or built.plan.rounds or method == "outer":
        return replace(built, conditions=conditions)
    off, most, missed = 0.0, -np.inf, 0.0
    for which, members, signatures in words:
        for head, own, word in zip(which, members, signatures, strict=True):
            most = max(most, codes_coherence(word))
            for weights, ends in ((built.w_query[head], edges[own, 0]), (built.w_key[head], edges[own, 1])):
                seen = rows @ weights
                missed = max(missed, float(np.linalg.norm(seen[ends] - word, axis=1).max()))
                seen[ends] = 0.0
                off = max(off, float(np.linalg.norm(seen, axis=1).max()))
    margin = 1.0 - max(most, off, off * off, 0.0) - 6 * missed
    conditions += (
        Condition("largest inner product of two words of a head below 1", most, most < 1 - ROUNDING),
        Condition("longest query or key of an item outside its block below 1", off, off < 1 - ROUNDING),
        Condition("words are met to within a sixth of the margin", missed, margin > ROUNDING),
    )
    if not all(c.holds for c in conditions):
        return replace(built, conditions=conditions)
    return replace(built, conditions=conditions, status="proven", margin=margin, threshold=1 - margin / 2)
