"""Softmax, values, the block: what is asked, what is read off the answers, the claims and the pictures."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from tests.papers.made import answered

from keyspan.attention.shapes import Routed
from keyspan.errors import BadInput
from keyspan.papers import claims, stages, stages_measured
from keyspan.papers.adler import paper
from keyspan.papers.figures import TIERS
from keyspan.papers.stages import PEAKS, Panel, Stage, figures
from keyspan.papers.stages_measured import StageFound, measured
from keyspan.problems.embeddings import Embeddings
from keyspan.problems.in_context import InContext
from keyspan.runners.given import Rows
from keyspan.specs import Question, Run, decode
from keyspan.verdict import Status, Verdict
from keyspan.views.drawings import draw_figure, drawing_of

ROOT = Path(__file__).resolve().parents[2]


def knows(run: Run) -> Verdict:
    """Two heads and more need half the law; one head never gets beyond 0.7, and nobody without sinks beyond 0.8."""
    layer, problem = run.instrument, run.problem
    assert isinstance(layer, Routed) and isinstance(problem, InContext)
    need = problem.relations.items / problem.relations.d_model * 4
    f1 = min(1.0, layer.key_budget / need)
    f1 = min(f1, 0.7) if layer.heads == 1 else f1
    scores = {"f1": f1 if layer.sink else min(f1, 0.8), "routed": f1}
    scores |= {"routed_keys": f1, "routed_values": min(1.0, layer.value_budget / 16)} if layer.d_value else {"f1_every": f1}
    return Verdict(status=Status.MEASURED, exact=False, scores=scores)


def found(name: str, tier: str = "short") -> StageFound:
    figure = figures()[name]
    asked = paper().questions(figure, tier, 0)
    read = paper().measured(figure, tier, asked, [answered(question, knows) for question in asked])
    assert isinstance(read, StageFound)
    return read


@pytest.mark.parametrize("name", figures())
def test_what_is_asked(name: str) -> None:
    for tier in TIERS:
        stage: Stage = figures()[name].tiers[tier]
        asked = paper().questions(figures()[name], tier, 0)
        assert len(asked) == len(stage.panels) and any(p.decides for p in stage.panels)
        for panel, question in zip(stage.panels, asked, strict=True):
            assert decode(question.to_json()) == question and not question.search and question.arms
            assert question.recipe.phases[0].peak == PEAKS[name]  # type: ignore[attr-defined]
            for arm in question.arms:
                assert arm.heads is not None and max(arm.levels) // arm.heads <= panel.size[1]
                layer = question.run(arm, arm.levels[0], 0).instrument
                assert isinstance(layer, Routed) and layer.value_budget == panel.layer.value_budget
                assert (layer.hidden > 0) == (name == "block") and (layer.d_value > 0) == (name != "softmax")
    shown = {p.size for p in figures()[name].tiers["short"].panels if p.decides}
    assert shown == ({(128, 32), (512, 64)} if name == "softmax" else {(128, 32)})


def test_points_have_all_their_scores() -> None:
    values = found("values")
    assert (
        values.seeds == 5
        and found("softmax").seeds == 3
        and not values.failed_cells
        and len(values.cells_asked) == len(set(values.cells_asked))
    )
    small = values.panels[0]
    point = small.at(4, 16)
    assert point is not None and point.mean("f1") == 1.0 and len(point.scores["routed_keys"]) == 5
    one = small.at(1, 32)
    assert one is not None and one.mean("f1") == 0.7 and small.at(1, 64) is None
    assert [p.panel.label for p in values.panels] == ["", "D_V 8", "D_V 16", "D_V 64"]
    assert [c.heads for c in values.curves] == [[1, 2, 4, 8]]


def test_claims_are_judged() -> None:
    loaded = {c.id for c in claims.load(paper()) if set(c.figures) & set(figures())}
    assert loaded == {"adler-persists-softmax", "adler-persists-values", "adler-persists-block", "adler-sink-needed"}
    for name in figures():
        for judged in claims.judge(found(name), paper()):
            assert judged.holds is True and judged.measured is not None, judged
            assert judged.measured == pytest.approx(0.3 if judged.claim.id != "adler-sink-needed" else 0.2)
    smoke = claims.judge(found("softmax", "smoke"), paper())
    assert {j.holds for j in smoke} == {None}
    softmax = found("softmax")
    bare = replace(softmax, panels=softmax.panels[:2])
    assert stages_measured.sink_gain(bare) is None and stages_measured.sink_gain_interval(bare) is None
    low, high = stages_measured.sink_gain_interval(softmax) or (0.0, 0.0)
    assert 0.1 < low <= 0.2 <= high + 1e-12


@pytest.mark.parametrize("name", figures())
def test_the_picture_and_its_data(name: str, tmp_path: Path) -> None:
    read = found(name)
    info = drawing_of("adler", name).info(read)
    files = draw_figure(info, name, tmp_path, "adler")
    assert [f.name for f in files] == [f"adler-{name}.{kind}" for kind in ("svg", "png", "csv", "pdf")]
    rows = info.rows()
    assert len(rows) == sum(len(p.points) for p in read.panels) and rows[0]["seeds"] == read.panels[0].panel.seeds >= 3
    assert rows[0]["f1_low"] <= rows[0]["f1"] <= rows[0]["f1_high"]
    assert ("f1_every" in rows[0]) == (name == "softmax") and ("routed_values" in rows[0]) == (name != "softmax")
    _, columns, printed = info.printed()
    assert all(len(line) == len(columns) for line in printed) and info.first(0) == 16
    assert "2 heads at 16" in info.alt_text and info.facts()["reached"][0] == {
        "cell": "m 128, d 32",
        "heads": 1,
        "key_budget": None,
    }


def test_members_that_failed_are_told() -> None:
    def failing(run: Run) -> Verdict:
        bad = run.replicate == 1 and run.instrument.heads == 2  # type: ignore[attr-defined]
        return Verdict(status=Status.DIVERGED) if bad else knows(run)

    figure = figures()["softmax"]
    asked = paper().questions(figure, "short", 0)
    read = measured(figure, "short", asked, [answered(question, failing) for question in asked])
    assert read.failed_cells == {(128, 32, ""), (512, 64, "")}
    assert {j.holds for j in claims.judge(read, paper())} == {None}


def test_a_panel_of_given_rows() -> None:
    made = tuple((label, Embeddings(name="file", content=sha * 64)) for label, sha in (("raw", "a"), ("whitened", "b")))
    stage: Stage = figures()["block"].tiers["short"].over(Rows("minilm", 512, 384, made))
    asked: list[Question] = stages.questions(stage, 0)
    assert [p.label for p in stage.panels] == ["minilm, raw", "minilm, whitened"] and len(asked) == 2
    problem = asked[0].problem
    assert isinstance(problem, InContext) and problem.relations.embeddings.content == "a" * 64
    assert all(isinstance(p, Panel) and not p.decides and p.size == (512, 384) for p in stage.panels)
    figure = replace(figures()["block"], tiers={"short": stage})
    read = measured(figure, "short", asked, [answered(question, knows) for question in asked])
    assert {j.holds for j in claims.judge(read, paper())} == {None}  # the claim is about other rows
    info = drawing_of("adler", "block").info(read)
    assert len(info.panels) == 2 and info.panels[0].title == "m = 512, d = 384, minilm, raw" and info.first(0) == 16
    with pytest.raises(BadInput, match="--embeddings"):
        figures()["values"].tiers["short"].over(Rows("minilm", 512, 384, made))


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("adler-*.csv")), ids=lambda p: p.stem)
def test_the_documents_say_what_was_measured(path: Path) -> None:
    """Every F1 that the page shows of a figure stands in the figure's table, with its interval."""
    page = (ROOT / "docs" / "model.md").read_text("utf-8")
    rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
    stage = path.stem.removeprefix("adler-")
    panels: tuple[Panel, ...] = figures()[stage].tiers["short"].panels
    assert {(int(r["items"]), int(r["d_model"]), r["label"]) for r in rows} == {(*p.size, p.label) for p in panels}
    shown = page.partition(f"## What came out: {stage}")[2].partition("\n## ")[0]
    for row in rows:
        low, f1, high = (float(row[name]) for name in ("f1_low", "f1", "f1_high"))
        assert low <= f1 <= high and int(row["seeds"]) >= 3
        if not row["label"] or row["label"] == "no sink":
            assert f"{f1:.3f} [{low:.2f}, {high:.2f}]" in shown or (f"{f1:.3f}" == "1.000" and "1.000" in shown), row
