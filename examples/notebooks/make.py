"""The tutorials of docs/ as notebooks, a cell for every block of code, without outputs.

    python examples/notebooks/make.py

Jupyter opens them; `marimo convert theorist.ipynb -o theorist.py` makes a marimo notebook. A test holds them to the pages, and
runs every cell.
"""

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
NAMES = ("theorist", "architect", "auditor")
LINK = re.compile(r"\]\((?!https?:)([\w-]+\.(?:md|svg)[^)]*)\)")


def cells_of(page: str) -> list[tuple[str, str]]:
    """(kind, text) of every cell: the prose between two blocks of python, and the blocks."""
    cells: list[tuple[str, str]] = []
    for k, part in enumerate(re.split(r"^```python\n(.*?)^```\n", page, flags=re.MULTILINE | re.DOTALL)):
        text = part.strip("\n") if k % 2 else LINK.sub(r"](../../docs/\1)", part.strip())
        if text:
            cells.append(("code" if k % 2 else "markdown", text))
    return cells


def notebook(page: str) -> dict[str, Any]:
    """The notebook of a page, in nbformat 4.5."""
    cells: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(cells_of(page), 1):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number:02}", "metadata": {}}
        if kind == "code":
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell | {"source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def text_of(name: str) -> str:
    """The file of a tutorial's notebook."""
    return json.dumps(notebook((DOCS / f"tutorial-{name}.md").read_text("utf-8")), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for each in NAMES:
        (HERE / f"{each}.ipynb").write_text(text_of(each), "utf-8")
