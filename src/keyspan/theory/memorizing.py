"""The explicit memorising layer, and the layer of random attention: attention weights, then one linear solve.

One layer without residual answers example t at its query (Mahdavi et al. 2024):

    a^h_t = softmax(E_t W_K^h W_Q^hT e_t)        f^h_t = E_t^T a^h_t in R^d        y_t = sum_h R_h^T f^h_t

E_t: (n, d), the context    e_t: (d,), the query    R_h = W_V^h W_O^h: (d, outputs), which d_v >= outputs can be

Given attention weights, the rows z_t = [f^1_t, ..., f^H_t] of Z are fixed and y = Z R is linear. So a layer holds any
labels of T examples exactly when Z has rank T.

**The explicit layer.** Head h owns r - 1 of T = H(r-1) + 1 examples, r = min(n, d_h); the last one has no owner. Let A_h
be dual to the queries it owns (A_h^T e_t is a unit vector for each of them; they are independent), w_h orthogonal to
them and to no other query, kappa a direction that tells tokens apart:

    W_Q^h = [c w_h, A_h]        W_K^h = [kappa, X_h]        X_h: the logits that owned examples are given

An owned example has exactly the logits E_t x_t, which put it on a token of its own; on all others the first column
wins, and they saturate on the token with the largest or smallest E_t kappa. Then Z has rank T: by proof where the
context is shared (docs/mathematics.md#explicit-layer), and by the singular values that are reported in any case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.seeds import Stream
from keyspan.theory.memorization import theorem

Float = NDArray[np.float64]
Ints = NDArray[np.int64]
OWN_LOGIT = 12.0  # of an owned example, for its own token over the others
CLEAR = 40.0  # by how much a saturated logit leads: e^-40 is below half a unit of float64's last place
ROWS = 4096  # examples whose features are made together
LEAST = 1e-11  # of the largest |w . e|: what is smaller is rounding
TRIES = 16  # directions that are drawn, of which the best is taken


@dataclass(frozen=True, eq=False)
class Attention:
    """The attention weights of a layer. w_query, w_key: (H, d, d_h)"""

    w_query: Float
    w_key: Float

    @property
    def heads(self) -> int:
        """H"""
        return len(self.w_query)

    def weights(self, queries: Float, contexts: Float) -> Float:
        """`a^h_t`, in tiles. queries: (T, d)    contexts: (T, n, d), or (1, n, d) for all    returns: (T, H, n)"""
        out = np.empty((len(queries), self.heads, contexts.shape[1]))
        for here, e, context in _tiles(queries, contexts):
            turned = np.einsum("td,hdk,hck->thc", e, self.w_query, self.w_key, optimize=True)
            logits = turned @ context.transpose(0, 2, 1)
            logits -= logits.max(axis=2, keepdims=True)
            np.exp(logits, out=logits)
            out[here] = logits / logits.sum(axis=2, keepdims=True)
        return out

    def features(self, queries: Float, contexts: Float) -> Float:
        """Z, the rows z_t. returns: (T, H d)"""
        weights = self.weights(queries, contexts)
        out = np.empty((len(queries), self.heads, queries.shape[1]))
        for here, _, context in _tiles(queries, contexts):
            out[here] = weights[here] @ context
        return out.reshape(len(queries), -1)


@dataclass(frozen=True, eq=False)
class Memorizer:
    """A layer whose readout was solved for. readout: (H, d, outputs)    rank, condition: of Z    error: largest |y - Z R|"""

    attention: Attention
    readout: Float
    rank: int
    condition: float
    error: float


def memorize(attention: Attention, queries: Float, contexts: Float, labels: Float, tolerance: float = 1e-13) -> Memorizer:
    """The readout of least norm among those of least squares, for given attention weights.

    labels: (T, outputs)    tolerance: singular values of Z below this share of the largest count as none
    """
    features = attention.features(queries, contexts)
    left, values, right = np.linalg.svd(features, full_matrices=False)
    keep = values > tolerance * values[0]
    solved = right[keep].T @ ((left[:, keep].T @ labels) / values[keep, None])
    error = float(np.abs(features @ solved - labels).max())
    d_model = queries.shape[1]
    condition = float(values[0] / values[keep][-1])
    return Memorizer(attention, solved.reshape(attention.heads, d_model, -1), int(keep.sum()), condition, error)


def random_attention(stream: Stream, queries: Float, contexts: Float, heads: int, d_key: int, spread: float) -> Attention:
    """Gaussian W_Q and W_K, scaled so that logits within a context have a standard deviation of `spread` (their
    temperature, inverted): about 3 is best conditioned, 10 for d_h = 1.

    (A layer cannot use what is common to all tokens of a context, so the deviation is taken within contexts.)
    """
    require(spread > 0, "spread > 0", spread, "Try 3.")
    made = Attention(*(stream.normal((heads, queries.shape[1], d_key)) for _ in range(2)))
    some = slice(0, 256)
    context = contexts if len(contexts) == 1 else contexts[some]
    turned = np.einsum("td,hdk,hck->thc", queries[some], made.w_query, made.w_key, optimize=True)
    logits = turned @ context.transpose(0, 2, 1)
    deviation = float(logits.std(axis=2).mean()) if logits.shape[2] > 1 else 1.0
    return Attention(made.w_query * (spread / max(deviation, 1e-300)), made.w_key)


def explicit_attention(stream: Stream, queries: Float, contexts: Float, heads: int, d_key: int) -> Attention:
    """Attention weights of the explicit layer for T <= H(r-1) + 1 examples, r = min(n, d_h).

    Needs contexts of rank n and queries of which any r are independent (theorem 1 asks for any n). queries: (T, d)
    contexts: (T, n, d), or (1, n, d) if all share one
    """
    count, d_model = queries.shape
    n = contexts.shape[1]
    rank = min(n, d_key)
    most = theorem(heads, n, d_key)
    require(count <= most, f"examples <= H (min(n, d_h) - 1) + 1 = {most}", count, "Take fewer, or more heads.")
    require(n <= d_model, "n <= d_model", f"n={n}, d_model={d_model}", "A context of rank n needs that.")
    shared = len(contexts) == 1
    kappa, spread = _direction(stream, contexts, rank)
    side = (queries.T, contexts, kappa, spread)
    owners = _owners(count, heads, rank)
    first = np.array([*(owned[0] for owned in owners if len(owned)), count - 1])
    first = first if shared and rank == n else first[:0]
    made = [_head(stream, side, owned, first, d_key) for owned in owners]
    return Attention(np.stack([q for q, _ in made]), np.stack([k for _, k in made]))


def _owners(count: int, heads: int, rank: int) -> list[Ints]:
    """Which examples a head owns: r - 1 each, as evenly as they go; the last example has no owner."""
    return [np.asarray(part) for part in np.array_split(np.arange(count - 1), heads)] if rank > 1 else [np.arange(0)] * heads


def _direction(stream: Stream, contexts: Float, rank: int) -> tuple[Float, float]:
    """kappa, and by how much E_t kappa tells the extreme tokens of a context from all others (over all contexts).

    With one context it is solved for: +1 on the last token, -1 on one that nobody owns (or on the first), 0 elsewhere.
    """
    n, d_model = contexts.shape[1:]
    if n == 1:
        return np.zeros(d_model), 1.0
    if len(contexts) == 1:
        wanted = np.zeros(n)
        wanted[n - 1], wanted[rank - 1 if rank < n else 0] = 1.0, -1.0
        return np.asarray(np.linalg.pinv(contexts[0]) @ wanted), 1.0
    best, widest = np.zeros(d_model), 0.0
    for _ in range(TRIES):
        kappa = stream.normal((d_model,))
        ranked = np.sort(contexts @ kappa, axis=1)
        clear = float(min((ranked[:, -1] - ranked[:, -2]).min(), (ranked[:, 1] - ranked[:, 0]).min()))
        if clear > widest:
            best, widest = kappa, clear
    require(widest > 0, "the tokens of a context differ", "two that are equal", "Contexts must have rank n.")
    return best, widest


def _head(stream: Stream, side: tuple[Float, Float, Float, float], owned: Ints, first: Ints, d_key: int) -> tuple[Float, Float]:
    """W_Q and W_K of the head that owns these examples; zeros fill what is not used. returns: (d, d_h) each"""
    queries, contexts, kappa, spread = side  # queries: (d, T)
    d_model, count = queries.shape
    w_query, w_key = np.zeros((d_model, d_key)), np.zeros((d_model, d_key))
    mine = queries[:, owned]
    dual = np.linalg.pinv(mine).T  # (d, owned): dual^T mine = 1
    others = np.setdiff1d(np.arange(count), owned)
    apart = _apart(stream, mine, queries[:, others], np.flatnonzero(np.isin(others, first)))
    keys = _own_keys(contexts, kappa, owned)
    moved = _moved(contexts, others, keys @ (dual.T @ queries[:, others]))
    lead = np.abs(apart @ queries[:, others]) * spread
    need = float(((CLEAR + 2.0 * moved) / lead).max()) if len(others) else 1.0
    if contexts.shape[1] > 1:
        w_query[:, 0], w_key[:, 0] = apart * need, kappa
    w_query[:, 1 : 1 + len(owned)], w_key[:, 1 : 1 + len(owned)] = dual, keys
    return w_query, w_key


def _moved(contexts: Float, others: Ints, keys: Float) -> Float:
    """By how much the owned columns move a logit of the other examples, at most. keys: (d, others)    returns: (others,)"""
    if len(contexts) == 1:
        return np.asarray(np.abs(contexts[0] @ keys).max(axis=0, initial=0.0))
    return np.asarray(np.abs(np.einsum("tnd,dt->tn", contexts[others], keys)).max(axis=1, initial=0.0))


def _apart(stream: Stream, mine: Float, others: Float, first: Ints) -> Float:
    """w: orthogonal to the owned queries, as far from orthogonal to each other one as the best of some draws. returns: (d,)

    first: which of the others shall lie on its positive side, if that can be had (the base solves for +1 on them)
    """
    basis = np.linalg.qr(mine, mode="complete")[0][:, mine.shape[1] :]  # of what is orthogonal to the owned
    seen = basis.T @ others
    base = np.linalg.pinv(seen[:, first].T) @ np.ones(len(first))
    best, found = base, (False, -1.0)
    for spread in np.repeat([0.0, 0.3, 1.0, 3.0], TRIES // 4):
        w = base + spread * stream.normal(base.shape) / np.sqrt(max(1.0, float((seen**2).sum(axis=0).mean())))
        side = w @ seen
        clear = float(np.abs(side).min() / max(np.abs(side).max(), 1e-300)) if len(side) else 1.0
        quality = (bool((side[first] > 0.1).all()), clear)
        if quality > found:
            best, found = w, quality
    require(found[1] > LEAST, "every query is independent of r - 1 others", "one that is not", "Their Kruskal rank is too low.")
    return np.asarray(basis @ best)


def _own_keys(contexts: Float, kappa: Float, owned: Ints) -> Float:
    """X_h: column t gives the t-th owned example the logit OWN_LOGIT on its token and 0 on the others. returns: (d, owned)

    Its token is the t-th one of a shared context; else the one whose E_t kappa is the t-th largest after the largest.
    """
    n, d_model = contexts.shape[1:]
    if len(contexts) == 1:
        return np.asarray(np.linalg.pinv(contexts[0])[:, : len(owned)] * OWN_LOGIT)
    columns = np.zeros((d_model, len(owned)))
    for place, t in enumerate(owned.tolist()):
        order = np.argsort(-(contexts[t] @ kappa), kind="stable")
        wanted = np.zeros(n)
        wanted[order[1 + place % (n - 1)]] = OWN_LOGIT
        columns[:, place] = np.linalg.pinv(contexts[t]) @ wanted
    return columns


def _tiles(queries: Float, contexts: Float) -> Iterator[tuple[slice, Float, Float]]:
    """Some examples at a time: where they are, their queries, their contexts."""
    for start in range(0, len(queries), ROWS):
        here = slice(start, min(start + ROWS, len(queries)))
        yield here, queries[here], contexts if len(contexts) == 1 else contexts[here]
