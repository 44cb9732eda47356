"""`python -m keyspan.lab.worker`: members in (JSONL), records out (JSONL), for machines without a store.

    python -m keyspan.lab.worker members.jsonl --out DIR --minutes 20

Each line of the input is a run, or a question (then its whole search is carried out here). Each finished member is one
line in DIR/records.jsonl, written whole and synced. Unfinished members leave checkpoints in DIR/checkpoints, and the
same command goes on. It stops by itself in time. Needs torch and NumPy only.

With `--serve` it is the other end of the local runner: shards arrive on standard input, records leave on standard output.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TextIO

import torch

import keyspan
from keyspan.errors import BadInput, KeyspanError
from keyspan.evidence.record import Record, make_record
from keyspan.files import safetensors
from keyspan.files.contents import Contents
from keyspan.files.paths import check_writable
from keyspan.files.weights import ChannelWeights, write_weights
from keyspan.lab.agenda import Agenda
from keyspan.lab.checkpoints import Checkpoints
from keyspan.lab.fleet import Control, Finished, sail
from keyspan.lab.typed import plain
from keyspan.problems import contexts, dichotomies, pairs, relations, sequences, typed
from keyspan.problems.typed import TypedChannel
from keyspan.specs import Layer, Question, Run, canonical, decode
from keyspan.verdict import Verdict

FAMILIES = (relations, dichotomies, contexts, pairs, typed, sequences)  # imported so that their specs can be decoded


def pick_device(name: str) -> str:
    """auto -> cuda where there is one, else cpu."""
    if name not in ("auto", "cpu", "cuda"):
        raise BadInput(f"`--device` must be auto|cpu|cuda, but got {name!r}. Choose one.")
    if name == "cuda" and not torch.cuda.is_available():
        raise BadInput("`--device cuda` needs a CUDA device, but torch sees none. Use --device cpu.")
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def record_of(finished: Finished, contents: Contents) -> Record:
    """A finished member as a record; where its graph or rows came from a file, with the path of that."""
    facts = dict(finished.facts)
    for part in ("graph", "embeddings", "tokens"):
        sha = getattr(getattr(finished.run.problem, part, None), "content", None)
        if sha and (path := contents.source(sha)):
            facts[f"{part}_file"] = path
    return make_record(finished.run, finished.verdict, **facts)


class Stopper:
    """True once a signal came, the time is up, or the other end is gone."""

    def __init__(self, minutes: float | None) -> None:
        self.until = None if minutes is None else time.monotonic() + 60.0 * minutes
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, *_: Any) -> None:
        self.asked = True

    def __call__(self) -> bool:
        return self.asked or (self.until is not None and time.monotonic() > self.until)


# ------------------------------------------------------------------------------------------------------ files


def read_work(path: Path) -> list[Run | Question]:
    """Runs and questions, one a line."""
    if not path.is_file():
        raise BadInput(f"The members must be a JSONL file, but got {path}. Write one with --hand-out.")
    out: list[Run | Question] = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            spec = decode(json.loads(line))
        except RecursionError:
            raise BadInput(
                f"Each line must be a run or a question, but {path}:{number} is nested too deep. Write it again."
            ) from None
        except ValueError as error:  # BadInput is one, and so is a byte that is no UTF-8
            why = str(error) if isinstance(error, BadInput) else f"{error}. Write it again with --hand-out."
            raise BadInput(f"Each line must be a run or a question, but {path}:{number} is not: {why}") from None
        if not isinstance(spec, Run | Question):
            raise BadInput(f"Each line must be a run or a question, but {path}:{number} is a {spec.family}.")
        out.append(spec)
    return out


def read_done(path: Path) -> dict[str, Verdict]:
    """Verdicts of the records that are there already; a line torn by a kill is cut off, its member trains again."""
    done: dict[str, Verdict] = {}
    if not path.exists():
        return done
    raw = path.read_bytes()
    whole = raw[: raw.rfind(b"\n") + 1]
    if len(whole) < len(raw):
        with open(path, "r+b") as handle:
            handle.truncate(len(whole))
    for number, line in enumerate(whole.split(b"\n"), 1):
        if line.strip():
            try:
                record = Record.from_line(line.decode())
            except ValueError as error:
                raise BadInput(f"{path}:{number}: {error} Or choose another --out.") from None
            done[record.run_id] = record.verdict
    return done


def work(args: argparse.Namespace) -> int:
    """Carry out a file of members. Returns the exit code: 0 when nothing is left, 3 when time or a signal stopped it."""
    source, out = Path(args.members), Path(args.out)
    for flag, folder in (("--out", out), ("--weights", Path(args.weights) if args.weights else out)):
        if folder.exists() and not folder.is_dir():
            raise BadInput(f"`{flag}` must be a folder, but got the file {folder}. Name a folder; it is made if missing.")
    minutes = args.minutes
    if minutes is not None and not 0 <= minutes < math.inf:
        raise BadInput(f"`--minutes >= 0` must hold, but got {minutes}. Leave it out to go on to the end.")
    wanted = read_work(source)
    if args.weights:
        check_writable(args.weights, "--weights")
    out.mkdir(parents=True, exist_ok=True)
    files = Path(args.files) if args.files else source.parent / "files"
    stop = Stopper(args.minutes)
    done = read_done(out / "records.jsonl")
    contents = Contents(files if files.is_dir() else None)
    control = Control(
        contents=contents,
        checkpoints=Checkpoints(out / "checkpoints"),
        stop=stop,
        notify=lambda ids, step, steps: print(f"{len(ids)} members at step {step} of {steps}", file=sys.stderr),
    )
    device = pick_device(args.device)
    agenda = Agenda([item for item in wanted if isinstance(item, Question)])
    for run_id, verdict in done.items():
        agenda.hear(run_id, verdict)
    begin = {run.run_id: run for run in wanted if isinstance(run, Run) and run.run_id not in done}
    with open(out / "records.jsonl", "a", encoding="utf-8") as sink:
        for finished in sail(list(begin.values()), device, control, more=agenda.wanted):
            record = record_of(finished, contents)
            if record.run_id in done:  # a question wanted what was in the file as well
                continue
            _keep_weights(finished, Path(args.weights) if args.weights else None)  # a record says that all is done
            _write_line(sink, record.to_line())
            done[record.run_id] = record.verdict
            begin.pop(record.run_id, None)
            agenda.hear(record.run_id, record.verdict)
            assert control.checkpoints is not None
            control.checkpoints.drop(record.run_id)
    left = len(begin) + agenda.left
    print(f"{len(done)} records, {left} members left", file=sys.stderr)
    return 3 if left else 0


def _write_line(sink: TextIO, line: str) -> None:
    sink.write(line + "\n")
    sink.flush()
    os.fsync(sink.fileno())


def _keep_weights(finished: Finished, folder: Path | None) -> None:
    if folder is None or finished.answers is None or "w_query" not in finished.answers:
        return
    folder.mkdir(parents=True, exist_ok=True)
    about = {"run": canonical(finished.run.to_json()), "keyspan": keyspan.__version__}
    if isinstance(finished.run.instrument, Layer):
        safetensors.write(folder / f"{finished.run.run_id}.safetensors", dict(finished.answers), about)
        return
    for suffix, instance, w_query, w_key, bias in _channels(finished):
        kept = ChannelWeights(
            w_query=w_query,
            w_key=w_key,
            bias=bias,
            embeddings=instance.embeddings,
            edges=instance.edges,
            metadata=about,
        )
        write_weights(folder / f"{finished.run.run_id}{suffix}.safetensors", kept)


def _channels(finished: Finished) -> Iterator[tuple[str, Any, Any, Any, float]]:
    """The plain channels that a member's weights are: itself, or one for every type. returns: end of the name, and each"""
    answers, instrument = finished.answers, finished.run.instrument
    assert answers is not None
    if not isinstance(instrument, TypedChannel):
        yield "", finished.instance, answers["w_query"], answers["w_key"], float(answers["bias"])
        return
    for t in range(len(finished.instance.edges)):
        alone = plain(finished.instance, instrument, answers["w_query"], answers["w_key"], answers["gates"], t)
        yield f"-{t}", *alone, 0.0


# ------------------------------------------------------------------------------------------------------ serving


def serve(args: argparse.Namespace) -> int:
    """Shards in on standard input, one JSON line each; records, progress and errors out on standard output."""
    stop = Stopper(None)
    lines, say = sys.stdin, _speaker(sys.stdout, stop)
    sys.stdout = sys.stderr  # whatever prints must not break the protocol

    def tell(ids: list[str], step: int, steps: int) -> None:
        say({"progress": {"run_ids": ids, "step": step, "steps": steps}})

    contents = Contents(Path(args.files) if args.files else None)
    kept = Checkpoints(Path(args.checkpoints)) if args.checkpoints else None
    control = Control(contents=contents, checkpoints=kept, stop=stop, notify=tell)
    inbox = Inbox()
    threading.Thread(target=inbox.read, args=(lines,), daemon=True).start()
    return serve_shards(inbox, say, args.device, control, contents, Path(args.weights) if args.weights else None)


def serve_shards(
    inbox: Inbox,
    say: Callable[[dict[str, Any]], bool],
    device: str,
    control: Control,
    contents: Contents,
    weights: Path | None,
) -> int:
    """Train what arrives and tell of it, until nothing more can arrive or somebody says stop. returns: the exit code

    say: passes a message on, and says whether anybody got it. What is `fatal` would befall every other worker, too.
    """
    try:
        device = pick_device(device)
    except BadInput as error:
        say({"error": str(error), "fatal": True})
        return error.exit_code
    say({"ready": device})
    while True:
        try:
            runs = inbox.wait()
            if runs is None:
                return 0
            for finished in sail(runs, device, control, more=inbox.more):
                _keep_weights(finished, weights)  # a record says that all is done
                said = say({"record": record_of(finished, contents).to_json()})
                if said and control.checkpoints:  # a record that reached nobody is made again from its checkpoint
                    control.checkpoints.drop(finished.run.run_id)
        except KeyspanError as error:
            say({"error": str(error)})
        except OSError as error:
            fix = "Check the path, the rights and the space."
            say({"error": f"The disk must allow it, but {error}. {fix}", "fatal": True})
        if control.stop():
            return 0
        say({"idle": True})


class Inbox:
    """Shards as they arrive, put in by another thread, so that a fleet at sea can take on more."""

    def __init__(self) -> None:
        self._arrived: queue.SimpleQueue[list[Run] | KeyspanError | None] = queue.SimpleQueue()
        self._over = False

    def read(self, lines: Iterable[str]) -> None:
        """Shards, a line each; when there are no more, it is over."""
        for line in lines:
            self.put(line)
        self._arrived.put(None)

    def put(self, line: str) -> None:
        """A shard, as a line of JSON."""
        try:
            self._arrived.put([Run.from_json(data) for data in json.loads(line)["runs"]])
        except KeyspanError as error:
            self._arrived.put(error)
        except (ValueError, KeyError, TypeError) as error:
            self._arrived.put(BadInput(f"A shard must be a line of JSON with `runs`, but got {error!r}. Send one."))

    def _next(self) -> list[Run]:
        found = self._arrived.get()
        if isinstance(found, KeyspanError):
            raise found
        self._over = self._over or found is None
        return found or []

    def wait(self) -> list[Run] | None:
        """The next shard, when it comes; None at the end of the input."""
        runs = [] if self._over else self._next()
        return None if self._over else runs

    def more(self) -> list[Run]:
        """What has arrived since."""
        runs: list[Run] = []
        while not self._over and not self._arrived.empty():
            runs += self._next()
        return runs


def _speaker(out: TextIO, stop: Stopper) -> Callable[[dict[str, Any]], bool]:
    """Write one JSON line; when nobody listens any more, stop. The function made says whether it was written."""

    def say(message: dict[str, Any]) -> bool:
        try:
            out.write(json.dumps(message) + "\n")
            out.flush()
        except (BrokenPipeError, ValueError):
            stop.asked = True
            return False
        return True

    return say


class _Parser(argparse.ArgumentParser):
    """A usage error is one line, as every other."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"keyspan: {message[:1].upper()}{message[1:]}. See python -m keyspan.lab.worker --help.\n")


def main(argv: list[str] | None = None) -> int:
    """Entry point of `python -m keyspan.lab.worker`."""
    parser = _Parser(prog="python -m keyspan.lab.worker", description=__doc__.splitlines()[0])
    parser.add_argument("members", nargs="?", help="JSONL of runs and questions")
    parser.add_argument("--out", default="worker-out", help="folder for records.jsonl and checkpoints")
    parser.add_argument("--minutes", type=float, default=None, help="stop by itself after this many minutes")
    parser.add_argument("--device", default="auto", help="auto|cpu|cuda")
    parser.add_argument("--files", default=None, help="folder with the content of graph and embedding files")
    parser.add_argument("--weights", default=None, help="keep trained weights here, one safetensors file a member")
    parser.add_argument("--checkpoints", default=None, help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    try:
        if args.serve:
            return serve(args)
        if args.members is None:
            raise BadInput("A file of members must be given, but got none. Write one with --hand-out.")
        return work(args)
    except KeyspanError as error:
        print(f"keyspan: {' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"keyspan: The disk must allow it, but {error}. Check the path, the rights and the space.", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
