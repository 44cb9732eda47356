"""The report in a real browser: from the disk, with scripts switched off, in the light and on paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import Watched
from tests.browser.made import fill
from tests.cli.asked import Oracle

from keyspan.evidence.store import open_store
from keyspan.papers import reproduce
from keyspan.runners import driver
from keyspan.views.report import report


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    url = f"sqlite:///{folder / 'store.db'}"
    with open_store(url) as store:
        fill(store)
        driver.answer(reproduce.plan("adler:fig1", "smoke").questions, store, Oracle())
    return Path(report(folder / "report.html", store=url).path or "")


@pytest.mark.parametrize("scheme, width", [("light", 1280), ("dark", 400)])
def test_it_is_read_without_scripts(watch: Callable[..., Watched], written: Path, scheme: str, width: int) -> None:
    watched = watch(color_scheme=scheme, viewport={"width": width, "height": 900}, java_script_enabled=False)
    watched.page.goto(written.as_uri())
    expect(watched.page.locator("section")).to_have_count(6)
    expect(watched.page.locator("#adler-fig1")).to_be_visible()
    watched.shoot(f"report-{scheme}-{width}", full=False)


def test_no_serious_violation(watch: Callable[..., Watched], written: Path) -> None:
    watched = watch(bypass_csp=True)
    watched.page.goto(written.as_uri())
    assert watched.violations() == []
    watched.page.emulate_media(media="print")
    cut = watched.page.evaluate(
        "[...document.querySelectorAll('.wide')].filter(e => e.scrollHeight > e.clientHeight + 1).length"
    )
    assert cut == 0, "on paper nothing is hidden behind a scroll bar"
