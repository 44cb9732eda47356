"""Several drivers on one PostgreSQL store, each killed once at a random moment: no member lost, none twice."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.contracts.postgres_cluster import running_cluster
from tests.faults.kills import begin, bits_of, count, finish, lines, strike

CELLS = """
name = "many"
[[grid]]
items = 8
d_model = 4
heads = [2]
key_budgets = [4]
seeds = 1
steps = 20
each.seed = {{ from = 0, to = {last}, step = 1 }}
"""


@dataclass(frozen=True)
class Shared:
    """What several drivers came to. killed: records stored when each of them was killed    records: in the end, each once"""

    date: str
    drivers: int
    cells: int
    killed: str
    records: int
    lost: int
    answers_equal: bool
    seconds: float


def share(folder: Path, drivers: int, cells: int, draws: random.Random) -> Shared:
    """Carry out a sweep of so many cells by so many drivers, and hold the result to the same sweep by one, undisturbed."""
    file = folder / "many.toml"
    file.write_text(CELLS.format(last=cells - 1))
    calm_url = f"sqlite:///{folder}/calm/s.db"
    calm = finish(begin(calm_url, file, 2))
    with running_cluster() as cluster:
        cluster.make_schema("s")
        url, began = cluster.url("s"), time.monotonic()
        starts = {number: begin(url, file, 1) for number in range(drivers)}
        killed: list[int] = []
        for number, share in enumerate(sorted(draws.uniform(0.02, 0.8) for _ in range(drivers))):
            while count(url) < share * cells and starts[number].poll() is None:
                time.sleep(0.05)
            killed.append(count(url))
            if strike(starts[number], "all"):
                starts[number].communicate()
                assert starts[number].returncode == -signal.SIGKILL
                starts[number] = begin(url, file, 1)
        said = [finish(process) for process in starts.values()]
        seconds, found = round(time.monotonic() - began, 1), lines(url)  # fails where a member is there twice
    wanted = bits_of(lines(calm_url))
    return Shared(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        drivers=drivers,
        cells=cells,
        killed=" ".join(map(str, killed)),
        records=len(found),
        lost=len(wanted.keys() - found.keys()),
        answers_equal=all(answer == calm for answer in said) and bits_of(found) == wanted,
        seconds=seconds,
    )
