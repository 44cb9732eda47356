"""A browser for every worker, a page that may not complain nor look elsewhere, a server in a thread.

Chromium is the system's (`apt install chromium`); nothing is downloaded. Screenshots are left in `.cache/screenshots`.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright
from tests.browser.made import AUDIT, fill
from tests.cli.asked import ROOT

from keyspan.evidence.store import open_store
from keyspan.views.web.server import Address, serve

CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
SHOTS = ROOT / ".cache" / "screenshots"
AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text("utf-8")
SLOW = 90_000  # milliseconds that a busy machine may take


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt install chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield launched
        launched.close()


class Watched:
    """A page in a context of its own, and everything that it should not have done."""

    def __init__(self, context: BrowserContext) -> None:
        self.page: Page = context.new_page()
        self.page.set_default_timeout(SLOW)
        self.complaints: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        context.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console {message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "data:", "file:///")):
            self.complaints.append(f"asked elsewhere: {request.url}")

    def violations(self) -> list[str]:
        """Serious or critical violations of accessibility, by axe."""
        self.page.evaluate(AXE)
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        bad = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
        return [f"{v['id']}: {node['html'][:120]} {node.get('failureSummary', '')[:300]}" for v in bad for node in v["nodes"]]

    def shoot(self, name: str, full: bool = True) -> None:
        """Keep a picture of the page."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png", full_page=full)


@pytest.fixture
def watch(browser: Browser) -> Iterator[Callable[..., Watched]]:
    """Makes watched pages; the test fails where one of them complained or looked elsewhere."""
    made: list[tuple[BrowserContext, Watched]] = []

    def new(**options: Any) -> Watched:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        made.append((context, Watched(context)))
        return made[-1][1]

    yield new
    complaints = [complaint for _, watched in made for complaint in watched.complaints]
    for context, _ in made:
        context.close()
    assert complaints == []


@contextmanager
def serving(url: str, audit: Path | None = None) -> Iterator[str]:
    """The page over a store, from a thread. returns: its address"""
    stop, ready, addresses = threading.Event(), threading.Event(), list[Address]()
    arguments: dict[str, Any] = {"audit": audit, "told": addresses.append, "ready": ready, "stop": stop}
    thread = threading.Thread(target=serve, args=(url,), kwargs=arguments, daemon=True)
    thread.start()
    assert ready.wait(30), "the page did not start"
    try:
        yield addresses[0].url
    finally:
        stop.set()
        thread.join(30)


@pytest.fixture(scope="session")
def page_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page over some measured cells, with an audit."""
    folder = tmp_path_factory.mktemp("page")
    url = f"sqlite:///{folder / 'store.db'}"
    with open_store(url) as store:
        fill(store)
    (folder / "audit.json").write_text(AUDIT)
    os.environ.pop("KEYSPAN_STORE", None)
    with serving(url, folder / "audit.json") as address:
        yield address
