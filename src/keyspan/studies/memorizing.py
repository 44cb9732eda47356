"""Layers that are computed: does theorem 1 hold to the last digit, and what does rounding leave of it?

    python -m keyspan.studies.memorizing --out FOLDER

instances.csv   200 random sizes: the explicit layer at T = H (min(n, d_h) - 1) + 1 in float64, its rank and largest error;
                where the context is shared, random attention at the cap H (n - 1) + 1 and at one example more
precision.csv   how many real values are held, all of them right within 0.005, when tokens, weights, attention, features and
                readout are all kept in float64, float32 or bf16 (sums are exact): explicit and random layers, by the width d_h
                and the spread of random logits
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.errors import KeyspanError
from keyspan.evidence.intervals import student
from keyspan.problems import NoContents
from keyspan.problems.contexts import TOLERANCE, Labels
from keyspan.seeds import Stream
from keyspan.theory.memorization import feature_cap, theorem
from keyspan.theory.memorizing import Attention, explicit_attention, memorize, random_attention

Float = NDArray[np.float64]
Row = dict[str, Any]
INSTANCES = 200
SPREAD = 3.0
SIZES = ((24, 8, 4), (32, 16, 8))  # d, n, H
SPREADS = (0.3, 1.0, 3.0, 10.0, 30.0)
PRECISIONS = ("fp64", "fp32", "bf16")
CUTS = (1e-14, 1e-10, 1e-7, 1e-5, 1e-3, 1e-2)  # singular values below this share of the largest are left out; the best counts
SEEDS = 3


# ----------------------------------------------------------------------------------------------------- to the last digit


def instance_row(number: int) -> Row:
    """One random size: d from 8 to 48, n from 2 to d, H from 1 to 8, d_h from 1 to n + 4, one context for all or not."""
    stream = Stream("memorizing", "sizes", number)
    d_model = 8 + int(stream.integers(41, 1)[0])
    context, heads = 2 + int(stream.integers(d_model - 1, 1)[0]), 1 + int(stream.integers(8, 1)[0])
    d_head, shared = 1 + int(stream.integers(context + 4, 1)[0]), bool(stream.integers(2, 1)[0])
    count, cap = theorem(heads, context, d_head), feature_cap(heads, context, d_model)
    most = max(count, cap + 1 if shared else 0)
    queries, labels = stream.normal((most, d_model)), stream.normal((most, 1))
    contexts = stream.normal((1 if shared else count, context, d_model))
    attention = explicit_attention(stream, queries[:count], contexts, heads, d_head)
    made = memorize(attention, queries[:count], contexts, labels[:count])
    row: Row = {"instance": number, "d_model": d_model, "context": context, "heads": heads, "d_head": d_head}
    row |= {"contexts": "fixed" if shared else "random", "examples": count, "rank": made.rank, "error": made.error}
    row |= {"condition": made.condition, "cap": cap if shared else None}
    if shared:
        chosen = random_attention(stream, queries, contexts, heads, context, SPREAD)
        at, beyond = (memorize(chosen, queries[:n], contexts, labels[:n], tolerance=1e-12) for n in (cap, cap + 1))
        row |= {"random_rank": beyond.rank, "random_error": at.error, "one_more": beyond.error}
    return row


# ------------------------------------------------------------------------------------------------------------- precision


def rounded(x: Float, precision: str) -> Float:
    """Numbers as they are kept: float64, float32, or bf16 (rounded to nearest, ties to even)."""
    if precision == "fp64":
        return x
    single = x.astype(np.float32)
    if precision == "fp32":
        return np.asarray(single, dtype=np.float64)
    bits = single.view(np.uint32)
    kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.asarray(kept.view(np.float32), dtype=np.float64)


def features(attention: Attention, queries: Float, contexts: Float, precision: str) -> Float:
    """Z with everything kept at a precision. returns: (T, H d)"""
    kept = Attention(rounded(attention.w_query, precision), rounded(attention.w_key, precision))
    tokens = rounded(contexts, precision)
    weights = rounded(kept.weights(rounded(queries, precision), tokens), precision)
    return rounded((weights @ tokens).reshape(len(queries), -1), precision)


def holds(z: Float, labels: Float, precision: str) -> bool:
    """Whether some least-squares readout, kept at the precision, gives every value within the tolerance."""
    left, values, right = np.linalg.svd(z, full_matrices=False)
    turned = left.T @ labels
    for cut in CUTS:
        keep = values > cut * values[0]
        readout = rounded(right[keep].T @ (turned[keep] / values[keep]), precision)
        if np.abs(z @ readout - labels).max() <= TOLERANCE:
            return True
    return False


def held(make: Callable[[int], Attention], most: int, queries: Float, contexts: Float, labels: Float, precision: str) -> int:
    """The largest T that is held, by bisection. make: attention for the first T examples"""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        here = contexts if len(contexts) == 1 else contexts[:middle]
        z = features(make(middle), queries[:middle], here, precision)
        low, high = (middle, high) if holds(z, labels[:middle], precision) else (low, middle - 1)
    return low


@dataclass(frozen=True)
class Trial:
    """A kind of layer at a size. spread: of random logits, None for the explicit layer"""

    d_model: int
    context: int
    heads: int
    d_head: int
    contexts: str
    spread: float | None
    precision: str

    def held(self, seed: int) -> int:
        """How many values one instance's layer holds."""
        cap = feature_cap(self.heads, self.context, self.d_model, self.contexts)
        most = theorem(self.heads, self.context, self.d_head) if self.spread is None else cap + 8
        problem = Labels(context=self.context, d_model=self.d_model, contexts=self.contexts, task="values", examples=most)
        instance = problem.instance(f"memorizing {seed}", NoContents())
        queries, labels = instance.queries.astype(np.float64), instance.labels.astype(np.float64)
        contexts = instance.context(slice(None)).astype(np.float64)

        def make(count: int) -> Attention:
            stream = Stream(f"memorizing {seed}", "weights")
            here = contexts if len(contexts) == 1 else contexts[:count]
            if self.spread is None:
                return explicit_attention(stream, queries[:count], here, self.heads, self.d_head)
            return random_attention(stream, queries, contexts, self.heads, self.d_head, self.spread)

        return held(make, most, queries, contexts, labels, self.precision)

    def row(self) -> Row:
        """Mean over seeds, with Student's interval."""
        values = [self.held(seed) for seed in range(SEEDS)]
        mean, low, high = student([float(v) for v in values])
        about: Row = {"layer": "random" if self.spread else "explicit", "d_model": self.d_model, "context": self.context}
        about |= {"heads": self.heads, "d_head": self.d_head, "contexts": self.contexts, "spread": self.spread}
        known = {"theorem": theorem(self.heads, self.context, self.d_head)}
        known["cap"] = feature_cap(self.heads, self.context, self.d_model, self.contexts)
        return about | {"precision": self.precision, **known, "seeds": SEEDS, "held": mean, "low": low, "high": high}


def trials() -> Iterator[Trial]:
    """All of them, in order: one context for all at every spread, contexts that differ at the best one."""
    for d_model, context, heads in SIZES:
        widths = sorted({1, 2, 4, context, d_model})
        for d_head in widths:
            for precision in PRECISIONS:
                for spread in (None, *SPREADS):
                    yield Trial(d_model, context, heads, d_head, "fixed", spread, precision)
                yield Trial(d_model, context, heads, d_head, "random", SPREAD, precision)


def rows_of(name: str) -> Iterator[Callable[[], Row]]:
    """The rows of a file, each to be computed."""
    if name == "instances":
        yield from (lambda number=number: instance_row(number) for number in range(INSTANCES))
    else:
        yield from (trial.row for trial in trials())


def extend(path: Path, name: str) -> None:
    """Add the rows that a file does not have yet."""
    there = 0
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            there = len(list(csv.DictReader(file)))
    columns = COLUMNS[name]
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if not there:
            writer.writeheader()
        for make in list(rows_of(name))[there:]:
            writer.writerow(make())
            file.flush()


COLUMNS: Mapping[str, tuple[str, ...]] = {
    "instances": (
        *("instance", "d_model", "context", "heads", "d_head", "contexts", "examples", "rank", "error", "condition"),
        *("cap", "random_rank", "random_error", "one_more"),
    ),
    "precision": (
        *("layer", "d_model", "context", "heads", "d_head", "contexts", "spread", "precision", "theorem", "cap"),
        *("seeds", "held", "low", "high"),
    ),
}


def summary(rows: Sequence[Mapping[str, str]]) -> str:
    """What the instances come to."""
    shared = [row for row in rows if row["cap"]]
    exact = sum(int(row["rank"]) == int(row["examples"]) for row in rows)
    full = sum(int(row["random_rank"]) == int(row["cap"]) for row in shared)
    return (
        f"{exact} of {len(rows)} explicit layers have rank T, largest error {max(float(row['error']) for row in rows):.1e}; "
        f"with one context for all {full} of {len(shared)} random layers have the rank of the cap, their least error for one "
        f"example more is {min(float(row['one_more']) for row in shared):.1e}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `python -m keyspan.studies.memorizing`."""
    parser = argparse.ArgumentParser(prog="python -m keyspan.studies.memorizing", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder of instances.csv and precision.csv; rows are kept")
    parser.add_argument("--only", choices=tuple(COLUMNS), help="one of the two")
    args = parser.parse_args(argv)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        for name in COLUMNS:
            if args.only in (None, name):
                extend(args.out / f"{name}.csv", name)
        if args.only != "precision":
            with (args.out / "instances.csv").open(encoding="utf-8", newline="") as file:
                print(summary(list(csv.DictReader(file))))
    except KeyspanError as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
