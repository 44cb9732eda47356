"""Scores of a channel, a tile of items by a tile of items at a time; queries and keys held if they fit, else formed anew."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import require
from keyspan.problems.relations import RelationInstance

Float = NDArray[np.float64]
Int = NDArray[np.int64]
TILE = 1024
BLOCK = 64
HOLD = 1 << 27  # bytes of queries and keys that are held whole
STRIP = 64  # rows at a time where many heads are compared: scores then stay in the cache
SOME = 1 << 21  # numbers in a piece of whatever is gathered edge by edge


def check_weights(instance: RelationInstance, w_query: Float, w_key: Float) -> None:
    """Refuse weights of another shape than (heads, d_model, d_key), or of another width than the rows."""
    d_model = instance.embeddings.shape[1]
    ok = w_query.ndim == 3 and w_query.shape == w_key.shape and w_query.shape[1] == d_model and w_query.size > 0
    rule = "w_query and w_key are (heads, d_model, d_key) alike"
    require(ok, rule, f"{w_query.shape} and {w_key.shape} for d_model={d_model}", "Check the weights.")


class Projected:
    """`X W` of every head, tile by tile. x: (items, d_model)    w: (heads, d_model, d_key)

    Items are padded to whole blocks of a matrix product. What is left over at its rim is summed in another order, and
    two items with one vector would get two scores.
    """

    def __init__(self, x: Float, w: Float, size: int) -> None:
        self.x, self.w, self.size = x, w, size
        self.held: Float | None = None
        if 16 * len(x) * w.shape[0] * w.shape[2] <= HOLD:
            self.held = np.ascontiguousarray(_padded(x) @ w)

    def starts(self) -> range:
        """Where tiles start."""
        return range(0, len(self.x), self.size)

    def rows(self, start: int) -> Float:
        """The tile that starts there. returns: (heads, rows, d_key), rows up to whole blocks"""
        if self.held is not None:
            return np.asarray(self.held[:, start : start + self.size])
        return np.asarray(_padded(self.x[start : start + self.size]) @ self.w)

    def columns(self, start: int) -> Float:
        """The same, transposed. returns: (heads, d_key, rows)"""
        return self.rows(start).transpose(0, 2, 1)

    def at(self, head: int, items: Int) -> Float:
        """Some items of one head. returns: (len(items), d_key)"""
        return np.asarray(self.x[items] @ self.w[head] if self.held is None else self.held[head, items])


def _padded(x: Float) -> Float:
    missing = -len(x) % BLOCK
    return np.concatenate([x, np.zeros((missing, x.shape[1]))]) if missing else x


class Tiles:
    """Scores `S_ij = max_k q_i . k_j` by tiles. size: items along a tile's side, whole blocks"""

    def __init__(self, instance: RelationInstance, w_query: Float, w_key: Float, tile: int = TILE) -> None:
        check_weights(instance, w_query, w_key)
        asks, x = instance.embeddings, instance.embeddings  # the rows that ask, and those that are asked
        self.sources, self.items, self.edges = len(asks), len(x), instance.edges
        self.size = -(-tile // BLOCK) * BLOCK
        self.heads, _, self.d_key = w_query.shape
        self.q = Projected(asks, np.asarray(w_query, dtype=np.float64), self.size)
        self.k = Projected(x, np.asarray(w_key, dtype=np.float64), self.size)
        self._key: tuple[int, Float] = (-1, np.empty(0))
        self._query: tuple[int, Float] = (-1, np.empty(0))

    @property
    def pairs(self) -> int:
        """Ordered pairs of one that asks and one that is asked."""
        return self.sources * self.items

    def corners(self) -> list[tuple[int, int]]:
        """First row and first column of every tile."""
        return [(top, left) for top in self.q.starts() for left in self.k.starts()]

    def queries(self, top: int) -> Float:
        """Rows of a band; the last one asked for is kept. returns: (heads, rows, d_key)"""
        if self._query[0] != top:
            self._query = (top, self.q.rows(top))
        return self._query[1]

    def keys(self, left: int) -> Float:
        """returns: (heads, d_key, columns), contiguous"""
        if self._key[0] != left:
            self._key = (left, np.ascontiguousarray(self.k.columns(left)))
        return self._key[1]

    def inside(self, top: int, left: int) -> tuple[Int, tuple[Int, Int]]:
        """The edges of a tile. returns: which they are, and their rows and columns in it"""
        lo, hi = np.searchsorted(self.edges[:, 0], [top, top + self.size])
        target = self.edges[lo:hi, 1]
        which = lo + np.flatnonzero((target >= left) & (target < left + self.size))
        return which, (self.edges[which, 0] - top, self.edges[which, 1] - left)

    def look(self, corner: tuple[int, int]) -> tuple[Float, Float, Int]:
        """One tile. returns: its scores with -inf at the edges, the edges' scores, which edges they are

        Edges and non-edges come out of one product, so that a score has one value: a product summed in another order
        differs in its last bit, and a non-edge that ties an edge would be misjudged.
        """
        top, left = corner
        q, k = self.queries(top), self.keys(left)
        best = np.asarray(q[0] @ k[0])
        for head in range(1, self.heads):
            np.maximum(best, q[head] @ k[head], out=best)
        best = self.level(best[: self.sources - top, : self.items - left])
        which, at = self.inside(top, left)
        found = best[at]
        best[at] = -np.inf
        return best, found, which

    def pieces(self) -> Iterator[tuple[slice, list[tuple[Float, Float]]]]:
        """Queries and keys of the edges' ends, some edges at a time: which, and per head (edges, d_key) twice."""
        step = max(1, SOME // max(self.d_key * self.heads, self.q.x.shape[1]))
        for first in range(0, len(self.edges), step):
            here = slice(first, first + step)
            source, target = self.edges[here].T
            yield here, [(self.q.at(head, source), self.k.at(head, target)) for head in range(self.heads)]

    def near(self) -> Float:
        """Scores of the edges, each product by itself: those of the tiles but for their last bits. returns: (m',)"""
        out = np.empty(len(self.edges))
        for here, ends in self.pieces():
            out[here] = self.level(np.max([np.einsum("ed,ed->e", q, k) for q, k in ends], axis=0))
        return out

    def level(self, best: Float) -> Float:
        """What of the largest score is compared with the threshold: all of it. It never grows it, nor changes an order."""
        return best

    def largest(self) -> float:
        """A bound that every product and every sum of products stays below."""
        sides: list[float] = []
        for side in (self.q, self.k):
            tops = [side.held] if side.held is not None else (side.rows(start) for start in side.starts())
            sides.append(float(np.max([np.abs(rows).max() for rows in tops])))
        return float(sides[0] * sides[1] * self.d_key)


def top_of(tile: NDArray[np.floating]) -> tuple[float, tuple[int, int]]:
    """The largest entry, and its row and column."""
    at = int(tile.argmax())
    row, column = divmod(at, tile.shape[1])
    return float(tile[row, column]), (row, column)
