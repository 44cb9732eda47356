"""Every formula of the documents is one that KaTeX can set, and the site loads it from its own files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable

from tests.browser.conftest import Watched
from tests.cli.asked import ROOT

DOCS = ROOT / "docs"
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"\$\$\n(.+?)\n\$\$|(?<![\\$\w])\$(?=\S)([^$\n]+?)(?<=\S)\$(?![\w$])", re.DOTALL)


def formulas() -> list[tuple[str, str, bool]]:
    """(page, formula, whether it stands alone)"""
    found = []
    for page in sorted(DOCS.glob("*.md")):
        text = CODE.sub("", page.read_text("utf-8"))
        assert text.count("$$") % 2 == 0, page.name
        found += [(page.name, (m[1] or m[2]), bool(m[1])) for m in FORMULA.finditer(text)]
    return found


def test_every_formula_can_be_set(watch: Callable[..., Watched]) -> None:
    watched = watch()
    watched.page.set_content("<!doctype html><title>formulas</title>")
    watched.page.add_script_tag(path=DOCS / "katex" / "katex.min.js")
    found = formulas()
    assert len(found) > 30 and sum(alone for *_, alone in found) > 15
    ask = (
        "fs => fs.map(f => { try { katex.renderToString(f, {throwOnError: true}); return '' } catch (e) { return String(e) } })"
    )
    said = watched.page.evaluate(ask, [formula for _, formula, _ in found])
    assert [(page, formula, why) for (page, formula, _), why in zip(found, said, strict=True) if why] == []


def test_the_site_has_katex_beside_it() -> None:
    project = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
    for name in (*project["extra_javascript"], *project["extra_css"]):
        assert (DOCS / name).is_file(), name
    style = (DOCS / "katex" / "katex.min.css").read_text("utf-8")
    fonts = set(re.findall(r"url\((fonts/[\w-]+\.woff2)\)", style))
    assert fonts and all((DOCS / "katex" / font).is_file() for font in fonts) and "http" not in style
    assert "MIT License" in (DOCS / "katex" / "LICENSE").read_text("utf-8")
