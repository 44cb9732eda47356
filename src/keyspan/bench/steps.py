"""The sides of the comparison: a fleet's step, and one model's as anyone would write it, eager or in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from keyspan.attention.instrument import Arrays
from keyspan.bench.timing import Step
from keyspan.lab.crew import Crew, make_bucket, recipe_of
from keyspan.lab.host import Control, Member
from keyspan.lab.optimizers import one_cycle
from keyspan.lab.recipes import Adam
from keyspan.problems import NoContents
from keyspan.problems.relations import RelationInstance
from keyspan.specs import Channel, Run


def sync_of(device: str) -> Callable[[], None]:
    """Waits for a GPU; a CPU is done when the call returns."""
    return torch.cuda.synchronize if device == "cuda" else lambda: None


def instance_of(run: Run) -> RelationInstance:
    """The run's graph and item vectors."""
    made = run.problem.instance(run.problem_id, NoContents())  # type: ignore[attr-defined]
    assert isinstance(made, RelationInstance)
    return made


def adam_of(run: Run) -> Adam:
    """The run's only phase."""
    phase = recipe_of(run).phases[0]
    assert isinstance(phase, Adam)
    return phase


def initial(run: Run) -> Arrays:
    """The member's initial weights, as the fleet draws them. w_query, w_key: (heads, d_model, d_key)    bias: ()"""
    bucket = make_bucket([replace(run, arithmetic="fp64")], torch.device("cpu"))  # the CPU has no tf32, nor bf16
    return bucket.answers(bucket.init([run]), 0, run)


def fleet_step(runs: Sequence[Run], device: str) -> Step:
    """One step of a whole fleet: what the fleet's own loop does between two looks at who may leave."""
    where = torch.device(device)
    queue = torch.cuda.Stream() if where.type == "cuda" else None
    crew = Crew([Member(run, instance_of(run)) for run in runs], 0, where, Control(), queue)

    def call() -> None:
        if not crew.optimizer.joins:  # the last step of the cycle, again and again, has a rate near zero
            crew.step = min(crew.step, crew.optimizer.steps - 1)
        with crew.stream():
            crew.advance()

    return Step(call, sync_of(device))


@dataclass
class Single:
    """One channel in plain PyTorch. x: (items, d_model)    target: (items, items), 1 at edges    w: (heads, d_model, d_key)"""

    x: torch.Tensor
    target: torch.Tensor
    edges: int
    w_query: torch.nn.Parameter
    w_key: torch.nn.Parameter
    bias: torch.nn.Parameter
    half: bool = False

    @classmethod
    def of(cls, run: Run, device: str) -> Single:
        """From the same instance and the same initial weights as the fleet's member. Its products are in the run's
        arithmetic: tf32 as PyTorch's own switch sets it (`products_in`), bf16 by autocast."""
        instance, start = instance_of(run), initial(run)
        dtype = torch.float64 if run.arithmetic == "fp64" else torch.float32
        assert isinstance(run.instrument, Channel)
        target = torch.zeros(instance.items, instance.items, dtype=dtype, device=device)
        source, sink = torch.tensor(instance.edges, device=device).T
        target[source, sink] = 1.0
        made = {k: torch.nn.Parameter(torch.tensor(v, dtype=dtype, device=device)) for k, v in start.items()}
        x = torch.tensor(instance.embeddings, dtype=dtype, device=device)
        half = run.arithmetic == "bf16"
        return cls(x, target, len(instance.edges), made["w_query"], made["w_key"], made["bias"], half)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """What is trained."""
        return [self.w_query, self.w_key, self.bias]

    def loss(self) -> torch.Tensor:
        """Binary cross-entropy over all pairs, per edge."""
        with torch.autocast(self.x.device.type, torch.bfloat16, enabled=self.half):
            scores = ((self.x @ self.w_query) @ (self.x @ self.w_key).transpose(1, 2)).amax(0)
        return (
            torch.nn.functional.binary_cross_entropy_with_logits(scores + self.bias, self.target, reduction="sum") / self.edges
        )

    def weights(self) -> Arrays:
        """As float64, in the layout of the answers."""
        named = zip(("w_query", "w_key", "bias"), self.parameters, strict=True)
        return {name: p.detach().double().cpu().numpy() for name, p in named}


def eager_step(run: Run, device: str) -> tuple[Step, Single]:
    """One step of one model as anyone would write it: autograd, `torch.optim.Adam`, the rate set before every step."""
    model, phase = Single.of(run, device), adam_of(run)
    adam = torch.optim.Adam(model.parameters, lr=phase.peak, betas=(phase.beta1, phase.beta2), eps=phase.epsilon)
    taken = 0

    def call() -> None:
        nonlocal taken
        adam.param_groups[0]["lr"] = one_cycle(phase, taken)
        adam.zero_grad()
        model.loss().backward()
        adam.step()
        taken = min(taken + 1, phase.steps - 1)

    return Step(call, sync_of(device)), model


def graphed_step(run: Run, device: str = "cuda") -> tuple[Step, Single]:
    """The same model captured in a CUDA graph: no launch from Python, one replay a step."""
    model, phase = Single.of(run, device), adam_of(run)
    lr = torch.tensor(phase.peak, device=device, dtype=model.x.dtype)
    adam = torch.optim.Adam(
        model.parameters, lr=lr, betas=(phase.beta1, phase.beta2), eps=phase.epsilon, capturable=True, foreach=True
    )
    start = [p.detach().clone() for p in model.parameters]

    def body() -> None:
        adam.zero_grad(set_to_none=False)
        model.loss().backward()
        adam.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what is made at the first steps (gradients, moments, handles) must be there before
        for _ in range(3):
            body()
        if model.x.dtype == torch.float64:  # steps are counted in single, and powers of them show in float64
            for state in adam.state.values():
                state["step"] = state["step"].double()
            body()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    _rewind(adam, model, start)
    taken = 0

    def call() -> None:
        nonlocal taken
        lr.fill_(one_cycle(phase, taken))
        graph.replay()
        taken = min(taken + 1, phase.steps - 1)

    return Step(call, sync_of(device)), model


def _rewind(adam: torch.optim.Adam, model: Single, start: Sequence[torch.Tensor]) -> None:
    """Back to the initial weights and moments, in place: the graph keeps looking at the same memory."""
    with torch.no_grad():
        for parameter, first in zip(model.parameters, start, strict=True):
            parameter.copy_(first)
            for moment in adam.state[parameter].values():
                moment.zero_()
