"""Heads of today: the judge against whole matrices, and the fleet, in which a member's bits are its own."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.contracts.heads_contract import KINDS
from tests.lab.test_fleet import alone, in_pieces, train

from keyspan.attention import reference_heads
from keyspan.attention.shapes import Heads
from keyspan.errors import BadInput
from keyspan.lab import recipes
from keyspan.lab.heads import AFTER, judge_heads
from keyspan.lab.judge import judge, judge_channel
from keyspan.lab.pack import bucket_key
from keyspan.lab.placed import judge_placed
from keyspan.problems import NoContents, graphs
from keyspan.problems.placed import Placed, PlacedInstance
from keyspan.problems.relations import RelationInstance, Relations
from keyspan.seeds import Stream
from keyspan.specs import LinearUnit, Run, Stopping
from keyspan.verdict import Status

ITEMS, D_MODEL, POSITIONS = 71, 11, 5


def instance(graph: graphs.Graph | None = None, positions: int = POSITIONS) -> PlacedInstance:
    problem = Placed(
        relations=Relations(items=ITEMS, d_model=D_MODEL, graph=graph or graphs.permutation()), positions=positions
    )
    return problem.instance("p-heads", NoContents())


def weights(heads: Heads, there: RelationInstance | None = None) -> dict[str, Any]:
    """Random weights, and a threshold that half of the edges pass where all items stand in one place."""
    stream = Stream("test-heads", "weights")
    d, h, k = D_MODEL, heads.heads, heads.d_key
    out: dict[str, Any] = {"w_query": stream.normal((h, d, k)), "bias": np.array(-1.0)}
    if heads.latent:
        out["w_down"] = stream.normal((d, heads.latent))
        out["w_turned"] = stream.normal((d, heads.turned))
        out["w_up"] = stream.normal((h, heads.latent, k - heads.turned))
    else:
        out["w_key"] = stream.normal((heads.key_heads, d, k))
    if heads.norm:
        out["gain"] = 1.0 + 0.2 * stream.normal((k,))
    if there is not None:
        ranked = np.sort(dense(heads, there, out)[tuple(there.edges.T)])
        out["bias"] = -(ranked[len(ranked) // 2] + ranked[len(ranked) // 2 - 1]) / 2
    return out


def dense(heads: Heads, there: RelationInstance, w: dict[str, Any], offset: int = 0) -> Any:
    """Scores of all pairs at an offset, from positions that differ by it."""
    x, far = there.embeddings, np.full(there.items, 17)
    q = reference_heads.queries(heads, x, w, far + offset)
    k = reference_heads.keys(heads, x, w, far)
    return reference_heads.capped((q @ k.transpose(0, 2, 1)).max(axis=0), heads.cap)


def edge_mask(there: RelationInstance) -> Any:
    mask = np.zeros((there.items, there.items), dtype=bool)
    mask[tuple(there.edges.T)] = True
    return mask


@pytest.mark.parametrize("name", KINDS)
def test_heads_in_one_place_are_judged_on_all_pairs(name: str) -> None:
    kind, sizes = KINDS[name]
    heads = kind.with_budget(sizes[0][0], sizes[0][0] * sizes[0][1])
    there = instance(graphs.functional()).relations
    w = weights(heads, there)
    verdict = judge(there, w, instrument=heads)
    s, edge, tau = dense(heads, there, w), edge_mask(there), -float(w["bias"])
    hits, said = int((s[edge] > tau).sum()), int((s > tau).sum())
    assert verdict.scores["f1"] == pytest.approx(2 * hits / (said + ITEMS)) and 0 < hits < ITEMS
    assert verdict.scores["margin"] == pytest.approx(s[edge].min() - s[~edge].max(), abs=1e-9)
    best = max(2 * (s[edge] >= t).sum() / ((s >= t).sum() + ITEMS) for t in s[edge])
    assert verdict.scores["f1_best"] == pytest.approx(best)
    small = judge_heads(there, heads, w, tile=64)
    assert small.scores == pytest.approx(dict(verdict.scores), abs=1e-12)
    for kept in AFTER:
        if heads.keys != "fp32":
            assert f"f1_{kept}" not in verdict.scores
            continue
        after = dense(replace(heads, keys=kept), there, w)
        assert verdict.scores[f"f1_{kept}"] == pytest.approx(2 * (after[edge] > tau).sum() / ((after > tau).sum() + ITEMS))


def test_plain_heads_are_judged_as_a_channel() -> None:
    there, heads = instance().relations, Heads(heads=3, d_key=4)
    w = weights(heads)
    mine, theirs = judge_heads(there, heads, w), judge_channel(there, w["w_query"], w["w_key"], float(w["bias"]))
    assert {k: mine.scores[k] for k in theirs.scores} == pytest.approx(dict(theirs.scores), abs=1e-9)
    assert mine.witness["min_edge"]["source"] == theirs.witness["min_edge"]["source"]


def test_a_soft_cap_changes_nothing_that_is_ranked() -> None:
    """A cap keeps the order of scores: with the threshold capped too, every decision stays."""
    there, cap = instance().relations, 6.0
    plain, with_cap = Heads(heads=3, d_key=4), Heads(heads=3, d_key=4, cap=cap)
    w = weights(plain)
    capped = w | {"bias": -reference_heads.capped(-w["bias"], cap)}
    one, other = judge_heads(there, plain, w), judge_heads(there, with_cap, capped)
    for name in ("f1", "f1_best", "precision", "recall"):
        assert one.scores[name] == pytest.approx(other.scores[name], abs=1e-12)
    assert other.scores["margin"] <= 2 * cap


@pytest.mark.parametrize("graph", [graphs.permutation(), graphs.functional(), graphs.erdos_renyi(90)])
@pytest.mark.parametrize(
    "heads",
    [
        Heads(heads=2, d_key=6, rotary=1.0),
        Heads(heads=2, d_key=6, rotary=1.0, window=3),
        Heads(heads=4, d_key=5, share=2, rotary=0.5, norm=True, cap=3.0),
        Heads(heads=2, d_key=6, latent=4, rotary=0.5, keys="int8"),
        Heads(heads=2, d_key=6),
        Heads(heads=2, d_key=6, window=2),
    ],
)
def test_placed_relations_are_judged_at_every_offset(heads: Heads, graph: graphs.Graph) -> None:
    there = instance(graph)
    w = weights(heads, there.relations)
    verdict = judge(there, w, instrument=heads)
    edge, tau = edge_mask(there.relations), -float(w["bias"])
    own = np.eye(ITEMS, dtype=bool)
    values, shares, real = [], [], []
    for t, share in there.offsets():
        weight = np.where(own, float(t == 0), share)
        seen = not heads.window or abs(t) < heads.window
        s = dense(heads, there.relations, w, t) if seen else np.full((ITEMS, ITEMS), -np.inf)
        values.append(s), shares.append(weight), real.append(edge)  # type: ignore[func-returns-value]
    v, p, e = (np.stack(part).reshape(-1) for part in (values, shares, real))
    load = there.load

    def f1(above: Any) -> float:
        return float(2 * p[e & above].sum() / (p[above].sum() + load))

    assert float(p[e].sum()) == pytest.approx(load)
    assert verdict.scores["f1"] == pytest.approx(f1(v > tau)) and verdict.exact is False
    within = p[e & (v > -np.inf)].sum()
    seen_only = 2 * p[e & (v > tau)].sum() / (p[v > tau].sum() + within)
    assert verdict.scores["f1_seen"] == pytest.approx(seen_only)
    tops = np.sort(v[e & (v > -np.inf) & (p > 0)])
    best = max(f1(v >= t - 1e-12) for t in tops[:: max(1, len(tops) // 40)])
    assert best - 1e-9 <= verdict.scores["f1_best"]
    assert verdict.scores["f1_best"] == pytest.approx(f1(v > verdict.witness["threshold_best"] - 1e-9), abs=1e-9)
    lowest, highest = v[e & (p > 0) & (v > -np.inf)].min(), v[~e & (p > 0)].max()
    assert verdict.witness["min_edge"]["score"] == pytest.approx(lowest, abs=1e-9)
    assert verdict.witness["max_nonedge"]["score"] == pytest.approx(highest, abs=1e-9)
    assert judge_placed(there, heads, w, tile=64).scores == pytest.approx(dict(verdict.scores), abs=1e-9)


def test_without_rotation_places_do_not_matter() -> None:
    heads = Heads(heads=3, d_key=4)
    w, there = weights(heads), instance()
    placed, plain = judge(there, w, instrument=heads), judge(there.relations, w, instrument=heads)
    for name in ("f1", "f1_best", "precision", "recall", "margin"):
        assert placed.scores[name] == pytest.approx(plain.scores[name], abs=1e-12)


def exact_heads(there: RelationInstance, **kind: Any) -> tuple[Heads, dict[str, Any]]:
    """One head of one dimension an edge, which holds any graph on unit rows none equal or opposite."""
    x, (source, target) = there.embeddings, there.edges.T
    heads = Heads(heads=len(source), d_key=1, **kind)
    return heads, {"w_query": x[source][:, :, None], "w_key": x[target][:, :, None], "bias": np.array(-0.999)}


def test_exact_is_exact_everywhere_and_a_window_blinds() -> None:
    heads, w = exact_heads(instance().relations)
    verdict = judge(instance(), w, instrument=heads)
    assert verdict.exact is True and verdict.scores["f1"] == 1.0
    blind = judge(instance(), w, instrument=replace(heads, window=3))
    share = (5 + 2 * 4 + 2 * 3) / 25  # offsets -2 .. 2 of five places
    loops = float((instance().relations.edges[:, 0] == instance().relations.edges[:, 1]).mean())
    share = loops + (1 - loops) * share  # an item is always in its own window
    assert blind.exact is False and blind.scores["f1_seen"] == 1.0
    assert blind.scores["f1"] == pytest.approx(2 * share / (1 + share)) == blind.scores["f1_best"]
    assert judge(instance(), w, instrument=replace(heads, window=5)).exact is True


def test_weights_that_do_not_fit_are_refused() -> None:
    heads = Heads(heads=3, d_key=4, norm=True)
    w = weights(heads)
    with pytest.raises(BadInput, match="gain"):
        judge(instance(), {k: v for k, v in w.items() if k != "gain"}, instrument=heads)
    with pytest.raises(BadInput, match=r"`w_key` is \(3, 11, 4\)"):
        judge(instance(), w | {"w_key": w["w_query"][:, :, :3]}, instrument=heads)
    with pytest.raises(BadInput, match="by heads"):
        judge(instance(), w, instrument=LinearUnit())
    for there in (instance(), instance().relations):
        assert judge(there, w | {"w_query": w["w_query"] * 1e200}, instrument=heads).status is Status.MEASURED  # normed
        wild = weights(Heads(heads=3, d_key=4)) | {"bias": np.array(np.inf)}
        assert judge(there, wild, instrument=Heads(heads=3, d_key=4)).status is Status.DIVERGED


# -------------------------------------------------------------------------------------------------- training


def run(heads: Heads, replicate: int = 0, *, placed: bool = True) -> Run:
    relations = Relations(items=11, d_model=5)
    return Run(
        problem=Placed(relations=relations, positions=6) if placed else relations,
        replicate=replicate,
        instrument=heads,
        recipe=recipes.gradient(steps=23),
        stopping=Stopping(check_every=7),
    )


COMPANY = [
    run(kind.with_budget(*size), seed)
    for kind, sizes in (
        (Heads(heads=1, d_key=1, rotary=1.0), [(2, 8), (2, 6), (1, 4)]),
        (Heads(heads=2, d_key=1, share=2, rotary=0.5, norm=True, keys="int8"), [(4, 16), (4, 12)]),
        (Heads(heads=1, d_key=1, latent=3, rotary=0.5, cap=2.0), [(4, 16), (3, 12)]),
    )
    for seed, size in enumerate(sizes)
]


def test_company_changes_no_bit() -> None:
    assert alone(COMPANY) == train(COMPANY)


def test_interruptions_change_no_bit(tmp_path: Path) -> None:
    assert in_pieces(COMPANY, tmp_path, itertools.repeat(5, 500)) == train(COMPANY)


def test_who_may_share_a_batch() -> None:
    same = Heads(heads=3, d_key=5, rotary=1.0)
    assert bucket_key(run(same)) == bucket_key(run(replace(same, heads=4, d_key=7), 3))
    others = [
        replace(same, **change) for change in ({"rotary": 0.5}, {"norm": True}, {"cap": 2.0}, {"keys": "int4"}, {"share": 3})
    ]
    assert len({bucket_key(run(kind)) for kind in (same, *others)}) == 6
    assert bucket_key(run(same)) != bucket_key(run(same, placed=False))


def test_heads_learn_relations_in_one_place_and_anywhere() -> None:
    """Slowly turning pairs keep what stands far apart together, fast ones do not."""
    relations = Relations(items=24, d_model=16)
    base = Run(
        problem=relations,
        replicate=0,
        instrument=Heads(heads=2, d_key=8, norm=True),
        recipe=recipes.gradient(steps=250),
        stopping=Stopping(),
    )
    placed = Placed(relations=relations, positions=32)
    slow = replace(base, problem=placed, instrument=Heads(heads=2, d_key=8, rotary=1.0, base=1e9))
    fast = replace(slow, instrument=Heads(heads=2, d_key=8, rotary=1.0, base=1.5))
    found = {f.run.run_id: f.verdict for f in _sailed([base, slow, fast])}
    one, far, lost = (found[r.run_id].scores["f1_best"] for r in (base, slow, fast))
    assert one > 0.95 and far > 0.9 and lost < 0.6


def _sailed(runs: list[Run]) -> list[Any]:
    from keyspan.lab.fleet import sail

    return list(sail(runs))
