"""What the leases of every store must do, whatever database is behind it.

A store's own test module makes a class `TestXLeases(LeasesContract)` and gives it the fixture `make_store`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.contracts.store_contract import MakeStore, a_record, finish, run_threads, start

from keyspan.evidence import leases as leases_module
from keyspan.evidence.leases import Holder, Leases
from keyspan.evidence.store import Store
from keyspan.evidence.tables import holders


def a_holder(name: str) -> Holder:
    """A driver on a machine where processes cannot be seen."""
    return Holder(holder=name, host="h", place="", pid=7, started="11")


def ids(*numbers: int) -> list[str]:
    return [a_record(number).run_id for number in numbers]


class LeasesContract:
    """Inherited by the test class of every store's leases."""

    @pytest.fixture
    def make_store(self) -> Iterator[MakeStore]:
        raise NotImplementedError("the test class of a store says how it is made")

    def two(self, make_store: MakeStore) -> tuple[Store, Leases, Leases]:
        store = make_store()
        return store, Leases(store, a_holder("a")), Leases(make_store(), a_holder("b"))

    def test_a_member_is_in_one_hand(self, make_store: MakeStore) -> None:
        _, a, b = self.two(make_store)
        assert a.take(ids(1, 2, 3)) == set(ids(1, 2, 3))
        assert b.take(ids(2, 3, 5)) == set(ids(5))
        assert a.take(ids(1, 5)) == set(ids(1)), "what we have, we have"
        assert a.held(ids(1, 2, 3, 5, 7)) == b.held(ids(1, 2, 3, 5, 7)) == set(ids(1, 2, 3, 5))
        assert a.take([]) == a.held([]) == set()

    def test_a_record_ends_a_lease(self, make_store: MakeStore) -> None:
        store, a, b = self.two(make_store)
        a.take(ids(1, 2))
        store.put(a_record(1))
        assert b.held(ids(1, 2)) == set(ids(2))
        assert b.take(ids(1, 2, 3)) == set(ids(3)), "what is measured is nobody's any more"
        store.remove(a_record(1).run_id)
        assert b.take(ids(1)) == set(ids(1))

    def test_a_copy_from_elsewhere_ends_none(self, make_store: MakeStore) -> None:
        """A merge may come in between; whoever trains the member goes on, and finds it known."""
        store, a, _ = self.two(make_store)
        a.take(ids(1))
        store.put_copy(a_record(1))
        assert a.held(ids(1)) == set(ids(1))
        assert store.put(a_record(1)) is False
        assert a.held(ids(1)) == set()

    def test_who_leaves_gives_everything_back(self, make_store: MakeStore) -> None:
        _, a, b = self.two(make_store)
        a.take(ids(1, 2))
        b.take(ids(3))
        a.leave()
        assert b.take(ids(1, 2, 3)) == set(ids(1, 2, 3))
        assert b.beat() == []
        a.leave()

    def test_hearts_beat(self, make_store: MakeStore) -> None:
        _, a, b = self.two(make_store)
        assert a.beat() == []
        assert b.beat() == [replace(a.me, beat=1)]
        a.beat()
        assert b.beat() == [replace(a.me, beat=2)]
        assert a.beat() == [replace(b.me, beat=2)]

    def test_only_a_heart_that_stands_still_can_be_freed(self, make_store: MakeStore) -> None:
        _, a, b = self.two(make_store)
        a.take(ids(1, 2))
        (seen,) = b.beat()
        a.beat()
        assert b.free(seen) is False
        assert b.take(ids(1)) == set()
        (seen,) = b.beat()
        assert b.free(seen) is True
        assert b.free(seen) is False, "once"
        assert b.take(ids(1)) == set(ids(1))
        assert a.take(ids(1, 2, 3)) == set(ids(2, 3)), "who was thought dead goes on with what is left"
        assert [h.holder for h in b.beat()] == ["a"]

    def test_leases_of_nobody_are_cleared(self, make_store: MakeStore) -> None:
        store, a, b = self.two(make_store)
        a.take(ids(1))
        store.within(lambda connection: connection.execute(holders.delete()), locks=True)
        b.beat()
        assert b.take(ids(1)) == set(ids(1))

    def test_many_at_once_share_and_none_is_shared_out_twice(
        self, make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(leases_module, "BATCH", 7)
        taken: list[list[str]] = [[] for _ in range(4)]
        stores, barrier = [make_store() for _ in range(4)], threading.Barrier(4)

        def work(number: int) -> None:
            mine = Leases(stores[number], a_holder(f"h{number}"))
            barrier.wait(60)
            for low in range(0, 60, 15):
                taken[number] += mine.take(ids(*range(low, low + 20)))
            mine.beat()

        run_threads(work, 4)
        every = [run_id for one in taken for run_id in set(one)]
        assert sorted(every) == sorted(ids(*range(65)))

    def test_a_killed_process_leaves_its_leases(self, make_store: MakeStore) -> None:
        code = """
            from keyspan.evidence.leases import Leases
            from keyspan.runners.leases import myself
            mine = Leases(open_store(sys.argv[1]), myself())
            assert mine.take([a_record(1).run_id])
            print("ready", flush=True)
            sys.stdin.readline()
            os._exit(0)
        """
        finish(start(code, make_store.url()))
        store = make_store()
        leases = Leases(store, a_holder("b"))
        assert leases.take(ids(1)) == set()
        (dead,) = leases.beat()
        assert dead.pid > 0 and dead.host
        assert leases.free(dead)
        assert leases.take(ids(1)) == set(ids(1))
