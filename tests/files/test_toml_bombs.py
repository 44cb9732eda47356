"""TOML: read, or refused in one line, in little time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.files.refusals import refused

from keyspan.files.documents import DEEPEST, DOTS, TOML_LIMIT, parse_toml, read_toml


def test_a_document_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"\xef\xbb\xbfx = 1\r\n[t]\r\ny = [1, 2.5, 'z', true]\r\n")
    assert read_toml(path) == {"x": 1, "t": {"y": [1, 2.5, "z", True]}}


def test_files_that_are_none(tmp_path: Path) -> None:
    refused(lambda: read_toml(tmp_path / "none.toml"), "a file that exists")
    (tmp_path / "empty.toml").touch()
    refused(lambda: read_toml(tmp_path / "empty.toml"), "empty file")
    (tmp_path / "large.toml").write_bytes(b"#" * (TOML_LIMIT + 1))
    refused(lambda: read_toml(tmp_path / "large.toml"), "at most")


@pytest.mark.parametrize(
    "data",
    [
        b"x = ",
        b"x = 1\nx = 2",
        b"\xff\xfe",
        b"x = '\0'",
        b"x = " + b"9" * 5000,
        b"x = 1e999999\n= 3",
        b"[" * 10_000,
        b"x = " + b"[" * 10_000,
        b"x = " + b"{a=" * 5_000,
        b"x = " + b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1),
        b".".join([b"a"] * (DEEPEST + 2)) + b" = 1",
        b".".join([b"a"] * (TOML_LIMIT // 2 - 10)) + b" = 1",
        b"\n".join(b".".join([b"a%d" % i] * DOTS) + b" = 1" for i in range(200)),
        b"[" + b".".join([b"a"] * DOTS) + b"]\n" + b"x = 1\n",
        b"\n".join(b"[[" + b".".join([b"a"] * 300) + b"]]" for _ in range(1000)),
        b'x = """' + b"\\" * 100_000,
        b"x = '''" + b"'" * 100_000,
    ],
    ids=lambda data: data[:20].decode("latin-1").encode("unicode_escape").decode(),
)
def test_bombs_and_rubbish_are_refused_soon(data: bytes) -> None:
    began = time.process_time()
    refused(lambda: parse_toml(data, "x.toml"), "x.toml")
    assert time.process_time() - began < 5
