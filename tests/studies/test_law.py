"""The study of the law: points are data, thresholds come from the store, forms are fitted to one half and held to the other."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.asked import Oracle, knows

from keyspan.errors import BadInput
from keyspan.evidence.store import open_store
from keyspan.files.contents import Contents
from keyspan.runners import lab
from keyspan.runners.lab import Lab
from keyspan.specs import Channel, Question, Run, decode
from keyspan.studies import law, law_fit
from keyspan.studies.law import FREE, OWNED, Point
from keyspan.studies.law_fit import FORMS, Held
from keyspan.theory.gardner import heads_needed
from keyspan.theory.width import width_budget
from keyspan.verdict import Verdict

POINTS = [Point("small", 32, 16, 2), Point("free", 32, 16, 2, FREE)]


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> Oracle:
    runner = Oracle()
    monkeypatch.setattr(lab, "LocalRunner", runner)
    return runner


# ------------------------------------------------------------------------------------------------------- the points


def test_points_are_near_the_heads_that_theory_puts_first() -> None:
    points = list(law.points())
    assert len({(p.group, p.question().to_json().__str__()) for p in points}) == len(points)
    assert {p.group for p in points} == set(law.GROUPS) - {"real"}
    for p in points:
        if p.graph.name == "permutation" and p.embeddings.name == "gaussian":
            best = law.best_heads(p.items, p.d_model)
            assert best / 2 <= p.heads <= 2 * best or p.items == 16384
            assert p.heads >= (heads_needed(p.items, p.items, p.d_model) or 0)


def test_a_question_is_of_exactness_in_all_seeds_bracketed_by_theory() -> None:
    for p in law.points():
        q = p.question()
        (arm,) = q.arms
        assert (q.criterion, q.target, q.replicates, q.climb) == ("all", 1.0, (0, 1, 2), None)
        assert arm.heads == p.heads and q.recipe.name == p.recipe  # type: ignore[attr-defined]
        if p.width is not None:
            assert arm.low <= max(p.width, arm.levels[0]) and (arm.high >= p.width or arm.high == arm.levels[-1])


def test_groups_are_chosen_by_name() -> None:
    contents = Contents()
    assert {p.group for p in law.chosen("small,large", None, contents)} == {"small", "large"}
    assert "gpu" not in {p.group for p in law.chosen(None, None, contents)}
    with pytest.raises(BadInput, match="small"):
        law.chosen("tiny", None, contents)


# ------------------------------------------------------------------------------------------------------- the table


def test_rows_are_closed_from_both_sides_and_come_from_the_store(oracle: Oracle, own_store: str, tmp_path: Path) -> None:
    with open_store(own_store) as store:
        assert law.closed(POINTS, store) == []
    Lab(own_store).answer([p.question() for p in POINTS])
    with open_store(own_store, read_only=True) as store:
        rows = law.closed(POINTS, store)
    assert [r["recipe"] for r in rows] == [OWNED, FREE]
    need = 1.2 * 32 * math.log(32) / 16
    for r in rows:
        assert r["fails"] == int(r["key_budget"] or 0) - 2 and int(r["fails"] or 0) < need <= int(r["key_budget"] or 0)
        assert (r["seeds"], r["starts"], r["edges"]) == (3, 1, 32)
        assert r["width"] == pytest.approx(width_budget(32, 32, 16, 2), abs=1e-3)
    law.write(rows, tmp_path / "law.csv")
    assert [int(r["key_budget"]) for r in csv.DictReader((tmp_path / "law.csv").read_text().splitlines())] == [
        r["key_budget"] for r in rows
    ]


def test_a_point_that_fails_at_its_widest_has_no_budget(oracle: Oracle, own_store: str) -> None:
    def never(run: Run) -> Verdict:
        from dataclasses import replace

        return replace(knows(run), exact=False, scores={"f1": 0.5, "f1_best": 0.5})

    oracle.verdict = never
    Lab(own_store).answer([POINTS[0].question()])
    with open_store(own_store, read_only=True) as store:
        (row,) = law.closed(POINTS[:1], store)
    assert row["key_budget"] is None and row["fails"] == 32


def test_the_command_writes_what_is_closed_and_hands_out_the_rest(
    oracle: Oracle, own_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(law, "points", lambda: iter(POINTS))
    store = ["--store", own_store]
    assert law.main([*store, "--hand-out", str(tmp_path / "box" / "law.jsonl")]) == 0
    lines = (tmp_path / "box" / "law.jsonl").read_text().splitlines()
    assert [decode(json.loads(line)) for line in lines] == [p.question() for p in POINTS]
    assert all(isinstance(decode(json.loads(line)), Question) for line in lines) and not oracle.asked
    assert law.main([*store, "--groups", "small", "--out", str(tmp_path / "a.csv")]) == 0
    assert "1 of 1 points are closed" in capsys.readouterr().out
    asked = len(oracle.asked)
    assert law.main([*store, "--dry", "--out", str(tmp_path / "b.csv")]) == 0 and len(oracle.asked) == asked
    assert "1 of 2 points are closed" in capsys.readouterr().out
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
    assert law.main([*store, "--groups", "none"]) == 2 and "keyspan: " in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------- real vectors


def test_real_rows_are_some_of_the_matrix_or_its_leading_coordinates(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    matrix = generator.normal(size=(50, 12)) * np.geomspace(10, 0.1, 12) + 3.0
    np.save(tmp_path / "rows.npy", matrix)
    contents = Contents()
    whole = law.real_rows(str(tmp_path / "rows.npy"), 20, 12, contents)
    rows = np.asarray(contents.get(str(whole.content)))
    assert rows.shape == (20, 12) and np.einsum("ia,ia->i", rows, rows).mean() == pytest.approx(1.0)
    scale = np.linalg.norm(matrix, axis=1) / np.linalg.norm(matrix, axis=1).mean()
    ratios = {
        round(float(np.linalg.norm(r) / np.linalg.norm(m)), 9)
        for r in rows
        for m in matrix
        if abs(r @ m) > 0.999999999 * np.linalg.norm(r) * np.linalg.norm(m)
    }
    assert len(ratios) == 1 and scale.std() > 0  # one factor for all: lengths stay different
    few = np.asarray(contents.get(str(law.real_rows(str(tmp_path / "rows.npy"), 20, 3, contents).content)))
    assert few.shape == (20, 3) and few[:, 0].var() > few[:, 1].var() > few[:, 2].var()
    again = law.real_rows(str(tmp_path / "rows.npy"), 20, 12, contents)
    assert again == whole
    with pytest.raises(BadInput, match="60 rows"):
        law.real_rows(str(tmp_path / "rows.npy"), 60, 12, contents)


def test_real_points_are_asked_of_both_solvers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(law, "REAL", ((20, 12),))
    np.save(tmp_path / "rows.npy", np.random.default_rng(1).normal(size=(30, 12)))
    points = law.chosen("real", str(tmp_path / "rows.npy"), Contents())
    assert [(p.recipe, p.embeddings.name, p.items) for p in points] == [(OWNED, "file", 20), (FREE, "file", 20)]


# ------------------------------------------------------------------------------------------------------- the fit


def made(excess: float, items: tuple[int, ...] = (64, 128, 256, 512, 1024)) -> list[dict[str, str]]:
    """Thresholds at which the width is so much more than what is used, closed to one dimension."""
    rows = []
    for m in items:
        for d in (m // 4, m // 8, m // 10, m // 12, m // 14, m // 16):
            heads = law.best_heads(m, d)
            budget = width_budget(m, m, d, heads, excess=excess)
            if budget is None or d < 12:
                continue
            holds = math.ceil(budget)
            numbers: dict[str, Any] = {"items": m, "d_model": d, "edges": m, "heads": heads, "fails": holds - 1}
            numbers |= {"key_budget": holds, "recipe": OWNED, "graph": "permutation", "embeddings": "gaussian"}
            rows.append({k: str(v) for k, v in numbers.items()})
    return rows


def test_the_distance_is_to_the_interval_over_its_nearer_end() -> None:
    held = Held(512, 64, 512, 4, fails=24, holds=28)
    assert held.distance(25.0) == held.distance(28.0) == 0.0
    assert held.distance(35.0) == pytest.approx(0.25) and held.distance(18.0) == pytest.approx(0.25)
    assert Held(64, 64, 64, 1, fails=0, holds=1).distance(0.5) == 0.0


def test_what_was_made_is_found_again() -> None:
    found = {f.form.name: f for f in law_fit.table(made(1.08), OWNED)}
    assert found["width, excess"].constants[0] == pytest.approx(1.08, abs=0.02)
    best = found["width, excess"]
    assert best.median is not None and best.median < 0.01 and best.undefined == 0 and best.of >= 4
    for name in ("law", "no log", "power", "degrees of freedom", "width"):
        other = found[name]
        assert other.mean is not None and best.mean is not None and other.mean > best.mean
    lines = law_fit.markdown(list(found.values())).splitlines()
    assert len(lines) == 2 + len(FORMS) and all(line.count("|") == lines[0].count("|") for line in lines)


def test_power_laws_are_found_again() -> None:
    rows = made(1.0)
    for row in rows:
        row["key_budget"] = str(round(100 * 0.7 * int(row["edges"]) ** 1.2 / int(row["d_model"]) ** 0.9))
        row["fails"] = str(int(row["key_budget"]) - 1)
    found = {f.form.name: f for f in law_fit.table(rows, OWNED)}
    assert found["power"].constants == pytest.approx((70, 1.2, 0.9), rel=0.02)


def test_small_cells_are_fitted_to_and_large_ones_are_held_to() -> None:
    small, large = law_fit.split(law_fit.cells_of(made(1.0), OWNED))
    assert max(c.items for c in small) == 256 and min(c.items for c in large) == 512
    assert min(c.holds for c in large) >= 40
    with pytest.raises(BadInput, match="small and large"):
        law_fit.table(made(1.0, (64,)), OWNED)


def test_what_was_measured_is_a_line_for_every_cell() -> None:
    rows = [*made(1.0, (64,))[:2], made(1.0, (128,))[0] | {"width": "", "key_budget": ""}]
    rows = [{"width": "7.04"} | row for row in rows]
    lines = law_fit.thresholds(rows).splitlines()
    assert len(lines) == 2 + len({(r["items"], r["d_model"]) for r in rows}) and "(7.0)" in lines[2]
    assert lines[-1].startswith("| 128, ") and lines[-1].endswith(", none (none) |")
    other = law_fit.thresholds([rows[0] | {"graph": "functional", "embeddings": "sparse 8"}, *rows], plain=False)
    assert len(other.splitlines()) == 3 and "functional, 64 | sparse 8 | owned" in other


def test_the_fit_as_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "law.csv"
    rows = made(1.05)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    assert law_fit.main([str(path)]) == 0 and "| width, excess |" in capsys.readouterr().out
    assert law_fit.main([str(path), "--largest", "128", "--least", "8"]) == 0 and "at most 128 items" in capsys.readouterr().out
    assert law_fit.main([str(tmp_path / "none.csv")]) == 2
    assert law_fit.main([str(path), "--recipe", "solver"]) == 2


def test_channels_of_a_point_have_its_heads() -> None:
    for p in POINTS:
        (arm,) = p.question().arms
        instruments = [run.instrument for run in p.question().runs(arm, arm.low)]
        assert all(isinstance(i, Channel) and i.heads == p.heads for i in instruments)
