"""The ledger as a table to keep: CSV, a row for every claim, and Markdown, which a page shows between two marks.

The Markdown says the claims that are decided, paper by paper, and names the others with their reasons. It is made of the rows
of the CSV alone, so whoever has the CSV can check the page.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keyspan.errors import BadInput, shown
from keyspan.files.paths import replacing

BEGIN, END = "<!-- the ledger: begin -->", "<!-- the ledger: end -->"
COLUMNS = (
    *("id", "paper", "source", "claim", "expected", "statistic", "test", "threshold", "interval", "power", "status"),
    *("measured", "low", "high", "figure", "tier", "runs", "decided_by", "reason", "proxy", "command"),
)
NAMES = {
    "adler": "Adler",
    "adler-beyond": "Beyond Adler's figures, our own",
    "mahdavi": "Mahdavi, Liao and Thrampoulidis",
    "harma": "Härmä, Pietrasik and Wilbik",
    "modern": "Attention in use today, our own",
}
SUFFIXES = (".csv", ".md")


def csv_rows(data: Mapping[str, Any]) -> list[dict[str, str]]:
    """From the JSON of `keyspan ledger` to the rows of the CSV, all text; empty where there is nothing."""
    return [{name: _cell(claim | {"runs": len(claim["run_ids"])}, name) for name in COLUMNS} for claim in data["claims"]]


def _cell(claim: Mapping[str, Any], name: str) -> str:
    value = claim[name]
    if isinstance(value, list | tuple):
        return " ".join(str(v) for v in value)
    return "" if value is None else str(value)


def csv_text(rows: Sequence[Mapping[str, str]]) -> str:
    """The CSV."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def read_rows(text: str) -> list[dict[str, str]]:
    """The rows of a CSV that was written here."""
    return list(csv.DictReader(io.StringIO(text)))


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """The table as Markdown, from the rows of the CSV."""
    counts = {status: sum(row["status"] == status for row in rows) for status in ("holds", "fails", "unmeasured")}
    told = "{holds} hold, {fails} fail, {unmeasured} are unmeasured".format(**counts)
    lines = [f"{len(rows)} claims: {told}. The point decides; the 95% interval stands beside it.", ""]
    for group in dict.fromkeys(_group(row) for row in rows):
        decided = [row for row in rows if _group(row) == group and row["status"] != "unmeasured"]
        if decided:
            lines += [f"| {NAMES.get(group, group)} | holds if | measured | |", "|---|---|---|---|"]
            lines += [_line(row) for row in decided] + [""]
    left = [row for row in rows if row["status"] == "unmeasured"]
    if left:
        lines += [f'<details markdown="1"><summary>{len(left)} unmeasured, and why</summary>', ""]
        for reason in dict.fromkeys(row["reason"] for row in left):
            ids = ", ".join(f"`{row['id']}`" for row in left if row["reason"] == reason)
            lines.append(f"- {_safe(reason)}: {ids}")
        lines += ["", "</details>", ""]
    return "\n".join(lines)


def _group(row: Mapping[str, str]) -> str:
    """The paper, or what we asked beyond it."""
    return next((name for name in NAMES if "-" in name and row["id"].startswith(f"{name}-")), row["paper"])


def _line(row: Mapping[str, str]) -> str:
    by = f", `{row['paper']}:{row['figure']}` on {row['runs']} runs" if row["runs"] != "0" else ", by theory"
    name = f"`{row['id']}`{by}"
    status = "holds" if row["status"] == "holds" else "**fails**"
    return f"| {_safe(row['claim'])} {name} | {row['test']} {_bound(row['threshold'])} | {_measured(row)} | {status} |"


def _bound(threshold: str) -> str:
    return " and ".join(f"{float(part):g}" for part in threshold.split())


def _measured(row: Mapping[str, str]) -> str:
    low, high = (_short(row[name]) for name in ("low", "high"))
    middle = _short(row["measured"])
    return middle if not low or low == high == middle else f"{middle} [{low}, {high}]"


def _short(number: str) -> str:
    return f"{float(number):.3g}" if number else ""


def _safe(text: str) -> str:
    """Text in a cell of Markdown: nothing in it begins an element or ends the cell."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def between(page: str, table: str) -> str:
    """The page with the table between its marks."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise BadInput(f"A page that exists must have the lines `{BEGIN}` and `{END}`, but got one without. Add them.")
    return f"{head}{BEGIN}\n{table}{END}{tail}"


def check_out(out: str | Path) -> Path:
    """Refuse what cannot be written, before a store is read for it."""
    path = Path(out)
    if path.suffix.lower() not in SUFFIXES:
        raise BadInput(f"`--out` must be a .csv or .md file, but got {shown(str(out))}. Change its ending.")
    if path.suffix.lower() == ".md" and path.is_file():
        between(path.read_text("utf-8"), "")
    return path


def save_table(data: Mapping[str, Any], out: str | Path) -> Path:
    """Write the ledger: a `.csv`; or a `.md`, between the marks of a page that exists."""
    path, rows = check_out(out), csv_rows(data)
    if path.suffix.lower() == ".csv":
        text = csv_text(rows)
    elif path.is_file():
        text = between(path.read_text("utf-8"), markdown(rows))
    else:
        text = f"{BEGIN}\n{markdown(rows)}{END}\n"
    with replacing(path) as handle:
        handle.write(text.encode())
    return path
