"""Every view in a real browser: no complaint, nothing asked elsewhere, no serious violation; it moves, and it follows."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.browser.conftest import SLOW, Watched, serving
from tests.browser.made import many
from tests.cli.asked import ROOT

from keyspan.evidence.store import open_store

VIEWS = {
    "design": "#answer",
    "runs": "#cell figure",
    "audit": "#map button",
    "ledger": "#claims table",
}
Watch = Callable[..., Watched]


def show(watched: Watched, url: str, view: str) -> None:
    watched.page.goto(f"{url}#/{view}")
    name = view.partition("?")[0]
    expect(watched.page.locator(VIEWS[name]).first).to_be_visible(timeout=SLOW)
    expect(watched.page.locator(f'nav a[data-view="{name}"]')).to_have_attribute("aria-current", "page")


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_loads(watch: Watch, page_url: str, view: str) -> None:
    """On a wide page in light colours, and on a narrow one in dark colours."""
    watched = watch(color_scheme="light")
    show(watched, page_url, view)
    watched.page.keyboard.press("t")  # every chart with its table
    for scheme, width in (("light", 1280), ("dark", 400)):
        watched.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        watched.page.set_viewport_size({"width": width, "height": 900})
        watched.shoot(f"{view}-{scheme}-{width}")
        assert watched.violations() == []
        overflow = watched.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 1, "the page is wider than the window"


# --- design --------------------------------------------------------------------------------------------------------


def test_a_slider_moves_the_answer_and_the_curves(watch: Watch, page_url: str) -> None:
    watched = watch()
    show(watched, page_url, "design")
    page = watched.page
    law, answer = page.locator('path[data-series^="law"]').first, page.locator("#answer .main dd").nth(1)
    before, said = law.get_attribute("d"), answer.inner_text()
    slider = page.locator('[data-slider="d_model"]')
    box = slider.bounding_box()
    assert box is not None and before
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] / 2)
    page.mouse.down()
    for share in (0.35, 0.4, 0.45, 0.5):
        page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] / 2)
    expect(answer).not_to_have_text(said)
    assert law.get_attribute("d") != before
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"#/design\?.*d_model="))


def test_measured_points_follow_the_target(watch: Watch, page_url: str) -> None:
    watched = watch()
    show(watched, page_url, "design")
    page = watched.page
    rows = page.locator('[data-chart="Key budget along items"] tbody tr', has_text="measured, gradient")
    expect(rows).to_have_count(3)  # 32, 64 and 128 items in 16 dimensions
    before = rows.all_inner_texts()
    page.locator("#target-exact").fill("0.6")
    page.locator("#target-exact").press("Enter")
    expect(rows.first).not_to_have_text(before[0])


def test_keys_move_a_slider_and_sizes_come_from_the_address(watch: Watch, page_url: str) -> None:
    watched = watch()
    show(watched, page_url, "design?items=4096&d_model=128&heads=4")
    page = watched.page
    expect(page.locator("#items-exact")).to_have_value("4096")
    expect(page.locator("#answer .main dd").first).to_have_text(re.compile(r"^4 ×"))
    page.locator('[data-slider="items"]').focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#items-exact")).not_to_have_value("4096")


# --- runs ----------------------------------------------------------------------------------------------------------


def test_a_run_of_another_process_appears_without_reload(watch: Watch, tmp_path: Path) -> None:
    """The store is not even there when the page is opened. First a measurement, then a sweep."""
    url = f"sqlite:///{tmp_path / 'new' / 'store.db'}"
    keyspan = [sys.executable, "-c", "import sys; from keyspan.cli import main; sys.exit(main())", "--store", url]
    command = [*keyspan, "measure", "relations", "--items", "64", "--d-model", "16", "--heads", "4", "--key-budgets", "8,24,48"]
    grid = tmp_path / "grid.toml"
    grid.write_text("[[grid]]\nitems = 48\nd_model = 16\nheads = [4]\nkey_budgets = [8, 24]\nseeds = 1\n")
    with serving(url) as address:
        watched = watch()
        page = watched.page
        page.goto(f"{address}#/runs")
        expect(page.get_by_text("Nothing is measured yet")).to_be_visible()
        page.evaluate("window.stayed = true")
        with subprocess.Popen([*command, "--seeds", "1", "--jobs", "1", "--quiet"], cwd=ROOT) as process:
            expect(page.locator("#running progress")).to_be_visible(timeout=SLOW)
            expect(page.locator("#running")).to_contain_text("of 3 members")
            expect(page.get_by_role("link", name="permutation on 64 items")).to_be_visible(timeout=2 * SLOW)
            expect(page.locator("#cell .plot .mark").first).to_be_attached(timeout=SLOW)
            assert process.wait(120) == 0
        expect(page.locator("#cell .plot .mark")).to_have_count(3, timeout=SLOW)
        expect(page.locator("#running")).to_be_hidden(timeout=SLOW)
        watched.shoot("runs-followed")
        with subprocess.Popen([*keyspan, "sweep", str(grid), "--jobs", "1", "--quiet"], cwd=ROOT) as process:
            expect(page.locator("#running")).to_contain_text("of 2 members", timeout=SLOW)
            expect(page.get_by_role("link", name="permutation on 48 items")).to_be_visible(timeout=2 * SLOW)
            assert process.wait(120) == 0
        expect(page.locator("#running")).to_be_hidden(timeout=SLOW)
        assert page.evaluate("window.stayed") is True


def test_the_list_is_filtered_and_walked_by_keys(watch: Watch, page_url: str) -> None:
    watched = watch()
    show(watched, page_url, "runs")
    page = watched.page
    page.keyboard.press("/")
    page.keyboard.type("128 items")
    links = page.locator("#cells tbody a")
    expect(links).to_have_count(2)
    page.keyboard.press("Escape")
    page.locator("#cells tbody a").first.focus()
    page.keyboard.press("j")
    expect(page.locator('#cells tr[aria-selected="true"]')).to_have_count(1)
    chosen = page.locator('#cells tr[aria-selected="true"] a').get_attribute("data-cell")
    expect(page).to_have_url(re.compile(rf"cell={chosen}"))
    other = watch()
    show(other, page_url, f"runs?cell={chosen}")
    expect(other.page.locator("#cell h3").first).to_contain_text("128 items")


def test_arrow_keys_go_along_the_points(watch: Watch, page_url: str) -> None:
    watched = watch()
    show(watched, page_url, "runs")
    page = watched.page
    page.locator("#cell .plot").focus()
    page.keyboard.press("ArrowRight")
    first = page.locator("#cell .tip").inner_text()
    page.keyboard.press("End")
    expect(page.locator("#cell .tip")).not_to_have_text(first)
    expect(page.locator("#cell [aria-live]")).to_have_text(page.locator("#cell .tip").inner_text())


def test_ten_thousand_runs_are_painted_within_a_second(watch: Watch, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'many.db'}"
    with open_store(url) as store:
        assert store.put_all(many(10_000)) == 10_000
    with serving(url) as address:
        painted = []
        for _ in range(8):  # the machine may be busy
            watched = watch()
            watched.page.goto(f"{address}#/runs")
            expect(watched.page.locator("#cells tbody tr").first).to_be_visible(timeout=2 * SLOW)
            paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            painted.append(float(watched.page.evaluate(paint)))
            if painted[-1] < 1000:
                break
        assert min(painted) < 1000, painted
        expect(watched.page.locator("#state")).to_contain_text("10,000 runs", timeout=2 * SLOW)
        assert watched.page.locator("#cells tbody tr").count() == 50


# --- audit, ledger -------------------------------------------------------------------------------------------------


def test_a_head_shows_its_spectrum(watch: Watch, page_url: str) -> None:
    watched = watch()
    show(watched, page_url, "audit")
    page = watched.page
    page.get_by_role("button", name="layer 2, head 1").click()
    expect(page.locator("#head h3")).to_have_text("Layer 2, head 1")
    expect(page.locator("#head .plot .mark")).to_have_count(16)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#head h3")).to_have_text("Layer 3, head 2")
    expect(page).to_have_url(re.compile("layer=3&head=2"))
    page.locator("#metric").select_option("stable")
    expect(page.locator("#map caption")).to_contain_text("stable rank")
    watched.shoot("audit-head")
    assert watched.violations() == []
    other = watch()
    show(other, page_url, "audit?layer=5&head=0&metric=symmetry")
    expect(other.page.locator("#head h3")).to_have_text("Layer 5, head 0")


def test_the_ledger_is_filtered_and_linked(watch: Watch, page_url: str) -> None:
    watched = watch()
    show(watched, page_url, "ledger?status=holds&claim=adler-context-robust")
    page = watched.page
    statuses = set(page.locator('[aria-label="Claims"] tbody td:nth-child(4)').all_inner_texts())
    assert statuses == {"holds"}
    expect(page.locator("#adler-context-robust code")).to_be_visible()
    page.get_by_label("Status").select_option("")
    page.get_by_label("Paper").select_option("harma")
    expect(page.locator("#claims tbody").first).not_to_contain_text("adler")
    expect(page).to_have_url(re.compile("paper=harma"))


# --- the frame -----------------------------------------------------------------------------------------------------


def test_keys_help_and_theme(watch: Watch, page_url: str) -> None:
    watched = watch(color_scheme="light")
    show(watched, page_url, "design")
    page = watched.page
    page.keyboard.press("3")
    expect(page.locator("#map button").first).to_be_visible()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    assert watched.violations() == []
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    colour = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(colour)
    page.locator("#theme").select_option("dark")
    assert page.evaluate(colour) != light
    page.reload()
    expect(page.locator("#map button").first).to_be_visible()
    assert page.evaluate(colour) != light
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
