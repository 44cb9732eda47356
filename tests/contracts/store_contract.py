"""What every store must do, whatever database is behind it.

A store's own test module makes a class `TestXStore(StoreContract)` and gives it the fixture `make_store`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import pytest

import keyspan
from keyspan.errors import BadInput, StoreError
from keyspan.evidence import store as store_module
from keyspan.evidence.record import Record
from keyspan.evidence.store import Store, open_store
from keyspan.verdict import Status, Verdict

SOURCES = Path(keyspan.__file__).parents[1]


class MakeStore(Protocol):
    """Opens stores by name, each empty the first time, and closes them after the test."""

    def __call__(self, name: str = "a", *, read_only: bool = False, missing_ok: bool = False) -> Store: ...

    def url(self, name: str = "a") -> str: ...


def a_record(
    number: int,
    *,
    kind: str = "relations",
    status: Status = Status.MEASURED,
    f1: float = 0.1 + 0.2,
    provenance: dict[str, Any] | None = None,
) -> Record:
    """A record whose run id ends in its number; what else it says is chosen to be hard to write down."""
    measured = status is Status.MEASURED
    return Record(
        run_id=f"r{number:024x}",
        problem_id=f"p{number // 3:024x}",
        run={
            "family": "run",
            "problem": {"family": kind, "name": "Härmä \N{SNOWMAN} \\ \" ' \n \u2028"},
            "tiny": 5e-324,
        },
        verdict=Verdict(
            status=status,
            exact=False if measured else None,
            scores={"f1": f1, "margin": -1.7976931348623157e308} if measured else {},
            witness={"min_edge": [1 / 3, 7, 11]} if measured else {},
        ),
        provenance={"steps": 2000, "seconds": 1e-7, "large": 2**70, "none": None} | (provenance or {}),
    )


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Run Python code in a process of its own; `a_record` is there, and it reads `sys.argv`."""
    prelude = "import sys, time, os\nfrom tests.contracts.store_contract import *\n"
    path = os.pathsep.join([str(SOURCES), str(Path(__file__).parents[2])])
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", prelude + textwrap.dedent(code), *arguments],
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(*processes: subprocess.Popen[str]) -> list[str]:
    """Let the processes go (they wait for a line), and return what each said; a failure of any is shown."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=60) for process in processes]
    for process, (_, errors) in zip(processes, said, strict=True):
        assert process.returncode == 0, errors
        assert errors == ""
    return [out for out, _ in said]


class StoreContract:
    """Inherited by the test class of every store."""

    @pytest.fixture
    def make_store(self) -> Iterator[MakeStore]:
        raise NotImplementedError("the test class of a store says how it is made")

    # ---------------------------------------------------------------------------------------------- one at a time

    def test_a_record_comes_back_byte_for_byte(self, make_store: MakeStore) -> None:
        store = make_store()
        kept = [a_record(1), a_record(2, status=Status.DIVERGED), a_record(3, kind="dichotomies")]
        for record in kept:
            assert store.put(record) is True
        for reader in (store, make_store(), make_store(read_only=True)):
            for record in kept:
                found = reader.get(record.run_id)
                assert found is not None
                assert found.to_line() == record.to_line()
                assert found == record
            assert reader.count() == 3
        assert store.get(a_record(4).run_id) is None
        assert store.get(kept[0].run_id[:-1]) is None

    def test_the_first_record_of_a_run_wins(self, make_store: MakeStore) -> None:
        store = make_store()
        assert store.put(a_record(1, f1=0.5)) is True
        assert store.put(a_record(1, f1=0.5)) is False
        assert store.put(a_record(1, f1=0.6)) is False
        assert [r.verdict.scores["f1"] for r in store.records(copies=True)] == [0.5]

    def test_put_all_counts_what_is_new(self, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store_module, "BATCH", 4)
        store = make_store()
        assert store.put_all([]) == 0
        assert store.put_all([a_record(1), a_record(1), a_record(2)]) == 2
        assert store.put_all(a_record(i) for i in range(11)) == 9
        assert store.count() == 11

    def test_a_batch_is_stored_whole_or_not_at_all(self, make_store: MakeStore) -> None:
        store = make_store()
        bad = a_record(2, provenance={"nan": float("nan")})
        with pytest.raises(BadInput, match="finite"):
            store.put_all([a_record(1), bad])
        assert store.count() == 0
        assert store.put(a_record(1)) is True

    def test_a_removed_run_can_be_put_again(self, make_store: MakeStore) -> None:
        store = make_store()
        store.put_all([a_record(1, f1=0.5), a_record(2)])
        store.put_copy(a_record(1, f1=0.25))
        assert store.remove(a_record(1).run_id) == 2
        assert store.get(a_record(1).run_id) is None
        assert store.copies(a_record(1).run_id) == []
        assert [r.run_id for r in store.records(copies=True)] == [a_record(2).run_id]
        assert (store.count(), store.count(copies=True)) == (1, 1)
        with pytest.raises(BadInput, match=r"^A run id must be in the store, but got 'r0+1'"):
            store.remove(a_record(1).run_id)
        with pytest.raises(BadInput, match="must be in the store"):
            store.find(a_record(1).run_id)
        assert store.put(a_record(1, f1=0.75)) is True
        assert store.put(a_record(1, f1=0.5)) is False
        found = store.get(a_record(1).run_id)
        assert found is not None
        assert found.verdict.scores["f1"] == 0.75
        assert store.remove(a_record(1).run_id) == 1
        assert store.count() == 1

    def test_copies_that_disagree_are_kept_and_the_first_answers(self, make_store: MakeStore) -> None:
        store = make_store()
        mine, same, other = a_record(1, f1=0.5), a_record(1, f1=0.5, provenance={"host": "b"}), a_record(1, f1=0.25)
        assert store.put_copy(mine) is True
        assert store.put_copy(same) is False  # they agree: where it was measured makes no difference
        assert store.put_copy(other) is True
        assert store.put_copy(other) is False
        assert store.put(other) is False
        store.put(a_record(2))
        assert [r.to_line() for r in store.copies(mine.run_id)] == [mine.to_line(), other.to_line()]
        assert store.get(mine.run_id) == mine
        assert store.find(mine.run_id) == mine
        assert store.get_many([mine.run_id]) == {mine.run_id: mine}
        assert list(store.records()) == [mine, a_record(2)]
        assert list(store.records(copies=True)) == [mine, other, a_record(2)]
        assert (store.count(), store.count(copies=True)) == (2, 3)

    def test_merging_two_stores_either_way_keeps_every_copy(self, make_store: MakeStore) -> None:
        a, b = make_store("a"), make_store("b")
        a.put_all([a_record(1, f1=0.5), a_record(2)])
        b.put_all([a_record(2), a_record(1, f1=0.25), a_record(3)])
        assert a.put_all(b.records(copies=True), copies=True) == 2
        assert b.put_all(a.records(copies=True), copies=True) == 1
        lines = [sorted(r.to_line() for r in s.records(copies=True)) for s in (a, b)]
        assert lines[0] == lines[1]
        assert len(lines[0]) == 4
        assert a.put_all(b.records(copies=True), copies=True) == 0

    def test_find_takes_the_beginning_of_an_id(self, make_store: MakeStore) -> None:
        store = make_store()
        store.put_all(a_record(i) for i in (0x10, 0x11, 0x20))
        stem = f"r{0:022x}"
        assert store.find(stem + "2") == a_record(0x20)
        assert store.find(stem + "11") == a_record(0x11)
        with pytest.raises(BadInput, match=r"must be unique, but 'r0+1' begins r0+10, r0+11\. "):
            store.find(stem + "1")
        for unknown in ("", "x", "r1", stem + "111", stem + "%", "_", stem + "2 ", "\N{SNOWMAN}", "R" + stem[1:] + "2"):
            with pytest.raises(BadInput, match="must be in the store"):
                store.find(unknown)

    def test_get_many_answers_in_the_order_asked(self, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store_module, "BATCH", 4)
        store = make_store()
        store.put_all(a_record(i) for i in range(20))
        wanted = [a_record(i).run_id for i in (17, 3, 99, 3, 11, 2, 5, 7, 13)]
        found = store.get_many(iter(wanted))
        assert list(found) == [a_record(i).run_id for i in (17, 3, 11, 2, 5, 7, 13)]
        assert all(found[run_id].run_id == run_id for run_id in found)
        assert store.get_many([]) == {}

    def test_records_stream_in_order_by_pages(self, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store_module, "BATCH", 4)
        store = make_store()
        order = [7, 3, 11, 2, 5, 13, 1, 17, 19, 23, 0]
        store.put_all(a_record(i, kind="relations" if i % 2 else "dichotomies") for i in order)

        def numbers(**filters: Any) -> list[int]:
            return [int(r.run_id[1:], 16) for r in store.records(**filters)]

        assert numbers() == order
        assert numbers(limit=5) == order[:5]
        assert numbers(limit=0) == []
        assert numbers(kind="dichotomies") == [2, 0]
        assert numbers(kind="sequences") == []
        with pytest.raises(BadInput, match=r"`limit >= 0` must hold, but got -1"):
            store.records(limit=-1)

    def test_streaming_while_writing_ends(self, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store_module, "BATCH", 2)
        store = make_store()
        store.put_all(a_record(i) for i in range(5))
        seen = []
        for number, record in zip(range(50), store.records(), strict=False):  # a stream without an end would hang
            store.put(a_record(100 + number))
            seen.append(record)
        assert seen == [a_record(i) for i in range(5)]
        assert store.count() == 10

    def test_status_filters(self, make_store: MakeStore) -> None:
        store = make_store()
        store.put_all(a_record(i, status=status) for i, status in enumerate(Status))
        for number, status in enumerate(Status):
            assert [r.run_id for r in store.records(status=status)] == [a_record(number).run_id]
            assert list(store.records(status=str(status))) == list(store.records(status=status))
        with pytest.raises(BadInput, match=r"`status` in measured\|.* must hold, but got 'fine'"):
            store.records(status="fine")

    def test_a_closed_store_says_so(self, make_store: MakeStore) -> None:
        with make_store() as store:
            store.put(a_record(1))
        uses: list[Callable[[], object]] = [
            lambda: store.put(a_record(2)),
            store.count,
            lambda: store.get("r"),
            lambda: list(store.records()),
        ]
        for use in uses:
            with pytest.raises(StoreError, match=r"must be open, but .* is closed"):
                use()
        store.close()

    # ---------------------------------------------------------------------------------------------------- readers

    def test_a_reader_sees_commits_while_a_writer_is_open(self, make_store: MakeStore) -> None:
        writer = make_store()
        reader = make_store(read_only=True)
        for number in range(3):
            writer.put(a_record(number))
            assert reader.count() == number + 1
            assert reader.get(a_record(number).run_id) == a_record(number)
        writer.remove(a_record(0).run_id)
        assert reader.get(a_record(0).run_id) is None

    def test_a_reader_cannot_write(self, make_store: MakeStore) -> None:
        make_store().put(a_record(1))
        reader = make_store(read_only=True)
        assert reader.read_only
        writes: list[Callable[[], object]] = [
            lambda: reader.put(a_record(2)),
            lambda: reader.put_copy(a_record(1, f1=0.25)),
            lambda: reader.remove(a_record(1).run_id),
        ]
        for write in writes:
            with pytest.raises(StoreError, match=r"must be open for writing, but .* is open read-only"):
                write()
        assert list(make_store().records(copies=True)) == [a_record(1)]

    def test_a_missing_store_is_an_error_or_empty(self, make_store: MakeStore) -> None:
        with pytest.raises(StoreError, match="must exist to be read"):
            make_store(read_only=True)
        empty = make_store(read_only=True, missing_ok=True)
        assert empty.read_only
        assert empty.count() == 0
        assert list(empty.records()) == []
        assert empty.get(a_record(1).run_id) is None
        with pytest.raises(BadInput, match="must be in the store"):
            empty.find("r")
        with pytest.raises(StoreError, match="open for writing"):
            empty.put(a_record(1))
        with pytest.raises(StoreError, match="must exist to be read"):  # nothing was made by asking
            make_store(read_only=True)

    # -------------------------------------------------------------------------------------------- many at a time

    def test_threads_share_one_store(self, make_store: MakeStore) -> None:
        store = make_store()
        kept: list[bool] = []

        def work(offset: int) -> None:
            for number in range(12):
                kept.append(store.put(a_record(number)))
                kept.append(store.put(a_record(1000 + 100 * offset + number)))
                assert store.get(a_record(number).run_id) == a_record(number)

        run_threads(work, 6)
        assert len(kept) == 6 * 24
        assert sum(kept) == 12 + 6 * 12
        assert store.count() == store.count(copies=True) == 12 + 6 * 12

    def test_many_open_a_new_store_at_once(self, make_store: MakeStore) -> None:
        rounds, barrier = 8, threading.Barrier(6)
        kept: list[tuple[int, bool]] = []

        def work(number: int) -> None:
            for round_ in range(rounds):
                barrier.wait(60)
                with open_store(make_store.url(f"new{round_}")) as store:
                    kept.append((round_, store.put(a_record(number % 3))))

        run_threads(work, 6)
        assert sorted(kept) == [(r, new) for r in range(rounds) for new in [False] * 3 + [True] * 3]
        for round_ in range(rounds):
            assert make_store(f"new{round_}", read_only=True).count() == 3

    def test_two_processes_write_the_same_store(self, make_store: MakeStore) -> None:
        code = """
            print("ready", flush=True); sys.stdin.readline()
            url, me = sys.argv[1], int(sys.argv[2])
            kept = 0
            with open_store(url) as store:
                for number in range(60):
                    kept += store.put(a_record(number, provenance={"process": me}))
                    assert store.put(a_record(1000 * me + number))
                    assert store.get(a_record(number).run_id) is not None
            print(kept)
        """
        said = finish(*[start(code, make_store.url(), str(me)) for me in (1, 2)])
        assert sum(map(int, said)) == 60
        store = make_store()
        assert store.count() == store.count(copies=True) == 180
        expected = {a_record(n).run_id for n in [*range(60), *range(1000, 1060), *range(2000, 2060)]}
        assert {r.run_id for r in store.records()} == expected

    def test_a_forked_child_leaves_its_parent_alone(self, make_store: MakeStore) -> None:
        code = """
            with open_store(sys.argv[1]) as store:
                store.put(a_record(1))
                child = os.fork()
                if child == 0:
                    assert store.put(a_record(2)) and store.count() >= 2
                    store.close()
                    os._exit(0)
                assert store.put(a_record(3))
                assert os.waitpid(child, 0)[1] == 0
                assert store.count() == 3
            print("ready", flush=True)
        """
        finish(start(code, make_store.url()))
        assert make_store().count() == 3

    @pytest.mark.parametrize("seconds", [0.0, 0.05, 0.3])
    def test_a_killed_writer_leaves_whole_records_only(self, make_store: MakeStore, seconds: float) -> None:
        code = """
            with open_store(sys.argv[1]) as store:
                for number in range(0, 10**6, 7):
                    store.put_all(a_record(number + i, provenance={"pad": "x" * 50_000}) for i in range(7))
                    print(number, flush=True)
        """
        process = start(code, make_store.url())
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.kill()
        said, errors = process.communicate()
        assert process.returncode == -9, errors
        lines = said.split("\n")[:-1]  # the last one may be cut
        announced = int(lines[-1]) + 7 if lines else 7
        store = make_store()
        kept = list(store.records(copies=True))
        assert len(kept) % 7 == 0
        assert len(kept) >= announced  # what `put_all` has returned is there
        for number, record in enumerate(kept):
            assert record.to_line() == a_record(number, provenance={"pad": "x" * 50_000}).to_line()
        assert store.put(a_record(10**7)) is True
        assert store.put(a_record(0)) is False


def run_threads(work: Callable[[int], None], count: int) -> None:
    """Run `work(0)` ... `work(count - 1)` in threads; the first error is raised here."""
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
