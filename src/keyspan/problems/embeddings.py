"""Item vectors: the fixed rows x_i that a channel sees (Adler 2025, section 3: X is m x d_model)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.problems import ContentSource
from keyspan.seeds import Stream, tree_sum
from keyspan.specs import Spec

FAMILIES = ("one-hot", "gaussian", "sign", "sparse", "clustered", "file")


@dataclass(frozen=True, kw_only=True)
class Embeddings(Spec, family="embeddings", version=1):
    """How item vectors are made. Every generated row has unit norm.

    name: one-hot (items <= d_model), gaussian (normal, then scaled to unit norm), sign (random signs / sqrt(d_model)),
    sparse (`ones` ones in random places / sqrt(ones)), clustered (`clusters` random centres, all with as many items or
    one more; two items of a cluster have a cosine of `correlation` on average), file
    content: hash of the rows that came from a file
    """

    name: str = "gaussian"
    ones: int | None = None
    clusters: int | None = field(default=None, metadata={"absent": None})
    correlation: float | None = field(default=None, metadata={"absent": None})
    content: str | None = field(default=None, metadata={"absent": None})

    def check(self) -> None:
        require(
            self.name in FAMILIES,
            f"`--embeddings` in {'|'.join(FAMILIES[:-1])} or a .npy/.safetensors file",
            repr(self.name),
            "Choose a family, or give a file that exists.",
        )
        require((self.name == "sparse") == (self.ones is not None), "`ones` with sparse only", self.ones, "Set it there.")
        require(self.ones is None or self.ones >= 1, "`ones >= 1`", self.ones, "Set at least one coordinate.")
        both = (self.clusters, self.correlation)
        rule = "`clusters` and `correlation` with clustered only, and both there"
        require(all((v is not None) == (self.name == "clustered") for v in both), rule, both, "Set them there.")
        require(self.clusters is None or self.clusters >= 1, "`clusters >= 1`", self.clusters, "Items need a centre.")
        rule = "`0 <= correlation < 1`"
        require(self.correlation is None or 0 <= self.correlation < 1, rule, self.correlation, "Equal items are one item.")
        require((self.name == "file") == (self.content is not None), "`content` with file only", self.content, "Read it.")


def check_fit(spec: Embeddings, items: int, d_model: int) -> None:
    """Refuse a family that cannot give so many rows of this width, all different."""
    if spec.name == "one-hot":
        require(items <= d_model, "`items <= d_model` (one-hot)", f"items={items}, d_model={d_model}", "Raise d_model.")
    if spec.name == "sign":
        require(items <= 2**d_model, "`items <= 2^d_model` (sign)", f"items={items}, d_model={d_model}", "Raise d_model.")
    if spec.name == "sparse":
        assert spec.ones is not None
        require(spec.ones <= d_model, "`ones <= d_model`", f"ones={spec.ones}, d_model={d_model}", "Use fewer ones.")
        room = math.comb(d_model, spec.ones)
        require(items <= room, "`items <= C(d_model, ones)`", f"items={items}, places={room}", "Raise d_model or ones.")
    if spec.name == "clustered":
        assert spec.clusters is not None
        require(spec.clusters <= items, "`clusters <= items`", f"clusters={spec.clusters}, items={items}", "Use fewer.")


def make(spec: Embeddings, items: int, d_model: int, problem_id: str, contents: ContentSource) -> NDArray[np.float64]:
    """The rows, drawn from (problem_id, "embeddings"). returns: (items, d_model)"""
    stream = Stream(problem_id, "embeddings")
    if spec.name == "file":
        assert spec.content is not None
        rows = np.asarray(contents.get(spec.content), dtype=np.float64)
        require(rows.shape == (items, d_model), "the file's shape = (items, d_model)", rows.shape, "Check the sizes.")
        return rows
    if spec.name == "one-hot":
        return np.eye(items, d_model)
    if spec.name == "gaussian":
        return _unit(stream.normal((items, d_model)))
    if spec.name == "clustered":
        return _clustered(stream, spec, items, d_model)
    return _distinct(stream, spec, items, d_model)


def _unit(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x / np.sqrt(tree_sum(x * x))[:, None]


def _clustered(stream: Stream, spec: Embeddings, items: int, d_model: int) -> NDArray[np.float64]:
    """`x_i = sqrt(rho) c_g(i) + sqrt(1 - rho) z_i`, scaled to unit norm; centres c and rests z are gaussian unit rows."""
    assert spec.clusters is not None and spec.correlation is not None
    group = stream.permutation(items) % spec.clusters
    centres = _unit(stream.normal((spec.clusters, d_model)))
    rest = _unit(stream.normal((items, d_model)))
    return _unit(math.sqrt(spec.correlation) * centres[group] + math.sqrt(1.0 - spec.correlation) * rest)


def _distinct(stream: Stream, spec: Embeddings, items: int, d_model: int) -> NDArray[np.float64]:
    """Sign or sparse rows; a row seen before is drawn again, since two equal items cannot be told apart."""
    rows = _draw(stream, spec, items, d_model)
    while True:
        _, first = np.unique(rows, axis=0, return_index=True)
        again = np.setdiff1d(np.arange(items), first)
        if again.size == 0:
            return rows
        rows[again] = _draw(stream, spec, again.size, d_model)


def _draw(stream: Stream, spec: Embeddings, items: int, d_model: int) -> NDArray[np.float64]:
    if spec.name == "sign":
        return stream.signs((items, d_model)) / math.sqrt(d_model)
    assert spec.ones is not None
    rows = np.zeros((items, d_model))
    np.put_along_axis(rows, stream.subsets(items, d_model, spec.ones), 1.0 / math.sqrt(spec.ones), axis=1)
    return rows


def gaussian() -> Embeddings:
    """Rows of independent normals, scaled to unit norm: the paper's main case."""
    return Embeddings(name="gaussian")


def one_hot() -> Embeddings:
    """The unit vectors; needs items <= d_model."""
    return Embeddings(name="one-hot")


def sign() -> Embeddings:
    """Random signs over sqrt(d_model)."""
    return Embeddings(name="sign")


def sparse(ones: int) -> Embeddings:
    """`ones` coordinates of 1/sqrt(ones) in random places."""
    return Embeddings(name="sparse", ones=ones)


def clustered(clusters: int, correlation: float = 0.5) -> Embeddings:
    """Correlated rows: `clusters` centres, and a cosine of `correlation` on average within each."""
    return Embeddings(name="clustered", clusters=clusters, correlation=correlation)


def coherence(rows: NDArray[np.float64], tile: int = 1024) -> float:
    """Largest |x_i . x_j| over i != j, by tiles: how nearly two items coincide. rows: (items, d_model)"""
    worst = 0.0
    for i in range(0, len(rows), tile):
        for j in range(i, len(rows), tile):
            gram = np.abs(rows[i : i + tile] @ rows[j : j + tile].T)
            if i == j:
                np.fill_diagonal(gram, 0.0)
            worst = max(worst, float(gram.max(initial=0.0)))
    return worst
