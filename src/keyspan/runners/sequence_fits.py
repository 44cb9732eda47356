"""The empirical capacity model from what was measured: `keyspan fit ecm`, `keyspan predict ecm`.

Cells come from a CSV file, or are recovered from records: the questions that a measurement would have asked are asked again
of every decoder and problem found there, and answered from the records alone. A prediction takes the fit of the store's own
cells where there are enough, else the one that is shipped with this package.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from keyspan.decoders import Decoder, parameters
from keyspan.display import Displayed
from keyspan.errors import BadInput, require
from keyspan.evidence.fits_ecm import EcmFit, LawFit, fit_ecm
from keyspan.evidence.record import Record, head
from keyspan.evidence.sequence_cells import SequenceCell, read_cells, reading
from keyspan.evidence.store import open_store
from keyspan.files.paths import name_of, shown
from keyspan.lab.recipes import Recipe
from keyspan.lab.search import Answer, propose
from keyspan.problems.sequences import Sequences
from keyspan.runners.cells import read_records, seed_sets
from keyspan.runners.lab import default_store
from keyspan.runners.sequences import REGIMES, USUAL, ask_sequences
from keyspan.specs import Run, canonical, is_known
from keyspan.theory import ecm
from keyspan.theory.ecm import Choice
from keyspan.verdict import Verdict

SHIPPED = "ecm_fit.json"  # beside evidence/fits_ecm.py: the text that `ship` makes, once a grid is measured in full
LeftOut = tuple[str, str]


@dataclass(frozen=True)
class EcmResult(Displayed):
    """The model fitted to the cells of one regime. source: where they came from"""

    source: str
    fit: EcmFit

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan fit ecm`."""
        best = self.fit.best
        predicted = self.fit.predictions(best)
        rows = [
            {
                "heads": c.heads,
                "length": c.length,
                "d_model": c.d_model,
                "parameters": c.parameters,
                "capacity": c.capacity,
                "low": c.low,
                "high": c.high,
                "predicted": float(p),
                "residual": (c.capacity or 0.0) / float(p) - 1.0 if p else None,
            }
            for c, p in zip(self.fit.used, predicted, strict=True)
        ]
        rivals = [fit.to_dict() for fit in self.fit.fits if fit is not best]
        return (
            head()
            | {"source": self.source, "regime": self.fit.regime}
            | best.to_dict()
            | {
                "rivals": rivals,
                "cells_used": len(rows),
                "cells": rows,
                "left_out": [{"cell": name, "reason": reason} for name, reason in self.fit.left_out],
                "fit_id": self.fit.fit_id,
                "run_ids": sorted({run_id for cell in self.fit.used for run_id in cell.run_ids}),
                "trained_now": 0,
            }
        )

    def shipped(self) -> dict[str, Any]:
        """What is needed to predict, with where it is from."""
        used = self.fit.used
        return {
            "fit_id": self.fit.fit_id,
            "source": self.source,
            "keyspan": head()["keyspan"],
            "cells": len(used),
            "ranges": {name: [min(v), max(v)] for name, v in _sizes(used).items()},
            "best": self.fit.best.model,
            "laws": {f.model: _law_to_ship(f, self.fit) for f in self.fit.fits if f.parameters},
        }


def _sizes(cells: Sequence[SequenceCell]) -> dict[str, list[int]]:
    return {name: [int(getattr(c, name)) for c in cells] for name in ("heads", "length", "d_model", "vocabulary", "prompt")}


def _law_to_ship(fit: LawFit, whole: EcmFit) -> dict[str, Any]:
    residuals = np.log(np.array([c.capacity for c in whole.used]) / np.maximum(whole.predictions(fit), 1e-12))
    return {
        "constants": {name: [e.estimate, e.low, e.high] for name, e in fit.parameters.items()},
        "mape": fit.mape,
        "mape_held_out": fit.mape_held_out,
        "residuals": [float(q) for q in np.quantile(residuals, [0.025, 0.975])],
    }


def fit_sequences(
    *, source: str | Path | None = None, store: str | None = None, regime: str = "saturated", draws: int | None = None
) -> EcmResult:
    """Fit the empirical capacity model and its rivals.

    source: a CSV of cells (as harma:capacity writes) or a JSONL of records (default: the store)    regime: saturated or
    budgeted; they are never mixed
    """
    known = f"`--regime` in {'|'.join(REGIMES)}"
    require(isinstance(regime, str) and regime in REGIMES, known, shown(regime), "Choose one.")
    if source is not None and not isinstance(source, str | PathLike):
        raise BadInput(f"`source` must be the path of a file, but got {shown(source)}. Give a str or a Path.")
    cells, left_out = load_cells(source, store)
    where = str(source) if source is not None else (store or default_store())
    fitted = fit_ecm(cells, regime) if draws is None else fit_ecm(cells, regime, draws)
    return EcmResult(where, replace(fitted, left_out=(*fitted.left_out, *left_out)))


def load_cells(source: str | Path | None, store: str | None) -> tuple[list[SequenceCell], list[LeftOut]]:
    """Cells of a CSV file, of a JSONL export, or of a store, and those that could not be used."""
    if source is None:
        with open_store(store or default_store(), read_only=True, missing_ok=True) as opened:
            return recover(opened.records(kind=Sequences.family))
    if Path(source).suffix.lower() == ".csv":
        return read_cells(source), []
    if Path(source).suffix.lower() == ".jsonl":
        return recover(read_records(Path(source)))
    raise BadInput(f"`--from` must be a .csv of cells or a .jsonl of records, but got {name_of(source)!r}. Name one.")


# --------------------------------------------------------------------------------------------- from records


@dataclass
class _Group:
    """What there is of one decoder on one kind of library. seeds: replicates    steps: of its recipes, by regime"""

    example: Run
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    replicates: set[int] = field(default_factory=set)
    steps: dict[str, set[int]] = field(default_factory=dict)


def recover(records: Iterable[Record]) -> tuple[list[SequenceCell], list[LeftOut]]:
    """The cells whose standard questions these records answer in full, and the others with the reason."""
    cells: list[SequenceCell] = []
    left_out: list[LeftOut] = []
    for group in _groups(records).values():
        for regime in (r for r in REGIMES if r in group.steps):
            found = _cell(group, regime)
            if isinstance(found, SequenceCell):
                cells.append(found)
            else:
                decoder, problem = group.example.instrument, group.example.problem
                assert isinstance(decoder, Decoder) and isinstance(problem, Sequences)
                left_out.append((f"H {decoder.heads}, N {problem.length}, B {decoder.d_model}, {regime}", found))
    return cells, left_out


def _groups(records: Iterable[Record]) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    for record in records:
        run = record.run
        families = tuple(run[part].get("family") for part in ("problem", "instrument", "recipe"))
        if families != (Sequences.family, Decoder.family, Recipe.family):
            continue
        if not all(is_known(str(run[p].get("family")), run[p].get("version")) for p in ("problem", "instrument", "recipe")):
            continue
        if run["problem"]["source"].get("name") == "file":  # its content is not here
            continue
        problem = {k: v for k, v in run["problem"].items() if k != "library"}
        key = canonical([problem, run["instrument"], run["arithmetic"]])
        group = groups.setdefault(key, _Group(Run.from_json(run)))
        group.verdicts[record.run_id] = record.verdict
        group.replicates.add(int(run["replicate"]))
        regime = "budgeted" if run["recipe"]["name"] == "budgeted" else "saturated"
        group.steps.setdefault(regime, set()).add(sum(int(p.get("steps", 0)) for p in run["recipe"]["phases"]))
    return groups


def _cell(group: _Group, regime: str) -> SequenceCell | str:
    """The cell of the most seeds and the most steps that is answered in full; where saturated, steps and twice as many."""
    decoder, problem = group.example.instrument, group.example.problem
    assert isinstance(decoder, Decoder) and isinstance(problem, Sequences)
    for seeds in seed_sets(group.replicates):
        for steps in sorted(group.steps[regime], reverse=True):
            asked = ask_sequences(
                replace(problem, library=0),
                decoder=decoder,
                regime=regime,
                measure=USUAL[regime],
                steps=steps,
                seeds=len(seeds),
                arithmetic=group.example.arithmetic,
            )
            questions = [replace(q, replicates=seeds) for q in asked.questions]
            answers = [a for q in questions if isinstance(a := propose(q, group.verdicts), Answer)]
            if len(answers) == len(questions):
                return reading(questions, answers, asked.bits, asked.measure)
    return "its questions are not answered in full by the records there are"


# ---------------------------------------------------------------------------------------------- predictions


@dataclass(frozen=True)
class Prediction(Displayed):
    """A capacity predicted, or architectures for one that is wanted. source: the store, or `shipped`"""

    regime: str
    model: str
    constants: dict[str, float]
    fit_id: str
    source: str
    capacity: dict[str, float] | None
    parameters: int | None
    outside: tuple[str, ...]
    choices: tuple[Choice, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan predict ecm`."""
        return head() | {
            "model": self.model,
            "regime": self.regime,
            "capacity": self.capacity,
            "parameters": self.parameters,
            "constants": self.constants,
            "fit_id": self.fit_id,
            "source": self.source,
            "outside": list(self.outside),
            "cheapest": [vars(choice) for choice in self.choices],
        }


@cache
def shipped() -> dict[str, Any]:
    """The fits that come with this package, by regime."""
    there = resources.files("keyspan.evidence").joinpath(SHIPPED)
    data: dict[str, Any] = json.loads(there.read_text("utf-8")) if there.is_file() else {"fits": {}}
    return data


def fit_at_hand(source: str | Path | None, store: str | None, regime: str) -> tuple[dict[str, Any], str]:
    """The fit of a file's cells; else of the store's own, where enough of them count; else the shipped one, with its source."""
    known = f"`--regime` in {'|'.join(REGIMES)}"
    require(isinstance(regime, str) and regime in REGIMES, known, shown(regime), "Choose one.")
    try:
        own = fit_sequences(source=source, store=store, regime=regime, draws=1)
    except BadInput:
        if source is not None or regime not in shipped()["fits"]:
            raise
        return shipped()["fits"][regime], "shipped"
    return own.shipped(), own.source


def predict_sequences(
    *,
    length: int,
    heads: int | None = None,
    d_model: int | None = None,
    capacity: float | None = None,
    budget: int | None = None,
    vocabulary: int = 64,
    prompt: int = 2,
    regime: str = "saturated",
    model: str | None = None,
    source: str | Path | None = None,
    store: str | None = None,
    **architecture: Any,
) -> Prediction:
    """How many sequences a decoder is expected to recite; or, with `capacity`, the fewest parameters that will do.

    heads, d_model: of the decoder    capacity: wanted, instead of d_model (then heads, if given, are kept)    budget: most
    parameters    model: a law, default the one that predicts unseen cells best    source, store: whose cells are fitted
    architecture: other fields of a `Decoder`
    """
    require((d_model is None) != (capacity is None), "either `--d-model` or `--capacity`", "both or none", "Give one of them.")
    Sequences(length=length, vocabulary=vocabulary, prompt=prompt)
    fit, where = fit_at_hand(source, store, regime)
    name = fit["best"] if model is None else model
    require(name in fit["laws"], f"`--model` in {'|'.join(fit['laws'])}", shown(name), "Choose one.")
    law, told = ecm.law_named(name), fit["laws"][name]
    constants = np.array([told["constants"][n][0] for n in law.names])

    def curve(at: ecm.Architectures) -> Any:
        return law.curve(constants, at)

    asked: dict[str, float | int] = {"length": length, "vocabulary": vocabulary, "prompt": prompt}
    choices: list[Choice] = []
    expected, size = None, None
    if capacity is not None:
        like = Decoder(heads=1, d_model=1, **architecture)
        tried = (heads,) if heads is not None else tuple(range(1, 9))
        sizes: dict[str, Any] = {"vocabulary": vocabulary, "prompt": prompt, "budget": budget, "like": like}
        choices = ecm.cheapest(curve, capacity, lengths=(length,), heads=tried, **sizes)
        if choices:
            asked |= {"heads": choices[0].heads, "d_model": choices[0].d_model}
    else:
        require(heads is not None, "`--heads` with `--d-model`", "none", "Give both.")
        decoder = Decoder(heads=heads or 1, d_model=d_model or 1, **architecture)
        at = ecm.architectures([(decoder, length)], vocabulary, prompt)
        size, middle = parameters(decoder, vocabulary, length), float(curve(at)[0])
        low, high = (middle * math.exp(q) for q in told["residuals"])
        expected = {"estimate": middle, "low": min(low, middle), "high": max(high, middle)}
        asked |= {"heads": decoder.heads, "d_model": decoder.d_model}
    outside = [n for n, v in asked.items() if not fit["ranges"][n][0] <= v <= fit["ranges"][n][1]]
    return Prediction(
        regime=regime,
        model=name,
        constants={n: float(c) for n, c in zip(law.names, constants, strict=True)},
        fit_id=fit["fit_id"],
        source=where,
        capacity=expected,
        parameters=size,
        outside=tuple(outside),
        choices=tuple(choices),
    )


def ship(fits: Sequence[EcmResult], provenance: dict[str, Any]) -> str:
    """The text of the file of fits that comes with this package."""
    data = {"schema": 1, "provenance": provenance, "fits": {fit.fit.regime: fit.shipped() for fit in fits}}
    return json.dumps(data, indent=1) + "\n"
