"""Records out of a store and into one: JSONL (whole records), CSV and Parquet (flat columns, for spreadsheets and frames).

CSV columns, empty where a record has no such fact (a failure has no numbers):
    run_id, problem_id, kind, status          identities, the family of the problem, how the measurement ended
    exact                                     `true` or `false`
    f1, f1_best, precision, recall            scores of the verdict, if it has them
    fitted, accuracy, margin, threshold       more scores
    recited, shown, stored_bits               scores of a recital
    heads, d_key, key_budget                  the instrument; key_budget = heads * d_key
    items, d_model, dimension, examples       sizes of the problem, or of the instrument, wherever a spec holds them
    vocabulary, length, library               sizes of a problem of sequences
    graph, embeddings, recipe                 parts of the run, by name
    replicate, arithmetic                     the rest of the run
    steps, seconds, device, keyspan, created  the provenance
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from keyspan import identity, specs
from keyspan.errors import BadInput
from keyspan.evidence import parquet
from keyspan.evidence.record import Record
from keyspan.evidence.store import BATCH, Store
from keyspan.files.paths import replacing

SCORES = (
    *("f1", "f1_best", "precision", "recall", "fitted", "accuracy", "margin", "threshold"),
    *("recited", "shown", "stored_bits"),
)
SIZES = ("items", "d_model", "dimension", "examples", "vocabulary", "length", "library")
DEEPEST = 50  # how deep a record may be nested; one of ours has some six levels
FACTS = ("steps", "seconds", "device", "keyspan", "created")
COLUMNS = (
    *("run_id", "problem_id", "kind", "status", "exact"),
    *SCORES,
    *("heads", "d_key", "key_budget"),
    *SIZES,
    *("graph", "embeddings", "recipe"),
    *("replicate", "arithmetic"),
    *FACTS,
)


class Imported(NamedTuple):
    """added: records that are new here    known: that were here    torn: last lines cut off by a killed worker"""

    added: int
    known: int
    torn: int


class Merged(NamedTuple):
    """added: records that are new here    known: that were here    differing: runs whose new copy says something else than
    the record that answers    disagreements: of these, the ones that another status or another exactness would decide
    """

    added: int
    known: int
    differing: int
    disagreements: tuple[str, ...]


# ---------------------------------------------------------------------------------------------------------------- out


def export(records: Iterable[Record], path: str | Path) -> int:
    """Write records to a `.jsonl`, `.csv` or `.parquet` file, whole or not at all. returns: how many were written"""
    target = Path(path).resolve()  # a link stays a link
    if target.suffix.lower() == PARQUET:
        return _export_parquet(records, path)
    write = _WRITERS.get(target.suffix.lower())
    if write is None:
        known = ", ".join((*_WRITERS, PARQUET))
        raise BadInput(f"An export must be one of {known}, but got {str(path)!r}. Change its ending.")
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="") as file:
            count = write(records, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except OSError as error:
        raise BadInput(
            f"An export must be a file one can write, but got {error.strerror!r} for {str(path)!r}. Check its folder."
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink()
    return count


def row(record: Record) -> dict[str, Any]:
    """One record as the flat columns of a CSV file; None where it has no such fact.

    A record from another keyspan may have anything where we look for a number or a name: what is no cell is left out.
    """
    verdict, run = record.verdict, record.run
    heads, d_key = _find(run.get("instrument"), "heads"), _find(run.get("instrument"), "d_key")
    flat = {
        "run_id": record.run_id,
        "problem_id": record.problem_id,
        "kind": record.kind,
        "status": str(verdict.status),
        "exact": verdict.exact,
        "heads": heads,
        "d_key": d_key,
        "key_budget": heads * d_key if type(heads) is type(d_key) is int else None,
        "graph": _name(_part(run.get("problem"), "graph")),
        "embeddings": _name(_part(run.get("problem"), "embeddings")),
        "recipe": _name(run.get("recipe")),
        "replicate": run.get("replicate"),
        "arithmetic": run.get("arithmetic"),
    }
    flat |= {name: verdict.scores.get(name) for name in SCORES}
    sizes = {name: _find(run.get("problem"), name) for name in SIZES}
    flat |= sizes | {"d_model": sizes["d_model"] or _find(run.get("instrument"), "d_model")}
    flat |= {name: record.provenance.get(name) for name in FACTS}
    return {name: flat[name] if isinstance(flat[name], str | int | float) else None for name in COLUMNS}


def _part(spec: Any, name: str) -> Any:
    return spec.get(name) if isinstance(spec, Mapping) else None


def _name(spec: Any) -> Any:
    """What a spec is called: its name, or else its family."""
    return spec.get("name", spec.get("family")) if isinstance(spec, Mapping) else spec


def _find(spec: Any, name: str) -> Any:
    """The field of this name in a spec, or in the specs inside it; None when there is none."""
    if not isinstance(spec, Mapping):
        return None
    if name in spec:
        return spec[name]
    inner = (_find(value, name) for value in spec.values() if isinstance(value, Mapping))
    return next((value for value in inner if value is not None), None)


def _write_jsonl(records: Iterable[Record], file: TextIO) -> int:
    count = 0
    for count, record in enumerate(records, 1):  # noqa: B007 - it is returned
        file.write(record.to_line() + "\n")
    return count


def _write_csv(records: Iterable[Record], file: TextIO) -> int:
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    count = 0
    for count, record in enumerate(records, 1):  # noqa: B007 - it is returned
        writer.writerow({k: json.dumps(v) if isinstance(v, bool) else v for k, v in row(record).items()})
    return count


def _export_parquet(records: Iterable[Record], path: str | Path) -> int:
    parquet.duckdb()  # refused before anything is read
    with replacing(path) as handle:
        return parquet.write(records, handle, _write_csv, parquet.types(COLUMNS, SCORES, SIZES))


PARQUET = ".parquet"
_WRITERS: dict[str, Callable[[Iterable[Record], TextIO], int]] = {".jsonl": _write_jsonl, ".csv": _write_csv}

# ----------------------------------------------------------------------------------------------------------------- in


def import_records(path: str | Path, store: Store) -> Imported:
    """Bring records home: from a JSONL file, or from a folder as a worker leaves it (`members*.jsonl` are no records).

    Every run is checked before anything is stored: it decodes, and its ids are those of its content. The families of
    its specs must have been imported; a record with a family or version unknown here is kept unchecked. A last line
    without its end was cut off by a kill: it is skipped and counted. Any other bad line refuses the whole import.
    """
    files = _files(Path(path))
    torn = sum(_check(file) for file in files)
    total = 0

    def read() -> Iterator[Record]:
        nonlocal total
        for file in files:
            for _, record in _lines(file):
                if record is not None:
                    total += 1
                    yield record

    added = store.put_all(read(), copies=True)
    return Imported(added, total - added, torn)


def merge(into: Store, other: Store) -> Merged:
    """Bring the records of another store here, beside what is here. The other is only read.

    As with an import, everything is checked before anything is stored. What the other has removed is not there for us, and
    what we have removed comes back: removing says that a run may be measured again.
    """
    for record in other.records(copies=True):
        _check_record(record)
    total = added = 0
    differing: dict[str, bool] = {}
    theirs = other.records(copies=True)
    while page := list(islice(theirs, BATCH)):
        ours = into.get_many(record.run_id for record in page)
        for record in page:
            mine = ours.get(record.run_id)
            if mine is not None and mine.content != record.content:
                a, b = mine.verdict, record.verdict
                differing[record.run_id] = differing.get(record.run_id, False) or (a.status, a.exact) != (b.status, b.exact)
        added += into.put_all(page, copies=True)
        total += len(page)
    return Merged(added, total - added, len(differing), tuple(sorted(run_id for run_id, much in differing.items() if much)))


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(f for f in path.glob("*.jsonl") if f.is_file() and not f.name.startswith("members"))
        if not found:
            raise BadInput(f"A folder to import must hold `*.jsonl` files, but {str(path)!r} has none. Name another.")
        return found
    if path.suffix.lower() != ".jsonl":
        raise BadInput(f"An import must be a `.jsonl` file or a folder of them, but got {str(path)!r}. Name another.")
    return [path]


def _check(file: Path) -> int:
    """Refuse a file with a bad record in it. returns: how many torn lines it has, 0 or 1"""
    torn = 0
    for number, record in _lines(file):
        if record is None:
            torn += 1
            continue
        try:
            _check_record(record)
        except BadInput as error:
            raise BadInput(f"{file}:{number}: {error}") from error
    return torn


def _lines(file: Path) -> Iterator[tuple[int, Record | None]]:
    """The records of a file with their line numbers; None for a torn last line."""
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, _record(line, f"{file}:{number}")
    except OSError as error:
        raise BadInput(
            f"An import must be a file one can read, but got {error.strerror!r} for {str(file)!r}. Check the path."
        ) from error


def _record(line: bytes, place: str) -> Record | None:
    try:
        data = json.loads(line)
        if not _is_shallow(data, DEEPEST):
            raise RecursionError
    except RecursionError:
        raise BadInput(
            f"{place}: A record must be nested at most {DEEPEST} deep, but this line is deeper. Export it again."
        ) from None
    except ValueError as error:
        if line.startswith(b"{") and not line.endswith(b"\n"):
            return None  # torn: what is whole ends with a newline, or is at least JSON
        raise BadInput(f"{place}: A line of records must be JSON, but got {line[:60]!r}. Export it again.") from error
    try:
        return Record.from_json(data)
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from error


def _is_shallow(data: Any, room: int) -> bool:
    """Whether JSON data is nested at most so deep: what is deeper can overflow the stack of whoever reads it later."""
    if not isinstance(data, Mapping | list):
        return True
    inner = data.values() if isinstance(data, Mapping) else data
    return room > 0 and all(_is_shallow(value, room - 1) for value in inner)


def _check_record(record: Record) -> None:
    """Refuse a record that cannot be listed and written again, or whose run, ids or scores are not what they say."""
    record.to_line()  # refuses NaN, which Python's reader lets through
    parts = [record.run.get(name) for name in ("problem", "instrument", "recipe")]
    if not all(isinstance(part, Mapping) and "family" in part for part in parts):
        raise BadInput(
            f"A record must hold a run of a problem, an instrument and a recipe, but got {parts!r:.60}. Export it again."
        )
    families = list(_families(record.run))
    row(record)
    try:
        json.dumps(record.to_json(), ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        got = repr(error.object[error.start])
        raise BadInput(f"A record must hold text that has a UTF-8 form, but got {got}. Export it again.") from None
    _check_run(record, families)


def _check_run(record: Record, families: list[tuple[str, Any]]) -> None:
    """The ids are hashes of the run's JSON, so they are checked although a part of it may be unknown here."""
    family, version = families[0]
    if family != specs.Run.family or version not in (None, specs.Run.version):
        raise BadInput(
            f"A record must hold a run of version {specs.Run.version}, but got {families[0]!r:.60}. "
            "Use the keyspan that wrote it."
        )
    known = all(_is_known(name, version) for name, version in families)
    run = specs.Run.from_json(record.run) if known else None
    due_problem, due_run = specs.ids_of(record.run if run is None else run.to_json())
    for name, value, due in (("run_id", record.run_id, due_run), ("problem_id", record.problem_id, due_problem)):
        if value != due:
            raise BadInput(
                f"The `{name}` of a record must be that of its run, {due}, but got {value!r}. "
                "The record was changed, or written by another keyspan: use that one."
            )
    if run is not None and record.verdict.measured:
        _check_scores(record.verdict.scores, getattr(run.problem, "scores", ()))


def _check_scores(scores: Mapping[str, float], due: tuple[str, ...]) -> None:
    """A measured record has what the judge says of its family; a question may ask for any of it."""
    if missing := [name for name in due if name not in scores]:
        raise BadInput(
            f"A measured record must have the scores {', '.join(due)}, but got none of name {', '.join(missing)}. "
            "The record was changed: take it from where it was measured."
        )


def _is_known(family: str, version: Any) -> bool:
    cls = identity._registry.get(family)
    return cls is not None and version in (None, cls.version)


def _families(data: Any) -> Iterator[tuple[str, Any]]:
    """The (family, version) of every spec inside JSON data."""
    if isinstance(data, Mapping):
        if "family" in data:
            if not isinstance(data["family"], str):
                raise BadInput(f"A family must be text, but got {data['family']!r:.60}. Export it again.")
            yield data["family"], data.get("version")
        for value in data.values():
            yield from _families(value)
    elif isinstance(data, list):
        for value in data:
            yield from _families(value)
