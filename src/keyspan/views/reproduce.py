"""`keyspan.reproduce`: figures of a paper measured, judged and drawn."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from keyspan.errors import BadInput, require, shown
from keyspan.files.paths import check_writable
from keyspan.papers.figures import Found
from keyspan.papers.reproduce import Answerer, Plan, Reproduced, carry_out, plan
from keyspan.runners.lab import Lab, lab_or_default
from keyspan.views.drawings import draw_figure, drawing_of
from keyspan.views.pictures import WIDTHS

DEFAULT_FOLDER = Path("figures")


def reproduce(
    name: str,
    *,
    tier: str = "smoke",
    out: str | Path | None = DEFAULT_FOLDER,
    lab: Lab | None = None,
    seed: int = 0,
    width: str = "page",
) -> Reproduced:
    """Measure figures of a paper, judge its claims on them, and draw them.

    name: `adler`, or one figure such as `adler:fig3`    tier: smoke (minutes), short (an hour of two cores), paper (a
    GPU)    out: the folder of the pictures, or None for none    lab: where records lie and what trains; what its store
    holds is not trained again    seed: another set of instances    width: of the pictures, `page` (6.8 in) or `column` (3.3 in)
    """
    check_width(width)
    return carry_out_and_draw(plan(name, tier, seed), lab_or_default(lab).answer, check_folder(out), width)


def check_width(width: str) -> None:
    """Refuse a width that there is not, before anything is trained."""
    known = isinstance(width, str) and width in WIDTHS
    require(known, f"`--width` in {'|'.join(WIDTHS)}", shown(width), "A page is 6.8 inches wide, a column 3.3.")


def check_folder(out: str | Path | None) -> Path | None:
    """Refuse a folder that cannot hold pictures before anything is trained for them."""
    if out is not None and not isinstance(out, str | PathLike):
        raise BadInput(f"`out` must be the path of a folder, but got {shown(out)}. Give a str or a Path, or None.")
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        raise BadInput(f"`--out` must be a folder, but got the file {out}. Name a folder; it is made if missing.")
    return None if out is None else Path(out)


def carry_out_and_draw(chosen: Plan, answer: Answerer, out: Path | None, width: str = "page") -> Reproduced:
    """Answer a plan's questions and draw its figures into a folder."""
    if out is not None:
        check_writable(out, "--out")
    found = carry_out(chosen, answer)
    infos = {one.figure.name: drawing_of(chosen.paper.name, one.figure.name).info(one) for one in found}
    shown = {one.figure.name: _shown(one, infos[one.figure.name], out, chosen.paper.name, width) for one in found}
    return Reproduced(chosen, found, shown, infos)


def _shown(found: Found, info: Any, out: Path | None, paper: str, width: str) -> dict[str, Any]:
    """A figure's data as in its CSV, what they come to, and the files drawn."""
    files = [str(path) for path in draw_figure(info, found.figure.name, out, paper, width)] if out else []
    return {"words": info.alt_text, "summary": info.facts(), "data": info.rows(), "files": files}
