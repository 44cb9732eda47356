"""How a bad file must be refused: one printable line that says the rule, the value and the fix."""

from collections.abc import Callable

import pytest

from keyspan.errors import BadInput


def label(value: object) -> str:
    """A test's name from a row of a table: its words, never its bytes (zips carry the time of day)."""
    return value if isinstance(value, str) else " ".join(value) if isinstance(value, tuple) else ""


def refused(call: Callable[[], object], *mentions: str) -> None:
    """Check that the call raises `BadInput` with one line that mentions all of these."""
    with pytest.raises(BadInput) as caught:
        call()
    line = str(caught.value)
    assert line.isprintable(), line
    assert " must " in line and "but got" in line and line.endswith("."), line
    for mention in mentions:
        assert mention in line, (mention, line)
    assert caught.value.exit_code == 2
