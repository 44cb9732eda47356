"""The study of one head: instances are decided both ways, and the tables in benchmarks/ are what it makes."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from tests.cli.asked import ROOT

from keyspan.studies import one_head
from keyspan.theory.gardner import gardner_load


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


ONE = table(ROOT / "benchmarks" / "one-head.csv")
SEVERAL = table(ROOT / "benchmarks" / "heads.csv")


@pytest.mark.parametrize("d_model", [6, 12, 24])
def test_the_critical_size_is_where_the_load_is_d_squared(d_model: int) -> None:
    at = one_head.critical_items(d_model)
    low, high = (gardner_load(m, m, 1) for m in (int(at), int(at) + 1))
    assert low <= d_model**2 <= high
    assert all(abs(s / at - 1) <= 0.3 for s in one_head.sizes(d_model))


def test_a_row_of_the_table_is_made_again() -> None:
    for row in ONE:
        if row["d_model"] == "8" and row["items"] in ("16", "21"):
            made = one_head.measure(8, int(row["items"]), int(row["instances"]))
            assert {k: str(made[k]) for k in ("held", "impossible", "open")} == {
                k: row[k] for k in ("held", "impossible", "open")
            }


def test_a_row_of_heads_is_made_again() -> None:
    (row,) = [r for r in SEVERAL if (r["items"], r["d_model"], r["heads"]) == ("64", "12", "2")]
    made = one_head.measure_heads(64, 12, 2, int(row["instances"]))
    assert all(str(made[k]) == row[k] for k in ("h_min", "held", "impossible", "open"))


def test_every_instance_was_decided_and_theory_is_near() -> None:
    """docs/law.md: half of the instances cross within 6% of the prediction; far below h_min none is held, far above all."""
    assert all(int(r["open"]) == 0 for r in [*ONE, *SEVERAL])
    assert all(float(r["largest_bound"]) < 1e-9 for r in ONE)
    for d_model in one_head.WIDTHS:
        mine = [{k: float(r[k]) for k in ("items", "held", "instances")} for r in ONE if r["d_model"] == str(d_model)]
        half = one_head.crossing(mine)
        assert half is not None and abs(half / one_head.critical_items(d_model) - 1) < 0.06
    for r in SEVERAL:
        share = int(r["heads"]) / float(r["predicted"])
        if share < 0.8:
            assert int(r["held"]) == 0
        if share > 1.3:
            assert int(r["impossible"]) == 0


def test_the_crossing_lies_on_a_line_between_two_sizes() -> None:
    rows: list[one_head.Row] = [{"items": m, "held": h, "instances": 10} for m, h in ((10, 10), (20, 8), (30, 3), (40, 0))]
    assert one_head.crossing(rows) == pytest.approx(26.0)
    assert one_head.crossing(rows[:2]) is None


def test_the_command_writes_both_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(one_head, "WIDTHS", (4,))
    monkeypatch.setattr(one_head, "CELLS", ((16, 6),))
    paths = tmp_path / "one.csv", tmp_path / "heads.csv"
    assert one_head.main(["--out", str(paths[0]), "--heads-out", str(paths[1]), "--instances", "2"]) == 0
    assert "d_model 4: predicted" in capsys.readouterr().out
    one, several = (table(path) for path in paths)
    assert tuple(one[0]) == one_head.COLUMNS and tuple(several[0]) == one_head.HEADS_COLUMNS
    assert {r["d_model"] for r in one} == {"4"} and {r["items"] for r in several} == {"16"}
