"""Routing: the judge against contexts looked at one by one, and against all of them; a member's bits are its own."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.lab.test_fleet import alone, in_pieces, train

from keyspan.attention import reference_routed as reference
from keyspan.attention.shapes import Routed
from keyspan.errors import BadInput
from keyspan.lab import recipes
from keyspan.lab.fleet import sail
from keyspan.lab.judge import judge
from keyspan.lab.pack import bucket_key, memory, seconds
from keyspan.lab.routed import MARGIN, errors_in, judge_routed
from keyspan.problems import NoContents, graphs
from keyspan.problems.in_context import InContext, InContextInstance
from keyspan.problems.relations import Relations
from keyspan.seeds import Stream
from keyspan.specs import Channel, Run, Stopping
from keyspan.verdict import Status

LAYERS = {
    "attention": Routed(heads=3, d_key=2),
    "no sink": Routed(heads=3, d_key=2, sink=False, temperature=0.5),
    "values": Routed(heads=2, d_key=3, d_value=5),
    "a block": Routed(heads=2, d_key=3, d_value=5, hidden=9),
}


def made(items: int = 13, length: int = 6, graph: graphs.Graph | None = None) -> InContextInstance:
    problem = InContext(relations=Relations(items=items, d_model=7, graph=graph or graphs.functional()), length=length)
    return problem.instance("p-routed", NoContents())


def weights(layer: Routed, d: int = 7) -> dict[str, Any]:
    stream, h = Stream("test-routed", "weights"), layer.heads
    w: dict[str, Any] = {name: 2.0 * stream.normal((h, d, layer.d_key)) for name in ("w_query", "w_key")}
    if layer.sink:
        w["sink"] = stream.normal((h,))
    if layer.d_value:
        w |= {"w_value": stream.normal((h, d, layer.d_value)), "w_out": stream.normal((h, layer.d_value, d))}
        w["bias"] = np.array(-1.0)
    if layer.hidden:
        w |= {"w_up": stream.normal((d, layer.hidden)), "b_up": stream.normal((layer.hidden,))}
        w |= {"w_down": stream.normal((layer.hidden, d)), "b_down": stream.normal((d,))}
        w |= {name: 1 + 0.1 * stream.normal((d,)) for name in ("norm_in", "norm_mid", "norm_out")}
    return w


def each_context(instance: InContextInstance) -> Any:
    """Every judged context by itself: its items, and where their targets stand among them."""
    shown = instance.judged()
    for items, there, places in zip(shown.items, shown.open, shown.places, strict=True):
        kept = np.flatnonzero(there)
        to = np.full(len(there), -1)
        to[kept] = np.arange(len(kept))
        yield items[kept], np.where(places[kept] >= 0, to[places[kept]], -1)


@pytest.mark.parametrize("name", ["attention", "no sink"])
def test_attention_is_judged_context_by_context(name: str) -> None:
    layer, instance = LAYERS[name], made()
    w, rows = weights(layer), instance.relations.embeddings
    verdict = judge(instance, w, instrument=layer)
    hits = said = edges = right = 0
    error = 0.0
    for items, places in each_context(instance):
        a = reference.attention(layer, rows[items], w)
        decided: Any = (a > 0.5).any(axis=0)
        for i, place in enumerate(places):
            edges += place >= 0
            hits += place >= 0 and bool(decided[i, place])
            total = a[:, i].sum(axis=0)
            right += place >= 0 and int(total.argmax()) == place
            others = total.sum() - (total[place] if place >= 0 else 0.0)
            error = max(error, others + (max(0.0, 1 - total[place]) if place >= 0 else 0.0))
        said += int(decided.sum())
    assert verdict.scores["f1"] == pytest.approx(2 * hits / (said + edges)) and 0 < hits < edges
    assert verdict.scores["routed"] == pytest.approx(right / edges)
    assert verdict.scores["error"] == pytest.approx(error)
    assert verdict.witness["true_positives"] == hits and verdict.witness["false_positives"] == said - hits


@pytest.mark.parametrize("name", ["attention", "no sink"])
@pytest.mark.parametrize("graph", [graphs.permutation(), graphs.functional(loops=False)])
def test_every_context_is_every_context(name: str, graph: graphs.Graph) -> None:
    """Against all contexts there are: an edge counts if it is recalled in all of them, a pair that is none if said in one."""
    layer, instance = LAYERS[name], made(items=6, length=4, graph=graph)
    w, rows, targets = weights(layer), instance.relations.embeddings, instance.targets
    always, ever = np.ones((6, 6), dtype=bool), np.zeros((6, 6), dtype=bool)
    for size in range(1, 7):
        for chosen in itertools.combinations(range(6), size):
            decided = (reference.attention(layer, rows[list(chosen)], w) > 0.5).any(axis=0)
            at = np.ix_(chosen, chosen)
            always[at] &= decided
            ever[at] |= decided
    edge = np.zeros((6, 6), dtype=bool)
    edge[np.flatnonzero(targets >= 0), targets[targets >= 0]] = True
    expected = 2 * (always & edge).sum() / ((always & edge).sum() + (ever & ~edge).sum() + edge.sum())
    assert judge_routed(instance, layer, w).scores["f1_every"] == pytest.approx(expected)


def exact(instance: InContextInstance) -> tuple[Routed, dict[str, Any]]:
    """A head an item, sharp enough that every context is right: a head's query is its item's, its key that of the target."""
    x, targets = instance.relations.embeddings, instance.targets
    layer = Routed(heads=len(x), d_key=1, temperature=0.01)
    return layer, {"w_query": x[:, :, None], "w_key": x[targets][:, :, None], "sink": np.full(len(x), 98.0)}


def test_what_is_exact_is_exact_in_every_context() -> None:
    instance = made(graph=graphs.permutation())
    layer, w = exact(instance)
    verdict = judge(instance, w, instrument=layer)
    assert verdict.exact is True and verdict.scores["f1_every"] == verdict.scores["f1"] == 1.0
    assert verdict.scores["error"] < 0.3
    blunt = judge(instance, w | {"sink": np.full(len(w["sink"]), -50.0)}, instrument=layer)
    assert blunt.exact is False and blunt.scores["f1_every"] < 1.0


@pytest.mark.parametrize("name", ["values", "a block"])
def test_values_are_judged_context_by_context(name: str) -> None:
    layer, instance = LAYERS[name], made()
    w, rows = weights(layer), instance.relations.embeddings
    verdict = judge(instance, w, instrument=layer)
    found = dict.fromkeys(("hits", "said", "edges", "routed", "routed_keys", "routed_values", "cosine", "routed_cosine"), 0.0)
    for items, places in each_context(instance):
        x = rows[items]
        a = reference.attention(layer, reference.attends(layer, x, w), w)
        o = reference.stream(layer, x, w, a)
        for i, place in enumerate(places):
            read = rows @ o[i]
            sure = read.max() > 1.0
            found["said"] += sure
            if place < 0:
                continue
            target = items[place]
            found["edges"] += 1
            found["hits"] += sure and read.argmax() == target
            found["routed"] += read.argmax() == target
            found["routed_keys"] += a[:, i].sum(axis=0).argmax() == place
            ideal = np.zeros_like(a)
            ideal[a[:, i, place].argmax(), i, place] = 1.0
            found["routed_values"] += (rows @ reference.stream(layer, x, w, ideal)[i]).argmax() == target
            cosines = rows @ o[i] / np.linalg.norm(o[i])  # rows have unit norm
            found["cosine"] += cosines[target]
            found["routed_cosine"] += cosines[target] - np.delete(cosines, target).max() > MARGIN
    edges = found.pop("edges")
    assert verdict.scores["f1"] == pytest.approx(2 * found.pop("hits") / (found.pop("said") + edges))
    assert 0 < verdict.scores["f1"] < 1 and verdict.scores["threshold"] == 1.0
    for score, value in found.items():
        assert verdict.scores[score] == pytest.approx(value / edges), score


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = made()
    for layer in LAYERS.values():
        w = weights(layer)
        whole = judge_routed(instance, layer, w).scores
        with monkeypatch.context() as small:
            small.setattr("keyspan.lab.routed.SOME", 1)
            assert judge_routed(instance, layer, w).scores == pytest.approx(dict(whole))


def test_errors_of_given_contexts() -> None:
    layer, instance = LAYERS["attention"], made()
    w = weights(layer)
    shown = instance.judged()
    errors = errors_in(instance, layer, w, shown)
    assert errors.shape == shown.open.shape and (errors[~shown.open] == 0).all()
    assert float(errors.max()) == judge_routed(instance, layer, w).scores["error"]


def test_weights_that_do_not_fit_are_refused() -> None:
    instance, layer = made(), LAYERS["values"]
    w = weights(layer)
    with pytest.raises(BadInput, match="w_out"):
        judge(instance, {k: v for k, v in w.items() if k != "w_out"}, instrument=layer)
    with pytest.raises(BadInput, match=r"`w_value` is \(2, 7, 5\)"):
        judge(instance, w | {"w_value": w["w_out"]}, instrument=layer)
    with pytest.raises(BadInput, match="must be routed"):
        judge(instance, w, instrument=Channel(heads=1, d_key=1))
    for kind in ("attention", "a block"):
        wild = weights(LAYERS[kind])
        assert judge(instance, wild | {"w_query": wild["w_query"] * 1e60}, instrument=LAYERS[kind]).status is Status.DIVERGED


# -------------------------------------------------------------------------------------------------- training


def run(layer: Routed, replicate: int = 0, items: int = 13, length: int = 6, steps: int = 23) -> Run:
    return Run(
        problem=InContext(relations=Relations(items=items, d_model=7), length=length),
        replicate=replicate,
        instrument=layer,
        recipe=recipes.recall(steps=steps, peak=0.05),
        stopping=Stopping(check_every=7),
    )


COMPANY = [
    run(layer.with_budget(heads, heads * d_key), seed)
    for layer in (Routed(heads=1, d_key=1), Routed(heads=1, d_key=1, d_value=12, hidden=9))
    for seed, (heads, d_key) in enumerate([(3, 3), (4, 4), (3, 4)])
]


def test_company_changes_no_bit() -> None:
    assert alone(COMPANY) == train(COMPANY)


def test_interruptions_change_no_bit(tmp_path: Path) -> None:
    assert in_pieces(COMPANY, tmp_path, itertools.repeat(5, 500)) == train(COMPANY)


def test_who_may_share_a_batch_and_what_it_costs() -> None:
    same = Routed(heads=3, d_key=3, d_value=3)
    assert bucket_key(run(same)) == bucket_key(run(Routed(heads=4, d_key=4, d_value=4), 3))
    others = [Routed(heads=3, d_key=3), Routed(heads=3, d_key=3, d_value=3, sink=False), Routed(heads=3, d_key=3, d_value=8)]
    assert len({bucket_key(run(layer)) for layer in (same, *others)}) == 4
    assert seconds(run(same, items=64)) > seconds(run(same)) > 0 and memory(run(same)) > 0


def test_routing_learns_to_recall() -> None:
    layers = [Routed(heads=2, d_key=6), Routed(heads=2, d_key=6, d_value=7)]
    before, after = (
        {f.run.instrument: f.verdict.scores["f1"] for f in sail([run(layer, steps=steps) for layer in layers])}
        for steps in (1, 300)
    )
    assert all(before[layer] < 0.6 and after[layer] > 0.9 for layer in layers)
