"""Results that show themselves: a title, facts, a table, and a figure as SVG; nothing fetched, nothing run, one root."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.advice.made import llama, save
from tests.cli.asked import Oracle
from tests.views.test_report import Page

import keyspan
from keyspan.display import Displayed
from keyspan.runners.sequence_fits import predict_sequences
from keyspan.runners.sweeps import Swept
from keyspan.views.notebook import SHOWN, html

DECODERS = Path(__file__).parents[1] / "data" / "decoders.csv"
CELLS = "items,d_model,key_budget\n128,32,24\n128,16,72\n512,64,48\n256,32,56\n"


def designed(folder: Path) -> Displayed:
    return keyspan.design(items=128, d_model=16)


def measured(folder: Path) -> Displayed:
    return keyspan.measure(keyspan.Relations(items=32, d_model=16), seeds=2, heads=[1, 2, 4])


def calibrated(folder: Path) -> Displayed:
    return keyspan.calibrate(4, seeds=10)


def built(folder: Path) -> Displayed:
    return keyspan.construct(keyspan.Relations(items=16, d_model=16), method="quiet")


def fitted(folder: Path) -> Displayed:
    (folder / "cells.csv").write_text(CELLS)
    return keyspan.fit("law", source=folder / "cells.csv")


def reproduced(folder: Path) -> Displayed:
    return keyspan.reproduce("adler:fig1", tier="smoke", out=folder / "figures")


def kept(folder: Path) -> Displayed:
    return keyspan.ledger(paper="harma")


def audited(folder: Path) -> Displayed:
    save(folder / "model", *llama())
    return keyspan.audit(folder / "model")


def predicted(folder: Path) -> Displayed:
    return predict_sequences(length=16, heads=2, d_model=32, source=DECODERS)


MADE: dict[str, tuple[Callable[[Path], Displayed], str, int, list[str]]] = {
    "Design": (designed, "128 edges on 128 items in 16 dimensions", 1, ["bits_per_parameter", "explicit weights, certain 128"]),
    "RelationsResult": (measured, "permutation on 32 items, d_model 16, recipe gradient", 1, ["D_K*", "lower bound"]),
    "CalibrateResult": (calibrated, "Calibration in 4 dimensions", 1, ["covered", "separator", "Cover, exact"]),
    "ConstructResult": (built, "Exact on all pairs", 1, ["margin", "lowest edge", "score less the threshold"]),
    "FitResult": (fitted, "4 cells", 0, ["held out"]),
    "Reproduced": (reproduced, "adler:fig1 at tier smoke", 1, ["adler-threshold-sharp"]),
    "Ledger": (kept, "claims", 0, ["harma-held-out", "unmeasured"]),
    "Prediction": (predicted, "A capacity predicted", 0, ["fitted to", "saturated"]),
    "Audit": (audited, "Audit of ", 1, ["used_fraction"]),
}


@pytest.mark.parametrize("name", MADE)
def test_a_result_shows_itself(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyspan.runners.lab.LocalRunner", Oracle())
    make, title, pictures, mentions = MADE[name]
    result: Any = make(tmp_path)
    assert type(result).__name__ == name
    shown = result._repr_html_()
    page = Page(shown)
    fetched = [one for one in page.fetched if not one.startswith("data:image/png")]
    assert page.open == [] and fetched == [] and not page.tags & {"script", "iframe", "link", "object"}
    assert title in shown and shown.count("<svg") == pictures
    assert all(mention in shown for mention in mentions), [m for m in mentions if m not in shown]
    for svg in re.findall(r"<svg.*?</svg>", shown, flags=re.DOTALL):
        assert ElementTree.fromstring(svg).get("aria-label")
    assert len(page.ids) == len(set(page.ids)), "ids of two pictures meet"
    assert result._repr_html_() == shown


def probe(load: str, level: int, score: str, value: float | None, seed: int) -> dict[str, Any]:
    return {load: level, score: value, "seed": seed, "status": "measured" if value is not None else "diverged"}


LABELS = {
    "capacity": {"largest": 29, "yield": 31, "low": 27, "high": 33},
    "theorem": 25,
    "cap": 57,
    "heads": 4,
    "d_head": 8,
    "seeds": 2,
    "recipe": "labels",
    "probes": [probe("examples", t, "accuracy", a, s) for t, a in ((24, 1.0), (32, 0.9), (48, None)) for s in (0, 1)],
}
SEQUENCES = {
    "capacity": {"mac": 40.0, "mls": 38, "low": 36.0, "high": 44.0},
    "data_ceiling": 60.0,
    "measure": "ride",
    "regime": "saturated",
    "bits_per_parameter": 1.5,
    "parameters": 640,
    "seeds": 3,
    "probes": [probe("library", t, "recited", 0.7 * t, s) for t in (20, 40, 60) for s in range(3)],
}


@pytest.mark.parametrize(
    "name, data, mentions",
    [
        ("LabelsResult", LABELS, ["29 [27, 33]", "theorem", "examples T", "0.9"]),
        ("SequencesResult", SEQUENCES, ["40 [36, 44]", "data ceiling", "sequences in the library"]),
    ],
)
def test_labels_and_sequences(name: str, data: dict[str, Any], mentions: list[str]) -> None:
    result = type(name, (), {"to_dict": lambda self: data})()
    shown = html(result)
    assert shown.count("<svg") == 1 and all(mention in shown for mention in mentions)
    assert "48" not in re.findall(r"<td[^>]*>([^<]*)</td>", shown), "a failure is never a number"


def test_what_nobody_drew_shows_its_plain_facts() -> None:
    result = SimpleNamespace(to_dict=lambda: {"schema": 1, "path": "<b>&", "budget": {"estimate": 4, "low": None, "high": 6}})
    shown = html(result)
    assert "&lt;b&gt;&amp;" in shown and "4 [?, 6]" in shown and "schema" not in shown and "<svg" not in shown


def test_a_long_table_is_cut_and_says_so() -> None:
    counts = dict.fromkeys(("cells", "done", "failed", "open", "skipped", "trained_now"), 40)
    data = {"sweep": "law", "results": [{"cell": k, "ratio": None} for k in range(40)]} | counts
    shown = html(type("Swept", (), {"to_dict": lambda self: data})())
    assert shown.count("<tr>") == 6 + 1 + 30 and "10 more rows: .to_dict() has them." in shown


def test_every_result_of_the_library_shows_itself() -> None:
    assert {"Design", "Certificate", "Swept", *MADE} <= set(SHOWN)
    shown = [found for found in Displayed.__subclasses__() if found.__module__.startswith("keyspan.")]
    assert {found.__name__ for found in shown} <= set(SHOWN) and Swept in shown
