"""What every reader and writer shares: a file that can be read, a file that appears whole, a value that fits a line."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from keyspan.errors import BadInput
from keyspan.errors import shown as shown


def name_of(path: str | Path) -> str:
    """The path as it is printed in an error: as typed, or with escapes where it does not fit a line."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def check_writable(folder: str | Path, flag: str) -> None:
    """Refuse a folder in which no file can be made, or that cannot be made itself: before hours of work, not after.

    Nothing is left behind: whoever writes makes the folder.
    """
    try:
        here = Path(folder).absolute()
        with suppress(FileNotFoundError, NotADirectoryError):  # a name that no file can have is a ValueError
            os.stat(here)
        while not here.exists():
            here = here.parent
        with TemporaryFile(dir=here):
            pass
    except (OSError, ValueError) as error:
        why = str(getattr(error, "strerror", None) or error)
        raise BadInput(f"`{flag}` must be where one can write, but {name_of(folder)} gave {why!r}. Choose another.") from None


@contextmanager
def reading(path: str | Path, limit: int) -> Iterator[tuple[BinaryIO, int]]:
    """Open a plain, non-empty file of at most `limit` bytes. yields: (handle, size in bytes)"""
    name = name_of(path)
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise BadInput(f"`{name}` must be a file, but got a folder. Name a file in it.")
        if not stat.S_ISREG(mode):
            raise BadInput(f"`{name}` must be a plain file, but got a device or a pipe. Save its content to a file.")
        handle = open(path, "rb")  # noqa: SIM115  (closed below)
    except FileNotFoundError:
        raise BadInput(f"`{name}` must be a file that exists, but got no such file. Check the path.") from None
    except OSError as error:
        raise BadInput(f"`{name}` must be readable, but got {error.strerror!r}. Check its rights.") from None
    except ValueError as error:  # a NUL or a lone surrogate in the path; BadInput is a ValueError too
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"`{name}` must be a path, but got {error}. Check the spelling.") from None
    with handle:
        size = os.fstat(handle.fileno()).st_size
        if size == 0:
            raise BadInput(f"`{name}` must hold something, but got an empty file. Write it again.")
        if size > limit:
            raise BadInput(f"`{name}` must hold at most {limit} bytes, but got {size}. Give a smaller file.")
        try:
            yield handle, size
        except OSError as error:
            raise BadInput(f"`{name}` must be readable, but got {error}. Copy or write it again.") from None


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """Write a file that appears whole or not at all: a temporary file beside it, fsync, then one rename."""
    name = name_of(path)
    try:
        target = Path(os.path.realpath(path))
        taken = target.exists() and not target.is_file()
    except (OSError, ValueError) as error:
        raise BadInput(f"`{name}` must be a path, but got {error}. Check the spelling.") from None
    if taken:
        raise BadInput(f"`{name}` must be a file to write, but got a folder or a device. Name a file.")
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, target)
        _sync(target.parent)
    except OSError as error:
        why = error.strerror or error
        raise BadInput(f"`{name}` must be writable, but got {str(why)!r}. Choose another folder.") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Make the rename itself durable, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
