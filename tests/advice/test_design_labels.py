"""Heads for labelled examples: certain, given and necessary; and decoders for sequences, by a law fitted here."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.files.refusals import refused

from keyspan.advice.design_labels import design_labels, layer_parameters
from keyspan.advice.design_sequences import design_sequences
from keyspan.cli import main
from keyspan.theory.memorization import feature_cap, theorem


@given(examples=st.integers(1, 10**5), context=st.integers(2, 80), d_model=st.integers(2, 128), classes=st.integers(2, 1000))
def test_heads_are_the_fewest_that_are_certain(examples: int, context: int, d_model: int, classes: int) -> None:
    found = design_labels(examples=examples, context=context, d_model=d_model, classes=classes)
    assert theorem(found.heads, context, found.d_key) >= examples
    assert found.heads == 1 or theorem(found.heads - 1, context, found.d_key) < examples
    least = found.given_attention
    assert least is not None and feature_cap(least, context, d_model, "random") >= examples
    assert least == 1 or feature_cap(least - 1, context, d_model, "random") < examples
    assert 32 * layer_parameters(found.necessary, found.d_key, d_model, classes) >= found.bits == examples * math.log2(classes)
    assert all(a.theorem >= examples and a.d_key != found.d_key for a in found.alternatives)
    json.dumps(found.to_dict(), allow_nan=False)


def test_parameters_are_those_of_the_currency() -> None:
    """Counted as `evidence.bits` counts a trained layer: 24 dimensions, 4 heads of 8, 100 classes."""
    assert layer_parameters(4, 8, 24, 100) == 24 * 25 + 2 * 4 * 24 * 9 + 25 * 100


def test_labels_refused() -> None:
    refused(lambda: design_labels(examples=0, context=4, d_model=8), "--examples", "0")
    refused(lambda: design_labels(examples=9, context=1, d_model=8), "--context", "1 and 1")
    refused(lambda: design_labels(examples=9, context=4, d_model=8, classes=1), "--classes >= 2", "1")
    refused(lambda: design_labels(examples=9, context=4, d_model=8, contexts="none"), "--contexts", "none")


def decoders(folder: Path) -> Path:
    """Cells of a law that is easily found: two bits a parameter."""
    rows = [f"{h},{n},{b},{b * b * h}\n" for h in (1, 2, 4) for n in (8, 16) for b in (8, 16, 32)]
    path = folder / "decoders.csv"
    path.write_text("heads,length,d_model,capacity\n" + "".join(rows))
    return path


def test_a_decoder_for_sequences(tmp_path: Path) -> None:
    cells = str(decoders(tmp_path))
    found = design_sequences(sequences=300, length=8, model="per-parameter", source=cells)
    assert found.capacity["low"] <= found.capacity["estimate"] <= found.capacity["high"]
    assert found.capacity["estimate"] >= 0.98 * 300 and found.bits == 300 * 6 * 6
    assert found.bits_per_parameter == pytest.approx(found.bits / found.parameters)
    assert found.necessary_parameters <= found.parameters and found.law["fit_id"].startswith("f")
    assert all(choice.parameters >= found.parameters for choice in found.alternatives)
    refused(
        lambda: design_sequences(sequences=300, length=8, model="per-parameter", source=cells, budget=10),
        "--max-parameters",
        "10",
    )
    refused(lambda: design_sequences(sequences=-1, length=8, source=cells), "--sequences > 0")


def test_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["design", "--examples", "500", "--context", "16", "--d-model", "64", "--json"]) == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (data["heads"], data["d_key"], data["given_attention"], data["basis"]) == (34, 16, 8, "theorem")
    assert main(["design", "--examples", "500", "--context", "16", "--d-model", "64"]) == 0
    assert "necessary" in capsys.readouterr().out
    for wrong in (
        ["--examples", "5"],
        ["--examples", "5", "--context", "4"],
        ["--sequences", "5"],
        ["--items", "4", "--sequences", "5"],
    ):
        assert main(["design", *wrong]) == 2
