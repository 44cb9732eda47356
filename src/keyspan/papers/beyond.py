"""Beyond Adler's figures: what the paper asserts of other graphs and other item vectors, measured; the sweeps.

These are questions of our own (docs/beyond.md). They are measured as the figures are, by the same search, and are asked for
by name or all together as `adler:beyond`.

graphs: is it m' ln m' that counts, whatever the graph?    embeddings: which item vectors are as good as gaussian ones?
"""

from __future__ import annotations

from keyspan.papers.compared import Comparison, Variant
from keyspan.papers.figures import TIERS, Figure
from keyspan.papers.sweeps import Size
from keyspan.problems import embeddings as rows
from keyspan.problems import graphs as families
from keyspan.problems.embeddings import Embeddings
from keyspan.problems.graphs import Graph
from keyspan.problems.relations import Relations

GROUP = "beyond"
SEEDS = {"smoke": 2, "short": 3, "paper": 5}
ARITHMETIC = {"smoke": "fp32", "short": "fp32", "paper": "bf16"}
MULTIPLES = {"smoke": (2,), "short": (2, 4), "paper": (2, 4, 8)}  # edges, over items
GRAPHS: dict[str, tuple[Size, ...]] = {
    "smoke": ((32, 32),),
    "short": ((64, 32), (128, 64), (128, 32)),
    "paper": ((512, 128), (512, 64), (1024, 128), (1024, 64)),
}
ROWS: dict[str, tuple[Size, ...]] = {
    "smoke": ((32, 16),),
    "short": ((128, 64), (128, 32)),
    "paper": ((512, 64), (1024, 128), (1024, 64)),
}
ONES = (2, 4, 8, 16)
CORRELATIONS = (0.25, 0.5, 0.75, 0.9)
CLUSTER = 8  # items of a cluster


def _sized(items: int, tier: str) -> list[tuple[str, Graph]]:
    """Every family at as many edges as items, and those that may have more at their multiples."""
    base = [("permutation", families.permutation()), ("functional", families.functional())]
    base += [("Erdos-Renyi", families.erdos_renyi()), ("power law", families.power_law())]
    for k in MULTIPLES[tier]:
        base += [(f"{k}-regular", families.regular(k)), (f"Erdos-Renyi x{k}", families.erdos_renyi(k * items))]
        base += [(f"power law x{k}", families.power_law(k * items))]
    return base


def _graphs(tier: str) -> Comparison:
    variants = [
        Variant(label=label, problem=Relations(items=m, d_model=d, graph=graph))
        for m, d in GRAPHS[tier]
        for label, graph in _sized(m, tier)
    ]
    return Comparison(variants=tuple(variants), seeds=SEEDS[tier], base="permutation", arithmetic=ARITHMETIC[tier])


def _families(items: int, d_model: int) -> list[tuple[str, Embeddings]]:
    found = [("gaussian", rows.gaussian()), ("sign", rows.sign())]
    found += [(f"sparse {ones}", rows.sparse(ones)) for ones in ONES if 2 * ones <= d_model]
    return found + [(f"clustered {rho:g}", rows.clustered(items // CLUSTER, rho)) for rho in CORRELATIONS]


def _embeddings(tier: str) -> Comparison:
    variants = [
        Variant(label=label, problem=Relations(items=m, d_model=d, embeddings=made))
        for m, d in ROWS[tier]
        for label, made in _families(m, d)
    ]
    return Comparison(variants=tuple(variants), seeds=SEEDS[tier], base="gaussian", arithmetic=ARITHMETIC[tier])


def figures() -> dict[str, Figure]:
    """The figures by name."""
    kinds = (
        ("graphs", "Other graphs: the key budget against m' ln m' / d", _graphs),
        ("embeddings", "Other item vectors: the key budget beside that of gaussian rows", _embeddings),
    )
    return {name: Figure(name, title, {tier: sweep(tier) for tier in TIERS}, GROUP) for name, title, sweep in kinds}
