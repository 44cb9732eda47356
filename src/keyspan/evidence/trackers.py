"""Records told to an experiment tracker that is installed: MLflow or Weights & Biases. Neither is needed by anything here.

MLflow gets a run for every record, with its sizes as parameters and its scores as metrics; where they go is the tracker's own
setting (`MLFLOW_TRACKING_URI`). A record that the experiment has already is left alone. W&B gets one run with a table of all
records; it stays on this machine (`offline`) unless `WANDB_MODE` says otherwise.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from keyspan.errors import BadInput, MissingExtra, shown
from keyspan.evidence.record import Record
from keyspan.evidence.transfer import COLUMNS, FACTS, SCORES, row
from keyspan.specs import digest

TAG = "keyspan.run_id"
PAGE = 1000  # runs that MLflow is asked for at a time
NUMBERS = ("steps", "seconds")


class Logged(NamedTuple):
    """added: records that are new there    known: that were there"""

    added: int
    known: int


def log_records(records: Iterable[Record], tracker: str, name: str = "keyspan") -> Logged:
    """Tell records to a tracker. tracker: mlflow or wandb    name: of the experiment there (MLflow), or of the project"""
    if tracker not in TRACKERS:
        raise BadInput(f"A tracker must be one of {', '.join(TRACKERS)}, but got {shown(tracker)}. Choose one.")
    if not name.strip():
        raise BadInput("`--name` must say something, but got nothing. Name an experiment.")
    return TRACKERS[tracker](records, name)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtra(f"Runs are told to {name} where it is installed. Use: pip install {name}.") from None


def _to_mlflow(records: Iterable[Record], name: str) -> Logged:
    mlflow, entities = _module("mlflow"), _module("mlflow.entities")
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name(name)
    place = client.create_experiment(name) if experiment is None else experiment.experiment_id
    there = set(_known(client, place))
    added = known = 0
    for record in records:
        if record.run_id in there:
            known += 1
            continue
        there.add(record.run_id)
        flat = {column: value for column, value in row(record).items() if value is not None}
        metrics = {column: float(flat[column]) for column in (*SCORES, *NUMBERS) if isinstance(flat.get(column), int | float)}
        about = {column: str(value) for column, value in flat.items() if column not in (*SCORES, *FACTS)}
        tags = {TAG: record.run_id} | {f"keyspan.{fact}": str(flat[fact]) for fact in FACTS if fact in flat}
        run = client.create_run(place, tags=tags, run_name=record.run_id).info.run_id
        client.log_batch(
            run,
            metrics=[entities.Metric(key, value, 0, 0) for key, value in metrics.items()],
            params=[entities.Param(key, value) for key, value in about.items()],
        )
        client.set_terminated(run, status="FINISHED" if record.verdict.measured else "FAILED")
        added += 1
    return Logged(added, known)


def _known(client: Any, place: str) -> Iterator[str]:
    """The ids of the records that an experiment has."""
    token = None
    while True:
        found = client.search_runs([place], max_results=PAGE, page_token=token)
        yield from (run.data.tags[TAG] for run in found if TAG in run.data.tags)
        token = found.token
        if not token:
            return


def _to_wandb(records: Iterable[Record], name: str) -> Logged:
    wandb = _module("wandb")
    rows = [row(record) for record in records]
    same = digest([flat["run_id"] for flat in rows], "k")  # the same records are the same run there
    mode = os.environ.get("WANDB_MODE", "offline")
    with wandb.init(project=name, name=f"{len(rows)} records", id=same, mode=mode, resume="allow") as run:
        table = wandb.Table(columns=list(COLUMNS), data=[list(flat.values()) for flat in rows], allow_mixed_types=True)
        run.log({"records": table})
        run.summary["records"] = len(rows)
    return Logged(len(rows), 0)


TRACKERS: dict[str, Callable[[Iterable[Record], str], Logged]] = {"mlflow": _to_mlflow, "wandb": _to_wandb}
