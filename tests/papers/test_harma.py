"""The figures of Haermae et al.: what is asked, what they make of known decoders, their claims and their pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.asked import ask
from tests.papers.made import answered
from tests.recitals import RHO, RIDE, H, knows

from keyspan.papers import claims, harma
from keyspan.papers.figures import TIERS, Figure
from keyspan.papers.harma import SIZES, Sweep, questions
from keyspan.papers.harma_measured import STATISTICS, Recitals, gain_ratio, measured, paper
from keyspan.specs import Question, Run, decode
from keyspan.verdict import Status, Verdict
from keyspan.views.drawings import draw_figure, drawing_of

SMALL = replace(
    SIZES["smoke"], grid=((1, 2, 4), (8, 16), (8, 12, 16, 24)), cells=((8, 8), (16, 16)), heads=(1, 2, 4), libraries=3
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits of few starts and draws: these cells have no noise."""
    monkeypatch.setattr("keyspan.evidence.fits_ecm.STARTS", 2)
    monkeypatch.setattr("keyspan.papers.harma_measured.FIT_DRAWS", 2)


def figure(name: str) -> Figure:
    """A figure of few cells, enough for its claims."""
    build = next(build for known, _, build, _ in harma.FIGURES if known == name)
    batches = replace(SMALL, batches=(8, 16, 32, 64, 128))
    return Figure(name, f"Title of {name}", dict.fromkeys(TIERS, build(batches, "short")))


def found(name: str) -> Recitals:
    """What it comes to where every decoder is known."""
    asked = questions(figure(name), "short")
    return measured(figure(name), "short", asked, [answered(question, knows) for question in asked])


@pytest.fixture(scope="module")
def grid() -> Recitals:
    return found("capacity")


def test_what_is_asked_at_every_tier() -> None:
    figures = harma.figures()
    assert [name for name, f in figures.items() if not f.group] == [
        "capacity", "tent", "batch", "frozen", "layers", "residuals", "per-parameter",
    ]  # fmt: skip
    for one in figures.values():
        for tier in ("smoke", "short"):
            asked = questions(one, tier)
            assert asked and all(decode(q.to_json()) == q for q in asked[:3])
    short = figures["capacity"].tiers["short"]
    assert isinstance(short, Sweep) and len(short.asks) == 2 * 4 * 3 * 4 and short.seeds == 2
    paper_tier = figures["capacity"].tiers["paper"]
    assert len(paper_tier.asks) == 2 * 5 * 5 * 6 and paper_tier.seeds == 3
    assert questions(figures["residuals"], "short") == questions(figures["capacity"], "short")


def test_saturated_cells_are_asked_with_twice_the_steps() -> None:
    asked: list[Question] = questions(harma.figures()["capacity"], "short")
    saturated = [q for q in asked if q.recipe.name == "saturated"]  # type: ignore[attr-defined]
    steps = [q.recipe.steps for q in saturated]  # type: ignore[attr-defined]
    assert steps[::2] == [4000] * 48 and steps[1::2] == [8000] * 48
    assert len(asked) - len(saturated) == 48


def test_the_fits_find_the_law_that_made_the_cells(grid: Recitals) -> None:
    fit = grid.fits["saturated"]
    ours = fit.law("per-parameter-H")
    assert ours.mape is not None and ours.mape < 0.02
    assert ours.parameters["rho"].estimate == pytest.approx(RIDE * RHO, rel=0.02)
    assert ours.parameters["h"].estimate == pytest.approx(H, abs=0.03)
    assert fit.law("ecm-max").mape > 5 * ours.mape  # type: ignore[operator]
    assert grid.fits["budgeted"].law("budget").mape < 0.05  # type: ignore[operator]


def test_claims_are_judged(grid: Recitals) -> None:
    judged = {
        j.claim.id: j for one in (grid, found("batch"), found("frozen"), found("tent")) for j in claims.judge(one, paper())
    }
    assert judged["harma-parameters-decide"].holds is True
    assert judged["harma-mac-mls"].holds is True and judged["harma-mac-mls"].low is not None
    assert judged["harma-batch-saturates"].holds is False  # capacity here grows as a power of the batch
    assert judged["harma-attention-alone"].holds is True
    for id_ in ("harma-error", "harma-held-out", "harma-lower-bound", "harma-beats-polynomial", "harma-bound-by-heads"):
        assert judged[id_].holds is not None and judged[id_].measured is not None
    assert {c.statistic for c in claims.load(paper())} == set(STATISTICS)


def test_few_cells_decide_nothing(grid: Recitals) -> None:
    few = replace(grid, points=grid.points[:9])
    assert all(statistic(few) is None for name, statistic in STATISTICS.items() if name not in ("frozen_share",))


def test_a_cell_that_moves_is_left_out_and_named() -> None:
    def moving(run: Run) -> Verdict:
        verdict = knows(run)
        late = run.recipe.steps > SMALL.steps and run.instrument.heads == 4  # type: ignore[attr-defined]
        return replace(verdict, scores={**verdict.scores, "recited": verdict.scores["recited"] * 1.1}) if late else verdict

    asked = questions(figure("capacity"), "short")
    moved = measured(figure("capacity"), "short", asked, [answered(q, moving) for q in asked])
    assert {row["heads"] for row in moved.left_out} == {4} and len(moved.left_out) == 8
    assert len(moved.fits["saturated"].used) == 16


def test_a_member_without_a_number_decides_nothing() -> None:
    asked = questions(figure("frozen"), "short")
    lost = [answered(q, lambda run: Verdict(status=Status.DIVERGED)) for q in asked]
    failed = measured(figure("frozen"), "short", asked, lost)
    assert len(failed.failed_cells) == len(failed.points)
    assert {j.holds for j in claims.judge(failed, paper())} == {None}


def test_gains() -> None:
    assert gain_ratio([100, 110, 115, 116]) == pytest.approx(0.1)
    assert gain_ratio([100, 110, 90, 91]) >= 1.0  # a doubling lost more than 5%
    assert gain_ratio([100, 90, 95]) >= 1.0


@pytest.mark.parametrize("name", ["tent", "batch", "frozen", "activations"])
def test_pictures_and_their_data(name: str, tmp_path: Path) -> None:
    one = found(name)
    info = drawing_of("harma", name).info(one)
    files = draw_figure(info, name, tmp_path, "harma")
    assert [f.suffix for f in files] == [".svg", ".png", ".csv", ".pdf"] and all(f.stat().st_size for f in files)
    title, columns, rows = info.printed()
    assert title and rows and all(len(row) == len(columns) for row in rows) and "recited" in info.alt_text.lower()


@pytest.mark.parametrize("name", ["capacity", "residuals", "per-parameter"])
def test_pictures_of_the_grid(name: str, grid: Recitals, tmp_path: Path) -> None:
    info = drawing_of("harma", name).info(replace(grid, figure=figure(name)))
    assert draw_figure(info, name, tmp_path, "harma")
    assert info.rows() and info.facts()["capacities"] == 48


def test_measures_stand_beside_each_other() -> None:
    told = drawing_of("harma", "tent").info(found("tent")).facts()["measures"]
    assert len(told) == 6 and all(row["literal"] == 0 and 0.8 < row["ride_over_ladder"] < 1.05 for row in told)


def test_what_is_not_there_is_named() -> None:
    assert "harma:capacity" in ask("reproduce", "harma:nothing").err
