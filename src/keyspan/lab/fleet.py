"""The fleet: members in, finished members out. Here stands the step loop, the only one in the package.

Members of one bucket step together as a crew. A member leaves when it holds its problem exactly, when it has diverged,
when its optimiser is done or when its steps are over; the others close ranks. No bit of a member depends on the others.
"""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from keyspan.attention.channel import ChannelBucket
from keyspan.attention.instrument import Arrays, Bucket, Params
from keyspan.attention.linear import LinearBucket
from keyspan.errors import BadInput
from keyspan.lab.checkpoints import Checkpoints, Saved
from keyspan.lab.judge import judge
from keyspan.lab.optimizers import Optimizer, State, make_optimizer
from keyspan.lab.pack import bucket_key, shards
from keyspan.lab.recipes import Recipe
from keyspan.problems import ContentSource, NoContents
from keyspan.specs import Channel, LinearUnit, Run
from keyspan.verdict import Status, Verdict

_OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)


@dataclass(frozen=True)
class Finished:
    """A member that has left: its verdict, its weights, and the facts of its training that enter no identity."""

    run: Run
    verdict: Verdict
    answers: Arrays | None
    facts: dict[str, Any]
    instance: Any = None


@dataclass
class Control:
    """How a caller watches and stops a fleet. None of it changes a bit of any member.

    stop: asked between steps; when true, members are checkpointed and the fleet returns
    notify: told (run ids, step, steps) now and then    every: seconds between checkpoints
    """

    contents: ContentSource = field(default_factory=NoContents)
    checkpoints: Checkpoints | None = None
    stop: Callable[[], bool] = lambda: False
    notify: Callable[[list[str], int, int], None] = lambda runs, step, steps: None
    every: float = 10.0


def make_bucket(runs: Sequence[Run], device: torch.device) -> Bucket:
    """The instrument of these members, which share a bucket."""
    recipe = recipe_of(runs[0])
    kinds: dict[type, type[ChannelBucket] | type[LinearBucket]] = {Channel: ChannelBucket, LinearUnit: LinearBucket}
    kind = kinds.get(type(runs[0].instrument))
    if kind is None:
        raise BadInput(f"An instrument must be one of channel|linear-unit, but got {runs[0].instrument.family}.")
    return kind(runs, recipe.loss, recipe.init_scale, recipe.bias, device)


def recipe_of(run: Run) -> Recipe:
    """The run's recipe, typed."""
    if not isinstance(run.recipe, Recipe):
        raise BadInput(f"A run must have a recipe, but got {run.recipe.family}.")
    return run.recipe


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread for CPU operations: members are what runs in parallel, and a split sum would change bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def sail(runs: Sequence[Run], device: str = "cpu", control: Control | None = None) -> Iterator[Finished]:
    """Train and judge members, in any order, yielding each as it finishes.

    A member whose checkpoint exists goes on from there. When the caller's `stop` says so, the rest is checkpointed.
    """
    control = control or Control()
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise BadInput(f"A fleet's device must be cpu, or cuda where torch sees one, but got {device!r}. Use cpu.")
    where = torch.device(device)
    with one_thread():
        for shard in shards(runs, workers=1):
            yield from _split_on_oom(shard, where, control)
            if control.stop():
                return


def _split_on_oom(shard: list[Run], device: torch.device, control: Control) -> Iterator[Finished]:
    """Sail a shard; out of memory, halve what is left of it; a member that does not fit alone is recorded so."""
    done: set[str] = set()
    try:
        for finished in _sail_shard(shard, device, control):
            done.add(finished.run.run_id)
            yield finished
        return
    except _OUT_OF_MEMORY:
        if device.type == "cuda":
            torch.cuda.empty_cache()
    left = [r for r in shard if r.run_id not in done]
    if len(left) == 1:
        yield Finished(left[0], Verdict(status=Status.OUT_OF_MEMORY), None, {"device": str(device), "steps": 0})
        return
    half = len(left) // 2
    for part in (left[:half], left[half:]):
        yield from _split_on_oom(part, device, control)


def _sail_shard(shard: list[Run], device: torch.device, control: Control) -> Iterator[Finished]:
    """Sort a shard's members by where they stand, and let each group step as a crew, phase after phase."""
    waiting: dict[tuple[str, int, int], list[tuple[Run, Saved | None]]] = defaultdict(list)
    for run in shard:
        saved = control.checkpoints.load(run.run_id) if control.checkpoints else None
        waiting[(bucket_key(run), saved.phase if saved else 0, saved.step if saved else 0)].append((run, saved))
    while waiting:
        (_, phase, step), group = waiting.popitem()
        crew = Crew([r for r, _ in group], [s for _, s in group], phase, step, device, control)
        yield from _step(crew)
        for run, saved in crew.promoted:
            waiting[(bucket_key(run), phase + 1, 0)].append((run, saved))


def _step(crew: Crew) -> Iterator[Finished]:
    """The step loop."""
    while crew.runs and not crew.halted():
        look = crew.step > 0 and crew.step % crew.stopping.check_every == 0
        if look:
            yield from crew.retire_clear()
        if crew.step >= crew.optimizer.steps:
            yield from crew.retire_all()
        if not crew.runs:
            break
        wanted = crew.optimizer.wants_value or look
        value, grads = crew.bucket.value_and_grad(crew.params, crew.batch, value=wanted)
        crew.optimizer.step(crew.params, value, grads, crew.state, crew.step)
        crew.step += 1
        if look:
            yield from crew.retire_lost(value)


class Crew:
    """Members of one bucket, in the same phase and at the same step."""

    def __init__(
        self,
        runs: list[Run],
        saved: list[Saved | None],
        phase: int,
        step: int,
        device: torch.device,
        control: Control,
    ) -> None:
        self.runs, self.phase, self.step, self.device, self.control = runs, phase, step, device, control
        self.recipe, self.stopping = recipe_of(runs[0]), runs[0].stopping
        self.instances = [_instance(r, control) for r in runs]
        self.bucket = make_bucket(runs, device)
        stacked = runs[0].problem.batch(0, self.instances)  # type: ignore[attr-defined]
        self.batch = self.bucket.load(stacked, runs)
        self.optimizer: Optimizer = make_optimizer(self.recipe.phases[phase])
        self.params: Params = self._stack([s.params if s else None for s in saved]) or self.bucket.init(runs)
        self.state: State = self._stack([s.state if s else None for s in saved]) or self.optimizer.start(self.params)
        self.promoted: list[tuple[Run, Saved | None]] = []
        self.began = self.saved_at = self.told_at = time.monotonic()

    def _stack(self, trees: list[dict[str, torch.Tensor] | None]) -> dict[str, torch.Tensor] | None:
        """Saved slots of all members, stacked; members of a crew were either all saved or none of them."""
        found = [t for t in trees if t]
        if not found:
            return None
        return {k: torch.stack([t[k] for t in found]).to(self.device) for k in found[0]}

    # ----------------------------------------------------------------------------------- watching and stopping

    def halted(self) -> bool:
        """Tell the caller how far we are, keep checkpoints, and say whether to stop here."""
        now = time.monotonic()
        if now - self.told_at > 0.5:
            self.told_at = now
            self.control.notify([r.run_id for r in self.runs], self.step, self.recipe.steps)
        stop = self.control.stop()
        if self.control.checkpoints and (stop or now - self.saved_at > self.control.every) and self.step + self.phase > 0:
            self.saved_at = now
            for member, run in enumerate(self.runs):
                self.control.checkpoints.save(run.run_id, member, self.phase, self.step, self.params, self.state)
        return stop

    # ---------------------------------------------------------------------------------------------- leaving

    def retire_clear(self) -> Iterator[Finished]:
        """Members that hold their problem exactly (nothing can be better), or whose optimiser is done."""
        leave = torch.zeros(len(self.runs), dtype=torch.bool, device=self.device)
        if self.stopping.retire_exact:
            leave |= self.bucket.clear(self.params, self.batch, self.stopping.slack)
        done = self.optimizer.finished(self.state)
        if done is not None:
            ended = done & ~leave
            if bool(ended.any()):
                yield from self._leave(leave, self.params)
                kept = ended[~leave]
                yield from self._leave(kept, self.optimizer.final(self.params, self.state))
                return
        yield from self._leave(leave, self.params)

    def retire_all(self) -> Iterator[Finished]:
        """The phase is over: on to the next one, or to the judge."""
        params = self.optimizer.final(self.params, self.state)
        everyone = torch.ones(len(self.runs), dtype=torch.bool, device=self.device)
        if self.phase + 1 < len(self.recipe.phases):
            optimizer = make_optimizer(self.recipe.phases[self.phase + 1])
            state = optimizer.start(params)
            for i, run in enumerate(self.runs):
                own = {k: v[i].clone() for k, v in params.items()}
                self.promoted.append((run, Saved(self.phase + 1, 0, own, {k: v[i] for k, v in state.items()})))
            self._keep(~everyone)
            return
        yield from self._leave(everyone, params)

    def retire_lost(self, value: torch.Tensor | None) -> Iterator[Finished]:
        """Members whose loss is no number any more."""
        assert value is not None
        yield from self._leave(~torch.isfinite(value), self.params)

    def _leave(self, leave: torch.Tensor, params: Params) -> Iterator[Finished]:
        """Judge the members that leave, then close ranks."""
        going = torch.nonzero(leave).flatten().tolist()
        if not going:
            return
        for member in going:
            yield self._judged(member, params)
        self._keep(~leave)

    def _judged(self, member: int, params: Params) -> Finished:
        run, instance = self.runs[member], self.instances[member]
        answers = self.bucket.answers(params, member, run)
        finite = all(np.isfinite(v).all() for v in answers.values())
        verdict = judge(instance, dict(answers), certify=self.recipe.certify) if finite else Verdict(status=Status.DIVERGED)
        before = sum(int(getattr(p, "steps", 0)) for p in self.recipe.phases[: self.phase])
        facts = {
            "steps": before + self.step,
            "seconds": round(time.monotonic() - self.began, 3),
            "device": _device_name(self.device),
            "kernel": "torch",
            "torch": torch.__version__,
            "instance": instance.digest,
            "weights": _digest(answers),
            "load": instance.load,
            "bits": instance.bits,
            "best_possible": instance.best,
        }
        return Finished(run, verdict, answers, facts, instance)

    def _keep(self, stay: torch.Tensor) -> None:
        keep = torch.nonzero(stay).flatten()
        kept = keep.tolist()
        self.runs, self.instances = [self.runs[i] for i in kept], [self.instances[i] for i in kept]
        if kept:
            self.params = {k: v[keep] for k, v in self.params.items()}
            self.state = {k: v[keep] for k, v in self.state.items()}
            self.batch = self.bucket.select(self.batch, keep)


def _instance(run: Run, control: Control) -> Any:
    return run.problem.instance(run.problem_id, control.contents)  # type: ignore[attr-defined]


def _digest(answers: Arrays) -> str:
    h = hashlib.sha256()
    for name in sorted(answers):
        h.update(name.encode())
        h.update(np.ascontiguousarray(answers[name], dtype="<f8").tobytes())
    return h.hexdigest()


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
