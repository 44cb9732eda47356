"""The softmax guarantee put to the test: explicit channels, the inverse temperature that theory names, contexts, the judge.

    python -m keyspan.studies.guarantee --out guarantee.csv

A channel is constructed (`runners.construct`), its gap is proven (`lab.proof`), and `theory.softmax` says which inverse
temperature suffices for contexts of L items and an error eps. Then what every item receives is computed

    per head     a softmax in each head with a null key at the threshold halfway, values summed: attention on others, plus what
                 the target lacks of 1 (`lab.routed.errors_in`); of an item without a target here: all that is not on null keys
    aggregate    one softmax over the largest scores: what the target lacks of 1

in random contexts and in adversarial ones: for every item the L - 2 others that its heads score highest, with its target and
without. The guarantee holds where the largest error is at most eps. At half of that temperature it need not.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyspan.attention import reference
from keyspan.attention.shapes import Routed
from keyspan.errors import KeyspanError, require
from keyspan.lab.channels import prove_channel
from keyspan.lab.routed import errors_in
from keyspan.problems import NoContents
from keyspan.problems.in_context import Contexts, InContext, InContextInstance
from keyspan.problems.relations import Relations
from keyspan.runners.construct import carry_out, run_of
from keyspan.theory.constructions import plan
from keyspan.theory.softmax import aggregate_beta, routed_beta

Float = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Channels of one construction. method, heads, d_key: of it    length: L    eps: the error that is allowed"""

    method: str
    heads: int
    d_key: int
    items: int = 64
    d_model: int = 32
    length: int = 32
    eps: float = 0.001


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One channel at one kind of softmax. gap: proven    beta: the inverse temperature that suffices

    random, worst: largest error at beta in random and in adversarial contexts    half_random, half_worst: at beta / 2
    contexts: random ones tried
    """

    kind: str
    method: str
    replicate: int
    heads: int
    d_key: int
    items: int
    d_model: int
    length: int
    eps: float
    gap: float
    beta: float
    contexts: int
    random: float
    worst: float
    half_random: float
    half_worst: float

    @property
    def suffices(self) -> bool:
        """Whether no error exceeded eps."""
        return max(self.random, self.worst) <= self.eps

    @property
    def half_fails(self) -> bool:
        """Whether half of the temperature fails in at least one context."""
        return max(self.half_random, self.half_worst) > self.eps

    def to_dict(self) -> dict[str, Any]:
        """As a row."""
        return asdict(self) | {"suffices": self.suffices, "half_fails": self.half_fails}


CASES = (  # exact on the first ten instances each
    Case(method="trivial", heads=64, d_key=1),
    Case(method="pinv+code", heads=22, d_key=5),
    Case(method="ridge+code", heads=16, d_key=4),
    Case(method="quiet", heads=16, d_key=4),
    Case(method="repair", heads=8, d_key=6),
)
REPLICATES = 10


def carry_out_all(cases: Sequence[Case] = CASES, replicates: int = REPLICATES) -> Iterator[Trial]:
    """Every case on so many instances, with both kinds of softmax. A channel that does not separate is left out."""
    for case in cases:
        for replicate in range(replicates):
            yield from _channel(case, replicate)


def _channel(case: Case, replicate: int) -> Iterator[Trial]:
    problem = InContext(relations=Relations(items=case.items, d_model=case.d_model), length=case.length)
    run = run_of(problem.relations, replicate, plan(case.method), case.heads, case.d_key)
    built = carry_out(run, NoContents()).construction
    instance = InContextInstance(run.problem_id, case.length, problem.relations.instance(run.problem_id, NoContents()))
    proof = prove_channel(instance.relations, built.w_query, built.w_key, 0.0)
    if proof.max_nonedge is None or proof.separated is not True:
        return
    low, high = proof.min_edge.at_least, proof.max_nonedge.at_most
    gap, tau = low - high, (low + high) / 2
    chosen = instance.judged(), adversarial(instance, built.w_query, built.w_key)
    betas = {
        "per head": routed_beta(gap / 2, case.length, case.eps, case.heads),
        "aggregate": aggregate_beta(gap, case.length, case.eps),
    }
    for kind, beta in betas.items():
        one, two, three, four = (
            _largest(kind, instance, built.w_query, built.w_key, tau, b, contexts)
            for b in (beta, beta / 2)
            for contexts in chosen
        )
        yield Trial(
            **{**asdict(case), "kind": kind, "replicate": replicate, "gap": gap, "beta": beta},
            contexts=len(chosen[0].items),
            random=one,
            worst=two,
            half_random=three,
            half_worst=four,
        )


def adversarial(instance: InContextInstance, w_query: Float, w_key: Float) -> Contexts:
    """For every item the others that its heads score highest, with its target and without. returns: (2 items, L) each

    Of one softmax no context of L items is worse: what the target lacks grows with the score of every other item.
    """
    x, targets, length = instance.relations.embeddings, instance.targets, instance.length
    best = reference.aggregate(reference.scores(x, w_query, w_key))
    items = np.zeros((2 * len(x), length), dtype=np.int64)
    there, places = np.zeros(items.shape, dtype=bool), np.full(items.shape, -1)
    for i, target in enumerate(targets.tolist()):
        others = [j for j in np.argsort(-best[i], kind="stable").tolist() if j not in (i, target)]
        first = [i] if target in (i, -1) else [i, target]
        for row, chosen in ((2 * i, [i, *others]), (2 * i + 1, [*first, *others])):
            chosen = chosen[:length]
            items[row, : len(chosen)], there[row, : len(chosen)] = chosen, True
            places[row, 0] = chosen.index(target) if target in chosen else -1
    return Contexts(items, there, places)


def _largest(
    kind: str, instance: InContextInstance, w_query: Float, w_key: Float, tau: float, beta: float, chosen: Contexts
) -> float:
    """The largest error over the items that ask in these contexts. (An adversarial context is against its first item.)"""
    asks = chosen.open if len(chosen.items) != 2 * instance.relations.items else _first(chosen)
    if kind == "per head":
        heads, _, d_key = w_query.shape
        layer = Routed(heads=heads, d_key=d_key, temperature=1.0 / beta)
        weights = {"w_query": w_query, "w_key": w_key, "sink": np.full(heads, beta * tau)}
        return float(errors_in(instance, layer, weights, chosen)[asks].max())
    best = beta * reference.aggregate(reference.scores(instance.relations.embeddings, w_query, w_key))
    logits = np.where(chosen.open[:, None, :], best[chosen.items[:, :, None], chosen.items[:, None, :]], -np.inf)
    powers = np.exp(logits - logits.max(axis=2, keepdims=True))
    attention = powers / powers.sum(axis=2, keepdims=True)
    given = np.take_along_axis(attention, np.maximum(chosen.places, 0)[..., None], axis=2)[..., 0]
    return float((1.0 - given)[asks & (chosen.places >= 0)].max(initial=0.0))


def _first(chosen: Contexts) -> NDArray[np.bool_]:
    out = np.zeros_like(chosen.open)
    out[:, 0] = True
    return out


def markdown(rows: Iterable[Trial]) -> str:
    """The table of docs/model.md: a line for every construction and kind of softmax."""
    head = [
        "construction",
        "softmax",
        "channels",
        "smallest gap",
        "suffices",
        "half fails",
        "largest error, over eps",
        "at half",
    ]
    lines = [head, ["---"] * len(head)]
    found: dict[tuple[str, str], list[Trial]] = {}
    for row in rows:
        found.setdefault((f"{row.method}, {row.heads} x {row.d_key}", row.kind), []).append(row)
    for (name, kind), some in found.items():
        largest, half = (
            max(max(getattr(r, f"{k}random"), getattr(r, f"{k}worst")) / r.eps for r in some) for k in ("", "half_")
        )
        counts = [str(len(some)), f"{min(r.gap for r in some):.4f}"]
        counts += [str(sum(r.suffices for r in some)), str(sum(r.half_fails for r in some))]
        lines.append([name, kind, *counts, f"{largest:.4f}", f"{half:.2f}"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `python -m keyspan.studies.guarantee`."""
    parser = argparse.ArgumentParser(prog="python -m keyspan.studies.guarantee", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=None, help="write the rows to this CSV file")
    parser.add_argument("--channels", type=int, default=REPLICATES, help="instances of each construction")
    parser.add_argument("--methods", default=None, help="only these constructions, as quiet,repair")
    args = parser.parse_args(argv)
    named = [case.method for case in CASES] if args.methods is None else args.methods.split(",")
    try:
        for name in named:
            known = [case.method for case in CASES]
            require(name in known, f"`--methods` in {', '.join(known)}", name, "Choose some of them.")
        rows = list(carry_out_all([case for case in CASES if case.method in named], args.channels))
    except KeyspanError as error:
        print(f"keyspan: {error}", file=sys.stderr)
        return error.exit_code
    if args.out is not None and rows:
        with args.out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0].to_dict()), lineterminator="\n")
            writer.writeheader()
            writer.writerows(row.to_dict() for row in rows)
    print(markdown(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
