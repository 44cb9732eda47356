"""Records leave a store and come home: whole, checked, and never half a file."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from keyspan.errors import BadInput, StoreError
from keyspan.evidence import store as store_module
from keyspan.evidence import transfer
from keyspan.evidence.record import Record, make_record
from keyspan.evidence.store import Store, open_store
from keyspan.evidence.transfer import COLUMNS, export, import_records, row
from keyspan.problems.dichotomies import Dichotomies
from keyspan.problems.relations import Relations
from keyspan.specs import Channel, LinearUnit, Run, Spec, Stopping, ids_of
from keyspan.verdict import Status, Verdict


@dataclass(frozen=True, kw_only=True)
class Vectors(Spec, family="test-transfer-vectors", version=1):
    """A part of the problem of this module."""

    d_model: int


@dataclass(frozen=True, kw_only=True)
class Method(Spec, family="test-transfer-method", version=1):
    """A recipe, or another thing with a name."""

    name: str = "gradient"


@dataclass(frozen=True, kw_only=True)
class Task(Spec, family="test-transfer-task", version=2):
    """A problem of this module, with a spec inside, as real ones have."""

    items: int
    embeddings: Vectors
    graph: Method = Method(name="permutation")


def a_record(replicate: int, *, f1: float = 2 / 3, status: Status = Status.MEASURED, **changes: Any) -> Record:
    chosen: dict[str, Any] = {
        "problem": Task(items=13, embeddings=Vectors(d_model=7)),
        "replicate": replicate,
        "instrument": Channel(heads=3, d_key=5),
        "recipe": Method(),
        "stopping": Stopping(),
    }
    if status is Status.MEASURED:
        verdict = Verdict(status=status, exact=False, scores={"f1": f1, "margin": -1e-7, "threshold": 3.0})
    else:
        verdict = Verdict(status=status)
    return make_record(Run(**(chosen | changes)), verdict, steps=2000, seconds=1.5, device="cpu")


RECORDS = [a_record(0), a_record(1, status=Status.DIVERGED), a_record(2, instrument=LinearUnit(), f1=1.0)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/own/store.db") as opened:
        yield opened


def with_ids(record: Record) -> Record:
    """The record with the ids that its run has."""
    problem_id, run_id = ids_of(record.run)
    return replace(record, problem_id=problem_id, run_id=run_id)


def write(path: Path, *records: Record, tail: bytes = b"") -> Path:
    path.write_bytes(b"".join(record.to_line().encode() + b"\n" for record in records) + tail)
    return path


# ---------------------------------------------------------------------------------------------------------------- out


def test_jsonl_holds_whole_records(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    assert export(iter(RECORDS), path) == 3
    assert path.read_text("ascii") == "".join(record.to_line() + "\n" for record in RECORDS)
    assert export([], path) == 0
    assert path.read_bytes() == b""
    assert [file.name for file in tmp_path.iterdir()] == ["out.jsonl"]


def test_csv_holds_flat_columns(tmp_path: Path) -> None:
    path = tmp_path / "out.CSV"
    assert export(RECORDS, path) == 3
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = list(csv.reader(file))
    assert tuple(header) == COLUMNS
    first, failed, unit = (dict(zip(header, values, strict=True)) for values in rows)
    assert first == {
        "run_id": RECORDS[0].run_id,
        "problem_id": RECORDS[0].problem_id,
        "kind": "test-transfer-task",
        "status": "measured",
        "exact": "false",
        "f1": "0.6666666666666666",  # reads back as the same float
        "f1_best": "",
        "precision": "",
        "recall": "",
        "fitted": "",
        "accuracy": "",
        "margin": "-1e-07",
        "threshold": "3.0",
        "heads": "3",
        "d_key": "5",
        "key_budget": "15",
        "items": "13",
        "d_model": "7",
        "dimension": "",
        "examples": "",
        "graph": "permutation",
        "embeddings": "test-transfer-vectors",
        "recipe": "gradient",
        "replicate": "0",
        "arithmetic": "fp32",
        "steps": "2000",
        "seconds": "1.5",
        "device": "cpu",
        "keyspan": str(RECORDS[0].provenance["keyspan"]),
        "created": str(RECORDS[0].provenance["created"]),
    } | dict.fromkeys(("recited", "shown", "stored_bits", "vocabulary", "length", "library"), "")
    assert failed["status"] == "diverged"
    assert {failed[name] for name in ("exact", "f1", "margin", "threshold")} == {""}  # a failure is never a number
    assert {unit[name] for name in ("heads", "d_key", "key_budget")} == {""}
    assert export([], path) == 0
    assert path.read_text() == ",".join(COLUMNS) + "\n"


def test_a_row_has_the_columns_that_are_documented() -> None:
    assert tuple(row(RECORDS[0])) == COLUMNS
    table = [line[4:46] for line in str(transfer.__doc__).splitlines() if line.startswith("    ")]
    assert tuple(name for line in table for name in re.findall(r"\w+", line)) == COLUMNS


def test_an_export_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("what was there")

    def fails() -> Iterator[Record]:
        yield RECORDS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(fails(), path)
    assert path.read_text() == "what was there"
    assert [file.name for file in tmp_path.iterdir()] == ["out.jsonl"]


@pytest.mark.parametrize("name", ["out", "out.feather", "out.json", "jsonl", ".csv"])
def test_an_unknown_ending_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"must be one of \.jsonl, \.csv, \.parquet, but got .* Change its ending"):
        export(RECORDS, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").touch()
    for path in (tmp_path / "folder.csv", tmp_path / "missing" / "out.csv", tmp_path / "file" / "out.csv"):
        with pytest.raises(BadInput, match="must be a file one can write, but"):
            export(RECORDS, path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["file", "folder.csv"]


# ----------------------------------------------------------------------------------------------------------------- in


def test_what_was_exported_comes_home(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    export(RECORDS, path)
    assert import_records(path, store) == (3, 0, 0)
    assert [record.to_line() for record in store.records()] == [record.to_line() for record in RECORDS]
    assert import_records(str(path), store) == (0, 3, 0)
    assert store.count(copies=True) == 3


def test_a_copy_that_disagrees_is_kept(store: Store, tmp_path: Path) -> None:
    store.put(a_record(0, f1=0.5))
    path = write(tmp_path / "in.jsonl", a_record(0, f1=0.25), a_record(0, f1=0.5), a_record(1), a_record(1))
    assert import_records(path, store) == (2, 2, 0)
    assert [copy.verdict.scores["f1"] for copy in store.copies(a_record(0).run_id)] == [0.5, 0.25]


def test_a_folder_as_a_worker_leaves_it(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    write(folder / "records-b.jsonl", a_record(2), a_record(3), tail=b'{"problem_id":"p12","prov')
    write(folder / "records-a.jsonl", a_record(0), a_record(1), tail=b"\n  \n")
    write(folder / "empty.jsonl")
    (folder / "members.jsonl").write_text('{"family":"run"}\n')
    (folder / "members-2.jsonl").write_text("members too\n")
    (folder / "checkpoint.safetensors").write_bytes(b"\x00\x01")
    (folder / "deeper.jsonl").mkdir()
    assert import_records(folder, store) == (4, 0, 1)
    assert [record.run["replicate"] for record in store.records()] == [0, 1, 2, 3]


def test_a_last_line_needs_no_newline_to_be_whole(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", a_record(0), tail=a_record(1).to_line().encode())
    assert import_records(path, store) == (2, 0, 0)


@pytest.mark.parametrize("keep", [1, 2, 100, -1])
def test_a_torn_last_line_is_skipped_and_counted(store: Store, tmp_path: Path, keep: int) -> None:
    path = write(tmp_path / "in.jsonl", a_record(0), tail=a_record(1).to_line().encode()[:keep])
    assert import_records(path, store) == (1, 0, 1)
    write(path, a_record(0), a_record(1))  # the worker went on
    assert import_records(path, store) == (1, 1, 0)


def refused() -> Iterator[tuple[str, bytes, str]]:
    """Every way a line can be bad: name, the line, what the message says."""
    good = a_record(1).to_json()

    def line(**changes: Any) -> bytes:
        return json.dumps(good | changes).encode() + b"\n"

    run = good["run"]
    yield "torn in the middle", a_record(1).to_line().encode()[:50] + b"\n", "must be JSON"
    yield "not text", b"\xff\xfe\x00\n", "must be JSON"
    yield "not text, at the end", b"\xff\xfe\x00", "must be JSON"
    yield "not a record", b"[1, 2]\n", "must be a JSON object"
    yield "a number, at the end", b"12", "must be a JSON object"
    yield "a newer schema", line(schema=2), "must have schema 1, but got 2"
    yield "a newer schema, at the end", line(schema=2)[:-1], "must have schema 1, but got 2"
    yield "another run id", line(run_id=a_record(2).run_id), "`run_id` of a record must be that of its run"
    yield "another problem id", line(problem_id="p0"), "`problem_id` of a record must be that of its run"
    yield "another seed", line(run=run | {"replicate": 9}), "must be that of its run"
    yield "a seed below zero", line(run=run | {"replicate": -1}), "`seed >= 0` must hold"
    yield "an unknown field", line(run=run | {"extra": 1}), "known fields only"
    yield "no stopping rule", line(run={k: v for k, v in run.items() if k != "stopping"}), "must have all its fields"
    yield "a run of another version", line(run=run | {"version": 2}), "must hold a run of version 1"
    yield "a run that is something else", line(run=run | {"family": "walk"}), "must hold a run of version 1"
    strange = {"family": "zzz"}
    yield "nothing to hash", line(run={k: v for k, v in run.items() if k != "stopping"} | {"recipe": strange}), "stopping"
    yield "no run in it", line(run={}), "must hold a run of a problem, an instrument and a recipe"
    yield "a run that is a problem", line(run=run["problem"]), "must hold a run of a problem"
    yield "a problem that is text", line(run=run | {"problem": "relations"}), "must hold a run of a problem"
    nan = json.dumps(good | {"provenance": {"seconds": float("nan")}}).encode() + b"\n"
    yield "a number without a value", nan, "finite"
    yield "nested too deep to read", b"[" * 100_000 + b"]" * 100_000 + b"\n", "nested at most 50 deep"
    yield "nested deeper than any record", line(provenance={"a": json.loads("[" * 60 + "]" * 60)}), "nested at most 50 deep"
    yield "a family that is no text", line(run=run | {"problem": {"family": ["x"]}}), "family must be text, but got"
    yield "half a character", line(provenance={"device": "\ud800"}), "text that has a UTF-8 form"
    yield "half a character in a family", line(run=run | {"recipe": {"family": "\udfff"}}), "text that has a UTF-8 form"
    verdict = good["verdict"] | {"scores": {"f1": 10**400}}
    yield "a score that no float can hold", line(verdict=verdict), "`f1` must be a finite number, but got 1000"


@pytest.mark.parametrize("bad, reason", [pytest.param(b, r, id=name) for name, b, r in refused()])
def test_one_bad_line_refuses_the_whole_import(store: Store, tmp_path: Path, bad: bytes, reason: str) -> None:
    write(tmp_path / "a.jsonl", a_record(5))
    write(tmp_path / "b.jsonl", a_record(0), tail=b"\n" + bad)
    if bad.endswith(b"\n"):
        write(tmp_path / "b.jsonl", a_record(0), tail=b"\n" + bad + a_record(3).to_line().encode() + b"\n")
    with pytest.raises(BadInput, match=reason) as caught:
        import_records(tmp_path, store)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/b.jsonl:3: ")
    assert "\n" not in message
    assert store.count() == 0


@pytest.mark.parametrize(
    "part, change",
    [
        ("problem", {"family": "from-the-future"}),
        ("recipe", {"family": "from-the-future"}),
        ("problem", {"version": 3}),
    ],
)
def test_what_cannot_be_decoded_here_is_kept_as_it_is(store: Store, tmp_path: Path, part: str, change: dict[str, Any]) -> None:
    record = a_record(0)
    foreign = replace(record, run=dict(record.run) | {part: dict(record.run[part]) | change})
    path = write(tmp_path / "in.jsonl", foreign)
    with pytest.raises(BadInput, match="of a record must be that of its run"):  # the ids are those of the genuine run
        import_records(path, store)
    foreign = with_ids(foreign)
    assert import_records(write(path, foreign), store) == (1, 0, 0)
    assert store.find(foreign.run_id).to_line() == foreign.to_line()
    assert row(foreign)["replicate"] == 0


@pytest.mark.parametrize(
    "part",
    [
        {"problem": {"family": "zzz", "version": 9, "graph": "abc", "embeddings": [1], "items": {"a": 1}}},
        {"instrument": {"family": "zzz", "version": 9, "heads": "x", "d_key": {}}},
        {"instrument": {"family": "zzz", "version": 9, "heads": True, "d_key": 2.5}},
        {"recipe": {"family": "zzz", "name": None}, "replicate": [1]},
    ],
)
def test_one_strange_record_does_not_break_the_listing(store: Store, tmp_path: Path, part: dict[str, Any]) -> None:
    record = with_ids(replace(a_record(0), run=dict(a_record(0).run) | part, provenance={"device": {}, "steps": [1]}))
    assert import_records(write(tmp_path / "in.jsonl", record), store) == (1, 0, 0)
    flat = row(record)
    assert all(value is None or isinstance(value, str | int | float) for value in flat.values())
    assert flat["key_budget"] is None or "instrument" not in part
    assert export(store.records(), tmp_path / "out.csv") == 1


def a_measured(scores: dict[str, float], *, dichotomies: bool = False) -> Record:
    """A record of a real family, with these scores."""
    run = Run(
        problem=Dichotomies(dimension=7, examples=13) if dichotomies else Relations(items=13, d_model=7),
        replicate=0,
        instrument=LinearUnit() if dichotomies else Channel(heads=3, d_key=5),
        recipe=Method(),
        stopping=Stopping(),
    )
    return make_record(run, Verdict(status=Status.MEASURED, exact=False, scores=scores))


def test_a_genuine_run_with_other_scores_is_refused(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    whole = dict.fromkeys(Relations.scores, 0.5)
    for name in Relations.scores:
        with pytest.raises(BadInput, match=f"must have the scores f1, .* but got none of name {name}"):
            import_records(write(path, a_measured({k: v for k, v in whole.items() if k != name} | {"foo": 1.0})), store)
    with pytest.raises(BadInput, match="none of name fitted"):
        import_records(write(path, a_measured({"accuracy": 1.0}, dichotomies=True)), store)
    good = [a_measured(whole), a_measured({"fitted": 0.0, "accuracy": 0.5}, dichotomies=True)]
    assert import_records(write(path, *good), store) == (2, 0, 0)


def test_what_is_no_import_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    write(tmp_path / "folder" / "members.jsonl", a_record(0))
    export(RECORDS, tmp_path / "out.csv")
    for path, reason in (
        (tmp_path / "folder", r"A folder to import must hold `\*\.jsonl` files, but"),
        (tmp_path / "out.csv", r"must be a `\.jsonl` file or a folder of them, but got"),
        (tmp_path / "missing", r"must be a `\.jsonl` file or a folder of them, but got"),
        (tmp_path / "missing.jsonl", "must be a file one can read, but .*No such file"),
    ):
        with pytest.raises(BadInput, match=reason) as caught:
            import_records(path, store)
        assert "\n" not in str(caught.value)


def test_a_read_only_store_takes_nothing(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl", a_record(0))
    with open_store(f"sqlite:///{tmp_path}/own/store.db", read_only=True) as reader, pytest.raises(StoreError):
        import_records(path, reader)


def test_an_import_is_many_transactions_and_one_count(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "BATCH", 3)
    path = write(tmp_path / "in.jsonl", *[a_record(i % 11) for i in range(20)])
    assert import_records(path, store) == (11, 9, 0)
