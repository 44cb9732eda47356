"""How far item vectors are from isotropic, and what a linear map can do about it. rows: (items, d_model)"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require

Float = NDArray[np.float64]
SMALL = 1e-10  # singular values below this share of the largest count as zero


def singular_values(rows: Float) -> Float:
    """Largest first; those that are zero but for rounding are left out."""
    values = np.linalg.svd(rows, compute_uv=False)
    return np.asarray(values[values > SMALL * values[0]])


def rank(rows: Float) -> int:
    """How many dimensions the rows span."""
    return len(singular_values(rows))


def stable_rank(rows: Float) -> float:
    """`|X|_F^2 / |X|_2^2`"""
    values = singular_values(rows)
    return float((values**2).sum() / values[0] ** 2)


def dimension_of(stable: float, items: int, d_model: int) -> float:
    """The d of Gaussian rows with this stable rank: stable (1 + sqrt(d / m))^2, at most d_model.

    m Gaussian rows in R^d have a stable rank of about d / (1 + sqrt(d/m))^2, for their largest singular value is sqrt(m) +
    sqrt(d) times that of one entry (Bai and Yin 1993). So rows without any preference are left at d.
    """
    return min(float(d_model), stable * (1 + math.sqrt(d_model / items)) ** 2)


def effective_rank(rows: Float) -> float:
    """`exp(- sum p ln p)`, p = s / sum s (Roy and Vetterli 2007)"""
    values = singular_values(rows)
    p = values / values.sum()
    return float(np.exp(-(p * np.log(p)).sum()))


def scaled(rows: Float) -> Float:
    """All rows times one number, so that their mean square length is 1."""
    size = float(np.sqrt((rows**2).sum(axis=1).mean()))
    require(size > 0, "rows that are not all zero", "zeros", "Give other rows.")
    return np.asarray(rows / size)


def centred(rows: Float) -> Float:
    """Less their mean. (No linear map does that, but one that leaves out the mean's direction comes near.)"""
    return np.asarray(rows - rows.mean(axis=0))


def whitened(rows: Float) -> Float:
    """`X (X^T X)^(-1/2)` on the span of the rows: a linear map that makes all singular values one."""
    left, values, right = np.linalg.svd(rows, full_matrices=False)
    kept = values > SMALL * values[0]
    return np.asarray(left[:, kept] @ right[kept])


TREATMENTS: dict[str, Callable[[Float], Float]] = {
    "raw": lambda rows: scaled(rows),
    "centred": lambda rows: scaled(centred(rows)),
    "whitened": lambda rows: scaled(whitened(rows)),
    "centred and whitened": lambda rows: scaled(whitened(centred(rows))),
}
