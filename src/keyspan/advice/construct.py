"""`keyspan construct`: explicit weights for a graph, judged at once; without a size, the smallest that is exact."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keyspan
from keyspan.display import Displayed
from keyspan.errors import BadInput, KeyspanError, require
from keyspan.evidence.record import head
from keyspan.evidence.store import open_store
from keyspan.files.paths import check_writable, shown
from keyspan.files.weights import ChannelWeights, write_weights
from keyspan.problems.relations import Relations
from keyspan.runners.construct import Constructed, carry_out, run_of
from keyspan.runners.construct_search import Found, search
from keyspan.runners.lab import Lab, lab_or_default
from keyspan.runners.questions import replicates, whole
from keyspan.specs import canonical
from keyspan.theory.bounds import law, warren_budget
from keyspan.theory.constructions import METHODS, plan


@dataclass(frozen=True, eq=False)
class ConstructResult(Displayed):
    """A construction with its verdict.

    asked: the method asked for    needed: what every method needed, where a size was looked for    stored: whether the
    record is new    seconds: of everything    path: where the weights were written
    """

    asked: str
    chosen: Constructed
    needed: tuple[Found, ...]
    stored: bool
    seconds: float
    path: str | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON of `keyspan construct`."""
        built, verdict, problem = self.chosen.construction, self.chosen.verdict, self.chosen.run.problem
        assert isinstance(problem, Relations)
        budget, scores = built.heads * built.d_key, verdict.scores
        return head() | {
            "problem": problem.to_json(),
            "asked": self.asked,
            "method": built.plan.name,
            "plan": built.plan.to_json(),
            "heads": built.heads,
            "d_key": built.d_key,
            "key_budget": budget,
            "threshold": scores.get("threshold"),
            "margin": scores.get("margin"),
            "f1": scores.get("f1"),
            "f1_best": scores.get("f1_best"),
            "exact": verdict.exact,
            "proven": built.proven,
            "conditions": [{"what": c.what, "value": c.value, "holds": c.holds} for c in built.conditions],
            "predicted": {"f1": built.f1, "margin": built.margin, "exact_probability": built.exact_probability},
            "rounds": built.rounds,
            "min_edge": verdict.witness.get("min_edge"),
            "max_nonedge": verdict.witness.get("max_nonedge"),
            "needed": [found.to_dict() for found in self.needed],
            "law": law(problem.edges, problem.d_model),
            "lower_bound": warren_budget(self.chosen.instance.bits, problem.items, problem.d_model, built.heads),
            "seconds": self.seconds,
            "path": self.path,
            "run_ids": [self.chosen.run.run_id],
            "trained_now": int(self.stored),
        }


def construct(
    problem: Relations,
    *,
    method: str = "best",
    heads: int | None = None,
    d_key: int | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    lab: Lab | None = None,
    told: Callable[[Found], None] = lambda found: None,
) -> ConstructResult:
    """Explicit weights for the graph of a problem, certified by the judge.

    method: a name of `keyspan.theory.constructions.METHODS`, or `best`: the applicable one with the smallest exact key
    budget    heads, d_key: with both the size is given, else the smallest exact budget is looked for    out: write the
    weights here, as safetensors    lab: where the record goes    told: what a method needed, when its search is done
    """
    began = time.monotonic()
    if not isinstance(problem, Relations):
        raise BadInput(f"`problem` must be Relations, but got {shown(problem)}. Make one with keyspan.Relations(...).")
    require(method in (*METHODS, "best"), f"`--method` in {'|'.join(METHODS)}|best", repr(method), "Choose one.")
    sizes = [None if n is None else whole(n, flag, "Try 8.") for n, flag in ((heads, "--heads"), (d_key, "--d-key"))]
    for size, flag in zip(sizes, ("--heads", "--d-key"), strict=True):
        require(size is None or 1 <= size <= 2**24, f"`1 <= {flag} <= 16777216`", size, "Try 8.")
    _check_out(out)
    lab = lab_or_default(lab)
    if lab.folder is not None:
        check_writable(lab.folder, "--store")  # before minutes of building, not after
    (replicate,) = replicates(1, seed)
    run = run_of(problem, replicate, plan("trivial"), problem.edges, 1)  # any plan: the instance knows none of it
    instance = problem.instance(run.problem_id, lab.contents)
    needed: tuple[Found, ...] = ()
    names = METHODS if method == "best" else (method,)
    if sizes[0] is not None and sizes[1] is not None:
        chosen = _given(problem, replicate, names, sizes[0], sizes[1], lab, instance)
    else:
        needed = search(problem, replicate, names, instance, heads=sizes[0], d_key=sizes[1], told=told)
        chosen = _smallest(problem, replicate, needed, lab, instance)
    with open_store(lab.url) as store:
        stored = store.put(chosen.record)
    if out is not None:
        write_weights(out, _weights(chosen))
    seconds = round(time.monotonic() - began, 3)
    return ConstructResult(method, chosen, needed, stored, seconds, None if out is None else str(out))


def _given(
    problem: Relations, replicate: int, names: Sequence[str], heads: int, d_key: int, lab: Lab, instance: Any
) -> Constructed:
    """The size is given: the method asked for, or of all that apply the exact one with the largest margin, or best F1."""
    built, why = [], ""
    for name in names:
        try:
            run = run_of(problem, replicate, plan(name), heads, d_key)
            built.append(carry_out(run, lab.contents, instance))
        except BadInput as error:
            if len(names) == 1:
                raise
            why = str(error)
    if not built:
        raise BadInput(f"A method must apply to {heads} heads x d_key {d_key}, but got none: {why}")
    return max(built, key=lambda c: (bool(c.verdict.exact), c.verdict.scores["f1"], c.verdict.scores.get("margin", 0.0)))


def _smallest(problem: Relations, replicate: int, needed: Sequence[Found], lab: Lab, instance: Any) -> Constructed:
    """The smallest budget found, judged. The search's own look is cheap; where the judge disagrees, the next one is taken."""
    for found in sorted((f for f in needed if f.key_budget is not None), key=lambda f: f.key_budget or 0):
        assert found.plan is not None and found.heads is not None and found.d_key is not None
        judged = carry_out(run_of(problem, replicate, found.plan, found.heads, found.d_key), lab.contents, instance)
        if judged.verdict.exact:
            return judged
    reasons = "; ".join(f"{f.method}: {f.note}" for f in needed)
    raise KeyspanError(f"No exact construction was found ({reasons}). Give --heads and --d-key to see how far one gets.")


def _check_out(out: str | Path | None) -> None:
    if out is None:
        return
    if not isinstance(out, str | Path):
        raise BadInput(f"`out` must be the path of a file, but got {shown(out)}. Give a str or a Path.")
    if Path(out).suffix.lower() != ".safetensors" or Path(out).is_dir():
        raise BadInput(f"`--out` must be a `.safetensors` file, but got {str(out)!r}. Change its ending.")
    if not Path(out).absolute().parent.is_dir():
        raise BadInput(f"`--out` must lie in a folder that exists, but got {str(out)!r}. Make the folder.")


def _weights(chosen: Constructed) -> ChannelWeights:
    return ChannelWeights(
        w_query=chosen.construction.w_query,
        w_key=chosen.construction.w_key,
        bias=0.0 - chosen.threshold,
        embeddings=chosen.instance.embeddings,
        edges=chosen.instance.edges,
        metadata={"run": canonical(chosen.run.to_json()), "keyspan": keyspan.__version__},
    )
