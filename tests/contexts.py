"""What a certified threshold promises: the right neighbours in every context (Adler 2025, lemma 4.1), tried on random ones."""

import numpy as np
from numpy.typing import NDArray

from keyspan.attention import reference
from keyspan.seeds import Stream

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def contexts_missed(rows: Float, edges: Int, w_query: Float, w_key: Float, threshold: float, count: int = 100) -> int:
    """In how many of `count` random contexts some item's neighbours come out wrong, computed from the context's rows alone."""
    items = len(rows)
    truth = np.zeros((items, items), dtype=bool)
    truth[edges[:, 0], edges[:, 1]] = True
    stream = Stream("contexts", "contexts", count)
    missed = 0
    for size in 1 + stream.integers(items, count):
        context = np.sort(stream.permutation(items)[:size])
        said = reference.decisions(rows[context], w_query, w_key, -threshold)
        missed += bool((said != truth[np.ix_(context, context)]).any())
    return missed
