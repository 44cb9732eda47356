"""Cells recovered from records: the question that was asked, asked again, and answered from records alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.asked import Oracle, knows
from tests.files.refusals import refused

from keyspan.evidence.cells import Cell, cell_of, cells_csv
from keyspan.evidence.record import Record, make_record
from keyspan.evidence.store import Store, open_store
from keyspan.evidence.transfer import export
from keyspan.problems import graphs
from keyspan.problems.relations import Relations
from keyspan.runners import driver
from keyspan.runners.cells import fit, recover
from keyspan.runners.questions import calibration_questions, relations_question
from keyspan.specs import Channel, Question, Run
from keyspan.verdict import Status, Verdict

SIZES = ((64, 32), (64, 16), (128, 64), (128, 32))


def ask(store: Store, *questions: Question) -> list[Cell]:
    outcomes = driver.answer(questions, store, lambda: Oracle(bigger))
    asked = zip(questions, outcomes, strict=True)
    return [cell_of(q, o.answer) for q, o in asked if isinstance(q.problem, Relations)]


def bigger(run: Run) -> Verdict:
    """`knows`, where two heads do, and more are worse: the best number of heads is inside of what is tried."""
    if run.instrument.family != "channel" or run.instrument.heads <= 2:  # type: ignore[attr-defined]
        return knows(run)
    return Verdict(status=Status.MEASURED, exact=False, scores={"f1": 0.4, "f1_best": 0.4, "margin": -1.0, "threshold": 0.0})


def question(size: tuple[int, int], **asked: object) -> Question:
    return relations_question(Relations(items=size[0], d_model=size[1]), **asked)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/lab.db") as opened:
        yield opened


def test_what_was_measured_is_recovered(store: Store) -> None:
    cells = ask(store, *(question(size) for size in SIZES))
    found, left_out = recover(store.records())
    assert sorted(found, key=str) == sorted(cells, key=str) and left_out == []
    assert all(cell.key_budget is not None for cell in found)


def test_other_records_do_not_disturb_it(store: Store) -> None:
    (cell,) = ask(store, question((64, 16)))
    ask(store, question((64, 16), heads=[1, 2], key_budgets=[6, 10]), *calibration_questions(4, seeds=10))
    ask(store, question((64, 16), target=0.5))
    assert recover(store.records()) == ([cell], [])


def test_the_most_seeds_that_are_answered_in_full(store: Store) -> None:
    three, five = (question((64, 16), seeds=n) for n in (3, 5))
    (first,) = ask(store, three)
    assert recover(store.records())[0] == [first]
    store.put(make_record(next(five.runs(five.arms[0], 1)), knows(next(five.runs(five.arms[0], 1)))))
    fourth = list(five.runs(five.arms[0], five.arms[0].low))[3]
    store.put(make_record(fourth, knows(fourth)))  # one member of a fourth seed
    assert recover(store.records())[0] == [first]
    (second,) = ask(store, five)
    assert second.seeds == 5 and recover(store.records())[0] == [second]


def test_another_set_of_seeds(store: Store) -> None:
    (cell,) = ask(store, question((64, 16), seed=7))
    assert recover(store.records())[0] == [cell]


def test_an_unfinished_cell_is_named(store: Store) -> None:
    asked = question((64, 16))
    run = asked.run(asked.arms[0], asked.arms[0].low, 0)
    store.put(make_record(run, knows(run)))
    assert recover(store.records()) == (
        [],
        [("64 items, d_model 16, gradient", "its question is not answered in full by the records there are")],
    )


def test_recipes_and_families_are_apart(store: Store) -> None:
    graph = graphs.regular(2)
    other = relations_question(Relations(items=64, d_model=32, graph=graph), steps=100)
    plain, regular = ask(store, question((64, 32)), other)
    found, _ = recover(store.records())
    assert {(c.graph, c.recipe, c.edges) for c in found} == {("permutation", "gradient", 64), ("regular", "gradient@100", 128)}
    assert sorted(found, key=str) == sorted([plain, regular], key=str)


def test_a_short_list_of_heads_counts_if_its_best_is_inside(store: Store) -> None:
    (inside,) = ask(store, question((128, 32), heads=[1, 2, 4]))
    assert inside.heads == 2 and recover(store.records())[0] == [inside]


def test_a_short_list_of_heads_whose_most_is_the_best_is_left_out(store: Store, tmp_path: Path) -> None:
    ask(store, question((128, 64), heads=[1, 2, 4]), question((64, 32)))
    (cut,) = ask(store, question((128, 32), heads=[1, 2]))
    assert cut.cut_short and cut in recover(store.records())[0]
    data = fit(store=f"sqlite:///{tmp_path}/lab.db").to_dict()
    (gone,) = data["left_out"]
    assert len(data["cells"]) == 2 and gone["cell"] == "128 items, d_model 32" and "the most heads tried, 2" in gone["reason"]


def test_the_longest_list_of_heads_decides(store: Store) -> None:
    """A shorter one that was asked before knows less: more heads did with less."""

    def odd(run: Run) -> Verdict:
        needs = {1: 24, 2: 20, 4: 22, 8: 16}
        channel = run.instrument
        assert isinstance(channel, Channel)
        good = channel.key_budget >= needs.get(channel.heads, 10**6)
        return Verdict(status=Status.MEASURED, exact=good, scores={"f1": float(good), "f1_best": float(good)})

    for heads in ([1, 2, 4], [1, 2, 4, 8]):
        driver.answer([question((128, 32), heads=heads)], store, lambda: Oracle(odd))
    (cell,) = recover(store.records())[0]
    assert (cell.heads, cell.key_budget, cell.cut_short) == (8, 16, True)


def test_the_target_is_a_question_of_its_own(store: Store) -> None:
    high, low = ask(store, question((64, 16)), question((64, 16), target=0.5))
    assert recover(store.records(), 0.5)[0] == [low] and recover(store.records(), 0.99)[0] == [high]
    assert (low.key_budget or 0) < (high.key_budget or 0)


def test_records_of_unknown_families_are_skipped(store: Store) -> None:
    (cell,) = ask(store, question((64, 16)))
    record = next(iter(store.records()))
    foreign = {**record.run, "recipe": {**record.run["recipe"], "family": "sorcery"}}
    phases = [{"family": "leap", "version": 1}]
    newer = {**record.run, "recipe": {**record.run["recipe"], "phases": phases}}
    strange = [
        Record(run_id=f"r{i}", problem_id="p", run=run, verdict=record.verdict) for i, run in enumerate((foreign, newer))
    ]
    assert recover([*store.records(), *strange]) == ([cell], [])


# --- fits ----------------------------------------------------------------------------------------------------------


def test_one_fit_from_store_export_and_csv(store: Store, tmp_path: Path) -> None:
    cells = ask(store, *(question(size) for size in SIZES))
    export(store.records(), tmp_path / "records.jsonl")
    (tmp_path / "cells.csv").write_text(cells_csv(cells))
    here = fit(store=f"sqlite:///{tmp_path}/lab.db").to_dict()
    there = fit(source=tmp_path / "records.jsonl").to_dict()
    table = fit(source=tmp_path / "cells.csv").to_dict()
    assert here["run_ids"] == there["run_ids"] == sorted({i for c in cells for i in c.run_ids}) and table["run_ids"] == []
    for other in (there, table):
        for name in set(here) - {"source", "run_ids"}:
            assert other[name] == here[name], name
    assert here["parameters"]["c"]["estimate"] == pytest.approx(1.2, rel=0.15)  # the oracle's law, rounded up
    assert here["schema"] == 1 and here["trained_now"] == 0


def test_only_what_is_asked_is_fitted(store: Store, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/lab.db"
    ask(store, *(question(size) for size in SIZES), *(question(size, steps=50) for size in SIZES[:2]))
    data = fit(store=url).to_dict()
    assert len(data["cells"]) == 4
    assert {gone["reason"] for gone in data["left_out"]} == {"measured with another recipe"} and len(data["left_out"]) == 2
    assert len(fit(store=url, recipe="gradient@50").to_dict()["cells"]) == 2
    refused(lambda: fit(store=url, recipe="magic"), "--recipe", "gradient, gradient@50")
    refused(lambda: fit(store=url, graph="regular"), "at least 2 cells")


@pytest.mark.parametrize(
    "name, text, mentions",
    [
        ("cells.txt", "", ".csv of cells"),
        ("none.jsonl", None, "must be a file that exists"),
        ("bad.jsonl", "{]\n", "bad.jsonl:1"),
        ("empty.jsonl", "\n", "at least 2 cells"),
    ],
)
def test_sources_that_cannot_be_read(name: str, text: str | None, mentions: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    refused(lambda: fit(source=tmp_path / name), mentions)


def test_an_empty_store_is_refused(tmp_path: Path) -> None:
    refused(lambda: fit(store=f"sqlite:///{tmp_path}/none.db"), "at least 2 cells")
    refused(lambda: fit("gdp"), "law|ecm")
    refused(lambda: fit(target=0.0), "--target")
