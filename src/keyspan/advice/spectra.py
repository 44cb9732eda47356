"""What the form of a head is like, from its factors: M = W_Q B W_K^T, d x d, of rank d_k, never multiplied out.

With W_Q = U R_Q and W_K = V R_K (orthonormal U, V; small triangular R), M = U T V^T with the core T = R_Q B R_K^T, which
is d_k x d_k. So M has the singular values of T, and everything below is a matter of small matrices:

    effective rank   exp(- sum p ln p), p = s / sum s            (Roy and Vetterli 2007)
    stable rank      |M|_F^2 / |M|_2^2
    symmetry         <M, M^T> / |M|_F^2 = tr((W_K^T W_Q)^2) / |M|_F^2: 1 symmetric, -1 antisymmetric, 0 neither
    overlap          |U_a^T U_b|_F^2 / d_k: mean squared cosine of the principal angles between what two heads look at
    similarity       <M_a, M_b> / (|M_a|_F |M_b|_F), with <M_a, M_b> = tr(T_a^T (U_a^T U_b) T_b (V_a^T V_b)^T)

B is the identity without rotary positions, and with them a rotation by the distance, or its average.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keyspan.advice.checkpoints.weights import LayerWeights, Side

Float = NDArray[np.float64]
Single = NDArray[np.float32]
TINY = 1e-300
DISTANCES = (0, 1, 8, 64, 512)  # at which heads that turn are compared, as far as the layer looks back


@dataclass(frozen=True, eq=False)
class LayerSpectra:
    """What one layer's forms are like. All arrays by query head, in order.

    values: (heads, d_key), singular values of W_Q W_K^T, falling    folded: the same as the layer sees it, with gains and
    biases    averaged: with positions averaged over `reach` distances, None where nothing turns    symmetry: (heads,)
    overlap_query: (heads, heads)    overlap_key: (kv_heads, kv_heads)    nearest: (heads, 2), the largest cosine between two
    heads' query directions, and the head it is found with    similarity: (heads, heads)
    """

    values: Float
    folded: Float
    averaged: Float | None
    symmetry: Float
    overlap_query: Float
    overlap_key: Float
    nearest: Float
    similarity: Float


def effective_rank(values: Float) -> Float:
    """exp of the entropy of singular values taken as shares; 0 where all are 0. values: (..., k)    returns: (...)"""
    top = values.max(axis=-1, initial=0.0)
    share = values / np.where(top > 0, top, 1.0)[..., None]
    share = share / np.maximum(share.sum(axis=-1, keepdims=True), 1.0)
    entropy = -(share * np.log(np.maximum(share, TINY))).sum(axis=-1)
    return np.where(top > 0, np.exp(entropy), 0.0)


def stable_rank(values: Float) -> Float:
    """Sum of squares over the largest square; 0 where all are 0. values: (..., k)    returns: (...)"""
    top = values.max(axis=-1, initial=0.0)
    share = values / np.where(top > 0, top, 1.0)[..., None]
    return np.asarray((share * share).sum(axis=-1))


def measure(weights: LayerWeights, reach: int) -> LayerSpectra:
    """Take the forms of a layer's heads apart. reach: distances that positions are averaged over"""
    plan = weights.plan
    groups = np.array(plan.kv_of_query)
    directions_q, triangles_q = _factored(weights, "query")
    directions_k, triangles_k = _factored(weights, "key")
    triangles_k = triangles_k[groups]
    turning = plan.rotary
    cores = triangles_q @ triangles_k.transpose(0, 2, 1)
    between = None if turning is None else turning.average(plan.d_key, reach)
    averaged = None if between is None else _values(triangles_q @ between @ triangles_k.transpose(0, 2, 1))
    at = [cores]
    if turning is not None:
        turned = [turning.at(plan.d_key, distance) for distance in DISTANCES if 0 < distance < reach]
        at += [triangles_q @ b @ triangles_k.transpose(0, 2, 1) for b in turned]
    overlap_query, overlap_key, nearest, similarity = _compared(directions_q, directions_k, groups, np.stack(at))
    return LayerSpectra(
        values=_values(cores),
        folded=_folded(weights),
        averaged=averaged,
        symmetry=_symmetry(weights, cores),
        overlap_query=overlap_query,
        overlap_key=overlap_key,
        nearest=nearest,
        similarity=similarity,
    )


def _values(cores: Float) -> Float:
    """Singular values of small matrices. cores: (heads, k, k)    returns: (heads, k)"""
    return np.asarray(np.linalg.svd(cores, compute_uv=False))


def _factored(weights: LayerWeights, side: Side) -> tuple[Single, Float]:
    """Orthonormal directions and triangles of every head. returns: (heads, d_model, k) in float32, (heads, k, k)

    (Overlaps need no more than float32; ranks are made of the triangles, in float64.)
    """
    directions, triangles = [], []
    for head in range(weights.heads(side)):
        direction, triangle = orthogonal_triangular(weights.factors(side, head))
        directions.append(direction.astype(np.float32))
        triangles.append(triangle)
    return np.stack(directions), np.stack(triangles)


def orthogonal_triangular(factor: Float) -> tuple[Float, Float]:
    """Q with orthonormal columns and a k x k R with Q R = factor; R need not be triangular to the last bit.

    By two rounds of Cholesky (Yamamoto and others 2015), which are products of matrices and many times faster than
    Householder's method, where the columns are not near to being dependent; else by that. factor: (d, k), d >= k or not
    """
    d, k = factor.shape
    if not factor.any():  # a head that was pruned
        return np.eye(d, k), np.zeros((k, k))
    whole, directions = np.eye(k), factor
    if d >= k:
        for closeness in (np.inf, 0.1):  # the second round must find columns that are almost orthonormal
            gram = directions.T @ directions
            try:
                triangle = np.linalg.cholesky(gram).T
                inverse = np.linalg.inv(triangle)
            except np.linalg.LinAlgError:
                break
            if closeness < np.inf and np.abs(gram - np.eye(k)).max() > closeness:
                break
            directions, whole = directions @ inverse, triangle @ whole
        else:
            return directions, whole
    directions, whole = np.linalg.qr(factor, mode="complete" if d < k else "reduced")
    if d < k:  # more columns than rows: as many directions as columns, the last of them empty
        directions, whole = np.pad(directions, ((0, 0), (0, k - d))), np.pad(whole, ((0, k - d), (0, 0)))
    return directions, whole


def _folded(weights: LayerWeights) -> Float:
    """Singular values of the forms as the layer sees them."""
    both: tuple[Side, Side] = ("query", "key")
    sides = [
        np.stack([orthogonal_triangular(weights.folded(side, head))[1] for head in range(weights.heads(side))]) for side in both
    ]
    return _values(sides[0] @ sides[1][np.array(weights.plan.kv_of_query)].transpose(0, 2, 1))


def _symmetry(weights: LayerWeights, cores: Float) -> Float:
    """tr((W_K^T W_Q)^2) / |M|_F^2. returns: (heads,)"""
    out = np.zeros(len(cores))
    for head, group in enumerate(weights.plan.kv_of_query):
        crossed = weights.factors("key", group).T @ weights.factors("query", head)
        square = float((cores[head] ** 2).sum())
        out[head] = float((crossed * crossed.T).sum()) / square if square > 0 else 0.0
    return np.clip(out, -1.0, 1.0)


def _compared(query: Single, key: Single, groups: NDArray[np.int64], cores: Float) -> tuple[Float, Float, Float, Float]:
    """Overlaps, the nearest head of each, and similarities. cores: (distances, heads, k, k)

    Every pair of heads is looked at once, and heads of zeros, whose directions mean nothing, not at all.
    """
    heads, _, k = query.shape
    dead = (cores[0] ** 2).sum(axis=(1, 2)) == 0
    norms = np.sqrt((cores**2).sum(axis=(0, 2, 3)))
    small = (cores / np.where(norms > 0, norms, 1.0)[None, :, None, None]).astype(np.float32)
    overlap, similarity, overlap_key = np.zeros((heads, heads)), np.zeros((heads, heads)), np.zeros((len(key), len(key)))
    flat_query, flat_key = (np.ascontiguousarray(side.transpose(1, 0, 2)).reshape(side.shape[1], -1) for side in (query, key))
    crossed_k, seen = np.empty(0, dtype=np.float32), -1
    for a in map(int, np.flatnonzero(~dead)):
        if groups[a] != seen:  # heads that share a key stand beside one another
            seen = int(groups[a])
            crossed_k = _crossed(key[seen], flat_key, seen)
            overlap_key[seen, seen:] = (crossed_k**2).sum(axis=(1, 2)) / k
        crossed_q = _crossed(query[a], flat_query, a)
        overlap[a, a:] = (crossed_q**2).sum(axis=(1, 2)) / k
        for core in small:
            similarity[a, a:] += ((core[a].T @ crossed_q @ core[a:]) * crossed_k[groups[a:] - seen]).sum(axis=(1, 2))
    overlap, overlap_key, similarity = (np.triu(m) + np.triu(m, 1).T for m in (overlap, overlap_key, similarity))
    overlap[dead], overlap[:, dead], similarity[dead], similarity[:, dead] = 0.0, 0.0, 0.0, 0.0
    np.fill_diagonal(similarity, np.where(dead, 0.0, 1.0))
    return np.clip(overlap, 0, 1), np.clip(overlap_key, 0, 1), _nearest(query, overlap, dead), np.clip(similarity, -1, 1)


def _nearest(query: Single, overlap: Float, dead: NDArray[np.bool_]) -> Float:
    """The head whose queries overlap most with each one's, and the largest cosine between the two. returns: (heads, 2)"""
    out = np.zeros((len(query), 2))
    for a in range(len(query)):
        others = np.where((np.arange(len(query)) == a) | dead, -1.0, overlap[a])
        b = int(np.argmax(others))
        there = others[b] >= 0 and not dead[a]
        out[a] = float(np.linalg.norm(query[a].T @ query[b], ord=2)) if there else 0.0, b
    return out


def _crossed(own: Single, flat: Single, first: int) -> Single:
    """Products of one head's directions with those of all from `first` on. own: (d_model, k)    returns: (heads, k, k)"""
    k = own.shape[1]
    return (own.T @ flat[:, first * k :]).reshape(k, -1, k).transpose(1, 0, 2)
