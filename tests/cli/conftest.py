"""An environment without colours and without a terminal's say, and a runner that knows the answers."""

import pytest
from tests.cli.asked import Oracle

from keyspan.runners import lab


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> Oracle:
    """Nothing is trained in this test: verdicts come from `asked.knows`."""
    runner = Oracle()
    monkeypatch.setattr(lab, "LocalRunner", runner)
    return runner
