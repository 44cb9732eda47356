"""The SQLite store: the contract, and what can go wrong with a file."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.leases_contract import LeasesContract
from tests.contracts.store_contract import MakeStore, StoreContract, a_record, finish, start

from keyspan.errors import StoreError
from keyspan.evidence import migrations, sqlite
from keyspan.evidence.store import Store, open_store
from keyspan.evidence.tables import seal


class Maker:
    """`make_store` for files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[Store] = []

    def url(self, name: str = "a") -> str:
        return f"sqlite:///{self.folder / name}.db"

    def __call__(self, name: str = "a", *, read_only: bool = False, missing_ok: bool = False) -> Store:
        store = open_store(self.url(name), read_only=read_only, missing_ok=missing_ok)
        self.opened.append(store)
        return store


class InFiles:
    """Stores are files in a folder whose name need not be Unicode."""

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> Iterator[MakeStore]:
        maker = Maker(tmp_path / f"stores of % ünd #1 {os.fsdecode(bytes([255]))}")
        yield maker
        for store in maker.opened:
            store.close()


class TestSqliteStore(InFiles, StoreContract): ...


class TestSqliteLeases(InFiles, LeasesContract): ...


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of three records, closed."""
    path = tmp_path / "store.db"
    with open_store(f"sqlite:///{path}") as store:
        assert store.put_all(a_record(i, provenance={"pad": "x" * 3000}) for i in range(3)) == 3
    return path


def one_line(use: Callable[[], object], *parts: str) -> None:
    """The use is refused in one line that has all these parts."""
    with pytest.raises(StoreError) as caught:
        use()
    message = str(caught.value)
    assert "\n" not in message
    assert " must " in message
    assert ", but " in message
    assert message.endswith(".")
    for part in parts:
        assert part in message
    assert caught.value.exit_code == 2


def opens(path: Path, *, read_only: bool = False) -> Callable[[], object]:
    """Open the store, read and write all of it, and close it again."""

    def use() -> None:
        with open_store(f"sqlite:///{path}", read_only=read_only) as store:
            list(store.records())
            if not read_only:
                store.put(a_record(77))

    return use


both = pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])


# ------------------------------------------------------------------------------------------------------------- the URL


@pytest.mark.parametrize(
    "url",
    [
        "store.db",
        "",
        "sqlite",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://host/store.db",
        "sqlite:///store.db?mode=ro",
        "duckdb:///store.db",
        "sqlite+aiosqlite:///store.db",
    ],
)
def test_only_a_file_by_url_is_a_store(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one_line(lambda: open_store(url), repr(url), "`sqlite:///.keyspan/store.db`")
    assert list(tmp_path.iterdir()) == []


def test_a_password_is_not_repeated() -> None:
    one_line(lambda: open_store("postgresql://me:secret@host/base"), "postgresql://me:***@host/base")


def test_a_relative_url_is_of_the_folder_it_was_opened_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with open_store("sqlite:///.keyspan/store.db") as store:
        monkeypatch.chdir(tmp_path / "elsewhere")
        store.put_all([a_record(1)])
        with open_store(f"sqlite:///{tmp_path}/.keyspan/store.db", read_only=True) as reader:
            assert reader.count() == 1
    monkeypatch.chdir(tmp_path)
    with open_store("sqlite:///.keyspan/store.db", read_only=True) as reader:
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert reader.count() == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []


# --------------------------------------------------------------------------------------------------- files that are not


@both
def test_a_folder(tmp_path: Path, read_only: bool) -> None:
    one_line(opens(tmp_path, read_only=read_only), "must be a file", "is a folder", repr(str(tmp_path)))


@both
def test_a_pipe(tmp_path: Path, read_only: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    one_line(opens(tmp_path / "pipe", read_only=read_only), "not a plain file")


@both
def test_below_a_file(path: Path, read_only: bool) -> None:
    for below in (path / "store.db", path / "further" / "store.db"):
        one_line(opens(below, read_only=read_only), "must be in a usable folder", repr(str(below)))


@both
def test_a_text_file(tmp_path: Path, read_only: bool) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to have a header that could be read as one " * 20)
    before = text.read_bytes()
    one_line(opens(text, read_only=read_only), "must be an SQLite file", "file is not a database")
    assert text.read_bytes() == before


@both
@pytest.mark.parametrize("tables", ["t (x)", "meta (x)", "meta (version, application)"])
def test_a_foreign_database(tmp_path: Path, read_only: bool, tables: str) -> None:
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute(f"CREATE TABLE {tables}")
    before = foreign.read_bytes()
    one_line(opens(foreign, read_only=read_only), "must be one that keyspan made", "other tables")
    assert foreign.read_bytes() == before
    assert list(tmp_path.iterdir()) == [foreign]


@both
def test_a_database_with_tables_of_our_names(path: Path, read_only: bool) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE meta SET application = 'other'")
    one_line(opens(path, read_only=read_only), "must be one that keyspan made", "other tables")
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("DROP TABLE meta; CREATE TABLE meta (x)")
    one_line(opens(path, read_only=read_only), "must be one that keyspan made", "no such column")


@both
@pytest.mark.parametrize("cut", [1, 100, 4096, 5000, 3 * 4096, 7 * 4096 + 1])
def test_a_truncated_store(path: Path, read_only: bool, cut: int) -> None:
    whole = path.read_bytes()
    assert len(whole) > 8 * 4096
    path.write_bytes(whole[:-cut])
    one_line(opens(path, read_only=read_only), "must be whole")


@both
@pytest.mark.parametrize("size", [1, 16, 99, 100, 1000])
def test_little_is_left_of_a_store(path: Path, read_only: bool, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])
    one_line(opens(path, read_only=read_only))


@both
def test_a_damaged_page(path: Path, read_only: bool) -> None:
    whole = bytearray(path.read_bytes())
    whole[4096:] = b"\xa5" * (len(whole) - 4096)
    path.write_bytes(whole)
    one_line(opens(path, read_only=read_only), "must be whole", "malformed")


def look(path: Path) -> object:
    """Everything that a reader can be told about the three records."""
    with open_store(f"sqlite:///{path}", read_only=True) as store:
        known = store.get_many(a_record(i).run_id for i in range(3))
        return [r.to_line() for r in store.records(copies=True)], known, store.count(), store.count(copies=True)


@settings(max_examples=20)
@given(data=st.data())
def test_a_flipped_bit_is_harmless_or_refused(data: st.DataObject) -> None:
    """Wherever it is: never fewer records than there are, never another number."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "store.db"
        with open_store(f"sqlite:///{path}") as store:
            store.put_all(a_record(i) for i in range(3))
        whole, before = bytearray(path.read_bytes()), look(path)
        for _ in range(5):
            at = data.draw(st.integers(0, len(whole) - 1))
            bad = bytearray(whole)
            bad[at] ^= 1 << data.draw(st.integers(0, 7))
            path.write_bytes(bad)
            with suppress(StoreError):
                assert look(path) == before


@pytest.mark.parametrize("column", ["problem_id", "kind", "status", "content", "body", "copy"])
def test_a_row_that_changed_is_refused(path: Path, column: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        value = "copy + 1" if column == "copy" else f"replace({column}, substr({column}, -2), 'zz')"
        connection.execute(f"UPDATE records SET {column} = {value} WHERE seq = 2")
    one_line(lambda: look(path), "must hold readable records", "has changed since it was written")


def test_an_index_that_lacks_a_row_is_refused(path: Path) -> None:
    """SQLite would not find the row, and nobody would know."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        (name,) = connection.execute("SELECT name FROM sqlite_master WHERE tbl_name = 'records' AND type = 'index'").fetchone()
        (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'records'").fetchone()
        (root,) = connection.execute(f"SELECT rootpage FROM sqlite_master WHERE name = '{name}'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    assert sql
    whole = bytearray(path.read_bytes())
    start = (root - 1) * size
    count = int.from_bytes(whole[start + 3 : start + 5], "big")
    whole[start + 3 : start + 5] = (count - 1).to_bytes(2, "big")  # the last entry of the index's page is forgotten
    path.write_bytes(whole)
    one_line(lambda: look(path), "must be whole", "damaged")


@both
@pytest.mark.parametrize("body", ["{", "[1]", '{"schema":99}'])
def test_a_body_that_is_no_record(path: Path, read_only: bool, body: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        row = (0, "r99", "p", "k", "measured", "c", body)
        connection.execute("INSERT INTO records VALUES (99, ?, ?, ?, ?, ?, ?, ?, ?)", [*row, seal(*row)])
    one_line(opens(path, read_only=read_only), "must hold readable records", repr(str(path)))


def test_an_empty_file_is_new_for_a_writer_only(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    one_line(opens(path, read_only=True), "must exist to be read", "has none")
    with open_store(f"sqlite:///{path}", read_only=True, missing_ok=True) as reader:
        assert reader.count() == 0
    assert path.stat().st_size == 0
    opens(path)()
    opens(path, read_only=True)()


def test_a_missing_store(tmp_path: Path) -> None:
    path = tmp_path / "no" / "folder" / "store.db"
    one_line(opens(path, read_only=True), "must exist to be read", repr(str(path)))
    assert list(tmp_path.iterdir()) == []
    opens(path)()
    opens(path, read_only=True)()


# ---------------------------------------------------------------------------------------------------------- migrations


NOW = list(range(1, len(migrations.MIGRATIONS) + 1))


def later(monkeypatch: pytest.MonkeyPatch, *more: Callable[[sa.Connection], None]) -> None:
    """Pretend that this keyspan is a later one, with more migrations."""
    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, *more))


def add_table(connection: sa.Connection) -> None:
    connection.exec_driver_sql("CREATE TABLE added (x INTEGER)")


def add_row(connection: sa.Connection) -> None:
    connection.exec_driver_sql("INSERT INTO added SELECT count(*) FROM records")


def versions(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        return [version for (version,) in connection.execute("SELECT version FROM meta ORDER BY version")]


def test_migrations_run_forward_in_order(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.stat().st_mtime_ns
    with open_store(f"sqlite:///{path}", read_only=True) as store:
        lines = [r.to_line() for r in store.records()]
    assert versions(path) == NOW
    with monkeypatch.context() as patch:
        later(patch, add_table, add_row)
        one_line(
            opens(path, read_only=True), f"must have version {len(NOW) + 2},", f"has {len(NOW)}", "Open it once for writing"
        )
        assert path.stat().st_mtime_ns == before
        with open_store(f"sqlite:///{path}") as store:
            assert [r.to_line() for r in store.records()] == lines
        with open_store(f"sqlite:///{path}"), open_store(f"sqlite:///{path}", read_only=True):
            pass
        assert versions(path) == [*NOW, len(NOW) + 1, len(NOW) + 2]
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT x FROM added").fetchall() == [(3,)]
    for read_only in (False, True):  # and now that keyspan is the old one again
        one_line(
            opens(path, read_only=read_only), f"must have version <= {len(NOW)}", f"has {len(NOW) + 2}", "Use a newer keyspan"
        )


def test_a_new_store_is_made_at_the_latest_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later(monkeypatch, add_table)
    opens(tmp_path / "new.db")()
    assert versions(tmp_path / "new.db") == [*NOW, len(NOW) + 1]


def test_a_migration_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(connection: sa.Connection) -> None:
        connection.exec_driver_sql("INSERT INTO added VALUES (1)")
        connection.exec_driver_sql("SELECT * FROM nothing_of_this_name")

    with monkeypatch.context() as patch:
        later(patch, add_table, fails)
        one_line(opens(path), "nothing_of_this_name")
    assert versions(path) == NOW
    opens(path)()


def test_many_migrate_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later(monkeypatch, add_table, add_row)
    errors: list[Exception] = []

    def work() -> None:
        try:
            opens(path)()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert versions(path) == [*NOW, len(NOW) + 1, len(NOW) + 2]


# ---------------------------------------------------------------------------------------------------- append-only, safe


def test_it_waits_safely(path: Path) -> None:
    with open_store(f"sqlite:///{path}") as store, store._transaction() as connection:
        asked = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")}
        assert asked == {"journal_mode": "wal", "synchronous": 2}
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process, as it were, in the middle of a write."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_readers_do_not_wait_for_a_writer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.0)
    with locked(path), open_store(f"sqlite:///{path}", read_only=True) as reader:
        assert len(list(reader.records())) == 3


@contextmanager
def locked_for(path: Path, seconds: float) -> Iterator[None]:
    """The same, in the background, for so many seconds."""
    holding = threading.Event()

    def hold() -> None:
        with locked(path):
            holding.set()
            time.sleep(seconds)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(10)
    yield
    thread.join()


def test_a_writer_waits_for_another(path: Path) -> None:
    with open_store(f"sqlite:///{path}") as store:
        start = time.monotonic()
        with locked_for(path, 0.3):
            assert store.put(a_record(50)) is True
        assert time.monotonic() - start > 0.2


@pytest.mark.parametrize("new", [False, True])
def test_a_writer_waits_to_open(path: Path, new: bool) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    if new:
        path.write_bytes(b"")
    with locked_for(path, 0.3), open_store(f"sqlite:///{path}") as store:
        assert store.put(a_record(50)) is True
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_writer_does_not_wait_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)
    with open_store(f"sqlite:///{path}") as store:
        with locked(path):
            one_line(lambda: store.put(a_record(50)), "must be free for writing", "locked")
            one_line(opens(path), "must be free for writing", "locked")
        assert store.put(a_record(50)) is True


def test_a_store_that_never_becomes_wal_is_not_waited_for_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)
    with locked(path):
        one_line(opens(path), "must be free for writing", "locked")
    opens(path)()


def test_a_full_disk(path: Path) -> None:
    with open_store(f"sqlite:///{path}") as store:

        @sa.event.listens_for(store._engine, "begin")
        def limit(connection: sa.Connection) -> None:
            connection.exec_driver_sql("PRAGMA max_page_count = 1")  # SQLite takes the pages there are as the limit

        big = a_record(60, provenance={"pad": "x" * 100_000})
        one_line(lambda: store.put_all([a_record(50), big]), "must have room to grow", "full")
        assert store.count() == 3
    with open_store(f"sqlite:///{path}") as store:
        assert store.put_all([a_record(50), big]) == 2


@pytest.mark.parametrize(
    "code, parts",
    [
        (sqlite3.SQLITE_READONLY, ["must be writable", "read-only"]),
        (sqlite3.SQLITE_READONLY_DIRECTORY, ["must be writable", "read-only"]),
        (sqlite3.SQLITE_IOERR_WRITE, ["must be on a disk that works"]),
        (sqlite3.SQLITE_FULL, ["must have room to grow"]),
        (sqlite3.SQLITE_CORRUPT_INDEX, ["must be whole"]),
        (sqlite3.SQLITE_BUSY_RECOVERY, ["must be free for writing"]),
        (sqlite3.SQLITE_NOMEM, ["must answer"]),
        (None, ["must answer"]),
    ],
)
def test_every_error_of_the_driver_is_one_line(path: Path, code: int | None, parts: list[str]) -> None:
    error = sqlite3.OperationalError("what the\ndriver said")
    if code is not None:
        error.sqlite_errorcode = code
    with open_store(f"sqlite:///{path}") as store:

        @sa.event.listens_for(store._engine, "before_cursor_execute")
        def fail(_: object, cursor: object, statement: str, *__: object) -> None:
            if statement.startswith("INSERT"):
                raise error

        one_line(lambda: store.put(a_record(50)), "what the driver said", repr(str(path)), *parts)
        assert store.count() == 3


# ------------------------------------------------------------------------------------------------------------ read-only


@contextmanager
def read_only_folder(folder: Path) -> Iterator[None]:
    """For a while nothing in the folder can be written, not even by root, who becomes nobody for that."""
    folder.chmod(0o555)
    root = os.geteuid() == 0
    try:
        if root:
            os.seteuid(65534)
    except OSError as error:  # a container with one user only
        pytest.skip(f"root cannot be anybody else here: {error}")
    try:
        assert not os.access(folder, os.W_OK, effective_ids=True)
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o755)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user can reach (pytest's own are private), with a closed store of three records in it."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="keyspan-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with open_store(f"sqlite:///{folder}/store.db") as store:
            store.put_all(a_record(i) for i in range(3))
        yield folder


def test_a_reader_reads_in_a_read_only_folder(public: Path) -> None:
    url = f"sqlite:///{public}/store.db"
    with read_only_folder(public), open_store(url, read_only=True) as reader:
        assert list(reader.records()) == [a_record(i) for i in range(3)]
        assert [file.name for file in public.iterdir()] == ["store.db"]
    with open_store(url) as writer, open_store(url, read_only=True) as reader:
        writer.put(a_record(50))
        assert reader.count() == 4


def test_a_reader_that_began_in_a_read_only_folder_sees_what_comes_later(public: Path) -> None:
    url = f"sqlite:///{public}/store.db"
    with read_only_folder(public):
        reader = open_store(url, read_only=True)
        assert reader.count() == 3
    with reader, open_store(url) as writer:
        writer.put(a_record(50))
        assert reader.count() == 4


def test_a_writer_is_refused_in_a_read_only_folder(public: Path) -> None:
    before = (public / "store.db").read_bytes()
    (public / "private").mkdir(mode=0o700)
    with read_only_folder(public):
        one_line(opens(public / "store.db"), "must be writable")
        one_line(opens(public / "new.db"), "must be a file one can open", "unable to open database file")
        one_line(opens(public / "new" / "store.db"), "must be in a usable folder", "Permission denied")
        if os.geteuid() != os.getuid():
            one_line(opens(public / "private" / "store.db"), "must be in a usable folder", "Permission denied")
    assert (public / "store.db").read_bytes() == before
    assert not (public / "new").exists()


def test_records_in_the_log_of_a_killed_writer_are_never_overlooked(public: Path) -> None:
    copied = public / "copied"
    copied.mkdir()
    with open_store(f"sqlite:///{public}/store.db") as store:
        store.put(a_record(50))
        for name in ("store.db", "store.db-wal"):  # as a kill leaves them
            (copied / name).write_bytes((public / name).read_bytes())
    assert (copied / "store.db-wal").stat().st_size > 0
    with read_only_folder(copied):
        one_line(opens(copied / "store.db", read_only=True), "must be a file one can open")
    with open_store(f"sqlite:///{copied}/store.db", read_only=True) as reader:
        assert reader.count() == 4


def test_a_busy_store_is_not_read_past_its_locks(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect, asked = sqlite._connect, []

    def busy(path: Path, options: str) -> sqlite3.Connection:
        asked.append(options)
        if options == "mode=ro":
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        return connect(path, options)

    monkeypatch.setattr(sqlite, "_connect", busy)
    with read_only_folder(public):
        one_line(opens(public / "store.db", read_only=True), "must be free", "locked")
    assert asked == ["mode=ro"]


# ---------------------------------------------------------------------------------------------------------------- forks


def test_a_forked_child_makes_its_own_connection(path: Path) -> None:
    code = """
        def connection(store):
            with store._transaction() as c:
                return c.connection.dbapi_connection
        store = open_store(sys.argv[1])
        inherited = connection(store)
        assert connection(store) is inherited  # it is kept, so a child could take it by mistake
        for use_first in (True, False):
            child = os.fork()
            if child == 0:
                if use_first:
                    assert connection(store) is not inherited
                store.close()
                inherited.execute("SELECT 1")  # not closed: that would be the parent's business
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        assert connection(store) is inherited
        store.close()
        print("ready", flush=True)
    """
    finish(start(code, f"sqlite:///{path}"))
