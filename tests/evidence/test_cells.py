"""Cells: read off an answer, written to CSV and read again, refused when they make no sense."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from tests.files.refusals import refused

from keyspan.evidence.cells import COLUMNS, Cell, cell_of, cells_csv, read_cells, recipe_name
from keyspan.lab.recipes import gradient
from keyspan.lab.search import Answer, propose
from keyspan.problems.relations import Relations
from keyspan.runners.questions import relations_question
from keyspan.specs import Channel, Question, Run
from keyspan.verdict import Status, Verdict


def scored(f1: float) -> Verdict:
    return Verdict(status=Status.MEASURED, exact=f1 == 1.0, scores={"f1": f1, "f1_best": f1})


def answer_to(question: Question, needs: dict[int, int | None]) -> Answer:
    """The answer if h heads pass from needs[h] on; None: never."""
    verdicts: dict[str, Verdict] = {}
    while True:
        step = propose(question, verdicts)
        if isinstance(step, Answer):
            return step
        for run in step.runs:
            verdicts[run.run_id] = verdict_of(run, needs)


def verdict_of(run: Run, needs: dict[int, int | None]) -> Verdict:
    assert isinstance(run.instrument, Channel)
    need = needs[run.instrument.heads]
    return scored(1.0 if need is not None and run.instrument.key_budget >= need else 0.5)


def question(seeds: int = 3) -> Question:
    return relations_question(Relations(items=32, d_model=16), heads=(1, 2, 4), seeds=seeds)


# --- from an answer ------------------------------------------------------------------------------------------------


def test_a_cell_is_read_off_an_answer() -> None:
    asked = question()
    answer = answer_to(asked, {1: 12, 2: 8, 4: 8})
    cell = cell_of(asked, answer)
    assert (cell.items, cell.d_model, cell.edges, cell.graph, cell.embeddings) == (32, 16, 32, "permutation", "gaussian")
    assert (cell.key_budget, cell.low, cell.high, cell.heads, cell.seeds, cell.failed) == (8, 8, 8, 2, 3, 0)
    assert (cell.heads_low, cell.heads_high, cell.most_heads) == (2, 4, 4)
    assert cell.recipe == "gradient" and cell.target == 0.99
    assert cell.run_ids == tuple(sorted({p.run.run_id for p in answer.probes}))
    assert cell.ratio == pytest.approx(8 / cell.law)


def test_the_evidence_changes_with_the_members() -> None:
    one, more = question(), question(seeds=4)
    first = cell_of(one, answer_to(one, {1: 12, 2: 8, 4: 8}))
    assert first.evidence == cell_of(one, answer_to(one, {1: 12, 2: 8, 4: 8})).evidence
    assert first.evidence != cell_of(more, answer_to(more, {1: 12, 2: 8, 4: 8})).evidence


def test_a_censored_cell_has_no_number() -> None:
    asked = question()
    cell = cell_of(asked, answer_to(asked, {1: None, 2: None, 4: None}))
    assert (cell.key_budget, cell.heads, cell.ratio, cell.several_beat_one, cell.clear) == (None, None, None, None, False)


@pytest.mark.parametrize(
    "needs, several, clear",
    [
        ({1: 12, 2: 8, 4: 8}, True, True),
        ({1: None, 2: 8, 4: 8}, True, True),  # a single head fails at its widest
        ({1: 8, 2: 8, 4: 8}, False, False),  # several do as well
        ({1: 4, 2: 8, 4: 8}, False, True),
    ],
)
def test_several_against_one(needs: dict[int, int | None], several: bool, clear: bool) -> None:
    asked = question()
    cell = cell_of(asked, answer_to(asked, needs))
    assert (cell.several_beat_one, cell.clear) == (several, clear)


def test_overlapping_intervals_are_not_clear() -> None:
    cell = Cell(
        items=32, d_model=16, edges=32, key_budget=8, low=6, high=12, heads=2, one_head=12, one_head_low=9, most_heads=4
    )
    assert cell.several_beat_one and not cell.clear
    assert replace(cell, high=8).clear
    assert not replace(cell, high=None).clear


def test_cut_short_where_more_heads_were_not_tried() -> None:
    cell = Cell(items=64, d_model=16, edges=64, key_budget=8, heads=4, most_heads=4)
    assert cell.cut_short  # 8 = items / 8 were not tried
    assert not replace(cell, most_heads=8).cut_short
    assert not replace(cell, heads=8, most_heads=8).cut_short  # as many as ever


def test_recipes_are_told_apart() -> None:
    assert recipe_name(gradient()) == "gradient"
    assert recipe_name(gradient(steps=300)) == "gradient@300"
    assert recipe_name(gradient(), "bf16") == "gradient+bf16"


def test_the_cell_in_words() -> None:
    assert Cell(items=8, d_model=4, edges=8).name == "8 items, d_model 4"
    assert Cell(items=8, d_model=4, edges=9, graph="erdos-renyi", embeddings="sign").name == (
        "8 items, d_model 4, erdos-renyi, sign"
    )


# --- files ---------------------------------------------------------------------------------------------------------


def test_cells_come_back_from_their_csv(tmp_path: Path) -> None:
    asked = question()
    reached: dict[int, int | None] = {1: 12, 2: 8, 4: 8}
    cells = [cell_of(asked, answer_to(asked, needs)) for needs in (reached, dict.fromkeys(reached))]
    (tmp_path / "cells.csv").write_text(cells_csv(cells))
    assert read_cells(tmp_path / "cells.csv") == [replace(cell, run_ids=()) for cell in cells]
    assert list(csv.DictReader(io.StringIO(cells_csv(cells))).fieldnames or ()) == list(COLUMNS)


def test_a_short_table_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_text("items,d_model,key_budget,comment\n128,32,24,mine\n64,16,,\n")
    first, second = read_cells(path)
    assert (first.items, first.d_model, first.edges, first.key_budget, first.target) == (128, 32, 128, 24, 0.99)
    assert second.key_budget is None and first.evidence != second.evidence


@pytest.mark.parametrize(
    "text, mentions",
    [
        ("items,d_model\n1,2\n", "key_budget"),
        ("a\n", "items"),
        ("items,d_model,key_budget\n128,x,3\n", "`d_model`"),
        ("items,d_model,key_budget\n128,-4,3\n", "`d_model`"),
        ("items,d_model,key_budget\n128,4,2.5\n", "`key_budget`"),
        ("items,d_model,key_budget\n128,4,nan\n", "`key_budget`"),
        ("items,d_model,key_budget\n,4,3\n", "`items`"),
        ("items,d_model,key_budget,target\n8,4,3,2\n", "target"),
        ("items,d_model,key_budget,target\n8,4,3,high\n", "target"),
        ("items,d_model,key_budget,edges\n8,4,3,64\n", "edges"),
    ],
)
def test_what_is_no_cell_is_refused(text: str, mentions: str, tmp_path: Path) -> None:
    (tmp_path / "cells.csv").write_text(text)
    refused(lambda: read_cells(tmp_path / "cells.csv"), mentions)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cells.csv").write_bytes(b"items,d_model\n\xff\xfe,1\n")
    refused(lambda: read_cells(tmp_path / "cells.csv"), "CSV")
    refused(lambda: read_cells(tmp_path / "none.csv"), "none.csv")
