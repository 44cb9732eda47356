"""A crew: members of one bucket that step together. A member leaves when it holds its problem exactly, when it has
diverged, when its optimiser is done or when its steps are over; others may take its place. No bit of a member depends on
the others.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import numpy as np
import torch

from keyspan.attention import kernels
from keyspan.attention.instrument import Arrays, Bucket, Params
from keyspan.attention.losses import PAIR_LOSSES
from keyspan.decoders import Decoder
from keyspan.errors import BadInput
from keyspan.lab.checkpoints import Saved
from keyspan.lab.host import Case, Control, Finished, Member
from keyspan.lab.judge import judge
from keyspan.lab.optimizers import Optimizer, State, make_optimizer
from keyspan.lab.recipes import Recipe
from keyspan.specs import Channel, Run
from keyspan.verdict import Status, Verdict

SAVING_SHARE = 0.05  # of a crew's time that checkpoints may take
OWN = "own."  # before the names of what an instrument's members carry along, among the optimiser's state
BUCKETS = {  # by family of the instrument, or by family and loss
    "channel": "keyspan.attention.channel:ChannelBucket",
    "channel:owned-hinge": "keyspan.attention.owned:OwnedChannelBucket",
    "decoder": "keyspan.attention.decoder:DecoderBucket",
    "heads": "keyspan.attention.heads:HeadsBucket",
    "layer": "keyspan.attention.layer:LayerBucket",
    "routed": "keyspan.attention.routed:RoutedBucket",
    "linear-unit": "keyspan.attention.linear:LinearBucket",
    "pair-layer": "keyspan.attention.pairs:PairBucket",
    "typed-channel": "keyspan.attention.typed:TypedBucket",
}
FUSED = "keyspan.attention.kernels.channel:FusedChannelBucket"
SHOWN = {  # those that are not shown everything at every step, by families of the instrument and of its recipe's `show`
    "channel:contexts": "keyspan.attention.sampled:SampledBucket",
    "channel:batches": "keyspan.attention.growing:GrowingBucket",
    "decoder:ride": "keyspan.attention.decoder:DecoderBucket",
}


def recipe_of(run: Run) -> Recipe:
    """The run's recipe, typed."""
    if not isinstance(run.recipe, Recipe):
        raise BadInput(f"A run must have a recipe, but got {run.recipe.family}.")
    return run.recipe


def kernel_of(run: Run, device: torch.device) -> str:
    """Which speed of the instrument trains a run on this device."""
    plain = isinstance(run.instrument, Channel) and recipe_of(run).show is None and recipe_of(run).loss in PAIR_LOSSES
    return "triton" if plain and kernels.available(device, run.arithmetic) else "torch"


def make_bucket(runs: Sequence[Run], device: torch.device) -> Bucket:
    """The instrument of these members, which share a bucket: the fused channel where it can run."""
    recipe, family = recipe_of(runs[0]), runs[0].instrument.family
    name = BUCKETS.get(f"{family}:{recipe.loss}") or BUCKETS.get(family)
    if name is None:
        known = "|".join(known for known in BUCKETS if ":" not in known)
        raise BadInput(f"An instrument must be one of {known}, but got {family}.")
    if recipe.show is not None:
        name = SHOWN.get(f"{family}:{recipe.show.family}")
        if name is None:
            who = "|".join(known.partition(":")[0] for known in SHOWN if known.endswith(f":{recipe.show.family}"))
            raise BadInput(f"Only a {who or 'nobody'} can be shown {recipe.show.family}, but got {family}. Show all.")
    module, _, kind = (FUSED if kernel_of(runs[0], device) == "triton" else name).partition(":")
    made: Bucket = getattr(import_module(module), kind)(runs, recipe.loss, recipe.init_scale, recipe.bias, device)
    return made


def optimizer_of(run: Run, phase: int, device: torch.device) -> Optimizer:
    """The optimiser of a phase of a run's recipe: fused where its instrument is, by clocks for decoders on a GPU."""
    fused = device if kernel_of(run, device) == "triton" else None
    clocked = device if isinstance(run.instrument, Decoder) and device.type == "cuda" else None
    return make_optimizer(recipe_of(run).phases[phase], fused, clocked)


class Crew:
    """Members of one bucket, in the same phase.

    `step` counts the crew's steps; a member that came later has taken fewer of its own, by `begun`. Looks fall on the
    same steps of every member. On a GPU a crew has a stream of its own, and its whole step (kernels and update) is
    captured in a CUDA graph and replayed until the crew changes.
    """

    def __init__(
        self,
        members: Sequence[Member],
        phase: int,
        device: torch.device,
        control: Control,
        queue: torch.cuda.Stream | None = None,
    ) -> None:
        self.runs, self.instances = [m.run for m in members], [m.instance for m in members]
        self.phase, self.device, self.control = phase, device, control
        self.recipe, self.stopping = recipe_of(self.runs[0]), self.runs[0].stopping
        taken = [m.saved.step if m.saved else 0 for m in members]
        every = self.stopping.check_every
        self.step = taken[0] if len(set(taken)) == 1 else taken[0] % every + every  # of one remainder: looks coincide
        self.begun = [self.step - own for own in taken]
        self.places = len(members)
        self.queue = queue
        with self.stream():
            self.bucket = make_bucket(self.runs, device)
            self.optimizer = optimizer_of(self.runs[0], phase, device)
            self.batch = self._load(self.runs, self.instances)
            self.params, self.state = self._slots(members)
        self.kernel = kernel_of(self.runs[0], device)
        self.promoted: list[tuple[Run, Saved]] = []  # to the next phase
        self.left: list[Case] = []  # to the judge
        self.began = self.saved_at = self.told_at = time.monotonic()
        self.stopped = False
        self._saving = 0.0  # seconds that the last checkpoints took
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm = False

    def stream(self) -> AbstractContextManager[Any]:
        """Where this crew's work is queued."""
        return nullcontext() if self.queue is None else torch.cuda.stream(self.queue)

    def _load(self, runs: list[Run], instances: list[Any]) -> Any:
        return self.bucket.load(runs[0].problem.batch(0, instances), runs)  # type: ignore[attr-defined]

    def _slots(self, members: Sequence[Member]) -> tuple[Params, State]:
        """Parameters and optimiser state, from the checkpoints or from the start."""
        saved = [m.saved for m in members if m.saved]
        if saved:
            params, state = (self._stack([getattr(s, tree) for s in saved]) for tree in ("params", "state"))
            return params, state
        drawn = [m.drawn for m in members if m.drawn]
        params = self.bucket.place(drawn) if len(drawn) == len(members) else self.bucket.init([m.run for m in members])
        lost = torch.zeros(len(members), dtype=torch.bool, device=self.device)
        before = torch.zeros(len(members), dtype=torch.int64, device=self.device)
        own = {OWN + k: v for k, v in self.bucket.memory([m.run for m in members]).items()}
        return params, self.optimizer.start(params) | own | {"lost": lost, "before": before}

    @property
    def _memory(self) -> Params:
        """What the members carry along for their instrument; the tensors themselves."""
        return {k[len(OWN) :]: v for k, v in self.state.items() if k.startswith(OWN)}

    @property
    def _taken(self) -> list[int]:
        """Steps that each member has taken."""
        return [self.step - begun for begun in self.begun]

    def _stack(self, trees: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        return {k: torch.stack([t[k] for t in trees]).to(self.device) for k in trees[0]}

    # ------------------------------------------------------------------------------------------- one step

    @property
    def looking(self) -> bool:
        """Whether it is time to see who may leave."""
        return self.step % self.stopping.check_every == 0 or self.step - min(self.begun) >= self.optimizer.steps

    def advance(self) -> None:
        """One step of every member."""
        look = (self.step + 1) % self.stopping.check_every == 0
        if not self.bucket.static:
            self.bucket.turn(self.batch, self._memory, self._taken)
        if self._warm and not look and self.optimizer.captures:
            if self._graph is None:
                self._graph = self._captured()
            self._graph.replay()
        else:
            value = self._once(look or self.optimizer.wants_value)
            if look and value is not None:
                self.state["lost"] |= ~torch.isfinite(value)
            self._warm = True  # every kernel is compiled now
        self.step += 1

    def _once(self, wanted: bool) -> torch.Tensor | None:
        value, grads = self.bucket.value_and_grad(self.params, self.batch, value=wanted)
        self.optimizer.step(self.params, value, grads, self.state, self.step)
        return value

    def _captured(self) -> torch.cuda.CUDAGraph:
        """The step as a graph. Nothing is allocated on the way, and other threads' transfers are none of its business."""
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        self._once(wanted=False)
        graph.capture_end()
        return graph

    # ----------------------------------------------------------------------------------- watching and stopping

    def halted(self) -> bool:
        """Tell the caller how far we are, keep checkpoints, and say whether to stop here."""
        now = time.monotonic()
        if now - self.told_at > 0.5:
            self.told_at = now
            self.control.notify([r.run_id for r in self.runs], self.step - max(self.begun), self.recipe.steps)
        self.stopped = self.control.stop()
        if self.stopped or now - self.saved_at > max(self.control.every, self._saving / SAVING_SHARE):
            self.save(now)
        return self.stopped

    def save(self, now: float | None = None) -> None:
        """Keep what the members need to go on from here."""
        if self.control.checkpoints is None or self.step + self.phase == 0:
            return
        self.saved_at = time.monotonic() if now is None else now
        params, state = ({k: v.cpu() for k, v in tree.items()} for tree in (self.params, self.state))
        for member, run in enumerate(self.runs):
            own = self.step - self.begun[member]
            self.control.checkpoints.save(run.run_id, member, self.phase, own, params, state, self.kernel)
        self._saving = time.monotonic() - self.saved_at

    # ------------------------------------------------------------------------------------ leaving and joining

    def retire(self) -> None:
        """Let those go whose time has come: to the judge (`left`) or to the next phase (`promoted`)."""
        if self.step + self.phase == 0 or not self.looking:
            return
        if self.step > 0 and self.step % self.stopping.check_every == 0:
            self._leave(self.state["lost"], self.params, kept=False)
            if self.runs:
                self.bucket.look(self.params, self.batch, self._memory, self._taken)
                self._retire_clear()
        if self.runs:
            self._retire_over(torch.tensor([taken >= self.optimizer.steps for taken in self._taken], device=self.device))

    def _retire_clear(self) -> None:
        """Members that hold their problem exactly (nothing can be better), or whose optimiser is done."""
        leave = torch.zeros(len(self.runs), dtype=torch.bool, device=self.device)
        if self.stopping.retire_exact:
            leave |= self.bucket.clear(self.params, self.batch, self.stopping.slack)
        self._leave(leave, self.params)
        done = self.optimizer.finished(self.state) if self.runs else None
        if done is not None:
            self._retire_over(done)

    def _retire_over(self, leave: torch.Tensor) -> None:
        """Members whose phase is over: on to the next one, or to the judge."""
        over = leave.tolist()
        if not any(over):
            return
        params = self.optimizer.final(self.params, self.state)
        if self.phase + 1 == len(self.recipe.phases):
            self._leave(leave, params)
            return
        carried = {k: v for k, v in self.state.items() if k == "lost" or k.startswith(OWN)}
        carried["before"] = self.state["before"] + torch.tensor(self._taken, device=self.device)
        state = optimizer_of(self.runs[0], self.phase + 1, self.device).start(params) | carried
        for i, run in enumerate(self.runs):
            if over[i]:
                own, its = ({k: v[i].clone() for k, v in tree.items()} for tree in (params, state))
                self.promoted.append((run, Saved(self.phase + 1, 0, own, its)))
        self._keep(~leave)

    def join(self, members: Sequence[Member]) -> None:
        """Take in members that begin, where the optimiser counts each member's own steps."""
        runs, instances = [m.run for m in members], [m.instance for m in members]
        params, state = self._slots(members)
        self.params = {k: torch.cat([v, params[k]]) for k, v in self.params.items()}
        self.state = {k: torch.cat([v, state[k]]) for k, v in self.state.items()}
        self.batch = self.bucket.join(self.batch, self._load(runs, instances))
        self.runs, self.instances = self.runs + runs, self.instances + instances
        self.begun += [self.step] * len(runs)
        self._graph, self._warm = None, False

    def _leave(self, leave: torch.Tensor, params: Params, *, kept: bool = True) -> None:
        """Take what the judge needs of the members that leave; the others close ranks.

        kept: with the weights that their instrument kept for them, which a member that has diverged does not get
        """
        going = torch.nonzero(leave).flatten().tolist()
        if going:
            params = self.bucket.kept(params, self._memory) if kept else params
            self.left += [self._case(member, params) for member in going]
            self._keep(~leave)

    def _case(self, member: int, params: Params) -> Case:
        run, instance = self.runs[member], self.instances[member]
        answers = self.bucket.answers(params, member, run)
        facts = {
            "steps": int(self.state["before"][member]) + self.step - self.begun[member],
            "seconds": round(time.monotonic() - self.began, 3),
            "device": _device_name(self.device),
            "kernel": self.kernel,
            "torch": torch.__version__,
        }
        certify = self.recipe.certify

        def decide() -> Finished:
            finite = all(np.isfinite(v).all() for v in answers.values())
            verdict = Verdict(status=Status.DIVERGED)
            if finite:
                verdict = judge(instance, dict(answers), certify=certify, instrument=run.instrument)
            known = {
                "instance": instance.digest,
                "load": instance.load,
                "bits": instance.bits,
                "best_possible": instance.best,
                "weights": _digest(answers),
            }
            return Finished(run, verdict, answers, facts | known, instance)

        return decide

    def _keep(self, stay: torch.Tensor) -> None:
        keep = torch.nonzero(stay).flatten()
        kept = keep.tolist()
        self.runs, self.instances = [self.runs[i] for i in kept], [self.instances[i] for i in kept]
        self.begun = [self.begun[i] for i in kept]
        self._graph, self._warm = None, False
        if kept:
            self.params = {k: v[keep] for k, v in self.params.items()}
            self.state = {k: v[keep] for k, v in self.state.items()}
            self.batch = self.bucket.select(self.batch, keep)


def _digest(answers: Arrays) -> str:
    h = hashlib.sha256()
    for name in sorted(answers):
        h.update(name.encode())
        h.update(np.ascontiguousarray(answers[name], dtype="<f8").tobytes())
    return h.hexdigest()


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
