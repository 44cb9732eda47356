"""`keyspan sweep`: any grid of any problem, out of a TOML file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from keyspan.cli.options import current

if TYPE_CHECKING:
    from keyspan.runners.sweeps import Sweep, Swept

VERBS = ("status", "resume", "retry")
SHOWN = 50  # rows of a table on the page; --out has all
WORDS = "FILE.toml | status [NAME] | resume [NAME] | retry [NAME] --failed"


def sweep(
    words: list[str] = typer.Argument(..., help="A file of cells; or what to do with a sweep that was begun.", metavar=WORDS),
    failed: bool = typer.Option(False, "--failed", help="With retry: train members again that ended without a number."),
    runner: str = typer.Option("local", help="local (this machine's cores or its GPU) or ray (a cluster)."),
    address: str | None = typer.Option(None, help="With ray: auto, HOST:6379, ray://HOST:10001 (default: a new cluster here)."),
    direct: bool = typer.Option(False, "--direct", help="With ray and PostgreSQL: workers write into the store themselves."),
    on_error: str = typer.Option("continue", help="continue|stop: what to do after a member that ended without a number."),
    jobs: int | None = typer.Option(None, help="Worker processes (default: one a core, one for a GPU)."),
    out: Path | None = typer.Option(None, help="Write a row for every cell to this CSV file."),
    hand_out: Path | None = typer.Option(None, help="Write the questions here for keyspan.lab.worker; train nothing."),
) -> int:
    """Measure the cells of a grid; say how far a sweep is; go on with it; try failed members again."""
    from keyspan.cli import asking
    from keyspan.errors import BadInput, shown

    verb, names = (words[0], words[1:]) if words[0] in VERBS else ("run", words)
    if len(names) > 1:
        raise BadInput(f"A sweep must be one file or one name, but got {shown(' '.join(names))}. Give one at a time.")
    if failed != (verb == "retry"):
        got = "`--failed` without it" if failed else "`retry` without `--failed`"
        raise BadInput(f"`--failed` must go with `sweep retry`, but got {got}. Try: keyspan sweep retry --failed")
    if on_error not in ("continue", "stop"):
        raise BadInput(f"`--on-error` must be continue|stop, but got {shown(on_error)}. Choose one.")
    _check_out(out)
    if verb == "status":
        return _status(names[0] if names else None)
    chosen = _read(names[0] if names else None)
    if current.dry_run:
        return asking.dry_run(chosen.asked, jobs)
    if hand_out is not None:
        return asking.hand_out(chosen.asked, hand_out)
    if verb == "retry":
        _forget(chosen)
    swept = _carry_out(chosen, on_error == "stop", jobs=jobs, runner=runner, address=address, direct=direct, on_error=on_error)
    return _say(swept, out)


def _check_out(out: Path | None) -> None:
    """Refuse a table that cannot be written before anything is trained for it."""
    from keyspan.errors import BadInput
    from keyspan.files.paths import check_writable

    if out is not None:
        if out.suffix.lower() != ".csv" or out.is_dir():
            raise BadInput(f"`--out` must be a `.csv` file, but got {str(out)!r}. Change its ending.")
        check_writable(out.parent, "--out")


def _read(name: str | None) -> Sweep:
    """The sweep of a file, or of a store that remembers it."""
    from keyspan.cli import asking
    from keyspan.evidence.store import open_store
    from keyspan.evidence.sweeps import Journal
    from keyspan.files.documents import TOML_LIMIT
    from keyspan.files.paths import name_of, reading
    from keyspan.runners.sweeps import begun_sweep, read_sweep

    contents = asking.lab().contents
    if name is not None and (name.endswith(".toml") or Path(name).is_file()):
        with reading(name, TOML_LIMIT) as (handle, _):
            data = handle.read()
        return read_sweep(data, name_of(name), Path(name).absolute().parent, current.seed, contents)
    with open_store(current.store, read_only=True, missing_ok=True) as store:
        return begun_sweep(Journal(store).find(name).sweep, contents)


def _forget(chosen: Sweep) -> None:
    from keyspan.cli import show
    from keyspan.evidence.store import open_store
    from keyspan.runners.sweeps import forget_failed

    with open_store(current.store) as store:
        gone = forget_failed(chosen, store)
    show.note(f"{show.counted(len(gone), 'member')} without a number to be trained again")


def _carry_out(chosen: Sweep, stop: bool, **lab: Any) -> Swept:
    """Carry it out. Ray prints what befalls its nodes; on stdout there is to be the answer and nothing else."""
    from contextlib import redirect_stdout

    from keyspan.cli import asking
    from keyspan.cli.progress import Bars
    from keyspan.runners.sweeps import carry_out

    with redirect_stdout(sys.stderr), Bars() as bars:
        return carry_out(chosen, asking.lab(watcher=bars, **lab), stop_on_failure=stop, heard=_counter())


def _counter() -> Callable[[Swept], None]:
    """Says how far the cells are, now and then."""
    import time

    from keyspan.cli import show

    last = time.monotonic()

    def heard(swept: Swept) -> None:
        nonlocal last
        if time.monotonic() - last > 10:
            last = time.monotonic()
            show.note(f"{len(swept.rows)} of {swept.sweep.begun.cells} cells")

    return heard


def _say(swept: Swept, out: Path | None) -> int:
    from keyspan.cli import show

    data = swept.to_dict()
    if out is not None:
        _write(data["results"], out)
    if current.json:
        show.print_json(data)
    else:
        _print(data)
    if out is not None:
        show.note(f"wrote {out}")
    return 3 if swept.failed else 0


def _print(data: dict[str, Any]) -> None:
    from keyspan.cli import show

    results = data["results"]
    columns = [name for name in _columns(results) if name not in ("family", "members") and _varies(results, name)]
    rows = [[_cell(row.get(column)) for column in columns] for row in results[:SHOWN]]
    more = f", the first {SHOWN}" if len(results) > SHOWN else ""
    title = f"{data['sweep']}: {show.counted(len(results), 'cell')}{more}; what is the same in all is left out"
    show.console().print(show.table(title, columns, rows, left=0))
    _counts(data)
    show.console().print(f"trained now {data['trained_now']} of {show.counted(len(data['run_ids']), 'member')}")


def _counts(data: dict[str, Any]) -> None:
    from keyspan.cli import show

    counts = f"{data['done']} of {data['cells']} cells done, {data['failed']} with failed members, {data['open']} open"
    show.console().print(f"{data['sweep']} ({data['sweep_id']}): {counts}; {data['skipped']} combinations skipped")


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _varies(rows: list[dict[str, Any]], name: str) -> bool:
    return len(rows) == 1 or len({repr(row.get(name)) for row in rows}) > 1


def _cell(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _write(rows: list[dict[str, Any]], path: Path) -> None:
    """A row a cell; what a cell has not is empty."""
    import csv
    import io

    from keyspan.files.paths import replacing

    text = io.StringIO()
    writer = csv.DictWriter(text, _columns(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as handle:
        handle.write(text.getvalue().encode())


def _status(name: str | None) -> int:
    from keyspan.cli import show
    from keyspan.evidence.record import head
    from keyspan.evidence.store import open_store
    from keyspan.evidence.sweeps import Journal

    with open_store(current.store, read_only=True, missing_ok=True) as store:
        journal = Journal(store)
        chosen = journal.find(_read(name).begun.sweep_id if name and name.endswith(".toml") else name)
        every = [
            {"sweep": s.sweep.name, "sweep_id": s.sweep.sweep_id, "cells": s.sweep.cells, "done": s.done, "failed": s.failed}
            | {"open": s.open, "skipped": s.sweep.skipped}
            for s in journal.states()
        ]
        mine = next(one for one in every if one["sweep_id"] == chosen.sweep.sweep_id)
        results = list(journal.rows(chosen.sweep.sweep_id)) if current.json else []
    if current.json:
        show.print_json(head() | mine | {"results": results, "sweeps": every})
        return 0
    columns = ("sweep", "sweep_id", "cells", "done", "failed", "open", "skipped")
    show.console().print(show.table("Sweeps, the latest first", columns, [[one[c] for c in columns] for one in every], left=2))
    return 0
