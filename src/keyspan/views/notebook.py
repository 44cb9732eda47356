"""What a result looks like in a notebook: a few facts, its table, and its figure as an inline SVG; scripts are not needed.

Results are told apart by the name of their class, so this room imports none of the rooms that make them. A class that is not
listed is shown by the plain facts of its `.to_dict()`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from keyspan.evidence.intervals import student
from keyspan.specs import canonical, digest
from keyspan.views.figures import draw_threshold_curves, threshold_curves_info
from keyspan.views.notebook_draw import Fractions, Loads, Range, Scores, draw_fractions, draw_loads, draw_range, draw_scores
from keyspan.views.pictures import svg_text
from keyspan.views.report import text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 30  # rows of a table; a result's `.to_dict()` has all
STYLE = "border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:90%"
CELL = "padding:.15em .6em;text-align:left;border-bottom:1px solid #8886"


@dataclass(frozen=True)
class Shown:
    """title: one line    facts: name -> value    rows: of the table    pictures: SVG elements"""

    title: str
    facts: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]] = ()
    pictures: Sequence[str] = ()


def html(result: Any) -> str:
    """A result as HTML."""
    data = result.to_dict()
    shown = SHOWN.get(type(result).__name__, _plain)(result, data)
    pictures = "".join(f'<div style="background:#fff;max-width:52em">{svg}</div>' for svg in shown.pictures)
    facts = _table([{"": name, " ": value} for name, value in shown.facts.items() if value is not None], head=False)
    left = len(shown.rows) - MOST
    more = f"<p>{left} more rows: .to_dict() has them.</p>" if left > 0 else ""
    return f"<div><p><b>{escape(shown.title)}</b></p>{facts}{pictures}{_table(shown.rows[:MOST])}{more}</div>"


def _table(rows: Sequence[Mapping[str, Any]], head: bool = True) -> str:
    if not rows:
        return ""
    names = list(rows[0])
    top = "".join(f'<th style="{CELL}" scope="col">{escape(name)}</th>' for name in names)
    cells = ("".join(f'<td style="{CELL}">{escape(text(row.get(name)))}</td>' for name in names) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in cells)
    return f'<table style="{STYLE}">{f"<thead><tr>{top}</tr></thead>" if head else ""}<tbody>{body}</tbody></table>'


def _interval(value: Mapping[str, Any]) -> str:
    ends = ("?" if value[end] is None else text(value[end]) for end in ("low", "high"))
    return "not reached" if value["estimate"] is None else "{} [{}, {}]".format(text(value["estimate"]), *ends)


def _svg(info: Any, draw: Callable[[Any, list[Axes]], None], size: tuple[float, float] = (6.8, 3.0), panels: int = 1) -> str:
    prefix = digest(canonical(info.rows()), "n")[:9] + "-"
    return svg_text(info, draw, size=size, panels=panels, prefix=prefix)


# ---------------------------------------------------------------------------------------------------- by kind of result


def _plain(result: Any, data: Mapping[str, Any]) -> Shown:
    facts = {k: v for k, v in data.items() if isinstance(v, str | int | float | bool) and k not in ("schema", "keyspan")}
    budgets = {k: _interval(v) for k, v in data.items() if isinstance(v, Mapping) and {"estimate", "low", "high"} <= set(v)}
    return Shown(type(result).__name__, facts | budgets)


def _relations(result: Any, data: Mapping[str, Any]) -> Shown:
    info = threshold_curves_info(data)
    facts = {"D_K*": _interval(data["key_budget"]), "heads": data["heads"], "d_key": data["d_key"], "law": data["law"]}
    facts |= {"D_K* / law": data["ratio"], "lower bound": data["lower_bound"], "seeds": data["seeds"]}
    svg = _svg(info, lambda i, axes: draw_threshold_curves(i, axes[0]), (6.8, 3.4)) if info.points else ""
    rows = [{k: r[k] for k in ("heads", "key_budget", "f1", "low", "high", "seeds")} for r in info.rows()]
    return Shown(f"{info.title}, recipe {data['recipe']}", facts, rows, [svg] if svg else [])


def _design(result: Any, data: Mapping[str, Any]) -> Shown:
    budget = data["key_budget"]
    points = [("lower bound", float(budget["lower_bound"]), "theory"), ("design", float(budget["estimate"]), "design")]
    points.append(("explicit weights, certain", float(budget["construction"]), "construction"))
    info = Range(tuple(points), budget["low"], budget["high"], "total key dimension D_K")
    facts = {"heads": data["heads"], "d_key": data["d_key"], "D_K": _interval(budget), "parameters": data["parameters"]}
    facts |= {
        "bits per parameter": data["bits_per_parameter"],
        "basis": data["basis"],
        "notes": "; ".join(data["notes"]) or None,
    }
    names = ("heads", "d_key", "key_budget", "parameters", "bits_per_parameter", "feasible")
    rows = [{name: _field(other, name) for name in names} for other in data["alternatives"]]
    return Shown(
        f"{data['edges']} edges on {data['items']} items in {data['d_model']} dimensions",
        facts,
        rows,
        [_svg(info, draw_range, (6.8, 1.3))],
    )


def _field(entry: Any, name: str) -> Any:
    return entry.get(name) if isinstance(entry, Mapping) else getattr(entry, name, None)


def _certificate(result: Any, data: Mapping[str, Any]) -> Shown:
    edge, rival, own = data["min_edge"], data["max_nonedge"], data["threshold"]
    facts = {k: data[k] for k in ("exact", "f1", "f1_best", "threshold", "margin", "heads", "d_key", "key_budget")}
    if "proved" in data:
        facts |= {"proved": data["proved"]}
    pairs = [(name, e) for name, e in (("lowest edge", edge), ("highest non-edge", rival)) if e]
    rows = [{"pair": name, "score": f"{e['score']:.9g}", "source": e["source"], "target": e["target"]} for name, e in pairs]
    info = Scores(tuple((name, float(e["score"])) for name, e in pairs), None if own is None else float(own))
    title = "Exact on all pairs" if data["exact"] else "Not exact"
    return Shown(title, facts, rows, [_svg(info, draw_scores, (6.8, 1.3))] if rows else [])


def _calibration(result: Any, data: Mapping[str, Any]) -> Shown:
    measured = {"estimate": data["measured"], "low": data["low"], "high": data["high"]}
    facts = {"known": data["known"], "measured": _interval(measured), "covered": data["covered"]}
    facts |= {"gradient": _interval(data["gradient"]), "falls short by": data["gradient_shortfall"]}
    info = Fractions(tuple(data["probes"]), data["known"])
    names = ("recipe", "examples", "fitted", "of", "fraction", "low", "high", "exact")
    rows = [{name: probe[name] for name in names} for probe in data["probes"]]
    return Shown(f"Calibration in {data['dimension']} dimensions", facts, rows, [_svg(info, draw_fractions)])


def _labels(result: Any, data: Mapping[str, Any]) -> Shown:
    found = data["capacity"]
    largest = {"estimate": found["largest"], "low": found["low"], "high": found["high"]}
    facts = {"memorised": _interval(largest), "yield": found["yield"], "theorem": data["theorem"], "cap": data["cap"]}
    facts |= {"heads": data["heads"], "d_head": data["d_head"], "seeds": data["seeds"], "recipe": data["recipe"]}
    info = _loads(data["probes"], "examples", "accuracy", "examples T", (("theorem", float(data["theorem"])),))
    return Shown("Labelled examples memorised", facts, info.rows(), [_svg(info, draw_loads)] if info.points else [])


def _sequences(result: Any, data: Mapping[str, Any]) -> Shown:
    found = data["capacity"]
    mac = {"estimate": found["mac"], "low": found["low"], "high": found["high"]}
    facts = {"recited": _interval(mac), "recited whole": found["mls"], "data ceiling": data["data_ceiling"]}
    facts |= {name: data[name] for name in ("measure", "regime", "bits_per_parameter", "parameters", "seeds")}
    info = _loads(data["probes"], "library", "recited", "sequences in the library", ())
    return Shown("Sequences recited", facts, info.rows(), [_svg(info, draw_loads)] if info.points else [])


def _loads(
    probes: Sequence[Mapping[str, Any]], load: str, score: str, label: str, known: tuple[tuple[str, float], ...]
) -> Loads:
    """Means over seeds at every load."""
    seen: dict[float, list[float]] = {}
    for probe in probes:
        if probe.get(score) is not None:
            seen.setdefault(float(probe[load]), []).append(float(probe[score]))
    return Loads(tuple((x, *student(values), len(values)) for x, values in sorted(seen.items())), label, score, known)


def _swept(result: Any, data: Mapping[str, Any]) -> Shown:
    facts = {name: data[name] for name in ("cells", "done", "failed", "open", "skipped", "trained_now")}
    rows = [{name: row.get(name) for name in data["results"][0]} for row in data["results"]]
    return Shown(f"Sweep {data['sweep']}", facts, rows)


def _fit(result: Any, data: Mapping[str, Any]) -> Shown:
    facts: dict[str, Any] = {name: _interval(value) for name, value in data["parameters"].items()}
    facts |= {"R²": data.get("r2"), "error": data.get("mape"), "held out": data.get("mape_held_out")}
    names = ("formula", "mape", "mape_held_out", "r2", "aic")
    rows = [{name: model.get(name) for name in names} for model in (data, *data["rivals"])]
    return Shown(f"{data.get('formula', data['model'])}, {len(data['cells'])} cells", facts, rows)


def _reproduced(result: Any, data: Mapping[str, Any]) -> Shown:
    from keyspan.views.drawings import svg_of

    names = ("id", "statistic", "test", "threshold", "measured", "low", "high", "holds")
    rows = [{name: claim.get(name) for name in names} for claim in data["claims"]]
    pictures = [svg_of(info, name, result.plan.paper.name) for name, info in result.infos.items()]
    return Shown(
        f"{data['figure']} at tier {data['tier']}",
        {k: data[k] for k in ("cells", "done", "failed", "trained_now")},
        rows,
        pictures,
    )


def _ledger(result: Any, data: Mapping[str, Any]) -> Shown:
    from keyspan.views.bits import bits_svg

    names = ("id", "claim", "measured", "low", "high", "status")
    decided = sorted(data["claims"], key=lambda claim: claim["status"] == "unmeasured")  # in a long list, these come first
    rows = [{name: claim[name] for name in names} for claim in decided]
    return Shown(f"{len(rows)} claims", data["counts"], rows, [bits_svg(result.bits)] if result.bits else [])


def _audit(result: Any, data: Mapping[str, Any]) -> Shown:
    from keyspan.views import audit
    from keyspan.views.audit_draw import draw_map, size_of

    info = audit.used_info(data)
    names = ("layer", "heads", "kv_heads", "d_key", "key_budget", "used", "used_fraction", "distinct_heads")
    rows = [{name: layer[name] for name in names} for layer in data["layers"]]
    facts = {k: v for k, v in data["summary"].items() if isinstance(v, int | float)}
    return Shown(f"Audit of {data['folder']}", facts, rows, [_svg(info, draw_map, size_of(info))])


def _prediction(result: Any, data: Mapping[str, Any]) -> Shown:
    facts = {"law": data["model"], "regime": data["regime"], "parameters": data["parameters"], "fitted to": data["source"]}
    if data["capacity"] is not None:
        facts["capacity"] = _interval(data["capacity"])
    return Shown(
        "A capacity predicted" if data["capacity"] is not None else "The cheapest that will do", facts, data["cheapest"]
    )


SHOWN: dict[str, Callable[[Any, Mapping[str, Any]], Shown]] = {
    "RelationsResult": _relations,
    "Design": _design,
    "Certificate": _certificate,
    "ConstructResult": _certificate,
    "CalibrateResult": _calibration,
    "LabelsResult": _labels,
    "SequencesResult": _sequences,
    "FitResult": _fit,
    "EcmResult": _fit,
    "Prediction": _prediction,
    "Swept": _swept,
    "Reproduced": _reproduced,
    "Ledger": _ledger,
    "Audit": _audit,
}
