"""What the page's design view asks: theory, explicit weights and measured points for sizes that a slider moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from keyspan.advice.design import design
from keyspan.problems.graphs import log2_choose
from keyspan.theory.bounds import gardner_budget, law, trivial_budget, warren_budget
from keyspan.views.web.index import Cell

PLACES = 17  # of a curve
NEAR = 0.1  # relative: a measured cell is shown where its edges per item are so near to those asked for
MOST_EDGES = 2**40


def design_answer(
    items: int, d_model: int, edges: int | None, target: float, heads: int | None, cells: Iterable[Cell] = ()
) -> dict[str, Any]:
    """The design for these sizes, curves along items and along d_model, and what was measured near them.

    Sizes that make no sense together are moved to the nearest that do; `asked` says what the answer is for.
    """
    edges = items if edges is None else edges
    edges = max(1, min(edges, items * items - 1, MOST_EDGES))
    found = design(items=items, d_model=d_model, edges=edges, target=target).to_dict()
    chosen = found["heads"] if heads is None else max(1, min(heads, edges))
    points = [cell for cell in cells if cell.kind == "relations"]
    return {
        "asked": {"items": items, "d_model": d_model, "edges": edges, "target": target, "heads": chosen},
        "design": found,
        "here": _here(items, d_model, edges, chosen),
        "along_items": _along_items(items, d_model, edges, chosen, target, points),
        "along_d_model": _along_d_model(items, d_model, edges, chosen, target, points),
    }


def _here(items: int, d_model: int, edges: int, heads: int) -> dict[str, Any]:
    """Every bound for the heads that were chosen."""
    wanted = law(edges, d_model)
    d_key = max(1, math.ceil(wanted / heads))
    budget = heads * d_key
    return {
        "heads": heads,
        "d_key": d_key,
        "key_budget": budget,
        "parameters": 2 * d_model * budget,
        "law": wanted,
        "lower_bound": _warren(items, d_model, edges, heads),
        "solver": _gardner(items, d_model, edges, heads),
        "construction": trivial_budget(edges),
        "wider_than_rows": d_key > d_model,
    }


@lru_cache(maxsize=8192)
def _warren(items: int, d_model: int, edges: int, heads: int) -> float:
    return warren_budget(log2_choose(items * items, edges), items, d_model, heads)


@lru_cache(maxsize=8192)
def _gardner(items: int, d_model: int, edges: int, heads: int) -> float | None:
    return gardner_budget(edges, items, d_model, heads)


# ------------------------------------------------------------------------------------------------------------- curves


def _along_items(items: int, d_model: int, edges: int, heads: int, target: float, cells: Sequence[Cell]) -> dict[str, Any]:
    ratio = edges / items
    places = _places(items, 8, 2**24)

    def of(m: int) -> int:
        return max(1, min(round(ratio * m), m * m - 1))

    near = [c for c in cells if int(c.problem["d_model"]) == d_model and _near(c, ratio)]
    lines = _theory(places, lambda m: (m, d_model, of(m)), heads)
    return {"label": f"items, at d_model {d_model}", "at": items, "lines": lines, "measured": _measured(near, "items", target)}


def _along_d_model(items: int, d_model: int, edges: int, heads: int, target: float, cells: Sequence[Cell]) -> dict[str, Any]:
    ratio = edges / items
    near = [c for c in cells if int(c.problem["items"]) == items and _near(c, ratio)]
    lines = _theory(_places(d_model, 2, 2**16), lambda d: (items, d, edges), heads)
    measured = _measured(near, "d_model", target)
    return {"label": f"d_model, of {items} items", "at": d_model, "lines": lines, "measured": measured}


def _places(middle: int, least: int, most: int) -> list[int]:
    """Whole numbers from an eighth to eight times, evenly on a logarithmic scale, the middle among them."""
    steps = [middle * 2 ** (6 * (k / (PLACES - 1) - 0.5)) for k in range(PLACES)]
    return sorted({min(most, max(least, round(step))) for step in steps})


def _theory(places: list[int], sizes: Callable[[int], tuple[int, int, int]], heads: int) -> list[dict[str, Any]]:
    """Lines over the places. sizes: (items, d_model, edges) at a place"""
    curves: dict[str, list[dict[str, Any]]] = {"law": [], "solver": [], "lower": [], "certain": []}
    for x in places:
        m, d, e = sizes(x)
        curves["law"].append({"x": x, "y": law(e, d)})
        curves["solver"].append({"x": x, "y": _gardner(m, d, e, heads)})
        curves["lower"].append({"x": x, "y": _warren(m, d, e, heads)})
        curves["certain"].append({"x": x, "y": float(trivial_budget(e))})
    names = {
        "law": ("law m′ ln m′ / d", "dashed"),
        "solver": (f"solver, {heads} heads (conjectured)", "dashed"),
        "lower": ("lower bound, proven", "dashed"),
        "certain": ("explicit weights, certain", "dotted"),
    }
    return [{"id": k, "name": names[k][0], "style": names[k][1], "points": points} for k, points in curves.items()]


def _near(cell: Cell, ratio: float) -> bool:
    graph = cell.problem["graph"]
    if graph["name"] == "file":
        return False
    items = int(cell.problem["items"])
    edges = graph.get("edges") or (graph.get("degree") or 1) * items
    return bool(abs(edges / items / ratio - 1) <= NEAR)


def _measured(cells: Sequence[Cell], along: str, target: float) -> list[dict[str, Any]]:
    """D_K at the target of every cell near, with its bracket."""
    out = []
    for cell in cells:
        found = cell.capacity(target)
        if found["estimate"] is not None:
            names = {"y": found["estimate"], "low": found["low"], "high": found["high"], "heads": found["heads"]}
            series = f"{cell.recipe}, {cell.unusual}" if cell.unusual else cell.recipe
            out.append({"x": int(cell.problem[along]), "cell": cell.id, "series": series, "title": cell.title} | names)
    return sorted(out, key=lambda point: (point["series"], point["x"], point["y"]))
