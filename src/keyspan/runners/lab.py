"""A laboratory to ask: a store, the machine that trains, and the folder beside the store. For Python callers and the CLI."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from keyspan.errors import BadInput, require
from keyspan.evidence.store import open_store
from keyspan.files.contents import Contents
from keyspan.files.paths import check_writable, shown
from keyspan.runners import driver, live
from keyspan.runners.driver import Outcome, Watcher
from keyspan.runners.local import DEVICES, LocalRunner
from keyspan.runners.pool import ON_ERROR
from keyspan.runners.questions import whole
from keyspan.specs import Question

RUNNERS = ("local", "ray")
DEFAULT_STORE = "sqlite:///.keyspan/store.db"


def default_store() -> str:
    """KEYSPAN_STORE, or a file in the current folder."""
    return os.environ.get("KEYSPAN_STORE") or DEFAULT_STORE


@dataclass(frozen=True)
class Lab:
    """Where records lie and what trains.

    store: URL (default: KEYSPAN_STORE, else a file in the current folder)    device: auto, cpu or cuda    jobs: worker
    processes (default: one a core, one for a GPU)    weights: keep the weights of what is trained in this folder
    watcher: told what happens    on_error: `stop` at a member that fails three times, or record that and `continue`
    runner: local, or ray: a cluster, at `address`    direct: its workers write into a PostgreSQL store themselves
    """

    store: str | None = None
    device: str = "auto"
    jobs: int | None = None
    weights: str | Path | None = None
    watcher: Watcher | None = None
    on_error: str = "stop"
    runner: str = "local"
    address: str | None = None
    direct: bool = False

    def __post_init__(self) -> None:
        for name, value, kinds, example in (
            ("store", self.store, (str,), "sqlite:///lab.db"),
            ("device", self.device, (str,), "cpu"),
            ("weights", self.weights, (str, Path), "weights"),
            ("address", self.address, (str,), "auto"),
            ("watcher", self.watcher, (Watcher,), "None"),
        ):
            if value is not None and not isinstance(value, kinds):
                kind = " or ".join(k.__name__ for k in kinds)
                raise BadInput(f"`{name}` of a Lab must be a {kind}, but got {shown(value)}. Use for example {example}.")
        if self.device not in DEVICES:
            raise BadInput(f"`--device` must be {'|'.join(DEVICES)}, but got {shown(self.device)}. Choose one.")
        if self.runner not in RUNNERS:
            raise BadInput(f"`--runner` must be {'|'.join(RUNNERS)}, but got {shown(self.runner)}. Choose one.")
        if self.runner == "local" and (self.address is not None or self.direct):
            raise BadInput("`--address` and `--direct` must go with `--runner ray`, but got a local one. Leave them out.")
        if self.direct and not self.url.startswith("postgresql"):
            raise BadInput("`--direct` must go with a store in PostgreSQL, which all machines reach. Leave it out.")
        if self.on_error not in ON_ERROR:
            raise BadInput(f"`--on-error` must be {'|'.join(ON_ERROR)}, but got {shown(self.on_error)}. Choose one.")
        if self.jobs is not None:
            fix = "Leave it out for one a core, or one for a GPU."
            object.__setattr__(self, "jobs", whole(self.jobs, "--jobs", fix))
            require(self.jobs >= 1, "`--jobs >= 1`", self.jobs, fix)

    @property
    def url(self) -> str:
        """The store's URL."""
        return self.store or default_store()

    @property
    def folder(self) -> Path:
        """Where checkpoints and file contents lie: beside an SQLite store, else in the folder of the default store."""
        prefix = "sqlite:///"
        return Path((self.url if self.url.startswith(prefix) else DEFAULT_STORE)[len(prefix) :]).parent

    @property
    def contents(self) -> Contents:
        """Arrays that came from files, by hash."""
        return Contents(self.folder / "files")

    def make_runner(self) -> driver.Runner:
        """What trains."""
        weights = None if self.weights is None else Path(self.weights)
        if weights is not None:
            check_writable(weights, "--weights")
        if self.runner == "ray":
            from keyspan.runners.ray import RayRunner

            direct = self.url if self.direct else None
            return RayRunner(self.address, self.device, self.jobs, self.folder, weights, self.on_error, direct)
        return LocalRunner(self.device, self.jobs, self.folder, weights, self.on_error)

    def answer(self, questions: Sequence[Question]) -> list[Outcome]:
        """Answer questions, training what the store does not hold."""
        if self.weights is not None:
            check_writable(self.weights, "--weights")
        with open_store(self.url) as store, live.watching(self.folder, self.watcher) as watcher:
            return driver.answer(questions, store, self.make_runner, watcher)


def lab_or_default(lab: Lab | None) -> Lab:
    """The laboratory given, or the one of the command line's defaults."""
    if lab is not None and not isinstance(lab, Lab):
        raise BadInput(f"`lab` must be a Lab, but got {shown(lab)}. Use keyspan.Lab(store=...), or leave it out.")
    return Lab() if lab is None else lab
