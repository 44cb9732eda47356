"""Nested progress with the time left, on stderr and only on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from keyspan.cli.options import current
from keyspan.cli.show import console, note
from keyspan.evidence.record import Record
from keyspan.lab.pack import seconds
from keyspan.runners.driver import Watcher
from keyspan.specs import Run


class Bars(Watcher):
    """One bar for the work of the round, weighed by cost, and one for its members."""

    def __init__(self) -> None:
        shown = sys.stderr.isatty() and not current.quiet
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console(stderr=True),
            disable=not shown,
        )
        self.shown = shown
        self.round_task: TaskID | None = None
        self.step_task: TaskID | None = None
        self._cost: dict[str, float] = {}
        self._done: dict[str, float] = {}
        self._finished = 0

    def __enter__(self) -> Bars:
        self.bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bars.stop()

    def round(self, number: int, runs: Sequence[Run], measured: int) -> None:
        """A new round: new bars when nothing else is going on, longer ones when it joins what is."""
        if not self.shown:
            note(f"round {number}: {len(runs)} members to train, {measured} measured")
            return
        if self._finished >= len(self._cost):
            self._cost, self._done, self._finished = {}, {}, 0
        self._cost |= {run.run_id: seconds(run) for run in runs}
        if self.round_task is None or self.step_task is None:
            self.round_task, self.step_task = self.bars.add_task(""), self.bars.add_task("  work (%)", total=100)
        begun = self._finished == 0 and not self._done
        if begun:  # the time left is estimated anew
            for task in (self.round_task, self.step_task):
                self.bars.reset(task)
        self.bars.update(self.round_task, description=f"round {number}: members", total=len(self._cost))

    def progress(self, run_ids: list[str], step: int, steps: int) -> None:
        """Members have moved."""
        for run_id in run_ids:
            self._done[run_id] = self._cost.get(run_id, 0.0) * step / max(steps, 1)
        self._refresh()

    def finished(self, record: Record) -> None:
        """A member has left."""
        self._finished += 1
        self._done[record.run_id] = self._cost.get(record.run_id, 0.0)
        self._refresh()

    def _refresh(self) -> None:
        if self.round_task is not None and self.step_task is not None:
            share = 100 * sum(self._done.values()) / max(sum(self._cost.values()), 1e-12)
            self.bars.update(self.round_task, completed=self._finished)
            self.bars.update(self.step_task, completed=int(share))
