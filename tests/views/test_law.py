"""The figures of the law: their data come from the tables, and what is drawn has them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.cli.asked import ROOT

from keyspan.theory.width import rho_of_width, width_budget
from keyspan.views import law

TABLES = ROOT / "benchmarks"
PLAIN = {"graph": "permutation", "embeddings": "gaussian"}


def row(items: int, d_model: int, heads: int, fails: int, holds: int | str, **other: str) -> dict[str, str]:
    width = width_budget(items, items, d_model, heads)
    numbers: dict[str, object] = {
        "items": items,
        "d_model": d_model,
        "edges": items,
        "heads": heads,
        "fails": fails,
        "key_budget": holds,
    }
    numbers |= {"width": "" if width is None else round(width, 3)}
    return {k: str(v) for k, v in numbers.items()} | {"recipe": "solver-fixed"} | PLAIN | other


def test_thresholds_of_gaussian_permutations_are_drawn_and_no_others() -> None:
    table = [
        *(row(512, 64, 4, 24, 28), row(256, 64, 1, 9, 10), row(512, 64, 2, 22, 24, recipe="solver")),
        *(row(512, 64, 4, 24, 28, graph="functional"), row(512, 64, 4, 24, 28, embeddings="sparse 8")),
        *(row(512, 64, 4, 256, ""), row(512, 32, 4, 100, 120)),  # not held at any width; nothing is predicted
    ]
    info = law.law_info(table)
    assert [(t.items, t.heads) for t in info.owned] == [(256, 1), (512, 4)] and [t.heads for t in info.chosen] == [2]
    assert len(info.rows()) == 3 and "2 points whose edges have owners" in info.alt_text


def test_a_threshold_at_the_prediction_has_the_rho_of_its_width() -> None:
    budget = width_budget(512, 512, 64, 4)
    assert budget is not None
    point = law.law_info([row(512, 64, 4, 1, 28)]).owned[0]
    exactly = law.Threshold(512, 64, 4, 1, 28, budget, point.load)
    t = budget / (4 * 64)
    assert (2 * t - t * t) * 4 * 64**2 / point.load == pytest.approx(rho_of_width(t), rel=1e-9)
    assert exactly.rhos[0] < rho_of_width(t) < exactly.rhos[1] and math.isclose(point.ranks[1], 28 / 256)


def test_fractions_come_from_both_tables() -> None:
    info = law.one_head_info(law.read(TABLES / "one-head.csv"), law.read(TABLES / "heads.csv"))
    assert len(info.rows()) == len(info.points) + len(info.heads)
    assert {d for d, _, _ in info.points} == {6, 8, 12, 16, 20, 24}
    assert all(0 <= fraction <= 1 for _, _, fraction in info.points) and "d_model 6 to 24" in info.alt_text


def test_the_figures_of_the_page_are_drawn_from_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert law.main(["--tables", str(TABLES), "--out", str(tmp_path)]) == 0
    for name in ("law", "law-one-head"):
        made, kept = ((folder / f"{name}.csv").read_text() for folder in (tmp_path, ROOT / "docs" / "figures"))
        assert made == kept, f"docs/figures/{name}.csv is not of the tables: python -m keyspan.views.law"
    assert law.main(["--tables", str(tmp_path / "none")]) == 2 and "keyspan: " in capsys.readouterr().err
