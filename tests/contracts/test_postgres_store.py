"""The PostgreSQL store: the contract, and what can go wrong with a server."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.contracts.leases_contract import LeasesContract
from tests.contracts.postgres_cluster import Cluster, running_cluster
from tests.contracts.store_contract import MakeStore, StoreContract, a_record

from keyspan.errors import BadInput, MissingExtra, StoreError, StoreLost
from keyspan.evidence import postgres
from keyspan.evidence import store as store_module
from keyspan.evidence.store import Store, open_store

_numbers = itertools.count()


class Maker:
    """`make_store` for schemas of one database."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.prefix = cluster, f"t{next(_numbers)}_"
        self.opened: list[Store] = []
        self.made: set[str] = set()
        self.lock = threading.Lock()

    def url(self, name: str = "a") -> str:
        schema = self.prefix + name
        with self.lock:
            if schema not in self.made:
                self.cluster.make_schema(schema)
                self.made.add(schema)
        return self.cluster.url(schema)

    def __call__(self, name: str = "a", *, read_only: bool = False, missing_ok: bool = False) -> Store:
        store = open_store(self.url(name), read_only=read_only, missing_ok=missing_ok)
        self.opened.append(store)
        return store


class InSchemas:
    """Stores are schemas of one database."""

    @pytest.fixture
    def make_store(self, cluster: Cluster) -> Iterator[MakeStore]:
        maker = Maker(cluster)
        yield maker
        for store in maker.opened:
            store.close()
        for schema in maker.made:
            cluster.drop_schema(schema)


class TestPostgresStore(InSchemas, StoreContract): ...


class TestPostgresLeases(InSchemas, LeasesContract): ...


# ------------------------------------------------------------------------------------------------------- URL and server


@pytest.fixture
def maker(cluster: Cluster) -> Iterator[Maker]:
    maker = Maker(cluster)
    yield maker
    for store in maker.opened:
        store.close()


def one_line(use: Callable[[], object], *parts: str, error: type[Exception] = StoreError) -> None:
    """The use is refused in one line that has all these parts."""
    with pytest.raises(error) as caught:
        use()
    message = str(caught.value)
    assert "\n" not in message and ", but " in message
    for part in parts:
        assert part in message, message


def test_psycopg_may_be_named_and_other_drivers_not(maker: Maker) -> None:
    url = maker.url()
    open_store(url.replace("postgresql://", "postgresql+psycopg://")).close()
    for driver in ("postgresql+psycopg2", "postgresql+asyncpg", "postgres", "mysql"):
        one_line(lambda driver=driver: open_store(url.replace("postgresql", driver)), "must be an SQLite file", driver)  # type: ignore[misc]


def test_a_server_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    url = f"postgresql://me:secret@/lab?host={tmp_path}"
    one_line(lambda: open_store(url), "must answer", "cannot be reached", "me:***@", "No such file")
    one_line(lambda: open_store(url, read_only=True, missing_ok=True), "must answer")
    assert time.monotonic() - began < 20


def test_no_password_is_repeated(tmp_path: Path) -> None:
    one_line(lambda: open_store("postgresql://me@host/lab?password=secret"), "must stand before the host", "password=%2A%2A%2A")
    with pytest.raises(StoreError) as caught:
        open_store(f"postgresql://me:secret@/lab?host={tmp_path}&sslpassword=hidden")
    assert "secret" not in str(caught.value) and "hidden" not in str(caught.value)


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    one_line(lambda: open_store("postgresql://me@host/lab"), "pip install 'keyspan[postgres]'", error=MissingExtra)


def test_a_database_or_a_user_that_is_not_there(cluster: Cluster) -> None:
    url = cluster.url("x")
    one_line(lambda: open_store(url.replace("/postgres?", "/nothing?")), "nothing", "does not exist")
    one_line(lambda: open_store(url.replace("keyspan@", "nobody@")), "nobody", "does not exist")
    one_line(lambda: open_store(cluster.url("no_such_schema")), "must have a schema to hold tables")


def test_tables_of_others_stay_as_they_are(maker: Maker) -> None:
    url = maker.url()
    schema = next(iter(maker.made))
    maker.cluster.sql(f'CREATE TABLE "{schema}".meta (x integer)')
    for read_only in (False, True):
        one_line(lambda r=read_only: open_store(url, read_only=r), "must be one that keyspan made", "other tables")  # type: ignore[misc]


def test_who_may_not_write_learns_it_at_once(maker: Maker) -> None:
    maker().put(a_record(1))
    (schema,) = maker.made
    maker.cluster.sql("DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN")
    maker.cluster.sql(f'GRANT USAGE ON SCHEMA "{schema}" TO reader; GRANT SELECT ON ALL TABLES IN SCHEMA "{schema}" TO reader')
    url = maker.url().replace("keyspan@", "reader@")
    one_line(lambda: open_store(url), "must be writable", "permission denied")
    with open_store(url, read_only=True) as store:
        assert store.get(a_record(1).run_id) == a_record(1)


def test_a_reader_is_read_only_for_the_server_too(maker: Maker) -> None:
    maker().put(a_record(1))
    reader = maker(read_only=True)
    one_line(
        lambda: reader.within(lambda connection: connection.exec_driver_sql("DELETE FROM records")),
        "must be writable",
        "read-only",
    )


def test_a_writer_waits_for_another_and_not_for_ever(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = maker(), maker()
    with other._transaction(locks=True):
        monkeypatch.setattr(postgres, "BUSY_SECONDS", 0.1)
        one_line(lambda: store.put(a_record(1)), "must be free for writing", "Try again")
        assert maker(read_only=True).count() == 0, "a reader does not wait"
    assert store.put(a_record(1))


def test_a_row_that_changed_on_the_disk_is_refused(maker: Maker) -> None:
    store = maker()
    store.put_all(a_record(i) for i in range(3))
    (schema,) = maker.made
    maker.cluster.sql(f"UPDATE \"{schema}\".records SET body = replace(body, '2000', '2001') WHERE run_id LIKE '%1'")
    assert store.get(a_record(0).run_id) == a_record(0)
    one_line(lambda: store.get(a_record(1).run_id), "must hold readable records", "has changed since it was written")


def test_text_that_postgresql_cannot_hold_is_refused(maker: Maker) -> None:
    one_line(lambda: maker().put(a_record(1, kind="a\0b")), "must hold no NUL", error=BadInput)


# ------------------------------------------------------------------------------------------------ a server that goes away


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
def test_a_server_that_is_started_again_is_waited_for(number: signal.Signals) -> None:
    """Its own server, which no other test uses meanwhile."""
    with running_cluster() as cluster:
        cluster.make_schema("s")
        with open_store(cluster.url("s")) as store, open_store(cluster.url("s"), read_only=True) as reader:
            store.put(a_record(1))
            assert reader.count() == 1
            cluster.stop(number)
            again = threading.Timer(0.5, cluster.start)
            again.start()
            assert store.put(a_record(2)) is True
            assert reader.count() == 2
            again.join()
            assert {r.run_id for r in reader.records()} == {a_record(1).run_id, a_record(2).run_id}
            cluster.stop(number)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(store_module, "PATIENCE", 0.3)
                one_line(lambda: store.put(a_record(3)), "must answer", "cannot be reached", error=StoreLost)


def test_a_record_whose_commit_was_not_confirmed_counts_as_stored(maker: Maker) -> None:
    """The server commits and goes away before it says so: the second try finds our own record, and says that it is new."""
    store, fails = maker(), [True, False, False]
    begin = store._transaction

    @contextmanager
    def unsure(*, locks: bool = False) -> Iterator[sa.Connection]:
        with begin(locks=locks) as connection:
            yield connection
        if locks and fails.pop(0):
            raise StoreLost("The store must answer, but the answer was lost. Wait.")

    store._transaction = unsure  # type: ignore[method-assign]
    assert store.put(a_record(1)) is True
    assert store.put(a_record(1)) is False
    assert store.count(copies=True) == 1
