"""The tutorials run, from the first block to the last, and their notebooks say the same."""

from __future__ import annotations

import ast
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from tests.cli.asked import ROOT

MAKE = runpy.run_path(str(ROOT / "examples" / "notebooks" / "make.py"))
NAMES: tuple[str, ...] = MAKE["NAMES"]
SHOWN = {"theorist": 4, "architect": 3, "auditor": 2}  # results that show themselves, each with table and figure


def notebook(name: str) -> Any:
    return json.loads((ROOT / "examples" / "notebooks" / f"{name}.ipynb").read_text("utf-8"))


def carried_out(source: str, space: dict[str, Any], place: str) -> Any:
    """Run a cell as a notebook does. returns: the value of its last line, if that is an expression"""
    tree = ast.parse(source)
    last = tree.body.pop()
    if not isinstance(last, ast.Expr):
        tree.body.append(last)
    exec(compile(tree, place, "exec"), space)
    return eval(compile(ast.Expression(last.value), place, "eval"), space) if isinstance(last, ast.Expr) else None


def test_there_is_one_for_every_page() -> None:
    assert sorted(f"tutorial-{name}.md" for name in NAMES) == sorted(
        page.name for page in (ROOT / "docs").glob("tutorial-*.md")
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_says_what_its_page_says(name: str) -> None:
    path = ROOT / "examples" / "notebooks" / f"{name}.ipynb"
    assert path.read_text("utf-8") == MAKE["text_of"](name), "make them again: python examples/notebooks/make.py"
    cells = notebook(name)["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    for cell in cells:
        for link in MAKE["LINK"].findall("".join(cell["source"])):
            raise AssertionError(f"{link} leads nowhere from a notebook")


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own, as a newcomer has it; what is shown has a table, and nothing fetches."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KEYSPAN_STORE")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    space: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in notebook(name)["cells"]:
        if cell["cell_type"] == "code":
            value = carried_out("".join(cell["source"]), space, f"{name}.ipynb:{cell['id']}")
            if hasattr(value, "_repr_html_"):
                shown.append(value._repr_html_())
    assert len(shown) == SHOWN[name]
    assert all("<table" in html and "<script" not in html for html in shown)
