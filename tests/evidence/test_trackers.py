"""Trackers that are installed: every record once, failures as such, the tracker's own settings; here stand-ins for both."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
from tests.cli.asked import ask
from tests.evidence.test_transfer import RECORDS

from keyspan.errors import BadInput, MissingExtra
from keyspan.evidence import trackers
from keyspan.evidence.store import open_store
from keyspan.evidence.trackers import TAG, log_records
from keyspan.evidence.transfer import COLUMNS


class Page(list[Any]):
    """A page of runs, as MLflow answers it."""

    token: str | None = None


class Client:
    """What of `MlflowClient` is used, with the same names of arguments. Runs stay from one client to the next."""

    experiments: ClassVar[dict[str, str]]
    runs: ClassVar[list[dict[str, Any]]]

    def get_experiment_by_name(self, name: str) -> Any:
        return SimpleNamespace(experiment_id=self.experiments[name]) if name in self.experiments else None

    def create_experiment(self, name: str) -> str:
        self.experiments[name] = f"e{len(self.experiments)}"
        return self.experiments[name]

    def create_run(self, experiment_id: str, tags: dict[str, str], run_name: str) -> Any:
        self.runs.append({"in": experiment_id, "tags": tags, "name": run_name})
        return SimpleNamespace(info=SimpleNamespace(run_id=len(self.runs) - 1))

    def log_batch(self, run_id: int, metrics: list[Any], params: list[Any]) -> None:
        self.runs[run_id] |= {"metrics": dict(m[:2] for m in metrics), "params": dict(params)}

    def set_terminated(self, run_id: int, status: str) -> None:
        self.runs[run_id]["status"] = status

    def search_runs(self, experiment_ids: list[str], max_results: int, page_token: str | None) -> Page:
        begin = int(page_token or 0)
        found = [r for r in self.runs if r["in"] in experiment_ids]
        page = Page(SimpleNamespace(data=SimpleNamespace(tags=r["tags"])) for r in found[begin : begin + max_results])
        page.token = str(begin + max_results) if begin + max_results < len(found) else None
        return page


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    Client.experiments, Client.runs = {}, []
    module, entities = ModuleType("mlflow"), ModuleType("mlflow.entities")
    module.__dict__.update(MlflowClient=Client)
    entities.__dict__.update(Metric=lambda *of: of, Param=lambda *of: of)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    monkeypatch.setattr(trackers, "PAGE", 2)
    return Client


def test_mlflow_gets_every_record_once(mlflow: type[Client]) -> None:
    assert log_records(RECORDS[:1], "mlflow", "law") == (1, 0)
    assert log_records(RECORDS, "mlflow", "law") == (2, 1)
    assert log_records([*RECORDS, *RECORDS], "mlflow", "law") == (0, 6)
    assert log_records(RECORDS[:1], "mlflow", "other") == (1, 0)
    first, failed, unit, again = mlflow.runs
    assert [r["tags"][TAG] for r in mlflow.runs[:3]] == [r.run_id for r in RECORDS] and again["in"] == "e1"
    assert first["params"] | {"items": "13", "heads": "3", "recipe": "gradient"} == first["params"]
    assert first["metrics"] == {"f1": 2 / 3, "margin": -1e-7, "threshold": 3.0, "steps": 2000.0, "seconds": 1.5}
    assert first["status"] == "FINISHED" and first["tags"]["keyspan.device"] == "cpu"
    assert failed["status"] == "FAILED" and set(failed["metrics"]) == {"steps", "seconds"}  # a failure is never a number
    assert "heads" not in unit["params"]


@dataclass
class Weights:
    """What of W&B is used."""

    begun: list[dict[str, Any]] = field(default_factory=list)
    logged: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def init(self, **settings: Any) -> Iterator[Any]:
        self.begun.append(settings)
        yield SimpleNamespace(log=self.logged.append, summary=self.summary)

    def Table(self, columns: list[str], data: list[list[Any]], allow_mixed_types: bool) -> Any:  # noqa: N802
        return {"columns": columns, "data": data}


def test_wandb_gets_a_table_and_stays_here(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Weights()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    assert log_records(iter(RECORDS), "wandb") == (3, 0)
    monkeypatch.setenv("WANDB_MODE", "online")
    assert log_records(RECORDS, "wandb") == (3, 0)
    assert [begun["mode"] for begun in fake.begun] == ["offline", "online"]
    assert fake.begun[0]["id"] == fake.begun[1]["id"] and fake.begun[0]["project"] == "keyspan"
    table = fake.logged[0]["records"]
    assert table["columns"] == list(COLUMNS) and [line[0] for line in table["data"]] == [r.run_id for r in RECORDS]
    assert fake.summary == {"records": 3}


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="must be one of mlflow, wandb, but got 'comet'"):
        log_records(RECORDS, "comet")
    with pytest.raises(BadInput, match="`--name` must say something"):
        log_records(RECORDS, "mlflow", " ")
    for name in ("mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(MissingExtra, match=f"pip install {name}"):
            log_records(RECORDS, name)


def test_the_command(mlflow: type[Client], own_store: str) -> None:
    with open_store(own_store) as store:
        store.put_all(RECORDS)
    ran = ask("runs", "log", "mlflow", "--json")
    assert ran.code == 0 and (ran.json["added"], ran.json["known"]) == (3, 0)
    assert "3 were known" in ask("runs", "log", "mlflow").err
