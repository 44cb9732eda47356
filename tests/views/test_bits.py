"""The figure of all problems on one axis."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from keyspan.evidence.bits import BitsRow
from keyspan.views.bits import bits_info, draw_bits


def row(problem: str, parameters: int, per: float, *, bound: float = 10.0, ends: bool = True) -> BitsRow:
    return BitsRow(
        problem=problem,
        cell=f"{problem} of {parameters}",
        recipe="gradient",
        arithmetic="fp32",
        level="one",
        seeds=3,
        bits=per * parameters,
        parameters=parameters,
        per_parameter=per,
        low=per - 0.05 if ends else None,
        high=per + 0.05 if ends else None,
        bound=bound,
        bound_source="Warren",
    )


ROWS = [
    row("relations", 2000, 0.4),
    row("relations", 9000, 0.6),
    row("labels", 5000, 1.2, bound=32),
    row("sequences", 5648, 1.95, bound=32),
    row("dichotomies", 16, 1.6, bound=2.1),
    row("riddles", 700, 0.3, ends=False),
]


def test_every_problem_keeps_its_colour() -> None:
    info = bits_info(ROWS)
    assert info.problems == ["relations", "labels", "sequences", "dichotomies", "riddles"]
    some = bits_info([r for r in ROWS if r.problem in ("sequences", "riddles")])

    def colours(of: object) -> dict[str, object]:
        axes = Figure().add_subplot()
        draw_bits(of, [axes])  # type: ignore[arg-type]
        return {str(bars.get_label()): bars[0].get_color() for bars in axes.containers}

    assert colours(some).items() <= colours(info).items() and len(set(colours(info).values())) == 5


def test_bounds_and_marks_are_drawn() -> None:
    axes = Figure().add_subplot()
    draw_bits(bits_info(ROWS), [axes])
    bounds = {
        str(line.get_label()): np.asarray(line.get_ydata()).tolist()
        for line in axes.get_lines()
        if "bound" in str(line.get_label())
    }
    assert bounds["relations, proven bound"] == [10, 10] and bounds["random labels, linear unit, proven bound"] == [2.1]
    assert [t.get_text().split()[0] for t in axes.texts] == ["0.72", "2", "3.6"]


def test_the_figure_in_words() -> None:
    words = bits_info(ROWS).alt_text
    assert "in 6 cells" in words and "relations: at most 0.60" in words and "3.6 (language models" in words
    assert "Nothing is measured" in bits_info([]).alt_text
    draw_bits(bits_info([]), [Figure().add_subplot()])


def test_the_data() -> None:
    rows = bits_info(ROWS).rows()
    assert [r["per_parameter"] for r in rows] == [r.per_parameter for r in ROWS] and Path(str(rows[0]["cell"])).name
