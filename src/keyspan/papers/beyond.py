"""Beyond Adler's figures: what the paper asserts of other graphs and other item vectors, measured; the sweeps.

These are questions of our own (docs/beyond.md). They are measured as the figures are, by the same search, and are asked for
by name or all together as `adler:beyond`.

graphs: is it m' ln m' that counts, whatever the graph?    embeddings: which item vectors are as good as gaussian ones?
contexts: does training on sampled contexts find what training on all items finds?    continual: can rows be learned batch
by batch, and are those before forgotten?    typed: what do several relations on the same items cost together?
"""

from __future__ import annotations

from typing import Any

from keyspan.papers.compared import Comparison, Variant
from keyspan.papers.figures import TIERS, Figure
from keyspan.papers.sweeps import Size
from keyspan.problems import embeddings as rows
from keyspan.problems import graphs as families
from keyspan.problems.embeddings import Embeddings
from keyspan.problems.graphs import Graph
from keyspan.problems.relations import Relations
from keyspan.problems.typed import SHARING, TypedRelations
from keyspan.theory.bounds import law

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
STEPS = 2000  # of the recipe `gradient`
FEW_HEADS = (1, 2, 4, 8)
WHOLE, AT_ONCE, ONE_TYPE = "all items", "all at once", "1 type"  # what contexts, batches and types are compared with
CONTEXTS: dict[str, tuple[Size, ...]] = {
    "smoke": ((64, 32),),
    "short": ((128, 64), (128, 32)),
    "paper": ((512, 64), (1024, 128)),
}
SHARES = {"smoke": (2, 4), "short": (2, 4, 8), "paper": (2, 4, 8)}  # of the items
MOST_STEPS = {"smoke": 2, "short": 4, "paper": 4}  # the largest with which as many pairs are tried: steps grow as its square
CONTINUAL: dict[str, tuple[Size, ...]] = {
    "smoke": ((32, 32),),
    "short": ((64, 32), (128, 32)),
    "paper": ((512, 64), (1024, 128)),
}
BATCHES = {"smoke": (2,), "short": (4, 8), "paper": (4, 16)}
TYPED: dict[str, tuple[Size, ...]] = {
    "smoke": ((32, 16),),
    "short": ((64, 32), (64, 16)),
    "paper": ((256, 64), (256, 32)),
}
TYPES = {"smoke": (2,), "short": (2, 4), "paper": (2, 4, 8)}
BUDGETS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)  # of the law, where curves are measured


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


def _contexts(tier: str) -> Comparison:
    """All pairs; and contexts of a share of the items, at as many steps, and at as many pairs in all."""
    variants = []
    for m, d in CONTEXTS[tier]:
        problem, heads = Relations(items=m, d_model=d), tuple(h for h in FEW_HEADS if 8 * h <= m)
        variants.append(Variant(label=WHOLE, problem=problem, asked=(("heads", heads),)))
        for share in SHARES[tier]:
            size = m // share - 1  # one less: contexts are padded by one at least, to a multiple of 32
            asked = (("heads", heads), ("contexts", size))
            variants.append(Variant(label=f"1/{share}", problem=problem, asked=asked))
            if share <= MOST_STEPS[tier]:
                more = (*asked, ("steps", STEPS * share * share))
                variants.append(Variant(label=f"1/{share}, as many pairs", problem=problem, asked=more))
    return Comparison(variants=tuple(variants), seeds=SEEDS[tier], base=WHOLE)


def _continual(tier: str) -> Comparison:
    """All at once; and batches with and without those before: D_K* of what may reach it, and curves of all."""
    variants = []
    for m, d in CONTINUAL[tier]:
        problem, heads = Relations(items=m, d_model=d), tuple(h for h in FEW_HEADS if 8 * h <= m)
        kinds: list[tuple[str, tuple[tuple[str, Any], ...]]] = [(AT_ONCE, ())]
        for count in BATCHES[tier]:
            kinds += [(f"{count} batches, replay", (("batches", count), ("replay", True)))]
            kinds += [(f"{count} batches", (("batches", count),))]
        unit = heads[-1]  # every budget is a multiple of the most heads
        budgets = sorted({unit * max(1, round(f * law(m, d) / unit)) for f in BUDGETS})
        for label, show in kinds:
            asked = (("heads", heads), ("steps", 2 * STEPS), *show)
            variants.append(Variant(label=label, problem=problem, asked=(*asked, ("key_budgets", tuple(budgets)))))
            if "batches" not in label or "replay" in label:
                variants.append(Variant(label=label, problem=problem, asked=asked))
    return Comparison(variants=tuple(variants), seeds=SEEDS[tier], base=AT_ONCE)


def _typed(tier: str) -> Comparison:
    """Several permutations on the same items: heads of their own, shared and leaning; beside one relation of as many edges."""
    variants = []
    for m, d in TYPED[tier]:
        few = tuple(h for h in FEW_HEADS if 8 * h <= m)
        one = Relations(items=m, d_model=d)
        variants.append(Variant(label=ONE_TYPE, problem=one, asked=(("heads", few),)))
        for types in TYPES[tier]:
            union = Relations(items=m, d_model=d, graph=families.regular(types))
            variants.append(Variant(label=f"1 type, {types} times the edges", problem=union, asked=(("heads", few),)))
            for sharing in SHARING:
                problem = TypedRelations(items=m, d_model=d, types=types)
                heads = tuple(types * h for h in (few if sharing == "partitioned" else few[:3]))  # gates are tried with less
                asked = (("heads", heads), ("sharing", sharing))
                variants.append(Variant(label=f"{types} types, {sharing}", problem=problem, asked=asked))
    return Comparison(variants=tuple(variants), seeds=SEEDS[tier], base=ONE_TYPE)


def figures() -> dict[str, Figure]:
    """The figures by name."""
    kinds = (
        ("graphs", "Other graphs: the key budget against m' ln m' / d", _graphs),
        ("embeddings", "Other item vectors: the key budget beside that of gaussian rows", _embeddings),
        ("contexts", "Trained on sampled contexts: the key budget beside that of all items", _contexts),
        ("typed", "Several relations on the same items: what they cost together", _typed),
        ("continual", "Rows learned batch by batch: what is learned, kept, and forgotten", _continual),
    )
    return {name: Figure(name, title, {tier: sweep(tier) for tier in TIERS}, GROUP) for name, title, sweep in kinds}
