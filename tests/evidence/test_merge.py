"""Two stores that met later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.asked import ask, knows, told

from keyspan.errors import BadInput
from keyspan.evidence import transfer
from keyspan.evidence.record import Record, make_record
from keyspan.evidence.store import Store, open_store
from keyspan.evidence.transfer import Merged, merge
from keyspan.problems.relations import Relations
from keyspan.runners.questions import relations_question
from keyspan.verdict import Status, Verdict


def a_few(count: int = 6) -> list[Record]:
    question = relations_question(Relations(items=16, d_model=8), heads=[1, 2], key_budgets=[4, 8], seeds=2)
    runs = [run for arm in question.arms for level in arm.levels for run in question.runs(arm, level)][:count]
    return [make_record(run, knows(run), steps=7) for run in runs]


def other(record: Record, *, f1: float = 0.125, exact: bool | None = None) -> Record:
    exact = record.verdict.exact if exact is None else exact
    return replace(record, verdict=replace(record.verdict, scores={**record.verdict.scores, "f1": f1}, exact=exact))


def stores(folder: Path) -> tuple[Store, Store]:
    return open_store(f"sqlite:///{folder}/a.db"), open_store(f"sqlite:///{folder}/b.db")


def test_a_merge_takes_what_is_new_and_says_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "BATCH", 2)
    r = a_few()
    a, b = stores(tmp_path)
    with a, b:
        a.put_all(r[:4])
        lost = make_record(relations_run(r[3]), Verdict(status=Status.DIVERGED))
        b.put_all([r[1], other(r[2]), lost, r[4], r[5]])
        before = [x.to_line() for x in b.records(copies=True)]
        assert merge(a, b) == Merged(added=4, known=1, differing=2, disagreements=(r[3].run_id,))
        assert [x.to_line() for x in b.records(copies=True)] == before, "who gives is only read"
        assert a.count() == 6 and a.count(copies=True) == 8
        assert a.get(r[2].run_id) == r[2], "the first one answers"
        again = merge(a, b)
        assert (again.added, again.known) == (0, 5) and again.differing == 2
        assert merge(b, a).added == 3
        assert sorted(x.content for x in a.records(copies=True)) == sorted(x.content for x in b.records(copies=True))
        assert merge(a, a).added == 0


def relations_run(record: Record):  # type: ignore[no-untyped-def]
    from keyspan.specs import Run

    return Run.from_json(record.run)


def test_one_bad_record_and_nothing_is_merged(tmp_path: Path) -> None:
    r = a_few()
    a, b = stores(tmp_path)
    with a, b:
        b.put_all([*r[:5], replace(r[5], run_id="r" + "0" * 24)])
        with pytest.raises(BadInput, match="must be that of its run"):
            merge(a, b)
        assert a.count() == 0


def test_the_command(tmp_path: Path) -> None:
    r = a_few()
    a, b = stores(tmp_path)
    with a, b:
        a.put_all(r[:2])
        b.put_all([*r[2:], other(r[1], exact=not r[1].verdict.exact)])
    answer = told("runs", "merge", tmp_path / "a.db", f"sqlite:///{tmp_path}/b.db")
    assert (answer["added"], answer["known"], answer["differing"]) == (5, 0, 1)
    assert answer["disagreements"] == [r[1].run_id]
    said = ask("runs", "merge", tmp_path / "b.db", tmp_path / "a.db")
    assert said.code == 0 and "1 run came out differently" in said.err
    missing = ask("runs", "merge", tmp_path / "a.db", tmp_path / "c.db")
    assert missing.code == 2 and "must exist to be read" in missing.err
    assert not (tmp_path / "c.db").exists()
    assert ask("runs", "merge", tmp_path / "c.db", tmp_path / "a.db").code == 0, "who takes may be new"
