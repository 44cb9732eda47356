"""Relations of items that stand somewhere: positions are uniform, drawn from the problem and the step, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from keyspan.errors import BadInput
from keyspan.problems import NoContents
from keyspan.problems.placed import BLOCK, Placed, placements
from keyspan.problems.relations import Relations
from keyspan.specs import decode

PROBLEM = Placed(relations=Relations(items=13, d_model=7), positions=5)


def test_the_instance_is_that_of_its_relations() -> None:
    instance = PROBLEM.instance("p1", NoContents())
    plain = PROBLEM.relations.instance("p1", NoContents())
    assert np.array_equal(instance.relations.embeddings, plain.embeddings) and instance.digest == plain.digest
    assert (instance.load, instance.bits, instance.best) == (plain.load, plain.bits, plain.best)
    assert PROBLEM.shape == (13, 7, 13, 5) and decode(PROBLEM.to_json()) == PROBLEM


def test_positions_follow_the_step_and_the_problem() -> None:
    instance, other = (PROBLEM.instance(name, NoContents()) for name in ("p1", "p2"))
    steps = [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 5]
    seen = [instance.placed_at(step) for step in steps]
    assert all(np.array_equal(there, instance.placed_at(step)) for there, step in zip(seen, steps, strict=True))
    assert len({there.tobytes() for there in seen}) == len(steps)
    assert not np.array_equal(seen[0], other.placed_at(0))
    assert np.array_equal(PROBLEM.batch(BLOCK, [instance, other])["positions"], [seen[3], other.placed_at(BLOCK)])


def test_positions_are_uniform_and_offsets_as_probable_as_said() -> None:
    drawn = np.concatenate([placements("p1", 5, 13, block) for block in range(200)])
    counts = np.bincount(drawn.reshape(-1), minlength=5) / drawn.size
    assert np.abs(counts - 0.2).max() < 0.005
    offsets = drawn[:, 3] - drawn[:, 8]
    said = dict(PROBLEM.instance("p1", NoContents()).offsets())
    assert sum(said.values()) == pytest.approx(1.0) and set(said) == set(range(-4, 5))
    assert all(abs((offsets == t).mean() - share) < 0.015 for t, share in said.items())


@pytest.mark.parametrize("positions", [0, 4097])
def test_positions_that_make_no_sense(positions: int) -> None:
    with pytest.raises(BadInput, match="--positions"):
        Placed(relations=Relations(items=13, d_model=7), positions=positions)
