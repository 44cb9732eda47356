"""Damaged inputs for the readers: a small mutator of our own for `make test`, atheris (coverage-guided) at full size."""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

LARGEST = 4096  # bytes of an input
HANG = 20  # seconds after which an input counts as a hang
ROOM = 1024  # MiB that a process may take, with its imports (about 150) and the fuzzer's own corpus
WATCHED = ("keyspan.files", "keyspan.specs", "keyspan.evidence.record", "keyspan.runners.grids", "keyspan.runners.conditions",
           "keyspan.advice.checkpoints", "keyspan.problems")  # fmt: skip


def damaged(whole: bytes, words: tuple[bytes, ...], draws: random.Random) -> bytes:
    """The input with bytes changed, pieces taken out, put in or repeated, its end cut, or a word of its format put in."""
    data = bytearray(whole)
    for _ in range(draws.randint(1, 4)):
        at, length = draws.randint(0, max(0, len(data) - 1)), draws.randint(1, 16)
        match draws.choice(("change", "change", "flip", "cut", "insert", "repeat", "word", "word", "end")):
            case "change":
                data[at : at + length] = draws.randbytes(length)
            case "flip":
                data[at : at + 1] = bytes((data[at] ^ 1 << draws.randint(0, 7),)) if data else b""
            case "cut":
                del data[at : at + length]
            case "insert":
                data[at:at] = draws.randbytes(length)
            case "repeat":
                data[at:at] = data[at : at + length] * draws.choice((1, 2, 50))
            case "word" if words:
                data[at : at + draws.choice((0, 1, length))] = draws.choice(words)
            case _:
                del data[at:]
    return bytes(data[:LARGEST])


def inputs(whole: tuple[bytes, ...], words: tuple[bytes, ...], count: int, seed: int) -> Iterator[bytes]:
    """So many damaged inputs, the same for the same seed."""
    draws = random.Random(seed)
    for _ in range(count):
        yield damaged(draws.choice(whole), words, draws)


@dataclass(frozen=True)
class Fuzzed:
    """What a target came to. features: of the code, as the fuzzer counts them    outcome: ok, or what came out instead"""

    date: str
    target: str
    inputs: int
    seconds: float
    features: int
    slowest_s: int
    peak_mib: int
    outcome: str


def fuzz(target: str, count: int, seed: int) -> Fuzzed:
    """Put so many inputs to a target, guided by coverage, in a process of its own."""
    command = [sys.executable, "-m", "tests.faults.fuzz", target, str(count), str(seed)]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    seconds = round(time.monotonic() - began, 1)
    said = {name: int(value) for name, value in re.findall(r"stat::(\w+):\s+(\d+)", done.stderr)}
    features = max([0, *map(int, re.findall(r" ft: (\d+)", done.stderr))])
    number = said.get("number_of_executed_units", 0)
    outcome = "ok" if done.returncode == 0 and number >= count else _why(done.stderr, done.returncode)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    slow, peak = said.get("slowest_unit_time_sec", 0), said.get("peak_rss_mb", 0)
    return Fuzzed(now, target, number, seconds, features, slow, peak, outcome)


def _why(text: str, code: int) -> str:
    found = re.findall(r"^(?:=== Uncaught Python exception: ===|.*(?:ERROR: libFuzzer|Error\b).*)$", text, re.MULTILINE)
    return f"exit {code}: {' | '.join(found)[:300]} {text[-300:]!r}"


def main() -> None:
    """One target under atheris, in this process: TARGET COUNT SEED."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.fuzz")
    parser.add_argument("target")
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int)
    args = parser.parse_args()
    import atheris

    with atheris.instrument_imports(include=list(WATCHED)):
        from tests.faults.targets import TARGETS
    target = TARGETS[args.target]
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None, prefix="keyspan-fuzz-") as name:
        folder = Path(name)
        (folder / "corpus").mkdir()
        for number, whole in enumerate(target.whole):
            (folder / "corpus" / str(number)).write_bytes(whole[:LARGEST])
        words = ['"' + "".join(f"\\x{byte:02x}" for byte in word) + '"' for word in target.words]
        (folder / "words").write_text("\n".join(words) + "\n")
        (folder / "work").mkdir()
        consume = target.prepare(folder / "work")
        options = [f"-runs={args.count}", f"-seed={args.seed}", f"-max_len={LARGEST}", f"-timeout={HANG}",
                   f"-rss_limit_mb={ROOM}", "-print_final_stats=1", f"-dict={folder / 'words'}",
                   f"-artifact_prefix={tempfile.gettempdir()}/keyspan-fuzz-", str(folder / "corpus")]  # fmt: skip
        atheris.Setup(["fuzz", *options], consume)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
