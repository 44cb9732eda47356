"""Block heads: each head holds one matching, and writes the a-th edge of it with a signature s_a of d_k numbers.

For a block of B edges i_a -> j_a let X_V and X_T be the rows of its sources and of its targets, (B, d). All heads below
have `W_Q = X_V^T (X_V X_V^T + lam I)^-1 s` or `X_V^T s`, and W_K alike from X_T. (Adler 2025 has the outer products.)

outer       W_Q = X_V^T s                 every item leaks x_i . x_a of every signature
pinv        W_Q = X_V^+ s                 exact on its own sources: x_a W_Q = s_a; needs B <= d and independent rows
ridge       lam > 0                       gives up some exactness for less leakage
cca         signatures from the canonical directions of X_V and X_T, not drawn at all

With lam > 0, (X_V X_V^T + lam I)^-1 is also the least-squares solution that treats lam as the Gram matrix of all other
items, which is about (m/d) I. `leakage` says what a block lets through.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import BadInput

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def groups(colour: Int, heads: int) -> list[tuple[Int, Int]]:
    """Heads with equally many edges, together. returns: pairs of (heads,) and the edges of each, (heads, B)"""
    order = np.argsort(colour, kind="stable")
    sizes = np.bincount(colour, minlength=heads)
    ends = sizes.cumsum()
    out = []
    for size in np.unique(sizes[sizes > 0]):
        which = np.flatnonzero(sizes == size)
        out.append((which, np.stack([order[ends[h] - size : ends[h]] for h in which])))
    return out


def inverse_gram(rows: Float, ridge: float) -> Float:
    """(X_V X_V^T + lam I)^-1, with lam in units of the rows' mean squared norm. rows: (n, B, d)    returns: (n, B, B)"""
    gram = rows @ rows.transpose(0, 2, 1)
    count = gram.shape[1]
    scale = np.trace(gram, axis1=1, axis2=2)[:, None, None] / count
    values, vectors = np.linalg.eigh(gram + ridge * scale * np.eye(count))
    if ridge == 0 and (values[:, 0] <= 1e-10 * values[:, -1]).any():
        raise BadInput(
            f"The rows of a block must be independent for `pinv`, but got {count} rows that are not. "
            "Use more heads, or a ridge method."
        )
    floor = np.maximum(1e-13 * values[:, -1:], 1e-100)  # rows of zeros have no inverse, and need none
    return np.asarray((vectors / np.maximum(values, floor)[:, None, :]) @ vectors.transpose(0, 2, 1))


def outer_weights(rows: Float, words: Float) -> Float:
    """W = X_V^T s. rows: (n, B, d)    words: (n, B, d_key)    returns: (n, d, d_key)"""
    return np.asarray(rows.transpose(0, 2, 1) @ words)


def inverse_weights(rows: Float, inverse: Float, words: Float) -> Float:
    """W = X_V^T (X_V X_V^T + lam I)^-1 s. inverse: (n, B, B)    returns: (n, d, d_key)"""
    return np.asarray(rows.transpose(0, 2, 1) @ (inverse @ words))


def canonical_heads(source: Float, target: Float, d_key: int, ridge: float) -> tuple[Float, Float]:
    """W_Q = A^-1/2 U sqrt(sv), W_K = C^-1/2 V sqrt(sv): the top d_k canonical directions of sources and targets.

    A = X_V^T X_V + lam I, C = X_T^T X_T + lam I, and U sv V^T = A^-1/2 X_V^T X_T C^-1/2. Two d-dimensional column spaces
    in R^B share 2d - B directions, so without ridge queries and keys of an edge agree exactly for B <= 2d - d_k (proven).

    source, target: (n, B, d)    returns: (n, d, d_key) each
    """
    left, right = _root_inverse(source, ridge), _root_inverse(target, ridge)
    u, values, vt = np.linalg.svd(left @ (source.transpose(0, 2, 1) @ target) @ right)
    scale = np.sqrt(values[:, None, :d_key])
    return left @ (u[:, :, :d_key] * scale), right @ (vt.transpose(0, 2, 1)[:, :, :d_key] * scale)


def _root_inverse(rows: Float, ridge: float) -> Float:
    """(X^T X + lam I)^-1/2 on the span of the rows. rows: (n, B, d)    returns: (n, d, d)"""
    gram = rows.transpose(0, 2, 1) @ rows
    scale = np.trace(gram, axis1=1, axis2=2)[:, None] / min(rows.shape[1:])
    values, vectors = np.linalg.eigh(gram)
    full = values + ridge * scale
    inverse = np.where(full > 1e-10 * full[:, -1:], 1.0 / np.sqrt(np.maximum(full, 1e-300)), 0.0)
    return np.asarray((vectors * inverse[:, None, :]) @ vectors.transpose(0, 2, 1))


def leakage(rows: Float, inverse: Float) -> Float:
    """l = tr((X_V X_V^T + lam I)^-1) / d, per head: the mean squared query of an item outside the block, for unit words.

    For gaussian unit rows and lam = 0 its mean is B / (d - B - 1) (proven for gaussian rows). returns: (n,)
    """
    return np.asarray(np.trace(inverse, axis1=1, axis2=2) / rows.shape[2])
