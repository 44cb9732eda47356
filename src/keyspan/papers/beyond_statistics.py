"""What the claims beyond the paper are tested on: functions of what a comparison measured, which know no threshold."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from keyspan.evidence.cells import Cell
from keyspan.evidence.fits import LAW, RIVALS, Fit, Model, fit_models
from keyspan.papers.compared import Compared, Curve, Line
from keyspan.papers.figures import Statistic
from keyspan.papers.sweeps import Size
from keyspan.specs import digest
from keyspan.theory.bounds import law

FIT_CELLS = 6  # below, a fit says nothing
COUNTS = ("no-log", "items-log", "entropy")  # one-constant rivals of the law, which count something else
SPARSE = 4  # ones from which sparse rows are held to the claim

# ------------------------------------------------------------------------------------------------------- graphs


def graphs_r2(found: Compared) -> float | None:
    """R^2 of ln D_K* under D_K* = c m' ln m' / d, one constant for all graphs."""
    fits = count_fits(found)
    return fits["law"].r2 if fits else None


def graphs_gain(found: Compared) -> float | None:
    """Held-out error of the best other count (m', m' ln m, bits; each over d) over that of m' ln m' / d."""
    fits = count_fits(found)
    others = [fits[name].mape_held_out for name in COUNTS] if fits else []
    mine = fits["law"].mape_held_out if fits else None
    known = [error for error in others if error is not None]
    return min(known) / mine if known and mine else None


def edges_exponent(found: Compared) -> float | None:
    """s of D_K* = c(m, d) (m' ln m')^s: over graphs of one size, with a constant for every size."""
    groups: dict[Size, list[tuple[float, float]]] = defaultdict(list)
    for line in fit_lines(found):
        groups[line.size].append((math.log(line.cell.law), math.log(line.cell.key_budget or 1)))
    return slope_within(list(groups.values()))


def slope_within(groups: Iterable[Sequence[tuple[float, float]]]) -> float | None:
    """Least squares slope of (x, y) with a constant for every group."""
    over = under = 0.0
    for points in groups:
        x0, y0 = (sum(values) / len(points) for values in zip(*points, strict=True))
        over += sum((x - x0) * (y - y0) for x, y in points)
        under += sum((x - x0) ** 2 for x, _ in points)
    return over / under if under > 1e-12 else None


def family_spread(found: Compared) -> float | None:
    """Over pairs of graphs with one size and as many edges, the largest D_K* / D_K*."""
    groups: dict[tuple[Size, int], list[int]] = defaultdict(list)
    for line in fit_lines(found):
        groups[line.size, line.cell.edges].append(line.cell.key_budget or 1)
    pairs = [max(a, b) / min(a, b) for budgets in groups.values() for a, b in combinations(budgets, 2)]
    return max(pairs, default=None)


def families_spread(found: Compared) -> float | None:
    """Over sizes and families with as many edges as items: the largest factor between their D_K* and a permutation's.

    As many edges on as many items have one law, so the factor is that of D_K* / law.
    """
    wanted = [line for line in found.lines if line.cell.edges == line.cell.items and line.label != found.comparison.base]
    ratios = [found.ratio(line) for line in wanted]
    return largest(either_way(r) for r in ratios) if ratios else None


def count_fits(found: Compared) -> dict[str, Fit]:
    """The law, and what might count instead of m' ln m', fitted to all graphs; nothing where there are too few."""
    lines = fit_lines(found)
    if len(lines) < FIT_CELLS:
        return {}
    bits = {id(line.cell): line.bits for line in lines}

    def entropy(cell: Cell) -> float:
        return math.log(bits[id(cell)] / cell.d_model)

    rivals = {model.name: model for model in RIVALS}
    models = (
        LAW,
        rivals["no-log"],
        Model("items-log", "c m' ln m / d", lambda cell: math.log(cell.edges * math.log(cell.items) / cell.d_model)),
        Model("entropy", "c bits / d", entropy),
        rivals["gardner"],
        rivals["power"],
    )
    cells = [line.cell for line in lines]
    return {fit.model: fit for fit in fit_models(models, cells, digest([cell.evidence for cell in cells], "b"))}


def fit_lines(found: Compared) -> list[Line]:
    """The lines that a fit can use."""
    return [line for line in found.lines if line.cell.key_budget and not line.cell.cut_short and line.cell.law > 0]


# --------------------------------------------------------------------------------------------------- embeddings


def sign_ratio(found: Compared) -> float | None:
    """Over sizes, the largest factor between D_K* on random signs and on gaussian rows, either way."""
    return largest(either_way(r) for r in found.ratios("sign"))


def either_way(ratio: float | None) -> float | None:
    """A ratio or its inverse, whichever is above 1."""
    return max(ratio, 1 / ratio) if ratio else None


def sparse_ratio(found: Compared) -> float | None:
    """Over sizes and numbers of ones, 4 at least: the largest D_K* on sparse rows over that on gaussian rows."""
    return largest(r for label in sparse_labels(found) for r in found.ratios(label))


def sparse_labels(found: Compared) -> list[str]:
    """Sparse rows with at least 4 ones."""
    return [label for label in found.labels if label.startswith("sparse ") and int(label.split()[1]) >= SPARSE]


def clustered_ratio(found: Compared) -> float | None:
    """Over sizes, the least D_K* on clusters of correlation 0.75 over that on gaussian rows."""
    return least(found.ratios("clustered 0.75"))


# ------------------------------------------------------------------------------------------- contexts, continual


def half_contexts_ratio(found: Compared) -> float | None:
    """Over sizes, the largest D_K* with contexts of half the items over that with all, at as many steps."""
    return largest(found.ratios("1/2"))


def quarter_contexts_ratio(found: Compared) -> float | None:
    """Over sizes, the largest D_K* with contexts of a quarter of the items over that with all, at as many pairs in all."""
    return largest(found.ratios("1/4, as many pairs"))


def replay_ratio(found: Compared) -> float | None:
    """Over sizes and numbers of batches, the largest D_K* of batches that stay in view over that of all at once."""
    return largest(r for label in replay_labels(found) for r in found.ratios(label))


def replay_labels(found: Compared) -> list[str]:
    """Batches that stay in view."""
    return [label for label in found.labels if label.endswith("replay")]


def forgotten_at_twice_the_law(found: Compared) -> float | None:
    """Over sizes and numbers of batches without replay, the least that is forgotten, F1, at the budget next to 2 laws.

    With the heads whose F1 on all pairs is the largest there.
    """
    return least(curve.mean(nearest(curve, 2.0), "forgotten") for curve in forgetful(found))


def forgotten_with_room(found: Compared) -> float | None:
    """Over the same, the largest of (forgotten at 4 laws) / (forgotten at the law): does room help?"""
    ratios: list[float | None] = []
    for curve in forgetful(found):
        narrow, wide = (curve.mean(nearest(curve, f), "forgotten") for f in (1.0, 4.0))
        ratios.append(wide / narrow if narrow and wide is not None and narrow > 0 else None)
    return largest(ratios)


def types_add_up(found: Compared) -> float | None:
    """Over sizes and T, the largest factor, either way, between D_K* of T types with heads of their own and T times one's."""
    return largest(either_way(_per_type(found, line)) for line in _typed(found, "partitioned"))


def _per_type(found: Compared, line: Line) -> float | None:
    ratio = found.ratio(line)
    return None if ratio is None else ratio / types_of(line.label)


def types_over_edges(found: Compared) -> float | None:
    """Over sizes and T, the largest D_K* of T types with heads of their own over that of one relation of as many edges."""
    return largest(_over(found, line, edges_label(line)) for line in _typed(found, "partitioned"))


def leaning_ratio(found: Compared) -> float | None:
    """Over sizes and T, the largest D_K* with gates that begin leaning over that with heads of their own."""
    return largest(_over(found, line, own_label(line)) for line in _typed(found, "leaning"))


def shared_ratio(found: Compared) -> float | None:
    """Over sizes and T, the least D_K* with gates that begin equal over that with heads of their own.

    What never reaches the target counts as the most that it was tried at, which is d_key = d_model with the most heads.
    """
    return least(_over(found, line, own_label(line), censored=True) for line in _typed(found, "shared"))


def _typed(found: Compared, sharing: str) -> list[Line]:
    return [line for line in found.lines if line.label.endswith(sharing)]


def types_of(label: str) -> int:
    """`4 types, shared` -> 4"""
    return int(label.split()[0])


def own_label(line: Line) -> str:
    """The same types with heads of their own."""
    return f"{types_of(line.label)} types, partitioned"


def edges_label(line: Line) -> str:
    """One relation of as many edges."""
    return f"1 type, {types_of(line.label)} times the edges"


def _over(found: Compared, line: Line, label: str, censored: bool = False) -> float | None:
    other, here = found.at(label, line.size), line.cell.key_budget
    if here is None and censored and line.cell.most_heads:
        here = line.cell.most_heads * line.cell.d_model
    return here / other.cell.key_budget if here and other is not None and other.cell.key_budget else None


def forgetful(found: Compared) -> list[Curve]:
    """The curves of batches without replay."""
    return [curve for curve in found.curves if curve.label.endswith("batches")]


def nearest(curve: Curve, factor: float) -> int:
    """The budget measured next to so many times the law."""
    problem = curve.variant.problem
    wanted = factor * law(problem.edges, problem.d_model)
    return min(curve.budgets, key=lambda budget: abs(budget - wanted))


def least(values: Iterable[float | None]) -> float | None:
    """The smallest, if every one is known."""
    every = list(values)
    known = [v for v in every if v is not None]
    return min(known) if known and len(known) == len(every) else None


def largest(values: Iterable[float | None]) -> float | None:
    """The largest, if every one is known."""
    every = list(values)
    known = [v for v in every if v is not None]
    return max(known) if known and len(known) == len(every) else None


STATISTICS: Mapping[str, Statistic] = {
    f.__name__: f
    for f in (
        graphs_r2,
        graphs_gain,
        edges_exponent,
        family_spread,
        families_spread,
        sign_ratio,
        sparse_ratio,
        clustered_ratio,
        half_contexts_ratio,
        quarter_contexts_ratio,
        replay_ratio,
        types_add_up,
        types_over_edges,
        leaning_ratio,
        shared_ratio,
        forgotten_at_twice_the_law,
        forgotten_with_room,
    )
}
