"""Cells of sequences: what a decoder was found to recite, flat enough to be fitted, drawn, and kept in a CSV file.

CSV columns, one row a cell:
    heads .. tied                              the decoder (`decoders.Decoder`)
    vocabulary, length, prompt, source         the problem
    regime, measure, recipe, optimizer, batch  how it was measured
    seeds, steps                               of the larger training, where the steps were doubled
    parameters, bits                           P; entropy of a sequence given its prompt
    capacity, low, high                        MAC and its 95% interval
    mls, nearly                                largest library recited whole, and to 99%, by every seed
    library                                    size at which the capacity was read
    stored_per_parameter, recited_per_parameter    bits: of what was shown less its surprise; capacity times entropy
    spread                                     standard deviation over seeds, as a share of the capacity
    before, moved, status                      capacity at half the steps, relative change, `measured` or `unconverged`
    failed, evidence                           members without a number; hash of the run ids
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from keyspan.decoders import Decoder, parameters
from keyspan.errors import BadInput
from keyspan.files.paths import name_of
from keyspan.files.paths import reading as opened
from keyspan.lab.recipes import Recipe
from keyspan.lab.search import Answer, Probe
from keyspan.problems.sequences import Sequences
from keyspan.specs import Question, digest

CONVERGED = 0.02  # doubling the steps must move the capacity by less than this share
LARGEST_FILE = 2**26
BY_SEEDS = "mean over seeds with its 95% Student interval"


@dataclass(frozen=True, kw_only=True)
class SequenceCell:
    """One cell. See the module for its fields."""

    heads: int
    d_model: int
    d_head: int
    layers: int = 1
    attention: str = "softmax"
    window: int | None = None
    activation: str = "gelu"
    ff: str = "trained"
    ff_factor: int = 4
    positions: str = "learned"
    norm: str = "pre"
    tied: bool = False
    vocabulary: int = 64
    length: int = 16
    prompt: int = 2
    source: str = "uniform"
    regime: str = "saturated"
    measure: str = "ride"
    recipe: str = "saturated"
    optimizer: str = "adam"
    batch: int = 0
    seeds: int = 1
    steps: int = 0
    parameters: int = 0
    bits: float = 0.0
    capacity: float | None = None
    low: float | None = None
    high: float | None = None
    mls: float | None = None
    nearly: float | None = None
    library: int = 0
    stored_per_parameter: float | None = None
    recited_per_parameter: float | None = None
    spread: float | None = None
    before: float | None = None
    moved: float | None = None
    status: str = "measured"
    failed: int = 0
    evidence: str = ""
    interval_method: str = ""
    run_ids: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The cell in words."""
        return f"H {self.heads}, N {self.length}, B {self.d_model}, {self.regime}"


COLUMNS = tuple(f.name for f in fields(SequenceCell) if f.name not in ("interval_method", "run_ids"))
_TYPES = {f.name: str(f.type) for f in fields(SequenceCell)}


def reading(questions: Sequence[Question], answers: Sequence[Answer], bits: float, measure: str) -> SequenceCell:
    """A cell from its questions, which differ in their steps, and their answers. bits: of a sequence"""
    order = sorted(range(len(questions)), key=lambda i: questions[i].recipe.steps)  # type: ignore[attr-defined]
    read = [_read(questions[i], answers[i], bits, measure) for i in order]
    last, before = read[-1], (read[-2] if len(read) > 1 else None)
    run_ids = tuple(sorted({p.run.run_id for a in answers for p in a.probes}))
    status, moved = last["status"], None
    if before is not None and before["capacity"] and last["capacity"] is not None:
        moved = last["capacity"] / before["capacity"] - 1.0
        if abs(moved) >= CONVERGED:
            status = "unconverged"
    failed = sum(a.failed for a in answers)
    extra = {"before": before["capacity"] if before else None, "moved": moved, "status": status, "failed": failed}
    question = questions[order[-1]]
    return SequenceCell(**_about(question) | last | extra | {"evidence": digest(list(run_ids), "e"), "run_ids": run_ids})


def _about(question: Question) -> dict[str, Any]:
    problem, decoder, recipe = question.problem, question.instrument, question.recipe
    assert isinstance(problem, Sequences) and isinstance(decoder, Decoder) and isinstance(recipe, Recipe)
    named = {k: v for k, v in decoder.to_json().items() if k not in ("family", "version")}
    phase = recipe.phases[0]
    return named | {
        "vocabulary": problem.vocabulary,
        "length": problem.length,
        "prompt": problem.prompt,
        "source": problem.source.name,
        "regime": "budgeted" if recipe.name == "budgeted" else "saturated",
        "recipe": recipe.name,
        "optimizer": phase.family,
        "batch": recipe.batch or 0,
        "seeds": len(question.replicates),
        "steps": recipe.steps,
        "parameters": parameters(decoder, problem.vocabulary, problem.length),
    }


def _read(question: Question, answer: Answer, bits: float, measure: str) -> dict[str, Any]:
    """What one question came to."""
    size = parameters(question.instrument, question.problem.vocabulary, question.problem.length)  # type: ignore[arg-type,attr-defined]
    at: dict[int, list[Probe]] = {}
    for probe in answer.probes:
        at.setdefault(probe.level, []).append(probe)
    known = {level: [p for p in probes if p.verdict.measured] for level, probes in at.items()}
    means = {n: float(np.mean([p.verdict.score("recited") for p in ps])) for n, ps in known.items() if ps}
    base: dict[str, Any] = {"measure": measure, "bits": bits, "status": "measured"}
    if not means:
        return base | {"capacity": None, "library": max(at), "status": str(answer.probes[0].verdict.status)}
    best = max(means, key=lambda n: (means[n], -n))
    top = [p.verdict for p in known[best]]
    recited = [v.score("recited") for v in top]
    if measure == "ladder":
        whole = [n for n, ps in at.items() if all(p.verdict.measured and p.verdict.exact for p in ps)]
        nearly = [n for n, ps in at.items() if all(p.verdict.measured and p.verdict.score("nearly") for p in ps)]
        mls: float | None = max(whole, default=0)
        near: float | None = max(nearly, default=0)
        low, high, method = answer.crossing.low, answer.crossing.high, answer.method
    else:
        all_shown = all(v.score("recited_shown") == v.score("shown") for v in top)
        most_shown = all(v.score("recited_shown") >= 0.99 * v.score("shown") for v in top)
        shown = min(v.score("shown") for v in top)
        mls, near = (shown if all_shown else None), (shown if most_shown else None)
        low, high = student(recited)
        method = BY_SEEDS
    capacity = means[best]
    spread = float(np.std(recited, ddof=1) / capacity) if len(recited) > 1 and capacity > 0 else None
    return base | {
        "capacity": capacity,
        "low": low,
        "high": high,
        "mls": mls,
        "nearly": near,
        "library": best,
        "stored_per_parameter": float(np.mean([v.score("stored_bits") for v in top])) / size,
        "recited_per_parameter": capacity * bits / size,
        "spread": spread,
        "interval_method": method,
    }


def student(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The 95% Student interval of a mean; none for a single value."""
    from scipy.special import stdtrit

    n = len(values)
    if n < 2:
        return None, None
    mean = sum(values) / n
    half = float(stdtrit(n - 1, 0.975)) * math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)
    return max(0.0, mean - half), mean + half


# ------------------------------------------------------------------------------------------------------- files


def cells_csv(cells: Sequence[SequenceCell]) -> str:
    """Cells as the text of a CSV file."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: _said(v) for k, v in asdict(cell).items() if k in COLUMNS} for cell in cells)
    return text.getvalue()


def _said(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def read_cells(path: str | Path) -> list[SequenceCell]:
    """Cells from a CSV file; heads, d_model, length and capacity must be there, the rest has defaults."""
    with opened(path, LARGEST_FILE) as (handle, _):
        raw = handle.read()
    try:
        rows = list(csv.DictReader(io.StringIO(raw.decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"`{name_of(path)}` must be a CSV file, but got {error}. Write it as harma:capacity does.") from None
    missing = {"heads", "d_model", "length", "capacity"} - set(rows[0] if rows else ())
    if missing:
        raise BadInput(
            f"`{name_of(path)}` must have columns heads, d_model, length, capacity, but got none named "
            f"{', '.join(sorted(missing))}. Write it as harma:capacity does."
        )
    return [_cell(row, f"{name_of(path)}:{number}") for number, row in enumerate(rows, 2)]


def _cell(row: dict[str, Any], place: str) -> SequenceCell:
    given = {k: v.strip() for k, v in row.items() if k in COLUMNS and isinstance(v, str) and v.strip()}
    values: dict[str, Any] = {name: _value(text, name, place) for name, text in given.items()}
    for name in ("heads", "d_model", "length"):
        if not isinstance(values.get(name), int) or values[name] < 1:
            raise BadInput(f"{place}: `{name}` must be a whole number, at least 1, but got nothing. Fill it in.")
    values.setdefault("d_head", -(-values["d_model"] // values["heads"]))
    decoder = Decoder(**{f.name: values[f.name] for f in fields(Decoder) if f.name in values})
    cell = SequenceCell(**values)
    vocabulary, length, prompt = cell.vocabulary, cell.length, cell.prompt
    problem = Sequences(length=length, vocabulary=vocabulary, prompt=prompt)
    filled = {
        "parameters": values.get("parameters") or parameters(decoder, problem.vocabulary, problem.length),
        "bits": values.get("bits") or (length - prompt) * math.log2(vocabulary),
        "evidence": values.get("evidence") or digest({k: str(v) for k, v in given.items()}, "e"),
    }
    return SequenceCell(**values | filled)


def _value(text: str, name: str, place: str) -> Any:
    kind = _TYPES[name]
    if kind.startswith("str"):
        return text
    if kind == "bool":
        return text.lower() == "true"
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or ("int" in kind and not number.is_integer()):
        raise BadInput(f"{place}: `{name}` must be a number, but got {text!r:.40}. Correct it.")
    return int(number) if "int" in kind else number
