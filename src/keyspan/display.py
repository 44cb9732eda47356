"""Results that show themselves in Jupyter and marimo: the table and its figure, drawn by `views` when they are looked at."""

from __future__ import annotations

from importlib import import_module


class Displayed:
    """A result with `.to_dict()`. Which picture belongs to it, `views.notebook` knows; this room knows nothing of views."""

    def _repr_html_(self) -> str:
        return str(import_module("keyspan.views.notebook").html(self))
