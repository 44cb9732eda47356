"""A PostgreSQL server of the tests' own: in a folder of its own, reached through a socket in it, gone when they end.

PostgreSQL refuses to run as root, so root becomes `postgres`, or `nobody`, for it.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

DEBIAN = Path("/usr/lib/postgresql")
OPTIONS = {
    "listen_addresses": "",
    "fsync": "off",  # a test's database need not survive the machine
    "shared_buffers": "16MB",
    "max_connections": "80",
    "autovacuum": "off",
    "log_min_messages": "fatal",
}


def find_binary(name: str) -> Path | None:
    """Where a program of PostgreSQL's is: on the path, or where Debian keeps it."""
    found = shutil.which(name)
    if found:
        return Path(found).resolve()
    versions = sorted(DEBIAN.glob(f"*/bin/{name}"), key=lambda path: [int(n) for n in path.parts[4].split(".") if n.isdigit()])
    return versions[-1] if versions else None


def _user() -> dict[str, Any]:
    """Whom root becomes."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = names.get("postgres") or names["nobody"]
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


class Cluster:
    """A server that can be stopped, killed and started again."""

    def __init__(self, folder: Path, initdb: Path, postgres: Path) -> None:
        self.folder, self.postgres = folder, postgres
        self.process: subprocess.Popen[bytes] | None = None
        self._as = _user()
        if self._as:
            os.chown(folder, self._as["user"], self._as["group"])
        options = ["-A", "trust", "-U", "keyspan", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions"]
        command = [str(initdb), "-D", str(folder / "data"), *options]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **self._as)
        assert done.returncode == 0, done.stderr
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = [word for name, value in OPTIONS.items() for word in ("-c", f"{name}={value}")]
        command = [str(self.postgres), "-D", str(self.folder / "data"), "-k", str(self.folder), *options]
        log = open(self.folder / "log", "ab")  # noqa: SIM115  (the server writes there)
        with log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log, **self._as)
        import psycopg

        for _ in range(600):
            try:
                psycopg.connect(f"host={self.folder} user=keyspan dbname=postgres").close()
                return
            except psycopg.OperationalError:
                assert self.process.poll() is None, (self.folder / "log").read_text()
                time.sleep(0.05)
        raise AssertionError("PostgreSQL does not answer")

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: in an orderly way. SIGQUIT: at once, to be recovered."""
        if self.process:
            self.process.send_signal(number)
            self.process.wait(timeout=60)

    def url(self, schema: str) -> str:
        """A store in a schema of this name."""
        return f"postgresql://keyspan@/postgres?host={quote(str(self.folder))}&options=-csearch_path%3D{quote(schema)}"

    def make_schema(self, schema: str) -> None:
        """A place for a store that has none yet."""
        self.sql(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')

    def drop_schema(self, schema: str) -> None:
        """Forget a store."""
        self.sql(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')

    def sql(self, statement: str) -> None:
        """Run a statement."""
        import psycopg

        with psycopg.connect(f"host={self.folder} user=keyspan dbname=postgres", autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def running_cluster() -> Iterator[Cluster]:
    """A server for a while. Skips where PostgreSQL, or psycopg, is not installed."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    initdb, postgres = find_binary("initdb"), find_binary("postgres")
    if initdb is None or postgres is None:
        pytest.skip("PostgreSQL is not installed (no initdb)")
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="kspg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        cluster = Cluster(folder, initdb, postgres)
        try:
            yield cluster
        finally:
            cluster.stop(signal.SIGQUIT)
