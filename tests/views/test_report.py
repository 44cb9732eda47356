"""The report: one file that asks nothing of anybody, whole without scripts, small, and quick to make."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.cli.asked import Oracle, ask, knows, told
from tests.files.refusals import refused

from keyspan.evidence.record import make_record
from keyspan.evidence.store import Store, open_store
from keyspan.papers import reproduce
from keyspan.problems.relations import Relations
from keyspan.runners import driver
from keyspan.runners.questions import relations_question
from keyspan.views.report import LARGEST, report, table, text


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store that answers the tier `smoke`, with records of an exact cell."""
    url = f"sqlite:///{tmp_path_factory.mktemp('report') / 'store.db'}"
    with open_store(url) as store:
        exact = relations_question(Relations(items=16, d_model=8), heads=[2], key_budgets=[4, 8], seeds=3)
        driver.answer([*reproduce.plan("adler", "smoke").questions, exact], store, Oracle())
    return url


class Page(HTMLParser):
    """What a browser would fetch, and whether every element is closed."""

    VOID = ("meta", "br", "link", "img", "input", "hr", "path", "use", "rect")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        for name in ("src", "href", "xlink:href", "srcset", "poster", "action", "data"):
            value = given.get(name)
            if value is not None and not value.startswith("#"):
                self.fetched.append(value)
        if "style" in given and "url(" in (given["style"] or ""):
            self.fetched += [u for u in re.findall(r"url\(([^)]*)\)", given["style"] or "") if not u.startswith("#")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_one_file_that_asks_nothing_of_anybody(measured: str, tmp_path: Path) -> None:
    found = report(tmp_path / "report.html", store=measured)
    page = Path(found.path or "").read_text("utf-8")
    seen = Page(page)
    assert seen.open == [] and seen.fetched == []
    assert not seen.tags & {"script", "link", "iframe", "object", "embed", "img"} and "@import" not in page
    assert len(seen.ids) == len(set(seen.ids)), "ids are a page's own"
    assert "default-src 'none'" in page and len(page.encode()) < LARGEST
    assert [f.name.removesuffix("x") for f in tmp_path.iterdir()] == ["report.html"]
    for part in ("summary", "ledger", "figures", "bits", "methods", "records"):
        assert f'id="{part}"' in page
    for link in re.findall(r'href="#([^"]+)"', page):
        assert link in seen.ids, link


def test_what_stands_in_it(measured: str, tmp_path: Path) -> None:
    found = report(tmp_path / "report.html", store=measured)
    page = Path(found.path or "").read_text("utf-8")
    data = found.to_dict()
    assert {f["figure"] for f in data["figures"]} == {
        f"adler:{n}" for n in ("fig1", "fig2", "fig3", "fig4", "fig5", "map", "targets")
    }
    assert {f["tier"] for f in data["figures"]} == {"smoke"} and page.count("<svg") == len(data["figures"]) + 1
    for claim in data["claims"]:
        assert claim["id"] in page
    for words in (f["words"] for f in data["figures"]):
        assert words.replace("&", "&amp;").replace("'", "&#39;").replace(">", "&gt;").replace("<", "&lt;") in page
    assert "keyspan measure relations --items" in page and "&#34;name&#34;: &#34;gradient&#34;" in page.replace('"', "&#34;")
    with open_store(measured, read_only=True) as store:
        assert data["runs"] == store.count()


def test_the_same_store_gives_the_same_bytes(measured: str, tmp_path: Path) -> None:
    one, two = (Path(report(tmp_path / f"{n}.html", store=measured).path or "").read_bytes() for n in "ab")
    assert one == two


def test_an_empty_store_has_a_report_too(tmp_path: Path) -> None:
    found = report(tmp_path / "report.html", store=f"sqlite:///{tmp_path / 'none.db'}")
    page = Path(found.path or "").read_text("utf-8")
    assert Page(page).open == [] and "answers no figure in full" in page and not (tmp_path / "none.db").exists()
    assert found.to_dict()["counts"]["fails"] == 0


def fill(store: Store, runs: int) -> None:
    """Many small cells, at several budgets, three seeds each."""

    def records() -> Iterator[Any]:
        made = 0
        for d_model in range(4, 400):
            question = relations_question(Relations(items=32, d_model=d_model), heads=[1, 2], key_budgets=[2, 4, 8, 16])
            for arm in question.arms:
                for level in arm.levels:
                    for run in question.runs(arm, level):
                        if made == runs:
                            return
                        made += 1
                        yield make_record(run, knows(run), steps=7, seconds=0.01, device="cpu")

    store.put_all(records())


def test_a_thousand_runs_take_less_than_ten_seconds(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'many.db'}"
    with open_store(url) as store:
        fill(store, 1000)
    start = time.process_time()
    found = report(tmp_path / "report.html", store=url)
    assert time.process_time() - start < 10 and found.survey.runs == 1000
    assert (tmp_path / "report.html").stat().st_size < LARGEST


def test_a_table_says_what_it_leaves_out() -> None:
    rows = [{"a": k, "b": None} for k in range(10)]
    made = table(rows, most=4)
    assert made.columns == ("a", "b") and made.left_out == 6 and made.rows[3] == ("3", "")
    assert table([]).columns == () and table(rows, ["b"]).rows[0] == ("",)
    assert [text(v) for v in (True, 0.123456, {"family": "x", "k": 2}, [1, 2])] == ["yes", "0.1235", "k 2", "1 to 2"]


# --- the verb ------------------------------------------------------------------------------------------------------


def test_the_verb(measured: str, tmp_path: Path) -> None:
    data = told("report", "--out", tmp_path / "r.html", "--store", measured)
    assert {"path", "figures", "claims", "counts", "runs", "store", "schema"} <= set(data)
    assert data["path"] == str(tmp_path / "r.html") and (tmp_path / "r.html").is_file()
    ran = ask("report", "--out", tmp_path / "s.html", "--store", measured)
    assert ran.code == 0 and "claims:" in ran.out and "adler:fig1 at smoke" in " ".join(ran.out.split())


@pytest.mark.parametrize("name", ["report.txt", "none/report.html", "folder.html"])
def test_where_no_page_can_be_written(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    refused(lambda: report(tmp_path / name), "--out")
    assert ask("report", "--out", tmp_path / name).code == 2
