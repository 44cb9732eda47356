"""The errors a user can meet. Bad input raises `BadInput` and nothing else, from anywhere in the package."""

from __future__ import annotations


class KeyspanError(Exception):
    """Root of every error that keyspan raises on purpose; `exit_code` is what the command line returns for it."""

    exit_code = 1


class BadInput(KeyspanError, ValueError):
    """What was asked for breaks a rule. The message says the rule, the value and the fix, in one line."""

    exit_code = 2


class StoreError(BadInput):
    """The store cannot be used as asked: not a store, from a newer version, read-only, locked for too long."""


class MissingExtra(KeyspanError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""

    exit_code = 2


class RunnerError(KeyspanError):
    """A worker died or a machine gave up; what had finished is kept."""


def require(condition: bool, rule: str, value: object, fix: str) -> None:
    """Raise `BadInput("{rule} must hold, but got {value}. {fix}")` unless the condition holds."""
    if not condition:
        raise BadInput(f"{rule} must hold, but got {value}. {fix}")
