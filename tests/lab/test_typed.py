"""Typed members in the fleet and before the judge: type by type what a plain channel is; company and kills."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.lab.test_fleet import alone, in_pieces, train

from keyspan.attention import reference
from keyspan.errors import BadInput
from keyspan.lab.fleet import sail
from keyspan.lab.judge import judge
from keyspan.lab.recipes import gradient, showing
from keyspan.lab.typed import plain
from keyspan.problems.typed import SHARING, TypedChannel, TypedRelations
from keyspan.specs import Run, Stopping
from keyspan.verdict import Status


def runs(sharing: str, steps: int = 40) -> list[Run]:
    """Members of one bucket."""
    return [
        Run(
            problem=TypedRelations(items=13, d_model=7, types=2),
            replicate=seed,
            instrument=TypedChannel(heads=h, d_key=k, sharing=sharing),
            recipe=gradient(steps=steps),
            stopping=Stopping(check_every=7),
        )
        for h, k, seed in [(6, 3, 0), (8, 4, 1), (6, 4, 0), (8, 3, 2)]
    ]


@pytest.mark.parametrize("sharing", SHARING)
def test_company_changes_no_bit(sharing: str) -> None:
    assert alone(runs(sharing)) == train(runs(sharing))


def test_a_kill_changes_no_bit(tmp_path: Path) -> None:
    assert in_pieces(runs("leaning"), tmp_path, itertools.repeat(9, 500)) == train(runs("leaning"))


@pytest.mark.parametrize("sharing", SHARING)
def test_the_judge_says_what_the_reference_says(sharing: str) -> None:
    for finished in sail(runs(sharing, steps=300)):
        answers, instance, instrument = finished.answers, finished.instance, finished.run.instrument
        assert answers is not None and isinstance(instrument, TypedChannel)
        gates = answers["gates"].copy()
        if sharing == "partitioned":
            shut = np.full_like(gates, -np.inf)
            for t in range(2):
                shut[t, instrument.own(t, 2)] = gates[t, instrument.own(t, 2)]
            gates = shut
        z = reference.typed(instance.embeddings, answers["w_query"], answers["w_key"], gates)
        each = [reference.f1(z[t] > 0, instance.edges[t]) for t in range(2)]
        assert finished.verdict.scores["f1"] == pytest.approx(np.mean(each))
        assert finished.verdict.exact == all(f1 == 1.0 for f1 in each)
        assert [t["f1"] for t in finished.verdict.witness["types"]] == pytest.approx(each)
        margins = []
        for t in range(2):
            i, j = instance.edges[t].T
            others = z[t].copy()
            others[i, j] = -np.inf
            margins.append(z[t][i, j].min() - others.max())
        assert finished.verdict.scores["margin"] == pytest.approx(min(margins))
        assert set(TypedRelations.scores) <= set(finished.verdict.scores)


def test_a_type_alone_is_a_plain_channel() -> None:
    (finished, *_) = sail(runs("leaning", steps=100))
    answers, instrument = finished.answers, finished.run.instrument
    assert answers is not None and isinstance(instrument, TypedChannel)
    for t in range(2):
        one, query, key = plain(finished.instance, instrument, answers["w_query"], answers["w_key"], answers["gates"], t)
        verdict = judge(one, {"w_query": query, "w_key": key, "bias": np.array(0.0)})
        assert verdict.scores["f1"] == finished.verdict.witness["types"][t]["f1"]
        assert one.embeddings.shape == (13, 8) and query.shape[1:] == (8, instrument.d_key + 1)


def test_weights_that_overflow_are_diverged() -> None:
    (finished, *_) = sail(runs("shared"))
    answers = finished.answers
    assert answers is not None
    huge = {**answers, "w_query": answers["w_query"] * 1e200, "w_key": answers["w_key"] * 1e200}
    assert judge(finished.instance, huge, instrument=finished.run.instrument).status is Status.DIVERGED
    with pytest.raises(BadInput, match="typed channel"):
        judge(finished.instance, dict(answers))


def test_a_typed_channel_is_shown_all_triples() -> None:
    run = replace(runs("shared")[0], recipe=showing(gradient(), contexts=5))
    with pytest.raises(BadInput, match="Only a channel"):
        list(sail([run]))
