"""A design law of a store's own: fitted with the package's cells or from a file, left beside the store, read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.files.refusals import refused

from keyspan.advice.design import design
from keyspan.cli import main
from keyspan.evidence.cells import Cell, cells_csv
from keyspan.evidence.shipped import cells_of, shipped_law
from keyspan.runners.design_law import fit_design_law, law_beside, read_law, write_law

OWN = Cell(items=200, d_model=50, edges=200, key_budget=20, heads=2, seeds=3, evidence="e-own")


def test_own_cells_join_the_packages(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_text(cells_csv([OWN, Cell(items=9, d_model=9, edges=9), Cell(items=200, d_model=50, edges=300, recipe="hinge")]))
    found = fit_design_law(source=path)
    assert found.own == 1 and found.law.cells == shipped_law().cells + 1 and len(found.left_out) == 2
    assert "with" in found.law.source and found.law.fit_id != shipped_law().fit_id
    data = found.to_dict()
    assert data["model"] == "design" and set(data["parameters"]) == set(data["features"])
    refused(lambda: fit_design_law(source=path, recipe="hinge"), "12", "1")


def test_a_cell_measured_again_takes_the_packages_place(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_text(cells_csv(cells_of("fit", "held-out")))
    found = fit_design_law(source=path)
    assert found.law.cells == shipped_law().cells and found.law.theta == pytest.approx(shipped_law().theta)
    assert found.law.source == str(path)


def test_designs_find_the_law_of_their_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path}/lab/s.db"
    assert law_beside(url) is None
    (tmp_path / "cells.csv").write_text(cells_csv([OWN]))
    assert main(["fit", "design", "--from", "cells.csv", "--store", url]) == 0
    assert "min over h" in capsys.readouterr().out
    law = law_beside(url)
    assert law is not None and law == read_law(tmp_path / "lab" / "design-law.json")
    assert main(["design", "--items", "96", "--d-model", "40", "--store", url, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (
        data["law"]["fit_id"] == law.fit_id
        and data["key_budget"] == design(items=96, d_model=40, law=law).to_dict()["key_budget"]
    )
    assert main(["design", "--items", "96", "--d-model", "40", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["law"]["fit_id"] == shipped_law().fit_id
    elsewhere = write_law(fit_design_law(source="cells.csv"), tmp_path / "law.json").path
    assert main(["design", "--items", "96", "--d-model", "40", "--law", str(elsewhere)]) == 0
    (tmp_path / "law.json").write_text("{}")
    assert main(["design", "--items", "96", "--d-model", "40", "--law", "law.json"]) == 2
