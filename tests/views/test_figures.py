"""The figure of `measure relations`: its data are exact, its bytes repeat, and drawing it leaves no trace."""

import csv
import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from scipy import stats

from keyspan.errors import BadInput
from keyspan.problems.relations import Relations
from keyspan.views.figures import (
    COLOURS,
    MARKERS,
    ThresholdCurves,
    draw_threshold_curves,
    mean_interval,
    save,
    threshold_curves_info,
)

ROOT = Path(__file__).resolve().parents[2]


def result(**changes: Any) -> dict[str, Any]:
    """What `measure relations` would say of a small cell."""
    f1: dict[tuple[int, int], list[float | None]] = {
        (1, 8): [0.1, 0.3, 0.2],
        (1, 16): [0.25],
        (2, 8): [0.5, 0.7],
        (2, 16): [1.0, 0.98, None],
        (4, 16): [0.6, 0.6, 0.6, 0.6],
    }
    probes = [
        {"heads": h, "key_budget": b, "f1": v, "f1_best": None if v is None else min(1.0, v + 0.1), "seed": i}
        for (h, b), values in f1.items()
        for i, v in enumerate(values)
    ]
    data = {
        "problem": Relations(items=32, d_model=8).to_json(),
        "threshold": "own",
        "target": 0.99,
        "law": 13.86,
        "lower_bound": 0.75,
        "key_budget": {"estimate": 16, "low": 12, "high": 18},
        "probes": list(reversed(probes)),
    }
    return data | changes


def labels(axes: Axes) -> set[str]:
    legend = axes.get_legend()
    assert legend is not None
    return {text.get_text() for text in legend.get_texts()}


def drawn(info: ThresholdCurves) -> Axes:
    axes = Figure().add_subplot()
    draw_threshold_curves(info, axes)
    return axes


# --- the data ------------------------------------------------------------------------------------------------------


def test_the_points_are_means_with_student_intervals() -> None:
    info = threshold_curves_info(result())
    assert [(p.heads, p.key_budget, p.seeds) for p in info.points] == [(1, 8, 3), (1, 16, 1), (2, 8, 2), (2, 16, 2), (4, 16, 4)]
    three, one, two, clipped, same = info.points
    half = 4.303 * 0.1 / math.sqrt(3)  # t of 2 degrees of freedom, standard deviation 0.1
    assert (three.mean, three.low, three.high) == pytest.approx((0.2, 0.0, 0.2 + half), abs=1e-4)  # 0.2 - half is below 0
    assert (one.mean, one.low, one.high) == (0.25, None, None)
    half = 12.706 * 0.1 * math.sqrt(2) / math.sqrt(2)
    assert two.mean == pytest.approx(0.6) and half > 0.6 and (two.low, two.high) == (0.0, 1.0)
    assert clipped.mean == pytest.approx(0.99) and clipped.high == 1.0 and clipped.low is not None
    assert clipped.low == pytest.approx(0.99 - 12.706 * 0.01, abs=1e-4)  # the seed that failed is no number
    assert (same.mean, same.low, same.high) == pytest.approx((0.6, 0.6, 0.6))


def test_the_rest_is_copied() -> None:
    info = threshold_curves_info(result())
    assert (info.target, info.law, info.lower_bound, info.threshold) == (0.99, 13.86, 0.75, "own")
    assert (info.capacity, info.low, info.high) == (16, 12, 18)
    assert info.title == "permutation on 32 items, d_model 8"


def test_the_best_threshold_has_its_own_scores() -> None:
    own, best = threshold_curves_info(result()), threshold_curves_info(result(threshold="best"))
    assert [p.mean for p in best.points][:3] == pytest.approx([p.mean + 0.1 for p in own.points][:3])
    assert drawn(best).get_ylabel() != drawn(own).get_ylabel()


def quantile(n: int) -> float:
    """Half the width of the interval of n values, in standard deviations of their mean."""
    values = [0.5 + 0.001 * (i % 2) for i in range(n)]
    mean, low, high = mean_interval(values)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)
    assert low is not None and high is not None and high - mean == pytest.approx(mean - low)
    return (mean - low) / deviation


@pytest.mark.parametrize("n", range(2, 11))
def test_the_interval_is_students(n: int) -> None:
    assert quantile(n) == pytest.approx(stats.t.ppf(0.975, n - 1), abs=5.1e-4)


@pytest.mark.parametrize("n", [11, 12, 15, 20, 30, 60, 120])
def test_the_interval_of_many_seeds_is_students(n: int) -> None:
    assert quantile(n) == pytest.approx(stats.t.ppf(0.975, n - 1), abs=1e-6)


def test_the_figure_in_words() -> None:
    assert threshold_curves_info(result()).alt_text == (
        "F1 against total key dimension for 1, 2, 4 heads; permutation on 32 items, d_model 8. The law is at 13.9, the "
        "proven lower bound at 0.8. Explicit weights are certain at 32. The smallest budget that meets 0.99 is 16."
    )
    none = threshold_curves_info(result(key_budget={"estimate": None, "low": None, "high": None}))
    assert none.alt_text.endswith("None does.")


def test_a_result_without_a_number() -> None:
    """Every member failed: there is nothing to draw but the law, and no error."""
    lost = [probe | {"f1": None, "f1_best": None} for probe in result()["probes"]]
    info = threshold_curves_info(result(probes=lost, key_budget={"estimate": None, "low": 4, "high": None}))
    assert info.points == () and info.rows() == []
    drawn(info)


# --- the files -----------------------------------------------------------------------------------------------------


def test_the_csv_is_the_data(tmp_path: Path) -> None:
    info = threshold_curves_info(result())
    written = save(info, draw_threshold_curves, tmp_path / "new" / "fig.png")
    assert [path.name for path in written] == ["fig.svg", "fig.png", "fig.csv", "fig.pdf"]
    assert sorted(tmp_path.joinpath("new").iterdir()) == sorted(written)
    with open(written[2], newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert list(rows[0]) == ["heads", "key_budget", "f1", "low", "high", "seeds", "law", "lower_bound"]
    assert len(rows) == len(info.points)
    for row, point in zip(rows, info.points, strict=True):
        assert (int(row["heads"]), int(row["key_budget"]), int(row["seeds"])) == (point.heads, point.key_budget, point.seeds)
        assert float(row["f1"]) == point.mean and float(row["law"]) == 13.86 and float(row["lower_bound"]) == 0.75
        assert (float(row["low"]) if row["low"] else None) == point.low
        assert (float(row["high"]) if row["high"] else None) == point.high


def test_the_alternative_text_is_in_the_files(tmp_path: Path) -> None:
    info = threshold_curves_info(result())
    svg, png, _, pdf = save(info, draw_threshold_curves, tmp_path / "fig")
    assert info.alt_text in svg.read_text() and info.alt_text.encode() in png.read_bytes()
    root = ElementTree.fromstring(svg.read_text())
    assert root.get("role") == "img" and root.get("aria-label") == info.alt_text
    assert f"({info.alt_text})".encode() in pdf.read_bytes()


DRAW = """
import sys
from pathlib import Path
from tests.views.test_figures import result
from keyspan.views.figures import draw_threshold_curves, save, threshold_curves_info
save(threshold_curves_info(result()), draw_threshold_curves, Path(sys.argv[1]))
assert "matplotlib.pyplot" not in sys.modules
assert "torch" not in sys.modules
"""


def test_the_bytes_are_the_same_in_two_runs(tmp_path: Path) -> None:
    save(threshold_curves_info(result()), draw_threshold_curves, tmp_path / "a")
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    subprocess.run([sys.executable, "-c", DRAW, tmp_path / "b"], env=env, cwd=ROOT, check=True, timeout=60)
    for suffix in (".svg", ".png", ".csv", ".pdf"):
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes(), suffix
    assert not re.search(r"20\d\d-\d\d-\d\d", (tmp_path / "a.svg").read_text())


def test_the_bytes_do_not_depend_on_the_settings_of_the_user(tmp_path: Path) -> None:
    save(threshold_curves_info(result()), draw_threshold_curves, tmp_path / "a")
    with matplotlib.rc_context({"axes.facecolor": "red", "font.family": "monospace", "lines.linestyle": ":"}):
        save(threshold_curves_info(result()), draw_threshold_curves, tmp_path / "b")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_drawing_leaves_the_settings_and_the_backend_alone(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    save(threshold_curves_info(result()), draw_threshold_curves, tmp_path / "fig")
    assert dict(matplotlib.rcParams) == before


def test_where_a_figure_cannot_be_written(tmp_path: Path) -> None:
    info = threshold_curves_info(result())
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadInput, match=r"--figure.*must be a file name.*folder"):
        save(info, draw_threshold_curves, tmp_path / "folder")
    (tmp_path / "taken.svg").mkdir()
    with pytest.raises(BadInput, match=r"taken\.svg"):
        save(info, draw_threshold_curves, tmp_path / "taken")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "taken.svg"]  # and nothing half done


def test_a_suffix_or_none(tmp_path: Path) -> None:
    info = threshold_curves_info(result())
    for name, stem in (("a", "a"), ("b.svg", "b"), ("c.pdf", "c"), ("d_16.5", "d_16.5")):
        assert save(info, lambda info, axes: None, tmp_path / name)[0] == tmp_path / f"{stem}.svg"


# --- the picture ---------------------------------------------------------------------------------------------------


def test_every_line_has_its_own_marker_and_colour() -> None:
    probes = [{"heads": 2**k, "key_budget": b, "f1": min(1.0, b / 400), "f1_best": 1.0} for k in range(8) for b in (128, 256)]
    axes = drawn(threshold_curves_info(result(probes=probes)))
    lines = [bars[0] for bars in axes.containers]
    assert len(lines) == 8
    assert len({line.get_marker() for line in lines}) == len({to_rgba(line.get_color()) for line in lines}) == 8
    assert len(set(MARKERS)) == len(set(COLOURS)) == 8


def test_the_line_of_a_number_of_heads() -> None:
    info = threshold_curves_info(result())
    axes = drawn(info)
    for bars, heads in zip(axes.containers, (1, 2, 4), strict=True):
        line = bars[0]
        points = [p for p in info.points if p.heads == heads]
        assert line.get_xdata().tolist() == [p.key_budget for p in points]
        assert line.get_ydata().tolist() == [p.mean for p in points]
        assert line.get_linestyle() == "-" and line.get_marker() not in ("", "None", None)
        (segments,) = (bar.get_segments() for bar in bars[2])
        for segment, point in zip(segments, points, strict=True):
            low, high = (point.mean if end is None else end for end in (point.low, point.high))
            assert segment[:, 1].tolist() == pytest.approx([low, high])


def test_theory_is_dashed_and_named() -> None:
    axes = drawn(threshold_curves_info(result()))
    named = {"1 head", "2 heads", "4 heads", "law m′ ln m′ / d", "lower bound, proven", "$D_K^*$ = 16"}
    assert labels(axes) == named
    (bound,) = (line for line in axes.get_lines() if line.get_label() == "lower bound, proven")
    assert bound.get_linestyle() == "--" and list(np.asarray(bound.get_xdata())) == [0.75, 0.75]
    (law,) = (line for line in axes.get_lines() if str(line.get_label()).startswith("law"))
    assert law.get_linestyle() == "--" and list(np.asarray(law.get_xdata())) == [13.86, 13.86]
    (span,) = axes.patches
    box = span.get_bbox()  # type: ignore[attr-defined]
    assert (box.x0, box.x1) == (12, 18)  # the interval of the capacity
    assert axes.get_xlim()[0] == 0 and axes.get_ylim()[0] < 0 < 1 < axes.get_ylim()[1]
    assert axes.get_xlabel() and axes.get_ylabel() == "F1" and axes.get_title() == "permutation on 32 items, d_model 8"


def test_no_capacity_no_line() -> None:
    axes = drawn(threshold_curves_info(result(key_budget={"estimate": None, "low": 20, "high": None})))
    assert not axes.patches and not any("D_K^*" in label for label in labels(axes))


def test_an_open_interval_is_not_drawn_as_a_closed_one() -> None:
    """high None: the interval ends beyond the levels that were probed."""
    axes = drawn(threshold_curves_info(result(key_budget={"estimate": 16, "low": 12, "high": None})))
    (span,) = axes.patches
    box = span.get_bbox()  # type: ignore[attr-defined]
    assert box.x0 == 12 and box.x1 > 16
