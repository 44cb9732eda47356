"""The fleet: a member's bits are its own, whatever its company, its interruptions and the mishaps of others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from keyspan.attention import channel
from keyspan.attention.channel import ChannelBucket
from keyspan.attention.instrument import Bucket, Params
from keyspan.attention.linear import LinearBucket
from keyspan.errors import BadInput
from keyspan.files.contents import Contents
from keyspan.lab import crew, recipes
from keyspan.lab.checkpoints import Checkpoints
from keyspan.lab.fleet import Control, Finished, make_bucket, sail
from keyspan.lab.judge import judge
from keyspan.lab.pack import bucket_key, shards
from keyspan.lab.recipes import Adam, Lbfgs, Muon, Recipe
from keyspan.problems import NoContents, embeddings, graphs
from keyspan.problems.dichotomies import Dichotomies
from keyspan.problems.graphs import Graph
from keyspan.problems.relations import Relations
from keyspan.seeds import Stream
from keyspan.specs import Channel, LinearUnit, Run, Stopping
from keyspan.verdict import Status

FACTS = {
    "steps",
    "seconds",
    "device",
    "kernel",
    "torch",
    "instance",
    "weights",
    "load",
    "bits",
    "best_possible",
}
SHORT = recipes.gradient(steps=23)


def channel_run(
    heads: int,
    d_key: int,
    replicate: int = 0,
    *,
    items: int = 11,
    d_model: int = 5,
    recipe: Recipe = SHORT,
    arithmetic: str = "fp32",
) -> Run:
    return Run(
        problem=Relations(items=items, d_model=d_model),
        replicate=replicate,
        instrument=Channel(heads=heads, d_key=d_key),
        recipe=recipe,
        stopping=Stopping(check_every=7),
        arithmetic=arithmetic,
    )


def linear_run(
    dimension: int, examples: int, replicate: int = 0, *, recipe: Recipe | None = None, arithmetic: str = "fp64"
) -> Run:
    return Run(
        problem=Dichotomies(dimension=dimension, examples=examples),
        replicate=replicate,
        instrument=LinearUnit(),
        recipe=recipe or recipes.separator(),
        stopping=recipes.SEPARATOR_STOPPING,
        arithmetic=arithmetic,
    )


@dataclass(frozen=True)
class Outcome:
    """What must be the same wherever a member trains."""

    weights: str
    steps: int
    verdict: str

    @classmethod
    def of(cls, finished: Finished) -> Outcome:
        return cls(finished.facts["weights"], finished.facts["steps"], str(finished.verdict.to_json()))


def train(runs: Sequence[Run], control: Control | None = None) -> dict[str, Outcome]:
    """Every member once, by run id."""
    finished = list(sail(runs, control=control))
    assert len({f.run.run_id for f in finished}) == len(finished)
    return {f.run.run_id: Outcome.of(f) for f in finished}


def alone(runs: Sequence[Run]) -> dict[str, Outcome]:
    return {k: v for run in runs for k, v in train([run]).items()}


def companies(runs: Sequence[Run], name: str) -> Iterator[list[Run]]:
    """All of them, two of them, and some others, in any order."""
    stream = Stream(name, "company")
    for size in (len(runs), 2, max(2, len(runs) - 2)):
        yield [runs[i] for i in stream.permutation(len(runs))[:size]]


def assert_company_does_not_matter(runs: Sequence[Run], name: str) -> None:
    assert len({bucket_key(r) for r in runs}) == 1 and len(shards(runs, 1)) == 1
    expected = alone(runs)
    assert len({o.weights for o in expected.values()}) == len(runs)
    for company in companies(runs, name):
        for run_id, outcome in train(company).items():
            assert outcome == expected[run_id], run_id


# ---------------------------------------------------------------------------------------- company, and order

SIZES = [(5, 1), (7, 3), (13, 2), (17, 7), (31, 11), (37, 19), (61, 17)]
RAGGED = [
    [(1, 1)] * 5,
    [(1, 5), (1, 7), (1, 6), (1, 8), (1, 5)],
    [(3, 2), (4, 2), (3, 2), (4, 2)],
    [(5, 3), (7, 4), (8, 3), (6, 3), (5, 4), (7, 3)],
]


@pytest.mark.parametrize("arithmetic", ["fp32", "fp64"])
@pytest.mark.parametrize("items, d_model", SIZES)
def test_a_channel_has_its_own_bits_in_any_company(items: int, d_model: int, arithmetic: str) -> None:
    for channels in RAGGED:
        runs = [
            channel_run(h, k, seed, items=items, d_model=d_model, arithmetic=arithmetic) for seed, (h, k) in enumerate(channels)
        ]
        assert_company_does_not_matter(runs, f"{items}{d_model}{channels}")


MUON = Recipe(name="muon", revision=1, loss="squared-hinge", phases=(Muon(steps=23, peak=0.3),), bias=-3.0)


@pytest.mark.parametrize("recipe", [recipes.hinge(steps=23), MUON], ids=lambda r: r.name)
@pytest.mark.parametrize("channels", RAGGED)
def test_other_recipes_have_their_own_bits_too(recipe: Recipe, channels: list[tuple[int, int]]) -> None:
    runs = [channel_run(h, k, s, items=37, d_model=19, recipe=recipe) for s, (h, k) in enumerate(channels)]
    assert_company_does_not_matter(runs, f"{recipe.name}{channels}")


def test_another_draw_is_another_start_on_the_same_instance() -> None:
    first, second = (channel_run(3, 2, recipe=replace(SHORT, draw=draw)) for draw in (0, 1))
    assert first.problem_id == second.problem_id and first.run_id == channel_run(3, 2).run_id != second.run_id
    one, two = (make_bucket([r], torch.device("cpu")).init([r]) for r in (first, second))
    assert torch.equal(one["bias"], two["bias"])
    for name in ("w_query", "w_key"):
        assert abs(np.corrcoef(one[name][0, :3, :2, :5].flatten(), two[name][0, :3, :2, :5].flatten())[0, 1]) < 0.6
    linear = [linear_run(7, 11, recipe=replace(recipes.gradient(), draw=draw)) for draw in (0, 1)]
    starts = [make_bucket([r], torch.device("cpu")).init([r])["w"] for r in linear]
    assert not torch.equal(*starts)


@pytest.mark.parametrize("size", [1, 1 << 17])
def test_tiles_and_blocks_leave_a_member_its_bits(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of a few rows, and blocks of fewer members than there are."""
    monkeypatch.setitem(channel.TILE_BYTES, "cpu", size)
    runs = [channel_run(3 + seed % 2, 2, seed, items=61, d_model=7) for seed in range(5)]
    assert_company_does_not_matter(runs, "tiles")


def test_graphs_of_other_families_are_company_too() -> None:
    families = [graphs.permutation(), graphs.erdos_renyi(), graphs.functional(loops=False), graphs.power_law()]
    runs = [
        replace(channel_run(3, 2, seed), problem=Relations(items=11, d_model=7, graph=graph, embeddings=rows))
        for seed, (graph, rows) in enumerate(itertools.product(families, [embeddings.gaussian(), embeddings.sparse(2)]))
    ]
    assert_company_does_not_matter(runs, "families")


@pytest.mark.parametrize("dimension, loads", [(2, (3, 5)), (3, (11, 13)), (7, (17, 19)), (19, (41, 47))])
def test_a_separator_has_its_own_bits_in_any_company(dimension: int, loads: tuple[int, ...]) -> None:
    runs = [linear_run(dimension, t, seed) for t in loads for seed in range(4)]
    assert_company_does_not_matter(runs, f"{dimension}")


@pytest.mark.parametrize("arithmetic", ["fp32", "fp64"])
@pytest.mark.parametrize("dimension, examples", [(2, 5), (3, 17), (5, 37), (17, 53), (53, 103)])
def test_a_linear_unit_trained_by_gradient_has_its_own_bits(dimension: int, examples: int, arithmetic: str) -> None:
    runs = [
        linear_run(dimension, examples, seed, recipe=recipes.gradient(steps=31), arithmetic=arithmetic) for seed in range(5)
    ]
    assert_company_does_not_matter(runs, f"{dimension}")


def test_threads_outside_do_not_matter_and_come_back() -> None:
    runs = [channel_run(3, 2, seed, items=61, d_model=17) for seed in range(3)]
    before = torch.get_num_threads()
    seen = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            seen.append(train(runs))
            assert torch.get_num_threads() == threads
            leaving = sail(runs)
            next(leaving)
            leaving.close()  # type: ignore[attr-defined]
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert seen[0] == seen[1] == seen[2]


def test_members_step_on_one_thread() -> None:
    """Equal bits do not show it on every machine: a sum is split among threads only where it is long enough."""
    before = torch.get_num_threads()
    seen: set[int] = set()

    def look() -> bool:
        seen.add(torch.get_num_threads())
        return False

    try:
        torch.set_num_threads(3)
        list(sail([channel_run(3, 2)], control=Control(stop=look)))
    finally:
        torch.set_num_threads(before)
    assert seen == {1}


# -------------------------------------------------------------------------------------------- interruptions


def countdown(calls: int) -> Callable[[], bool]:
    """False so many times, then true."""
    left = itertools.count(calls, -1)
    return lambda: next(left) <= 0


def in_pieces(runs: Sequence[Run], folder: Path, calls: Iterable[int], **control: Any) -> dict[str, Outcome]:
    """Stop after so many steps, go on in another order, until all have finished."""
    done: dict[str, Outcome] = {}
    pieces = 0
    for pieces, count in enumerate(calls):
        left = [r for r in runs if r.run_id not in done]
        if not left:
            break
        order = Stream(f"{pieces}", "order").permutation(len(left))
        checkpoints = Checkpoints(folder)
        for f in sail([left[i] for i in order], control=Control(stop=countdown(count), checkpoints=checkpoints, **control)):
            done[f.run.run_id] = Outcome.of(f)
            checkpoints.drop(f.run.run_id)
    assert len(done) == len(runs) and pieces >= 2
    return done


SOLVER = recipes.solver(steps=40)
FIXED = recipes.solver_fixed(steps=40)
TWO_PHASES = Recipe(name="two", revision=1, loss="squared-hinge", phases=(Adam(steps=19, peak=0.1), Lbfgs(steps=300, memory=5)))
CREWS = {
    "gradient": [channel_run(h, k, seed) for seed, (h, k) in enumerate([(3, 2), (4, 2), (3, 2), (4, 2), (2, 1)])],
    "gradient-fp64": [channel_run(1, 5 + seed, seed, arithmetic="fp64") for seed in range(3)],
    "separator": [linear_run(5, t, seed) for t in (7, 11) for seed in range(4)],
    "muon": [channel_run(h, k, s, recipe=MUON) for s, (h, k) in enumerate([(3, 2), (4, 2), (3, 2), (2, 1)])],
    "solver": [channel_run(2, k, seed, recipe=SOLVER, arithmetic="fp64") for k in (2, 3) for seed in range(3)],
    "solver-fixed": [channel_run(h, 2, seed, recipe=FIXED, arithmetic="fp64") for h in (3, 4) for seed in range(3)],
    "two-phases": [linear_run(3, t, seed, recipe=TWO_PHASES) for t in (7, 11) for seed in range(3)],
}


@pytest.mark.parametrize("calls", [2, 7, 13])
@pytest.mark.parametrize("crew", CREWS)
def test_stopping_and_going_on_changes_no_bit(crew: str, calls: int, tmp_path: Path) -> None:
    runs = CREWS[crew]
    assert in_pieces(runs, tmp_path, itertools.repeat(calls, 500)) == train(runs)
    assert list(tmp_path.iterdir()) == []


def test_stops_at_any_step(tmp_path: Path) -> None:
    runs = CREWS["gradient"] + CREWS["separator"]
    calls = Stream("stops", "calls").integers(17, 400) + 2
    assert in_pieces(runs, tmp_path, calls.tolist()) == train(runs)


@pytest.mark.parametrize("crew", CREWS)
def test_a_fleet_that_was_killed_goes_on_from_its_last_checkpoint(
    crew: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed inside a step: nothing is saved on the way out."""
    runs = CREWS[crew]
    expected = train(runs)
    checkpoints = Checkpoints(tmp_path)

    class Killed(BaseException):
        pass

    for bucket in (ChannelBucket, LinearBucket):
        whole = bucket.value_and_grad
        left = itertools.count(20, -1)

        def dying(*args: Any, _whole: Any = whole, _left: Any = left, **kwargs: Any) -> Any:
            if next(_left) == 0:
                raise Killed
            return _whole(*args, **kwargs)

        monkeypatch.setattr(bucket, "value_and_grad", dying)
    done = {}
    with pytest.raises(Killed):
        for f in sail(runs, control=Control(checkpoints=checkpoints, every=0.0)):
            done[f.run.run_id] = Outcome.of(f)
    kept = list(tmp_path.iterdir())
    assert kept and len(done) < len(runs)
    monkeypatch.undo()
    again = train([r for r in runs if r.run_id not in done], Control(checkpoints=checkpoints))
    assert done | again == expected


def test_a_resumed_member_does_not_repeat_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = channel_run(3, 2)
    assert list(sail([run], control=Control(stop=countdown(17), checkpoints=Checkpoints(tmp_path)))) == []
    steps, whole = itertools.count(), ChannelBucket.value_and_grad

    def counted(*args: Any, **kwargs: Any) -> Any:
        next(steps)
        return whole(*args, **kwargs)

    monkeypatch.setattr(ChannelBucket, "value_and_grad", counted)
    (finished,) = sail([run], control=Control(checkpoints=Checkpoints(tmp_path)))
    assert next(steps) == 23 - 17 and finished.facts["steps"] == 23


def test_without_checkpoints_a_stop_keeps_nothing_and_a_damaged_one_is_no_harm(tmp_path: Path) -> None:
    run = channel_run(3, 2)
    assert list(sail([run], control=Control(stop=countdown(9)))) == []
    assert list(sail([run], control=Control(stop=countdown(9), checkpoints=Checkpoints(tmp_path)))) == []
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    assert train([run], Control(checkpoints=Checkpoints(tmp_path))) == train([run])


def test_watching_and_keeping_checkpoints_changes_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = CREWS["gradient"]
    expected = train(runs)
    clock = itertools.count()
    monkeypatch.setattr(crew, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    told: list[tuple[list[str], int, int]] = []
    control = Control(
        checkpoints=Checkpoints(tmp_path), every=3.0, notify=lambda ids, step, steps: told.append((ids, step, steps))
    )
    assert train(runs, control) == expected
    assert {step for _, step, _ in told} >= set(range(1, 23)) and {steps for _, _, steps in told} == {23}
    assert {i for ids, _, _ in told for i in ids} == {r.run_id for r in runs}
    assert {p.stem for p in tmp_path.iterdir()} == {r.run_id for r in runs}


# --------------------------------------------------------------------------------- one member's mishap is its own


def plant(monkeypatch: pytest.MonkeyPatch, bucket: type, name: str, victim: Run) -> None:
    """A NaN in one slot of one member's initial weights."""
    whole = bucket.init  # type: ignore[attr-defined]

    def init(self: Bucket, runs: Sequence[Run]) -> Params:
        params: Params = whole(self, runs)
        for member, run in enumerate(runs):
            if run.run_id == victim.run_id:
                params[name][member].view(-1)[0] = float("nan")
        return params

    monkeypatch.setattr(bucket, "init", init)


@pytest.mark.parametrize("crew, bucket, name", [("gradient", ChannelBucket, "w_key"), ("separator", LinearBucket, "w")])
def test_a_nan_diverges_its_member_and_no_other(crew: str, bucket: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = CREWS[crew]
    expected, victim = train(runs), runs[2]
    plant(monkeypatch, bucket, name, victim)
    finished = {f.run.run_id: f for f in sail(runs)}
    lost = finished.pop(victim.run_id)
    assert lost.verdict.status is Status.DIVERGED and lost.verdict.exact is None and not lost.verdict.scores
    assert lost.facts["steps"] <= 2 * victim.stopping.check_every
    del expected[victim.run_id]
    assert {k: Outcome.of(f) for k, f in finished.items()} == expected


def test_a_rate_too_high_diverges() -> None:
    wild = recipes.gradient(steps=40, peak=1e30)
    for f in sail([channel_run(2, 3, seed, recipe=wild) for seed in range(2)]):
        assert f.verdict.status is Status.DIVERGED and not f.verdict.scores
        assert set(f.facts) == FACTS and f.facts["steps"] < 40


def out_of_memory(monkeypatch: pytest.MonkeyPatch, too_much: Callable[[Sequence[Run]], bool]) -> list[int]:
    """Make buckets of some crews impossible. returns: the sizes of the crews that were tried"""
    whole, tried = crew.make_bucket, []

    def make_bucket(runs: Sequence[Run], device: torch.device) -> Bucket:
        tried.append(len(runs))
        if too_much(runs):
            raise torch.OutOfMemoryError("no room")
        return whole(runs, device)

    monkeypatch.setattr(crew, "make_bucket", make_bucket)
    return tried


@pytest.mark.parametrize("room", [1, 2, 3])
def test_a_fleet_out_of_memory_is_halved_until_it_fits(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [channel_run(3, 2, seed) for seed in range(7)]
    expected = train(runs)
    tried = out_of_memory(monkeypatch, lambda crew: len(crew) > room)
    assert train(runs) == expected
    assert tried[0] == 7 and sum(n for n in tried if n <= room) == 7


def test_a_member_that_never_fits_is_recorded_and_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [channel_run(3, 2, seed) for seed in range(5)]
    expected = train(runs)
    out_of_memory(monkeypatch, lambda crew: runs[3].run_id in {r.run_id for r in crew})
    finished = {f.run.run_id: f for f in sail(runs)}
    lost = finished.pop(runs[3].run_id)
    assert lost.verdict.status is Status.OUT_OF_MEMORY and lost.answers is None
    assert not lost.verdict.scores and lost.facts == {"device": "cpu", "steps": 0}
    del expected[runs[3].run_id]
    assert {k: Outcome.of(f) for k, f in finished.items()} == expected


def no_room(error: type[Exception]) -> None:
    raise error("no room")


@pytest.mark.parametrize(
    "fail",
    [
        lambda: no_room(torch.OutOfMemoryError),
        lambda: no_room(MemoryError),
        lambda: torch.empty(1 << 60, dtype=torch.uint8),  # what a CPU has to say, by itself
    ],
    ids=["gpu", "python", "cpu"],
)
def test_memory_that_runs_out_on_the_way_repeats_nothing_that_finished(
    fail: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some members are exact early; when memory runs out later, only those that are left start again."""
    recipe = recipes.gradient(steps=300)
    runs = [channel_run(1, k, seed, items=5, d_model=7, recipe=recipe) for seed in range(4) for k in (1, 5)]
    crew = [r for r in runs if bucket_key(r) == bucket_key(runs[1])] + [
        channel_run(1, 7, 3, items=5, d_model=7, recipe=recipes.gradient(steps=300))
    ]
    expected = train(crew)
    steps = sorted(o.steps for o in expected.values())
    assert steps[0] < steps[-1]
    whole, calls = ChannelBucket.value_and_grad, itertools.count()

    def failing(self: ChannelBucket, params: Params, batch: Any, **kwargs: Any) -> Any:
        if next(calls) == steps[0] + 3:
            fail()
        return whole(self, params, batch, **kwargs)

    monkeypatch.setattr(ChannelBucket, "value_and_grad", failing)
    assert train(crew) == expected


# ------------------------------------------------------------------------------------------- verdicts and facts


def test_a_small_cell_is_held_exactly_and_leaves_early() -> None:
    run = replace(channel_run(1, 6, items=16, d_model=16, recipe=recipes.gradient()), stopping=recipes.DEFAULT_STOPPING)
    (finished,) = sail([run])
    verdict = finished.verdict
    assert verdict.measured and verdict.exact and verdict.scores["f1"] == 1.0 and verdict.scores["margin"] > 0
    assert 0 < finished.facts["steps"] < 2000 and finished.facts["steps"] % 50 == 0
    (stayed,) = sail([replace(run, stopping=replace(run.stopping, retire_exact=False))])
    assert stayed.facts["steps"] == 2000 and stayed.verdict.exact


@pytest.mark.parametrize("crew", CREWS)
def test_a_verdict_is_the_judge_of_the_answers(crew: str) -> None:
    for f in sail(CREWS[crew]):
        assert f.answers is not None and isinstance(f.run.recipe, Recipe)
        instance = f.run.problem.instance(f.run.problem_id, NoContents())  # type: ignore[attr-defined]
        assert f.verdict == judge(instance, dict(f.answers), certify=f.run.recipe.certify)
        assert set(f.facts) == FACTS
        assert f.facts["instance"] == instance.digest and f.facts["load"] == instance.load
        assert f.facts["bits"] == instance.bits and f.facts["best_possible"] == instance.best
        assert f.facts["device"] == "cpu" and f.facts["torch"] == torch.__version__ and f.facts["seconds"] >= 0
        assert 0 < f.facts["steps"] <= f.run.recipe.steps
        for name, array in f.answers.items():
            assert array.dtype == np.float64 and np.isfinite(array).all(), name


def test_separators_tell_what_can_be_separated() -> None:
    """At T = 2d about half of all labelings can; each verdict is a plane or the proof that there is none."""
    finished = list(sail([linear_run(5, 10, seed) for seed in range(40)]))
    assert all(f.verdict.measured for f in finished)
    assert 10 <= sum(bool(f.verdict.exact) for f in finished) <= 30
    for f in finished:
        assert f.verdict.exact or f.verdict.witness["largest_possible_margin"] <= 1e-7


def test_a_solver_that_was_cut_short_has_not_found_and_does_not_say_impossible() -> None:
    short = replace(recipes.separator(), phases=(Lbfgs(steps=3),))
    finished = list(sail([linear_run(7, 29, seed, recipe=short) for seed in range(5)]))
    assert {f.verdict.status for f in finished} == {Status.UNCONVERGED}
    assert all(f.facts["steps"] == 3 and not f.verdict.scores for f in finished)


def test_a_phase_that_is_done_early_hands_on_and_its_steps_are_counted() -> None:
    """L-BFGS gives up after twice its patience; what follows begins where it stood."""
    phases = (Lbfgs(steps=700, memory=5, patience=14, progress=0.9), Adam(steps=21, peak=1e-3))
    recipe = Recipe(name="early", revision=1, loss="squared-hinge", phases=phases, bias=-3.0)
    members = [channel_run(1, k, seed, recipe=recipe, arithmetic="fp64") for k in (1, 2) for seed in range(2)]
    only_first = [replace(r, recipe=replace(recipe, phases=phases[:1])) for r in members]
    first = [next(iter(sail([run]))) for run in only_first]
    for whole, before in zip([next(iter(sail([run]))) for run in members], first, strict=True):
        assert before.facts["steps"] < 700 and before.facts["steps"] % 7 == 0
        assert whole.facts["steps"] == before.facts["steps"] + 21
    assert train(members) == alone(members)


def test_phases_follow_each_other() -> None:
    finished = list(sail(CREWS["two-phases"]))
    assert all(f.facts["steps"] <= 319 for f in finished)
    assert any(f.facts["steps"] > 19 for f in finished)  # the second phase began
    only_first = replace(TWO_PHASES, phases=TWO_PHASES.phases[:1])
    for f in sail([replace(r, recipe=only_first) for r in CREWS["two-phases"]]):
        assert f.facts["steps"] <= 19


def test_problems_from_files_find_their_content() -> None:
    contents = Contents()
    graph = Graph(name="file", edges=3, content=contents.put(np.array([[0, 1], [2, 3], [4, 4]])))
    run = replace(channel_run(1, 3), problem=Relations(items=5, d_model=7, graph=graph))
    (finished,) = sail([run], control=Control(contents=contents))
    assert finished.verdict.measured and finished.facts["load"] == 3
    with pytest.raises(BadInput, match="content"):
        list(sail([run]))


def test_no_members_no_verdicts() -> None:
    assert list(sail([])) == []


@pytest.mark.parametrize(
    "run, mentions",
    [
        (replace(channel_run(1, 3), instrument=LinearUnit()), "relations"),
        (replace(channel_run(1, 3), instrument=Stopping()), "stopping"),
        (replace(channel_run(1, 3), arithmetic="bf16"), "bf16"),
        (channel_run(1, 3, recipe=replace(SHORT, loss="hinge")), r"bce\|squared-hinge"),
        (channel_run(1, 3, recipe=replace(SHORT, phases=(Stopping(),))), r"adam\|lbfgs\|muon"),
    ],
)
def test_runs_that_make_no_sense_are_refused(run: Run, mentions: str) -> None:
    with pytest.raises(BadInput, match=mentions):
        list(sail([run]))


@pytest.mark.gpu
def test_a_fleet_on_a_gpu() -> None:
    """The same instances, the same judge, and every member exact that is exact on the CPU."""
    runs = [
        replace(channel_run(1, 8, seed, items=16, d_model=16, recipe=recipes.gradient()), stopping=Stopping())
        for seed in range(3)
    ]
    here = {f.run.run_id: f for f in sail(runs)}
    for f in sail(runs, device="cuda"):
        assert f.facts["instance"] == here[f.run.run_id].facts["instance"]
        assert f.facts["device"] == torch.cuda.get_device_name() and set(f.facts) == FACTS
        assert f.verdict.exact and here[f.run.run_id].verdict.exact
    fp64 = [replace(r, problem=Dichotomies(dimension=7, examples=13)) for r in CREWS["separator"]]
    on_cpu = {f.run.run_id: f.verdict for f in sail(fp64)}
    on_gpu = {f.run.run_id: f.verdict for f in sail(fp64, device="cuda")}
    assert {k: v.exact for k, v in on_cpu.items()} == {k: v.exact for k, v in on_gpu.items()}
