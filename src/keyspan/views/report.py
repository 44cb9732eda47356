"""`keyspan report`: one HTML file that needs nothing else. No scripts, no request to anywhere; readable, printable.

What stands in it: a summary, the ledger, the figures that the store answers with the data that they draw, bits, methods
(recipes, seeds, machines), and the smallest exact budgets with the commands that measure them. Nothing is trained.

Memory: records are read page by page and counted. What grows with a store is a few numbers a member (for bits and for the
table of records), about 1 kB each, and the verdicts on the paths of the figures: 100,000 runs are read in less than 1 GB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import keyspan
from keyspan.errors import BadInput, shown
from keyspan.evidence.bits import BitsTable
from keyspan.evidence.record import head
from keyspan.evidence.store import Store, open_store
from keyspan.evidence.survey import Slim, Survey
from keyspan.files.paths import replacing
from keyspan.papers import claims
from keyspan.papers.figures import Found
from keyspan.papers.ledger import Book, Ledger
from keyspan.runners.lab import default_store
from keyspan.runners.records import record_rows
from keyspan.views.bits import bits_info, bits_svg
from keyspan.views.drawings import drawing_of, svg_of

LARGEST = 5_000_000  # bytes: what a page may weigh
MOST_ROWS = 400  # of one table on the page; what is left out is said
LARGEST_PICTURE = 700_000  # characters of one picture


@dataclass(frozen=True)
class Table:
    """A table of the page. left_out: rows that there was no room for"""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0


@dataclass(frozen=True)
class Shown:
    """A figure on the page: its picture, its words, its data, and the claims that it decides."""

    name: str
    title: str
    tier: str
    svg: str
    words: str
    data: Table
    claims: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Report:
    """What a report says. path: where it was written"""

    store: str
    ledger: Ledger
    survey: Survey
    figures: tuple[Shown, ...]
    bits_svg: str
    records: tuple[Mapping[str, Any], ...]
    path: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan report`."""
        kept = self.ledger.to_dict()
        told = {"path": self.path, "store": self.store, "runs": self.survey.runs}
        shown_ = [{"figure": f.name, "tier": f.tier, "words": f.words} for f in self.figures]
        return head() | told | {"figures": shown_, "counts": kept["counts"], "claims": _brief(kept["claims"])}


def report(out: str | Path, *, store: str | None = None, seed: int = 0) -> Report:
    """Write a report of a store into one HTML file. Nothing is trained.

    out: the file, which appears whole or not at all    store: URL (default: KEYSPAN_STORE, else a file in the current
    folder)    seed: the set of instances that the figures are asked for
    """
    target = check_file(out)
    with open_store(store or default_store(), read_only=True, missing_ok=True) as opened:
        found = gather(opened, seed)
    text = page(found)
    if len(text.encode()) > LARGEST:
        text = page(found, rows=40)
    with replacing(target) as handle:
        handle.write(text.encode())
    return Report(**{**found.__dict__, "path": str(out)})


def check_file(out: str | Path) -> Path:
    """Refuse a place where no page can be written, before the store is read for it."""
    if not isinstance(out, str | PathLike):
        raise BadInput(f"`out` must be the path of a file, but got {shown(out)}. Give a str or a Path.")
    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise BadInput(f"`--out` must be an .html file, but got {shown(str(out))}. Change its ending.")
    if path.is_dir() or not path.parent.is_dir():
        raise BadInput(f"`--out` must be a file in a folder that exists, but got {shown(str(out))}. Make the folder.")
    return path


def gather(store: Store, seed: int = 0) -> Report:
    """Everything that a report says, from the store alone."""
    survey, bits, slim = Survey(), BitsTable(), Slim()
    for record in store.records():
        survey.add(record)
        bits.add(record)
    book, rows = Book(store, seed), tuple(bits.rows())
    ledger = Ledger(tuple(book.entry(claim) for claim in claims.every()), store.where, rows)
    records = tuple(record_rows(slim(r) for r in store.records(kind="relations")))
    return Report(store.where, ledger, survey, tuple(_figures(book)), bits_svg(rows) if rows else "", records)


def _figures(book: Book) -> list[Shown]:
    """Every figure of every paper that the store answers in full, at its largest tier."""
    out = []
    for paper in book.papers.values():
        for name in paper.figures:
            found = book.found(paper, name)
            if found is not None:
                judged = tuple(judged.to_dict() for judged in claims.judge(found, paper))
                out.append(_shown(found, paper.name, judged))
    return out


def _shown(found: Found, paper: str, judged: tuple[Mapping[str, Any], ...]) -> Shown:
    name = found.figure.name
    info = drawing_of(paper, name).info(found)
    svg = svg_of(info, name, paper)
    if len(svg) > LARGEST_PICTURE:
        svg = ""
    return Shown(f"{paper}:{name}", found.figure.title, found.tier, svg, info.alt_text, table(info.rows()), judged)


# --------------------------------------------------------------------------------------------------------- the page


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None, most: int = MOST_ROWS) -> Table:
    """Rows of data as text, in the columns of the first one or those named."""
    names = tuple(columns) if columns is not None else tuple(rows[0]) if rows else ()
    cells = tuple(tuple(text(row.get(name)) for name in names) for row in rows[:most])
    return Table(names, cells, max(0, len(rows) - most))


def text(value: Any) -> str:
    """A value as a reader sees it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {text(v)}" for k, v in value.items() if k not in ("family", "version") and v is not None)
    if isinstance(value, list | tuple):
        return " to ".join(text(v) for v in value)
    return str(value)


def page(found: Report, rows: int = MOST_ROWS) -> str:
    """The report as the text of an HTML page. rows: of each table, at most"""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["text"] = text
    template = environment.from_string(files("keyspan.views").joinpath("report.html.j2").read_text("utf-8"))
    told = found.survey.to_dict()
    bits = bits_info(found.ledger.bits)
    return template.render(
        version=keyspan.__version__,
        r=found,
        told=told,
        counts=found.ledger.counts(),
        papers=_by_paper(found.ledger),
        seconds=sum(m["seconds"] for m in told["machines"]),
        figures=[(f, table_of(f.data, rows)) for f in found.figures],
        bits=table(bits.rows(), BITS_COLUMNS, rows),
        bits_words=bits.alt_text,
        records=table(found.records, RECORD_COLUMNS, rows),
        recipes=[(entry["runs"], entry["recipe"]) for entry in told["recipes"]],
    )


BITS_COLUMNS = (
    "problem",
    "cell",
    "recipe",
    "arithmetic",
    "level",
    "seeds",
    "parameters",
    "per_parameter",
    "low",
    "high",
    "bound",
)
RECORD_COLUMNS = (
    *("items", "d_model", "graph", "embeddings", "recipe", "heads", "d_key", "key_budget", "seeds", "steps_taken"),
    "command",
)


def table_of(full: Table, most: int) -> Table:
    """A table with at most so many rows."""
    return Table(full.columns, full.rows[:most], full.left_out + max(0, len(full.rows) - most))


def _by_paper(ledger: Ledger) -> dict[str, list[dict[str, Any]]]:
    papers: dict[str, list[dict[str, Any]]] = {}
    for entry in ledger.entries:
        papers.setdefault(entry.claim.paper, []).append(entry.to_dict() | {"runs": len(entry.run_ids)})
    return papers


def _brief(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    names = ("id", "paper", "claim", "expected", "measured", "low", "high", "status", "tier")
    return [{name: entry[name] for name in names} for entry in entries]
