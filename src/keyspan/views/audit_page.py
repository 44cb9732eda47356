"""A one-page audit in HTML: one file that needs nothing else, no scripts, readable by screen readers and on paper."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from keyspan.errors import BadInput, shown
from keyspan.files.paths import check_writable, replacing
from keyspan.views.audit_draw import draw_figures

TEMPLATE = "audit.html.j2"
PAGE = "audit.html"


def write_audit(answer: Mapping[str, Any], out: str | Path) -> list[str]:
    """Write figures and the page of an audit into a folder. answer: `.to_dict()`, with spectra    returns: the files"""
    folder = check_folder(out)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = draw_figures(answer, folder)
    figures = [(info, _embedded(paths[0])) for info, paths in drawn.values()]
    with replacing(folder / PAGE) as handle:
        handle.write(page(answer, figures).encode())
    return [str(folder / PAGE), *(str(path) for _, paths in drawn.values() for path in paths)]


def check_folder(out: str | Path) -> Path:
    """Refuse a place where no page can be written, before anything is read for it."""
    if not isinstance(out, str | PathLike):
        raise BadInput(f"`out` must be the path of a folder, but got {shown(out)}. Give a str or a Path.")
    if os.path.exists(out) and not os.path.isdir(out):
        raise BadInput(f"`--out` must be a folder, but got the file {out}. Name a folder; it is made if missing.")
    check_writable(out, "--out")
    return Path(out)


def page(answer: Mapping[str, Any], figures: list[tuple[Any, str]]) -> str:
    """The page as text. figures: data and the picture as a `data:` address"""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(files("keyspan.views").joinpath(TEMPLATE).read_text("utf-8"))
    return template.render(a=answer, s=answer["summary"], e=answer["embeddings"], r=answer["relations"], figures=figures)


def _embedded(picture: Path) -> str:
    """The SVG as an address that holds all of it: pictures in one page then share no ids."""
    return "data:image/svg+xml;base64," + base64.b64encode(picture.read_bytes()).decode()
