"""What verbs that train share: open the store, answer questions with progress, estimate, or hand out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from keyspan.cli import show
from keyspan.cli.options import current
from keyspan.cli.progress import Bars
from keyspan.errors import BadInput, require
from keyspan.evidence.record import head
from keyspan.evidence.store import open_store
from keyspan.files.contents import Contents
from keyspan.runners.driver import Outcome
from keyspan.runners.estimate import estimate
from keyspan.runners.lab import Lab
from keyspan.specs import Question, canonical


def lab(jobs: int | None = None, weights: Path | None = None, watcher: Bars | None = None, **more: Any) -> Lab:
    """The laboratory that the global options name."""
    return Lab(store=current.store, device=current.device, jobs=jobs, weights=weights, watcher=watcher, **more)


def contents(hand_out: Path | None = None) -> Contents:
    """Where the content of files is kept: beside the store, beside what is handed out, or nowhere in a dry run."""
    if hand_out is not None:
        return Contents(hand_out.parent / "files")
    return Contents(None) if current.dry_run else lab().contents


def bars() -> Bars:
    """Progress on a terminal, for who asks more than once."""
    return Bars()


def ask(questions: list[Question], jobs: int | None, weights: Path | None = None) -> list[Outcome]:
    """Answer questions with progress on a terminal."""
    with Bars() as bars:
        return lab(jobs, weights, bars).answer(questions)


def check_weights(weights: Path | None) -> None:
    """Refuse a folder for weights that is none, before anything is trained."""
    if weights is not None and weights.exists() and not weights.is_dir():
        raise BadInput(f"`--weights` must be a folder, but got the file {weights}. Name a folder; it is made if missing.")


def dry_run(questions: list[Question], jobs: int | None) -> int:
    """Print what would be trained."""
    require(jobs is None or jobs >= 1, "`--jobs >= 1`", jobs, "Leave it out for one a core, or one for a GPU.")
    with open_store(current.store, read_only=True, missing_ok=True) as store:
        data = estimate(questions, store, jobs, current.device).to_dict()
    data = head() | data | {"dry_run": True}
    if current.json:
        show.print_json(data)
        return 0
    out = show.console()
    out.print(f"would train {data['members']} members ({data['stored']} are stored), at most {data['steps']} steps in all")
    out.print(f"{data['flops']:.3g} FLOP, {data['memory_bytes'] / 2**20:.1f} MiB for the largest member")
    out.print(f"about {data['seconds']:.0f} s on {data['cores']} core{'s' if data['cores'] > 1 else ''}")
    return 0


def hand_out(questions: list[Question], path: Path) -> int:
    """Write questions for `python -m keyspan.lab.worker`, which carries out their whole search elsewhere."""
    if path.is_dir():
        raise BadInput(f"`--hand-out` must be a file, but got the folder {path}. Name a file in it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(canonical(question.to_json()) + "\n" for question in questions))
    if current.json:
        show.print_json(head() | {"path": str(path)})
    show.note(f"wrote {path}. Run: python -m keyspan.lab.worker {path} --out DIR; then: keyspan runs import DIR")
    return 0
