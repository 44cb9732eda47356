"""What a layer on pairs of tokens answers: NumPy, float64, one line per equation (Dana et al. 2025, section 3, one layer).

    x_i = E t_i    y_i = x_i + p_i    a^h = softmax_i(y_i W_K^h . y_2 W_Q^h / sqrt(d_h))
    out = x_2 + sum_h (sum_i a^h_i y_i W_V^h) W_O^h

and the logits of the token that follows are out U^T. The second token of a pair attends to both.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Ints = NDArray[np.int64]


def pair_outputs(w: Mapping[str, Float], pairs: Ints) -> Float:
    """embedding, unembedding: (N, d)    positions: (2, d)    w_query, w_key, w_value: (H, d, d_h)    w_out: (H, d_h, d)
    pairs: (B,), i N + j    returns: (B, N)"""
    tokens = np.stack(np.divmod(pairs, len(w["embedding"])), axis=1)
    x = w["embedding"][tokens]
    y = x + w["positions"]
    logits = np.einsum(
        "bhk,bihk->bhi", np.einsum("bd,hdk->bhk", y[:, 1], w["w_query"]), np.einsum("bid,hdk->bihk", y, w["w_key"])
    )
    logits = logits / np.sqrt(w["w_key"].shape[2])
    a = np.exp(logits - logits.max(axis=2, keepdims=True))
    a /= a.sum(axis=2, keepdims=True)
    mixed = np.einsum("bhi,bihk->bhk", a, np.einsum("bid,hdk->bihk", y, w["w_value"]))
    return np.asarray((x[:, 1] + np.einsum("bhk,hkd->bd", mixed, w["w_out"])) @ w["unembedding"].T)
