"""`keyspan runs`: look into the store, carry records in and out of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from keyspan.cli.options import current

if TYPE_CHECKING:
    from rich.console import Group

app = typer.Typer(help="The store: list, show, records, export, log, import, merge, remove.")
LEFT = ("run_id", "kind", "status")  # columns of text
LESS = ("kind", "steps", "exact", "d_model", "replicate", "items")  # columns that go first on a narrow page


@app.command("list")
def list_runs(
    kind: str | None = typer.Option(None, help="Only this problem family: relations, dichotomies, labels ..."),
    status: str | None = typer.Option(None, help="Only this status: measured, diverged ..."),
    limit: int | None = typer.Option(None, help="At most this many (default: all with --json, else 50)."),
) -> int:
    """The finished members in the store."""
    from keyspan.cli import show
    from keyspan.errors import require
    from keyspan.evidence.record import head
    from keyspan.evidence.store import open_store
    from keyspan.evidence.transfer import row as flat_row

    require(limit is None or limit >= 1, "`--limit >= 1`", limit, "Leave it out for all.")
    shown = limit if limit is not None or current.json else 50
    with open_store(current.store, read_only=True, missing_ok=True) as store:
        total = store.count()
        rows = [flat_row(record) for record in store.records(kind=kind, status=status, limit=shown)]
    if current.json:
        show.print_json(head() | {"runs": rows, "run_ids": sorted(r["run_id"] for r in rows), "total": total})
        return 0
    columns = ["run_id", "kind", "status", "items", "d_model", "heads", "d_key", "replicate", "f1", "exact", "steps"]
    out = show.console()
    left_out: list[str] = []
    table = _listing(rows, columns, total)
    for name in LESS:
        if show.width(table) <= out.width:
            break
        left_out.append(name)
        columns.remove(name)
        table = _listing(rows, columns, total)
    out.print(table)
    if left_out:
        show.note(f"no room for {', '.join(left_out)}: `keyspan runs show RUN_ID`, or --json, has them")
    return 0


def _listing(rows: list[dict[str, Any]], columns: list[str], total: int) -> Group:
    from keyspan.cli import show

    titles = ["seed" if name == "replicate" else name for name in columns]
    cells = [[row[name] for name in columns] for row in rows]
    return show.table(f"{len(rows)} of {total} runs", titles, cells, left=sum(name in LEFT for name in columns))


@app.command("show")
def show_run(run_id: str = typer.Argument(..., help="A run id, or its beginning.")) -> int:
    """One record, whole."""
    from keyspan.cli import show
    from keyspan.evidence.record import head
    from keyspan.evidence.store import open_store

    with open_store(current.store, read_only=True, missing_ok=True) as store:
        record = store.find(run_id)
        copies = len(store.copies(record.run_id))
    show.print_json(head() | record.to_json() | {"copies": copies})
    return 0


@app.command("export")
def export_runs(
    path: Path = typer.Argument(..., help="FILE.jsonl (whole records); FILE.csv or FILE.parquet (a flat table)."),
) -> int:
    """Write the records to a file."""
    from keyspan.cli import show
    from keyspan.evidence.record import head
    from keyspan.evidence.store import open_store
    from keyspan.evidence.transfer import export

    with open_store(current.store, read_only=True, missing_ok=True) as store:
        count = export(store.records(copies=True), path)
    if current.json:
        show.print_json(head() | {"path": str(path), "exported": count})
    else:
        show.note(f"wrote {count} records to {path}")
    return 0


@app.command("log")
def log_runs(
    tracker: str = typer.Argument(..., help="mlflow or wandb, if it is installed."),
    name: str = typer.Option("keyspan", help="The experiment there (MLflow), or the project (W&B)."),
) -> int:
    """Tell the records to an experiment tracker, by its own settings."""
    from keyspan.cli import show
    from keyspan.evidence.record import head
    from keyspan.evidence.store import open_store
    from keyspan.evidence.trackers import log_records

    with open_store(current.store, read_only=True, missing_ok=True) as store:
        told = log_records(store.records(), tracker, name)
    if current.json:
        show.print_json(head() | {"tracker": tracker, "name": name, "added": told.added, "known": told.known})
    else:
        show.note(f"{tracker} has {told.added} records more, {told.known} were known")
    return 0


@app.command("records")
def record_table(out: Path | None = typer.Option(None, help="Write the table to this CSV file.")) -> int:
    """The smallest key budgets with exact recovery in all seeds, per cell and recipe, each with its command."""
    from keyspan.cli import show
    from keyspan.evidence.record import head
    from keyspan.evidence.store import open_store
    from keyspan.runners.records import record_rows, write_rows

    with open_store(current.store, read_only=True, missing_ok=True) as store:
        rows = record_rows(store.records(kind="relations"))
    if out is not None:
        write_rows(rows, out)
    if current.json:
        show.print_json(head() | {"records": rows, "path": None if out is None else str(out)})
    elif out is not None:
        show.note(f"wrote {len(rows)} records to {out}")
    else:
        columns = ("items", "d_model", "graph", "embeddings", "recipe", "heads", "d_key", "key_budget", "seeds", "steps_taken")
        show.console().print(show.table(f"{len(rows)} records", columns, [[r[c] for c in columns] for r in rows], left=0))
    return 0


@app.command("import")
def import_runs(path: Path = typer.Argument(..., help="A JSONL file of records, or a worker's folder.")) -> int:
    """Bring records home. A run that is there already is kept as it is; one that disagrees is kept beside it."""
    from keyspan.cli import show
    from keyspan.evidence.record import head
    from keyspan.evidence.store import open_store
    from keyspan.evidence.transfer import import_records

    decodable()
    with open_store(current.store) as store:
        result = import_records(path, store)
    if current.json:
        show.print_json(head() | {"added": result.added, "known": result.known, "torn": result.torn})
    else:
        torn = f", {result.torn} torn lines were left out" if result.torn else ""
        show.note(f"added {result.added} records, {result.known} were known{torn}")
    return 0


@app.command("merge")
def merge_runs(
    a: str = typer.Argument(..., help="The store that takes: its URL, or an SQLite file.", metavar="A"),
    b: str = typer.Argument(..., help="The store that gives; it is only read.", metavar="B"),
) -> int:
    """Bring the records of store B into store A. Every copy is kept, and of two the first answers."""
    from keyspan.cli import show
    from keyspan.evidence.record import head
    from keyspan.evidence.store import open_store
    from keyspan.evidence.transfer import merge

    decodable()
    with open_store(_url(b), read_only=True) as other, open_store(_url(a)) as into:
        result = merge(into, other)
    if current.json:
        data = {"added": result.added, "known": result.known, "differing": result.differing}
        show.print_json(head() | data | {"disagreements": list(result.disagreements)})
        return 0
    show.note(f"added {result.added} records, {result.known} were known")
    if result.differing:
        many = show.counted(result.differing, "run")
        show.note(
            f"{many} came out differently there, {len(result.disagreements)} of them in status or exactness; both are kept"
        )
    return 0


def _url(name: str) -> str:
    """A store by its URL, or by the path of its file."""
    return name if "://" in name else f"sqlite:///{name}"


def decodable() -> None:
    """Import the families whose specs a record may hold, so that they can be decoded and their ids checked."""
    from keyspan.lab import recipes
    from keyspan.problems import contexts, dichotomies, in_context, placed, relations, sequences, typed
    from keyspan.theory import constructions

    assert recipes and constructions
    assert contexts and dichotomies and in_context and placed and relations and sequences and typed


@app.command("remove")
def remove_run(run_id: str = typer.Argument(..., help="A run id, or its beginning.")) -> int:
    """Forget a record. It stays in the file, marked as removed, and the run may be measured again."""
    from keyspan.cli import show
    from keyspan.evidence.record import head
    from keyspan.evidence.store import open_store

    with open_store(current.store) as store:
        record = store.find(run_id)
        copies = store.remove(record.run_id)
    if current.json:
        show.print_json(head() | {"removed": record.run_id, "copies": copies})
    else:
        show.note(f"removed {record.run_id}")
    return 0
