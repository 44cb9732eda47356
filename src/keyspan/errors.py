"""The errors a user can meet. Bad input raises `BadInput` and nothing else, from anywhere in the package."""

from __future__ import annotations

from collections.abc import Callable


class KeyspanError(Exception):
    """Root of every error that keyspan raises on purpose; `exit_code` is what the command line returns for it."""

    exit_code = 1


class BadInput(KeyspanError, ValueError):
    """What was asked for breaks a rule. The message says the rule, the value and the fix, in one line."""

    exit_code = 2


class StoreError(BadInput):
    """The store cannot be used as asked: not a store, from a newer version, read-only, locked for too long."""


class StoreLost(StoreError):
    """The server that keeps the store is out of reach just now; it may come back."""


class MissingExtra(KeyspanError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""

    exit_code = 2


class RunnerError(KeyspanError):
    """A worker died or a machine gave up; what had finished is kept."""


def shown(value: object) -> str:
    """The value on one short line: its `repr`, of at most 60 characters; what is left out is in its middle."""
    return _cut(_text(repr, value), 60)


def require(condition: bool, rule: str, value: object, fix: str) -> None:
    """Raise `BadInput("{rule} must hold, but got {value}. {fix}")` unless the condition holds."""
    if not condition:
        raise BadInput(f"{rule} must hold, but got {_cut(_text(str, value), 200)}. {fix}")


def _text(write: Callable[[object], str], value: object) -> str:
    try:
        return " ".join(write(value).split())
    except ValueError:  # more digits than Python will print
        return "a number of thousands of digits"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 9]}...{text[-6:]}"
